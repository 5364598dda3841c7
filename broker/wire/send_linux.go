package wire

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"strandline/metadata/disk"
)

const canSendfile = true

// step runs inside RawConn.Write: it sends as much as the socket takes, and
// returns false where it has to become writable first.
func (s *Sender) step(fd uintptr) bool {
	o := s.out
	if len(o.regions) > 1 && !s.corked {
		s.corked = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, 1) == nil
	}
	for s.next < len(o.regions) {
		p := &o.regions[s.next]
		if !s.sendBytes(int(fd), p.at, unix.MSG_MORE) {
			return s.err != nil
		}
		if !s.sendRegion(int(fd), p) {
			return s.err != nil
		}
		s.next++
		s.sentRegion, s.checked = 0, 0
	}
	if !s.sendBytes(int(fd), len(o.Buf), 0) {
		return s.err != nil
	}
	if s.corked {
		s.corked = false
		if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, 0); err != nil {
			s.err = os.NewSyscallError("setsockopt", err)
		}
	}
	return true
}

// sendBytes sends Buf up to end. It returns false where the socket is full or
// s.err is set.
func (s *Sender) sendBytes(fd, end, flags int) bool {
	for s.sentBytes < end {
		n, err := unix.SendmsgN(fd, s.out.Buf[s.sentBytes:end], nil, nil, flags|unix.MSG_NOSIGNAL)
		switch {
		case err == nil:
			s.sentBytes += n
			s.progress.Add(1)
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		default:
			s.err = os.NewSyscallError("sendmsg", err)
			return false
		}
	}
	return true
}

// sendRegion sends the rest of a region from its file, at explicit positions.
func (s *Sender) sendRegion(fd int, p *placed) bool {
	r := p.region
	file, ok := r.Handle.File().Fd()
	if !ok {
		return s.sendCopied(fd, p)
	}
	for s.sentRegion < r.Bytes {
		n := min(r.Bytes-s.sentRegion, residentBytes)
		cold := !r.Resident && !s.resident(r, n)
		n, err := s.sendfile(fd, int(file), r, n, cold)
		switch {
		case err == nil && n == 0:
			r.Handle.Fail(ErrShortRegion)
			s.err = ErrShortRegion
			return false
		case errors.Is(err, unix.EIO):
			// As in readRegion.
			s.err = os.NewSyscallError("sendfile", err)
			r.Handle.Fail(s.err)
			return false
		case err == nil:
			s.sentRegion += n
			s.progress.Add(1)
			s.stats.add(p.tier, SendfilePath, n)
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		default:
			s.err = os.NewSyscallError("sendfile", err)
			return false
		}
	}
	return true
}

func (s *Sender) sendfile(fd, file int, r disk.Region, n int64, cold bool) (int64, error) {
	if cold {
		n = min(n, coldBytes)
		defer s.gate.enter(r)()
	}
	position := r.Position + s.sentRegion
	m, err := unix.Sendfile(fd, file, &position, int(n))
	return int64(m), err
}

// resident tells whether the next n bytes of the region lie in the page cache;
// what was found so is not asked again when the socket was full in between.
func (s *Sender) resident(r disk.Region, n int64) bool {
	if s.sentRegion+n <= s.checked {
		return true
	}
	if !isResident(r, s.sentRegion, n) {
		return false
	}
	s.checked = s.sentRegion + n
	return true
}

// sendCopied sends the rest of a region whose file has no descriptor.
func (s *Sender) sendCopied(fd int, p *placed) bool {
	b := GetBuffer(copyBytes)
	defer b.Free()
	for s.sentRegion < p.region.Bytes {
		chunk := b.B[:min(p.region.Bytes-s.sentRegion, copyBytes)]
		if s.err = s.readRegion(p.region, chunk, s.sentRegion); s.err != nil {
			return false
		}
		n, err := unix.SendmsgN(fd, chunk, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
		switch {
		case err == nil:
			s.sentRegion += int64(n)
			s.progress.Add(1)
			s.stats.add(p.tier, CopyPath, int64(n))
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		default:
			s.err = os.NewSyscallError("sendmsg", err)
			return false
		}
	}
	return true
}

// noCachestat is set once the kernel has said that it has no cachestat(2).
var noCachestat atomic.Bool

// isResident tells whether n bytes of the region, from off on, lie in the page
// cache. Where neither cachestat nor preadv2 can say, they do not.
func isResident(r disk.Region, off, n int64) bool {
	fd, ok := r.Handle.File().Fd()
	if !ok {
		return true
	}
	from := r.Position + off
	if !noCachestat.Load() {
		page := int64(os.Getpagesize())
		var stat unix.Cachestat_t
		span := unix.CachestatRange{Off: uint64(from), Len: uint64(n)}
		if err := unix.Cachestat(uint(fd), &span, &stat, 0); err == nil {
			return stat.Cache == uint64((from+n-1)/page-from/page+1)
		}
		noCachestat.Store(true)
	}
	return readsAtOnce(int(fd), from) && readsAtOnce(int(fd), from+n-1)
}

func readsAtOnce(fd int, position int64) bool {
	var b [1]byte
	n, err := unix.Preadv2(fd, [][]byte{b[:]}, position, unix.RWF_NOWAIT)
	return err == nil && n == 1
}
