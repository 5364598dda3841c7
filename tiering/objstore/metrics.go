package objstore

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what Guard asks of the store, attempt by attempt.
type Metrics struct {
	requests *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	retries  *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
	limited  *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg, which may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	verb := []string{"verb"}
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "strandline_remote_requests_total",
			Help: "Requests to the object store, each attempt counted, by verb and result.",
		}, []string{"verb", "result"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "strandline_remote_bytes_total",
			Help: "Bytes of object bodies sent to (put) and received from (get) the object store.",
		}, verb),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "strandline_remote_request_seconds",
			Help:    "Duration of a request to the object store, until the last byte of its body.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, verb),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "strandline_remote_retries_total",
			Help: "Attempts at an object store request after the first one.",
		}, verb),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "strandline_remote_requests_in_flight",
			Help: "Requests to the object store under way.",
		}, verb),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "strandline_remote_limited_total",
			Help: "Requests to the object store that had to wait for the concurrency limit of their verb.",
		}, verb),
	}
	for _, v := range Verbs() {
		m.inFlight.WithLabelValues(string(v))
	}
	m.bytes.WithLabelValues(string(VerbGet))
	m.bytes.WithLabelValues(string(VerbPut))
	if reg != nil {
		reg.MustRegister(m.requests, m.bytes, m.seconds, m.retries, m.inFlight, m.limited)
	}
	return m
}

// result is the label for the outcome of a request.
func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	for _, c := range []struct {
		class error
		label string
	}{
		{ErrNotFound, "not_found"},
		{ErrExists, "exists"},
		{ErrAccess, "access"},
		{ErrNoBucket, "no_bucket"},
		{ErrRange, "range"},
		{ErrChecksum, "checksum"},
		{ErrThrottled, "throttled"},
		{ErrStalled, "timeout"},
		{ErrUnavailable, "unavailable"},
		{ErrConflict, "conflict"},
		{ErrFull, "full"},
	} {
		if errors.Is(err, c.class) {
			return c.label
		}
	}
	return "error"
}
