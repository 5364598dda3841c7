package locallog

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// Rewrite is a run of adjacent sealed segments that is being written anew, with
// some of its batches, and those perhaps with fewer records. Nobody sees it before
// Publish. One goroutine at a time calls its methods, in this order: Append and
// AddAborted, Prepare, Publish, Finish. Abort gives it up, up to Prepare's success.
//
// Prepare and Finish wait for the disk; Publish does not, and is for the log's
// writer. From the beginning of Prepare to the end of Finish nobody may call
// TruncateTo, Reset, DeleteSealedBelow or Close.
//
// # Steps on the disk
//
//  1. The new files have names that end in .cleaned; they are synced.
//  2. A file <base>.replaced that names the run and the new files, likewise.
//  3. All but the first new .log are renamed to end in .swap; the folder is synced.
//  4. So is that one. From here on the rewrite counts.
//  5. The old files are renamed to end in .deleted, the new ones to their names.
//  6. The folder is synced, and the .replaced file removed.
//
// An open that finds the first .log still named .cleaned undoes all; else, where
// the .replaced file is there, it does what is left of 5.
type Rewrite struct {
	log         *Log
	first, next cluster.Offset
	old         []*segment.Segment
	outs        []*segment.Segment
	end         cluster.Offset // one past the last batch appended
	prepared    bool
}

// replacedSuffix is that of the file which says what a rewrite replaces.
const replacedSuffix = ".replaced"

// BeginRewrite begins to rewrite the sealed segments from the one with the base
// first to the one that ends at next, all of which must be flushed. It fails with
// ErrOvertaken where there is no such run, or not any more.
func (l *Log) BeginRewrite(first, next cluster.Offset) (*Rewrite, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	rw := &Rewrite{log: l, first: first, next: next, end: first}
	row := l.segments.Load().row
	for _, s := range row {
		if s.Base() >= first && s.Base() < next {
			rw.old = append(rw.old, s)
		}
	}
	n := len(rw.old)
	if n == 0 || rw.old[0].Base() != first || rw.old[n-1].Next() != next || !rw.old[n-1].Info().Sealed {
		return nil, fmt.Errorf("%w: no sealed segments from %d to %d", ErrOvertaken, first, next)
	}
	if !l.settled(rw.old) {
		return nil, fmt.Errorf("%w: segments up to %d are not flushed", ErrOvertaken, next)
	}
	if err := rw.open(first); err != nil {
		return nil, err
	}
	return rw, nil
}

// settled says that segments, and all before them, are durable.
func (l *Log) settled(row []*segment.Segment) bool {
	if l.FlushedOffset() < row[len(row)-1].Next() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(l.mu.unsynced, func(u unsynced) bool { return u.segment.Base() <= row[len(row)-1].Base() })
}

func (rw *Rewrite) open(base cluster.Offset) error {
	s, err := segment.CreateCleaned(rw.log.where, base, rw.log.now())
	if err != nil {
		return rw.log.trouble("rewrite: create", err)
	}
	rw.outs = append(rw.outs, s)
	return nil
}

// trouble is an error about a rewrite's own files, with nothing wrong about the
// log.
func (l *Log) trouble(doing string, err error) error {
	switch {
	case l.usable() != nil:
		return l.usable()
	case noSpace(err):
		return fmt.Errorf("%w: %s: %w", ErrNoSpace, doing, err)
	case disk.NoDescriptor(err):
		return fmt.Errorf("%w: %s: %w", ErrNoDescriptor, doing, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrRewrite, doing, err)
}

// Base and Next are the run's bounds, Next exclusive.
func (rw *Rewrite) Base() cluster.Offset { return rw.first }

// Next is the exclusive end of the run.
func (rw *Rewrite) Next() cluster.Offset { return rw.next }

// Append writes whole batches, in order. Where the new segment would become larger
// with them than segment.bytes, or its index than its size, they begin another.
func (rw *Rewrite) Append(batches []byte) error {
	if len(batches) == 0 {
		return nil
	}
	first, last, err := rw.inspect(batches)
	if err != nil {
		return err
	}
	out := rw.outs[len(rw.outs)-1]
	settings := rw.log.settings.Load()
	full := out.Bytes()+int64(len(batches)) > settings.SegmentBytes
	if out.Bytes() > 0 && (full || !out.CleanedFits(len(batches), last, settings.IndexBytes)) {
		if err := rw.open(first); err != nil {
			return err
		}
		out = rw.outs[len(rw.outs)-1]
	}
	if err := out.Write(batches); err != nil {
		return rw.log.trouble("rewrite: write", err)
	}
	out.Commit(batches, settings.IndexIntervalBytes, rw.log.now(), 0)
	rw.end = last + 1
	return nil
}

func (rw *Rewrite) inspect(batches []byte) (first, last cluster.Offset, err error) {
	first = cluster.NoOffset
	next := rw.end
	for rest := batches; len(rest) > 0; {
		var b recordbatch.Batch
		if b, rest, err = recordbatch.First(rest); err != nil {
			return 0, 0, fmt.Errorf("%w: %w", ErrBadAppend, err)
		}
		if b.BaseOffset() < next || b.NextOffset() > rw.next {
			return 0, 0, fmt.Errorf("%w: offsets %d to %d in a rewrite at %d of %d to %d", ErrBadAppend, b.BaseOffset(), b.LastOffset(), next, rw.first, rw.next-1)
		}
		if first == cluster.NoOffset {
			first = b.BaseOffset()
		}
		next = b.NextOffset()
	}
	return first, next - 1, nil
}

// AddAborted enters an aborted transaction whose marker was appended last.
func (rw *Rewrite) AddAborted(t producerstate.AbortedTxn) { rw.outs[len(rw.outs)-1].AddAborted(t) }

// Files is how many segments it makes so far.
func (rw *Rewrite) Files() int { return len(rw.outs) }

// Bytes is how much was appended.
func (rw *Rewrite) Bytes() int64 {
	var n int64
	for _, s := range rw.outs {
		n += s.Bytes()
	}
	return n
}

// SyncSome makes what was appended so far durable, so that there is never much
// for a later sync.
func (rw *Rewrite) SyncSome() error {
	if _, err := rw.outs[len(rw.outs)-1].SyncLog(); err != nil {
		return rw.log.trouble("rewrite: sync", err)
	}
	return nil
}

// Prepare makes the rewrite durable, up to and with the step from which it
// counts. removedBelow is one past the highest offset of a tombstone or marker
// that it left out, 0 where none. After an error that is none of the log's
// (ErrNoSpace, ErrNoDescriptor, ErrOvertaken, ErrRewrite) it can be aborted.
func (rw *Rewrite) Prepare(removedBelow cluster.Offset) error {
	l := rw.log
	if err := l.usable(); err != nil {
		return err
	}
	if !rw.current() {
		return fmt.Errorf("%w: segments from %d to %d", ErrOvertaken, rw.first, rw.next)
	}
	for _, s := range rw.outs {
		if err := s.FinishCleaned(); err != nil {
			return l.trouble("rewrite: sync", err)
		}
	}
	if err := rw.writeReplaced(); err != nil {
		return l.trouble("rewrite: write what is replaced", err)
	}
	err := l.noteCompaction(func(c *compaction) {
		c.known = true
		c.removedBelow = max(c.removedBelow, removedBelow)
		c.durableBelow = max(c.durableBelow, rw.next)
	})
	if err == nil {
		err = l.config.FS.SyncDir(l.config.Dir)
	}
	if err != nil {
		return l.trouble("rewrite: write "+CompactionName, err)
	}
	l.hook(StepRewriteCleaned)
	if err := rw.swap(); err != nil {
		return l.fail("rewrite: swap", err)
	}
	rw.prepared = true
	l.hook(StepRewriteSwap)
	return nil
}

// current says that the run is still there as it was when the rewrite began.
func (rw *Rewrite) current() bool {
	row := rw.log.segments.Load().row
	i := slices.Index(row, rw.old[0])
	return i >= 0 && len(row) >= i+len(rw.old) && slices.Equal(row[i:i+len(rw.old)], rw.old)
}

func (rw *Rewrite) replacedName() string {
	return path.Join(rw.log.config.Dir, replacedName(rw.first))
}

func replacedName(base cluster.Offset) string {
	return strings.TrimSuffix(segment.Name(base, segment.LogSuffix), segment.LogSuffix) + replacedSuffix
}

func (rw *Rewrite) writeReplaced() error {
	text := fmt.Appendf(nil, "%d %d", rw.first, rw.next)
	for _, s := range rw.outs {
		text = fmt.Appendf(text, " %d", s.Base())
	}
	return disk.WriteFileAtomic(rw.log.config.FS, rw.replacedName()+segment.CleanedSuffix, append(text, '\n'))
}

// swap is steps 3 and 4.
func (rw *Rewrite) swap() error {
	l := rw.log
	fs, name := l.config.FS, rw.replacedName()
	if err := fs.Rename(name+segment.CleanedSuffix, name+segment.SwapSuffix); err != nil {
		return err
	}
	firstLog := path.Join(l.config.Dir, segment.Name(rw.first, segment.LogSuffix))
	for _, s := range slices.Backward(rw.outs) {
		for _, suffix := range segment.FileSuffixes() {
			name := path.Join(l.config.Dir, segment.Name(s.Base(), suffix))
			if name == firstLog {
				continue
			}
			if err := fs.Rename(name+segment.CleanedSuffix, name+segment.SwapSuffix); err != nil {
				return err
			}
		}
	}
	if err := fs.SyncDir(l.config.Dir); err != nil {
		return err
	}
	if err := fs.Rename(firstLog+segment.CleanedSuffix, firstLog+segment.SwapSuffix); err != nil {
		return err
	}
	return fs.SyncDir(l.config.Dir)
}

// Publish puts the new segments in the place of the old ones. Who reads the old
// ones goes on doing so; their files go after FileDeleteDelay.
func (rw *Rewrite) Publish() error {
	l := rw.log
	if err := l.usable(); err != nil {
		return err
	}
	if !rw.prepared || !rw.current() {
		return l.fail("rewrite: publish", errors.New("the segments to replace are gone"))
	}
	due := l.now().Add(l.settings.Load().FileDeleteDelay)
	for _, s := range rw.old {
		names, err := s.Remove(func() { l.hook(StepRewriteReplace) })
		l.mu.Lock()
		for _, name := range names {
			l.mu.deferred = append(l.mu.deferred, removal{name, due})
		}
		l.mu.Unlock()
		if err != nil {
			return l.fail("rewrite: take the old segment away", err)
		}
	}
	for _, s := range rw.outs {
		if err := segment.RenameFiles(l.where, s.Base(), segment.SwapSuffix, ""); err != nil {
			return l.fail("rewrite: name the new segment", err)
		}
	}
	row := l.segments.Load().row
	i := slices.Index(row, rw.old[0])
	l.publish(slices.Concat(row[:i], rw.sealed(), row[i+len(rw.old):]))
	return nil
}

// sealed are the new segments.
func (rw *Rewrite) sealed() []*segment.Segment {
	created, modified := rw.old[0].Info().Created, rw.old[0].Info().Modified
	for _, s := range rw.old {
		if m := s.Info().Modified; m.After(modified) {
			modified = m
		}
	}
	var out []*segment.Segment
	for i, s := range rw.outs {
		next := rw.next
		if i+1 < len(rw.outs) {
			next = rw.outs[i+1].Base()
		}
		out = append(out, s.Rewritten(next, created, modified))
	}
	return out
}

// Finish makes the names durable.
func (rw *Rewrite) Finish() error {
	l := rw.log
	err := l.config.FS.SyncDir(l.config.Dir)
	if err == nil {
		err = l.config.FS.Remove(rw.replacedName() + segment.SwapSuffix)
	}
	if err == nil {
		err = l.dropSnapshots(func(at cluster.Offset) bool { return at > rw.first && at < rw.next && !l.isBase(at) })
	}
	if err != nil {
		return l.fail("rewrite: finish", err)
	}
	return nil
}

// Abort gives the rewrite up and removes its files.
func (rw *Rewrite) Abort() error {
	if rw.prepared || rw.log.Err() != nil {
		return nil // an open finds out
	}
	var errs []error
	for _, s := range rw.outs {
		errs = append(errs, s.RemoveCleaned())
	}
	err := rw.log.config.FS.Remove(rw.replacedName() + segment.CleanedSuffix)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Segments describes the new segments; after Publish.
func (rw *Rewrite) Segments() []SegmentInfo {
	var out []SegmentInfo
	for _, s := range rw.log.Segments() {
		if s.Base >= rw.first && s.Base < rw.next {
			out = append(out, s)
		}
	}
	return out
}

// settleRewrites undoes or finishes the rewrites that a stop cut off, and returns
// the names that are left in the folder.
func (l *Log) settleRewrites(names []string) ([]string, error) {
	changed := false
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, replacedSuffix+segment.SwapSuffix)
		if !ok {
			continue
		}
		first, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			continue
		}
		changed = true
		if slices.Contains(names, segment.Name(cluster.Offset(first), segment.LogSuffix)+segment.CleanedSuffix) {
			err = l.undoRewrite(name)
		} else {
			err = l.finishRewrite(name, names)
		}
		if err != nil {
			return nil, err
		}
	}
	if !changed {
		return names, nil
	}
	return l.config.FS.List(l.config.Dir)
}

// undoRewrite removes the word about a rewrite that does not count, durably, and
// then its files.
func (l *Log) undoRewrite(replaced string) error {
	fs, dir := l.config.FS, l.config.Dir
	if err := fs.Remove(path.Join(dir, replaced)); err != nil {
		return err
	}
	if err := fs.SyncDir(dir); err != nil {
		return err
	}
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, segment.SwapSuffix) || strings.HasSuffix(name, segment.CleanedSuffix) {
			if err := fs.Remove(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return fs.SyncDir(dir)
}

// finishRewrite removes what a rewrite replaces, and gives the new files their
// names.
func (l *Log) finishRewrite(replaced string, names []string) error {
	fs, dir := l.config.FS, l.config.Dir
	data, err := disk.ReadFile(fs, path.Join(dir, replaced))
	if err != nil {
		return err
	}
	var run []cluster.Offset
	for _, field := range strings.Fields(string(data)) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return &segment.CorruptError{File: path.Join(dir, replaced), Cause: err}
		}
		run = append(run, cluster.Offset(n))
	}
	if len(run) < 3 {
		return &segment.CorruptError{File: path.Join(dir, replaced), Cause: errors.New("too short")}
	}
	first, next, outs := run[0], run[1], run[2:]
	l.logger().Info("a stop cut off a rewrite of segments, which is finished", "from", first, "to", next-1)
	for _, name := range names {
		base, suffix, ok := segment.ParseName(name)
		if !ok || suffix == segment.SnapshotSuffix || base < first || base >= next {
			continue
		}
		if slices.Contains(outs, base) && !slices.Contains(names, segment.Name(base, segment.LogSuffix)+segment.SwapSuffix) {
			continue // it has its name already; what indexes lack theirs replace the old ones
		}
		if err := fs.Remove(path.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, base := range outs {
		if err := segment.RenameFiles(l.where, base, segment.SwapSuffix, ""); err != nil {
			return err
		}
	}
	if err := fs.SyncDir(dir); err != nil {
		return err
	}
	if err := fs.Remove(path.Join(dir, replaced)); err != nil {
		return err
	}
	return fs.SyncDir(dir)
}
