package store_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"strandline/metadata/cluster"
	"strandline/metadata/store"
)

func in(r store.Range, key []byte) bool {
	return bytes.Compare(key, r.Lower) >= 0 && (r.Upper == nil || bytes.Compare(key, r.Upper) < 0)
}

func TestKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) cluster.TopicPartition {
			var tp cluster.TopicPartition
			for i := range tp.Topic {
				tp.Topic[i] = rapid.SampledFrom([]byte{0, 1, 0xff}).Draw(t, label)
			}
			tp.Partition = rapid.Int32Range(0, 1<<30).Draw(t, label)
			return tp
		}
		a, b := draw("a"), draw("b")
		same := a == b
		from := cluster.Offset(rapid.Int64Range(0, 1<<50).Draw(t, "from"))
		base := cluster.Offset(rapid.Int64Range(0, 1<<50).Draw(t, "base"))
		id := cluster.NewSegmentID()

		require.Equal(t, same && base >= from, in(store.LiveFrom(a, from), store.LiveKey(b, base)))
		require.Equal(t, same && base <= from, in(store.LiveUpTo(a, from), store.LiveKey(b, base)))
		require.Equal(t, same, in(store.Others(a), store.OtherKey(b, id)))
		require.True(t, in(store.Summaries(), store.SummaryKey(a)))
		got, ok := store.SummaryPartition(store.SummaryKey(a))
		require.True(t, ok)
		require.Equal(t, a, got)
		for i, key := range [][]byte{
			store.SummaryKey(b), store.LiveKey(b, base), store.LiveIDKey(b, id), store.OtherKey(b, id), store.DeletedKey(b.Topic),
		} {
			for j, r := range store.TopicCatalog(a.Topic) {
				require.Equal(t, i == j && a.Topic == b.Topic, in(r, key))
			}
		}
		topic, ok := store.DeletedTopic(store.DeletedKey(a.Topic))
		require.True(t, ok)
		require.Equal(t, a.Topic, topic)

		x, y := rapid.Uint64().Draw(t, "x"), rapid.Uint64().Draw(t, "y")
		require.Equal(t, x < y, bytes.Compare(store.RaftLogKey(x), store.RaftLogKey(y)) < 0)
		require.True(t, in(store.RaftLog(), store.RaftLogKey(x)))
		require.Equal(t, y <= x, in(store.RaftLogRange(0, x), store.RaftLogKey(y)))
		index, ok := store.RaftLogIndex(store.RaftLogKey(x))
		require.True(t, ok)
		require.Equal(t, x, index)
	})
	require.False(t, in(store.RaftLog(), store.RaftStableKey([]byte("t"))))
	require.False(t, in(store.Image(), store.AppliedKey()))
	require.True(t, in(store.Image(), store.ImageKey([]byte{0xff, 0xff})))
	require.Equal(t, []byte("xy"), store.ImageEntry(store.ImageKey([]byte("xy"))))
}

// TestViewKeys keeps the views of partitions apart, and finds what is in keys.
func TestViewKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) cluster.TopicPartition {
			var tp cluster.TopicPartition
			for i := range tp.Topic {
				tp.Topic[i] = rapid.SampledFrom([]byte{0, 0xff}).Draw(t, label)
			}
			tp.Partition = rapid.Int32Range(0, 2).Draw(t, label)
			return tp
		}
		a, b := draw("a"), draw("b")
		viewKey := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff}), 0, 3).Draw(t, "view key")
		prefix := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff}), 0, 3).Draw(t, "prefix")
		producer := cluster.ProducerID(rapid.Int64Range(0, 1<<40).Draw(t, "producer"))
		other := cluster.ProducerID(rapid.Int64Range(0, 1<<40).Draw(t, "other"))
		offset := cluster.Offset(rapid.Int64Range(0, 1<<50).Draw(t, "offset"))

		entry := store.AppendViewEntryKey([]byte("kept"), b, viewKey)
		require.Equal(t, "kept", string(entry[:4]))
		entry = entry[4:]
		require.Equal(t, a == b && bytes.HasPrefix(viewKey, prefix), in(store.ViewEntries(a, prefix), entry))
		require.Equal(t, viewKey, append([]byte{}, store.ViewKey(entry)...))
		pending := store.ViewPendingKey(b, producer, offset)
		require.Equal(t, a == b, in(store.ViewPending(a), pending))
		require.Equal(t, a == b && producer == other, in(store.ViewPendingOf(a, other), pending))
		gotProducer, gotOffset, ok := store.ViewPendingRecord(pending)
		require.True(t, ok)
		require.Equal(t, producer, gotProducer)
		require.Equal(t, offset, gotOffset)
		_, _, ok = store.ViewPendingRecord(entry)
		require.False(t, ok)
		position := store.ViewPositionKey(b)
		tp, ok := store.ViewPositionPartition(position)
		require.True(t, ok)
		require.Equal(t, b, tp)
		require.True(t, in(store.ViewPositions(), position))
		_, ok = store.ViewPositionPartition(pending)
		require.False(t, ok)
		set := store.AppendViewSetKey([]byte("kept"), b, viewKey)
		require.Equal(t, "kept", string(set[:4]))
		set = set[4:]
		require.Equal(t, a == b && bytes.HasPrefix(viewKey, prefix), in(store.ViewSets(a, prefix), set))
		require.Equal(t, viewKey, append([]byte{}, store.ViewSet(set)...))
		for i, key := range [][]byte{position, entry, pending, set} {
			for j, r := range store.View(a) {
				require.Equal(t, i == j && a == b, in(r, key))
			}
		}
	})
}
