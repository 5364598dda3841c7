package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// fakeLog is a Partition in memory. What a test wants of it, it sets: nothing
// becomes decided but by commit, unless auto is set.
type fakeLog struct {
	tp cluster.TopicPartition

	mu      sync.Mutex
	batches []recordbatch.Batch
	start   cluster.Offset
	end     cluster.Offset
	mark    cluster.Offset
	epochs  []epochStart
	epoch   cluster.LeaderEpoch
	leading bool
	offline error
	auto    bool // what is appended is decided at once
	max     int
	// compacted is what compaction has removed.
	compacted cluster.Offset
	refuse    error // answer of appends
	readErr   error
	appends   int
	read      int // bytes
	waiters   map[*partition.Waiter]struct{}
}

type epochStart struct {
	epoch cluster.LeaderEpoch
	start cluster.Offset
}

func newFakeLog(partitionID int32) *fakeLog {
	return &fakeLog{
		tp: cluster.TopicPartition{Topic: cluster.TopicID{7}, Partition: partitionID}, max: 1 << 20,
		epoch: cluster.NoLeaderEpoch, waiters: map[*partition.Waiter]struct{}{},
	}
}

func (l *fakeLog) TopicPartition() cluster.TopicPartition { return l.tp }

func (l *fakeLog) LogState() partition.LogState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return partition.LogState{
		LeaderEpoch: l.epoch, Leading: l.leading && l.offline == nil, LogStartOffset: l.start, HighWatermark: l.mark,
		LogEndOffset: l.end, CompactedTombstonesBelow: l.compacted, MaxMessageBytes: l.max, Offline: l.offline,
	}
}

func (l *fakeLog) EpochAt(o cluster.Offset) (cluster.LeaderEpoch, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o < l.start || o >= l.end {
		return cluster.NoLeaderEpoch, false
	}
	found := cluster.NoLeaderEpoch
	for _, e := range l.epochs {
		if e.start <= o {
			found = e.epoch
		}
	}
	return found, found != cluster.NoLeaderEpoch
}

func (l *fakeLog) ReadDecided(dst []byte, from cluster.Offset, maxBytes int) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readErr != nil {
		return dst, l.readErr
	}
	if l.offline != nil {
		return dst, l.offline
	}
	if from < l.start || from > l.end {
		return dst, fmt.Errorf("%w: %d", partition.ErrOffsetOutOfRange, from)
	}
	before := len(dst)
	for _, b := range l.batches {
		if b.NextOffset() <= from {
			continue
		}
		if b.NextOffset() > l.mark || len(dst) > before && len(dst)-before+len(b) > maxBytes {
			break
		}
		dst = append(dst, b...)
	}
	l.read += len(dst) - before
	return dst, nil
}

func (l *fakeLog) Append(req partition.AppendRequest) (partition.AppendResult, *partition.Commit, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appends++
	switch {
	case l.offline != nil:
		return partition.AppendResult{}, nil, l.offline
	case !l.leading:
		return partition.AppendResult{}, nil, partition.ErrNotLeader
	case req.CurrentLeaderEpoch != l.epoch:
		return partition.AppendResult{}, nil, partition.ErrFencedLeaderEpoch
	case l.refuse != nil:
		return partition.AppendResult{}, nil, l.refuse
	}
	result := partition.AppendResult{BaseOffset: l.end, LeaderEpoch: l.epoch}
	for rest := append([]byte(nil), req.Records...); len(rest) > 0; {
		b, more, err := recordbatch.First(rest)
		if err != nil {
			return partition.AppendResult{}, nil, err
		}
		l.appendLocked(b)
		rest = more
	}
	result.LastOffset = l.end - 1
	if l.auto {
		l.mark = l.end
		l.wakeLocked()
	}
	return result, nil, nil
}

func (l *fakeLog) FlushAppended() {}

func (l *fakeLog) appendLocked(b recordbatch.Batch) {
	b.SetBaseOffset(l.end)
	b.SetPartitionLeaderEpoch(l.epoch)
	l.batches = append(l.batches, b)
	l.end = b.NextOffset()
}

// foreign appends a batch that is not the runtime's, under the present epoch.
func (l *fakeLog) foreign(b recordbatch.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appendLocked(b)
}

// commit raises the high watermark; -1: to the end.
func (l *fakeLog) commit(to cluster.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to < 0 || to > l.end {
		to = l.end
	}
	l.mark = max(l.mark, to)
	l.wakeLocked()
}

func (l *fakeLog) lead(epoch cluster.LeaderEpoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leading, l.epoch = true, epoch
	for n := len(l.epochs); n > 0 && l.epochs[n-1].start >= l.end; n-- {
		l.epochs = l.epochs[:n-1]
	}
	l.epochs = append(l.epochs, epochStart{epoch, l.end})
	l.wakeLocked()
}

func (l *fakeLog) follow(epoch cluster.LeaderEpoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leading, l.epoch = false, epoch
	l.wakeLocked()
}

func (l *fakeLog) truncate(to cluster.Offset) { l.set(func() { l.truncateLocked(to) }) }

// truncateLocked cuts the log, whatever was decided.
func (l *fakeLog) truncateLocked(to cluster.Offset) {
	for n := len(l.batches); n > 0 && l.batches[n-1].NextOffset() > to; n-- {
		l.batches = l.batches[:n-1]
	}
	l.end = l.start
	if n := len(l.batches); n > 0 {
		l.end = l.batches[n-1].NextOffset()
	}
	l.mark = min(l.mark, l.end)
	for n := len(l.epochs); n > 0 && l.epochs[n-1].start >= l.end; n-- {
		l.epochs = l.epochs[:n-1]
	}
}

func (l *fakeLog) trim(to cluster.Offset) { l.set(func() { l.trimLocked(to) }) }

// trimLocked moves the log start offset.
func (l *fakeLog) trimLocked(to cluster.Offset) {
	for len(l.batches) > 0 && l.batches[0].NextOffset() <= to {
		l.batches = l.batches[1:]
	}
	l.start = max(l.start, to)
}

func (l *fakeLog) compact(below cluster.Offset) { l.set(func() { l.compactLocked(below) }) }

// compactLocked removes from the whole batches below an offset every record that is
// not the latest of its key, and deletions too, as a cleaner that keeps them for
// no time does. Batches of transactions stay.
func (l *fakeLog) compactLocked(below cluster.Offset) {
	latest := map[string]cluster.Offset{}
	for _, r := range counted(l.batches, below) {
		latest[r.key] = r.offset
	}
	var d recordbatch.Decoder
	stays := map[string]bool{} // what a transaction wrote, with what deleted it
	for _, b := range l.batches {
		for r := range d.Records(b) {
			stays[string(r.Key)] = stays[string(r.Key)] || b.IsTransactional()
		}
	}
	for i, b := range l.batches {
		if b.NextOffset() > below || b.IsTransactional() {
			continue
		}
		made := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: b.BaseOffset(), LeaderEpoch: b.PartitionLeaderEpoch()})
		for r, err := range d.Records(b) {
			switch {
			case err != nil:
				panic(err)
			case latest[string(r.Key)] > r.Offset:
			case r.Value == nil && !stays[string(r.Key)]:
				l.compacted = max(l.compacted, r.Offset+1)
			default:
				if err := made.AddRecord(r); err != nil {
					panic(err)
				}
			}
		}
		if err := made.SetLastOffset(b.LastOffset()); err != nil {
			panic(err)
		}
		l.batches[i] = made.Build()
	}
}

func (l *fakeLog) set(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
	l.wakeLocked()
}

func (l *fakeLog) AddWaiter(w *partition.Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters[w] = struct{}{}
}

func (l *fakeLog) RemoveWaiter(w *partition.Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiters, w)
}

func (l *fakeLog) wakeLocked() {
	for w := range l.waiters {
		select {
		case w.C <- struct{}{}:
		default:
		}
	}
}

// reopened is the same log after a restart: what was decided may be forgotten.
func (l *fakeLog) reopened(mark cluster.Offset) *fakeLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := newFakeLog(l.tp.Partition)
	out.tp, out.start, out.end, out.max, out.auto, out.epoch = l.tp, l.start, l.end, l.max, l.auto, l.epoch
	out.batches = append(out.batches, l.batches...)
	out.epochs = append(out.epochs, l.epochs...)
	out.mark, out.compacted = max(l.start, min(mark, l.end)), l.compacted
	return out
}

// folded is what the log says below an offset: the latest value of each key, of
// what counts, by the rules of transactions, computed in the dullest way.
func (l *fakeLog) folded(below cluster.Offset) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return foldBatches(l.batches, below)
}

func foldBatches(batches []recordbatch.Batch, below cluster.Offset) map[string]string {
	out := map[string]string{}
	for _, r := range counted(batches, below) {
		if r.deleted {
			delete(out, r.key)
		} else {
			out[r.key] = r.value
		}
	}
	return out
}

// decidedRecord is one record of a log.
type decidedRecord struct {
	offset     cluster.Offset
	producer   cluster.ProducerID
	open       bool
	key, value string
	deleted    bool
}

// counted are the records of whole batches below an offset that are of no open
// or aborted transaction, in the order of offsets.
func counted(batches []recordbatch.Batch, below cluster.Offset) []decidedRecord {
	var all []decidedRecord
	var d recordbatch.Decoder
	for _, b := range batches {
		if b.NextOffset() > below {
			break
		}
		m, ends, _ := b.Marker()
		if ends {
			kept := all[:0]
			for _, r := range all {
				if r.open && r.producer == b.ProducerID() {
					r.open = false
					if m.Type == recordbatch.ControlAbort {
						continue
					}
				}
				kept = append(kept, r)
			}
			all = kept
			continue
		}
		for r, err := range d.Records(b) {
			if err != nil {
				panic(err)
			}
			all = append(all, decidedRecord{r.Offset, b.ProducerID(), b.IsTransactional(), string(r.Key), string(r.Value), r.Value == nil})
		}
	}
	return slices.DeleteFunc(all, func(r decidedRecord) bool { return r.open })
}

// wholeBelow is where the whole batches below an offset end.
func (l *fakeLog) wholeBelow(o cluster.Offset) cluster.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.start
	for _, b := range l.batches {
		if b.NextOffset() <= o {
			end = b.NextOffset()
		}
	}
	return end
}

// between returns the whole batches from an offset to the high watermark.
func (l *fakeLog) between(from cluster.Offset) []recordbatch.Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []recordbatch.Batch
	for _, b := range l.batches {
		if b.BaseOffset() >= from && b.NextOffset() <= l.mark {
			out = append(out, b)
		}
	}
	return out
}

var errRefused = errors.New("refused by the test")

func plainBatch(pairs ...string) recordbatch.Batch {
	return batchOf(recordbatch.Options{}, pairs...)
}

func openBatch(producer cluster.ProducerID, pairs ...string) recordbatch.Batch {
	return batchOf(recordbatch.Options{
		Transactional: true, Producer: &recordbatch.Producer{ID: producer, BaseSequence: recordbatch.NoSequence},
	}, pairs...)
}

// batchOf makes a batch of keys and values; "-" is a tombstone.
func batchOf(o recordbatch.Options, pairs ...string) recordbatch.Batch {
	b := recordbatch.NewBuilder(o)
	for i := 0; i < len(pairs); i += 2 {
		value := []byte(pairs[i+1])
		if pairs[i+1] == "-" {
			value = nil
		}
		b.Add(1, []byte(pairs[i]), value)
	}
	return b.Build()
}

func markerBatch(producer cluster.ProducerID, commit bool) recordbatch.Batch {
	m := recordbatch.Marker{Type: recordbatch.ControlAbort}
	if commit {
		m.Type = recordbatch.ControlCommit
	}
	return recordbatch.NewMarkerBatch(recordbatch.Options{Producer: &recordbatch.Producer{ID: producer}}, 1, m)
}
