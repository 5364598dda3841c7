package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// ReadRange returns exactly n bytes from position off; fewer is an error that
// wraps io.ErrUnexpectedEOF.
func ReadRange(ctx context.Context, s Store, key string, off, n int64) ([]byte, error) {
	r, err := s.Get(ctx, key, off, n)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, n)
	_, err = io.ReadFull(r, buf)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read %d bytes at %d of %q: %w", n, off, key, err)
	}
	return buf, nil
}

// ErrTooLarge is an object above the limit of ReadAll.
var ErrTooLarge = errors.New("the object is larger than expected")

// ReadAll returns a small object, and ErrTooLarge where it has more than
// maxBytes.
func ReadAll(ctx context.Context, s Store, key string, maxBytes int64) ([]byte, error) {
	r, err := s.Get(ctx, key, 0, -1)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if cerr := r.Close(); err == nil && int64(len(b)) <= maxBytes {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", key, err)
	}
	if int64(len(b)) > maxBytes {
		return nil, fmt.Errorf("read %q: %w: over %d bytes", key, ErrTooLarge, maxBytes)
	}
	return b, nil
}

// SameObject reports whether key holds an object of just this size and
// checksum; where the store keeps no checksum the object is read.
func SameObject(ctx context.Context, s Store, key string, size int64, crc uint32) (bool, error) {
	info, err := s.Head(ctx, key)
	if err != nil || info.Bytes != size {
		return false, err
	}
	if info.HasCRC {
		return info.CRC32C == crc, nil
	}
	got, err := readCRC(ctx, s, key)
	return err == nil && got == crc, err
}

func readCRC(ctx context.Context, s Store, key string) (uint32, error) {
	r, err := s.Get(ctx, key, 0, -1)
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Close() }()
	var crc uint32
	buf := make([]byte, readBufferBytes)
	for {
		n, err := r.Read(buf)
		crc = UpdateCRC32C(crc, buf[:n])
		if err == io.EOF {
			return crc, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// Probe checks that the store answers and lets us list: one request. Its error
// carries the remedy for a person.
func Probe(ctx context.Context, s Store) error {
	prefix := s.Location().Prefix
	if prefix != "" {
		prefix += "/"
	}
	for _, err := range s.List(ctx, prefix, "") {
		return err
	}
	return nil
}

// ClampRange is how drivers read the range of Get: it returns the number of
// bytes to read of an object of size bytes, or ErrRange.
func ClampRange(off, n, size int64) (int64, error) {
	switch {
	case off < 0 || n == 0:
		return 0, fmt.Errorf("%w: %d bytes at %d", ErrRange, n, off)
	case off == 0 && n < 0:
		return size, nil
	case off >= size:
		return 0, fmt.Errorf("%w: position %d of %d bytes", ErrRange, off, size)
	case n < 0 || n > size-off:
		return size - off, nil
	}
	return n, nil
}
