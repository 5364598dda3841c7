package locallog

import (
	"errors"
	"fmt"

	"strandline/metadata/cluster"
)

// ErrOvertaken: what a copy would go on with is not in this log any more. The
// copy begins again.
var ErrOvertaken = errors.New("the log went past its copy")

// SourceError is an error of the log that is read, where a copy fails; any other
// is one of the log that is written.
type SourceError struct{ Err error }

func (e *SourceError) Error() string { return "read what is to be copied: " + e.Err.Error() }
func (e *SourceError) Unwrap() error { return e.Err }

// BeginCopy makes dst an empty log that can take what this one holds locally,
// with the epochs and the producer state of that offset.
func (l *Log) BeginCopy(dst *Log) error {
	s := l.segments.Load()
	base := s.row[s.at(l.StartOffset())].Base() // what lies before is only not removed yet
	producers, err := l.producersAt(base, nil)
	if err != nil {
		return &SourceError{err}
	}
	epochs := l.Epochs()
	epochs.TruncateFromEnd(base)
	return dst.Reset(base, epochs.Entries(), producers.Snapshot())
}

// CopyOn appends the next batches to dst, about maxBytes, and returns how many
// bytes; 0 where dst has everything. dst seals its segments where this log did.
// It fails with ErrOvertaken where this log does not reach dst's end any more.
func (l *Log) CopyOn(dst *Log, maxBytes int) (int64, error) {
	from := dst.EndOffset()
	if from == l.EndOffset() {
		return 0, nil
	}
	if from < l.segments.Load().first().Base() || from > l.EndOffset() {
		return 0, ErrOvertaken
	}
	row := l.segments.Load()
	at := max(from, l.StartOffset())
	if row.row[row.at(at)].Base() > from { // all up to there was deleted
		return 0, ErrOvertaken
	}
	slice, begins, err := l.readOne(row, at, maxBytes)
	if errors.Is(err, ErrNotLocal) || errors.Is(err, ErrOffsetOutOfRange) {
		return 0, ErrOvertaken
	}
	if err != nil {
		return 0, &SourceError{err}
	}
	defer slice.Release()
	if begins {
		if _, err := dst.Roll(); err != nil {
			return 0, err
		}
	}
	for _, r := range slice.Regions {
		batches := make([]byte, r.Bytes)
		if _, err := r.ReadAt(batches, 0); err != nil {
			return 0, &SourceError{err}
		}
		if _, err := dst.Append(batches); err != nil {
			return 0, err
		}
	}
	if slice.Bytes == 0 { // the log ends in a hole
		return 0, ErrOvertaken
	}
	return slice.Bytes, nil
}

// readOne reads from the first segment with a batch that reaches past at, and
// says whether what it read begins one.
func (l *Log) readOne(row *segments, at cluster.Offset, maxBytes int) (slice Slice, begins bool, err error) {
	for _, seg := range row.row[row.at(at):] {
		begins = begins || seg.Base() == at
		if slice, err = l.Read(at, min(seg.Next(), l.EndOffset()), maxBytes, true); err != nil || slice.Bytes > 0 {
			return slice, begins, err
		}
		at, begins = seg.Next(), true
	}
	return slice, begins, nil
}

// EndCopy makes dst, which CopyOn has brought to the end, this log's equal in
// what does not follow from the batches, and closes it, durably. Nothing may be
// appended to this log meanwhile.
func (l *Log) EndCopy(dst *Log) error {
	end := l.EndOffset()
	if dst.EndOffset() != end {
		return fmt.Errorf("%w: at %d of %d", ErrOvertaken, dst.EndOffset(), end)
	}
	if err := dst.producers.Load(l.producers.Snapshot(), end, l.now()); err != nil {
		return &SourceError{err}
	}
	dst.SetStartOffset(l.StartOffset())
	epochs := l.Epochs()
	dst.mu.Lock()
	dst.mu.epochs, dst.mu.epochsDirty = *epochs, true
	dst.lastEpoch = latestOf(epochs)
	dst.mu.Unlock()
	l.mu.Lock()
	compacted := l.mu.compaction
	l.mu.Unlock()
	if err := dst.noteCompaction(func(c *compaction) { *c = compacted }); err != nil {
		return err
	}
	return dst.Close(true)
}
