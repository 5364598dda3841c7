package recordbatch

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// idleReader yields a byte after a number of reads that yield none.
type idleReader struct {
	idle int
	data []byte
	end  error
}

func (r *idleReader) Read(p []byte) (int, error) {
	if r.idle > 0 {
		r.idle--
		return 0, nil
	}
	if len(r.data) == 0 {
		return 0, r.end
	}
	n := copy(p, r.data[:1])
	r.data = r.data[n:]
	return n, nil
}

// TestReadAllEndsWithItsReader: at the end, at an error, at too much, or where the
// reader yields nothing for too long; what was in the buffer before stays.
func TestReadAllEndsWithItsReader(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 3*growBytes)
	for _, c := range []struct {
		name     string
		r        idleReader
		bytesMax int
		want     error
	}{
		{"just what may be", idleReader{0, data, io.EOF}, len(data), nil},
		{"a byte more", idleReader{0, data, io.EOF}, len(data) - 1, ErrTooLarge},
		{"nothing", idleReader{0, nil, io.EOF}, 0, nil},
		{"idle for long", idleReader{idleReadsMax - 1, data, io.EOF}, len(data), nil},
		{"idle for too long", idleReader{idleReadsMax, data, io.EOF}, len(data), io.ErrNoProgress},
		{"broken", idleReader{0, data, io.ErrUnexpectedEOF}, len(data), io.ErrUnexpectedEOF},
	} {
		got, err := readAll(Gzip, []byte("head"), &c.r, 10, c.bytesMax)
		require.ErrorIs(t, err, c.want, c.name)
		want := "head"
		if c.want == nil {
			want += string(data[:c.bytesMax])
		}
		require.Equal(t, want, string(got), c.name)
		if c.want != nil && !errors.Is(c.want, ErrTooLarge) {
			require.ErrorIs(t, err, ErrBadCompression, c.name)
		}
	}
}
