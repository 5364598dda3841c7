package api_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// exchange sends one encoded request n times, with up to depth in flight, and
// reads the answers without allocating.
func exchange(b testing.TB, addr string, request []byte, n, depth int, buf []byte) {
	c, err := net.Dial("tcp", addr)
	require.NoError(b, err)
	defer c.Close()
	sent := 0
	for ; sent < min(depth, n); sent++ {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
	}
	var size [4]byte
	for range n {
		if _, err := io.ReadFull(c, size[:]); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf[:binary.BigEndian.Uint32(size[:])]); err != nil {
			b.Fatal(err)
		}
		if sent < n {
			if _, err := c.Write(request); err != nil {
				b.Fatal(err)
			}
			sent++
		}
	}
}

func BenchmarkProduceSmall(b *testing.B) {
	for _, conns := range []int{1, 50} {
		for _, depth := range []int{1, 5} {
			b.Run(fmt.Sprintf("conns=%d/inflight=%d", conns, depth), func(b *testing.B) {
				benchProduce(b, conns, depth, batch(now(), string(make([]byte, 100))))
			})
		}
	}
}

func BenchmarkProduce16KiB(b *testing.B) {
	values := make([]string, 150)
	for i := range values {
		values[i] = string(make([]byte, 100))
	}
	benchProduce(b, 1, 1, batch(now(), values...))
}

func benchProduce(b *testing.B, conns, depth int, records []byte) {
	k := newKit(b, nil)
	id := k.topic("t", 1)
	req := produceRequest(1, "t", id, map[int32][]byte{0: records})
	req.SetVersion(11)
	request := kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 1)
	b.SetBytes(int64(len(records)))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range conns {
		wg.Go(func() { exchange(b, k.addr, request, b.N/conns+1, depth, make([]byte, 1000)) })
	}
	wg.Wait()
}

func BenchmarkFetch(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			k := newKit(b, nil)
			id := k.topic("t", 1, "max.message.bytes", "2000000")
			ask[*kmsg.ProduceResponse](k.dial(), produceRequest(1, "t", id, map[int32][]byte{0: batch(now(), string(make([]byte, size)))}), 11)
			req := fetchRequest("t", id, 0)
			req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = 4<<20, 4<<20
			req.SetVersion(13)
			request := kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 1)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			exchange(b, k.addr, request, b.N, 1, make([]byte, 4<<20))
		})
	}
}
