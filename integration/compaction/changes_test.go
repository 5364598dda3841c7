package compaction

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

// twin is what was acknowledged of a topic of one partition.
type twin struct {
	t     *testing.T
	addr  string
	topic string

	mu      sync.Mutex
	records map[int64]string // by offset, all of a record that must stay as it is
	latest  map[string]int64 // by key, its last offset
	deleted map[int64]bool   // offsets of tombstones
	start   int64            // what was deleted ends there
	end     int64            // one past the last record
}

// client asks again until a server that is down is up.
func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr), kgo.RetryBackoffFn(func(int) time.Duration { return 30 * time.Millisecond }), kgo.RequestRetries(1000), kgo.AlwaysRetryEOF(),
		kgo.DialTimeout(time.Second), kgo.MetadataMinAge(30 * time.Millisecond), kgo.UnknownTopicRetries(-1), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, opts...)...)
	require.NoError(t, err)
	return cl
}

// produce writes, with one codec and producer id after the other, to some keys much
// more often than to others, until ctx ends.
func (w *twin) produce(ctx context.Context, r *rand.Rand) {
	keys := rand.NewZipf(r, 1.2, 1, 3000)
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		cl := client(w.t, w.addr, kgo.DefaultProduceTopic(w.topic), kgo.ProducerBatchCompression(codecs[r.IntN(len(codecs))]), kgo.ProducerBatchMaxBytes(9000))
		for n := 0; n < 50 && ctx.Err() == nil; n++ {
			<-tick.C
			var records []*kgo.Record
			for range 1 + r.IntN(20) {
				record := &kgo.Record{Key: fmt.Append(nil, "key-", keys.Uint64()), Timestamp: time.UnixMilli(time.Now().UnixMilli() - r.Int64N(1000))}
				if r.IntN(6) > 0 {
					record.Value = fmt.Appendf(nil, "%0*d", 1+r.IntN(100), r.Uint64())
					if r.IntN(300) == 0 {
						record.Value = make([]byte, 5000)
					}
				}
				for range r.IntN(3) {
					record.Headers = append(record.Headers, kgo.RecordHeader{Key: "h", Value: []byte{byte(n)}})
				}
				records = append(records, record)
			}
			for _, res := range cl.ProduceSync(context.Background(), records...) {
				if res.Err != nil {
					w.t.Errorf("%s: %v", w.topic, res.Err)
					return
				}
				w.acknowledged(res.Record)
			}
		}
		cl.Close()
	}
}

func (w *twin) acknowledged(r *kgo.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	same := recordbatch.Record{Offset: 0, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		same.Headers = append(same.Headers, recordbatch.Header{Key: h.Key, Value: h.Value})
	}
	w.records[r.Offset] = line(same)
	w.latest[string(r.Key)] = max(r.Offset, w.latest[string(r.Key)])
	w.deleted[r.Offset] = r.Value == nil
	w.end = max(w.end, r.Offset+1)
}

// check reads from an offset on and compares. quiet: nobody writes.
func (w *twin) check(from int64, quiet bool, when string) {
	w.t.Helper()
	w.mu.Lock()
	low := w.end
	w.mu.Unlock()
	from = max(from, w.start)
	got := map[int64]string{}
	end := from
	for _, b := range (at{w.t, w.addr}).batches(w.topic, from) {
		for r, err := range new(recordbatch.Decoder).Records(b) {
			require.NoError(w.t, err)
			if int64(r.Offset) >= from {
				offset := int64(r.Offset)
				r.Offset = 0
				got[offset] = line(r)
			}
		}
		end = int64(b.NextOffset())
	}
	require.GreaterOrEqual(w.t, end, low, "%s, %s: the end of the log", w.topic, when)
	w.mu.Lock()
	defer w.mu.Unlock()
	for offset, record := range got {
		want, acked := w.records[offset]
		require.True(w.t, acked || !quiet, "%s, %s: nobody wrote %d, %s", w.topic, when, offset, record)
		require.True(w.t, !acked || record == want, "%s, %s: at %d %s, was %s", w.topic, when, offset, record, want)
	}
	for key, offset := range w.latest {
		if offset < from || offset >= end || w.deleted[offset] {
			continue
		}
		_, there := got[offset]
		require.True(w.t, there, "%s, %s: %d, the latest of %s", w.topic, when, offset, key)
	}
}

// deletedKeysStay reads what a reader from the start makes of the keys.
func (w *twin) deletedKeysStay(when string) {
	w.t.Helper()
	values := map[string]int64{}
	for _, b := range (at{w.t, w.addr}).batches(w.topic, w.start) {
		for r, err := range new(recordbatch.Decoder).Records(b) {
			require.NoError(w.t, err)
			if values[string(r.Key)] = int64(r.Offset); r.Value == nil {
				delete(values, string(r.Key))
			}
		}
	}
	for key, offset := range values {
		require.Equal(w.t, w.latest[key], offset, "%s, %s: %s", w.topic, when, key)
	}
}

// TestChangesWhileCompacting kills and pauses a server that compacts all the time,
// moves its logs between directories, changes their policy and the size of their
// segments, and deletes from one of them, while producers of all codecs write.
// What is read, from any offset, is what was written, with offsets, timestamps and
// headers; the latest record of each key is there; no deleted key comes back; the
// end of no log goes back.
func TestChangesWhileCompacting(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	steps, rounds := 8, 1
	if kit.Long() {
		steps, rounds = 150, 3
	}
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("STRANDLINE_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("seed %d (STRANDLINE_SEED)", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	dir := t.TempDir()
	dirs := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	s := kit.New(t, dir, map[string]string{
		"log.dirs": dirs[0] + "," + dirs[1], "log.cleaner.backoff.ms": "10", "log.segment.delete.delay.ms": "0", "log.retention.check.interval.ms": "200",
		"remote.log.storage.system.enable": "false",
	})
	s.MustStart()
	s.Set("listeners", "PLAINTEXT://"+s.Addr) // the same after a start
	admin := client(t, s.Addr)
	defer admin.Close()
	adm := kadm.NewClient(admin)
	var twins []*twin
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writing sync.WaitGroup
	for n, policy := range []string{"compact", "compact", "compact,delete"} {
		w := &twin{t: t, addr: s.Addr, topic: fmt.Sprint("changing-", n), records: map[int64]string{}, latest: map[string]int64{}, deleted: map[int64]bool{}}
		at{t, s.Addr}.create(w.topic, "cleanup.policy="+policy, "internal.segment.bytes=30000", "delete.retention.ms=100", "min.cleanable.dirty.ratio=0.01")
		twins = append(twins, w)
		for range 2 {
			mine := rand.New(rand.NewPCG(r.Uint64(), 1))
			writing.Go(func() { w.produce(ctx, mine) })
		}
	}
	alter := func(w *twin, key, value string) {
		resp, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, w.topic)
		require.NoError(t, err)
		require.NoError(t, resp[0].Err)
	}
	for step := range steps {
		<-time.After(time.Duration(r.IntN(500)) * time.Millisecond)
		w := twins[r.IntN(len(twins))]
		when := fmt.Sprint("step ", step)
		switch step % 7 {
		case 0:
			s.Kill()
			s.MustStart()
		case 1:
			s.Signal(syscall.SIGSTOP)
			<-time.After(200 * time.Millisecond)
			s.Signal(syscall.SIGCONT)
		case 2:
			alter(twins[0], "cleanup.policy", []string{"delete", "compact"}[step/7%2])
		case 3:
			deleting := twins[2]
			deleting.mu.Lock()
			to := deleting.start + (deleting.end-deleting.start)/4
			deleting.mu.Unlock()
			offsets := kadm.Offsets{}
			offsets.AddOffset(deleting.topic, 0, to, -1)
			_, err := adm.DeleteRecords(t.Context(), offsets)
			require.NoError(t, err)
			deleting.start = to
		case 4:
			topics := kadm.TopicsSet{}
			topics.Add(w.topic, 0)
			_, err := adm.AlterAllReplicaLogDirs(t.Context(), kadm.AlterReplicaLogDirsReq{dirs[r.IntN(2)]: topics})
			require.NoError(t, err)
		case 5:
			alter(w, "internal.segment.bytes", []string{"10000", "100000", "1000000"}[r.IntN(3)])
			alter(w, "max.compaction.lag.ms", []string{"100", "9223372036854775807"}[r.IntN(2)])
		case 6:
			w.check(w.start, false, when)
			w.mu.Lock()
			from := w.start + r.Int64N(w.end-w.start)
			w.mu.Unlock()
			w.check(from, false, when)
		}
	}
	stop()
	writing.Wait()
	for round := range rounds {
		for _, w := range twins {
			when := fmt.Sprint("in the end ", round)
			w.check(w.start, true, when)
			w.check(w.start+r.Int64N(w.end-w.start), true, when)
			w.deletedKeysStay(when)
		}
		s.Restart(round == 0)
	}
	require.Zero(t, s.Metric("strandline_compaction_failures_total"))
	require.Zero(t, s.Metric("strandline_compaction_uncleanable_partitions"))
}
