package server

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"strandline/broker/api"
	"strandline/broker/wire"
)

// Names of limits, as in strandline_limit_hits_total{limit}.
const (
	LimitConnections      = "connections"
	LimitConnectionsPerIP = "connections_per_ip"
	LimitRequestBytes     = "request_bytes"
	LimitInFlight         = "in_flight_requests"
	LimitInFlightBytes    = "in_flight_bytes"
	LimitIdle             = "connection_idle"
	LimitColdReads        = "cold_reads"
)

// Metrics are the server's collectors.
type Metrics struct {
	requests    [128]prometheus.Observer
	connections prometheus.Gauge
	accepted    prometheus.Counter
	closed      *prometheus.CounterVec
	received    prometheus.Counter
	limits      *prometheus.CounterVec
	stats       wire.Stats
}

// NewMetrics makes the collectors and registers them; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "strandline_connections", Help: "Open client connections.",
		}),
		accepted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "strandline_connections_accepted_total", Help: "Client connections accepted.",
		}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "strandline_connections_closed_total", Help: "Client connections closed, by reason.",
		}, []string{"reason"}),
		received: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "strandline_request_bytes_total", Help: "Bytes of requests received.",
		}),
		limits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "strandline_limit_hits_total", Help: "How often a limit was hit, by limit.",
		}, []string{"limit"}),
	}
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "strandline_request_duration_seconds",
		Help:    "Time from a request's last byte to its response being ready to send, by API.",
		Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"api"})
	for _, a := range wire.Supported() {
		m.requests[a.Key] = latency.WithLabelValues(a.Name)
	}
	for _, l := range []string{LimitConnections, LimitConnectionsPerIP, LimitRequestBytes, LimitInFlight, LimitInFlightBytes, LimitIdle, LimitColdReads, api.LimitAutoCreate, api.LimitFetchSessions, api.LimitOldAnswers} {
		m.limits.WithLabelValues(l)
	}
	if reg == nil {
		return m
	}
	m.limits = register(reg, m.limits)
	reg.MustRegister(m.connections, m.accepted, m.closed, m.received, latency)
	for tier, name := range map[wire.Tier]string{wire.LocalTier: "local", wire.RemoteTier: "remote"} {
		for path, way := range map[wire.Path]string{wire.SendfilePath: "sendfile", wire.CopyPath: "copy"} {
			reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name:        "strandline_fetch_bytes_total",
				Help:        "Bytes of records sent to consumers, by the tier they were read from and the path they took.",
				ConstLabels: prometheus.Labels{"tier": name, "path": way},
			}, func() float64 { return float64(m.stats.Bytes(tier, path)) }))
		}
	}
	return m
}

// register returns the collector that is registered under this name already,
// where there is one: limits are counted by several packages.
func register(reg prometheus.Registerer, c *prometheus.CounterVec) *prometheus.CounterVec {
	err := reg.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}

// LimitHit counts a hit of a limit.
func (m *Metrics) LimitHit(limit string) { m.limits.WithLabelValues(limit).Inc() }

// Stats are the bytes of file regions sent.
func (m *Metrics) Stats() *wire.Stats { return &m.stats }

func (m *Metrics) observe(key int16, d time.Duration) {
	if key >= 0 && int(key) < len(m.requests) && m.requests[key] != nil {
		m.requests[key].Observe(d.Seconds())
	}
}
