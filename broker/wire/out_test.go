package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
)

// sharedFile is a file whose references are counted.
type sharedFile struct {
	handle *disk.Handle
	bytes  []byte
	closed atomic.Int32
}

func newSharedFile(t testing.TB, fs disk.FS, name string, n int) *sharedFile {
	t.Helper()
	f, err := fs.Create(name)
	require.NoError(t, err)
	s := &sharedFile{bytes: payload(n, 3)}
	_, err = f.WriteAt(s.bytes, 0)
	require.NoError(t, err)
	s.handle = disk.NewHandle(f, func(error) { s.closed.Add(1) })
	return s
}

func (s *sharedFile) region(position, n int) disk.Region {
	if !s.handle.Acquire() {
		panic("file closed")
	}
	return disk.Region{Handle: s.handle, Position: int64(position), Bytes: int64(n), Resident: position%2 == 0}
}

// done gives the file's own reference back, which must have been the last.
func (s *sharedFile) done(t testing.TB) {
	t.Helper()
	require.Zero(t, s.closed.Load())
	s.handle.Release()
	require.Equal(t, int32(1), s.closed.Load(), "regions are still held")
}

func tcpPair(t testing.TB) (server, client *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	got := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		got <- c
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	s := <-got
	t.Cleanup(func() { _ = s.Close(); _ = c.Close() })
	return s.(*net.TCPConn), c.(*net.TCPConn)
}

func newSender(c net.Conn) (*Sender, *Stats) {
	stats := &Stats{}
	return NewSender(c, NewGate(nil, nil), stats, &atomic.Uint64{}), stats
}

// frames writes responses with regions of many sizes and returns the bytes that
// the client must see.
func frames(t testing.TB, o *Out, file *sharedFile) []byte {
	t.Helper()
	var want []byte
	for i, sizes := range [][]int{{}, {10}, {CopyBelowBytes - 1, CopyBelowBytes}, {300000}, {50000, 5, 2 << 20, 70000}, {0}} {
		correlation := int32(100 + i)
		body := []byte{}
		o.Begin(correlation, i%2 == 0)
		if i%2 == 0 {
			body = append(body, 0)
		}
		for k, n := range sizes {
			text := fmt.Sprintf("<%d.%d>", i, k)
			o.Buf = append(o.Buf, text...)
			body = append(body, text...)
			require.NoError(t, o.Place(file.region(k*1001, n), Tier(k%2)))
			body = append(body, file.bytes[k*1001:k*1001+n]...)
		}
		o.Buf = append(o.Buf, "end"...)
		o.End()
		body = append(body, "end"...)
		want = binary.BigEndian.AppendUint32(want, uint32(len(body)+4))
		want = binary.BigEndian.AppendUint32(want, uint32(correlation))
		want = append(want, body...)
	}
	return want
}

func fileSystems(t testing.TB) map[string]disk.FS {
	return map[string]disk.FS{"files": disk.OS(), "memory": disk.NewCrash(1)}
}

func folder(t testing.TB, fs disk.FS) string {
	dir := filepath.ToSlash(t.TempDir())
	require.NoError(t, fs.MkdirAll(dir))
	return dir
}

func TestResponsesArriveWholeAndRegionsAreReleased(t *testing.T) {
	for name, fs := range fileSystems(t) {
		for _, kind := range []string{"tcp", "pipe"} {
			t.Run(name+" over "+kind, func(t *testing.T) {
				file := newSharedFile(t, fs, folder(t, fs)+"/f", 3<<20)
				var server, client net.Conn
				if kind == "pipe" {
					server, client = net.Pipe()
				} else {
					s, c := tcpPair(t)
					// Small buffers: every send meets a full socket.
					require.NoError(t, s.SetWriteBuffer(64<<10))
					require.NoError(t, c.SetReadBuffer(64<<10))
					server, client = s, c
				}
				sender, stats := newSender(server)
				o := sender.NewOut()
				want := frames(t, o, file)
				require.Equal(t, len(want), o.Bytes())
				sent := make(chan error, 1)
				go func() { sent <- sender.Send(o) }()
				got := make([]byte, len(want))
				_, err := io.ReadFull(client, got)
				require.NoError(t, err)
				require.NoError(t, <-sent)
				require.True(t, bytes.Equal(want, got))
				require.Zero(t, o.Bytes())
				o.Free()
				file.done(t)

				total := stats.Bytes(LocalTier, CopyPath) + stats.Bytes(RemoteTier, CopyPath)
				sendfile := stats.Bytes(LocalTier, SendfilePath) + stats.Bytes(RemoteTier, SendfilePath)
				all := int64(10 + CopyBelowBytes - 1 + CopyBelowBytes + 300000 + 50000 + 5 + 2<<20 + 70000)
				require.Equal(t, all, total+sendfile)
				if name == "files" && kind == "tcp" && canSendfile {
					require.Equal(t, int64(10+CopyBelowBytes-1+5), total)
				} else {
					require.Zero(t, sendfile)
				}
			})
		}
	}
}

func TestAFileThatEndsEarlyEndsTheConnection(t *testing.T) {
	for name, fs := range fileSystems(t) {
		t.Run(name, func(t *testing.T) {
			file := newSharedFile(t, fs, folder(t, fs)+"/f", 100000)
			server, client := tcpPair(t)
			go func() { _, _ = io.Copy(io.Discard, client) }()
			sender, _ := newSender(server)
			o := sender.NewOut()
			o.Begin(1, false)
			require.ErrorIs(t, o.Place(file.region(99999, 10), LocalTier), ErrShortRegion, "a small one is found out in time")
			require.NoError(t, o.Place(file.region(0, 50000), LocalTier))
			require.NoError(t, o.Place(file.region(50000, 60000), LocalTier))
			o.End()
			require.ErrorIs(t, sender.Send(o), ErrShortRegion)
			o.Free()
			file.done(t)
		})
	}
}

// TestADiskThatFailsIsRemembered: whatever is sent and however, who acquires the
// file next can know that the disk failed under it.
func TestADiskThatFailsIsRemembered(t *testing.T) {
	for name, bytes := range map[string]int{"read into the buffer": 10, "copied": CopyBelowBytes} {
		t.Run(name, func(t *testing.T) {
			fs := disk.NewFault(disk.NewCrash(1), nil)
			file := newSharedFile(t, fs, "/f", 100000)
			server, client := tcpPair(t)
			go func() { _, _ = io.Copy(io.Discard, client) }()
			sender, _ := newSender(server)
			fs.SetInjector(func(disk.Op) error { return syscall.EIO })
			o := sender.NewOut()
			o.Begin(1, false)
			err := o.Place(file.region(0, bytes), LocalTier)
			o.End()
			if err == nil {
				err = sender.Send(o)
			}
			require.ErrorIs(t, err, syscall.EIO)
			require.ErrorIs(t, file.handle.Failed(), syscall.EIO)
			o.Free()
			fs.SetInjector(nil)
			file.done(t)
		})
	}
}

func TestAClientThatGoesAwayReleasesRegions(t *testing.T) {
	file := newSharedFile(t, disk.OS(), folder(t, disk.OS())+"/f", 8<<20)
	server, client := tcpPair(t)
	require.NoError(t, server.SetWriteBuffer(64<<10))
	sender, _ := newSender(server)
	o := sender.NewOut()
	o.Begin(1, false)
	require.NoError(t, o.Place(file.region(0, 8<<20), LocalTier))
	o.End()
	sent := make(chan error, 1)
	go func() { sent <- sender.Send(o) }()
	_, err := io.ReadFull(client, make([]byte, 1000))
	require.NoError(t, err)
	require.NoError(t, client.SetLinger(0))
	require.NoError(t, client.Close())
	require.Error(t, <-sent)
	o.Free()
	file.done(t)
}

func TestAbortAndRollbackReleaseWhatCameAfter(t *testing.T) {
	file := newSharedFile(t, disk.OS(), folder(t, disk.OS())+"/f", 1<<20)
	sender, _ := newSender(nil)
	o := sender.NewOut()
	o.Begin(1, false)
	require.NoError(t, o.Place(file.region(0, 40000), LocalTier))
	o.End()
	before := o.Bytes()
	o.Begin(2, true)
	require.NoError(t, o.Place(file.region(0, 40000), LocalTier))
	mark := o.Mark()
	require.NoError(t, o.Place(file.region(0, 40000), LocalTier))
	o.Buf = append(o.Buf, "gone"...)
	o.Rollback(mark)
	require.Equal(t, before+9+40000, o.Bytes())
	o.Abort()
	o.Abort()
	require.Equal(t, before, o.Bytes())
	require.True(t, o.HasRegions())
	o.Begin(3, false)
	require.Error(t, sender.Send(o), "an open frame is not sent")
	o.Free()
	file.done(t)
}

func TestTheGateKnowsDirectories(t *testing.T) {
	full := make(chan struct{}, 1)
	g := NewGate([]string{"/data/a", "/data/b/"}, func() { full <- struct{}{} })
	require.Equal(t, 0, g.index("/data/a/t-0/0.log"))
	require.Equal(t, 1, g.index("/data/b/x"))
	require.Equal(t, 2, g.index("/data/ab/x"))
	file := newSharedFile(t, disk.NewCrash(1), "/f", 10)
	r := file.region(0, 10)
	var leave []func()
	for range ColdReadsPerDir {
		leave = append(leave, g.enter(r))
	}
	entered := make(chan func())
	go func() { entered <- g.enter(r) }()
	<-full
	leave[0]()
	(<-entered)()
	for _, l := range leave[1:] {
		l()
	}
	r.Release()
	file.done(t)
}

func TestWhatWasJustWrittenIsResident(t *testing.T) {
	if !canSendfile {
		t.Skip("the system does not say what is resident")
	}
	file := newSharedFile(t, disk.OS(), folder(t, disk.OS())+"/f", 1<<20)
	r := file.region(1, 1<<20-1)
	require.True(t, isResident(r, 0, 1<<20-1))
	fd, _ := r.Handle.File().Fd()
	require.True(t, readsAtOnce(int(fd), 5))
	require.False(t, readsAtOnce(int(fd), 2<<20))
	require.False(t, isResident(r, 0, 2<<20), "not past the file's end")
	r.Release()
	file.done(t)
}

func BenchmarkRegion(b *testing.B) {
	for _, size := range []int{4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10} {
		for _, way := range []string{"copy", "sendfile"} {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, way), func(b *testing.B) {
				file := newSharedFile(b, disk.OS(), folder(b, disk.OS())+"/f", 4<<20)
				server, client := tcpPair(b)
				go func() { _, _ = io.Copy(io.Discard, client) }()
				sender, _ := newSender(server)
				o := sender.NewOut()
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := range b.N {
					r := file.region(i%64*2, size)
					o.Begin(1, true)
					if way == "copy" {
						n := len(o.Buf)
						o.Buf = append(o.Buf, make([]byte, size)...)
						if err := sender.readRegion(r, o.Buf[n:], 0); err != nil {
							b.Fatal(err)
						}
						r.Release()
					} else {
						o.regions = append(o.regions, placed{at: len(o.Buf), region: r})
						o.regionBytes += size
					}
					o.End()
					if err := sender.Send(o); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func TestManySmallRegionsAreNotHeldInMemory(t *testing.T) {
	file := newSharedFile(t, disk.OS(), folder(t, disk.OS())+"/f", 1<<20)
	server, client := tcpPair(t)
	sender, _ := newSender(server)
	o := sender.NewOut()
	o.Begin(1, false)
	want := make([]byte, 8)
	for i := range 500 {
		require.NoError(t, o.Place(file.region(i, 4000), LocalTier))
		want = append(want, file.bytes[i:i+4000]...)
	}
	o.End()
	require.Less(t, len(o.Buf), copyMostBytes+4000)
	sent := make(chan error, 1)
	go func() { sent <- sender.Send(o) }()
	got := make([]byte, len(want))
	_, err := io.ReadFull(client, got)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.True(t, bytes.Equal(want[8:], got[8:]))
	o.Free()
	file.done(t)
}
