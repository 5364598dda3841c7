package tiercases

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/integration/kit"
)

var bothKinds = []struct{ name, tiered string }{{"local", "false"}, {"tiered", "true"}}

// RT-01
func TestFutureStampDoesNotKeepATopic(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	future := time.Now().AddDate(10, 0, 0)
	b.create("default", 1, nil)
	err := b.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "default", Value: []byte("x"), Timestamp: future}).FirstErr()
	require.ErrorIs(t, err, kerr.InvalidTimestamp)
	for _, kind := range bothKinds {
		for _, limit := range []struct{ name, key, set string }{{"time", "retention.ms", "1000"}, {"size", "retention.bytes", "1"}} {
			t.Run(kind.name+" by "+limit.name, func(t *testing.T) {
				topic := kind.name + "-" + limit.name
				b.create(topic, 1, small(11_200, "remote.storage.enable", kind.tiered, "retention.ms", "-1", "message.timestamp.after.max.ms", "9223372036854775807"))
				b.write(topic, 0, 0, 1, 1000, future)
				b.write(topic, 0, 1, 59, 1000, time.Time{})
				if kind.tiered == "true" {
					b.tiered(topic, 0, 4)
				} else {
					kit.Eventually(t, 10*time.Second, "the metric shows the stamp", func() bool { return b.Metric("strandline_future_timestamp_segments") > 0 })
				}
				require.Zero(t, b.offset(topic, 0, -2))
				require.NoError(t, b.alter(topic, limit.key, limit.set))
				kit.Eventually(t, 20*time.Second, "the first segments expire", func() bool { return b.offset(topic, 0, -2) >= 40 })
			})
		}
	}
}

// RT-03
func TestIdleTopicExpiresWhole(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	for _, kind := range bothKinds {
		b.create("few-"+kind.name, 3, map[string]string{"remote.storage.enable": kind.tiered, "retention.ms": "-1", "file.delete.delay.ms": "100"})
		b.create("many-"+kind.name, 3, small(11_200, "remote.storage.enable", kind.tiered, "retention.ms", "-1"))
		for p := range int32(3) {
			b.write("few-"+kind.name, p, 0, 100, 100, time.Time{})
			b.write("many-"+kind.name, p, 0, 100, 1000, time.Time{})
		}
	}
	for p := range int32(3) {
		b.tiered("many-tiered", p, 8)
	}
	require.NotEmpty(t, segments(b.directoryKeys()))
	topics := []string{"few-local", "many-local", "few-tiered", "many-tiered"}
	for _, topic := range topics {
		require.NoError(t, b.alter(topic, "retention.ms", "500"))
	}
	b.again(true) // in the middle
	expired := func() bool {
		for _, topic := range topics {
			for p := range int32(3) {
				if b.offset(topic, p, -2) != 100 || b.offset(topic, p, -1) != 100 {
					return false
				}
			}
		}
		return true
	}
	kit.Eventually(t, 20*time.Second, "earliest is latest is 100", expired)
	kit.Eventually(t, 20*time.Second, "no objects, no local bytes", func() bool {
		for _, p := range b.status().Partitions {
			if p.LocalBytes > 0 {
				return false
			}
		}
		return len(segments(b.directoryKeys())) == 0
	})
	b.again(false)
	require.True(t, expired(), "a restart brings nothing back")
	for _, topic := range topics {
		require.NoError(t, b.alter(topic, "retention.ms", "-1"))
		b.write(topic, 1, 100, 1, 50, time.Time{})
		b.check(topic, 1, 100, 101, 50)
	}
}

// RT-05
func TestTimeAndSizeHoldTogether(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	old, fresh := time.Now().Add(-2*time.Hour), time.Now()
	cases := []struct {
		name, ms, bytes string
		low, high       int64 // of the log start; 60 old records, then 60 fresh ones
	}{
		{"size", "86400000", "33000", 80, 95},
		{"time", "3600000", "999999999", 50, 60},
		{"size-is-stricter", "3600000", "33000", 80, 95},
		{"time-is-stricter", "3600000", "100000", 50, 60},
		{"neither", "86400000", "999999999", 0, 0},
	}
	for _, kind := range bothKinds {
		for _, c := range cases {
			topic := kind.name + "-" + c.name
			b.create(topic, 1, small(11_200, "remote.storage.enable", kind.tiered, "retention.ms", "-1"))
			b.write(topic, 0, 0, 60, 1000, old)
			b.write(topic, 0, 60, 60, 1000, fresh)
			if kind.tiered == "true" {
				b.tiered(topic, 0, 8)
			}
			require.NoError(t, b.alter(topic, "retention.ms", c.ms, "retention.bytes", c.bytes))
		}
	}
	for _, kind := range bothKinds {
		for _, c := range cases {
			topic := kind.name + "-" + c.name
			kit.Eventually(t, 10*time.Second, topic+": the stricter limit holds", func() bool { return b.offset(topic, 0, -2) >= c.low })
		}
	}
	b.marker("strict")
	for _, kind := range bothKinds {
		for _, c := range cases {
			topic := kind.name + "-" + c.name
			start := b.offset(topic, 0, -2)
			require.LessOrEqual(t, start, c.high, topic)
			b.check(topic, 0, start, 120, 1000)
		}
	}
}

// marker returns once retention has looked at every partition again: a topic
// that was made after the call has expired.
func (b *broker) marker(after string) {
	b.t.Helper()
	for _, tiered := range []string{"false", "true"} {
		name := fmt.Sprintf("marker-%s-%s", after, tiered)
		b.create(name, 1, small(6_000, "remote.storage.enable", tiered, "retention.ms", "-1"))
		b.write(name, 0, 0, 20, 1000, time.Now().Add(-time.Hour))
		if tiered == "true" {
			b.tiered(name, 0, 1)
		}
		_ = b.alter(name, "retention.ms", "1000")
		kit.Eventually(b.t, 20*time.Second, "the marker expires", func() bool { return b.offset(name, 0, -2) == 20 })
	}
}

// RT-07
func TestOnePassRemovesAllThatIsDue(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	old, fresh := time.Now().Add(-2*time.Hour), time.Now()
	for _, kind := range bothKinds {
		t.Run(kind.name, func(t *testing.T) {
			topic := "order-" + kind.name
			b.create(topic, 1, small(11_200, "remote.storage.enable", kind.tiered, "retention.ms", "3600000"))
			b.write(topic, 0, 0, 10, 1000, fresh) // blocks the expiry of what follows
			b.write(topic, 0, 10, 20, 1000, old)
			b.write(topic, 0, 30, 15, 1000, fresh)
			if kind.tiered == "true" {
				b.tiered(topic, 0, 3)
			}
			b.marker(topic + "-before")
			require.Zero(t, b.offset(topic, 0, -2), "the first segment is fresh")
			deletion := kadm.Offsets{}
			deletion.Add(kadm.Offset{Topic: topic, Partition: 0, At: 15})
			resp, err := b.admin.DeleteRecords(t.Context(), deletion)
			require.NoError(t, err)
			require.NoError(t, resp.Error())
			kit.Eventually(t, 10*time.Second, "what is old goes", func() bool { return b.offset(topic, 0, -2) == 30 })
			b.marker(topic + "-after")
			require.EqualValues(t, 30, b.offset(topic, 0, -2), "a second pass deletes nothing")
			b.check(topic, 0, 30, 45, 1000)
		})
	}
}
