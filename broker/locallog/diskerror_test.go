package locallog

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// TestErrorAtEveryCall makes every call on the disk fail, one in each run, with a
// full disk and with a broken one, while a log is appended to, rolled, flushed,
// trimmed and truncated. A failed call is either refused, and the log goes on, or
// takes the log offline, and it is opened again. In both cases everything that
// was acknowledged is there, byte for byte, without a gap.
func TestErrorAtEveryCall(t *testing.T) {
	for _, cause := range []error{
		syscall.EDQUOT, fmt.Errorf("%w: %w", disk.ErrTorn, syscall.ENOSPC), fmt.Errorf("%w: %w", disk.ErrTorn, syscall.EIO),
	} {
		t.Run(cause.Error(), func(t *testing.T) {
			calls := 0
			for i := int64(0); ; i++ {
				if !oneError(t, cause, i) {
					break
				}
				calls++
			}
			require.Greater(t, calls, 100, "the run makes that many calls")
		})
	}
}

// oneError makes call i of a run fail. False: the run has fewer calls.
func oneError(t *testing.T, cause error, i int64) (hit bool) {
	t.Helper()
	crash := disk.NewCrash(uint64(i))
	fs := disk.NewFault(crash, nil)
	cfg := config(fs)
	l, err := Open(cfg)
	require.NoError(t, err)
	l.AssignEpoch(1)
	from := fs.Calls()
	fs.SetInjector(func(op disk.Op) error {
		if op.Index == from+i {
			hit = true
			return fmt.Errorf("%s of %s: %w", op.Kind, op.Name, cause)
		}
		return nil
	})
	run := &errorRun{t: t, cfg: cfg, log: l, where: fmt.Sprintf("%v at call %d", cause, i)}
	run.all()
	fs.SetInjector(nil)
	if run.log.Err() != nil {
		run.reopen()
	}
	run.check()
	require.NoError(t, run.log.Close(true), run.where)
	return hit
}

// errorRun is a run with what it has acknowledged.
type errorRun struct {
	t       *testing.T
	cfg     Config
	log     *Log
	where   string
	kept    []recordbatch.Batch // acknowledged and not removed since
	flushed cluster.Offset
}

func (r *errorRun) all() {
	for range 10 {
		r.append(2)
	}
	r.flush()
	for range 30 {
		r.append(3)
	}
	r.do("roll", func() error { _, err := r.log.Roll(); return err })
	r.flush()
	if row := r.log.Segments(); len(row) > 3 {
		upTo := row[2].Base
		r.keep(func(b recordbatch.Batch) bool { return b.BaseOffset() >= upTo }) // the rest may go from here on
		r.do("trim", func() error { _, _, err := r.log.DeleteSealedBelow(upTo); return err })
		r.do("removal", func() error {
			_, err := r.log.RunDeferred(startTime.Add(2 * r.cfg.Settings.FileDeleteDelay))
			return err
		})
	}
	for range 12 {
		r.append(4)
	}
	r.flush()
	r.append(1)
}

func (r *errorRun) keep(fn func(recordbatch.Batch) bool) {
	var kept []recordbatch.Batch
	for _, b := range r.kept {
		if fn(b) {
			kept = append(kept, b)
		}
	}
	r.kept = kept
}

// do runs a step; where it fails the log goes on, or is opened again, and the
// step is tried once more.
func (r *errorRun) do(what string, step func() error) {
	r.t.Helper()
	err := step()
	if err == nil {
		return
	}
	if r.log.Err() != nil {
		require.ErrorIs(r.t, err, ErrStorage, "%s: %s", r.where, what)
		r.reopen()
	} else {
		require.False(r.t, errors.Is(err, ErrStorage), "%s: %s: %v", r.where, what, err)
	}
	require.NoError(r.t, step(), "%s: %s again", r.where, what)
}

func (r *errorRun) append(records int) {
	r.t.Helper()
	var batch recordbatch.Batch
	r.do("append", func() error {
		latest, _ := r.log.LatestEpoch()
		batch = batchOf(r.log.EndOffset(), records, recordbatch.Options{LeaderEpoch: latest.Epoch})
		_, err := r.log.Append(batch)
		return err
	})
	r.kept = append(r.kept, batch)
}

func (r *errorRun) flush() {
	r.t.Helper()
	r.do("flush", func() error { return r.log.Flush(context.Background()) })
	r.flushed = r.log.FlushedOffset()
	require.Equal(r.t, r.log.EndOffset(), r.flushed, r.where)
}

// reopen is what follows where the log went offline, with the disk good again.
func (r *errorRun) reopen() {
	r.t.Helper()
	flushed := r.log.FlushedOffset()
	start := r.log.StartOffset()
	require.NoError(r.t, r.log.Close(false), r.where)
	cfg := r.cfg
	cfg.RecoveryPoint, cfg.Rewrite, cfg.LogStart = flushed, true, start
	l, err := Open(cfg)
	require.NoError(r.t, err, r.where)
	r.log = l
	r.check()
}

func (r *errorRun) check() {
	r.t.Helper()
	next := r.log.LocalStartOffset()
	there := map[cluster.Offset]recordbatch.Batch{}
	for _, b := range readAll(r.t, r.log, next, 4000) {
		require.Equal(r.t, next, b.BaseOffset(), "%s: no gap", r.where)
		next = b.NextOffset()
		there[b.BaseOffset()] = b
	}
	for _, b := range r.kept {
		require.Equal(r.t, b, there[b.BaseOffset()], "%s: batch at %d", r.where, b.BaseOffset())
	}
	require.NoError(r.t, r.log.producersMatch(), r.where)
}
