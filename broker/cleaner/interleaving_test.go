package cleaner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/locallog"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// written is a bench and what was written to it.
type written struct {
	*bench
	batches []recordbatch.Batch
}

// fill writes n batches, of which every sixth is the last of its segment.
func (w *written) fill(n int, epoch cluster.LeaderEpoch) {
	w.t.Helper()
	for i := range n {
		k, v := fmt.Sprint("key-", i%7), fmt.Sprint("value-", epoch, "-", i)
		if i%11 == 3 {
			v = "-"
		}
		w.batches = append(w.batches, w.keyed(recordbatch.Options{LeaderEpoch: epoch}, k, v, k+"x", "also "+v))
		if i%6 == 5 {
			w.seal()
		}
	}
}

// want are the values of what lies between two offsets.
func (w *written) want(from, to cluster.Offset) map[string]string {
	var records []record
	for _, r := range recordsOf(w.t, w.batches) {
		if r.Offset >= from && r.Offset < to {
			records = append(records, r)
		}
	}
	return fold(records)
}

func (w *written) check(where string) {
	w.t.Helper()
	start := w.log.StartOffset()
	var got []record
	for _, r := range recordsOf(w.t, w.bench.batches(start)) {
		if r.Offset >= start {
			got = append(got, r)
		}
	}
	require.Equal(w.t, w.want(start, w.log.EndOffset()), fold(got), where)
}

// TestLogChangesAtEachStepOfAPass lets something else happen to a log at each step
// of a pass over it, in turn: what readers get is right at once, and after the
// next pass, whose end the log reaches.
func TestLogChangesAtEachStepOfAPass(t *testing.T) {
	for name, change := range map[string]func(w *written){
		"records are deleted": func(w *written) { w.log.SetStartOffset(31) },
		"records are deleted and trimmed": func(w *written) {
			w.log.SetStartOffset(47)
			_, _, err := w.log.DeleteSealedBelow(47)
			require.NoError(w.t, err)
		},
		"everything is deleted": func(w *written) {
			w.log.SetStartOffset(w.log.EndOffset())
			_, _, err := w.log.DeleteSealedBelow(w.log.EndOffset())
			require.NoError(w.t, err)
		},
		"records are written": func(w *written) { w.fill(7, 1) },
		"the log is truncated": func(w *written) {
			w.changes++
			require.NoError(w.t, w.log.TruncateTo(29))
			w.cut(w.log.EndOffset())
		},
		"the log is truncated and grows past what it was": func(w *written) {
			w.changes++
			require.NoError(w.t, w.log.TruncateTo(29))
			w.cut(w.log.EndOffset())
			w.log.AssignEpoch(2)
			w.fill(60, 2)
		},
		"the log begins anew further on": func(w *written) {
			w.changes++
			require.NoError(w.t, w.log.Reset(500, nil, nil))
			w.batches = nil
			w.log.AssignEpoch(2)
			w.fill(20, 2)
		},
		"the segments' size": func(w *written) {
			s := w.cfg.Settings
			s.SegmentBytes, s.IndexBytes = 400, 64
			w.log.SetSettings(s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for at := 0; changedAt(t, change, at); at++ {
				require.Less(t, at, 1000)
			}
		})
	}
}

// cut forgets what was truncated.
func (w *written) cut(end cluster.Offset) {
	for i, b := range w.batches {
		if b.BaseOffset() >= end {
			w.batches = w.batches[:i]
			return
		}
	}
}

func changedAt(t *testing.T, change func(w *written), at int) (hit bool) {
	t.Helper()
	w := &written{bench: newBench(t, disk.NewCrash(1))}
	defer w.close(false)
	w.log.AssignEpoch(1)
	w.fill(48, 1)
	steps := 0
	w.onStep = func() {
		if steps++; steps-1 == at {
			hit = true
			w.onStep = nil
			change(w)
		}
	}
	_, err := w.c.Compact(context.Background(), w, limits())
	w.onStep = nil
	where := fmt.Sprint("at step ", at)
	if err != nil {
		require.ErrorIs(t, err, ErrInterrupted, where)
		require.True(t, hit)
	}
	w.check(where)
	w.fill(12, 3)
	w.seal()
	r := w.compact(limits())
	require.Equal(t, w.log.EndOffset(), r.Indexed, where)
	w.check(where)
	w.compact(limits())
	w.check(where)
	start := w.log.StartOffset()
	require.LessOrEqual(t, len(recordsOf(t, w.bench.batches(start))), len(w.want(start, w.log.EndOffset()))+8, "%s: all but tombstones is compacted", where)
	w.requireNoStrays(where)
	return hit
}

// TestPowerLossAtNamedSteps loses power, and stops, whenever a pass is at one of the
// named steps of a rewrite: what was written before is all there then, and the next
// pass leaves what one without a stop leaves.
func TestPowerLossAtNamedSteps(t *testing.T) {
	times := map[string]int{}
	for at := 0; ; at++ {
		crash := disk.NewCrash(uint64(at))
		w := &written{bench: newBench(t, crash)}
		w.log.AssignEpoch(1)
		w.fill(48, 1)
		w.close(true)
		steps, stopped := 0, ""
		var found []*disk.Crash
		w.cfg.Hook = func(step string) {
			if steps++; steps-1 != at || !strings.HasPrefix(step, "rewrite-") {
				return
			}
			stopped = step
			found = append(found, crash.Kill())
			for seed := range uint64(4) {
				found = append(found, crash.Clone(rand.New(rand.NewPCG(seed, uint64(at)))))
			}
		}
		require.NoError(t, w.open())
		w.compact(limits())
		w.cfg.Hook = nil
		w.close(false)
		for i, fs := range found {
			where := fmt.Sprintf("%s, step %d, disk %d", stopped, at, i)
			w.fs, w.cfg.RecoveryPoint = fs, cluster.Offset(i%2)*w.log.EndOffset()
			require.NoError(t, w.open(), where)
			require.Equal(t, cluster.Offset(96), w.log.EndOffset(), where)
			w.check(where)
			w.requireNoStrays(where)
			w.compact(limits())
			w.check(where)
			require.LessOrEqual(t, len(recordsOf(t, w.bench.batches(0))), len(w.want(0, 96))+8, where)
			w.close(true)
			w.cfg.CleanStop = false
		}
		if times[stopped]++; stopped == "" && steps <= at {
			break
		}
	}
	for _, step := range []string{locallog.StepRewriteCleaned, locallog.StepRewriteSwap, locallog.StepRewriteReplace} {
		require.Positive(t, times[step], step)
	}
}
