package recordbatch_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// anyBatch is a batch as a log may hold it: with gaps, headers, a producer, any
// codec and either kind of time.
func anyBatch(t *rapid.T) (recordbatch.Batch, []recordbatch.Record) {
	o := recordbatch.Options{
		Codec:      rapid.SampledFrom(codecs).Draw(t, "codec"),
		BaseOffset: cluster.Offset(rapid.Int64Range(0, 1<<40).Draw(t, "base")),
	}
	if rapid.Bool().Draw(t, "append time") {
		o.LogAppendTime, o.AppendTimestamp = true, 1800000000000
	}
	if rapid.Bool().Draw(t, "producer") {
		o.Producer, o.Transactional = &recordbatch.Producer{ID: 7, Epoch: 1, BaseSequence: 9}, rapid.Bool().Draw(t, "transactional")
	}
	b := recordbatch.NewBuilder(o)
	var records []recordbatch.Record
	offset := o.BaseOffset
	field := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 40), rapid.Just(bytes.Repeat([]byte("ab"), 300)))
	for range rapid.IntRange(1, 30).Draw(t, "records") {
		r := recordbatch.Record{
			Offset: offset, Timestamp: rapid.Int64Range(-1, 1<<42).Draw(t, "ts"), Key: field.Draw(t, "key"), Value: field.Draw(t, "value"),
		}
		if rapid.Bool().Draw(t, "headers") {
			r.Headers = []recordbatch.Header{{Key: "h", Value: []byte("v")}}
		}
		require.NoError(t, b.AddRecord(r))
		if o.LogAppendTime {
			r.Timestamp = o.AppendTimestamp
		}
		records = append(records, r)
		offset += 1 + cluster.Offset(rapid.SampledFrom([]int64{0, 0, 0, 1, 5}).Draw(t, "gap"))
	}
	return b.Build(), records
}

// An old reader sees the records that a new one sees: the same keys, values,
// offsets and, from v1 on, times, in its room and from where it asked.
func TestDowngradeIsWhatANewReaderSees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, records := anyBatch(t)
		magic := int8(rapid.IntRange(0, 1).Draw(t, "magic"))
		from := b.BaseOffset() + cluster.Offset(rapid.Int32Range(-2, b.LastOffsetDelta()+2).Draw(t, "from"))
		room := rapid.SampledFrom([]int{0, 1, 50, 100, 400, 2000, 10000, 1 << 20}).Draw(t, "room")
		one := rapid.Bool().Draw(t, "one")
		var g recordbatch.Downgrader
		before := bytes.Clone(b)
		set, done, err := g.Append([]byte("head"), b, magic, from, room, one)
		require.NoError(t, err)
		require.Equal(t, before, []byte(b), "the batch is only read")
		set = bytes.TrimPrefix(set, []byte("head"))
		got, err := messages(&recordbatch.Decoder{}, set)
		require.NoError(t, err)
		require.Len(t, got, done.Messages)
		var want []recordbatch.Record
		for _, r := range records {
			if r.Offset >= from {
				want = append(want, r)
			}
		}
		require.LessOrEqual(t, len(got), len(want))
		require.Equal(t, len(got) < len(want), done.Full)
		for i, m := range got {
			require.Equal(t, magic, m.Magic)
			require.Equal(t, want[i].Offset, m.Offset)
			require.Equal(t, want[i].Key, m.Key)
			require.Equal(t, want[i].Value, m.Value)
			if magic == 0 {
				require.Equal(t, recordbatch.NoTimestamp, m.Timestamp)
				continue
			}
			require.Equal(t, want[i].Timestamp, m.Timestamp)
			require.Equal(t, b.LogAppendTime(), m.LogAppendTime)
		}
		if len(got) > 0 {
			if codec := b.Compression(); codec != recordbatch.Zstd {
				require.Equal(t, codec, got[0].Codec)
			} else {
				require.Equal(t, recordbatch.None, got[0].Codec)
			}
		}
		switch {
		case len(got) > 1 || !one:
			require.LessOrEqual(t, len(set), room)
		case one && len(want) > 0:
			require.Len(t, got, 1)
		}
		// Reading on from where the first answer ended yields the rest.
		if n := len(got); done.Full && n > 0 {
			rest, _, err := g.Append(nil, b, magic, got[n-1].Offset+1, 1<<30, false)
			require.NoError(t, err)
			more, err := messages(&recordbatch.Decoder{}, rest)
			require.NoError(t, err)
			require.Len(t, more, len(want)-n)
			require.Equal(t, want[n].Offset, more[0].Offset)
		}
	})
}

func TestDowngradeSkipsWhatOldFormatsDoNotHave(t *testing.T) {
	var g recordbatch.Downgrader
	marker := recordbatch.NewMarkerBatch(recordbatch.Options{Producer: &recordbatch.Producer{ID: 1}}, 5, recordbatch.Marker{Type: recordbatch.ControlCommit})
	empty := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: 3})
	require.NoError(t, empty.SetLastOffset(9))
	for _, b := range []recordbatch.Batch{marker, empty.Build()} {
		set, done, err := g.Append(nil, b, 1, 0, 1<<20, true)
		require.NoError(t, err)
		require.Empty(t, set)
		require.Zero(t, done)
	}
	bomb := build(recordbatch.Options{Codec: recordbatch.Gzip}, recordbatch.Record{Value: make([]byte, 1<<20)})
	g.SetLimit(64 << 10)
	_, _, err := g.Append(nil, bomb, 1, 0, 1<<20, true)
	require.ErrorIs(t, err, recordbatch.ErrTooLarge)
}

// A batch that changes its codec is the same batch otherwise.
func TestRecompression(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, records := anyBatch(t)
		b.SetPartitionLeaderEpoch(12)
		plain, err := b.AppendUncompressed([]byte("head"), 0)
		require.NoError(t, err)
		require.Equal(t, "head", string(plain[:4]))
		p := recordbatch.Batch(plain[4:])
		require.NoError(t, p.Verify())
		require.Equal(t, recordbatch.None, p.Compression())
		to := rapid.SampledFrom(codecs).Draw(t, "to")
		level := rapid.IntRange(-3, 25).Draw(t, "level")
		c := recordbatch.Batch(p.AppendCompressed(nil, to, level))
		require.NoError(t, c.Verify())
		require.Equal(t, to, c.Compression())
		const codecBits = 7
		for _, other := range []recordbatch.Batch{p, c} {
			require.Equal(t, b.Attributes()&^codecBits, other.Attributes()&^codecBits)
			require.Equal(t, []any{b.BaseOffset(), b.LastOffset(), b.PartitionLeaderEpoch(), b.FirstTimestamp(), b.MaxTimestamp(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.RecordCount()},
				[]any{other.BaseOffset(), other.LastOffset(), other.PartitionLeaderEpoch(), other.FirstTimestamp(), other.MaxTimestamp(), other.ProducerID(), other.ProducerEpoch(), other.BaseSequence(), other.RecordCount()})
			got, err := decodeAll(other)
			require.NoError(t, err)
			for i := range got {
				got[i].OffsetDelta = 0
			}
			require.Equal(t, records, got)
		}
	})
}

func TestRecompressionIsBounded(t *testing.T) {
	for _, codec := range codecs[1:] {
		b := build(recordbatch.Options{Codec: codec}, recordbatch.Record{Value: make([]byte, 4<<20)})
		out, err := b.AppendUncompressed([]byte("head"), 1<<20)
		require.ErrorIs(t, err, recordbatch.ErrTooLarge, "%s", codec)
		require.Equal(t, "head", string(out))
		require.LessOrEqual(t, cap(out), 4<<20, "%s", codec)
	}
}

func TestLevels(t *testing.T) {
	src := []byte(strings.Repeat("the tide marks the beach, ", 200))
	for i := range src {
		if i%17 == 0 {
			src[i] = byte(i * i >> 3)
		}
	}
	for codec, levels := range map[recordbatch.Codec][2]int{recordbatch.Gzip: {1, 9}, recordbatch.LZ4: {9, 17}, recordbatch.Zstd: {1, 19}} {
		fast, small := codec.CompressAt(levels[0], nil, src), codec.CompressAt(levels[1], nil, src)
		require.Less(t, len(small), len(fast), "%s", codec)
		require.Equal(t, codec.Compress(nil, src), codec.CompressAt(codec.DefaultLevel(), nil, src))
		for _, c := range [][]byte{fast, small} {
			out, err := codec.Decompress(nil, c, len(src))
			require.NoError(t, err)
			require.Equal(t, src, out)
		}
	}
}

func FuzzDowngrade(f *testing.F) {
	for _, codec := range codecs {
		f.Add([]byte(build(recordbatch.Options{Codec: codec}, kafkaRecords(0, false)...)), 1000, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, room int, v1 bool) {
		b, _, err := recordbatch.First(data)
		if err != nil {
			return
		}
		magic := int8(0)
		if v1 {
			magic = 1
		}
		var g recordbatch.Downgrader
		g.SetLimit(1 << 20)
		room = min(max(room, 0), 1<<22)
		set, done, err := g.Append(nil, b, magic, b.BaseOffset(), room, false)
		if err != nil {
			require.ErrorIs(t, err, recordbatch.ErrCorrupt)
		}
		require.LessOrEqual(t, len(set), room)
		got, err := messages(recordbatch.NewDecoder(1<<22), set)
		require.NoError(t, err)
		require.True(t, len(got) == done.Messages || done.Messages == 0)
	})
}

func BenchmarkRecompress(b *testing.B) {
	batch := build(recordbatch.Options{Codec: recordbatch.LZ4}, kafkaRecords(0, true)...)
	var plain, out []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		plain, _ = batch.AppendUncompressed(plain[:0], 0)
		out = recordbatch.Batch(plain).AppendCompressed(out[:0], recordbatch.Zstd, 3)
	}
}

func BenchmarkDowngrade(b *testing.B) {
	batch := build(recordbatch.Options{Codec: recordbatch.LZ4}, kafkaRecords(0, true)...)
	var g recordbatch.Downgrader
	var set []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		set, _, _ = g.Append(set[:0], batch, 1, 0, 1<<20, true)
	}
}
