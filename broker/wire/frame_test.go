package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func framed(payloads ...[]byte) []byte {
	var b []byte
	for _, p := range payloads {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}

func payload(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
	return b
}

func TestFramesOfAnySizeComeOutAsTheyWentIn(t *testing.T) {
	var payloads [][]byte
	for i, n := range []int{8, 9, 100, 5000, 4092, 4096, 70000, 68<<10 - 4, 68<<10 - 3, 300000, 12, 3 << 20, 64, 5 << 20, 8} {
		payloads = append(payloads, payload(n, byte(i)))
	}
	stream := framed(payloads...)
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, src := range map[string]io.Reader{
		"whole":     bytes.NewReader(stream),
		"half":      iotest.HalfReader(bytes.NewReader(stream)),
		"data, EOF": iotest.DataErrReader(bytes.NewReader(stream)),
		"ragged":    &ragged{b: stream, rnd: rnd},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReader(src, 10<<20)
			defer r.Close()
			for _, want := range payloads {
				got, err := r.Next()
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, got), "frame of %d bytes", len(want))
			}
			_, err := r.Next()
			require.ErrorIs(t, err, io.EOF)
		})
	}
}

// ragged reads pieces of random size.
type ragged struct {
	b   []byte
	rnd *rand.Rand
}

func (r *ragged) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := min(len(p), len(r.b), 1+r.rnd.IntN(9000))
	copy(p, r.b[:n])
	r.b = r.b[n:]
	return n, nil
}

func TestBufferedTellsOfWholeFramesOnly(t *testing.T) {
	stream := framed(payload(20, 1), payload(20, 2), payload(20, 3))
	r := NewReader(bytes.NewReader(stream[:len(stream)-1]), 1<<20)
	defer r.Close()
	require.False(t, r.Buffered())
	_, err := r.Next()
	require.NoError(t, err)
	require.True(t, r.Buffered())
	_, err = r.Next()
	require.NoError(t, err)
	require.False(t, r.Buffered(), "the third frame lacks a byte")
	require.True(t, r.Partial())
	_, err = r.Next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestFrameSizesOutOfBoundsAreRefused(t *testing.T) {
	for _, size := range []int32{-1, -1 << 31, 0, 7, 101, 1<<31 - 1} {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(size))
		r := NewReader(bytes.NewReader(b[:]), 100)
		_, err := r.Next()
		require.ErrorIs(t, err, ErrFrameSize, "%d", size)
		r.Close()
	}
}

func TestAnnouncedBytesCostNothingUntilTheyArrive(t *testing.T) {
	b := append([]byte{0x40, 0, 0, 0}, payload(100, 1)...) // 1 GiB
	r := NewReader(bytes.NewReader(b), 1<<30)
	_, err := r.Next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.LessOrEqual(t, cap(r.large.B), trustBytes)
	r.Close()
}

func TestPooledBuffersHoldWhatWasAskedFor(t *testing.T) {
	for _, n := range []int{0, 1, 512, 513, 4096, 1 << 20, 1<<20 + 64<<10 + 1, 40 << 20} {
		b := GetBuffer(n)
		require.GreaterOrEqual(t, cap(b.B), n)
		require.Empty(t, b.B)
		b.B = append(b.B, 1)
		b.Free()
		again := GetBuffer(n)
		require.GreaterOrEqual(t, cap(again.B), n)
		require.Empty(t, again.B)
		again.Free()
	}
}

func FuzzReader(f *testing.F) {
	f.Add(framed(payload(20, 1), payload(300, 2)))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(iotest.HalfReader(bytes.NewReader(b)), 1<<20)
		defer r.Close()
		rest := b
		for {
			frame, err := r.Next()
			if err != nil {
				if !errors.Is(err, ErrFrameSize) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				return
			}
			if !bytes.Equal(frame, rest[4:4+len(frame)]) {
				t.Fatal("frame differs from the stream")
			}
			rest = rest[4+len(frame):]
			q, err := ParseRequest(frame)
			if err == nil {
				_ = CheckShape(&q)
			}
		}
	})
}
