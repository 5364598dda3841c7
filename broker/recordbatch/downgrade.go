package recordbatch

import (
	"encoding/binary"
	"hash/crc32"

	"strandline/metadata/cluster"
)

// Downgrader turns v2 batches into message sets of format v0 or v1, and keeps
// its buffers in between. The zero value is ready. It is for one goroutine at a
// time.
type Downgrader struct {
	d     Decoder
	inner []byte
}

// Downgraded says what Downgrader.Append made.
type Downgraded struct {
	Messages int
	// Full says that the batch has records that had no room.
	Full bool
}

// SetLimit is the decoder's (B4).
func (g *Downgrader) SetLimit(bytesMax int) { g.d.SetLimit(bytesMax) }

// Append appends the records of a batch at from or above to dst as messages of
// format v0 or v1 with their own offsets, as many as fit bytesMax bytes; with
// oneAtLeast the first even where it does not. A compressed batch becomes one
// compressed message with the same codec, except that zstd, which the old
// formats do not have, becomes plain messages. Headers are dropped, control
// batches are skipped, and producer ids and transactions leave no trace. In v0
// there are no timestamps. Of a batch with a damaged record plain messages stay in
// dst up to that record, compressed ones not at all.
func (g *Downgrader) Append(dst []byte, b Batch, magic int8, from cluster.Offset, bytesMax int, oneAtLeast bool) ([]byte, Downgraded, error) {
	if b.IsControl() || b.RecordCount() == 0 || b.LastOffset() < from {
		return dst, Downgraded{}, nil
	}
	payload, err := g.d.Payload(b)
	if err != nil {
		return dst, Downgraded{}, err
	}
	w := newWalk(b, payload)
	codec := b.Compression()
	if codec == None || codec == Zstd {
		return appendPlain(dst, &w, magic, from, bytesMax, oneAtLeast)
	}
	// More than what has room at the batch's own rate of compression is not
	// worth a try.
	plainMax := int(int64(bytesMax) * int64(len(payload)) / int64(max(len(b.Payload()), 1)))
	g.inner = g.inner[:0]
	if cap(g.inner) > retainedBytesMax {
		g.inner = nil
	}
	first := cluster.NoOffset
	var done Downgraded
	for w.next() {
		if w.offset() < from {
			continue
		}
		key, value := w.c.key(), w.c.value()
		if len(g.inner) > 0 && len(g.inner)+messageBytes(magic, key, value) > plainMax {
			done.Full = true
			break
		}
		if len(g.inner) == 0 {
			first = w.offset()
		}
		o := w.offset()
		if magic > 0 {
			o -= first
		}
		g.inner = appendMessage(g.inner, magic, w.flags(magic), o, w.timestamp(), key, value)
		done.Messages++
	}
	if w.err != nil || done.Messages == 0 {
		return dst, Downgraded{}, w.err
	}
	if magic == 0 {
		first = 0 // the offsets within are whole already
	}
	at := len(dst)
	for {
		dst = appendWrapper(dst[:at], g.inner, magic, codec, w.flags(magic), first)
		size := len(dst) - at
		if size <= bytesMax || done.Messages == 1 {
			if size > bytesMax && !oneAtLeast {
				return dst[:at], Downgraded{Full: true}, nil
			}
			return dst, done, nil
		}
		done.Full = true
		g.inner, done.Messages = shorten(g.inner, int(int64(len(g.inner))*int64(bytesMax)/int64(size)*9/10), done.Messages)
	}
}

// flags are the attributes of a message without its codec.
func (w *walk) flags(magic int8) byte {
	if magic > 0 && w.logAppendTime {
		return attrLogAppendTime
	}
	return 0
}

// appendPlain appends records as messages that are not compressed.
func appendPlain(dst []byte, w *walk, magic int8, from cluster.Offset, bytesMax int, oneAtLeast bool) ([]byte, Downgraded, error) {
	var done Downgraded
	at := len(dst)
	for w.next() {
		if w.offset() < from {
			continue
		}
		key, value := w.c.key(), w.c.value()
		if len(dst)-at+messageBytes(magic, key, value) > bytesMax && (done.Messages > 0 || !oneAtLeast) {
			done.Full = true
			break
		}
		dst = appendMessage(dst, magic, w.flags(magic), w.offset(), w.timestamp(), key, value)
		done.Messages++
	}
	return dst, done, w.err
}

// appendWrapper appends a compressed message of the messages in inner. Its
// offset is that of the last of them and its timestamp the highest.
func appendWrapper(dst, inner []byte, magic int8, codec Codec, flags byte, base cluster.Offset) []byte {
	be := binary.BigEndian
	last, timestamp := cluster.Offset(0), NoTimestamp
	for rest := inner; len(rest) > 0; {
		m := messageAt(rest)
		last, timestamp, rest = m.offset(), max(timestamp, m.timestamp()), rest[len(m):]
	}
	at := len(dst)
	dst = appendMessage(dst, magic, flags|byte(codec), base+last, timestamp, nil, nil)
	valueAt := len(dst)
	dst = codec.Compress(dst, inner)
	if codec == LZ4 && magic == 0 {
		breakLZ4(dst[valueAt:])
	}
	be.PutUint32(dst[at+msgPosSize:], uint32(len(dst)-at-msgPosCRC))
	be.PutUint32(dst[valueAt-4:], uint32(len(dst)-valueAt))
	be.PutUint32(dst[at+msgPosCRC:], crc32.ChecksumIEEE(dst[at+msgPosMagic:]))
	return dst
}

// shorten keeps the messages of a set that fit bytesMax, at least one of them
// and fewer than count.
func shorten(set []byte, bytesMax, count int) ([]byte, int) {
	end, kept := 0, 0
	for kept < count-1 {
		m := messageAt(set[end:])
		if kept > 0 && end+len(m) > bytesMax {
			break
		}
		end += len(m)
		kept++
	}
	return set[:end], kept
}
