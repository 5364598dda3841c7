package locallog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/leaderepoch"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// midway is a disk that is cloned, as after a power loss, before each of its
// changes while it watches.
type midway struct {
	*disk.Fault
	crash  *disk.Crash
	rng    *rand.Rand
	clones []*disk.Crash
}

func newMidway(seed uint64) *midway {
	m := &midway{crash: disk.NewCrash(seed), rng: rand.New(rand.NewPCG(seed, 4))}
	m.Fault = disk.NewFault(m.crash, nil)
	return m
}

// watch clones the disk n times before each change that do makes, and after.
func (m *midway) watch(n int, do func()) {
	look := func() {
		for range n {
			m.clones = append(m.clones, m.crash.Clone(m.rng))
		}
	}
	m.SetInjector(func(op disk.Op) error {
		if op.Kind.Mutates() {
			look()
		}
		return nil
	})
	do()
	m.SetInjector(nil)
	look()
}

// TestPowerLossMidway loses power before each change of the disk that an
// operation on several files makes. What had been flushed, and the operation
// keeps, is there, without a gap.
func TestPowerLossMidway(t *testing.T) {
	seeds := uint64(1)
	if os.Getenv("STRANDLINE_LONG") == "1" {
		seeds = 20
	}
	type keeps struct {
		from, to cluster.Offset // flushed and neither trimmed nor truncated
		recovery cluster.Offset // the recovery point, as whoever keeps it has persisted it
	}
	for name, c := range map[string]struct {
		remote bool
		do     func(t *testing.T, l *Log, end cluster.Offset) keeps
	}{
		"trim of several segments": {do: func(t *testing.T, l *Log, end cluster.Offset) keeps {
			upTo := l.Segments()[5].Base
			removed, _, err := l.DeleteSealedBelow(upTo)
			require.NoError(t, err)
			require.Equal(t, 5, removed)
			return keeps{upTo, end, end}
		}},
		"trim, and removal of the files": {do: func(t *testing.T, l *Log, end cluster.Offset) keeps {
			upTo := l.Segments()[4].Base
			_, _, err := l.DeleteSealedBelow(upTo)
			require.NoError(t, err)
			_, err = l.RunDeferred(startTime.Add(2 * l.settings.Load().FileDeleteDelay))
			require.NoError(t, err)
			return keeps{upTo, end, end}
		}},
		"truncation over several segments": {do: func(t *testing.T, l *Log, end cluster.Offset) keeps {
			to := l.Segments()[3].Base + 5
			require.NoError(t, l.TruncateTo(to))
			return keeps{0, l.EndOffset(), to}
		}},
		"truncation, then appends": {do: func(t *testing.T, l *Log, end cluster.Offset) keeps {
			require.NoError(t, l.TruncateTo(l.Segments()[3].Base+5))
			at := l.EndOffset()
			l.AssignEpoch(2)
			fill(t, l, at+200)
			require.NoError(t, l.Flush(context.Background()))
			return keeps{0, at, at}
		}},
		"reset above the end": {remote: true, do: func(t *testing.T, l *Log, end cluster.Offset) keeps {
			require.NoError(t, l.Reset(end+500, []leaderepoch.Entry{{Epoch: 1, Start: 0}}, nil))
			return keeps{end, end, end} // what was there may go: the tier has it
		}},
		"rolls and flushes": {do: func(t *testing.T, l *Log, end cluster.Offset) keeps {
			fill(t, l, end+200)
			require.NoError(t, l.Flush(context.Background()))
			fill(t, l, end+400)
			return keeps{0, end, end}
		}},
		"clean close": {do: func(t *testing.T, l *Log, end cluster.Offset) keeps {
			fill(t, l, end+100)
			require.NoError(t, l.Close(true))
			return keeps{0, end, end}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				m := newMidway(seed)
				cfg := config(m)
				cfg.RemoteBelow = c.remote
				l, err := Open(cfg)
				require.NoError(t, err)
				l.AssignEpoch(1)
				all := fill(t, l, 400)
				require.NoError(t, l.Flush(context.Background()))
				end := l.EndOffset()
				var k keeps
				m.watch(2, func() { k = c.do(t, l, end) })
				require.NoError(t, l.Close(false))
				for i, clone := range m.clones {
					after := config(clone)
					after.RemoteBelow, after.RecoveryPoint = c.remote, k.recovery
					if c.remote {
						after.RemoteEnd = end + 500
					}
					checkMidway(t, fmt.Sprintf("seed %d, clone %d of %d", seed, i, len(m.clones)), after, all, k.from, k.to)
				}
			}
		})
	}
}

func checkMidway(t *testing.T, where string, cfg Config, all []recordbatch.Batch, from, to cluster.Offset) {
	t.Helper()
	l, err := Open(cfg)
	require.NoError(t, err, where)
	defer func() { require.NoError(t, l.Close(false)) }()
	if from < to {
		require.GreaterOrEqual(t, l.EndOffset(), to, "%s: flushed records are there", where)
		require.LessOrEqual(t, l.LocalStartOffset(), from, where)
	}
	next := l.LocalStartOffset()
	got := readAll(t, l, next, 4000)
	for _, b := range got {
		require.Equal(t, next, b.BaseOffset(), "%s: no gap", where)
		next = b.NextOffset()
	}
	require.Equal(t, l.EndOffset(), next, where)
	kept := map[cluster.Offset]recordbatch.Batch{}
	for _, b := range got {
		kept[b.BaseOffset()] = b
	}
	for _, b := range all {
		if b.BaseOffset() >= from && b.NextOffset() <= to {
			require.Equal(t, b, kept[b.BaseOffset()], "%s: batch at %d", where, b.BaseOffset())
		}
	}
	require.NoError(t, l.producersMatch(), where)
}
