package segment

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// ErrNeedsRecovery: an index is missing, short or inconsistent with the log. It
// is wrapped with what is wrong; Recover makes it good.
var ErrNeedsRecovery = errors.New("segment needs recovery")

func needsRecovery(name, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrNeedsRecovery, name, fmt.Sprintf(format, args...))
}

// indexFile is what can be told of an index without reading it.
type indexFile struct {
	count int
	last  [TimeEntryBytes]byte
}

func readIndexEnd(fs disk.FS, name string, width int) (x indexFile, err error) {
	f, err := fs.OpenReadOnly(name)
	if errors.Is(err, os.ErrNotExist) {
		return x, needsRecovery(name, "missing")
	}
	if err != nil {
		return x, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return x, err
	}
	if size%int64(width) != 0 {
		return x, needsRecovery(name, "%d bytes are no whole number of entries", size)
	}
	x.count = int(size / int64(width))
	if x.count > 0 {
		err = readFull(f, x.last[:width], size-int64(width))
	}
	return x, err
}

// shortIndexBytes is how much log after its last entry makes an index suspicious,
// besides the interval: batches of that size get an entry each.
const shortIndexBytes = 64 << 10

// checkIndexes fills the counts and the maximum from the ends of the indexes, or
// returns ErrNeedsRecovery.
func (s *Segment) checkIndexes(st *state, intervalBytes int) (OffsetEntry, error) {
	last := OffsetEntry{Offset: s.base}
	x, err := readIndexEnd(s.where.FS, s.indexName, OffsetEntryBytes)
	if err != nil {
		return last, err
	}
	if st.indexCount = x.count; x.count > 0 {
		last = decodeOffsetEntry(x.last[:], s.base)
		if last.Offset < s.base || last.Position < 0 || last.Position >= st.bytes || last.Position == 0 && x.count > 1 {
			return last, needsRecovery(s.indexName, "last entry (%d, %d) with %d bytes of log: %v", last.Offset, last.Position, st.bytes, ErrPastLog)
		}
	}
	t, err := readIndexEnd(s.where.FS, s.timeName, TimeEntryBytes)
	if err != nil {
		return last, err
	}
	if st.timeCount = t.count; t.count > 0 {
		e := decodeTimeEntry(t.last[:], s.base)
		if e.Offset < s.base || e.Timestamp < 0 || st.bytes == 0 || t.count > 1 && allZero(t.last[:]) {
			return last, needsRecovery(s.timeName, "last entry (%d, %d)", e.Timestamp, e.Offset)
		}
		st.maxTimestamp, st.offsetOfMaxTimestamp = e.Timestamp, e.Offset
	} else if st.bytes > 0 && (st.sealed || st.indexCount > 0) {
		return last, needsRecovery(s.timeName, "no entry for %d bytes of log", st.bytes)
	}
	if st.txnCount, err = s.txnIndexCount(); err != nil {
		return last, err
	}
	if after := st.bytes - last.Position; after > 16*int64(intervalBytes)+shortIndexBytes {
		return last, s.checkTail(last, *st, 16*int64(intervalBytes)+shortIndexBytes)
	}
	return last, nil
}

func (s *Segment) txnIndexCount() (int, error) {
	info, err := s.where.FS.Stat(s.txnName)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err == nil && info.Bytes%TxnEntryBytes != 0 {
		err = needsRecovery(s.txnName, "%d bytes are no whole number of entries", info.Bytes)
	}
	return int(info.Bytes / TxnEntryBytes), err
}

// checkTail looks whether the log after the last index entry is one large batch
// or many that should have had entries.
func (s *Segment) checkTail(last OffsetEntry, st state, mostBytes int64) error {
	f, err := s.where.FS.OpenReadOnly(s.logName)
	if err != nil {
		return err
	}
	w := headerWalk{src: f, name: s.logName, pos: last.Position, limit: st.bytes, from: s.base}
	defer w.close()
	if w.next() && st.bytes-w.h.End() > mostBytes {
		// The batch after the first is entitled to an entry only past the interval.
		if w.next() && st.bytes-w.h.End() > mostBytes {
			err = needsRecovery(s.indexName, "no entry for the last %d bytes of log", st.bytes-last.Position)
		}
	}
	if w.err != nil {
		err = s.walkError(w.err)
	}
	return errors.Join(err, f.Close())
}

// OpenSealed opens a segment that is followed by one with the base next. It
// reads the ends of the indexes, and of the log the headers after the last entry.
// It returns ErrNeedsRecovery where those do not fit: where the file ends within
// a batch, too.
func OpenSealed(w Where, base, next cluster.Offset, intervalBytes int) (*Segment, error) {
	s := newSegment(w, base)
	info, err := w.FS.Stat(s.logName)
	if err != nil {
		return nil, err
	}
	st := s.mu.state
	st.sealed, st.bytes, st.next = true, info.Bytes, next
	st.created, st.modified = info.Modified, info.Modified
	last, err := s.checkIndexes(&st, intervalBytes)
	if err != nil {
		return nil, err
	}
	if last.Offset >= next && st.indexCount > 0 {
		return nil, needsRecovery(s.indexName, "last entry (%d, %d), the next segment starts at %d", last.Offset, last.Position, next)
	}
	if st.offsetOfMaxTimestamp >= next && st.timeCount > 0 {
		return nil, needsRecovery(s.timeName, "last entry at offset %d, the next segment starts at %d", st.offsetOfMaxTimestamp, next)
	}
	if st.dataEnd, err = s.sealedEnd(last, st); err != nil {
		return nil, err
	}
	if st.dataEnd > next {
		return nil, needsRecovery(s.logName, "offsets up to %d, the next segment starts at %d", st.dataEnd-1, next)
	}
	s.mu.state = st
	return s, nil
}

// sealedEnd walks from the last index entry to the end of the file and returns
// one past its last offset.
func (s *Segment) sealedEnd(last OffsetEntry, st state) (cluster.Offset, error) {
	if st.bytes == 0 {
		return s.base, nil
	}
	f, err := s.where.FS.OpenReadOnly(s.logName)
	if err != nil {
		return 0, err
	}
	w := headerWalk{src: f, name: s.logName, pos: last.Position, limit: st.bytes, from: s.base}
	defer w.close()
	for w.next() {
		if w.h.Position == last.Position && st.indexCount > 0 && w.h.Next-1 != last.Offset {
			err = needsRecovery(s.indexName, "last entry (%d, %d) where a batch ends at offset %d", last.Offset, last.Position, w.h.Next-1)
			break
		}
	}
	if w.err != nil {
		err = s.walkError(w.err)
	}
	return w.h.Next, errors.Join(err, f.Close())
}

// DataEnd is one past the last offset in the file of a segment that OpenSealed
// opened: less than Next where batches are missing.
func (s *Segment) DataEnd() cluster.Offset { return s.state().dataEnd }

// OpenActive opens the last segment of a log, to be written, after a clean stop:
// it reads the indexes, and of the log the headers after the last entry. It
// returns ErrNeedsRecovery where those do not fit.
func OpenActive(w Where, base cluster.Offset, intervalBytes int) (_ *Segment, err error) {
	s := newSegment(w, base)
	f, err := w.FS.Open(s.logName)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	info, err := w.FS.Stat(s.logName)
	if err != nil {
		return nil, err
	}
	st := s.mu.state
	st.bytes = info.Bytes
	st.created, st.modified = info.Modified, info.Modified
	last, err := s.checkIndexes(&st, intervalBytes)
	if err != nil {
		return nil, err
	}
	if err := s.loadImages(&st); err != nil {
		return nil, err
	}
	if err := s.walkTail(f, &st, last, intervalBytes); err != nil {
		return nil, err
	}
	st.handle = disk.NewHandle(f, nil)
	s.mu.state = st
	return s, nil
}

// loadImages reads the indexes whole.
func (s *Segment) loadImages(st *state) error {
	var err error
	if st.index, err = disk.ReadFile(s.where.FS, s.indexName); err != nil {
		return err
	}
	if _, err := ParseOffsetIndex(st.index, s.base, s.indexName); err != nil {
		return needsRecovery(s.indexName, "%v", err)
	}
	if st.timeIndex, err = disk.ReadFile(s.where.FS, s.timeName); err != nil {
		return err
	}
	if _, err := ParseTimeIndex(st.timeIndex, s.base, s.timeName); err != nil {
		return needsRecovery(s.timeName, "%v", err)
	}
	s.indexWritten, s.timeWritten = len(st.index), len(st.timeIndex)
	if st.txnCount == 0 {
		return nil
	}
	data, err := disk.ReadFile(s.where.FS, s.txnName)
	if err != nil {
		return err
	}
	if st.txns, err = ParseTxnIndex(data, s.txnName); err != nil {
		return needsRecovery(s.txnName, "%v", err)
	}
	s.txnWritten = len(data)
	return nil
}

// walkTail takes in the batches from the last index entry to the end.
func (s *Segment) walkTail(f disk.File, st *state, last OffsetEntry, intervalBytes int) error {
	bytes := st.bytes
	if bytes == 0 {
		return nil
	}
	first := headerWalk{src: f, name: s.logName, limit: bytes, from: s.base}
	defer first.close()
	if !first.next() {
		return s.walkError(first.err)
	}
	st.datedBy(first.h.MaxTimestamp)
	w := headerWalk{src: f, name: s.logName, pos: last.Position, limit: bytes, from: s.base}
	defer w.close()
	for w.next() {
		if w.h.Position == last.Position && st.indexCount > 0 && w.h.Next-1 != last.Offset {
			return needsRecovery(s.indexName, "last entry (%d, %d) where a batch ends at offset %d", last.Offset, last.Position, w.h.Next-1)
		}
		s.take(st, w.h, intervalBytes)
	}
	return s.walkError(w.err)
}

// datedBy takes the first batch's timestamp for the segment's age, where it is one
// before that of the file.
func (st *state) datedBy(firstTimestamp int64) {
	st.firstTimestamp = firstTimestamp
	if t := time.UnixMilli(firstTimestamp); firstTimestamp > 0 && t.Before(st.created) {
		st.created = t
	}
}

// walkError is what the end of a walk over the log means for opening it.
func (s *Segment) walkError(err error) error {
	if errors.As(err, new(*CorruptError)) {
		return needsRecovery(s.logName, "%v", err)
	}
	return err
}

// RecoverOptions say what Recover may do.
type RecoverOptions struct {
	// Rewrite writes what was read once more before it is synced: after a failed
	// sync the system may take what never reached the disk for written.
	Rewrite bool
	// Unsynced leaves it to a later sync to make what was read, and the indexes,
	// durable. Where the file is cut or written over that is done at once.
	Unsynced      bool
	IntervalBytes int
	// DurableBelow: a batch that is bad although it starts below this offset was
	// once durable; its loss is no torn write. Recover then changes nothing and
	// returns the *CorruptError.
	DurableBelow cluster.Offset
	// Visit sees each good batch in order. The transaction that it returns, if
	// any, goes into the transaction index. Its error makes the batch a bad one.
	Visit func(b Located) (*producerstate.AbortedTxn, error)
}

// Recovered says what Recover found.
type Recovered struct {
	Next   cluster.Offset // one past the last good batch
	Synced bool           // all of it is durable
	// CutBytes were cut off because of Cause.
	CutBytes int64
	Cause    error
}

// Recover reads a whole segment, cuts it at the first bad batch, makes its
// indexes what they must be, and all that durable. The segment that it returns is open
// to be written, or sealed. It allocates a bounded buffer, and the indexes.
func Recover(w Where, base cluster.Offset, o RecoverOptions) (_ *Segment, r Recovered, err error) {
	s := newSegment(w, base)
	f, err := w.FS.Open(s.logName)
	if err != nil {
		return nil, r, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	info, err := w.FS.Stat(s.logName)
	if err != nil {
		return nil, r, err
	}
	st := s.mu.state
	st.created, st.modified = info.Modified, info.Modified
	if r.Cause, err = s.scan(f, info.Bytes, &st, o); err != nil {
		return nil, r, err
	}
	r.Next, r.CutBytes = st.next, info.Bytes-st.bytes
	if r.Cause != nil && st.next < o.DurableBelow {
		return nil, r, r.Cause
	}
	if r.CutBytes > 0 {
		if err := f.Truncate(st.bytes); err != nil {
			return nil, r, err
		}
	}
	st.datedBy(st.firstTimestamp)
	r.Synced = !o.Unsynced || o.Rewrite || r.CutBytes > 0
	if err := s.rewriteIndexes(&st, r.Synced); err != nil {
		return nil, r, err
	}
	if o.Rewrite {
		if err := rewrite(f, st.bytes); err != nil {
			return nil, r, err
		}
	}
	if r.Synced {
		if err := f.SyncData(); err != nil {
			return nil, r, err
		}
	}
	st.handle = disk.NewHandle(f, nil)
	s.mu.state = st
	s.abortedKnown.Store(true)
	return s, r, nil
}

// rewrite writes the first bytes of a file over themselves.
func rewrite(f disk.File, bytes int64) error {
	chunk := make([]byte, batchChunkBytes)
	for at := int64(0); at < bytes; at += batchChunkBytes {
		p := chunk[:min(batchChunkBytes, bytes-at)]
		if err := readFull(f, p, at); err != nil {
			return err
		}
		if _, err := f.WriteAt(p, at); err != nil {
			return err
		}
	}
	return nil
}

// scan takes in every good batch; cause is why it stopped before the end.
func (s *Segment) scan(f disk.File, size int64, st *state, o RecoverOptions) (cause, err error) {
	for b, err := range Batches(f, size, 0, s.base, s.logName) {
		var corrupt *CorruptError
		if errors.As(err, &corrupt) {
			return err, nil
		}
		if err != nil {
			return nil, err
		}
		txn, err := o.Visit(b)
		if err != nil {
			return &CorruptError{s.logName, b.Position, err}, nil
		}
		s.take(st, headerOf(b.Batch, b.Position), o.IntervalBytes)
		if txn != nil {
			st.txns = append(st.txns, *txn)
			st.txnCount++
		}
	}
	return nil, nil
}

// rewriteIndexes makes the index files what the images are, with sync durably.
func (s *Segment) rewriteIndexes(st *state, sync bool) error {
	s.addTimeEntry(st)
	s.indexesBehind.Store(!sync)
	if err := s.replace(s.indexName, st.index, sync); err != nil {
		return err
	}
	if err := s.replace(s.timeName, st.timeIndex, sync); err != nil {
		return err
	}
	s.indexWritten, s.timeWritten, s.txnWritten = len(st.index), len(st.timeIndex), len(st.txns)*TxnEntryBytes
	if len(st.txns) == 0 {
		return removeIfThere(s.where.FS, s.txnName)
	}
	return s.replace(s.txnName, encodeTxns(st.txns), sync)
}

// replace writes a file anew unless it is the same already.
func (s *Segment) replace(name string, image []byte, sync bool) error {
	f, err := openOrCreate(s.where.FS, name)
	if err != nil {
		return err
	}
	same, err := holds(f, image)
	if err == nil && !same {
		err = f.Truncate(0)
		if err == nil && len(image) > 0 {
			_, err = f.WriteAt(image, 0)
		}
	}
	if err == nil && sync {
		err = f.SyncData()
	}
	return errors.Join(err, f.Close())
}

// holds tells whether a file's content is the image.
func holds(f disk.File, image []byte) (bool, error) {
	size, err := f.Size()
	if err != nil || size != int64(len(image)) || size == 0 {
		return size == int64(len(image)), err
	}
	content := make([]byte, size)
	if err := readFull(f, content, 0); err != nil {
		return false, err
	}
	return bytes.Equal(content, image), nil
}

// TruncateFiles cuts a segment's files so that the batch at position is gone,
// which is the first one that ends at or above next, and makes that durable. The
// segment is retired, and opened anew after that. Whatever of an index cannot be
// read is cut too: opening finds out whether it is missed.
func (s *Segment) TruncateFiles(position int64, next cluster.Offset) error {
	st := state{maxTimestamp: noTimestamp}
	index, err := s.OffsetIndex()
	for _, e := range index {
		if e.Position < position {
			st.index = AppendOffsetEntry(st.index, s.base, e)
		}
	}
	timeIndex, timeErr := s.TimeIndex()
	for _, e := range timeIndex {
		if e.Offset < next {
			st.timeIndex = AppendTimeEntry(st.timeIndex, s.base, e)
		}
	}
	txns, txnErr := s.Aborted()
	for _, t := range txns {
		if t.Last < next {
			st.txns = append(st.txns, t)
		}
	}
	for _, err := range []error{err, timeErr, txnErr} {
		var corrupt *CorruptError
		if err != nil && !errors.As(err, &corrupt) {
			return err
		}
	}
	s.Retire()
	if err := s.truncateLog(position); err != nil {
		return err
	}
	return s.rewriteIndexes(&st, true)
}

func (s *Segment) truncateLog(position int64) error {
	f, err := s.where.FS.Open(s.logName)
	if err != nil {
		return err
	}
	err = f.Truncate(position)
	if err == nil {
		err = f.SyncData()
	}
	return errors.Join(err, f.Close())
}

// Retire marks a segment that another object of the same files replaces, or
// none: lookups end with ErrRemoved, what was given out stays readable.
func (s *Segment) Retire() {
	s.removed.Store(true)
	s.Close()
}

// Removed says whether the segment was retired or removed.
func (s *Segment) Removed() bool { return s.removed.Load() }
