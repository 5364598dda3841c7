package api

import "github.com/prometheus/client_golang/prometheus"

// Conversions counts the records that were stored or served in another form
// than they came in. Nil counts nothing.
type Conversions struct {
	records [conversionKinds]prometheus.Counter
}

type conversion int

const (
	conversionUp    conversion = iota // produced in an old format
	conversionDown                    // fetched in an old format
	conversionCodec                   // stored with the topic's codec
	conversionKinds
)

// NewConversions makes the collectors and registers them.
func NewConversions(reg prometheus.Registerer) *Conversions {
	c := &Conversions{}
	records := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "strandline_converted_records_total",
		Help: "Records that were converted: up, produced in message format v0 or v1; down, fetched in one of them; codec, compressed anew for compression.type.",
	}, []string{"kind"})
	for kind, label := range []string{"up", "down", "codec"} {
		c.records[kind] = records.WithLabelValues(label)
	}
	reg.MustRegister(records)
	return c
}

func (c *Conversions) add(kind conversion, records int) {
	if c != nil && records > 0 {
		c.records[kind].Add(float64(records))
	}
}
