package wire

import (
	"encoding/binary"
	"fmt"
	"sync"

	"strandline/metadata/disk"
)

// CopyBelowBytes is the size below which a region is read into the response's
// buffer: one pread costs less than the system calls that send it. BenchmarkRegion
// measures it: on loopback, copying takes a tenth less CPU at 16 KiB and a fifth
// more at 32 KiB.
const CopyBelowBytes = 20 << 10

// copyMostBytes bounds what a response's buffer takes in: past it even small
// regions are sent from their files, so that a fetch of thousands of small
// partitions does not hold its records in memory.
const copyMostBytes = 256 << 10

// Tier labels where the bytes of a region came from, for Stats.
type Tier uint8

// Tiers.
const (
	LocalTier Tier = iota
	RemoteTier
)

// Out is what is to be written to a connection: the frames of one or more
// responses, as bytes with file regions in between. Handlers append to Buf
// between Begin and End. An Out is used by one goroutine at a time.
type Out struct {
	// Buf holds the encoded bytes; a handler may append to it, no more.
	Buf []byte

	sender  *Sender
	regions []placed
	// frame is where the open frame starts in Buf, -1 where none is open;
	// before is the size of regions placed before it.
	frame, before int
	regionBytes   int // of all regions
	// frameRegions is the number of regions placed before the open frame.
	frameRegions int
}

// placed is a region to be sent after the first at bytes of Buf.
type placed struct {
	at     int
	region disk.Region
	tier   Tier
}

var outs = sync.Pool{New: func() any { return &Out{frame: -1} }}

// NewOut returns an empty Out for responses of this connection.
func (s *Sender) NewOut() *Out {
	o := outs.Get().(*Out)
	o.sender = s
	return o
}

// keepBytes is the largest buffer that an Out keeps for its next use.
const keepBytes = 64 << 10

// Free releases whatever was not sent and gives the Out back.
func (o *Out) Free() {
	o.reset()
	if cap(o.Buf) > keepBytes {
		o.Buf = nil
	}
	o.sender = nil
	outs.Put(o)
}

// reset empties the Out and releases its regions (W1).
func (o *Out) reset() {
	for i := range o.regions {
		o.regions[i].region.Release()
		o.regions[i] = placed{}
	}
	o.regions = o.regions[:0]
	o.Buf = o.Buf[:0]
	o.frame, o.before, o.regionBytes, o.frameRegions = -1, 0, 0, 0
}

// Begin starts a frame with a response header.
func (o *Out) Begin(correlationID int32, flexible bool) {
	o.frame, o.before, o.frameRegions = len(o.Buf), o.regionBytes, len(o.regions)
	o.Buf = append(o.Buf, 0, 0, 0, 0)
	o.Buf = binary.BigEndian.AppendUint32(o.Buf, uint32(correlationID))
	if flexible {
		o.Buf = append(o.Buf, 0)
	}
}

// End completes the frame.
func (o *Out) End() {
	size := len(o.Buf) - o.frame - sizeBytes + o.regionBytes - o.before
	binary.BigEndian.PutUint32(o.Buf[o.frame:], uint32(size))
	o.frame = -1
}

// Abort drops the open frame, if there is one, and releases its regions.
func (o *Out) Abort() {
	if o.frame < 0 {
		return
	}
	o.Rollback(Mark{o.frame, o.frameRegions, o.before})
	o.frame = -1
}

// Mark is a place in an open frame to come back to.
type Mark struct{ buf, regions, bytes int }

// Mark returns the present end of the frame.
func (o *Out) Mark() Mark { return Mark{len(o.Buf), len(o.regions), o.regionBytes} }

// Rollback drops what came after the mark and releases its regions.
func (o *Out) Rollback(m Mark) {
	for i := m.regions; i < len(o.regions); i++ {
		o.regions[i].region.Release()
		o.regions[i] = placed{}
	}
	o.regions, o.Buf, o.regionBytes = o.regions[:m.regions], o.Buf[:m.buf], m.bytes
}

// Bytes is the size of everything to be written.
func (o *Out) Bytes() int { return len(o.Buf) + o.regionBytes }

// HasRegions tells whether files are still to be read for this Out.
func (o *Out) HasRegions() bool { return len(o.regions) > 0 }

// Place puts the bytes of a region at the end of Buf and takes over the
// reference: a small one is read at once, a larger one is sent from its file.
// An error means that the small region could not be read: it has been released,
// and Buf is as it was.
func (o *Out) Place(r disk.Region, tier Tier) error {
	if r.Bytes == 0 {
		r.Release()
		return nil
	}
	if r.Bytes >= CopyBelowBytes || len(o.Buf) >= copyMostBytes {
		o.regions = append(o.regions, placed{at: len(o.Buf), region: r, tier: tier})
		o.regionBytes += int(r.Bytes)
		return nil
	}
	defer r.Release()
	n := len(o.Buf)
	o.Buf = append(o.Buf, make([]byte, r.Bytes)...)
	if err := o.sender.readRegion(r, o.Buf[n:], 0); err != nil {
		o.Buf = o.Buf[:n]
		return fmt.Errorf("read of a region: %w", err)
	}
	o.sender.stats.add(tier, CopyPath, r.Bytes)
	return nil
}
