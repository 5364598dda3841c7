package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage"
	"github.com/cockroachdb/pebble/v2/sstable"

	"strandline/metadata/background"
	"strandline/metadata/disk"
)

const (
	// bulkFolder, in the folder of a DB, holds tables that are not part of it yet.
	bulkFolder = "bulk"
	// bulkBuffer is how much of a table is written at once, in bytes.
	bulkBuffer = 256 << 10
	// overlapMax is how many tables a key may be in before a Bulk waits for merges,
	// and overlapWait for how long it waits then.
	overlapMax  = 24
	overlapWait = 3 * time.Second
)

// Bulk is many changes that happen at once, given in the order of their keys. They
// go to tables of the DB as they come: nothing of them is in memory, in the log, or
// written twice. Worth it from some megabytes on; smaller ones are for WriteBatch. It
// is for one goroutine, and must be Closed.
type Bulk struct {
	db     *DB
	names  []string
	out    *bulkFile
	writer *sstable.Writer
	err    error
}

// NewBulk returns an empty bulk.
func (d *DB) NewBulk() *Bulk {
	if !d.gate.enter() {
		return &Bulk{err: ErrClosed}
	}
	b := &Bulk{db: d}
	if err := disk.EnsureDir(d.fs.disk, path.Join(d.dir, bulkFolder)); err != nil {
		b.err = b.wrap(err)
	}
	return b
}

// Table begins the next table. Its keys need not be above those of the former ones,
// but not between two of one.
func (b *Bulk) Table() {
	if b.err == nil {
		b.err = b.finish()
	}
}

// Set stores a value in the table, under a key above the one before; it keeps neither
// slice.
func (b *Bulk) Set(key, value []byte) {
	if b.err == nil && b.writer == nil {
		b.err = b.wrap(b.begin())
	}
	if b.err == nil {
		b.err = b.wrap(b.writer.Set(key, value))
	}
}

func (b *Bulk) begin() error {
	name := path.Join(b.db.dir, bulkFolder, strconv.FormatUint(b.db.bulkTables.Add(1), 10))
	b.names = append(b.names, name)
	f, err := b.db.fs.disk.Create(name)
	if err != nil {
		return err
	}
	b.out = &bulkFile{file: f, background: b.db.fs.background, buf: make([]byte, 0, bulkBuffer)}
	b.writer = sstable.NewWriter(b.out, b.db.tables)
	return nil
}

func (b *Bulk) wrap(err error) error {
	if err == nil {
		return nil
	}
	return wrap(b.db.dir, nil, fmt.Errorf("writing tables of metadata store %s: %w", b.db.dir, err))
}

func (b *Bulk) finish() error {
	if b.writer == nil {
		return nil
	}
	w := b.writer
	b.out.closing.Store(true)
	b.writer, b.out = nil, nil
	return b.wrap(w.Close())
}

// Commit makes the changes happen, durably and after everything that was committed
// before. Of an error the same is true as of that of Batch.Commit. It waits, within
// reason, while the DB has more tables than it can merge.
func (b *Bulk) Commit() error {
	if b.err == nil {
		b.err = b.finish()
	}
	if b.err != nil || len(b.names) == 0 {
		return b.err
	}
	// Batches may be in memory alone, with the log not synced; none is lost that came
	// before what is about to be durable.
	if err := b.db.db.LogData(nil, pebble.Sync); err != nil {
		return b.wrap(err)
	}
	if err := b.db.db.Ingest(context.Background(), b.names); err != nil {
		return b.wrap(err)
	}
	b.names = nil
	for begun := time.Now(); b.db.overlap() > overlapMax && time.Since(begun) < overlapWait; {
		time.Sleep(overlapWait / 100)
	}
	return nil
}

// overlap is how many tables, at most, have to be looked at for one key that are not
// merged yet.
func (d *DB) overlap() int { return int(d.db.Metrics().Levels[0].Sublevels) }

// Close forgets what was not committed. A second Close does nothing.
func (b *Bulk) Close() error {
	if b.db == nil {
		return nil
	}
	if b.writer != nil {
		// Without this the writer's goroutine stays. What it says does not matter: the
		// table goes.
		b.out.spoiled.Store(true)
		b.out.closing.Store(true)
		_ = b.writer.Close()
	}
	var errs []error
	for _, name := range b.names {
		errs = append(errs, b.db.fs.disk.RemoveAll(name))
	}
	b.db.gate.leave()
	b.db, b.writer, b.names, b.err = nil, nil, nil, errors.Join(b.err, ErrClosed)
	return errors.Join(errs...)
}

// bulkFile collects what is written into large pieces.
type bulkFile struct {
	file       disk.File
	background bool // Config.Background
	buf        []byte
	at         int64
	// The writer has a goroutine that writes, until closing.
	closing, spoiled atomic.Bool
}

var _ objstorage.Writable = (*bulkFile)(nil)

var errSpoiled = errors.New("given up")

func (f *bulkFile) Write(p []byte) error {
	if f.background && !f.closing.Load() {
		background.Enter()
	}
	if f.spoiled.Load() {
		return errSpoiled
	}
	for len(p) > 0 {
		n := copy(f.buf[len(f.buf):cap(f.buf)], p)
		f.buf, p = f.buf[:len(f.buf)+n], p[n:]
		if len(f.buf) == cap(f.buf) {
			if err := f.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *bulkFile) flush() error {
	n, err := f.file.WriteAt(f.buf, f.at)
	f.at += int64(n)
	f.buf = f.buf[:0]
	return err
}

func (f *bulkFile) Finish() error {
	if f.spoiled.Load() {
		f.Abort()
		return errSpoiled
	}
	err := f.flush()
	if err == nil {
		err = f.file.SyncData()
	}
	return errors.Join(err, f.file.Close())
}

func (f *bulkFile) Abort() { _ = f.file.Close() }
