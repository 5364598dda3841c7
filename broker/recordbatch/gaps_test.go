package recordbatch_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// withPayload is a batch of count records, which are these bytes.
func withPayload(count, lastDelta int32, payload []byte) recordbatch.Batch {
	b := append(recordbatch.Batch{}, build(recordbatch.Options{}, stamped(1)...)[:recordbatch.HeaderBytes]...)
	b = append(b, payload...)
	put32(b, 8, int32(len(b)-recordbatch.PrefixBytes))
	put32(b, 23, lastDelta)
	put32(b, 57, count)
	seal(b)
	return b
}

// record puts a record's length before its body.
func record(body ...byte) []byte {
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

// Numbers are zigzag: 2 is 1, 1 is -1.
func TestRecordsThatAreNone(t *testing.T) {
	endless := func(n int) []byte { return append(bytes.Repeat([]byte{0x80}, n), 0) }
	body := func(parts ...[]byte) []byte { return record(bytes.Join(parts, nil)...) }
	filler := []byte{1, 1, 0} // null key, null value, no headers
	for name, p := range map[string][]byte{
		"no length":                       {0x80},
		"length 0":                        {0, 0, 0, 0},
		"negative length":                 {1, 0, 0, 0},
		"length past the end":             {14, 0, 0, 0, 1, 1, 0},
		"length of six bytes":             append(endless(5), 0, 0, 0, 1, 1, 0),
		"nothing but attributes":          record(0),
		"timestamp of eleven bytes":       body([]byte{0}, endless(10), []byte{0}, filler),
		"timestamp cut short":             record(0, 0x80, 0x80),
		"offset delta of six bytes":       body([]byte{0, 0}, endless(5), filler),
		"offset delta cut short":          record(0, 0, 0x80),
		"key length of six bytes":         body([]byte{0, 0, 0}, endless(5), []byte{1, 0}),
		"key length cut short":            record(0, 0, 0, 0x80),
		"key past the end":                record(0, 0, 0, 8, 1, 0),
		"value length of six bytes":       body([]byte{0, 0, 0, 1}, endless(5), []byte{0}),
		"value length cut short":          record(0, 0, 0, 1, 0x80),
		"value past the end":              record(0, 0, 0, 1, 8, 0),
		"no count of headers":             record(0, 0, 0, 1, 1),
		"count of headers of six bytes":   body([]byte{0, 0, 0, 1, 1}, endless(5)),
		"negative count of headers":       record(0, 0, 0, 1, 1, 1),
		"a header that is not there":      record(0, 0, 0, 1, 1, 2),
		"bytes behind no headers":         record(0, 0, 0, 1, 1, 0, 0),
		"bytes behind a header":           record(0, 0, 0, 1, 1, 2, 2, 'h', 1, 0),
		"header key null":                 record(0, 0, 0, 1, 1, 2, 1, 1),
		"header key past the end":         record(0, 0, 0, 1, 1, 2, 8, 'h', 1),
		"header key length of six bytes":  body([]byte{0, 0, 0, 1, 1, 2}, endless(5), []byte{1}),
		"header value past the end":       record(0, 0, 0, 1, 1, 2, 2, 'h', 8, 'v'),
		"header value length cut short":   record(0, 0, 0, 1, 1, 2, 2, 'h', 0x80),
		"a second header behind that":     record(0, 0, 0, 1, 1, 4, 2, 'h', 0x80),
		"header value length of six byte": body([]byte{0, 0, 0, 1, 1, 4, 2, 'h'}, endless(5), []byte{1}),
		"offset delta above the last":     record(0, 0, 2, 1, 1, 0),
		"negative offset delta":           record(0, 0, 1, 1, 1, 0),
	} {
		got, err := decodeAll(withPayload(1, 0, p))
		require.ErrorIs(t, err, recordbatch.ErrBadRecord, name)
		require.Empty(t, got, name)
	}
	good := record(0, 0, 0, 1, 1, 2, 2, 'h', 2, 'v')
	got, err := decodeAll(withPayload(1, 0, good))
	require.NoError(t, err)
	require.Equal(t, []recordbatch.Header{{Key: "h", Value: []byte("v")}}, got[0].Headers)
	for n := 1; n < len(good); n++ {
		_, err := decodeAll(withPayload(1, 0, good[:n]))
		require.ErrorIs(t, err, recordbatch.ErrBadRecord, "cut to %d bytes", n)
	}
}

func TestOffsetsWithinABatchRise(t *testing.T) {
	at := func(delta byte) []byte { return record(0, 0, 2*delta, 1, 1, 0) }
	for _, c := range []struct {
		deltas []byte
		good   int
	}{{[]byte{0, 1, 3}, 3}, {[]byte{0, 0, 3}, 1}, {[]byte{1, 0, 3}, 1}, {[]byte{0, 2, 1}, 2}} {
		var p []byte
		for _, d := range c.deltas {
			p = append(p, at(d)...)
		}
		got, err := decodeAll(withPayload(3, 3, p))
		require.Len(t, got, c.good)
		if c.good < 3 {
			require.ErrorIs(t, err, recordbatch.ErrBadRecord)
		} else {
			require.NoError(t, err)
		}
	}
}

// Lengths and offsets that need one byte, two, and so on to five, at the bounds
// between them; the attributes that nobody uses are kept.
func TestNumbersOfEveryLength(t *testing.T) {
	b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: 7})
	var want []recordbatch.Record
	for i, delta := range []int32{0, 63, 64, 8191, 8192, 1<<20 - 1, 1 << 20, 1<<27 - 1, 1 << 27, math.MaxInt32} {
		r := recordbatch.Record{
			Offset: 7 + cluster.Offset(delta), OffsetDelta: delta, Timestamp: int64(delta) << 31, Attributes: int8(i),
			Key: make([]byte, []int{0, 63, 64, 127, 128, 8191, 8192, 8193, 16384, 1 << 20}[i]), Value: []byte{},
		}
		require.NoError(t, b.AddRecord(r))
		want = append(want, r)
	}
	require.Equal(t, want, decode(t, b.Build()))
	require.ErrorIs(t, b.AddRecord(recordbatch.Record{Offset: 7 + math.MaxInt32 + 1}), recordbatch.ErrBadOffset)
	require.ErrorIs(t, b.SetLastOffset(7+math.MaxInt32+1), recordbatch.ErrBadOffset)
	require.ErrorIs(t, recordbatch.NewBuilder(recordbatch.Options{BaseOffset: 7}).SetLastOffset(6), recordbatch.ErrBadOffset)
}

// Whoever wrote it: a marker may be compressed.
func TestMarkersMayBeCompressed(t *testing.T) {
	b := recordbatch.NewBuilder(recordbatch.Options{
		Codec: recordbatch.Gzip, Control: true, Transactional: true, Producer: &recordbatch.Producer{ID: 1, BaseSequence: recordbatch.NoSequence},
	})
	b.Add(1, []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 9})
	batch := b.Build()
	m, ok, err := batch.Marker()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, recordbatch.Marker{Type: recordbatch.ControlCommit, CoordinatorEpoch: 9}, m)
	_, ok, err = withCodec(batch).Marker()
	require.ErrorIs(t, err, recordbatch.ErrBadCompression)
	require.False(t, ok)
}

// withCodec is a batch whose compressed bytes are none.
func withCodec(b recordbatch.Batch) recordbatch.Batch {
	b = clone(b)
	clear(b.Payload())
	seal(b)
	return b
}

func TestBatchWithoutRecordsIsNotCompressed(t *testing.T) {
	for _, codec := range codecs {
		b := recordbatch.NewBuilder(recordbatch.Options{Codec: codec}).Build()
		require.Equal(t, recordbatch.None, b.Compression())
		got, rest, err := recordbatch.First(b)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Len(t, got, recordbatch.HeaderBytes)
	}
	_, err := recordbatch.PeekBytes(make([]byte, 16))
	require.ErrorIs(t, err, recordbatch.ErrBadLength, "the format is not in these bytes")
}

func TestUpgradeKeepsAppendTime(t *testing.T) {
	const flag = 0x08
	set := append(message(1, 0, 0, 5, nil, []byte("a")), message(1, flag, 1, 9, nil, []byte("b"))...)
	set = append(set, message(1, flag, 2, 7, nil, []byte("c"))...)
	out, done, err := new(recordbatch.Decoder).AppendUpgraded(nil, set, 1<<20)
	require.NoError(t, err)
	require.Equal(t, recordbatch.Upgraded{Messages: 3}, done)
	require.True(t, recordbatch.Batch(out).LogAppendTime())
	require.EqualValues(t, 9, recordbatch.Batch(out).MaxTimestamp())
}

// A batch is as large as the bound at most, and no smaller than need be.
func TestUpgradeFillsItsBatches(t *testing.T) {
	var set []byte
	for i := range int64(3) {
		set = append(set, message(1, 0, i, 1<<40*(1-i), nil, bytes.Repeat([]byte{'v'}, 70))...)
	}
	whole, _, err := new(recordbatch.Decoder).AppendUpgraded(nil, set, 1<<20)
	require.NoError(t, err)
	for _, less := range []int{0, 1} {
		out, _, err := new(recordbatch.Decoder).AppendUpgraded(nil, set, len(whole)-less)
		require.NoError(t, err)
		first, rest, err := recordbatch.First(out)
		require.NoError(t, err)
		require.EqualValues(t, 3-less, first.RecordCount())
		require.Equal(t, less == 0, len(rest) == 0)
	}
}

// The offset of a compressed message is that of the last within it, and those
// within count from the first in v1 and are whole in v0; v0's LZ4 frames have
// the checksum that v0's readers want.
func TestCompressedMessagesOfOldFormats(t *testing.T) {
	for _, codec := range []recordbatch.Codec{recordbatch.Gzip, recordbatch.Snappy, recordbatch.LZ4} {
		for magic, offsets := range [][]uint64{{102, 103, 104}, {0, 1, 2}} {
			b := recordbatch.NewBuilder(recordbatch.Options{Codec: codec, BaseOffset: 100})
			for i := range int64(5) {
				b.Add(1000-i, nil, []byte("value"))
			}
			set, done, err := new(recordbatch.Downgrader).Append([]byte("head"), b.Build(), int8(magic), 102, 1<<20, false)
			require.NoError(t, err)
			require.Equal(t, recordbatch.Downgraded{Messages: 3}, done)
			set = set[4:]
			be := binary.BigEndian
			require.EqualValues(t, 104, be.Uint64(set))
			valueAt := 12 + 4 + 2 + 8*magic + 4 + 4 // prefix, checksum, magic and attributes, time, null key, length
			frame := set[valueAt:]
			require.EqualValues(t, len(frame), be.Uint32(set[valueAt-4:]))
			if magic == 1 {
				require.EqualValues(t, 998, be.Uint64(set[18:]), "the highest of those within")
			}
			inner, err := codec.Decompress(nil, frame, 1<<20)
			if codec == recordbatch.LZ4 && magic == 0 {
				require.ErrorIs(t, err, recordbatch.ErrBadCompression)
				continue
			}
			require.NoError(t, err)
			for _, want := range offsets {
				require.Equal(t, want, be.Uint64(inner))
				inner = inner[12+be.Uint32(inner[8:]):]
			}
			require.Empty(t, inner)
		}
	}
}
