package recordbatch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is a batch's compression type.
type Codec int8

// Kafka's codecs.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// Valid reports whether there is such a codec.
func (c Codec) Valid() bool { return c >= None && c <= Zstd }

func (c Codec) String() string {
	if !c.Valid() {
		return fmt.Sprintf("codec %d", int8(c))
	}
	return codecNames[c]
}

// ParseCodec reads the name of a codec as in compression.type.
func ParseCodec(name string) (Codec, error) {
	for i, n := range codecNames {
		if n == name {
			return Codec(i), nil
		}
	}
	return None, fmt.Errorf("%w %q", ErrUnknownCodec, name)
}

var (
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	lz4Readers  = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	zstdReaders = sync.Pool{New: func() any { return newZstdReader() }}
)

// Compress appends the compressed form of src to dst, at the codec's usual
// level. It panics on a codec that is not Valid.
func (c Codec) Compress(dst, src []byte) []byte {
	return c.CompressAt(c.DefaultLevel(), dst, src)
}

// CompressAt is Compress at one of Kafka's levels; see DefaultLevel.
func (c Codec) CompressAt(level int, dst, src []byte) []byte {
	switch c {
	case None:
		return append(dst, src...)
	case Gzip:
		out := bytes.NewBuffer(dst)
		pool := &gzipWriters[gzipSlot(level)]
		w, ok := pool.Get().(*gzip.Writer)
		if !ok {
			w = newGzipWriter(level)
		}
		defer pool.Put(w)
		w.Reset(out)
		mustWrite(w, src)
		return out.Bytes()
	case Snappy:
		return appendXerial(dst, src)
	case LZ4:
		out := bytes.NewBuffer(dst)
		pool := &lz4Writers[lz4Slot(level)]
		w, ok := pool.Get().(*lz4.Writer)
		if !ok {
			w = newLZ4Writer(level)
		}
		defer pool.Put(w)
		w.Reset(out)
		mustWrite(w, src)
		return out.Bytes()
	case Zstd:
		speed := zstd.EncoderLevelFromZstd(level)
		pool := &zstdWriters[speed]
		w, ok := pool.Get().(*zstd.Encoder)
		if !ok {
			w = newZstdWriter(speed)
		}
		defer pool.Put(w)
		return w.EncodeAll(src, dst)
	}
	panic(c.String())
}

// Decompress appends the decompressed form of src to dst, which it may grow. It
// returns ErrTooLarge, having made no more than that, where that would be more
// than bytesMax bytes (B4); ErrBadCompression, ErrUnknownCodec.
func (c Codec) Decompress(dst, src []byte, bytesMax int) ([]byte, error) {
	switch c {
	case None:
		if len(src) > bytesMax {
			return dst, tooLarge(bytesMax)
		}
		return append(dst, src...), nil
	case Gzip:
		r := gzipReaders.Get().(*gzip.Reader)
		defer gzipReaders.Put(r)
		if err := r.Reset(bytes.NewReader(src)); err != nil {
			return dst, badCompression(c, err)
		}
		return readAll(c, dst, r, len(src), bytesMax)
	case Snappy:
		return decodeSnappy(dst, src, bytesMax)
	case LZ4:
		r := lz4Readers.Get().(*lz4.Reader)
		defer lz4Readers.Put(r)
		r.Reset(bytes.NewReader(src))
		return readAll(c, dst, r, len(src), bytesMax)
	case Zstd:
		return decodeZstd(dst, src, bytesMax)
	}
	return dst, fmt.Errorf("%w %d", ErrUnknownCodec, c)
}

// mustWrite writes to a compressor over memory, which cannot fail.
func mustWrite(w io.WriteCloser, src []byte) {
	if _, err := w.Write(src); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
}

// growBytes is how much is made at once, at least, while the size is unknown.
const growBytes = 4096

// idleReadsMax bounds the reads of a decompressor that yield nothing.
const idleReadsMax = 100

// readAll reads r to its end behind dst, at most bytesMax bytes.
func readAll(c Codec, dst []byte, r io.Reader, sizeHint, bytesMax int) ([]byte, error) {
	start := len(dst)
	dst = growTo(dst, start+min(max(4*sizeHint, growBytes), bytesMax+1))
	for idle := 0; ; {
		if len(dst) == cap(dst) {
			dst = growTo(dst, start+min(2*(len(dst)-start), bytesMax+1))
		}
		// One byte more than is allowed tells the end from too much.
		free := dst[len(dst):min(cap(dst), start+bytesMax+1)]
		n, err := r.Read(free)
		dst = dst[:len(dst)+n]
		if len(dst)-start > bytesMax {
			return dst[:start], tooLarge(bytesMax)
		}
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err == nil && n == 0 {
			if idle++; idle == idleReadsMax {
				err = io.ErrNoProgress
			}
		}
		if err != nil {
			return dst[:start], badCompression(c, err)
		}
	}
}

// growTo makes the capacity of dst at least n.
func growTo(dst []byte, n int) []byte {
	if cap(dst) >= n {
		return dst
	}
	grown := make([]byte, len(dst), n)
	copy(grown, dst)
	return grown
}

// zstdWindowBytes is the window that every decoder should support (RFC 8878),
// and that of level 19; those above need a bound of up to 128 MiB.
const zstdWindowBytes = 8 << 20

// zstdReader is a decoder with the bound that it was last given.
type zstdReader struct {
	decoder  *zstd.Decoder
	bytesMax int
}

func newZstdReader() *zstdReader {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return &zstdReader{decoder: r}
}

func decodeZstd(dst, src []byte, bytesMax int) ([]byte, error) {
	r := zstdReaders.Get().(*zstdReader)
	defer zstdReaders.Put(r)
	// The decoder's bound is also that of the window, and even a small frame
	// may have a large one.
	if limit := max(bytesMax, zstdWindowBytes); r.bytesMax != limit {
		if err := r.decoder.ResetWithOptions(nil, zstd.WithDecoderMaxMemory(uint64(limit))); err != nil {
			return dst, badCompression(Zstd, err)
		}
		r.bytesMax = limit
	}
	// The decoder counts what is in the buffer already, so it gets the rest.
	start := len(dst)
	out, err := r.decoder.DecodeAll(src, dst[start:])
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), err == nil && len(out) > bytesMax:
		return dst, tooLarge(bytesMax)
	case err != nil:
		return dst, badCompression(Zstd, err)
	case start == 0:
		return out, nil
	}
	return append(dst, out...), nil
}

func tooLarge(bytesMax int) error {
	return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, bytesMax)
}

func badCompression(c Codec, cause error) error {
	return fmt.Errorf("%w: %v: %w", ErrBadCompression, c, cause)
}
