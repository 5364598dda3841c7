package locallog

import (
	"errors"
	"fmt"
	"os"
	"path"

	"strandline/broker/producerstate"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
)

// load opens the segments, and recovers those that need it: after an unclean
// stop the ones that reach past the recovery point, else only those whose
// indexes do not fit.
func (l *Log) load(bases []cluster.Offset) (err error) {
	var row []*segment.Segment
	defer func() {
		if err != nil {
			for _, s := range row {
				s.Close()
			}
		}
	}()
	l.settleEpochs(bases)
	recovered := false
	for i := 0; i < len(bases); i++ {
		s, err := l.openOne(bases, i)
		if err == nil {
			row = append(row, s)
			l.scanning = false
			if i+1 < len(bases) {
				l.noteMissing(s.DataEnd(), bases[i+1])
			}
			if err := l.readEpochsIfLost(s); err != nil {
				return err
			}
			continue
		}
		if !errors.Is(err, segment.ErrNeedsRecovery) {
			return err
		}
		if !errors.Is(err, errUnclean) {
			l.logger().Warn("segment is recovered", "base", bases[i], "error", err)
		}
		s, last, err := l.recoverOne(bases, i, row)
		if err != nil {
			return err
		}
		row = append(row, s)
		recovered = true
		if last {
			bases = bases[:i+1]
		}
		l.hook(StepRecovery)
	}
	if err := l.correctEpochs(row); err != nil {
		return err
	}
	if end := row[len(row)-1].Next(); l.producers == nil || l.producersEnd != end {
		if l.producers, l.loadedSnapshot, err = l.producersFrom(end, row); err != nil {
			return err
		}
	}
	l.publish(row)
	// The names are durable before anything that the first sync flushes; it makes
	// sure of those that the stop found half way, too.
	l.mu.folderBehind = recovered || !l.config.CleanStop
	return nil
}

// errUnclean is why a segment is recovered where nothing else is known against it.
var errUnclean = fmt.Errorf("%w: unclean stop", segment.ErrNeedsRecovery)

// settleEpochs cuts the epochs to where the first scan starts, which enters the
// rest again.
func (l *Log) settleEpochs(bases []cluster.Offset) {
	if l.config.CleanStop {
		return
	}
	from := bases[0]
	if l.mu.epochs.Len() > 0 {
		for i := range bases {
			if l.mustScan(bases, i) {
				from = bases[i]
				break
			}
		}
	}
	l.mu.epochsDirty = l.mu.epochs.TruncateFromEnd(from) || l.mu.epochsDirty
	l.lastEpoch = latestOf(&l.mu.epochs)
}

// mustScan says whether the unclean stop may have torn bases[i]: its data, where
// it reaches past the recovery point, or its indexes, where it ends there and
// nothing tells that they were synced (L7).
func (l *Log) mustScan(bases []cluster.Offset, i int) bool {
	if l.config.CleanStop {
		return false
	}
	if i+1 == len(bases) || bases[i+1] > l.durableBelow() {
		return true
	}
	return bases[i+1] == l.durableBelow() && !l.hasSnapshot(bases[i+1])
}

func (l *Log) openOne(bases []cluster.Offset, i int) (*segment.Segment, error) {
	interval := l.settings.Load().IndexIntervalBytes
	if l.mustScan(bases, i) {
		return nil, errUnclean
	}
	if i+1 == len(bases) {
		return segment.OpenActive(l.where, bases[i], interval)
	}
	return segment.OpenSealed(l.where, bases[i], bases[i+1], interval)
}

// recoverOne recovers bases[i], with what comes before it in row. last says that
// the log ends with it and that the segments after it were removed: the stop tore
// it off before them.
func (l *Log) recoverOne(bases []cluster.Offset, i int, row []*segment.Segment) (_ *segment.Segment, last bool, err error) {
	base := bases[i]
	if l.producers == nil || l.producersEnd != base {
		if l.producers, err = l.producersAt(base, row); err != nil {
			return nil, false, err
		}
	}
	if err = l.scanAfter(row); err != nil {
		return nil, false, err
	}
	last = i+1 == len(bases)
	next, durable := cluster.NoOffset, l.durableBelow()
	if !last {
		if next = bases[i+1]; next <= l.durableBelow() || l.config.CleanStop {
			durable = next
		}
	}
	s, r, err := segment.Recover(l.where, base, segment.RecoverOptions{
		IntervalBytes: l.settings.Load().IndexIntervalBytes, DurableBelow: durable, Rewrite: l.config.Rewrite, Unsynced: l.mayDefer(next, last), Visit: l.visitor(l.producers, l.scannedEpoch),
	})
	if err != nil {
		return nil, false, err
	}
	l.producersEnd = r.Next
	if !r.Synced && l.unsyncedFrom == cluster.NoOffset {
		l.unsyncedFrom = base
	}
	if r.CutBytes > 0 {
		l.logger().Warn("log is cut at the first bad batch", "base", base, "end", r.Next, "bytes", r.CutBytes, "error", r.Cause)
	}
	switch {
	case last:
		return s, true, nil
	case r.Next > next:
		s.Close()
		return nil, false, &segment.CorruptError{
			File: s.LogName(), Position: s.Bytes(),
			Cause: fmt.Errorf("offsets up to %d, the next segment starts at %d: %w", r.Next-1, next, segment.ErrUnordered),
		}
	case r.Next < next && durable < next:
		return s, true, l.tearOff(bases[i+1:], r.Next)
	}
	l.noteMissing(r.Next, next)
	if err := l.sealRecovered(s, next, r.Synced); err != nil {
		s.Close()
		return nil, false, err
	}
	return s, false, nil
}

// mayDefer says whether what a recovered segment holds may wait for the next
// sync: it lies past the recovery point, and few enough wait already.
func (l *Log) mayDefer(next cluster.Offset, last bool) bool {
	return last || next > l.durableBelow() && len(l.mu.unsynced) < unsyncedMax
}

// sealRecovered seals a segment that another one follows. Where it is durable so
// is, at once, the snapshot between them; else both wait for the next sync.
func (l *Log) sealRecovered(s *segment.Segment, next cluster.Offset, synced bool) error {
	if err := s.Seal(next); err != nil {
		return err
	}
	s.Synced() // a sync opens the file again: with many logs they would be too many
	l.producersEnd = next
	if synced {
		return l.writeSnapshot(next, l.producers.Snapshot())
	}
	l.mu.unsynced = append(l.mu.unsynced, unsynced{s, l.producers.Snapshot()})
	return nil
}

// tearOff removes segments that follow a torn end, from the last.
func (l *Log) tearOff(bases []cluster.Offset, end cluster.Offset) error {
	l.logger().Warn("segments after the torn end are removed", "end", end, "segments", len(bases), "first", bases[0])
	for i := len(bases) - 1; i >= 0; i-- {
		// The log goes first: an index alone is a leftover that Open removes.
		for _, suffix := range []string{segment.LogSuffix, segment.IndexSuffix, segment.TimeIndexSuffix, segment.TxnIndexSuffix} {
			err := l.config.FS.Remove(path.Join(l.config.Dir, segment.Name(bases[i], suffix)))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return l.config.FS.SyncDir(l.config.Dir)
}

// visitor updates the producer state and tells epochs about each batch of a
// scan. An epoch that falls is a remnant of a history that was truncated, which
// a torn write has brought back.
func (l *Log) visitor(m *producerstate.Manager, epoch func(e cluster.LeaderEpoch, start cluster.Offset) error) func(segment.Located) (*producerstate.AbortedTxn, error) {
	now := l.now()
	return func(b segment.Located) (*producerstate.AbortedTxn, error) {
		if err := epoch(b.Batch.PartitionLeaderEpoch(), b.Batch.BaseOffset()); err != nil {
			return nil, err
		}
		ended, ok, err := m.Update(b.Batch, now)
		if err != nil {
			l.logger().Warn("control batch is not understood", "offset", b.Batch.BaseOffset(), "error", err)
		}
		if !ok || !ended.Aborted {
			return nil, nil
		}
		txn := ended.AbortedTxn()
		return &txn, nil
	}
}

// scanAfter tells a scan that comes next which epoch the last batch in row has: by
// its header, since the file is a cache that may be wrong.
func (l *Log) scanAfter(row []*segment.Segment) error {
	if l.scanning {
		return nil
	}
	l.scanning, l.scanEpoch = true, cluster.NoLeaderEpoch
	if len(row) == 0 {
		return nil
	}
	before := row[len(row)-1]
	h, ok, err := before.FindBatch(before.DataEnd() - 1)
	if err != nil || !ok {
		if errors.As(err, new(*segment.CorruptError)) {
			return nil // its readers are told
		}
		return err
	}
	l.scanEpoch = h.LeaderEpoch
	l.compareEpoch(h.LeaderEpoch, h.Base)
	return nil
}

// compareEpoch compares a batch's epoch with the list's, which begins at the log
// start and knows nothing of what a segment still holds below it.
func (l *Log) compareEpoch(e cluster.LeaderEpoch, start cluster.Offset) {
	if known, ok := l.mu.epochs.EpochAt(start); ok && known != e && e != cluster.NoLeaderEpoch {
		l.epochsLie = true
	}
}

// scannedEpoch enters the epoch of a batch that a scan of the log comes to.
func (l *Log) scannedEpoch(e cluster.LeaderEpoch, start cluster.Offset) error {
	if e == cluster.NoLeaderEpoch {
		return nil
	}
	if e < l.scanEpoch {
		return fmt.Errorf("leader epoch %d after %d: %w", e, l.scanEpoch, segment.ErrUnordered)
	}
	l.scanEpoch = e
	if latest, ok := l.mu.epochs.Latest(); ok && (e <= latest.Epoch || start < latest.Start) {
		l.compareEpoch(e, start) // an old segment, recovered for its indexes alone
		return nil
	}
	l.mu.epochs.Assign(e, start)
	l.mu.epochsDirty = true
	l.lastEpoch = e
	return nil
}

// correctEpochs makes the epochs anew from the batch headers where a scan found
// others than the file tells. Those below the first segment are kept where they do
// not contradict it: nothing else here knows of them.
func (l *Log) correctEpochs(row []*segment.Segment) error {
	if !l.epochsLie {
		return nil
	}
	l.logger().Warn("leader epochs contradict the log's batches and are read from those again")
	l.mu.epochs.TruncateFromEnd(row[0].Base())
	l.lastEpoch = latestOf(&l.mu.epochs)
	l.mu.epochsDirty, l.epochsLost = true, true
	latest := cluster.NoLeaderEpoch // the first one may contradict what is kept
	for _, s := range row {
		err := s.Headers(s.Base(), func(h segment.Header) bool {
			if h.LeaderEpoch > latest {
				l.mu.epochs.Assign(h.LeaderEpoch, h.Base)
				latest = h.LeaderEpoch
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	l.lastEpoch = latestOf(&l.mu.epochs)
	return nil
}

// readEpochsIfLost fills the epochs from batch headers, where the file is lost.
func (l *Log) readEpochsIfLost(s *segment.Segment) error {
	if !l.epochsLost {
		return nil
	}
	return s.Headers(s.Base(), func(h segment.Header) bool {
		if h.LeaderEpoch > l.lastEpoch {
			l.mu.epochs.Assign(h.LeaderEpoch, h.Base)
			l.lastEpoch = h.LeaderEpoch
		}
		return true
	})
}
