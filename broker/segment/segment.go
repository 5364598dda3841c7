package segment

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// ErrRemoved: the segment's files were removed or are about to be.
var ErrRemoved = errors.New("segment was removed")

// noTimestamp is the maximum timestamp of a segment without batches.
const noTimestamp = recordbatch.NoTimestamp

// indexWriteBytes is how much of an index of the segment being written may be
// in memory only: more than that is written by the next append. It is a cache
// that recovery rebuilds, so it costs a system call in hundreds of appends only.
const indexWriteBytes = 512 * OffsetEntryBytes

// Where are the files of a log.
type Where struct {
	FS  disk.FS
	Dir string
	// Handles keeps the files of sealed segments open.
	Handles *disk.HandleCache
	// Reindexed is told that the indexes of the segment with that base were damaged
	// and made anew. May be nil.
	Reindexed func(base cluster.Offset, cause error)
}

// Segment is a .log file with its indexes. While it is written its indexes are
// in memory and its file stays open; once it is sealed they are read from their
// files, which the handle cache keeps open.
type Segment struct {
	where Where
	base  cluster.Offset

	logName, indexName, timeName, txnName string
	// version tells the handles of a rewritten segment from those of the one whose
	// name it has.
	version string

	removed, closed atomic.Bool
	// reindexed says that a lookup has tried to make the indexes anew.
	reindexed atomic.Bool
	// abortedKnown says that the transaction index came from the batches since the
	// segment was opened, abortedRemade that its file holds another one.
	abortedKnown, abortedRemade atomic.Bool

	// Of the writer alone: how much of the images is in the files, the bytes
	// since the last index entry, and whether the indexes are to be synced.
	indexWritten, timeWritten, txnWritten int
	sinceEntryBytes                       int64
	// indexesBehind says that an index file holds what no sync covers.
	indexesBehind atomic.Bool

	mu struct {
		sync.RWMutex
		state
		hints boundaries
		marks writeMarks
	}
}

// state is what a reader copies under the lock and then works with.
type state struct {
	// handle is the open .log file; nil once sealed and synced.
	handle *disk.Handle
	sealed bool
	bytes  int64
	next   cluster.Offset
	// dataEnd is one past the last offset that OpenSealed found.
	dataEnd cluster.Offset

	maxTimestamp         int64
	offsetOfMaxTimestamp cluster.Offset
	firstTimestamp       int64
	created, modified    time.Time

	// The images of the indexes while not sealed: they only grow, and are
	// replaced as a whole otherwise. Once sealed only their counts, unless the
	// files are damaged and Reindex or SetAborted has made them anew.
	index, timeIndex      []byte
	indexCount, timeCount int
	txns                  []producerstate.AbortedTxn
	txnCount              int
}

func newSegment(w Where, base cluster.Offset) *Segment { return newSegmentNamed(w, base, "") }

// newSegmentNamed is newSegment whose files' names end in a suffix.
func newSegmentNamed(w Where, base cluster.Offset, suffix string) *Segment {
	s := &Segment{
		where: w, base: base,
		logName:   path.Join(w.Dir, Name(base, LogSuffix)+suffix),
		indexName: path.Join(w.Dir, Name(base, IndexSuffix)+suffix),
		timeName:  path.Join(w.Dir, Name(base, TimeIndexSuffix)+suffix),
		txnName:   path.Join(w.Dir, Name(base, TxnIndexSuffix)+suffix),
	}
	s.mu.next = base
	s.mu.maxTimestamp, s.mu.offsetOfMaxTimestamp, s.mu.firstTimestamp = noTimestamp, base, noTimestamp
	return s
}

// Create makes the files of a new segment, to be written. They are durable
// after the folder was synced. What it made it removes again on an error.
func Create(w Where, base cluster.Offset, now time.Time) (*Segment, error) {
	s := newSegment(w, base)
	f, err := w.FS.Create(s.logName)
	if err != nil {
		return nil, err
	}
	made := []string{s.logName}
	for _, name := range []string{s.indexName, s.timeName} {
		// A leftover index without its log is of no use.
		if err = errors.Join(removeIfThere(w.FS, name), touch(w.FS, name)); err != nil {
			break
		}
		made = append(made, name)
	}
	if err == nil {
		err = removeIfThere(w.FS, s.txnName)
	}
	if err != nil {
		for _, name := range made {
			err = errors.Join(err, removeIfThere(w.FS, name))
		}
		return nil, errors.Join(err, f.Close())
	}
	s.mu.handle = disk.NewHandle(f, nil)
	s.mu.created, s.mu.modified = now, now
	s.abortedKnown.Store(true)
	return s, nil
}

func touch(fs disk.FS, name string) error {
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	return f.Close()
}

func removeIfThere(fs disk.FS, name string) error {
	if err := fs.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Base is the segment's base offset, after which its files are named.
func (s *Segment) Base() cluster.Offset { return s.base }

// LogName is the name of the .log file.
func (s *Segment) LogName() string { return s.logName }

// Info is a segment as it is now.
type Info struct {
	Base, Next cluster.Offset // Next is exclusive
	Bytes      int64
	// MaxTimestamp is -1 where there are no batches; OffsetOfMaxTimestamp is the
	// last offset of the first batch that has it.
	MaxTimestamp         int64
	OffsetOfMaxTimestamp cluster.Offset
	// FirstTimestamp is the first batch's, -1 where it is not known.
	FirstTimestamp    int64
	Created, Modified time.Time
	Sealed            bool
	AbortedCount      int
}

// Info describes the segment.
func (s *Segment) Info() Info {
	st := s.state()
	return Info{
		Base: s.base, Next: st.next, Bytes: st.bytes,
		MaxTimestamp: st.maxTimestamp, OffsetOfMaxTimestamp: st.offsetOfMaxTimestamp, FirstTimestamp: st.firstTimestamp,
		Created: st.created, Modified: st.modified, Sealed: st.sealed, AbortedCount: st.txnCount,
	}
}

func (s *Segment) state() state {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.state
}

// Next is one past the last offset, or the next segment's base once sealed.
func (s *Segment) Next() cluster.Offset {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.next
}

// Bytes is the size of the .log file.
func (s *Segment) Bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.bytes
}

// Created is when the first batch was written, as far as is known; false where
// there is none.
func (s *Segment) Created() (time.Time, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.created, s.mu.bytes > 0
}

// Acquire returns the .log file's handle with a reference; ErrRemoved where the
// segment went away, so that whoever asked looks again which segment it wants; EIO
// where the disk failed while the file was being sent, which nobody else was told.
func (s *Segment) Acquire() (*disk.Handle, error) {
	h := s.open()
	if h == nil {
		var err error
		if h, err = s.cached(s.logName); err != nil {
			return nil, err
		}
	}
	if err := h.Failed(); errors.Is(err, syscall.EIO) {
		h.Release()
		return nil, fmt.Errorf("%s: %w", s.logName, err)
	}
	return h, nil
}

func (s *Segment) open() *disk.Handle {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.mu.handle == nil || !s.mu.handle.Acquire() {
		return nil
	}
	return s.mu.handle
}

// cached opens one of the sealed segment's files through the handle cache. A
// segment that was removed in between leaves nothing in it.
func (s *Segment) cached(name string) (*disk.Handle, error) {
	if s.removed.Load() || s.closed.Load() {
		return nil, ErrRemoved
	}
	h, err := s.where.Handles.GetAs(name+s.version, name)
	if s.removed.Load() || s.closed.Load() {
		if err == nil {
			h.Release()
		}
		s.drop(name)
		return nil, ErrRemoved
	}
	return h, err
}

// drop makes the handle cache forget one of the segment's files.
func (s *Segment) drop(name string) { s.where.Handles.Drop(name + s.version) }

// Fits says whether an append of that many bytes up to that last offset can be
// indexed: positions and relative offsets are 31 bits wide.
func (s *Segment) Fits(bytes int, last cluster.Offset) bool {
	return s.Bytes()+int64(bytes) <= math.MaxInt32 && last-s.base <= math.MaxInt32
}

// IndexFull says whether an index has no room for another entry within limit
// bytes, the time index's last entry at sealing counted.
func (s *Segment) IndexFull(limitBytes int) bool {
	st := s.state()
	return (st.indexCount+1)*OffsetEntryBytes > limitBytes || (st.timeCount+2)*TimeEntryBytes > limitBytes
}

// Write writes whole batches at the end of the file, in one call, and nothing
// else: they count from Commit on. After an error the file's end is unknown,
// until Restore has cut it.
func (s *Segment) Write(batches []byte) error {
	s.mu.RLock()
	h, at := s.mu.handle, s.mu.bytes
	s.mu.RUnlock()
	n, err := h.File().WriteAt(batches, at)
	if err == nil && n < len(batches) {
		err = fmt.Errorf("wrote %d bytes of %d", n, len(batches))
	}
	return err
}

// Restore cuts off what a failed Write may have left.
func (s *Segment) Restore() error {
	s.mu.RLock()
	h, at := s.mu.handle, s.mu.bytes
	s.mu.RUnlock()
	return h.File().Truncate(at)
}

// Commit takes in the batches that were written, in one step for readers.
// writtenTotal is a running count of bytes written, for Resident.
func (s *Segment) Commit(batches []byte, intervalBytes int, now time.Time, writtenTotal int64) {
	st := s.state()
	at := st.bytes
	for rest := batches; len(rest) > 0; {
		var b recordbatch.Batch
		b, rest, _ = recordbatch.First(rest)
		s.take(&st, headerOf(b, st.bytes), intervalBytes)
	}
	st.modified = now
	s.mu.Lock()
	defer s.mu.Unlock()
	if at == 0 {
		st.created = now
	}
	s.mu.state = st
	s.mu.hints.add(st.next, st.bytes)
	s.mu.marks.add(at, writtenTotal)
}

func headerOf(b recordbatch.Batch, position int64) Header {
	return Header{
		Position: position, Bytes: int64(len(b)), Base: b.BaseOffset(), Next: b.NextOffset(),
		LeaderEpoch: b.PartitionLeaderEpoch(), MaxTimestamp: b.MaxTimestamp(),
		ProducerID: txnProducer(b), Control: b.IsControl(), Empty: b.RecordCount() == 0,
	}
}

// take adds one batch to a state that is being built, as Kafka does: the
// indexes get an entry with the first batch after more than the interval.
func (s *Segment) take(st *state, h Header, intervalBytes int) {
	if h.Position == 0 {
		st.firstTimestamp = h.MaxTimestamp
	}
	if h.MaxTimestamp > st.maxTimestamp {
		st.maxTimestamp, st.offsetOfMaxTimestamp = h.MaxTimestamp, h.Next-1
	}
	if s.sinceEntryBytes > int64(intervalBytes) {
		st.index = AppendOffsetEntry(st.index, s.base, OffsetEntry{h.Next - 1, h.Position})
		st.indexCount++
		s.addTimeEntry(st)
		s.sinceEntryBytes = 0
	}
	s.sinceEntryBytes += h.Bytes
	st.bytes, st.next = h.End(), h.Next
}

// addTimeEntry enters the maximum so far where it is not the last entry (S2).
func (s *Segment) addTimeEntry(st *state) {
	last := noTimestamp
	if n := len(st.timeIndex); n > 0 {
		last = decodeTimeEntry(st.timeIndex[n-TimeEntryBytes:], s.base).Timestamp
	}
	if st.maxTimestamp > last {
		st.timeIndex = AppendTimeEntry(st.timeIndex, s.base, TimeEntry{st.maxTimestamp, st.offsetOfMaxTimestamp})
		st.timeCount++
	}
}

// AddAborted enters an aborted transaction whose marker was committed.
func (s *Segment) AddAborted(t producerstate.AbortedTxn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.txns = append(s.mu.txns, t)
	s.mu.txnCount++
}

// WriteIndexes writes what of the indexes is in memory only: with all set
// everything, else only what has become much.
func (s *Segment) WriteIndexes(all bool) error {
	st := s.state()
	if all || len(st.index)-s.indexWritten >= indexWriteBytes {
		if err := s.writeIndex(s.indexName, st.index, &s.indexWritten); err != nil {
			return err
		}
	}
	if all || len(st.timeIndex)-s.timeWritten >= indexWriteBytes {
		if err := s.writeIndex(s.timeName, st.timeIndex, &s.timeWritten); err != nil {
			return err
		}
	}
	if all && len(st.txns)*TxnEntryBytes > s.txnWritten {
		return s.writeIndex(s.txnName, encodeTxns(st.txns), &s.txnWritten)
	}
	return nil
}

func encodeTxns(txns []producerstate.AbortedTxn) []byte {
	image := make([]byte, 0, len(txns)*TxnEntryBytes)
	for _, t := range txns {
		image = AppendTxnEntry(image, t)
	}
	return image
}

func (s *Segment) writeIndex(name string, image []byte, written *int) error {
	if *written == len(image) {
		return nil
	}
	s.indexesBehind.Store(true)
	f, err := openOrCreate(s.where.FS, name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(image[*written:], int64(*written))
	if err == nil {
		*written = len(image)
	}
	return errors.Join(err, f.Close())
}

func openOrCreate(fs disk.FS, name string) (disk.File, error) {
	f, err := fs.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return fs.Create(name)
	}
	return f, err
}

// Finish enters the last time index entry and writes the indexes (S3), as
// before sealing or an orderly close.
func (s *Segment) Finish() error {
	st := s.state()
	s.addTimeEntry(&st)
	s.mu.Lock()
	s.mu.timeIndex, s.mu.timeCount = st.timeIndex, st.timeCount
	s.mu.Unlock()
	return s.WriteIndexes(true)
}

// Seal ends the segment: next is the base of the one that follows. The file
// stays open until Synced.
func (s *Segment) Seal(next cluster.Offset) error {
	if err := s.Finish(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.sealed, s.mu.next = true, next
	s.mu.index, s.mu.timeIndex, s.mu.txns = nil, nil, nil
	return nil
}

// SyncLog makes what was written to the .log file durable, up to the end that
// it returns. It may overlap anything.
func (s *Segment) SyncLog() (cluster.Offset, error) {
	s.mu.RLock()
	next := s.mu.next
	s.mu.RUnlock()
	h, err := s.Acquire()
	if err != nil {
		return next, err
	}
	defer h.Release()
	return next, h.File().SyncData()
}

// SyncIndexes makes the written indexes durable, where they are not.
func (s *Segment) SyncIndexes() error {
	if !s.indexesBehind.Swap(false) {
		return nil
	}
	err := s.syncIndexFiles()
	if err != nil {
		s.indexesBehind.Store(true)
	}
	return err
}

func (s *Segment) syncIndexFiles() error {
	names := []string{s.indexName, s.timeName}
	if s.state().txnCount > 0 {
		names = append(names, s.txnName)
	}
	for _, name := range names {
		if err := syncFile(s.where.FS, name); err != nil {
			return err
		}
	}
	return nil
}

func syncFile(fs disk.FS, name string) error {
	f, err := fs.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.SyncData(), f.Close())
}

// Synced gives up the sealed segment's open file: the handle cache opens it
// again when it is read.
func (s *Segment) Synced() {
	s.mu.Lock()
	h := s.mu.handle
	s.mu.handle = nil
	s.mu.Unlock()
	if h != nil {
		h.Release()
	}
}

// Close gives up the open files of a segment that is not used any more, those in
// the handle cache too: else they would keep the space of files that are removed.
func (s *Segment) Close() {
	s.closed.Store(true)
	s.Synced()
	for _, name := range []string{s.logName, s.indexName, s.timeName, s.txnName} {
		s.drop(name)
	}
}

// Remove renames the segment's files to names that end in DeletedSuffix and
// returns those. half is called between two of them, if not nil. The names are
// free, durably, after the folder was synced; a recovery that finds some renamed
// and some not goes by the .log file.
func (s *Segment) Remove(half func()) ([]string, error) {
	s.removed.Store(true)
	var gone []string
	for _, name := range []string{s.logName, s.indexName, s.timeName, s.txnName} {
		err := s.where.FS.Rename(name, name+DeletedSuffix)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return gone, err
		}
		gone = append(gone, name+DeletedSuffix)
		if half != nil && len(gone) == 1 {
			half()
		}
	}
	s.Close()
	return gone, nil
}
