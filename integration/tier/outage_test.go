package tier

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/integration/kit"
)

// smallTier is a server whose tier moves fast.
func smallTier(t *testing.T, m *kit.MinIO, addr string) *kit.Server {
	t.Helper()
	set := m.Properties("small")
	for k, v := range map[string]string{
		"remote.store.endpoint":               "http://" + addr,
		"remote.cache.size.bytes":             "16777216",
		"log.retention.check.interval.ms":     "100",
		"remote.log.manager.task.interval.ms": "100",
		"log.segment.delete.delay.ms":         "100",
		"log.initial.task.delay.ms":           "100",
		"remote.manifest.interval.ms":         "200",
		"remote.object.delete.delay.ms":       "500",
		"remote.store.request.timeout.ms":     "5000",
	} {
		set[k] = v
	}
	return kit.Start(t, set)
}

// producer writes numbered records until stopped and remembers how many were
// acknowledged.
type producer struct {
	acked  atomic.Int64
	cancel context.CancelFunc
	done   chan struct{}
}

func startProducer(t *testing.T, addr, topic string, valueBytes, perSecond int) *producer {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	p := &producer{cancel: cancel, done: make(chan struct{})}
	pad := make([]byte, valueBytes)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range pad {
		pad[i] = 'a' + byte(r.IntN(26))
	}
	go func() {
		defer close(p.done)
		defer cl.Close()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; {
			select {
			case <-ctx.Done():
				_ = cl.Flush(context.Background())
				return
			case <-tick.C:
			}
			for range max(1, perSecond/100) {
				cl.Produce(context.Background(), &kgo.Record{Value: append([]byte(fmt.Sprintf("%012d ", n)), pad...)}, func(_ *kgo.Record, err error) {
					if err == nil {
						p.acked.Add(1)
					}
				})
				n++
			}
		}
	}()
	return p
}

func (p *producer) stop() int64 {
	p.cancel()
	<-p.done
	return p.acked.Load()
}

// TestStoreOutage has the store down, then answering 503, then cutting bodies,
// each for a while under load: writes and local reads go on, nothing leaves the
// disk before it is published, everything arrives afterwards.
func TestStoreOutage(t *testing.T) {
	phase := 10 * time.Second
	if kit.Long() {
		phase = time.Minute
	}
	m := kit.StartMinIO(t, "strandline")
	proxy := kit.StartProxy(t, m.Addr)
	s := smallTier(t, m, proxy.Addr)
	createTopic(t, s.Addr, "outage", 1, map[string]string{"segment.bytes": "1048576", "local.retention.bytes": "2097152"})
	p := startProducer(t, s.Addr, "outage", 2000, 500)
	kit.Eventually(t, 20*time.Second, "segments are offloaded while the store is well", func() bool {
		return remoteEnd(t, s) > 0
	})
	faults := []struct {
		name string
		rule func(*http.Request) kit.Fault
	}{
		{"down", func(*http.Request) kit.Fault { return kit.Fault{Drop: true} }},
		{"503", func(*http.Request) kit.Fault { return kit.Fault{Status: http.StatusServiceUnavailable} }},
		{"cut bodies", func(r *http.Request) kit.Fault {
			if r.Method == http.MethodGet {
				return kit.Fault{CutAfter: 100}
			}
			return kit.Fault{Drop: true}
		}},
	}
	for _, f := range faults {
		before := p.acked.Load()
		proxy.Set(f.rule)
		end := time.Now().Add(phase)
		kit.Eventually(t, phase+10*time.Second, f.name+" is over", func() bool {
			checkNoHole(t, s)
			return time.Now().After(end)
		})
		require.Greater(t, p.acked.Load(), before+100, "%s: writes go on", f.name)
		st := status(t, s)
		require.False(t, st.Store.OK, "%s: tier status says that the store is not well", f.name)
		require.NotEmpty(t, st.Store.LastError, f.name)
		tail := listOffset(t, s.Addr, "outage", 0, -1) - 1
		readOne(t, s, "outage", tail)
		proxy.Set(nil)
	}
	written := p.stop()
	kit.Eventually(t, time.Minute, "everything arrives afterwards", func() bool {
		st := status(t, s)
		return st.Store.OK && len(st.Partitions) == 1 && st.Partitions[0].PendingSegments == 0
	})
	require.Equal(t, written, listOffset(t, s.Addr, "outage", 0, -1))
	require.Equal(t, int(written), franzDigest(t, s.Addr, "outage", 0, written).records)
	kit.Eventually(t, 30*time.Second, "local retention is kept again", func() bool {
		return diskBytes(t, filepath.Join(s.Dir, "logs")) < 10<<20 // the reserve for a full disk, 4 MiB, lies there too
	})
}

func remoteEnd(t *testing.T, s *kit.Server) int64 {
	t.Helper()
	st := status(t, s)
	if len(st.Partitions) == 0 {
		return 0
	}
	return st.Partitions[0].RemoteEndOffset
}

// checkNoHole asserts I4: nothing local is gone before the catalog has it.
func checkNoHole(t *testing.T, s *kit.Server) {
	t.Helper()
	for _, p := range status(t, s).Partitions {
		require.LessOrEqual(t, p.LocalStartOffset, max(p.RemoteEndOffset, 0), "local and remote ranges of %s-%d touch", p.Topic, p.Partition)
	}
}

func readOne(t *testing.T, s *kit.Server, topic string, offset int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(offset)}}))
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err0())
		if it := fetches.RecordIter(); !it.Done() {
			require.Equal(t, offset, it.Next().Offset)
			return
		}
	}
}
