package recordbatch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// The batches in testdata were written by Apache Kafka 4.4.0's own classes.

func TestReadsKafkasBatches(t *testing.T) {
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) {
			b := kafkaBatch(t, codec.String())
			require.NoError(t, b.Verify())
			require.Equal(t, cluster.Offset(4242), b.BaseOffset())
			require.Equal(t, cluster.Offset(4261), b.LastOffset())
			require.Equal(t, cluster.Offset(4262), b.NextOffset())
			require.Equal(t, cluster.LeaderEpoch(9), b.PartitionLeaderEpoch())
			require.Equal(t, cluster.ProducerID(77), b.ProducerID())
			require.Equal(t, cluster.ProducerEpoch(3), b.ProducerEpoch())
			require.Equal(t, int32(2147483640), b.BaseSequence())
			require.Equal(t, int32(11), b.LastSequence(), "wraps to 0 after the highest int32")
			require.Equal(t, int32(20), b.RecordCount())
			require.Equal(t, int64(1700000000000), b.FirstTimestamp())
			require.Equal(t, int64(1700000019000), b.MaxTimestamp())
			require.Equal(t, codec, b.Compression())
			require.False(t, b.IsTransactional() || b.IsControl() || b.LogAppendTime() || b.HasDeleteHorizon())
			require.Equal(t, kafkaRecords(4242, codec != recordbatch.None), decode(t, b))
		})
	}
}

func TestWritesKafkasBytes(t *testing.T) {
	want := kafkaBatch(t, "none")
	got := build(recordbatch.Options{
		BaseOffset: 4242, LeaderEpoch: 9,
		Producer: &recordbatch.Producer{ID: 77, Epoch: 3, BaseSequence: 2147483640},
	}, kafkaRecords(4242, false)...)
	require.Equal(t, want, got)
}

func TestLogAppendTimeCountsForEveryRecord(t *testing.T) {
	b := kafkaBatch(t, "appendtime")
	require.True(t, b.LogAppendTime())
	for _, r := range decode(t, b) {
		require.Equal(t, int64(1700000009999), r.Timestamp)
	}

	o := recordbatch.Options{BaseOffset: 7, LeaderEpoch: 4}
	builder := recordbatch.NewBuilder(o)
	for i := range 5 {
		builder.Add(int64(i+1), []byte("k"+itoa(i+1)), []byte("v"+itoa(i+1)))
	}
	got := builder.Build()
	got.SetLogAppendTime(1700000009999)
	require.NoError(t, got.Verify())
	require.Equal(t, int64(1), got.FirstTimestamp(), "what the client wrote stays under the flag")
	require.Equal(t, decode(t, b), decode(t, got))
}

func TestMarkersAreKafkas(t *testing.T) {
	for _, c := range []struct {
		name    string
		options recordbatch.Options
		stamp   int64
		marker  recordbatch.Marker
	}{
		{
			"commit",
			recordbatch.Options{BaseOffset: 100, LeaderEpoch: 5, Producer: &recordbatch.Producer{ID: 4000, Epoch: 2}},
			1700000000123,
			recordbatch.Marker{Type: recordbatch.ControlCommit, CoordinatorEpoch: 11},
		},
		{
			"abort",
			recordbatch.Options{BaseOffset: 101, LeaderEpoch: 5, Producer: &recordbatch.Producer{ID: 4001, Epoch: 0}},
			1700000000124,
			recordbatch.Marker{Type: recordbatch.ControlAbort, CoordinatorEpoch: 12},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := kafkaBatch(t, c.name)
			require.NoError(t, want.Verify())
			m, ok, err := want.Marker()
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, c.marker, m)
			require.Equal(t, want, recordbatch.NewMarkerBatch(c.options, c.stamp, c.marker))
			require.Equal(t, int32(-1), c.options.Producer.BaseSequence+(-1), "the caller's options are not changed")
		})
	}
	_, ok, err := kafkaBatch(t, "none").Marker()
	require.NoError(t, err)
	require.False(t, ok)
}
