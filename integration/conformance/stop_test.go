package conformance

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/integration/kit"
)

// scanned is said of each log directory whose last stop was not orderly.
const scanned = "the last stop was not orderly"

// writer is an idempotent producer of numbered records.
type writer struct {
	topic string
	pad   string
	cl    *kgo.Client
	n     atomic.Int64

	mu    sync.Mutex
	acked map[string]int64 // value: offset
}

func newWriter(t *testing.T, s *kit.Server, topic string, padBytes int) *writer {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.DefaultProduceTopic(topic), kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(500),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return &writer{topic: topic, pad: strings.Repeat("p", padBytes), cl: cl, acked: map[string]int64{}}
}

// write sends one record without waiting for it, except for room.
func (w *writer) write(ctx context.Context) {
	value := strconv.FormatInt(w.n.Add(1), 10) + " " + w.pad
	w.cl.Produce(ctx, &kgo.Record{Value: []byte(value)}, func(r *kgo.Record, err error) {
		if err == nil {
			w.mu.Lock()
			w.acked[value] = r.Offset
			w.mu.Unlock()
		}
	})
}

// run writes at a modest rate until ctx ends.
func (w *writer) run(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			w.write(ctx)
		case <-ctx.Done():
		}
	}
}

// fill writes n records and waits until all are acknowledged.
func (w *writer) fill(t *testing.T, n int) {
	t.Helper()
	for range n {
		w.write(t.Context())
	}
	require.NoError(t, w.cl.Flush(t.Context()))
	require.GreaterOrEqual(t, w.count(), n)
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// check reads the topic: offsets without a gap, no record twice, every
// acknowledged one where the acknowledgement said.
func (w *writer) check(t *testing.T, s *kit.Server) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topic: {0: kgo.NewOffset().At(0)}}))
	require.NoError(t, err)
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), w.topic)
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	end, _ := ends.Lookup(w.topic, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	found, next := map[string]int64{}, int64(0)
	for next < end.Offset {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err(), "read up to %d of %d", next, end.Offset)
		fetches.EachRecord(func(r *kgo.Record) {
			require.Equal(t, next, r.Offset, "no gap")
			next++
			_, twice := found[string(r.Value)]
			require.False(t, twice, "a record is there twice")
			found[string(r.Value)] = r.Offset
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	require.NotEmpty(t, w.acked)
	for value, offset := range w.acked {
		at, ok := found[value]
		require.True(t, ok, "%.12s was acknowledged at %d", value, offset)
		require.Equal(t, offset, at)
	}
}

// term sends SIGTERM and wants the stop that the contract promises.
func term(t *testing.T, s *kit.Server) time.Duration {
	t.Helper()
	began := time.Now()
	s.Signal(syscall.SIGTERM)
	require.Zero(t, s.Wait(15*time.Second), s.Log())
	took := time.Since(began)
	require.Less(t, took, 10*time.Second, s.Log())
	require.FileExists(t, filepath.Join(s.Dir, "logs", ".kafka_cleanshutdown"), s.Log())
	return took
}

// stuckReader asks for more than socket buffers hold and reads nothing of it,
// which keeps an orderly stop waiting.
func stuckReader(t *testing.T, s *kit.Server, topic string) {
	t.Helper()
	raw := kit.Dial(t, s.Addr)
	for range 4 {
		raw.Send(kit.Fetch(11, topic, 0, 0, 32<<20))
	}
	kit.Eventually(t, 5*time.Second, "an answer is on its way", func() bool {
		return s.Metric("strandline_fetch_bytes_total") > 0
	})
}

// TestTermUnderLoad stops a server amid producers, long polls and connections
// that do nothing.
func TestTermUnderLoad(t *testing.T) {
	t.Parallel()
	s := kit.Start(t, nil)
	_, errOut, code := s.CLI("", "topic", "create", "quiet", "--partitions", "1")
	require.Zero(t, code, errOut)
	var writers []*writer
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer wg.Wait()
	defer cancel()
	for i := range 3 {
		w := newWriter(t, s, fmt.Sprint("busy-", i), 300)
		writers = append(writers, w)
		wg.Go(func() { w.run(ctx) })
	}
	for range 300 {
		kit.Dial(t, s.Addr)
	}
	var polls []*kit.Raw
	for range 20 {
		raw := kit.Dial(t, s.Addr)
		req := kit.Fetch(11, "quiet", 0, 0, 1<<20)
		req.MaxWaitMillis = 60000
		raw.Send(req)
		polls = append(polls, raw)
	}
	for _, w := range writers {
		kit.Eventually(t, 10*time.Second, "records are acknowledged", func() bool { return w.count() > 200 })
	}
	require.Less(t, term(t, s), 5*time.Second, "nothing here takes long to stop\n%s", s.Log())
	for _, raw := range polls {
		if _, err := raw.Frame(); err == nil { // answered, and then closed
			require.True(t, raw.Closed())
		}
	}
	cancel()
	wg.Wait()

	s.MustStart()
	require.NotContains(t, s.Log(), scanned)
	require.NotContains(t, s.Log(), "recovered")
	for _, w := range writers {
		w.check(t, s)
	}
	s.Kill()
	s.MustStart()
	require.Contains(t, s.Log(), scanned, "the words that a stop in order must not leave")
}

// TestTermDuringUploads stops a server whose store takes two seconds for each
// request while segments are on their way to it.
func TestTermDuringUploads(t *testing.T) {
	t.Parallel()
	m := kit.StartMinIO(t, "strandline")
	proxy := kit.StartProxy(t, m.Addr)
	props := m.Properties("stop")
	props["remote.store.endpoint"] = "http://" + proxy.Addr
	for k, v := range map[string]string{
		"log.segment.bytes": "1048576", "log.local.retention.bytes": "1048576", "remote.log.manager.task.interval.ms": "100",
		"log.initial.task.delay.ms": "100", "log.retention.check.interval.ms": "100", "log.segment.delete.delay.ms": "100",
		"remote.upload.deadline.ms": "5000", "remote.object.delete.delay.ms": "500",
	} {
		props[k] = v
	}
	s := kit.Start(t, props)
	var slow atomic.Int64
	proxy.Set(func(r *http.Request) kit.Fault {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".seg") {
			slow.Add(1)
		}
		return kit.Fault{Delay: 2 * time.Second}
	})
	w := newWriter(t, s, "away", 16<<10)
	w.fill(t, 400)
	kit.Eventually(t, 30*time.Second, "an upload is under way", func() bool { return slow.Load() > 0 })
	term(t, s)
	proxy.Set(nil)
	s.MustStart()
	require.NotContains(t, s.Log(), scanned)
	kit.Eventually(t, 15*time.Second, "what is sealed arrives", func() bool {
		return s.Metric("strandline_remote_pending_bytes") == 0 && len(segKeys(m)) >= 4
	})
	w.check(t, s)
}

func segKeys(m *kit.MinIO) (keys []string) {
	for _, k := range m.Keys("stop") {
		if strings.HasSuffix(k, ".seg") {
			keys = append(keys, k)
		}
	}
	return keys
}

// TestTermDuringStart stops a server at many moments of its start, first on
// directories that do not exist yet, then on logs that need recovery.
func TestTermDuringStart(t *testing.T) {
	t.Parallel()
	interrupt := func(t *testing.T, s *kit.Server, after time.Duration) {
		t.Helper()
		s.Spawn()
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.Exited():
		}
		s.Signal(syscall.SIGTERM)
		code := s.Wait(10 * time.Second)
		if code == -1 && s.Log() == "" {
			return // the process was not yet there to hear it
		}
		require.Zero(t, code, "SIGTERM after %s\n%s", after, s.Log())
	}
	t.Run("fresh", func(t *testing.T) {
		for after := 5 * time.Millisecond; after < 200*time.Millisecond; after = after*3/2 + 1 {
			s := kit.New(t, t.TempDir(), nil)
			interrupt(t, s, after)
			s.MustStart()
			_, errOut, code := s.CLI("hello\n", "produce", "t")
			require.Zero(t, code, errOut)
			s.Kill()
		}
	})
	t.Run("recovery", func(t *testing.T) {
		s := kit.Start(t, nil)
		w := newWriter(t, s, "kept", 4<<10)
		w.fill(t, 2000)
		s.Kill()
		for after := 5 * time.Millisecond; after < 200*time.Millisecond; after = after*3/2 + 1 {
			interrupt(t, s, after)
		}
		s.MustStart()
		w.check(t, s)
	})
}

// TestSecondStartWhileStopping starts a server on directories that another one
// is about to leave: it is refused, or it starts once the other has left.
func TestSecondStartWhileStopping(t *testing.T) {
	t.Parallel()
	s := kit.Start(t, nil)
	w := newWriter(t, s, "kept", 1000)
	w.fill(t, 500)
	for range 4 {
		s.Signal(syscall.SIGTERM)
		second := kit.New(t, s.Dir, map[string]string{"ready.file": filepath.Join(t.TempDir(), "ready")})
		second.Spawn()
		if err := second.AwaitReady(10 * time.Second); err != nil {
			require.Equal(t, 3, second.Wait(time.Second), second.Log())
			require.Contains(t, second.Log(), fmt.Sprint(s.Pid()))
			require.Contains(t, second.Log(), s.Dir)
			require.Zero(t, s.Wait(10*time.Second), s.Log())
			s.MustStart()
			continue
		}
		require.Zero(t, s.Wait(time.Second), s.Log())
		require.NotContains(t, second.Log(), scanned)
		s = second
	}
	w.check(t, s)
}

// TestStopThatTakesLong holds a stop up with a client that does not read. A
// second start meanwhile is refused; a second signal ends the stop at once.
func TestStopThatTakesLong(t *testing.T) {
	t.Parallel()
	s := kit.Start(t, nil)
	w := newWriter(t, s, "big", 500<<10)
	w.fill(t, 40)
	stuckReader(t, s, "big")
	s.Signal(syscall.SIGTERM)
	kit.Eventually(t, 5*time.Second, "it stops", func() bool { return strings.Contains(s.Log(), "msg=stopping") })
	second := kit.New(t, s.Dir, map[string]string{"ready.file": filepath.Join(t.TempDir(), "ready")})
	refused(t, second, 3, fmt.Sprint(s.Pid()), s.Dir)
	select {
	case <-s.Exited():
		t.Fatalf("the stop was not slow\n%s", s.Log())
	default:
	}
	began := time.Now()
	s.Signal(syscall.SIGINT)
	require.Equal(t, 130, s.Wait(5*time.Second), s.Log())
	require.Less(t, time.Since(began), 2*time.Second)
	s.MustStart()
	w.check(t, s)

	stuckReader(t, s, "big")
	term(t, s)
	s.MustStart()
	require.NotContains(t, s.Log(), scanned)
}
