package locallog

import (
	"bytes"
	"path"

	"strandline/broker/leaderepoch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

func (l *Log) epochsName() string { return path.Join(l.config.Dir, segment.EpochsName) }

// AssignEpoch enters that a leader epoch starts at the end offset: in memory; the
// file follows with the first Flush after the epoch's first append.
func (l *Log) AssignEpoch(e cluster.LeaderEpoch) { l.enterEpoch(e, l.EndOffset()) }

func (l *Log) enterEpoch(e cluster.LeaderEpoch, start cluster.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.epochs.Assign(e, start) {
		l.mu.epochsDirty = true
	}
	l.lastEpoch = latestOf(&l.mu.epochs)
}

func latestOf(list *leaderepoch.List) cluster.LeaderEpoch {
	if e, ok := list.Latest(); ok {
		return e.Epoch
	}
	return cluster.NoLeaderEpoch
}

// LatestEpoch is the newest epoch entered.
func (l *Log) LatestEpoch() (leaderepoch.Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.epochs.Latest()
}

// EpochEnd answers OffsetForLeaderEpoch, see leaderepoch.List.EndOffset.
func (l *Log) EpochEnd(e cluster.LeaderEpoch) (found cluster.LeaderEpoch, end cluster.Offset, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.epochs.EndOffset(e, l.EndOffset())
}

// EpochAt is the leader epoch of the record at o.
func (l *Log) EpochAt(o cluster.Offset) (cluster.LeaderEpoch, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.epochs.EpochAt(o)
}

// Epochs is a copy of the list.
func (l *Log) Epochs() *leaderepoch.List {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.epochs.Clone()
}

// syncEpochs makes the file durable where it does not hold the epochs of the
// batches below end. One that has no batch yet is not written: a leader enters
// it again when it begins.
func (l *Log) syncEpochs(end cluster.Offset) error {
	l.mu.Lock()
	dirty, list, file := l.mu.epochsDirty, l.mu.epochs.Clone(), l.mu.epochsFile
	l.mu.epochsDirty = false
	l.mu.Unlock()
	if !dirty {
		return nil
	}
	later := list.TruncateFromEnd(end)
	text := list.Marshal()
	var err error
	if !bytes.Equal(text, file) && (len(file) > 0 || list.Len() > 0) {
		err = disk.WriteFileAtomic(l.config.FS, l.epochsName(), text)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.epochsDirty = l.mu.epochsDirty || later || err != nil
	if err == nil {
		l.mu.epochsFile = text
	}
	return err
}
