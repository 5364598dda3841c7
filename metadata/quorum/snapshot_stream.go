package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"strings"

	"strandline/metadata/disk"
)

const (
	streamMagic = "SLsnap01"
	// streamFixedBytes is the header without the files' names, and
	// streamFileBytes what each file adds to it besides its name.
	streamFixedBytes = 8 + 8 + 4
	streamFileBytes  = 2 + 8
	// maxSnapshotFiles bounds what a header may announce.
	maxSnapshotFiles = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errStreamMagic = errors.New("not a snapshot, or one of a newer format")
	errStreamName  = errors.New("file name is not allowed")
	errStreamCount = errors.New("too many files")
	errStreamCRC   = errors.New("checksum does not match")
	errStreamEnd   = errors.New("snapshot is cut short")
	errStreamMore  = errors.New("bytes after the end")
)

// snapshotFile is one file of a checkpoint.
type snapshotFile struct {
	Name  string
	Bytes int64
}

func streamHeader(applied uint64, files []snapshotFile) []byte {
	b := append([]byte(nil), streamMagic...)
	b = binary.LittleEndian.AppendUint64(b, applied)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(files)))
	for _, f := range files {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(f.Name)))
		b = append(b, f.Name...)
		b = binary.LittleEndian.AppendUint64(b, uint64(f.Bytes))
	}
	return b
}

// streamBytes is the length of the stream of these files.
func streamBytes(files []snapshotFile) int64 {
	n := int64(len(streamHeader(0, files))) + 4
	for _, f := range files {
		n += f.Bytes
	}
	return n
}

// streamReader makes a checkpoint folder into a stream, one file open at a time.
type streamReader struct {
	fs    disk.FS
	dir   string
	files []snapshotFile // not begun

	pending []byte // header or checksum, not yet read
	file    disk.File
	left    int64 // of file
	at      int64 // in file
	crc     uint32
	ended   bool
}

func newStreamReader(fs disk.FS, dir string, applied uint64, files []snapshotFile) *streamReader {
	return &streamReader{fs: fs, dir: dir, files: files, pending: streamHeader(applied, files)}
}

func (r *streamReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.pending) == 0 && r.left == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	if len(r.pending) > 0 {
		n := copy(p, r.pending)
		r.pending = r.pending[n:]
		r.crc = crc32.Update(r.crc, castagnoli, p[:n])
		return n, nil
	}
	n, err := r.file.ReadAt(p[:min(int64(len(p)), r.left)], r.at)
	r.at, r.left = r.at+int64(n), r.left-int64(n)
	r.crc = crc32.Update(r.crc, castagnoli, p[:n])
	if errors.Is(err, io.EOF) {
		if err = nil; n == 0 {
			err = &CorruptError{Name: r.file.Name(), Position: r.at, Cause: errStreamEnd}
		}
	}
	return n, err
}

// next goes on to the next file, the checksum, or the end.
func (r *streamReader) next() error {
	if err := r.Close(); err != nil {
		return err
	}
	switch {
	case len(r.files) > 0:
		f, err := r.fs.OpenReadOnly(path.Join(r.dir, r.files[0].Name))
		if err != nil {
			return err
		}
		r.file, r.at, r.left = f, 0, r.files[0].Bytes
		r.files = r.files[1:]
	case !r.ended:
		r.ended = true
		r.pending = binary.LittleEndian.AppendUint32(nil, r.crc)
	default:
		return io.EOF
	}
	return nil
}

// Close gives the open file back.
func (r *streamReader) Close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	return f.Close()
}

// streamWriter makes a stream into a checkpoint folder again.
type streamWriter struct {
	fs   disk.FS
	dir  string
	name string // of the snapshot, for errors

	applied uint64
	files   []snapshotFile
	header  []byte // until it is whole
	parsed  bool
	current int // of files
	file    disk.File
	at      int64  // in file
	tail    []byte // the checksum
	crc     uint32
	total   int64
}

func (w *streamWriter) corrupt(cause error) error {
	return &CorruptError{Name: w.name, Position: w.total, Cause: cause}
}

func (w *streamWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		used, err := w.write(p)
		if err != nil {
			return n - len(p), err
		}
		w.total += int64(used)
		p = p[used:]
	}
	return n, nil
}

func (w *streamWriter) write(p []byte) (used int, err error) {
	if !w.parsed {
		// The header is small; byte by byte is simple enough.
		w.header = append(w.header, p[0])
		w.crc = crc32.Update(w.crc, castagnoli, p[:1])
		return 1, w.parseHeader()
	}
	if err := w.skipEmpty(); err != nil {
		return 0, err
	}
	if w.current == len(w.files) {
		if len(w.tail) == 4 {
			return 0, w.corrupt(errStreamMore)
		}
		used = min(len(p), 4-len(w.tail))
		w.tail = append(w.tail, p[:used]...)
		return used, nil
	}
	used = int(min(int64(len(p)), w.files[w.current].Bytes-w.at))
	if _, err := w.file.WriteAt(p[:used], w.at); err != nil {
		return 0, err
	}
	w.crc = crc32.Update(w.crc, castagnoli, p[:used])
	w.at += int64(used)
	return used, nil
}

// skipEmpty closes files that are complete and opens the next one that is not.
func (w *streamWriter) skipEmpty() error {
	for w.current < len(w.files) {
		if w.file == nil {
			f, err := w.fs.Create(path.Join(w.dir, w.files[w.current].Name))
			if err != nil {
				return err
			}
			w.file, w.at = f, 0
		}
		if w.at < w.files[w.current].Bytes {
			return nil
		}
		if err := errors.Join(w.file.SyncData(), w.file.Close()); err != nil {
			return err
		}
		w.file = nil
		w.current++
	}
	return nil
}

// parseHeader looks whether the header is whole.
func (w *streamWriter) parseHeader() error {
	b := w.header
	if n := min(len(b), len(streamMagic)); string(b[:n]) != streamMagic[:n] {
		return w.corrupt(errStreamMagic)
	}
	if len(b) < streamFixedBytes {
		return nil
	}
	count := binary.LittleEndian.Uint32(b[16:])
	if count > maxSnapshotFiles {
		return w.corrupt(errStreamCount)
	}
	// Only the last file's entry can be incomplete: the others were read.
	b = b[streamFixedBytes+w.headerBytes():]
	if uint32(len(w.files)) < count {
		if len(b) < 2 || len(b) < streamFileBytes+int(binary.LittleEndian.Uint16(b)) {
			return nil
		}
		n := int(binary.LittleEndian.Uint16(b))
		f := snapshotFile{Name: string(b[2 : 2+n]), Bytes: int64(binary.LittleEndian.Uint64(b[2+n:]))}
		if !allowedName(f.Name) || f.Bytes < 0 {
			return w.corrupt(fmt.Errorf("%w: %q, %d bytes", errStreamName, f.Name, f.Bytes))
		}
		w.files = append(w.files, f)
	}
	if uint32(len(w.files)) == count {
		w.applied = binary.LittleEndian.Uint64(w.header[8:])
		w.parsed = true
	}
	return nil
}

func (w *streamWriter) headerBytes() int {
	n := 0
	for _, f := range w.files {
		n += streamFileBytes + len(f.Name)
	}
	return n
}

// allowedName refuses whatever could leave the folder.
func allowedName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}

// finish checks that the stream was whole and makes the folder durable.
func (w *streamWriter) finish() error {
	if !w.parsed {
		return w.corrupt(errStreamEnd)
	}
	if err := w.skipEmpty(); err != nil {
		return err
	}
	if len(w.tail) < 4 {
		return w.corrupt(errStreamEnd)
	}
	if binary.LittleEndian.Uint32(w.tail) != w.crc {
		return w.corrupt(errStreamCRC)
	}
	return w.fs.SyncDir(w.dir)
}

// abort gives the open file back.
func (w *streamWriter) abort() error {
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	return f.Close()
}
