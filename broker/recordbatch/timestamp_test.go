package recordbatch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// FE-07: the record within the batch, not the batch.
func TestTimestampLookupFindsTheRecord(t *testing.T) {
	for _, codec := range codecs {
		b := build(recordbatch.Options{Codec: codec}, stamped(2, 4, 6, 8)...)
		d := &recordbatch.Decoder{}
		for ts, want := range map[int64][2]int64{
			1: {0, 2}, 2: {0, 2}, 3: {1, 4}, 4: {1, 4}, 5: {2, 6}, 6: {2, 6}, 7: {3, 8}, 8: {3, 8}, 9: {-1, -1},
		} {
			o, stamp, ok, err := recordbatch.OffsetForTimestamp(b, ts, d)
			require.NoError(t, err)
			require.Equal(t, want, [2]int64{int64(o), stamp}, "%v at %d", codec, ts)
			require.Equal(t, want[0] >= 0, ok)
		}
	}
}

// FE-11: with LogAppendTime the client's stamps, still in the records, do not
// count.
func TestTimestampLookupWithLogAppendTime(t *testing.T) {
	for _, codec := range codecs {
		const brokerTime = 1_700_000_000_000
		b := build(recordbatch.Options{Codec: codec}, stamped(1, 2, 3, 4, 5)...)
		b.SetBaseOffset(100)
		b.SetLogAppendTime(brokerTime)
		d := &recordbatch.Decoder{}
		for _, ts := range []int64{brokerTime, brokerTime - 1, 3} {
			o, stamp, ok, err := recordbatch.OffsetForTimestamp(b, ts, d)
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, 100, o)
			require.Equal(t, int64(brokerTime), stamp)
		}
		o, stamp, ok, err := recordbatch.OffsetForTimestamp(b, brokerTime+1, d)
		require.NoError(t, err)
		require.False(t, ok)
		require.EqualValues(t, -1, o)
		require.EqualValues(t, -1, stamp)
	}
}

func TestTimestampLookupOutOfOrder(t *testing.T) {
	b := build(recordbatch.Options{BaseOffset: 10}, stamped(5, 9, 3, 9, 7)...)
	d := &recordbatch.Decoder{}
	o, stamp, ok, err := recordbatch.OffsetForTimestampFrom(b, 6, 12, d)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 13, o, "the log starts at 12")
	require.EqualValues(t, 9, stamp)
	_, _, ok, err = recordbatch.OffsetForTimestampFrom(b, 8, 14, d)
	require.NoError(t, err)
	require.False(t, ok)
	_, _, ok, err = recordbatch.OffsetForTimestampFrom(b, 1, 15, d)
	require.NoError(t, err)
	require.False(t, ok)

	o, ok, err = recordbatch.OffsetOfMaxTimestamp(b, d)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 11, o, "the first of those with the highest")
	_, ok, err = recordbatch.OffsetOfMaxTimestamp(build(recordbatch.Options{}, stamped(-1)...), d)
	require.NoError(t, err)
	require.False(t, ok)
}

func TestTimestampLookupAfterCompaction(t *testing.T) {
	builder := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: 10, LogAppendTime: true, AppendTimestamp: 50})
	require.NoError(t, builder.AddRecord(recordbatch.Record{Offset: 13, Timestamp: 1}))
	require.NoError(t, builder.SetLastOffset(20))
	b := builder.Build()
	require.NoError(t, b.Verify())
	require.EqualValues(t, 20, b.LastOffset())
	o, stamp, ok, err := recordbatch.OffsetForTimestamp(b, 50, &recordbatch.Decoder{})
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 13, o, "records before it are gone")
	require.EqualValues(t, 50, stamp)
	_, _, ok, err = recordbatch.OffsetForTimestampFrom(b, 50, 14, &recordbatch.Decoder{})
	require.NoError(t, err)
	require.False(t, ok)
}

// A batch with append time that lost its first record is looked into; and its
// last offset may be where the search starts.
func TestAppendTimeLookupInACompactedBatch(t *testing.T) {
	b := recordbatch.NewBuilder(recordbatch.Options{LogAppendTime: true, AppendTimestamp: 9})
	require.NoError(t, b.AddRecord(recordbatch.Record{Offset: 1}))
	require.NoError(t, b.AddRecord(recordbatch.Record{Offset: 3}))
	d := &recordbatch.Decoder{}
	for from, want := range []cluster.Offset{1, 1, 3, 3} {
		o, ts, ok, err := recordbatch.OffsetForTimestampFrom(b.Build(), 9, cluster.Offset(from), d)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, o)
		require.EqualValues(t, 9, ts)
	}
	_, _, ok, err := recordbatch.OffsetForTimestampFrom(b.Build(), 9, 4, d)
	require.NoError(t, err)
	require.False(t, ok)

	low, high, err := recordbatch.TimestampRange(recordbatch.NewBuilder(recordbatch.Options{}).Build(), d)
	require.NoError(t, err)
	require.Equal(t, []int64{recordbatch.NoTimestamp, recordbatch.NoTimestamp}, []int64{low, high})
}

func TestTimestampLookupAllocatesNothing(t *testing.T) {
	b := build(recordbatch.Options{}, stamped(1, 2, 3)...)
	d := &recordbatch.Decoder{}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, _, _, _ = recordbatch.OffsetForTimestamp(b, 3, d)
	}))
	var last cluster.Offset
	packed := build(recordbatch.Options{Codec: recordbatch.Snappy}, stamped(1, 2, 3)...)
	_, _, _, _ = recordbatch.OffsetForTimestamp(packed, 3, d)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		last, _, _, _ = recordbatch.OffsetForTimestamp(packed, 3, d)
	}), 1.0)
	require.EqualValues(t, 2, last)
}
