package recordbatch_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
)

func compressible(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(rng.IntN(4))
	}
	return out
}

func TestCodecsRoundTrip(t *testing.T) {
	for _, codec := range codecs {
		for _, n := range []int{0, 1, 100, 32 << 10, 64<<10 + 1, 200_000} {
			src := compressible(n)
			if codec == recordbatch.Zstd && n == 0 {
				continue // makes nothing of nothing, and a Builder never asks
			}
			packed := codec.Compress([]byte("head"), src)
			require.True(t, bytes.HasPrefix(packed, []byte("head")))
			got, err := codec.Decompress([]byte("front"), packed[4:], max(n, 1))
			require.NoError(t, err, "%v of %d bytes", codec, n)
			require.Equal(t, "front", string(got[:5]))
			require.True(t, bytes.Equal(src, got[5:]), "%v of %d bytes", codec, n)
		}
	}
}

func TestDecompressKeepsToItsBound(t *testing.T) {
	for _, codec := range codecs {
		for _, n := range []int{1000, 100_000, 500_000} {
			packed := codec.Compress(nil, make([]byte, n))
			got, err := codec.Decompress(nil, packed, n)
			require.NoError(t, err, "%v: exactly %d bytes are allowed", codec, n)
			require.Len(t, got, n)
			for _, limit := range []int{n - 1, n / 2, 1, 0} {
				got, err = codec.Decompress(nil, packed, limit)
				require.ErrorIs(t, err, recordbatch.ErrTooLarge, "%v: %d bytes, limit %d", codec, n, limit)
				require.LessOrEqual(t, len(got), limit)
			}
		}
	}
}

func TestDecompressionBombCostsNoMoreThanItsBound(t *testing.T) {
	for _, codec := range codecs[1:] {
		limit := 512 << 10
		if codec == recordbatch.Zstd {
			limit = 8 << 20 // what any zstd decoder may need for its window
		}
		bomb := codec.Compress(nil, make([]byte, 4*limit))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := codec.Decompress(nil, bomb, limit)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, recordbatch.ErrTooLarge)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4*limit), codec.String())
	}
}

func TestSnappyOfEveryKindOfClient(t *testing.T) {
	src := compressible(100_000)
	got, err := recordbatch.Snappy.Decompress(nil, s2.EncodeSnappy(nil, src), len(src))
	require.NoError(t, err, "one bare block")
	require.Equal(t, src, got)

	framed := recordbatch.Snappy.Compress(nil, src)
	require.Equal(t, []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"), framed[:16])
	for n := 1; n < len(framed); n += 97 {
		got, err := recordbatch.Snappy.Decompress(nil, framed[:n], len(src))
		if err == nil {
			require.Less(t, len(got), len(src), "only between two blocks can a cut go unseen")
			require.True(t, bytes.HasPrefix(src, got))
			continue
		}
		require.ErrorIs(t, err, recordbatch.ErrCorrupt)
	}
}

func TestCodecNames(t *testing.T) {
	for _, codec := range codecs {
		got, err := recordbatch.ParseCodec(codec.String())
		require.NoError(t, err)
		require.Equal(t, codec, got)
	}
	_, err := recordbatch.ParseCodec("brotli")
	require.ErrorIs(t, err, recordbatch.ErrUnknownCodec)
	_, err = recordbatch.Codec(5).Decompress(nil, nil, 1)
	require.ErrorIs(t, err, recordbatch.ErrUnknownCodec)
	require.False(t, recordbatch.Codec(-1).Valid())
}

// FuzzDecompress: no input makes a codec panic or yield more than it may, and a
// longer bound never changes what a shorter one already allowed.
func FuzzDecompress(f *testing.F) {
	for _, codec := range codecs {
		f.Add(int8(codec), codec.Compress(nil, compressible(1000)))
		f.Add(int8(codec), codec.Compress(nil, make([]byte, 200_000)))
	}
	f.Add(int8(recordbatch.Snappy), s2.EncodeSnappy(nil, compressible(1000)))
	f.Fuzz(func(t *testing.T, codec int8, data []byte) {
		const limit = 1 << 16
		c := recordbatch.Codec(codec)
		got, err := c.Decompress(nil, data, limit)
		if len(got) > limit {
			t.Fatalf("%d bytes, limit %d", len(got), limit)
		}
		if err != nil {
			return
		}
		again, err := c.Decompress(make([]byte, 0, 10), data, 2*limit)
		if err != nil || !bytes.Equal(got, again) {
			t.Fatalf("a second time: %d bytes and %v, not %d", len(again), err, len(got))
		}
	})
}
