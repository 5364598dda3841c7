package quorum

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// entryFormat is the first byte of a stored Raft log entry.
const entryFormat = 1

// appendEntry appends the stored form of an entry, its index apart:
//
//	format u8 | type u8 | term uvarint | appended at varint (Unix ns, 0: unknown) |
//	extensions length uvarint | extensions | data
func appendEntry(b []byte, l *raft.Log) []byte {
	b = append(b, entryFormat, byte(l.Type))
	b = binary.AppendUvarint(b, l.Term)
	at := int64(0)
	if !l.AppendedAt.IsZero() {
		at = l.AppendedAt.UnixNano()
	}
	b = binary.AppendVarint(b, at)
	b = binary.AppendUvarint(b, uint64(len(l.Extensions)))
	b = append(b, l.Extensions...)
	return append(b, l.Data...)
}

var (
	errEntryShort  = errors.New("entry is cut short")
	errEntryFormat = errors.New("entry has a format that is not known here")
)

// decodeEntry reads what appendEntry wrote. It copies what it keeps.
func decodeEntry(index uint64, b []byte, l *raft.Log) error {
	if len(b) < 2 {
		return errEntryShort
	}
	if b[0] != entryFormat {
		return errEntryFormat
	}
	out := raft.Log{Index: index, Type: raft.LogType(b[1])}
	b = b[2:]
	var n int
	if out.Term, n = binary.Uvarint(b); n <= 0 {
		return errEntryShort
	}
	b = b[n:]
	at, n := binary.Varint(b)
	if n <= 0 {
		return errEntryShort
	}
	if b = b[n:]; at != 0 {
		out.AppendedAt = time.Unix(0, at)
	}
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return errEntryShort
	}
	b = b[n:]
	if size > 0 {
		out.Extensions = append([]byte(nil), b[:size]...)
	}
	out.Data = append([]byte(nil), b[size:]...)
	*l = out
	return nil
}
