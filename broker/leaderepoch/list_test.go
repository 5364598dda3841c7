package leaderepoch_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"strandline/broker/leaderepoch"
	"strandline/metadata/cluster"
)

type entries = []leaderepoch.Entry

func list(e ...leaderepoch.Entry) *leaderepoch.List { return leaderepoch.FromEntries(e) }

func TestAssign(t *testing.T) {
	for _, c := range []struct {
		name    string
		before  entries
		epoch   cluster.LeaderEpoch
		start   cluster.Offset
		changed bool
		after   entries
	}{
		{"the first", nil, 3, 0, true, entries{{3, 0}}},
		{"a later one", entries{{3, 0}}, 5, 10, true, entries{{3, 0}, {5, 10}}},
		{"the same again", entries{{3, 0}, {5, 10}}, 5, 10, false, entries{{3, 0}, {5, 10}}},
		{"the same at a later batch", entries{{3, 0}, {5, 10}}, 5, 99, false, entries{{3, 0}, {5, 10}}},
		{"the same, earlier", entries{{3, 0}, {5, 10}}, 5, 7, true, entries{{3, 0}, {5, 7}}},
		{"after one that wrote nothing", entries{{3, 0}, {5, 10}}, 6, 10, true, entries{{3, 0}, {6, 10}}},
		{"after several", entries{{3, 0}, {5, 10}, {6, 20}}, 8, 4, true, entries{{3, 0}, {8, 4}}},
		{"of an older epoch", entries{{3, 0}, {5, 10}, {6, 20}}, 4, 15, true, entries{{3, 0}, {4, 15}}},
		{"over all", entries{{3, 5}, {5, 10}}, 7, 2, true, entries{{7, 2}}},
		{"negative epoch", entries{{3, 5}}, -1, 9, false, entries{{3, 5}}},
		{"negative start", entries{{3, 5}}, 4, -1, false, entries{{3, 5}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := list(c.before...)
			require.Equal(t, c.changed, l.Assign(c.epoch, c.start))
			require.Equal(t, c.after, l.Entries())
		})
	}
}

// KIP-101 and KIP-279: what OffsetForLeaderEpoch answers.
func TestEndOffset(t *testing.T) {
	l := list(entries{{2, 5}, {4, 11}, {7, 20}}...)
	const logEnd = 33
	for _, c := range []struct {
		name  string
		asked cluster.LeaderEpoch
		found cluster.LeaderEpoch
		end   cluster.Offset
	}{
		{"undefined", -1, -1, -1},
		{"before all: from the first start", 0, 0, 5},
		{"before all, next to it", 1, 1, 5},
		{"the first", 2, 2, 11},
		{"between: the one before", 3, 2, 11},
		{"the second", 4, 4, 20},
		{"between again", 6, 4, 20},
		{"the latest", 7, 7, logEnd},
		{"after all", 8, -1, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, end, ok := l.EndOffset(c.asked, logEnd)
			require.Equal(t, c.found, found)
			require.Equal(t, c.end, end)
			require.Equal(t, c.end >= 0, ok)
		})
	}
	_, _, ok := list().EndOffset(0, 0)
	require.False(t, ok)
	_, _, ok = l.EndOffset(1<<31-1, logEnd)
	require.False(t, ok)
}

func TestEpochAt(t *testing.T) {
	l := list(entries{{2, 5}, {4, 11}}...)
	for o, want := range map[cluster.Offset]cluster.LeaderEpoch{0: -1, 4: -1, 5: 2, 10: 2, 11: 4, 1 << 60: 4} {
		got, ok := l.EpochAt(o)
		require.Equal(t, want, got, "offset %d", o)
		require.Equal(t, want >= 0, ok)
	}
}

func TestTruncateFromEnd(t *testing.T) {
	all := entries{{2, 5}, {4, 11}, {7, 20}}
	for end, want := range map[cluster.Offset]entries{
		-1: all, 0: {}, 5: {}, 6: all[:1], 11: all[:1], 12: all[:2], 20: all[:2], 21: all, 99: all,
	} {
		l := list(all...)
		require.Equal(t, len(want) != len(all), l.TruncateFromEnd(end), "end %d", end)
		require.Equal(t, want, append(entries{}, l.Entries()...), "end %d", end)
	}
}

func TestTruncateFromStart(t *testing.T) {
	all := entries{{2, 5}, {4, 11}, {7, 20}}
	for start, want := range map[cluster.Offset]entries{
		0: all, 4: all, 5: all, 6: {{2, 6}, {4, 11}, {7, 20}}, 10: {{2, 10}, {4, 11}, {7, 20}},
		11: {{4, 11}, {7, 20}}, 12: {{4, 12}, {7, 20}}, 20: {{7, 20}}, 1000: {{7, 1000}},
	} {
		l := list(all...)
		require.Equal(t, start > 5, l.TruncateFromStart(start), "start %d", start)
		require.Equal(t, want, l.Entries(), "start %d", start)
	}
}

func TestRangeLeavesTheList(t *testing.T) {
	all := entries{{2, 5}, {4, 11}, {7, 20}}
	l := list(all...)
	require.Equal(t, entries{{2, 8}, {4, 11}}, l.Range(8, 20).Entries())
	require.Equal(t, entries{{4, 12}}, l.Range(12, 20).Entries())
	require.Equal(t, all, l.Entries())
	c := l.Clone()
	c.Assign(9, 30)
	c.TruncateFromStart(15)
	require.Equal(t, all, l.Entries())
	first, _ := l.Earliest()
	require.Equal(t, all[0], first)
	previous, ok := l.Previous(7)
	require.True(t, ok)
	require.Equal(t, all[1], previous)
	_, ok = l.Previous(2)
	require.False(t, ok)
	l.Clear()
	require.Zero(t, l.Len())
	_, ok = l.Earliest()
	require.False(t, ok)
}

// The list against a log kept as one epoch per offset.
func TestListAgreesWithALogOfEpochs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &leaderepoch.List{}
		var log []cluster.LeaderEpoch // log[o] is the epoch of offset o
		start, epoch := 0, cluster.LeaderEpoch(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				epoch += cluster.LeaderEpoch(rapid.IntRange(1, 3).Draw(t, "elections"))
			case 1:
				for range rapid.IntRange(1, 5).Draw(t, "records") {
					l.Assign(epoch, cluster.Offset(len(log)))
					log = append(log, epoch)
				}
			case 2:
				end := rapid.IntRange(start, len(log)).Draw(t, "end")
				l.TruncateFromEnd(cluster.Offset(end))
				log = log[:end]
			case 3:
				start = rapid.IntRange(start, len(log)).Draw(t, "start")
				l.TruncateFromStart(cluster.Offset(start))
			}
		}
		for o := start; o < len(log); o++ {
			got, ok := l.EpochAt(cluster.Offset(o))
			require.True(t, ok)
			require.Equal(t, log[o], got, "offset %d", o)
			_, end, ok := l.EndOffset(log[o], cluster.Offset(len(log)))
			require.True(t, ok)
			want := o
			for want < len(log) && log[want] == log[o] {
				want++
			}
			// A latest entry whose records are all below the log start has
			// none above it, and ends where the log does.
			require.EqualValues(t, want, end)
		}
		es := l.Entries()
		for i := 1; i < len(es); i++ { // E1
			require.Less(t, es[i-1].Epoch, es[i].Epoch)
			require.Less(t, es[i-1].Start, es[i].Start)
		}
		parsed, err := leaderepoch.Parse(l.Marshal())
		require.NoError(t, err)
		require.Equal(t, len(es), parsed.Len())
		require.Equal(t, append(entries{}, es...), append(entries{}, parsed.Entries()...))
	})
}
