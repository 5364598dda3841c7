package locallog

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// slowSync lets a test hold back syncs of .log files.
type slowSync struct {
	disk.FS
	hold  chan struct{}
	syncs atomic.Int64
}

type slowFile struct {
	disk.File
	s *slowSync
}

func (s *slowSync) Create(name string) (disk.File, error) {
	f, err := s.FS.Create(name)
	if err == nil && path.Ext(name) == segment.LogSuffix {
		f = slowFile{f, s}
	}
	return f, err
}

func (f slowFile) SyncData() error {
	f.s.syncs.Add(1)
	<-f.s.hold
	return f.File.SyncData()
}

func TestFlushersShareASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &slowSync{FS: disk.NewCrash(1), hold: make(chan struct{})}
		cfg := config(fs)
		cfg.Settings.FlushMessages, cfg.Settings.FlushInterval = 3, time.Second
		l, err := Open(cfg)
		require.NoError(t, err)
		require.False(t, l.FlushNeeded())
		appendBatch(t, l, 2)
		require.True(t, l.FlushNeeded())
		require.False(t, l.FlushDue(startTime))
		require.True(t, l.FlushDue(startTime.Add(time.Second)))
		appendBatch(t, l, 1)
		require.True(t, l.FlushDue(startTime))

		var done atomic.Int64
		flush := func() {
			if err := l.Flush(context.Background()); err == nil {
				done.Add(1)
			}
		}
		go flush()
		synctest.Wait()
		appendBatch(t, l, 4) // the sync under way does not cover this
		for range 50 {
			go flush()
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancelled := make(chan error, 1)
		go func() { cancelled <- l.Flush(ctx) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-cancelled, context.Canceled)
		require.Equal(t, int64(1), fs.syncs.Load())
		fs.hold <- struct{}{}
		synctest.Wait()
		require.Equal(t, int64(1), done.Load())
		require.Equal(t, cluster.Offset(3), l.FlushedOffset())
		fs.hold <- struct{}{}
		synctest.Wait()
		require.Equal(t, int64(51), done.Load())
		require.Equal(t, int64(2), fs.syncs.Load())
		require.Equal(t, cluster.Offset(7), l.FlushedOffset())
		require.False(t, l.FlushDue(startTime.Add(time.Hour)))
		close(fs.hold)
		require.NoError(t, l.Close(true))
		require.ErrorIs(t, l.Flush(context.Background()), ErrClosed)
	})
}

// TestReadersBesideTheWriter reads at random while the writer appends, rolls,
// trims, truncates and flushes: every read gives whole batches with the right
// offsets, or says out of range.
func TestReadersBesideTheWriter(t *testing.T) {
	l := openLog(t, config(disk.NewCrash(1)))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	// Even while nothing is being truncated; what a truncation cuts off and later
	// appends write over is no concern of whoever reads below a high watermark.
	var truncations atomic.Int64
	read := func(id cluster.Offset) {
		for from := id; ; from += 7 {
			select {
			case <-stop:
				return
			default:
			}
			before := truncations.Load()
			end := l.EndOffset()
			if from >= end {
				from = max(l.LocalStartOffset(), end-60)
			}
			s, err := l.Read(from, end, 700, true)
			if errors.Is(err, ErrOffsetOutOfRange) {
				continue
			}
			if err != nil {
				t.Errorf("read %d: %v", from, err)
				return
			}
			if wrong := checkSlice(s, from); wrong != "" && before%2 == 0 && truncations.Load() == before {
				t.Errorf("read %d: %s", from, wrong)
				return
			}
			if _, _, err := l.OffsetForTimestamp(startTime.UnixMilli()+int64(from), end); err != nil {
				t.Errorf("timestamp of %d: %v", from, err)
			}
			if _, err := l.AbortedTxns(from, end); err != nil {
				t.Errorf("aborted from %d: %v", from, err)
			}
			l.Segments()
		}
	}
	for id := range 3 {
		wg.Go(func() { read(cluster.Offset(id)) })
	}
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := l.Flush(context.Background()); err != nil {
					t.Errorf("flush: %v", err)
					return
				}
			}
		}
	})
	for i := range 700 {
		appendBatch(t, l, 1+i%7)
		if i%50 == 49 {
			truncations.Add(1)
			require.NoError(t, l.TruncateTo(max(l.LocalStartOffset(), l.EndOffset()-30)))
			truncations.Add(1)
		}
		if i%20 == 19 {
			_, _, err := l.DeleteSealedBelow(l.EndOffset() - 200)
			require.NoError(t, err)
			_, err = l.RunDeferred(startTime.Add(time.Hour))
			require.NoError(t, err)
		}
	}
	close(stop)
	wg.Wait()
}

// checkSlice says what is wrong with a slice read at from, and releases it.
func checkSlice(s Slice, from cluster.Offset) string {
	defer s.Release()
	next := from
	for _, r := range s.Regions {
		p := make([]byte, r.Bytes)
		if n, err := r.ReadAt(p, 0); n < len(p) {
			return fmt.Sprintf("%d bytes of %d: %v", n, len(p), err)
		}
		for len(p) > 0 {
			b, rest, err := recordbatch.First(p)
			if err == nil {
				err = b.Verify()
			}
			if err != nil {
				return err.Error()
			}
			if b.NextOffset() <= from || b.BaseOffset() > next {
				return fmt.Sprintf("batch of %d to %d where %d is next", b.BaseOffset(), b.LastOffset(), next)
			}
			next, p = b.NextOffset(), rest
		}
	}
	if next != s.NextOffset {
		return fmt.Sprintf("ends at %d, said to end at %d", next, s.NextOffset)
	}
	return ""
}

func TestHookSteps(t *testing.T) {
	cfg := config(disk.NewCrash(1))
	seen := map[string]int{}
	cfg.Hook = func(step string) { seen[step]++ }
	l := openLog(t, cfg)
	fill(t, l, 200)
	_, _, err := l.DeleteSealedBelow(100)
	require.NoError(t, err)
	require.NoError(t, l.Close(false))
	openLog(t, cfg)
	for _, step := range []string{StepAppend, StepRoll, StepLocalTrim, StepRecovery} {
		require.Positive(t, seen[step], step)
	}
}

func TestResidentIsWhatWasWrittenLast(t *testing.T) {
	cfg := config(disk.NewCrash(1))
	cfg.Recent = NewRecent(11 << 20)
	cfg.Settings.SegmentBytes = 64 << 20
	l := openLog(t, cfg)
	resident := func(from cluster.Offset) bool {
		s, err := l.Read(from, l.EndOffset(), 1, true)
		require.NoError(t, err)
		defer s.Release()
		return s.Regions[0].Resident
	}
	value := make([]byte, 5<<20)
	for range 4 {
		b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: l.EndOffset()})
		b.Add(1, nil, value)
		_, err := l.Append(b.Build())
		require.NoError(t, err)
	}
	require.False(t, resident(0))
	require.True(t, resident(2))
	require.True(t, resident(3))
}
