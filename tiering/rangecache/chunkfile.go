package rangecache

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// Key names a range of an object: Bytes bytes from Position. Two keys that
// overlap without being equal are unrelated to the cache.
type Key struct {
	Object   cluster.SegmentID
	Position int64
	Bytes    int64
}

// End is the position after the range.
func (k Key) End() int64 { return k.Position + k.Bytes }

func (k Key) String() string {
	return fmt.Sprintf("%s[%d,%d)", k.Object, k.Position, k.End())
}

const (
	chunkSuffix    = ".chunk"
	trailerMagic   = "SLRC"
	trailerVersion = 1
	trailerBytes   = 48

	// What a file costs beside its bytes: whole blocks, and its entry in the
	// directory. baseChargeBytes is the directory itself and the lock file.
	blockBytes       = 4096
	entryChargeBytes = 256
	baseChargeBytes  = 2 * blockBytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errBadChunkFile says why a chunk file cannot be used.
var errBadChunkFile = errors.New("bad chunk file")

// chargeBytes is what the file of a range of n bytes counts for.
func chargeBytes(n int64) int64 {
	blocks := (n + trailerBytes + blockBytes - 1) / blockBytes
	return blocks*blockBytes + entryChargeBytes
}

func fileName(k Key, serial uint64) string {
	return fmt.Sprintf("%s.%016x.%016x.%016x%s", hex.EncodeToString(k.Object[:]), k.Position, k.Bytes, serial, chunkSuffix)
}

// parseFileName is the inverse of fileName.
func parseFileName(name string) (Key, uint64, bool) {
	parts := strings.Split(strings.TrimSuffix(name, chunkSuffix), ".")
	if !strings.HasSuffix(name, chunkSuffix) || len(parts) != 4 {
		return Key{}, 0, false
	}
	var k Key
	id, err := hex.DecodeString(parts[0])
	if err != nil || len(id) != len(k.Object) {
		return Key{}, 0, false
	}
	copy(k.Object[:], id)
	var n [3]uint64
	for i, s := range parts[1:] {
		if n[i], err = strconv.ParseUint(s, 16, 64); err != nil || len(s) != 16 {
			return Key{}, 0, false
		}
	}
	k.Position, k.Bytes = int64(n[0]), int64(n[1])
	if k.Position < 0 || k.Bytes <= 0 || fileName(k, n[2]) != name {
		return Key{}, 0, false
	}
	return k, n[2], true
}

func encodeTrailer(k Key, crc uint32) []byte {
	b := make([]byte, trailerBytes)
	copy(b, trailerMagic)
	b[4] = trailerVersion
	copy(b[8:24], k.Object[:])
	binary.BigEndian.PutUint64(b[24:], uint64(k.Position))
	binary.BigEndian.PutUint64(b[32:], uint64(k.Bytes))
	binary.BigEndian.PutUint32(b[40:], crc)
	binary.BigEndian.PutUint32(b[44:], crc32.Checksum(b[:44], castagnoli))
	return b
}

// checkTrailer returns the data checksum of a trailer that belongs to k.
func checkTrailer(b []byte, k Key) (uint32, error) {
	switch {
	case len(b) != trailerBytes || string(b[:4]) != trailerMagic:
		return 0, fmt.Errorf("no trailer: %w", errBadChunkFile)
	case b[4] != trailerVersion:
		return 0, fmt.Errorf("trailer version %d: %w", b[4], errBadChunkFile)
	case crc32.Checksum(b[:44], castagnoli) != binary.BigEndian.Uint32(b[44:]):
		return 0, fmt.Errorf("trailer checksum: %w", errBadChunkFile)
	case string(b[8:24]) != string(k.Object[:]),
		int64(binary.BigEndian.Uint64(b[24:])) != k.Position,
		int64(binary.BigEndian.Uint64(b[32:])) != k.Bytes:
		return 0, fmt.Errorf("trailer of another range: %w", errBadChunkFile)
	}
	return binary.BigEndian.Uint32(b[40:]), nil
}

// verifyFile reads a whole chunk file and compares it with its trailer.
func verifyFile(fs disk.FS, name string, k Key) error {
	f, err := fs.OpenReadOnly(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return err
	}
	if size != k.Bytes+trailerBytes {
		return fmt.Errorf("size %d, want %d: %w", size, k.Bytes+trailerBytes, errBadChunkFile)
	}
	var trailer [trailerBytes]byte
	if err := readFull(f, trailer[:], k.Bytes); err != nil {
		return err
	}
	want, err := checkTrailer(trailer[:], k)
	if err != nil {
		return err
	}
	buf := make([]byte, min(k.Bytes, 256<<10))
	crc := uint32(0)
	for pos := int64(0); pos < k.Bytes; {
		n := min(int64(len(buf)), k.Bytes-pos)
		if err := readFull(f, buf[:n], pos); err != nil {
			return err
		}
		crc = crc32.Update(crc, castagnoli, buf[:n])
		pos += n
	}
	if crc != want {
		return fmt.Errorf("checksum %08x, want %08x: %w", crc, want, errBadChunkFile)
	}
	return nil
}

// readFull reads len(p) bytes; an io.EOF that comes with all of them is none.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	if n, err := r.ReadAt(p, off); n < len(p) {
		return err
	}
	return nil
}
