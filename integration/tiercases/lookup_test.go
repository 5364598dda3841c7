package tiercases

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// stampedRecords writes n records from offset from, record o with the timestamp
// o*1000, in batches of five.
func (b *broker) stampedRecords(topic string, from, n int64, size int, codec kgo.CompressionCodec) {
	b.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec))
	require.NoError(b.t, err)
	defer cl.Close()
	for o := from; o < from+n; o += 5 {
		var batch []*kgo.Record
		for i := o; i < o+5; i++ {
			batch = append(batch, &kgo.Record{Topic: topic, Value: value(topic, 0, i, size), Timestamp: time.UnixMilli(i * 1000)})
		}
		require.NoError(b.t, cl.ProduceSync(context.Background(), batch...).FirstErr())
	}
}

// trim deletes the records below an offset.
func (b *broker) trim(topic string, offset int64) {
	b.t.Helper()
	to := kadm.Offsets{}
	to.Add(kadm.Offset{Topic: topic, Partition: 0, At: offset})
	resp, err := b.admin.DeleteRecords(b.t.Context(), to)
	require.NoError(b.t, err)
	require.NoError(b.t, resp.Error())
}

// lookups compares the answer for every timestamp around records of [low, high)
// with what stampedRecords wrote, where the log is [start, end).
func (b *broker) lookups(topic string, start, end, low, high int64, why string) {
	b.t.Helper()
	for o := max(low, 0); o <= high; o++ {
		for _, ts := range []int64{o*1000 - 1, o * 1000, o*1000 + 1} {
			want := max(start, (ts+999)/1000)
			if want >= end {
				want = -1
			}
			require.Equal(b.t, want, b.offset(topic, 0, max(ts, 0)), "%s: time %d of %s, log [%d, %d)", why, ts, topic, start, end)
		}
	}
}

// TI-03, and lookups in a log whose start lies inside a batch, in either tier.
func TestLookupsAroundTheSeam(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	const n = 100
	for _, kind := range []struct {
		name  string
		codec kgo.CompressionCodec
		size  int
		local string
	}{
		{"plain", kgo.NoCompression(), 1000, "1"},
		{"gzip", kgo.GzipCompression(), 40, "1"},
		{"both-tiers", kgo.NoCompression(), 1000, "-2"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			topic, segment := kind.name, 11_200
			if kind.size < 100 {
				segment = 400
			}
			b.create(topic, 1, small(segment, "retention.ms", "-1", "local.retention.bytes", kind.local))
			b.stampedRecords(topic, 0, n, kind.size, kind.codec)
			b.tiered(topic, 0, 5)
			if kind.local == "1" {
				b.localOnlyTail(topic, 0)
			}
			seam := b.partition(topic, 0).RemoteEndOffset
			require.Greater(t, seam, int64(40))
			require.Less(t, seam, int64(n))
			b.lookups(topic, 0, n, 0, n+2, "whole")
			for _, at := range []int64{seam - 18, seam - 2, seam, seam + 2} {
				b.trim(topic, at)
				b.lookups(topic, at, n, seam-20, seam+20, fmt.Sprint("trimmed to ", at, ", seam ", seam))
				b.check(topic, 0, at, n, kind.size)
			}
			b.trim(topic, n-3)
			b.again(true)
			b.lookups(topic, n-3, n, n-10, n+2, "after a kill")
			require.EqualValues(t, n-3, b.offset(topic, 0, -2))
		})
	}
}

// TI-05
func cheapLookups(f *faults) {
	segments := int64(40)
	if kit.Long() {
		segments = 500
	}
	n := segments*10 + 5
	f.create("cheap", 1, small(11_200, "retention.ms", "-1"))
	f.stampedRecords("cheap", 0, n, 1000, kgo.NoCompression())
	f.tiered("cheap", 0, segments)
	f.localOnlyTail("cheap", 0)
	f.Kill()
	require.NoError(f.t, os.RemoveAll(filepath.Join(f.Dir, "cache")))
	f.MustStart()
	f.connect()
	cost := func(ts, want int64) int64 {
		before := f.proxy.Gets()
		require.Equal(f.t, want, f.offset("cheap", 0, ts))
		return f.proxy.Gets() - before
	}
	require.Zero(f.t, cost(time.Now().Add(time.Hour).UnixMilli(), -1), "nothing is that new: the catalog knows")
	require.Zero(f.t, cost((n-1)*1000, n-1), "the newest record is local")
	for _, part := range []int64{2, 3, 5} {
		o := n / part
		require.LessOrEqual(f.t, cost(o*1000, o), int64(3), "the number of segments does not matter")
		require.Zero(f.t, cost(o*1000, o), "what was read is in the cache")
	}
	for _, special := range []struct{ ts, want int64 }{{-1, n}, {-2, 0}, {-4, f.partition("cheap", 0).LocalStartOffset}} {
		require.Zero(f.t, cost(special.ts, special.want))
	}
}

// TI-29: an object that is damaged on its way or cut short, or a read that is
// refused, once, is asked for again; nothing of that is kept.
func glitches(f *faults) {
	const size, n = 1000, 100
	f.create("glitch", 1, small(11_200))
	f.write("glitch", 0, 0, n, size, time.Time{})
	f.tiered("glitch", 0, 9)
	f.localOnlyTail("glitch", 0)
	for _, bad := range []kit.Fault{{Flip: true}, {CutAfter: 100}, {Status: http.StatusNotFound}, {Status: http.StatusForbidden}, {Drop: true}} {
		f.Kill()
		require.NoError(f.t, os.RemoveAll(filepath.Join(f.Dir, "cache")))
		var hit int
		f.proxy.Set(func(r *http.Request) kit.Fault {
			if r.Method == http.MethodGet && isSegment(r) {
				if hit++; hit%3 == 1 {
					return bad
				}
			}
			return kit.Fault{}
		})
		f.MustStart()
		f.connect()
		c := kit.Dial(f.t, f.Addr)
		for offset := int64(0); offset < n; {
			kit.Eventually(f.t, 20*time.Second, fmt.Sprintf("record %d after %+v", offset, bad), func() bool {
				req := kit.Fetch(12, "glitch", 0, offset, 20_000)
				req.MaxWaitMillis = 1000
				p := c.Call(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
				got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "glitch", Offset: offset}, &p, kgo.DefaultDecompressor(), nil)
				for _, r := range got.Records {
					require.Equal(f.t, offset, r.Offset)
					require.Equal(f.t, string(value("glitch", 0, offset, size)), string(r.Value))
					offset++
				}
				return len(got.Records) > 0
			})
		}
		require.Positive(f.t, hit, "%+v", bad)
		f.proxy.Set(nil)
		f.check("glitch", 0, 0, n, size)
	}
}

// Records deleted before they were uploaded leave the disk, and uploads go on
// behind them.
func deletedBeforeUpload(f *faults) {
	const size = 1000
	f.create("ahead", 1, small(11_200))
	f.write("ahead", 0, 0, 30, size, time.Time{})
	f.tiered("ahead", 0, 2)
	f.proxy.Set(func(*http.Request) kit.Fault { return kit.Fault{Drop: true} })
	f.write("ahead", 0, 30, 70, size, time.Time{})
	f.trim("ahead", 77)
	kit.Eventually(f.t, 20*time.Second, "what was deleted leaves the disk while the store is down", func() bool {
		return f.partition("ahead", 0).LocalStartOffset >= 70
	})
	f.again(true)
	require.EqualValues(f.t, 77, f.offset("ahead", 0, -2))
	f.check("ahead", 0, 77, 100, size)
	f.proxy.Set(nil)
	f.write("ahead", 0, 100, 60, size, time.Time{})
	kit.Eventually(f.t, 30*time.Second, "uploads go on", func() bool { return f.partition("ahead", 0).RemoteEndOffset >= 140 })
	f.localOnlyTail("ahead", 0)
	require.EqualValues(f.t, 77, f.offset("ahead", 0, -2))
	f.check("ahead", 0, 77, 160, size)
	f.trim("ahead", 160)
	kit.Eventually(f.t, 30*time.Second, "nothing is left of it", func() bool { return len(f.liveKeys()) == 0 && len(segments(f.keys(""))) == 0 })
	f.again(false)
	f.write("ahead", 0, 160, 30, size, time.Time{})
	f.check("ahead", 0, 160, 190, size)
	f.agree()
}

// A store that refuses our credentials, our clock or the bucket for a while is
// asked again until it does not; nothing local goes before.
func refusedForAWhile(f *faults) {
	const size = 1000
	f.create("refused", 1, small(11_200))
	n := int64(0)
	for _, bad := range []kit.Fault{
		{Status: http.StatusForbidden, Code: "AccessDenied"},
		{Status: http.StatusBadRequest, Code: "ExpiredToken"},
		{Status: http.StatusForbidden, Code: "RequestTimeTooSkewed"},
		{Status: http.StatusForbidden, Code: "InvalidAccessKeyId"},
		{Status: http.StatusNotFound, Code: "NoSuchBucket"},
		{Status: http.StatusInternalServerError, Code: "InternalError"},
	} {
		f.proxy.Set(func(*http.Request) kit.Fault { return bad })
		f.write("refused", 0, n, 40, size, time.Time{})
		n += 40
		kit.Eventually(f.t, 20*time.Second, "the refusal is seen: "+bad.Code, func() bool { return !f.status().Store.OK })
		p := f.partition("refused", 0)
		require.LessOrEqual(f.t, p.LocalStartOffset, p.RemoteEndOffset, bad.Code)
		f.check("refused", 0, n-40, n, size) // what was written since cannot have left
		f.proxy.Set(nil)
		kit.Eventually(f.t, 40*time.Second, "uploads go on after "+bad.Code, func() bool {
			return f.status().Store.OK && f.partition("refused", 0).RemoteEndOffset >= n-15
		})
	}
	f.check("refused", 0, 0, n, size)
	f.agree()
}
