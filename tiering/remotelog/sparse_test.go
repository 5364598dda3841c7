package remotelog_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/tiering/archive/tiertest"
	"strandline/tiering/segmentobject"
)

func newDecoder() *recordbatch.Decoder { return recordbatch.NewDecoder(0) }

// TI-01: offsets whose batches compaction removed lead on to what follows.
func TestOffsetsThatCompactionRemoved(t *testing.T) {
	w := newWorld(t, 16<<20)
	ctx := context.Background()
	r := tiertest.NewReplica(w.fs, w.catalog, "compacted", 0)
	var all []recordbatch.Batch
	publish := func(base, end cluster.Offset, offsets ...cluster.Offset) {
		var data []byte
		for _, o := range offsets {
			b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: o, LeaderEpoch: 1})
			b.Add(1000+int64(o), []byte("k"), []byte("v"))
			batch := b.Build()
			all = append(all, batch)
			data = append(data, batch...)
		}
		span := request.SegmentSpan{ID: cluster.NewSegmentID(), Base: base, End: end, LeaderEpoch: 1, Location: "here"}
		span.Key = w.layout.SegmentKey(r.TP, base, span.ID)
		object, err := segmentobject.Build(ctx, segmentobject.Source{
			TopicName: r.Name, Topic: r.TP.Topic, Segment: span.ID, Base: base, End: end, Sparse: true, LeaderEpoch: 1,
			Batches: bytes.NewReader(data), Bytes: int64(len(data)), Created: time.Now(),
		})
		require.NoError(t, err)
		_, err = w.catalog.Submit(ctx, request.StartSegment{Partition: r.TP, LeaderEpoch: 1, Span: span, Deadline: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		_, err = w.store.Put(ctx, span.Key, object, object.PutOptions())
		require.NoError(t, err)
		_, err = w.catalog.Submit(ctx, request.PublishSegment{Partition: r.TP, LeaderEpoch: 1, ID: span.ID, Object: object.Summary()})
		require.NoError(t, err)
	}
	publish(0, 10, 2, 5)
	publish(10, 20, 12)
	publish(20, 30, 20, 25)
	for o := cluster.Offset(0); o < 30; o++ {
		s, err := w.log.Read(ctx, r.TP, partition.RemoteRead{Offset: o, Bound: noBound, MaxBytes: 1 << 20, MinOneBatch: true})
		require.NoError(t, err)
		got := contents(t, s)
		if o > 25 { // the rest is local
			require.Empty(t, got)
			require.Equal(t, cluster.Offset(30), s.NextOffset)
			continue
		}
		want := all
		for want[0].NextOffset() <= o {
			want = want[1:]
		}
		require.True(t, bytes.HasPrefix(got, want[0]), "offset %d", o)
		require.Greater(t, s.NextOffset, o)
	}
}
