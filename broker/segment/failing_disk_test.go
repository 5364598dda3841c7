package segment

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// onFailingDisk prepares a segment on a good disk and then runs something, once
// for each call that it makes of the disk, which fails. after looks at what is
// left, on the disk that is good again.
func onFailingDisk[T any](t *testing.T, prepare func(t *testing.T, w Where) T, run func(w Where, v T) error, after func(t *testing.T, w Where, v T, op disk.Op)) {
	t.Helper()
	for step := int64(0); ; step++ {
		crash := disk.NewCrash(1)
		require.NoError(t, crash.MkdirAll(testDir))
		fault := disk.NewFault(crash, nil)
		files := &openFiles{FS: fault}
		w := Where{FS: files, Dir: testDir, Handles: disk.NewHandleCache(files, 8)}
		v := prepare(t, w)
		var hit *disk.Op
		open := files.open.Load()
		calls := int64(0)
		fault.SetInjector(func(op disk.Op) error {
			if calls++; calls-1 != step {
				return nil
			}
			hit = &op
			return disk.ErrInjected
		})
		err := run(w, v)
		fault.SetInjector(nil)
		if hit == nil {
			require.NoError(t, err)
			require.Greater(t, step, int64(0))
			return
		}
		// The last reference to a file closes it, whatever the disk says.
		if hit.Kind != disk.OpClose || err != nil {
			require.ErrorIs(t, err, disk.ErrInjected, "%d: %s %s", step, hit.Kind, hit.Name)
		}
		var corrupt *CorruptError
		require.False(t, errors.As(err, &corrupt), "a failed call is no corruption: %v", err)
		if after != nil {
			after(t, w, v, *hit)
		}
		require.NoError(t, w.Handles.Close())
		require.LessOrEqual(t, files.open.Load(), open, "%d: %s %s left files open", step, hit.Kind, hit.Name)
	}
}

func written(t *testing.T, w Where) *Segment {
	s, _ := write(t, w, 0, 40)
	s.AddAborted(producerstate.AbortedTxn{ProducerID: 1, First: 1, Last: 2, LastStableOffset: 3})
	return s
}

func sealedAndSynced(t *testing.T, w Where) *Segment {
	s := written(t, w)
	require.NoError(t, s.Seal(5000))
	_, err := s.SyncLog()
	require.NoError(t, err)
	require.NoError(t, s.SyncIndexes())
	s.Synced()
	return s
}

func closed(t *testing.T, w Where) *Segment {
	s := written(t, w)
	require.NoError(t, s.Finish())
	s.Close()
	return s
}

func TestCreateOnAFailingDisk(t *testing.T) {
	onFailingDisk(t, func(t *testing.T, w Where) struct{} {
		for _, suffix := range []string{IndexSuffix, TimeIndexSuffix, TxnIndexSuffix} {
			require.NoError(t, disk.WriteFileUnsynced(w.FS, testDir+"/"+Name(9, suffix), []byte("leftover")))
		}
		return struct{}{}
	}, func(w Where, _ struct{}) error {
		s, err := Create(w, 9, time.UnixMilli(1))
		if err == nil {
			s.Close()
		}
		return err
	}, func(t *testing.T, w Where, _ struct{}, op disk.Op) {
		if op.Kind == disk.OpClose {
			return
		}
		_, err := w.FS.Stat(testDir + "/" + Name(9, LogSuffix))
		require.ErrorIs(t, err, os.ErrNotExist, "what it made is gone")
		left, err := w.FS.List(testDir)
		require.NoError(t, err)
		for _, name := range left {
			data, err := disk.ReadFile(w.FS, testDir+"/"+name)
			require.NoError(t, err)
			require.Equal(t, "leftover", string(data), name)
		}
		s, err := Create(w, 9, time.UnixMilli(1))
		require.NoError(t, err)
		for _, name := range []string{s.logName, s.indexName, s.timeName} {
			info, err := w.FS.Stat(name)
			require.NoError(t, err)
			require.Zero(t, info.Bytes)
		}
		_, err = w.FS.Stat(s.txnName)
		require.ErrorIs(t, err, os.ErrNotExist)
		s.Close()
	})
}

// TestOpeningOnAFailingDisk: an error of the disk is one of opening, and is never
// taken for an index that must be made anew.
func TestOpeningOnAFailingDisk(t *testing.T) {
	const interval = 1 // so that the tail is looked at, too
	long := func(t *testing.T, w Where) *Segment {
		var f files
		for i, n := range []int{100, 100, shortIndexBytes + 16*interval} {
			f.log = append(f.log, sized(t, cluster.Offset(i), n, int64(i+1))...)
		}
		f.times = AppendTimeEntry(nil, 0, TimeEntry{3, 2})
		f.txns = AppendTxnEntry(nil, producerstate.AbortedTxn{ProducerID: 1, First: 0, Last: 1, LastStableOffset: 2})
		f.write(t, w, 0)
		return newSegment(w, 0)
	}
	for name, prepare := range map[string]func(t *testing.T, w Where) *Segment{"entries": closed, "a long tail": long} {
		for form, open := range map[string]func(w Where) (*Segment, error){
			"sealed": func(w Where) (*Segment, error) { return OpenSealed(w, 0, 5000, interval) },
			"active": func(w Where) (*Segment, error) { return OpenActive(w, 0, interval) },
		} {
			t.Run(name+" "+form, func(t *testing.T) {
				onFailingDisk(t, prepare, func(w Where, _ *Segment) error {
					s, err := open(w)
					if err != nil {
						require.NotErrorIs(t, err, ErrNeedsRecovery)
						return err
					}
					s.Close()
					return nil
				}, func(t *testing.T, w Where, _ *Segment, _ disk.Op) {
					s, err := open(w)
					require.NoError(t, err)
					s.Close()
				})
			})
		}
	}
}

func TestRecoveryOnAFailingDisk(t *testing.T) {
	for _, rewrite := range []bool{false, true} {
		recovered := func(w Where) (*Segment, error) {
			s, _, err := Recover(w, 0, RecoverOptions{
				Rewrite: rewrite, IntervalBytes: testInterval,
				Visit: func(b Located) (*producerstate.AbortedTxn, error) {
					if b.Position == 0 {
						return &producerstate.AbortedTxn{ProducerID: 1, First: 0, Last: 1, LastStableOffset: 2}, nil
					}
					return nil, nil
				},
			})
			return s, err
		}
		onFailingDisk(t, func(t *testing.T, w Where) []byte {
			s := closed(t, w)
			log, err := disk.ReadFile(w.FS, s.logName)
			require.NoError(t, err)
			require.NoError(t, disk.WriteFileUnsynced(w.FS, s.logName, log[:len(log)-3]))
			require.NoError(t, disk.WriteFileUnsynced(w.FS, s.indexName, make([]byte, 9)))
			require.NoError(t, w.FS.Remove(s.timeName))
			return log
		}, func(w Where, _ []byte) error {
			s, err := recovered(w)
			if err == nil {
				s.Close()
			}
			return err
		}, func(t *testing.T, w Where, log []byte, _ disk.Op) {
			s, err := recovered(w)
			require.NoError(t, err)
			kept, err := disk.ReadFile(w.FS, s.logName)
			require.NoError(t, err)
			require.Equal(t, log[:len(kept)], kept)
			require.Greater(t, len(log)-len(kept), 3)
			require.NoError(t, s.Seal(5000))
			s.Close()
			s, err = OpenSealed(w, 0, 5000, testInterval)
			require.NoError(t, err)
			s.Close()
		})
	}
}

// TestSealingOnAFailingDisk: a seal that failed is done again, and the indexes are
// whole after that.
func TestSealingOnAFailingDisk(t *testing.T) {
	onFailingDisk(t, written, func(_ Where, s *Segment) error {
		return s.Seal(5000)
	}, func(t *testing.T, w Where, s *Segment, _ disk.Op) {
		require.NoError(t, s.Seal(5000))
		require.True(t, s.Info().Sealed)
		s.Close()
		reference := testWhere(t)
		want := sealedAndSynced(t, reference)
		for _, name := range []string{s.indexName, s.timeName, s.txnName} {
			a, err := disk.ReadFile(reference.FS, name)
			require.NoError(t, err)
			b, err := disk.ReadFile(w.FS, name)
			require.NoError(t, err)
			require.Equal(t, a, b, name)
		}
		want.Close()
	})
}

func TestSyncsOnAFailingDisk(t *testing.T) {
	onFailingDisk(t, func(t *testing.T, w Where) *Segment {
		s := written(t, w)
		require.NoError(t, s.Seal(5000))
		return s
	}, func(_ Where, s *Segment) error {
		next, err := s.SyncLog()
		if err != nil {
			return err
		}
		require.EqualValues(t, 5000, next)
		return s.SyncIndexes()
	}, func(t *testing.T, w Where, s *Segment, op disk.Op) {
		if op.Name == s.logName {
			s.Close()
			return
		}
		require.True(t, s.indexesBehind.Load(), "they are to be synced yet")
		require.NoError(t, s.SyncIndexes())
		require.False(t, s.indexesBehind.Load())
		s.Close()
	})
}

func TestLookupsOnAFailingDisk(t *testing.T) {
	for name, look := range map[string]func(s *Segment) error{
		"range":    func(s *Segment) error { _, err := s.Range(60, Limits{Bound: 90, MaxBytes: 800}); return err },
		"batch":    func(s *Segment) error { _, _, err := s.FindBatch(60); return err },
		"time":     func(s *Segment) error { _, _, err := s.FirstAtTime(1200, 3, 5000); return err },
		"greatest": func(s *Segment) error { _, _, err := s.MaxTimestamp(3, 50); return err },
		"headers":  func(s *Segment) error { return s.Headers(60, func(Header) bool { return true }) },
		"aborted":  func(s *Segment) error { _, err := s.Aborted(); return err },
		"index":    func(s *Segment) error { _, err := s.OffsetIndex(); return err },
		"times":    func(s *Segment) error { _, err := s.TimeIndex(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			onFailingDisk(t, sealedAndSynced, func(_ Where, s *Segment) error { return look(s) },
				func(t *testing.T, _ Where, s *Segment, _ disk.Op) {
					require.NoError(t, look(s))
					s.Close()
				})
		})
	}
}

func TestTruncationOnAFailingDisk(t *testing.T) {
	for _, prepare := range []func(t *testing.T, w Where) *Segment{written, sealedAndSynced} {
		onFailingDisk(t, prepare, func(_ Where, s *Segment) error {
			h, _, err := s.FindBatch(90)
			if err != nil {
				return err
			}
			return s.TruncateFiles(h.Position, h.Base)
		}, func(t *testing.T, w Where, s *Segment, _ disk.Op) {
			s.Close()
			again, _, err := Recover(w, 0, RecoverOptions{IntervalBytes: testInterval, Visit: visitAll})
			require.NoError(t, err)
			require.GreaterOrEqual(t, again.Next(), cluster.Offset(85), "nothing before the cut is gone")
			again.Close()
		})
	}
}

func TestRemovalOnAFailingDisk(t *testing.T) {
	onFailingDisk(t, sealedAndSynced, func(_ Where, s *Segment) error {
		_, err := s.Remove(nil)
		return err
	}, func(t *testing.T, w Where, s *Segment, _ disk.Op) {
		_, err := s.Remove(nil)
		require.NoError(t, err)
		left, err := w.FS.List(testDir)
		require.NoError(t, err)
		require.Len(t, left, 4)
		for _, name := range left {
			require.Contains(t, name, DeletedSuffix)
		}
	})
}

func TestDumpOnAFailingDisk(t *testing.T) {
	ignore := func(Item) error { return nil }
	for _, suffix := range []string{LogSuffix, IndexSuffix, TimeIndexSuffix, TxnIndexSuffix} {
		onFailingDisk(t, sealedAndSynced, func(w Where, _ *Segment) error {
			return Dump(w.FS, testDir+"/"+Name(0, suffix), true, ignore)
		}, func(_ *testing.T, _ Where, s *Segment, _ disk.Op) { s.Close() })
	}
}

// TestWritesOnAFailingDisk: a write that failed leaves what Restore cuts, and
// counts for nothing.
func TestWritesOnAFailingDisk(t *testing.T) {
	crash := disk.NewCrash(1)
	require.NoError(t, crash.MkdirAll(testDir))
	fault := disk.NewFault(crash, nil)
	w := Where{FS: fault, Dir: testDir, Handles: disk.NewHandleCache(fault, 8)}
	s, headers := write(t, w, 0, 10)
	b := batchAtOffset(s.Next(), 5, 5000)
	fault.SetInjector(func(op disk.Op) error {
		if op.Kind == disk.OpWriteAt {
			return errors.Join(disk.ErrTorn, syscall.ENOSPC)
		}
		return nil
	})
	require.ErrorIs(t, s.Write(b), syscall.ENOSPC)
	info, err := fault.Stat(s.logName)
	require.NoError(t, err)
	require.Greater(t, info.Bytes, s.Bytes())
	require.NoError(t, s.Restore())
	fault.SetInjector(nil)
	info, err = fault.Stat(s.logName)
	require.NoError(t, err)
	require.Equal(t, s.Bytes(), info.Bytes)
	requireLookups(t, s, headers)
	require.NoError(t, s.Write(b))
	s.Commit(b, testInterval, time.UnixMilli(2000), 0)
	requireLookups(t, s, append(headers, headerOf(b, info.Bytes)))
	s.Close()
}

type shortFile struct{ disk.File }

func (f shortFile) WriteAt(p []byte, off int64) (int, error) {
	return f.File.WriteAt(p[:len(p)-1], off)
}

func TestAShortWriteIsAnError(t *testing.T) {
	w := testWhere(t)
	s, _ := write(t, w, 0, 3)
	h := s.mu.handle
	s.mu.handle = disk.NewHandle(shortFile{h.File()}, nil)
	require.ErrorContains(t, s.Write(batchAtOffset(s.Next(), 1, 1)), "bytes of")
}
