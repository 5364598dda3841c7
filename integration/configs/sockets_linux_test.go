package configs

import (
	"encoding/binary"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// socketBuffer reads a buffer's size of the server's end of a connection from the
// kernel (sock_diag): 1 is the receive buffer, 3 the send buffer. The kernel
// doubles what it is asked for.
func socketBuffer(t *testing.T, key string, which int) {
	for _, size := range []string{"20000", "60000"} {
		n := with(t, key+"="+size)
		c := kit.Dial(t, n.Addr)
		want := map[string]uint32{"20000": 40000, "60000": 120000}[size]
		n.eventually("the buffer has its size", func() bool { return skmem(t, c.LocalAddr(), c.RemoteAddr())[which] == want })
	}
}

// skmem is the memory information of the socket whose peer is client.
func skmem(t *testing.T, client, server net.Addr) [9]uint32 {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, 4) // NETLINK_SOCK_DIAG
	require.NoError(t, err)
	defer syscall.Close(fd)
	const skmeminfo = 7
	req := make([]byte, 72) // nlmsghdr and inet_diag_req_v2
	binary.NativeEndian.PutUint32(req[0:], uint32(len(req)))
	binary.NativeEndian.PutUint16(req[4:], 20) // SOCK_DIAG_BY_FAMILY
	binary.NativeEndian.PutUint16(req[6:], syscall.NLM_F_REQUEST|syscall.NLM_F_DUMP)
	req[16], req[17], req[18] = syscall.AF_INET, syscall.IPPROTO_TCP, 1<<(skmeminfo-1)
	binary.NativeEndian.PutUint32(req[20:], 1<<1) // established
	require.NoError(t, syscall.Sendto(fd, req, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}))
	buf := make([]byte, 1<<16)
	for {
		size, _, err := syscall.Recvfrom(fd, buf, 0)
		require.NoError(t, err)
		messages, err := syscall.ParseNetlinkMessage(buf[:size])
		require.NoError(t, err)
		for _, m := range messages {
			if m.Header.Type == syscall.NLMSG_DONE {
				return [9]uint32{}
			}
			if len(m.Data) < 72 || int(binary.BigEndian.Uint16(m.Data[4:])) != server.(*net.TCPAddr).Port ||
				int(binary.BigEndian.Uint16(m.Data[6:])) != client.(*net.TCPAddr).Port {
				continue
			}
			for attr := m.Data[72:]; len(attr) >= 4; {
				length := int(binary.NativeEndian.Uint16(attr))
				if binary.NativeEndian.Uint16(attr[2:]) == skmeminfo {
					var out [9]uint32
					for i := range out {
						if at := 4 + 4*i; at+4 <= length {
							out[i] = binary.NativeEndian.Uint32(attr[at:])
						}
					}
					return out
				}
				attr = attr[min(len(attr), (length+3)&^3):]
			}
		}
	}
}
