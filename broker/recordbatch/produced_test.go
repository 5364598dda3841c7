package recordbatch_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
)

func TestVerifyProducedRefusesWhatKafkaRefuses(t *testing.T) {
	records := stamped(1, 2, 3)
	idempotent := recordbatch.Options{Producer: &recordbatch.Producer{ID: 1, Epoch: 0, BaseSequence: 0}}
	for _, c := range []struct {
		name  string
		batch recordbatch.Batch
		patch func(recordbatch.Batch) recordbatch.Batch
		want  error // nil: accepted
	}{
		{"good", build(recordbatch.Options{}, records...), nil, nil},
		{"good idempotent", build(idempotent, records...), nil, nil},
		{"good compressed", build(recordbatch.Options{Codec: recordbatch.Zstd}, records...), nil, nil},
		{"checksum", build(recordbatch.Options{}, records...), func(b recordbatch.Batch) recordbatch.Batch {
			b[len(b)-1] ^= 1
			return b
		}, recordbatch.ErrBadCRC},
		{"base offset", build(recordbatch.Options{BaseOffset: 5}, records...), nil, recordbatch.ErrInvalid},
		{"no records", build(recordbatch.Options{}), nil, recordbatch.ErrInvalid},
		{"control", recordbatch.NewMarkerBatch(recordbatch.Options{}, 1, recordbatch.Marker{}), nil, recordbatch.ErrInvalid},
		{"sequence", build(recordbatch.Options{Producer: &recordbatch.Producer{ID: 1, BaseSequence: -1}}, records...), nil, recordbatch.ErrInvalid},
		{"fewer than the offsets", build(recordbatch.Options{}, records...), func(b recordbatch.Batch) recordbatch.Batch {
			put32(b, 23, 3)
			return b
		}, recordbatch.ErrInvalid},
		{"count too high", build(recordbatch.Options{}, records...), func(b recordbatch.Batch) recordbatch.Batch {
			put32(b, 23, 3)
			put32(b, 57, 4)
			return b
		}, recordbatch.ErrInvalid},
		{"count too low", build(recordbatch.Options{}, records...), func(b recordbatch.Batch) recordbatch.Batch {
			put32(b, 23, 1)
			put32(b, 57, 2)
			return b
		}, recordbatch.ErrInvalid},
		{"highest count", build(recordbatch.Options{}, records...), func(b recordbatch.Batch) recordbatch.Batch {
			put32(b, 23, math.MaxInt32)
			put32(b, 57, math.MinInt32)
			return b
		}, recordbatch.ErrBadCount},
		{"bytes behind the records", build(recordbatch.Options{}, records...), func(b recordbatch.Batch) recordbatch.Batch {
			return append(b, 0)
		}, recordbatch.ErrInvalid},
		{"record cut short", build(recordbatch.Options{}, records...), func(b recordbatch.Batch) recordbatch.Batch {
			return b[:len(b)-1]
		}, recordbatch.ErrInvalid},
		{"offset deltas", withGap(t), nil, recordbatch.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := clone(c.batch)
			if c.patch != nil {
				b = c.patch(b)
				if !errors.Is(c.want, recordbatch.ErrBadCRC) {
					seal(b)
				}
			}
			err := b.VerifyProduced()
			require.ErrorIs(t, err, c.want)
			_, examined := b.Examine(recordbatch.Rules{}, nil)
			require.Equal(t, err, examined)
		})
	}
}

// withGap is three offsets with two records, as compaction leaves them, whose
// header pretends that nothing is missing.
func withGap(t *testing.T) recordbatch.Batch {
	builder := recordbatch.NewBuilder(recordbatch.Options{})
	require.NoError(t, builder.AddRecord(recordbatch.Record{Offset: 0}))
	require.NoError(t, builder.AddRecord(recordbatch.Record{Offset: 2}))
	require.NoError(t, builder.AddRecord(recordbatch.Record{Offset: 3}))
	b := builder.Build()
	put32(b, 57, 4)
	b = append(b, b[len(b)-8:]...)
	seal(b)
	return b
}

// PR-05: a record without a key in a compacted topic is named, and nothing of
// the batch is taken.
func TestCompactedTopicNamesTheRecordsWithoutAKey(t *testing.T) {
	for _, codec := range codecs {
		builder := recordbatch.NewBuilder(recordbatch.Options{Codec: codec})
		builder.Add(1, []byte("k1"), []byte("v"))
		builder.Add(2, nil, []byte("v"))
		builder.Add(3, []byte("k2"), []byte("v"))
		builder.Add(4, []byte{}, []byte("an empty key is a key"))
		builder.Add(5, nil, nil)
		b := builder.Build()

		found, err := b.Examine(recordbatch.Rules{}, nil)
		require.NoError(t, err)
		require.Equal(t, codec == recordbatch.None, found.Walked)
		require.EqualValues(t, 5, found.MaxTimestamp)

		found, err = b.Examine(recordbatch.Rules{KeysRequired: true}, &recordbatch.Decoder{})
		require.ErrorIs(t, err, recordbatch.ErrInvalid)
		require.NotErrorIs(t, err, recordbatch.ErrInvalidTimestamp)
		require.True(t, found.Walked)
		var rejected *recordbatch.RejectedError
		require.ErrorAs(t, err, &rejected)
		require.Len(t, rejected.Records, 2)
		require.EqualValues(t, 1, rejected.Records[0].Index)
		require.Contains(t, rejected.Records[0].Message, "Compacted topic cannot accept message without key")
		require.EqualValues(t, 4, rejected.Records[1].Index)

		indexes, err := recordbatch.NullKeys(b, &recordbatch.Decoder{}, 10)
		require.NoError(t, err)
		require.Equal(t, []int32{1, 4}, indexes)
		indexes, err = recordbatch.NullKeys(b, &recordbatch.Decoder{}, 1)
		require.NoError(t, err)
		require.Equal(t, []int32{1}, indexes)
	}
}

func TestTimestampBounds(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	rules := recordbatch.Rules{CheckTimestamps: true, Now: now, TimestampBefore: 1000 * time.Millisecond, TimestampAfter: 500 * time.Millisecond}
	for _, codec := range codecs {
		o := recordbatch.Options{Codec: codec}
		_, err := build(o, stamped(999_000, 1_000_500, 1_000_000, -1)...).Examine(rules, nil)
		require.NoError(t, err, "the bounds themselves, and no timestamp, are taken")

		_, err = build(o, stamped(998_999, 1_000_000, 1_000_501)...).Examine(rules, nil)
		requireIndexes(t, err, recordbatch.ErrInvalidTimestamp, 0, 2)

		unbounded := rules
		unbounded.TimestampBefore, unbounded.TimestampAfter = math.MaxInt64, math.MaxInt64
		_, err = build(o, stamped(0, math.MaxInt64)...).Examine(unbounded, nil)
		require.NoError(t, err)

		unbounded.LogAppendTime = true
		_, err = build(o, stamped(0, 5)...).Examine(unbounded, nil)
		require.NoError(t, err, "the client's timestamps do not matter then")
	}

	// A timestamp error decides over a key error, as in Kafka.
	both := rules
	both.KeysRequired = true
	builder := recordbatch.NewBuilder(recordbatch.Options{})
	builder.Add(1_000_000, nil, nil)
	builder.Add(1, []byte("k"), nil)
	_, err := builder.Build().Examine(both, nil)
	requireIndexes(t, err, recordbatch.ErrInvalidTimestamp, 0, 1)
}

func TestHiddenTimestampOfACompressedBatchIsTrusted(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	rules := recordbatch.Rules{CheckTimestamps: true, Now: now, TimestampBefore: time.Second, TimestampAfter: time.Second}
	records := stamped(1_000_000, 5, 1_000_000)
	_, err := build(recordbatch.Options{}, records...).Examine(rules, nil)
	requireIndexes(t, err, recordbatch.ErrInvalidTimestamp, 1)
	found, err := build(recordbatch.Options{Codec: recordbatch.Gzip}, records...).Examine(rules, nil)
	require.NoError(t, err)
	require.False(t, found.Walked)

	low, high, err := recordbatch.TimestampRange(build(recordbatch.Options{Codec: recordbatch.Gzip}, records...), &recordbatch.Decoder{})
	require.NoError(t, err)
	require.EqualValues(t, 5, low)
	require.EqualValues(t, 1_000_000, high)
}

func TestClientsMayNotSetLogAppendTime(t *testing.T) {
	b := build(recordbatch.Options{LogAppendTime: true, AppendTimestamp: 7}, stamped(1, 2)...)
	_, err := b.Examine(recordbatch.Rules{LogAppendTime: true}, nil)
	requireIndexes(t, err, recordbatch.ErrInvalidTimestamp, 0, 1)

	require.ErrorContains(t, err, "LogAppendTime")
	none := build(recordbatch.Options{LogAppendTime: true, AppendTimestamp: recordbatch.NoTimestamp}, stamped(1)...)
	_, err = none.Examine(recordbatch.Rules{CheckTimestamps: true, TimestampBefore: math.MaxInt64, TimestampAfter: math.MaxInt64}, nil)
	requireIndexes(t, err, recordbatch.ErrInvalidTimestamp, 0)
	require.ErrorContains(t, err, "LogAppendTime")
	_, err = b.Examine(recordbatch.Rules{}, nil)
	require.NoError(t, err, "nothing is asked of timestamps")

	// Kafka takes it where the topic has create times, and clears the flag.
	found, err := b.Examine(recordbatch.Rules{CheckTimestamps: true, TimestampBefore: math.MaxInt64, TimestampAfter: math.MaxInt64}, nil)
	require.NoError(t, err)
	b.SetCreateTime(found.MaxTimestamp)
	require.NoError(t, b.Verify())
	require.False(t, b.LogAppendTime())
	require.EqualValues(t, 7, b.MaxTimestamp())
}

func TestExamineCorrectsTheHighestTimestamp(t *testing.T) {
	b := build(recordbatch.Options{}, stamped(5, 9, 7)...)
	for _, claimed := range []uint64{1, 10} {
		binary.BigEndian.PutUint64(b[35:], claimed)
		seal(b)
		found, err := b.Examine(recordbatch.Rules{}, nil)
		require.NoError(t, err)
		require.EqualValues(t, 9, found.MaxTimestamp)
		b.SetCreateTime(found.MaxTimestamp)
		require.Equal(t, build(recordbatch.Options{}, stamped(5, 9, 7)...), b)
	}
}

// Either end of a compressed batch out of bounds is enough to look within.
func TestOneBoundOfACompressedBatchIsEnough(t *testing.T) {
	rules := recordbatch.Rules{CheckTimestamps: true, Now: time.UnixMilli(10_000), TimestampBefore: time.Second, TimestampAfter: time.Second}
	for _, c := range []struct {
		stamps []int64
		bad    int32
	}{{[]int64{8_999, 10_000}, 0}, {[]int64{10_000, 11_001}, 1}} {
		b := build(recordbatch.Options{Codec: recordbatch.Gzip}, stamped(c.stamps...)...)
		_, err := b.Examine(rules, nil)
		requireIndexes(t, err, recordbatch.ErrInvalidTimestamp, c.bad)
	}
	found, err := build(recordbatch.Options{Codec: recordbatch.Gzip}, stamped(9_000, 11_000)...).Examine(rules, nil)
	require.NoError(t, err)
	require.False(t, found.Walked)
}

func TestRejectedRecordsAreBounded(t *testing.T) {
	builder := recordbatch.NewBuilder(recordbatch.Options{})
	for range recordbatch.RecordErrorsMax + 10 {
		builder.Add(1, nil, nil)
	}
	_, err := builder.Build().Examine(recordbatch.Rules{KeysRequired: true}, nil)
	var rejected *recordbatch.RejectedError
	require.ErrorAs(t, err, &rejected)
	require.Len(t, rejected.Records, recordbatch.RecordErrorsMax)
}

func requireIndexes(t *testing.T, err error, reason error, indexes ...int32) {
	t.Helper()
	require.ErrorIs(t, err, reason)
	var rejected *recordbatch.RejectedError
	require.True(t, errors.As(err, &rejected))
	var got []int32
	for _, r := range rejected.Records {
		got = append(got, r.Index)
	}
	require.Equal(t, indexes, got)
}

// FuzzVerifyProduced: whatever a client sends under a right checksum, nothing
// panics; what is accepted uncompressed decodes to as many records as it says,
// and builds to a batch that is accepted again with the same records.
func FuzzVerifyProduced(f *testing.F) {
	for _, codec := range codecs {
		f.Add([]byte(build(recordbatch.Options{Codec: codec}, kafkaRecords(0, false)...)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < recordbatch.HeaderBytes {
			return
		}
		b := clone(data)
		b[16] = 2
		seal(b)
		b, _, err := recordbatch.First(b)
		if err != nil {
			t.Fatalf("a sealed batch: %v", err)
		}
		d := recordbatch.NewDecoder(1 << 20)
		_, _ = b.Examine(recordbatch.Rules{KeysRequired: true, CheckTimestamps: true}, d)
		_, _, _ = b.Marker()
		_, _, _, _ = recordbatch.OffsetForTimestamp(b, b.MaxTimestamp(), d)
		if b.VerifyProduced() != nil || b.Compression() != recordbatch.None {
			for range d.Records(b) {
			}
			return
		}
		records, err := decodeAll(b)
		if err != nil || len(records) != int(b.RecordCount()) {
			t.Fatalf("accepted, but has %d records of %d and %v", len(records), b.RecordCount(), err)
		}
		builder := recordbatch.NewBuilder(recordbatch.Options{})
		for _, r := range records {
			if err := builder.AddRecord(r); err != nil {
				t.Fatal(err)
			}
		}
		again := builder.Build()
		if err := again.VerifyProduced(); err != nil {
			t.Fatal(err)
		}
		rebuilt, _ := decodeAll(again)
		require.Equal(t, records, rebuilt)
	})
}
