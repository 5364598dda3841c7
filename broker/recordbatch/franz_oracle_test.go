package recordbatch_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// franz-go is another implementation of the same format: what it writes we
// read, and what we write it reads.

func drawBytes(t *rapid.T, label string) []byte {
	if rapid.Bool().Draw(t, label+" is null") {
		return nil
	}
	return append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, label)...)
}

func drawRecords(t *rapid.T, base cluster.Offset, gaps bool) []recordbatch.Record {
	records := make([]recordbatch.Record, rapid.IntRange(1, 30).Draw(t, "records"))
	next := int32(0)
	for i := range records {
		if gaps {
			next += rapid.Int32Range(0, 200).Draw(t, "gap")
		}
		r := recordbatch.Record{
			Offset: base + cluster.Offset(next), OffsetDelta: next,
			Timestamp: rapid.Int64Range(-1, 1<<60).Draw(t, "timestamp"),
			Key:       drawBytes(t, "key"), Value: drawBytes(t, "value"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, recordbatch.Header{Key: rapid.String().Draw(t, "header"), Value: drawBytes(t, "header value")})
		}
		records[i] = r
		next++
	}
	return records
}

func franzRecord(r recordbatch.Record, firstTimestamp int64) []byte {
	k := kmsg.NewRecord()
	k.TimestampDelta64 = r.Timestamp - firstTimestamp
	k.OffsetDelta = r.OffsetDelta
	k.Key, k.Value = r.Key, r.Value
	for _, h := range r.Headers {
		k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
	}
	// The length does not count its own bytes: encode once with 0 to learn it.
	k.Length = int32(len(k.AppendTo(nil)) - 1)
	return k.AppendTo(nil)
}

// franzCompressors are made once: a zstd encoder is dear.
func franzCompressors(t *testing.T) map[recordbatch.Codec]kgo.Compressor {
	out := map[recordbatch.Codec]kgo.Compressor{}
	for codec, franz := range map[recordbatch.Codec]kgo.CompressionCodec{
		recordbatch.Gzip: kgo.GzipCompression(), recordbatch.Snappy: kgo.SnappyCompression(),
		recordbatch.LZ4: kgo.Lz4Compression(), recordbatch.Zstd: kgo.ZstdCompression(),
	} {
		c, err := kgo.DefaultCompressor(franz)
		require.NoError(t, err)
		out[codec] = c
	}
	return out
}

func TestReadsWhatFranzGoWrites(t *testing.T) {
	compressors := franzCompressors(t)
	rapid.Check(t, func(t *rapid.T) {
		codec := codecs[rapid.IntRange(0, len(codecs)-1).Draw(t, "codec")]
		base := cluster.Offset(rapid.Int64Range(0, 1<<50).Draw(t, "base"))
		records := drawRecords(t, base, rapid.Bool().Draw(t, "compacted"))
		k := kmsg.NewRecordBatch()
		k.FirstOffset = int64(base)
		k.PartitionLeaderEpoch = rapid.Int32().Draw(t, "leader epoch")
		k.Magic = 2
		k.Attributes = int16(codec)
		k.FirstTimestamp = records[0].Timestamp
		k.MaxTimestamp = records[0].Timestamp
		k.ProducerID = rapid.Int64Range(-1, 1<<40).Draw(t, "producer")
		k.ProducerEpoch = rapid.Int16Min(-1).Draw(t, "producer epoch")
		k.FirstSequence = rapid.Int32Min(-1).Draw(t, "sequence")
		k.NumRecords = int32(len(records))
		k.LastOffsetDelta = records[len(records)-1].OffsetDelta
		var raw []byte
		for _, r := range records {
			k.MaxTimestamp = max(k.MaxTimestamp, r.Timestamp)
			raw = append(raw, franzRecord(r, k.FirstTimestamp)...)
		}
		k.Records = raw
		if codec != recordbatch.None {
			var buf bytes.Buffer
			out, used := compressors[codec].Compress(&buf, raw)
			require.EqualValues(t, codec, used)
			k.Records = bytes.Clone(out)
		}
		encoded := k.AppendTo(nil)
		seal(encoded)

		b, rest, err := recordbatch.First(encoded)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.NoError(t, b.Verify())
		require.EqualValues(t, k.FirstOffset, b.BaseOffset())
		require.EqualValues(t, k.PartitionLeaderEpoch, b.PartitionLeaderEpoch())
		require.EqualValues(t, k.ProducerID, b.ProducerID())
		require.EqualValues(t, k.ProducerEpoch, b.ProducerEpoch())
		require.EqualValues(t, k.FirstSequence, b.BaseSequence())
		require.EqualValues(t, k.MaxTimestamp, b.MaxTimestamp())
		require.Equal(t, len(encoded), b.Bytes())
		got, err := decodeAll(b)
		require.NoError(t, err)
		require.Equal(t, records, got)
	})
}

func TestFranzGoReadsWhatWeWrite(t *testing.T) {
	decompressor := kgo.DefaultDecompressor()
	rapid.Check(t, func(t *rapid.T) {
		o := recordbatch.Options{
			Codec:         codecs[rapid.IntRange(0, len(codecs)-1).Draw(t, "codec")],
			BaseOffset:    cluster.Offset(rapid.Int64Range(0, 1<<50).Draw(t, "base")),
			LeaderEpoch:   cluster.LeaderEpoch(rapid.Int32().Draw(t, "leader epoch")),
			Producer:      &recordbatch.Producer{ID: 5, Epoch: 6, BaseSequence: 7},
			Transactional: rapid.Bool().Draw(t, "transactional"),
		}
		records := drawRecords(t, o.BaseOffset, rapid.Bool().Draw(t, "compacted"))
		builder := recordbatch.NewBuilder(o)
		for _, r := range records {
			require.NoError(t, builder.AddRecord(r))
		}
		b := builder.Build()
		require.NoError(t, b.Verify())

		var k kmsg.RecordBatch
		require.NoError(t, k.ReadFrom(b))
		require.EqualValues(t, o.BaseOffset, k.FirstOffset)
		require.EqualValues(t, len(b)-12, k.Length)
		require.EqualValues(t, b.ComputeCRC(), uint32(k.CRC))
		require.Equal(t, o.Transactional, k.Attributes&0x10 != 0)
		require.EqualValues(t, len(records), k.NumRecords)
		raw, err := decompressor.Decompress(k.Records, kgo.CompressionCodecType(k.Attributes&7))
		require.NoError(t, err)
		for _, want := range records {
			length, n := binary.Varint(raw)
			var got kmsg.Record
			require.NoError(t, got.ReadFrom(raw[:n+int(length)]))
			raw = raw[n+int(length):]
			require.Equal(t, franzRecord(want, k.FirstTimestamp), got.AppendTo(nil))
			require.Equal(t, want.Key, got.Key)
			require.Equal(t, want.Value, got.Value)
		}
		require.Empty(t, raw)
	})
}

// CO-05: what is decoded and built again is what was produced: key, value,
// headers, timestamp and offset, null told from empty, whatever was dropped.
func TestSurvivorsOfARewriteAreWhatWasProduced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := cluster.Offset(rapid.Int64Range(0, 1<<50).Draw(t, "base"))
		records := drawRecords(t, base, false)
		source := recordbatch.NewBuilder(recordbatch.Options{Codec: codecs[rapid.IntRange(0, 4).Draw(t, "codec")], BaseOffset: base})
		for _, r := range records {
			source.Add(r.Timestamp, r.Key, r.Value, r.Headers...)
		}
		b := source.Build()

		var want []recordbatch.Record
		rewritten := recordbatch.NewBuilder(recordbatch.Options{Codec: codecs[rapid.IntRange(0, 4).Draw(t, "new codec")], BaseOffset: base})
		i := 0
		for r, err := range new(recordbatch.Decoder).Records(b) {
			require.NoError(t, err)
			if rapid.Bool().Draw(t, "keep") {
				require.NoError(t, rewritten.AddRecord(r))
				want = append(want, records[i])
			}
			i++
		}
		require.NoError(t, rewritten.SetLastOffset(b.LastOffset()))
		out := rewritten.Build()
		require.NoError(t, out.Verify())
		require.Equal(t, b.BaseOffset(), out.BaseOffset())
		require.Equal(t, b.NextOffset(), out.NextOffset(), "the range stays, so that no offset is ever asked for in vain")
		got, err := decodeAll(out)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestBuilderRefusesOffsets(t *testing.T) {
	b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: 10})
	require.NoError(t, b.AddRecord(recordbatch.Record{Offset: 12}))
	for _, o := range []cluster.Offset{9, 11, 12, 10 + 1<<31} {
		require.ErrorIs(t, b.AddRecord(recordbatch.Record{Offset: o}), recordbatch.ErrBadOffset)
	}
	require.ErrorIs(t, b.SetLastOffset(11), recordbatch.ErrBadOffset)
	require.Equal(t, 1, b.Count())
	require.Equal(t, len(b.Build()), b.UncompressedBytes())

	first := b.Build()
	b.Reset(recordbatch.Options{DeleteHorizon: 99})
	b.Add(5, nil, nil)
	second := b.Build()
	require.NoError(t, first.Verify(), "a reset leaves what was built")
	require.True(t, second.HasDeleteHorizon())
	require.EqualValues(t, 99, second.FirstTimestamp())
	require.EqualValues(t, 5, decode(t, second)[0].Timestamp)
}

func TestRecordsReportsCorruption(t *testing.T) {
	for _, c := range []struct {
		name  string
		patch func(recordbatch.Batch) recordbatch.Batch
		want  error
		good  int
	}{
		{"count too high", func(b recordbatch.Batch) recordbatch.Batch { put32(b, 57, 4); put32(b, 23, 3); return b }, recordbatch.ErrBadCount, 3},
		{"count too low", func(b recordbatch.Batch) recordbatch.Batch { put32(b, 57, 2); return b }, recordbatch.ErrBadCount, 2},
		{"cut short", func(b recordbatch.Batch) recordbatch.Batch { return b[:len(b)-1] }, recordbatch.ErrBadRecord, 2},
		{"beyond the last offset", func(b recordbatch.Batch) recordbatch.Batch { put32(b, 23, 1); put32(b, 57, 3); return b }, recordbatch.ErrBadRecord, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.patch(build(recordbatch.Options{}, stamped(1, 2, 3)...))
			seal(b)
			records, err := decodeAll(b)
			require.ErrorIs(t, err, c.want)
			require.ErrorIs(t, err, recordbatch.ErrCorrupt)
			require.Len(t, records, c.good)
		})
	}
	packed := build(recordbatch.Options{Codec: recordbatch.Gzip}, kafkaRecords(0, true)...)
	for r, err := range recordbatch.NewDecoder(1000).Records(packed) {
		require.ErrorIs(t, err, recordbatch.ErrTooLarge)
		require.Zero(t, r)
	}
	for _, codec := range codecs[1:] {
		b := build(recordbatch.Options{Codec: codec}, kafkaRecords(0, true)...)
		b = b[:len(b)-20]
		seal(b)
		_, err := decodeAll(b)
		require.ErrorIs(t, err, recordbatch.ErrBadCompression, codec.String())
	}
}

func TestDecoderForgetsNothingBetweenBatches(t *testing.T) {
	d := &recordbatch.Decoder{}
	for _, codec := range append(codecs, codecs...) {
		b := kafkaBatch(t, codec.String())
		i := 0
		want := kafkaRecords(4242, codec != recordbatch.None)
		for r, err := range d.Records(b) {
			require.NoError(t, err)
			require.Equal(t, want[i], r)
			i++
		}
		for range d.Records(b) {
			break
		}
	}
}

// FuzzFirst: no bytes panic; what is cut off is a prefix that cuts off again as
// the same batch, and the rest is the rest.
func FuzzFirst(f *testing.F) {
	for _, codec := range codecs {
		f.Add([]byte(build(recordbatch.Options{Codec: codec}, kafkaRecords(0, false)...)))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		b, rest, err := recordbatch.First(data)
		if err != nil {
			if !bytes.Equal(rest, data) {
				t.Fatal("an error took bytes away")
			}
			return
		}
		if !bytes.Equal(append(bytes.Clone(b), rest...), data) || b.Bytes() != len(b) {
			t.Fatal("not a prefix")
		}
		again, rest, err := recordbatch.First(b)
		if err != nil || len(rest) != 0 || !bytes.Equal(again, b) {
			t.Fatalf("not the same again: %v", err)
		}
		_ = b.Verify()
		_ = b.LastSequence()
		for range recordbatch.NewDecoder(1 << 16).Records(b) {
		}
	})
}
