package configs

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"strandline/broker/recordbatch"
)

// compacted makes a topic that is compacted at once, unless the settings say
// otherwise, each record in a segment of its own.
func (n *running) compacted(configs ...string) string {
	n.t.Helper()
	return n.create(1, append([]string{"cleanup.policy=compact", "internal.segment.bytes=200", "file.delete.delay.ms=0"}, configs...)...)
}

// left is how many records a topic has left, and how many of them are tombstones.
func (n *running) left(topic string) (records, tombstones int) {
	n.t.Helper()
	for offset, end := int64(0), n.lookup(topic, 0, -1).Offset; offset < end; {
		data := n.fetch(topic, offset, 1<<20)
		require.NotEmpty(n.t, data)
		for len(data) > 0 {
			b, rest, err := recordbatch.First(data)
			if err != nil {
				break // cut off by the fetch's limit
			}
			for k, err := range new(recordbatch.Decoder).Keys(b) {
				require.NoError(n.t, err)
				records++
				if k.Tombstone {
					tombstones++
				}
			}
			data, offset = rest, int64(b.NextOffset())
		}
	}
	return records, tombstones
}

// cleaned returns once the cleaner has looked at every partition since it was
// called: another topic is compacted twice.
func (n *running) cleaned() {
	n.t.Helper()
	topic := n.compacted("min.cleanable.dirty.ratio=0.01", "min.compaction.lag.ms=0")
	for range 2 {
		n.write(topic, 10, 100, time.Now())
		n.isCompacted(topic)
	}
}

func (n *running) isCompacted(topic string) {
	n.t.Helper()
	n.eventually("the log is compacted", func() bool { records, _ := n.left(topic); return records < 5 })
}

func (n *running) isNotCompacted(topic string, records int) {
	n.t.Helper()
	n.cleaned()
	got, _ := n.left(topic)
	require.Equal(n.t, records, got)
}

func dirtyRatio(w way) {
	topic := w.compacted()
	w.set(topic, "1")
	w.write(topic, 10, 100, time.Now())
	w.isNotCompacted(topic, 10)
	w.set(topic, "0.1")
	w.isCompacted(topic)
}

func minCompactionLag(w way) {
	topic := w.compacted("min.cleanable.dirty.ratio=0.01")
	w.set(topic, "3600000")
	w.write(topic, 10, 100, time.Now())
	w.isNotCompacted(topic, 10)
	w.set(topic, "1")
	w.isCompacted(topic)
}

func maxCompactionLag(w way) {
	topic := w.compacted("min.cleanable.dirty.ratio=1")
	w.write(topic, 10, 100, time.Now())
	w.isNotCompacted(topic, 10)
	w.set(topic, "100")
	w.isCompacted(topic)
	w.eventually("the last segment is sealed by its age", func() bool { return len(w.files(topic, 0, "00000000000000000010.log")) == 1 })
}

// deleteRetention: a tombstone goes at once, or stays.
func deleteRetention(w way) {
	stays := w.compacted("min.cleanable.dirty.ratio=0.01", "delete.retention.ms=3600000")
	goes := w.compacted("min.cleanable.dirty.ratio=0.01")
	w.set(goes, "0")
	for _, topic := range []string{stays, goes} {
		w.write(topic, 5, 100, time.Now())
		b := recordbatch.NewBuilder(recordbatch.Options{})
		b.Add(time.Now().UnixMilli(), []byte("key"), nil, recordbatch.Header{Key: "large", Value: make([]byte, 60)})
		require.NoError(w.t, kerr.ErrorForCode(w.put(topic, 0, b.Build()).ErrorCode))
	}
	tick := 0
	w.eventually("the tombstone goes", func() bool {
		// What makes the log dirty has other keys.
		tick++
		b := recordbatch.NewBuilder(recordbatch.Options{})
		b.Add(time.Now().UnixMilli(), fmt.Append(nil, "key-", tick), make([]byte, 60))
		batch := b.Build()
		for _, topic := range []string{stays, goes} {
			require.NoError(w.t, kerr.ErrorForCode(w.put(topic, 0, batch).ErrorCode))
		}
		_, tombstones := w.left(goes)
		return tombstones == 0
	})
	_, tombstones := w.left(stays)
	require.Equal(w.t, 1, tombstones)
}

// TestCleanerKeysWhileItRuns: what the cleaner's keys say holds from the next
// moment on.
func TestCleanerKeysWhileItRuns(t *testing.T) {
	n := start(t, map[string]string{"log.cleaner.backoff.ms": "3600000", "log.cleaner.threads": "0"})
	topic := n.compacted("min.cleanable.dirty.ratio=0.01")
	n.write(topic, 20, 100, time.Now())
	n.mustAlter(ofBroker, "", "log.cleaner.backoff.ms=50", "log.cleaner.io.max.bytes.per.second=10")
	n.mustAlter(ofBroker, "1", "log.cleaner.threads=1")
	n.eventually("the cleaner has begun", func() bool { return n.Metric("strandline_compaction_running") == 1 })
	records, _ := n.left(topic)
	require.Equal(t, 20, records, "which takes it minutes")
	n.mustAlter(ofBroker, "", "log.cleaner.io.max.bytes.per.second=1e9")
	n.isCompacted(topic)
	n.eventually("the pass has ended", func() bool { return n.Metric("strandline_compaction_records_removed_total") > 0 })
	require.Zero(t, n.Metric("strandline_compaction_uncleanable_partitions"))
}

func cleanerEnabled(t *testing.T) {
	off := with(t, "log.cleaner.enable=false")
	on := with(t, "log.cleaner.enable=true")
	kept, topic := off.compacted("min.cleanable.dirty.ratio=0.01"), on.compacted("min.cleanable.dirty.ratio=0.01")
	off.write(kept, 10, 100, time.Now())
	on.write(topic, 10, 100, time.Now())
	on.isCompacted(topic)
	on.cleaned()
	records, _ := off.left(kept)
	require.Equal(t, 10, records)
}
