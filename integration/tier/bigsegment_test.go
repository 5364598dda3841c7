package tier

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// residentBytes is VmRSS of a process.
func residentBytes(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for l := range strings.Lines(string(b)) {
		var kib int64
		if n, _ := fmt.Sscanf(l, "VmRSS: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// fill writes about total bytes in records of 100 kB.
func fill(t *testing.T, addr, topic string, total int64) (records int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(1_000_000), kgo.MaxBufferedRecords(200))
	require.NoError(t, err)
	defer cl.Close()
	pad := make([]byte, 100_000)
	for sent := int64(0); sent < total; sent += int64(len(pad)) {
		v := append([]byte(fmt.Sprintf("%012d", records)), pad...)
		cl.Produce(t.Context(), &kgo.Record{Value: v}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
		records++
	}
	require.NoError(t, cl.Flush(t.Context()))
	return records
}

// TestLargeSegment uploads one large segment, and reads one record from its
// middle with an empty cache.
func TestLargeSegment(t *testing.T) {
	segmentBytes, cacheLimit := int64(192<<20), int64(16<<20)
	if kit.Long() {
		segmentBytes = 1 << 30
	}
	m := kit.StartMinIO(t, "strandline")
	proxy := kit.StartProxy(t, m.Addr)
	s := smallTier(t, m, proxy.Addr)
	createTopic(t, s.Addr, "large", 1, map[string]string{"segment.bytes": fmt.Sprint(segmentBytes), "local.retention.bytes": "1"})
	records := fill(t, s.Addr, "large", segmentBytes-(2<<20))
	before := residentBytes(t, s.Pid())
	fill(t, s.Addr, "large", 4<<20) // seals it
	peak := before
	kit.Eventually(t, 3*time.Minute, "the segment is remote", func() bool {
		peak = max(peak, residentBytes(t, s.Pid()))
		return remoteEnd(t, s) > 0
	})
	t.Logf("resident before the upload %d MiB, at most %d MiB during it", before>>20, peak>>20)
	require.Less(t, peak-before, int64(64<<20), "resident memory rises by at most 64 MiB")
	kit.Eventually(t, 30*time.Second, "the segment leaves the disk", func() bool { return listOffset(t, s.Addr, "large", 0, -4) > records/2 })

	require.Zero(t, s.Stop())
	require.NoError(t, os.RemoveAll(filepath.Join(s.Dir, "cache")))
	s.MustStart()
	gets := proxy.Gets()
	c := kit.Dial(t, s.Addr)
	kit.Eventually(t, 20*time.Second, "the record is read", func() bool {
		req := kit.Fetch(12, "large", 0, records/2, 1)
		req.MaxWaitMillis = 5000
		p := c.Call(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		require.Zero(t, p.ErrorCode)
		return len(p.RecordBatches) > 0
	})
	used := proxy.Gets() - gets
	t.Logf("one record from the middle: %d GETs, %v", used, proxy.Ranges()[gets:])
	require.LessOrEqual(t, used, int64(2))

	stop := watchCache(t, filepath.Join(s.Dir, "cache"), cacheLimit)
	readAll(t, s.Addr, "large", records)
	require.LessOrEqual(t, stop(), cacheLimit, "the cache directory never passes its limit")
}

// watchCache samples a folder until the function that it returns is called,
// which gives the largest size seen.
func watchCache(t *testing.T, dir string, limit int64) (stop func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	peak := make(chan int64)
	go func() {
		largest := int64(0)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				largest = max(largest, diskBytes(t, dir))
			case <-ctx.Done():
				peak <- largest
				return
			}
		}
	}()
	return func() int64 { cancel(); return <-peak }
}

func readAll(t *testing.T, addr, topic string, records int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.FetchMaxPartitionBytes(1<<20),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for next := int64(0); next < records; {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err0())
		fetches.EachRecord(func(r *kgo.Record) {
			require.Equal(t, next, r.Offset)
			next++
		})
	}
}

// TestSendfileShare reads 1 MiB at a time, local and cached remote: at least
// 0.95 of the bytes go by sendfile.
func TestSendfileShare(t *testing.T) {
	m := kit.StartMinIO(t, "strandline")
	s := smallTier(t, m, m.Addr)
	for topic, local := range map[string]string{"local": "1073741824", "remote": "1"} {
		createTopic(t, s.Addr, topic, 1, map[string]string{"segment.bytes": "4194304", "local.retention.bytes": local})
		records := fill(t, s.Addr, topic, 24<<20)
		if topic == "remote" {
			kit.Eventually(t, 30*time.Second, "most is remote", func() bool { return listOffset(t, s.Addr, topic, 0, -4) > records/2 })
		}
		sent, copied := s.Metric("strandline_fetch_bytes_total", `path="sendfile"`, `tier="`+topic+`"`), s.Metric("strandline_fetch_bytes_total", `path="copy"`, `tier="`+topic+`"`)
		readAll(t, s.Addr, topic, records)
		sent = s.Metric("strandline_fetch_bytes_total", `path="sendfile"`, `tier="`+topic+`"`) - sent
		copied = s.Metric("strandline_fetch_bytes_total", `path="copy"`, `tier="`+topic+`"`) - copied
		t.Logf("%s: %.0f bytes by sendfile, %.0f copied", topic, sent, copied)
		require.Greater(t, sent, float64(10<<20), topic)
		require.GreaterOrEqual(t, sent/(sent+copied), 0.95, topic)
	}
}
