package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"

	"strandline/metadata/disk"
)

// ErrShortRegion means that a file ended before the region that was being sent.
// The length of the frame is already on the wire, so the connection must end.
var ErrShortRegion = errors.New("file ended before the region being sent")

// Path labels how the bytes of a region reached the socket, for Stats.
type Path uint8

// Paths.
const (
	SendfilePath Path = iota
	CopyPath
)

// Stats counts the bytes of regions sent, by tier and path.
type Stats struct{ bytes [2][2]atomic.Int64 }

func (s *Stats) add(tier Tier, path Path, n int64) { s.bytes[tier][path].Add(n) }

// Bytes returns the bytes sent so far.
func (s *Stats) Bytes(tier Tier, path Path) int64 { return s.bytes[tier][path].Load() }

const (
	residentBytes = 1 << 20   // most that one sendfile moves
	coldBytes     = 256 << 10 // most that one moves where the disk is involved
	copyBytes     = 256 << 10 // buffer where sendfile is not to be had
)

// Sender writes Outs to one connection: by sendfile where the system and the
// connection allow it, else by copying. It is used by one goroutine at a time.
type Sender struct {
	conn     net.Conn
	raw      syscall.RawConn // nil: copy
	gate     *Gate
	stats    *Stats
	progress *atomic.Uint64

	// The Out being sent, for step.
	out        *Out
	next       int // region to be sent next
	sentBytes  int // of Buf
	sentRegion int64
	checked    int64 // end of the part of the region known to be resident
	corked     bool
	err        error
	stepFn     func(fd uintptr) bool
}

// NewSender returns a Sender. gate bounds the reads that may block on a disk;
// stats counts; progress rises whenever bytes have been taken by the
// connection, so that whoever watches it can tell a slow reader from a dead one.
func NewSender(conn net.Conn, gate *Gate, stats *Stats, progress *atomic.Uint64) *Sender {
	s := &Sender{conn: conn, gate: gate, stats: stats, progress: progress}
	if canSendfile {
		if tcp, ok := conn.(*net.TCPConn); ok {
			if raw, err := tcp.SyscallConn(); err == nil {
				s.raw = raw
			}
		}
	}
	s.stepFn = s.step
	return s
}

// Send writes everything in o and empties it. After an error the connection is
// of no more use (W2). The regions are released either way (W1).
func (s *Sender) Send(o *Out) error {
	defer o.reset()
	if o.frame >= 0 {
		return errors.New("wire: a frame is not complete")
	}
	if len(o.regions) == 0 {
		return s.write(o.Buf)
	}
	if s.raw == nil {
		return s.copyAll(o)
	}
	s.out, s.next, s.sentBytes, s.sentRegion, s.checked, s.err = o, 0, 0, 0, 0, nil
	err := s.raw.Write(s.stepFn)
	s.out = nil
	if s.err != nil {
		err = s.err
	}
	if err != nil {
		return fmt.Errorf("send of file regions: %w", err)
	}
	return nil
}

func (s *Sender) write(b []byte) error {
	for len(b) > 0 {
		n, err := s.conn.Write(b[:min(len(b), residentBytes)])
		if n > 0 {
			s.progress.Add(1)
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// copyAll sends regions through a buffer.
func (s *Sender) copyAll(o *Out) error {
	from := 0
	for i := range o.regions {
		p := &o.regions[i]
		if err := s.write(o.Buf[from:p.at]); err != nil {
			return err
		}
		from = p.at
		if err := s.copyRegion(p); err != nil {
			return err
		}
	}
	return s.write(o.Buf[from:])
}

func (s *Sender) copyRegion(p *placed) error {
	b := GetBuffer(int(min(p.region.Bytes, copyBytes)))
	defer b.Free()
	for off := int64(0); off < p.region.Bytes; {
		n := min(p.region.Bytes-off, copyBytes)
		chunk := b.B[:n]
		if err := s.readRegion(p.region, chunk, off); err != nil {
			return err
		}
		if err := s.write(chunk); err != nil {
			return err
		}
		s.stats.add(p.tier, CopyPath, n)
		off += n
	}
	return nil
}

// readRegion fills b from the region's off on; what may block on a disk takes
// its turn at the gate.
func (s *Sender) readRegion(r disk.Region, b []byte, off int64) error {
	if !r.Resident && !isResident(r, off, int64(len(b))) {
		defer s.gate.enter(r)()
	}
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = ErrShortRegion
	}
	// The answer under way can no longer say so: who reads the file next does.
	r.Handle.Fail(err)
	return err
}
