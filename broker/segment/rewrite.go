package segment

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// rewrites counts the segments that were rewritten, for Segment.version.
var rewrites atomic.Int64

// FileSuffixes are those of a segment's files, the .log file last.
func FileSuffixes() []string {
	return []string{IndexSuffix, TimeIndexSuffix, TxnIndexSuffix, LogSuffix}
}

// CreateCleaned makes the files of a rewrite of a segment, whose names end in
// CleanedSuffix; leftovers under them go. It is written like one that Create
// made, ended by FinishCleaned, and nothing may be looked up in it. Once the
// files have their names, Rewritten is the segment.
func CreateCleaned(w Where, base cluster.Offset, now time.Time) (*Segment, error) {
	s := newSegmentNamed(w, base, CleanedSuffix)
	for _, name := range []string{s.indexName, s.timeName, s.txnName} {
		if err := errors.Join(removeIfThere(w.FS, name), touch(w.FS, name)); err != nil {
			return nil, err
		}
	}
	if err := removeIfThere(w.FS, s.logName); err != nil {
		return nil, err
	}
	f, err := w.FS.Create(s.logName)
	if err != nil {
		return nil, err
	}
	s.mu.handle = disk.NewHandle(f, nil)
	s.mu.created, s.mu.modified = now, now
	return s, nil
}

// FinishCleaned writes the indexes and makes all files' contents durable.
func (s *Segment) FinishCleaned() error {
	if err := s.Finish(); err != nil {
		return err
	}
	if _, err := s.SyncLog(); err != nil {
		return err
	}
	s.indexesBehind.Store(true)
	return s.SyncIndexes()
}

// RemoveCleaned gives up a rewrite and removes its files.
func (s *Segment) RemoveCleaned() error {
	s.Close()
	var errs []error
	for _, name := range []string{s.logName, s.indexName, s.timeName, s.txnName} {
		errs = append(errs, removeIfThere(s.where.FS, name))
	}
	return errors.Join(errs...)
}

// Rewritten is the sealed segment whose files the finished rewrite s has become:
// they have the names of a segment's. It ends at next, and was created and last
// written when what it was made of was. s is closed.
func (s *Segment) Rewritten(next cluster.Offset, created, modified time.Time) *Segment {
	st := s.state()
	s.Close()
	fresh := newSegment(s.where, s.base)
	fresh.version = fmt.Sprintf("#%d", rewrites.Add(1))
	st.handle, st.sealed = nil, true
	st.dataEnd, st.next = st.next, next
	st.created, st.modified = created, modified
	st.index, st.timeIndex, st.txns = nil, nil, nil
	fresh.mu.state = st
	fresh.abortedKnown.Store(true)
	return fresh
}

// CleanedFits says whether another append to a rewrite can be indexed, and is
// within the index size, which bounds each index.
func (s *Segment) CleanedFits(bytes int, last cluster.Offset, indexBytes int) bool {
	return s.Bytes()+int64(bytes) <= math.MaxInt32 && s.Fits(bytes, last) && !s.IndexFull(indexBytes)
}

// RenameFiles gives those of a segment's files that are there another suffix,
// the .log file last.
func RenameFiles(w Where, base cluster.Offset, from, to string) error {
	for _, suffix := range FileSuffixes() {
		name := w.Dir + "/" + Name(base, suffix)
		if err := w.FS.Rename(name+from, name+to); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
