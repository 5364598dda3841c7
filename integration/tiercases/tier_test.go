package tiercases

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// TI-11
func TestTieredHistoryOutlivesRestarts(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	const size, n = 1000, 200
	b.create("history", 3, small(11_200))
	for p := range int32(3) {
		b.write("history", p, 0, n, size, time.Time{})
	}
	for p := range int32(3) {
		b.tiered("history", p, 15)
		b.localOnlyTail("history", p)
	}
	logs := filepath.Join(b.Dir, "logs")
	checkpoints := func(dir string) {
		for _, name := range []string{"recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				require.ErrorIs(t, err, os.ErrNotExist)
			}
		}
	}
	for _, c := range []struct {
		name string
		kill bool
		prep func()
	}{
		{"clean", false, func() {}},
		{"kill -9", true, func() {}},
		{"kill -9, checkpoints and cache gone", true, func() {
			checkpoints(logs)
			require.NoError(t, os.RemoveAll(filepath.Join(b.Dir, "cache")))
			for p := range 3 {
				_ = os.Remove(filepath.Join(logs, fmt.Sprintf("history-%d", p), "leader-epoch-checkpoint"))
			}
		}},
		{"clean, indexes and snapshots gone", false, func() {
			for _, pattern := range []string{"*.index", "*.timeindex", "*.snapshot"} {
				files, _ := filepath.Glob(filepath.Join(logs, "history-*", pattern))
				for _, f := range files {
					require.NoError(t, os.Remove(f))
				}
			}
		}},
	} {
		if c.kill {
			b.Kill()
		} else {
			require.Zero(t, b.Stop())
		}
		c.prep()
		b.MustStart()
		b.connect()
		for p := range int32(3) {
			require.Zero(t, b.offset("history", p, -2), c.name)
			require.EqualValues(t, n, b.offset("history", p, -1), c.name)
			require.Positive(t, b.offset("history", p, -4), c.name)
			b.check("history", p, 0, n, size)
		}
	}
}

// A replica whose local log is lost while its history is in the tier serves all
// of that, and what is new follows it.
func TestLostLocalLogStartsAtRemoteEnd(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	const size = 1000
	b.create("lost", 1, small(11_200))
	b.write("lost", 0, 0, 100, size, time.Time{})
	b.tiered("lost", 0, 8)
	end := b.partition("lost", 0).RemoteEndOffset
	b.Kill()
	require.NoError(t, os.RemoveAll(filepath.Join(b.Dir, "logs", "lost-0")))
	b.MustStart()
	b.connect()
	require.Zero(t, b.offset("lost", 0, -2))
	require.Equal(t, end, b.offset("lost", 0, -1))
	b.write("lost", 0, end, 50, size, time.Time{})
	b.check("lost", 0, 0, end+50, size)
}

// TI-17
func TestRecreatedTopicStartsAfresh(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	const size = 1000
	b.create("again", 1, small(11_200))
	b.write("again", 0, 0, 100, size, time.Time{})
	b.tiered("again", 0, 8)
	for round, partitions := range []int32{1, 4, 2} {
		b.remove("again")
		b.create("again", partitions, small(11_200))
		b.connect() // a client that knows only the new topic
		for p := range partitions {
			b.write("again", p, 0, 30, size, time.Time{})
		}
		if round == 1 {
			b.again(true)
		}
		for p := range partitions {
			require.Zero(t, b.offset("again", p, -2))
			require.EqualValues(t, 30, b.offset("again", p, -1))
			b.tiered("again", p, 2)
			b.check("again", p, 0, 30, size)
		}
	}
	b.again(false)
	id := b.id("again")
	kit.Eventually(t, 20*time.Second, "only the last topic's objects remain", func() bool {
		for _, k := range b.directoryKeys() {
			if !strings.Contains(k, id) {
				return false
			}
		}
		return fmt.Sprint(segments(b.directoryKeys())) == fmt.Sprint(b.liveKeys())
	})
	require.NotEmpty(t, b.liveKeys())
	for _, key := range b.liveKeys() {
		require.Contains(t, key, id, "keys carry the topic id")
	}
	for p := range int32(2) {
		b.check("again", p, 0, 30, size)
	}
}

// TI-21
func TestFetchKeepsItsSizeWithRemotePartitions(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	const size = 3 << 20
	b.create("large", 5, map[string]string{"segment.bytes": "4194304", "local.retention.bytes": "1", "max.message.bytes": "4194304"})
	for p := range int32(5) {
		for n := range int64(3) {
			b.write("large", p, n, 1, size, time.Time{})
		}
	}
	for p := range int32(5) {
		b.tiered("large", p, 2)
		b.localOnlyTail("large", p)
	}
	req := kit.Fetch(12, "large", 0, 0, 1<<20)
	req.MaxBytes, req.MaxWaitMillis = 4<<20, 2000
	for p := int32(1); p < 5; p++ {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p, 1<<20, -1
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, rp)
	}
	c := kit.Dial(t, b.Addr)
	kit.Eventually(t, 20*time.Second, "the fetch brings data", func() bool {
		total := 0
		for _, p := range c.Call(req).(*kmsg.FetchResponse).Topics[0].Partitions {
			require.Zero(t, p.ErrorCode)
			total += len(p.RecordBatches)
		}
		require.LessOrEqual(t, total, 4<<20)
		return total > 0
	})
}

// TI-31
func TestLocalRetentionOfMinusTwoIsTheTotal(t *testing.T) {
	t.Parallel()
	b := start(t, fast(map[string]string{"log.local.retention.bytes": "1"}))
	same := map[string]string{"internal.segment.bytes": "11200", "retention.ms": "600000", "local.retention.ms": "-2", "local.retention.bytes": "-2"}
	b.create("same", 1, same)
	b.write("same", 0, 0, 100, 1000, time.Time{})
	b.tiered("same", 0, 8)
	b.marker("same")
	require.Zero(t, b.offset("same", 0, -4), "local data stay as long as the total")
	require.NoError(t, b.alter("same", "local.retention.ms", "1"))
	kit.Eventually(t, 10*time.Second, "a local limit of its own holds at once", func() bool { return b.offset("same", 0, -4) >= 80 })
	b.check("same", 0, 0, 100, 1000)

	for _, bad := range [][]string{
		{"retention.ms", "1000", "local.retention.ms", "2000"},
		{"retention.ms", "1000", "local.retention.ms", "-1"},
		{"retention.bytes", "1000", "local.retention.bytes", "2000"},
		{"retention.bytes", "1000", "local.retention.bytes", "-1"},
		{"local.retention.ms", "-3"},
	} {
		m := map[string]string{"remote.storage.enable": "true"}
		for i := 0; i < len(bad); i += 2 {
			m[bad[i]] = bad[i+1]
		}
		require.ErrorIs(t, b.tryCreate("refused", 1, m), kerr.InvalidConfig, bad)
		require.ErrorIs(t, b.alter("same", bad...), kerr.InvalidConfig, bad)
	}
}

// TI-23
func TestReadersBehindTheSeam(t *testing.T) {
	t.Parallel()
	run := 15 * time.Second
	if kit.Long() {
		run = 10 * time.Minute
	}
	b := start(t, fast())
	const size, readers = 1000, 3
	b.create("seam", 1, map[string]string{"internal.segment.bytes": "22000", "local.retention.ms": "1000", "file.delete.delay.ms": "100"})
	ctx, cancel := context.WithTimeout(t.Context(), run)
	defer cancel()
	produced := make(chan int64, 1)
	go func() {
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.ProducerBatchCompression(kgo.NoCompression()))
		if err != nil {
			t.Error(err)
			return
		}
		defer cl.Close()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		n := int64(0)
		for ctx.Err() == nil {
			<-tick.C
			var batch []*kgo.Record
			for range 5 {
				batch = append(batch, &kgo.Record{Topic: "seam", Value: value("seam", 0, n, size)})
				n++
			}
			if err := cl.ProduceSync(context.Background(), batch...).FirstErr(); err != nil {
				t.Error(err)
			}
		}
		produced <- n
	}()
	kit.Eventually(t, 20*time.Second, "there is a seam", func() bool { return b.partition("seam", 0).LocalStartOffset > 100 })
	done := make(chan error, readers)
	for behind := range int64(readers) {
		go func() { done <- b.followSeam(ctx, behind*20, size) }()
	}
	for range readers {
		require.NoError(t, <-done)
	}
	b.check("seam", 0, 0, <-produced, size)
}

// followSeam reads, with raw fetches, around the local log start and so many
// offsets behind it, until ctx ends.
func (b *broker) followSeam(ctx context.Context, behind int64, size int) error {
	c := kit.Dial(b.t, b.Addr)
	next := int64(-1)
	for ctx.Err() == nil {
		if next < 0 {
			next = max(0, b.partition("seam", 0).LocalStartOffset-behind)
		}
		req := kit.Fetch(12, "seam", 0, next, 20_000)
		c.Send(req)
		resp, err := c.Receive(req)
		if err != nil {
			return err
		}
		p := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return fmt.Errorf("at %d: %w", next, err)
		}
		got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "seam", Offset: next}, &p, kgo.DefaultDecompressor(), nil)
		for _, r := range got.Records {
			if r.Offset != next || string(r.Value) != string(value("seam", 0, next, size)) {
				return fmt.Errorf("record at %d: offset %d, %.30s", next, r.Offset, r.Value)
			}
			next++
		}
		if seam := b.partition("seam", 0).LocalStartOffset; next > seam+20 || next < seam-behind-60 {
			next = -1 // hold the position
		}
	}
	return nil
}

// What is kept of configs that stop uploads: nothing local goes before it is
// remote, and uploads go on where they stopped.
func TestCopyDisabledAndEnabledAgain(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	const size = 1000
	b.create("paused", 1, small(11_200, "retention.bytes", "10000000"))
	b.write("paused", 0, 0, 50, size, time.Time{})
	b.tiered("paused", 0, 3)
	require.ErrorIs(t, b.alter("paused", "remote.log.copy.disable", "true"), kerr.InvalidConfig, "local retention would never hold")
	require.NoError(t, b.alter("paused", "remote.log.copy.disable", "true", "local.retention.bytes", "-2", "local.retention.ms", "-2"))
	before := b.partition("paused", 0)
	b.write("paused", 0, 50, 100, size, time.Time{})
	b.again(true)
	b.marker("paused")
	after := b.partition("paused", 0)
	require.Equal(t, before.RemoteEndOffset, after.RemoteEndOffset)
	require.LessOrEqual(t, after.LocalStartOffset, after.RemoteEndOffset)
	b.check("paused", 0, 0, 150, size)
	require.NoError(t, b.alter("paused", "remote.log.copy.disable", "false", "local.retention.bytes", "1"))
	b.tiered("paused", 0, 10)
	b.localOnlyTail("paused", 0)
	b.check("paused", 0, 0, 150, size)
}

func TestTierTurnedOffWithItsData(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	const size = 1000
	b.create("off", 1, small(11_200))
	b.write("off", 0, 0, 100, size, time.Time{})
	b.tiered("off", 0, 8)
	b.localOnlyTail("off", 0)
	require.ErrorIs(t, b.alter("off", "remote.storage.enable", "false"), kerr.InvalidConfig)
	local := b.offset("off", 0, -4)
	require.NoError(t, b.alter("off", "remote.storage.enable", "false", "remote.log.delete.on.disable", "true"))
	kit.Eventually(t, 20*time.Second, "the log starts where the local one does", func() bool { return b.offset("off", 0, -2) == local })
	kit.Eventually(t, 20*time.Second, "the objects are gone", func() bool { return len(segments(b.directoryKeys())) == 0 })
	b.write("off", 0, 100, 50, size, time.Time{})
	b.again(true)
	b.check("off", 0, local, 150, size)
	require.NoError(t, b.alter("off", "remote.storage.enable", "true"))
	b.tiered("off", 0, 4)
	b.localOnlyTail("off", 0)
	b.check("off", 0, local, 150, size)
}

// A sealed segment leaves at once, whatever the timer says.
func TestSealedSegmentLeavesAtOnce(t *testing.T) {
	t.Parallel()
	b := start(t, fast(map[string]string{"remote.log.manager.task.interval.ms": "3600000"}))
	b.create("eager", 1, small(11_200))
	b.write("eager", 0, 0, 50, 1000, time.Time{})
	b.tiered("eager", 0, 4)
}

// Junk in the cache directory, in our names and others, is neither served nor
// fatal.
func TestJunkInTheCache(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	const size = 1000
	b.create("cached", 1, small(11_200))
	b.write("cached", 0, 0, 100, size, time.Time{})
	b.tiered("cached", 0, 8)
	b.localOnlyTail("cached", 0)
	b.check("cached", 0, 0, 90, size)
	cache := filepath.Join(b.Dir, "cache")
	for i, spoil := range []func(path string) error{
		func(p string) error { return os.Truncate(p, 7) },
		func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("junk", 5000)), 0o600) },
		func(p string) error { return os.WriteFile(p, nil, 0o600) },
	} {
		if i%2 == 0 {
			require.Zero(t, b.Stop())
		} else {
			b.Kill()
		}
		spoiled := 0
		require.NoError(t, filepath.WalkDir(cache, func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
				return err
			}
			spoiled++
			return spoil(p)
		}))
		require.Positive(t, spoiled)
		require.NoError(t, os.WriteFile(filepath.Join(cache, "stranger"), make([]byte, 100_000), 0o600))
		require.NoError(t, os.MkdirAll(filepath.Join(cache, "lost+found", "x"), 0o700))
		b.MustStart()
		b.connect()
		b.check("cached", 0, 0, 100, size)
	}
}

// Live remote segments and another store, or none: the start is refused and says
// which key.
func TestStartWithoutTheStoreIsRefused(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	b.create("bound", 1, small(11_200))
	b.write("bound", 0, 0, 50, 1000, time.Time{})
	b.tiered("bound", 0, 3)
	b.localOnlyTail("bound", 0)
	require.Zero(t, b.Stop())
	url := "file://" + filepath.Join(b.Dir, "tier")
	for name, set := range map[string]string{"no store": "", "another store": "file://" + filepath.Join(b.Dir, "elsewhere")} {
		b.Set("remote.store.url", set)
		b.Spawn()
		require.Equal(t, 3, b.Wait(20*time.Second), name)
		require.Contains(t, b.Log(), "remote.store.url", name)
		require.Contains(t, b.Log(), url, name)
	}
	require.NoDirExists(t, filepath.Join(b.Dir, "elsewhere", "owner"))
	b.Set("remote.store.url", url)
	b.MustStart()
	b.connect()
	b.check("bound", 0, 0, 50, 1000)

	// A directory that was moved is the same store: its owner object says so.
	require.Zero(t, b.Stop())
	moved := filepath.Join(b.Dir, "moved")
	require.NoError(t, os.Rename(filepath.Join(b.Dir, "tier"), moved))
	b.Set("remote.store.url", "file://"+moved)
	b.MustStart()
	b.connect()
	b.check("bound", 0, 0, 50, 1000)
}
