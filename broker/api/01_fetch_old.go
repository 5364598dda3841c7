package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// Versions 0 to 3 are answered in message formats v0 (0 and 1) and v1 (2 and 3),
// for which batches are converted in memory. These bound that memory: of one
// answer, and of all answers that are being made or still being sent.
const (
	oldAnswerBytesMax  = 8 << 20
	oldAnswersBytesMax = 64 << 20
)

// LimitOldAnswers is the bound on answers in the old formats.
const LimitOldAnswers = "converted_bytes"

// downgrades makes answers in the old formats.
type downgrades struct {
	bytes *semaphore.Weighted
	slots chan struct{} // conversions at once
	turn  atomic.Uint32 // which partition comes first
	tools sync.Pool     // *downgradeTools
}

type downgradeTools struct {
	downgrader recordbatch.Downgrader
	reader     *bufio.Reader
	batch      []byte
	full       bool // the last conversion stopped for lack of room
}

func newDowngrades() *downgrades {
	return &downgrades{
		bytes: semaphore.NewWeighted(oldAnswersBytesMax),
		slots: make(chan struct{}, runtime.GOMAXPROCS(0)),
		tools: sync.Pool{New: func() any { return &downgradeTools{reader: bufio.NewReaderSize(nil, 64<<10)} }},
	}
}

// oldFormat tells whether the answer is in an old format, and which.
func (f *fetching) oldFormat() (magic int8, old bool) {
	switch {
	case f.req.Version < 2:
		return 0, true
	case f.req.Version < 4:
		return 1, true
	}
	return 2, false
}

// downgrade converts what was read, within the limits of the request and of the
// broker. The partitions take turns at being first, so that one that always has
// data does not keep the others from being answered. Up to version 2 each
// partition yields at least a message, whatever its limit, and from then on the
// first that has one: a limit smaller than a message stops no client.
func (f *fetching) downgrade(ctx context.Context) {
	d := f.h.downgrades
	room := 0
	for i := range f.parts {
		if f.parts[i].result.Bytes > 0 {
			room = min(room+max(f.parts[i].maxBytes, 1), f.maxBytes, oldAnswerBytesMax)
		}
	}
	f.bytes = 0
	if room == 0 {
		f.dropAll()
		return
	}
	wait, cancel := context.WithDeadline(ctx, later(f.deadline, time.Now().Add(remoteGrace)))
	defer cancel()
	if d.bytes.Acquire(wait, int64(room)) != nil {
		f.h.cfg.LimitHit(LimitOldAnswers)
		f.dropAll()
		return
	}
	left := &reserve{d.bytes, int64(room)}
	defer left.release()
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return
	}
	tools := d.tools.Get().(*downgradeTools)
	defer tools.free(d)
	first := int(d.turn.Add(1) % uint32(len(f.parts)))
	for i := range f.parts {
		p := &f.parts[(first+i)%len(f.parts)]
		if p.result.Bytes == 0 {
			continue
		}
		set, err := f.downgradePart(ctx, tools, p, min(p.maxBytes, room-f.bytes))
		p.result.Release()
		p.result.Bytes = len(set)
		if err != nil {
			p.code = f.codeOfRead(err)
			f.failed = true
		}
		if len(set) > 0 {
			p.result.Regions = []disk.Region{left.region(set)}
			f.bytes += len(set)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (f *fetching) dropAll() {
	for i := range f.parts {
		f.parts[i].result.Release()
		f.parts[i].result.Bytes = 0
	}
}

// downgradePart converts one partition's batches until there is no more room.
// Where they hold no record that the old formats can carry, such as markers of
// transactions, it reads on: an old client has no other way past them.
func (f *fetching) downgradePart(ctx context.Context, t *downgradeTools, p *fetchPart, room int) ([]byte, error) {
	magic, _ := f.oldFormat()
	one := f.req.Version < 3 && f.bytes < oldAnswerBytesMax || f.bytes == 0
	read := p.read
	for {
		set, err := t.convert(p.result.Regions, magic, read.Offset, room, one, f.h.cfg.Conversions)
		next := p.result.NextOffset
		if err != nil || len(set) > 0 || t.full || next <= read.Offset || next >= p.result.HighWatermark {
			return set, err
		}
		read.Offset, read.MaxBytes, read.MinOneBatch = next, max(p.maxBytes, t.reader.Size()), true
		p.result.Release()
		more, err := p.partition.ReadRemote(ctx, read)
		if err != nil {
			return nil, err
		}
		p.result = more
	}
}

// convert converts the batches of some regions, and sets full.
func (t *downgradeTools) convert(regions []disk.Region, magic int8, from cluster.Offset, room int, one bool, count *Conversions) (set []byte, err error) {
	t.reader.Reset(&regionReader{regions: regions})
	t.full = false
	for !t.full {
		b, err := t.next()
		if errors.Is(err, io.EOF) {
			return set, nil
		}
		if err != nil {
			return set, err
		}
		var done recordbatch.Downgraded
		if set, done, err = t.downgrader.Append(set, b, magic, from, room-len(set), one && len(set) == 0); err != nil {
			if len(set) > 0 {
				return set, nil // the client meets it at the next fetch
			}
			return nil, err
		}
		count.add(conversionDown, done.Messages)
		t.full = done.Full
	}
	return set, nil
}

// next is the next batch of the reader; io.EOF: there is none.
func (t *downgradeTools) next() (recordbatch.Batch, error) {
	head, err := t.reader.Peek(recordbatch.PrefixBytes)
	if err != nil {
		return nil, err
	}
	size, err := recordbatch.PeekBytes(head)
	if err != nil {
		return nil, err
	}
	if cap(t.batch) < size {
		t.batch = make([]byte, size)
	}
	t.batch = t.batch[:size]
	if _, err := io.ReadFull(t.reader, t.batch); err != nil {
		return nil, err
	}
	b, _, err := recordbatch.First(t.batch)
	return b, err
}

func (t *downgradeTools) free(d *downgrades) {
	t.reader.Reset(nil)
	if cap(t.batch) > oldAnswerBytesMax {
		t.batch = nil
	}
	d.tools.Put(t)
}

// regionReader reads regions one after the other.
type regionReader struct {
	regions []disk.Region
	at      int64 // in the first
}

func (r *regionReader) Read(b []byte) (int, error) {
	for len(r.regions) > 0 {
		if r.at < r.regions[0].Bytes {
			n, err := r.regions[0].ReadAt(b, r.at)
			r.at += int64(n)
			if n > 0 {
				return n, nil
			}
			return 0, fmt.Errorf("%w: %w", partition.ErrStorage, err)
		}
		r.regions, r.at = r.regions[1:], 0
	}
	return 0, io.EOF
}

// reserve is what an answer may still take of the bytes of all answers.
type reserve struct {
	bytes *semaphore.Weighted
	left  int64
}

// region makes a region of bytes in memory. Its last release gives the bytes
// back.
func (r *reserve) region(b []byte) disk.Region {
	share := min(int64(len(b)), r.left)
	r.left -= share
	bytes := r.bytes
	h := disk.NewHandle(converted{b: b}, func(error) { bytes.Release(share) })
	return disk.Region{Handle: h, Bytes: int64(len(b)), Resident: true}
}

func (r *reserve) release() { r.bytes.Release(r.left) }

// converted is a file of bytes in memory that nobody writes to.
type converted struct {
	disk.File // nil: what is not here is not called
	b         []byte
}

func (c converted) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, c.b[min(off, int64(len(c.b))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (c converted) Fd() (uintptr, bool) { return 0, false }
func (c converted) Close() error        { return nil }
