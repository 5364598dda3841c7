package leaderepoch

import (
	"slices"
	"sort"

	"strandline/metadata/cluster"
)

// Entry says that an epoch's first record has, or will have, the offset Start.
type Entry struct {
	Epoch cluster.LeaderEpoch
	Start cluster.Offset
}

// List holds entries in rising order (E1). The zero value is an empty list.
type List struct {
	entries []Entry
}

// FromEntries builds a list by assigning the entries in order.
func FromEntries(entries []Entry) *List {
	l := &List{}
	for _, e := range entries {
		l.Assign(e.Epoch, e.Start)
	}
	return l
}

// Assign enters that epoch starts at start, and reports whether that changed
// the list. Entries that contradict it, having the same or a later epoch or the
// same or a later start, are removed first: an epoch that wrote nothing is
// replaced by the next one at the same offset. The latest epoch assigned again
// at its start or above changes nothing (E2). A negative epoch or start is not
// entered.
func (l *List) Assign(epoch cluster.LeaderEpoch, start cluster.Offset) bool {
	if epoch < 0 || start < 0 {
		return false
	}
	if latest, ok := l.Latest(); ok && latest.Epoch == epoch && start >= latest.Start {
		return false
	}
	keep := len(l.entries)
	for keep > 0 && (l.entries[keep-1].Epoch >= epoch || l.entries[keep-1].Start >= start) {
		keep--
	}
	l.entries = append(l.entries[:keep], Entry{Epoch: epoch, Start: start})
	return true
}

// Latest is the entry with the highest epoch.
func (l *List) Latest() (Entry, bool) {
	if len(l.entries) == 0 {
		return Entry{}, false
	}
	return l.entries[len(l.entries)-1], true
}

// Earliest is the entry with the lowest epoch.
func (l *List) Earliest() (Entry, bool) {
	if len(l.entries) == 0 {
		return Entry{}, false
	}
	return l.entries[0], true
}

// Previous is the entry with the highest epoch below epoch.
func (l *List) Previous(epoch cluster.LeaderEpoch) (Entry, bool) {
	i := l.searchEpoch(epoch)
	if i == 0 {
		return Entry{}, false
	}
	return l.entries[i-1], true
}

// Len is the number of entries.
func (l *List) Len() int { return len(l.entries) }

// EndOffset answers OffsetForLeaderEpoch: the largest epoch at or below the
// requested one, and the offset at which it ended (exclusive).
//
//   - The latest epoch ends at logEnd.
//   - An epoch below all entries is answered with itself and the first entry's
//     start: its records are gone, and whoever asks goes on from there.
//   - NoLeaderEpoch, an epoch above all entries and an empty list give
//     (NoLeaderEpoch, NoOffset, false).
func (l *List) EndOffset(epoch cluster.LeaderEpoch, logEnd cluster.Offset) (found cluster.LeaderEpoch, end cluster.Offset, ok bool) {
	latest, any := l.Latest()
	if epoch == cluster.NoLeaderEpoch || !any || epoch > latest.Epoch {
		return cluster.NoLeaderEpoch, cluster.NoOffset, false
	}
	if epoch == latest.Epoch {
		return epoch, logEnd, true
	}
	higher := l.searchEpoch(epoch + 1)
	if higher == 0 {
		return epoch, l.entries[0].Start, true
	}
	return l.entries[higher-1].Epoch, l.entries[higher].Start, true
}

// EpochAt is the epoch of the record at an offset: the last one that started at
// or below it. It is false below the first entry.
func (l *List) EpochAt(o cluster.Offset) (cluster.LeaderEpoch, bool) {
	i := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].Start > o })
	if i == 0 {
		return cluster.NoLeaderEpoch, false
	}
	return l.entries[i-1].Epoch, true
}

// TruncateFromEnd removes the entries that start at or above end, and reports
// whether there were any. A leader that has entered its epoch at the log's end
// must assign it again after truncating to there.
func (l *List) TruncateFromEnd(end cluster.Offset) bool {
	if end < 0 {
		return false
	}
	keep := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].Start >= end })
	if keep == len(l.entries) {
		return false
	}
	l.entries = l.entries[:keep]
	return true
}

// TruncateFromStart forgets what is below start, the new log start, and reports
// whether that changed the list. The epoch of the record at start stays and
// starts there from now on.
func (l *List) TruncateFromStart(start cluster.Offset) bool {
	past := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].Start > start })
	if past == 0 || past == 1 && l.entries[0].Start == start {
		return false
	}
	// A copy, so that the entries before it do not stay in memory.
	l.entries = slices.Clone(l.entries[past-1:])
	l.entries[0].Start = start
	return true
}

// Range is the list of a log that held only the offsets from start (inclusive)
// to end (exclusive).
func (l *List) Range(start, end cluster.Offset) *List {
	c := l.Clone()
	if start >= 0 {
		c.TruncateFromStart(start)
	}
	c.TruncateFromEnd(end)
	return c
}

// Clear removes all entries.
func (l *List) Clear() { l.entries = nil }

// Entries are copies of the entries in rising order.
func (l *List) Entries() []Entry { return slices.Clone(l.entries) }

// Clone is an independent copy.
func (l *List) Clone() *List { return &List{entries: slices.Clone(l.entries)} }

// searchEpoch is the index of the first entry whose epoch is not below epoch.
func (l *List) searchEpoch(epoch cluster.LeaderEpoch) int {
	return sort.Search(len(l.entries), func(i int) bool { return l.entries[i].Epoch >= epoch })
}
