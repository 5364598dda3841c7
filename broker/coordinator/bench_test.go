package coordinator

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
)

// silent is a machine that does nothing of its own.
type silent struct{}

func (silent) Load(time.Time, Reader) error { return nil }
func (silent) Deadline() time.Time          { return time.Time{} }
func (silent) Tick(time.Time, *Tx)          {}
func (silent) Unload(error)                 {}

// BenchmarkCommit appends a record of the size of a committed offset and waits
// until it is in the view, from 1 to 64 callers at once, on real files.
func BenchmarkCommit(b *testing.B) {
	for _, flush := range []int64{1, config.Unlimited} {
		for _, callers := range []int{1, 8, 64, 512} {
			b.Run(fmt.Sprintf("flush=%t/callers=%d", flush == 1, callers), func(b *testing.B) {
				fs, dir := disk.OS(), filepath.ToSlash(b.TempDir())
				views, err := OpenViews(ViewsConfig{FS: fs, Dir: dir + "/views"})
				require.NoError(b, err)
				settings := offsetsTopic()
				settings.SegmentBytes, settings.FlushMessages = 100<<20, flush
				p := openPartition(b, fs, dir+"/log", settings, 0, cluster.NoOffset)
				r := New(Config{Topic: "t", Views: views, Schema: identity{}, NewMachine: func(int32, cluster.LeaderEpoch) Machine { return silent{} }})
				r.Host(p)
				lead(b, p, 1)
				require.Eventually(b, func() bool { loaded, _ := r.Led(); return len(loaded) == 1 }, 10*time.Second, time.Millisecond)
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				for c := range callers {
					wg.Go(func() {
						done := make(chan error, 1)
						then := func(err error) { done <- err }
						for i := c; i < b.N; i += callers {
							key := fmt.Appendf(nil, "group-%04d/topic/%d", c, i%16)
							record := Record{Key: key, Value: make([]byte, 28)}
							if err := r.Do(0, func(_ time.Time, _ Machine, tx *Tx) { tx.Append(record); tx.Then(then) }); err != nil {
								b.Error(err)
								return
							}
							if err := <-done; err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
				require.NoError(b, r.Close())
				require.NoError(b, views.Close())
				require.NoError(b, p.Close(true))
			})
		}
	}
}

// BenchmarkRebuild builds the view of a log of a million records of ten thousand
// keys.
func BenchmarkRebuild(b *testing.B) {
	const records, keys = 1_000_000, 10_000
	log := newFakeLog(0)
	for i := 0; i < records; {
		var pairs []string
		for range 100 {
			pairs = append(pairs, fmt.Sprintf("group-%04d/topic/%d", i%keys, i%3), "twenty eight bytes of offset")
			i++
		}
		log.fake(0, plainBatch(pairs...))
	}
	log.epochs = append(log.epochs, epochStart{0, 0})
	log.commit(-1)
	b.ResetTimer()
	for b.Loop() {
		views, err := OpenViews(ViewsConfig{FS: disk.OS(), Dir: filepath.ToSlash(b.TempDir())})
		require.NoError(b, err)
		r := New(Config{Topic: "t", Views: views, Schema: identity{}, NewMachine: func(int32, cluster.LeaderEpoch) Machine { return silent{} }})
		again := log.reopened(log.mark)
		again.lead(1)
		r.Host(again)
		require.Eventually(b, func() bool { loaded, _ := r.Led(); return len(loaded) == 1 }, time.Minute, time.Millisecond)
		require.NoError(b, r.Close())
		require.NoError(b, views.Close())
	}
	b.ReportMetric(records*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkViewOfManyGroups commits ten offsets of one of 100,000 groups at a
// time, straight into the views, and counts the
// processor's time with what the database does on its own.
func BenchmarkViewOfManyGroups(b *testing.B) {
	const groups, partitions, offsets = 100_000, 50, 10
	views, err := OpenViews(ViewsConfig{FS: disk.OS(), Dir: filepath.ToSlash(b.TempDir())})
	require.NoError(b, err)
	var all []*view
	for p := range partitions {
		var applied atomic.Int64
		v, err := openView(views, cluster.TopicPartition{Topic: cluster.TopicID{7}, Partition: int32(p)}, identity{}, &applied)
		require.NoError(b, err)
		require.NoError(b, v.restart(partition.LogState{}))
		all = append(all, v)
	}
	builder, value := recordbatch.Builder{}, make([]byte, 41)
	var batch []byte
	commit := func(group int) {
		v := all[group%partitions]
		builder.Reset(recordbatch.Options{BaseOffset: v.next})
		for o := range offsets {
			binary.BigEndian.PutUint64(value, rand.Uint64())
			builder.Add(1_700_000_000_000, fmt.Appendf(nil, "o\x00\x01\x00\x0cgroup-%06d\x00\x09committed\x00\x00\x00%c", group, o), value)
		}
		batch = builder.AppendTo(batch[:0])
		require.NoError(b, v.apply(batch))
	}
	for group := range groups {
		commit(group)
	}
	before := processorTime(b)
	b.ReportAllocs()
	for b.Loop() {
		commit(rand.IntN(groups))
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(views.Stats().DiskBytes)/(groups*offsets), "disk-B/offset")
	require.NoError(b, views.Close())
}

func processorTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
