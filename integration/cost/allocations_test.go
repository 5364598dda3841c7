package cost

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAllocations bounds what a request allocates in the server's process, from
// its socket to the file and back.
func TestAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	b := newBench(t)
	for _, l := range loads {
		t.Run(l.name, func(t *testing.T) {
			b := b.with(t)
			// A round in which the server did something besides, or the reading of
			// counters cost more than on average, shows too many.
			const rounds = 4
			least := allocated{count: math.Inf(1)}
			for range rounds {
				each := b.measure(l)
				t.Logf("%.2f allocations, %.0f bytes a request", each.count, each.bytes)
				if each.count < least.count {
					least = each
				}
				if least.count <= l.allocations {
					return
				}
			}
			require.LessOrEqual(t, least.count, l.allocations)
		})
	}
}

// measure tells what a request allocates.
func (b *bench) measure(l load) allocated {
	const warm = 200 // pools and buffers have what they need
	requests := l.prepare(b, warm+l.many)
	b.run(l, requests[:warm])
	reading := b.reading()
	before := b.allocated()
	b.run(l, requests[warm:])
	spent := b.allocated().sub(before).sub(reading)
	return allocated{spent.count / float64(l.many), spent.bytes / float64(l.many)}
}

type allocated struct{ count, bytes float64 }

func (a allocated) sub(b allocated) allocated { return allocated{a.count - b.count, a.bytes - b.bytes} }

// allocated is what the server's process has allocated so far.
func (b *bench) allocated() (a allocated) {
	_, page := b.srv.Get("/metrics")
	for line := range strings.Lines(page) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		into := map[string]*float64{"go_memstats_mallocs_total": &a.count, "go_memstats_alloc_bytes_total": &a.bytes}[name]
		if into == nil {
			continue
		}
		var err error
		*into, err = strconv.ParseFloat(value, 64)
		require.NoError(b.t, err)
	}
	require.NotZero(b.t, a.count)
	return a
}

// reading is what reading the counters allocates itself, on average.
func (b *bench) reading() allocated {
	const times = 10
	first := b.allocated()
	for range times - 1 {
		b.allocated()
	}
	all := b.allocated().sub(first)
	return allocated{all.count / times, all.bytes / times}
}
