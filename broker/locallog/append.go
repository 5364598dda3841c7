package locallog

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"strandline/broker/recordbatch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// unsyncedMax bounds the sealed segments whose sync nobody has asked for; the
// roll that would exceed it syncs them itself.
const unsyncedMax = 8

// AppendInfo describes an append.
type AppendInfo struct {
	// First and Last are the offsets of the first and last record.
	First, Last cluster.Offset
	// MaxTimestamp is the greatest batch timestamp, OffsetOfMax the last offset
	// of the batch that has it.
	MaxTimestamp int64
	OffsetOfMax  cluster.Offset
	// LeaderEpoch is the last batch's.
	LeaderEpoch cluster.LeaderEpoch
	// Batches is how many there were.
	Batches int
	// Rolled says that the append began a new segment: a sealed one may wait for
	// a Flush and for the archive.
	Rolled bool
}

// Append writes whole v2 batches whose offsets and leader epochs are assigned,
// in one write; it rolls first where needed. It enters new leader epochs in the
// epoch list and updates the producer state itself (the caller only checks). The
// batches are not kept. On ErrNoSpace and ErrBadAppend the log is unchanged.
func (l *Log) Append(batches []byte) (AppendInfo, error) {
	if err := l.usable(); err != nil {
		return AppendInfo{}, err
	}
	info, err := l.inspect(batches)
	if err != nil {
		return info, err
	}
	settings := l.settings.Load()
	active := l.active()
	if l.mustRoll(active, info, len(batches), settings) {
		base := l.EndOffset()
		if info.Last-base > math.MaxInt32 {
			base = info.First
		}
		if err := l.roll(base); err != nil {
			return info, err
		}
		info.Rolled = true
		active = l.active()
	}
	if err := active.WriteIndexes(false); err != nil {
		return info, l.refused("write index", err)
	}
	if err := active.Write(batches); err != nil {
		return info, l.writeFailed(active, err)
	}
	l.hook(StepAppend)
	now := l.now()
	active.Commit(batches, settings.IndexIntervalBytes, now, l.recent.add(len(batches)))
	l.follow(active, batches, now)
	l.appended(info.Last+1, now)
	return info, nil
}

// inspect walks over the batches and checks that they continue the log (L1).
func (l *Log) inspect(batches []byte) (AppendInfo, error) {
	next := l.EndOffset()
	info := AppendInfo{First: next, MaxTimestamp: recordbatch.NoTimestamp}
	if len(batches) == 0 {
		return info, fmt.Errorf("%w: nothing to append", ErrBadAppend)
	}
	for rest := batches; len(rest) > 0; {
		var b recordbatch.Batch
		var err error
		if b, rest, err = recordbatch.First(rest); err != nil {
			return info, fmt.Errorf("%w: %w", ErrBadAppend, err)
		}
		if b.BaseOffset() < next || b.NextOffset() <= b.BaseOffset() {
			return info, fmt.Errorf("%w: offsets %d to %d at end offset %d", ErrBadAppend, b.BaseOffset(), b.LastOffset(), next)
		}
		if e := b.PartitionLeaderEpoch(); e != cluster.NoLeaderEpoch && e < max(l.lastEpoch, info.LeaderEpoch) {
			return info, fmt.Errorf("%w: leader epoch %d after %d", ErrBadAppend, e, max(l.lastEpoch, info.LeaderEpoch))
		}
		if info.Batches == 0 {
			info.First = b.BaseOffset()
		}
		next = b.NextOffset()
		info.Batches++
		info.Last, info.LeaderEpoch = b.LastOffset(), b.PartitionLeaderEpoch()
		if ts := b.MaxTimestamp(); ts > info.MaxTimestamp {
			info.MaxTimestamp, info.OffsetOfMax = ts, b.LastOffset()
		}
	}
	if info.Last-info.First > math.MaxInt32 || len(batches) > math.MaxInt32 {
		return info, fmt.Errorf("%w: offsets %d to %d and %d bytes fit no segment", ErrBadAppend, info.First, info.Last, len(batches))
	}
	return info, nil
}

// mustRoll decides as Kafka does: by size, by the age that the new timestamps
// give the segment, by room in the indexes.
func (l *Log) mustRoll(active *segment.Segment, info AppendInfo, bytes int, s *Settings) bool {
	if !active.Fits(bytes, info.Last) {
		return true
	}
	now := active.Info()
	if now.Bytes == 0 {
		return false
	}
	if now.Bytes+int64(bytes) > s.SegmentBytes || active.IndexFull(s.IndexBytes) {
		return true
	}
	age := l.now().Sub(now.Created)
	if now.FirstTimestamp >= 0 && info.MaxTimestamp >= 0 {
		age = millis(info.MaxTimestamp - now.FirstTimestamp)
	}
	return s.SegmentAge > 0 && age > s.SegmentAge-l.jitter
}

// millis is a difference of timestamps as a duration, which has less room.
func millis(ms int64) time.Duration {
	return time.Duration(min(max(ms, math.MinInt64/int64(time.Millisecond)), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// refused is the error of a write besides the batches' own: the log is as it
// was, and goes on where only room or a file descriptor was missing.
func (l *Log) refused(doing string, err error) error {
	switch {
	case noSpace(err):
		return fmt.Errorf("%w: %s: %w", ErrNoSpace, doing, err)
	case disk.NoDescriptor(err):
		return fmt.Errorf("%w: %s: %w", ErrNoDescriptor, doing, err)
	}
	return l.fail(doing, err)
}

// writeFailed cuts off what the write may have left. Where that works and only
// room was missing the log goes on; all else takes it offline, since nobody
// knows what the file holds.
func (l *Log) writeFailed(active *segment.Segment, err error) error {
	if cut := active.Restore(); cut != nil {
		return l.fail("append", errors.Join(err, cut))
	}
	return l.refused("append", err)
}

// follow updates what derives from the batches: epochs, producers, transactions.
func (l *Log) follow(active *segment.Segment, batches []byte, now time.Time) {
	for rest := batches; len(rest) > 0; {
		var b recordbatch.Batch
		b, rest, _ = recordbatch.First(rest)
		if e := b.PartitionLeaderEpoch(); e > l.lastEpoch {
			l.enterEpoch(e, b.BaseOffset())
		}
		ended, ok, err := l.producers.Update(b, now)
		if err != nil {
			l.logger().Warn("control batch is not understood", "offset", b.BaseOffset(), "error", err)
		}
		if ok && ended.Aborted {
			active.AddAborted(ended.AbortedTxn())
		}
	}
}

// appended moves the end offset: from here on others see the batches.
func (l *Log) appended(end cluster.Offset, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end.Store(int64(end))
	if l.mu.unflushedSince.IsZero() {
		l.mu.unflushedSince = now
	}
}

// Roll seals the active segment and begins the next, unless the active one is
// empty. It syncs no data: Flush does, with what was sealed.
func (l *Log) Roll() (bool, error) {
	if err := l.usable(); err != nil {
		return false, err
	}
	if l.active().Bytes() == 0 {
		return false, nil
	}
	return true, l.roll(l.EndOffset())
}

// RollIfDue rolls where the active segment has been open for SegmentAge by the
// clock, idle or not.
func (l *Log) RollIfDue(now time.Time) (bool, error) {
	if err := l.usable(); err != nil {
		return false, err
	}
	s := l.settings.Load()
	created, written := l.active().Created()
	if !written || s.SegmentAge <= 0 || now.Sub(created) <= s.SegmentAge-l.jitter {
		return false, nil
	}
	return l.Roll()
}

// roll begins a segment at base. The new files' names are durable before
// anything is appended to them; an empty active segment leaves no trace.
func (l *Log) roll(base cluster.Offset) error {
	s := l.segments.Load()
	old := s.active()
	if err := l.syncIfMany(); err != nil {
		return err
	}
	if err := old.Finish(); err != nil {
		return l.refused("roll: write indexes", err)
	}
	fresh, err := segment.Create(l.where, base, l.now())
	if err != nil {
		return l.refused("roll: create segment", err)
	}
	if err := l.config.FS.SyncDir(l.config.Dir); err != nil {
		if disk.NoDescriptor(err) {
			return errors.Join(l.refused("roll: sync folder", err), l.removeFiles(fresh, time.Time{}))
		}
		return l.fail("roll: sync folder", err)
	}
	l.hook(StepRoll)
	row := append([]*segment.Segment(nil), s.row...)
	if old.Bytes() == 0 {
		row = row[:len(row)-1]
		if err := l.removeFiles(old, time.Time{}); err != nil {
			return err
		}
	} else if err := old.Seal(base); err != nil {
		return l.fail("roll: seal", err)
	}
	if old.Bytes() > 0 {
		snapshot := l.producers.Snapshot()
		l.mu.Lock()
		l.mu.unsynced = append(l.mu.unsynced, unsynced{old, snapshot})
		l.mu.Unlock()
	}
	l.publish(append(row, fresh))
	l.drawJitter()
	return nil
}

func (l *Log) drawJitter() {
	l.jitter = 0
	if j := l.settings.Load().SegmentJitter; j > 0 {
		l.jitter = rand.N(j)
	}
}
