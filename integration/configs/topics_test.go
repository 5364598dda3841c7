package configs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/metadata/config"
)

// way is how a row sets the key that it is about: on the topic, or through the
// broker key that gives its default. All of it happens while the topic is used.
type way struct {
	*running
	key string
	// kind and of name the resource that is changed; "" of a topic is the one
	// that the row made.
	kind kmsg.ConfigResourceType
	of   string
}

// set gives the key its value for a topic.
func (w way) set(topic, value string) {
	w.t.Helper()
	of := w.of
	if w.kind == ofTopic {
		of = topic
	}
	w.mustAlter(w.kind, of, w.key+"="+value)
	w.applied()
}

// topicRows show the effect of every topic key.
var topicRows = map[string]func(w way){
	"cleanup.policy":                 cleanupPolicy,
	"compression.type":               compressionType,
	"compression.gzip.level":         levels("gzip", "1", "9"),
	"compression.lz4.level":          levels("lz4", "9", "12"),
	"compression.zstd.level":         levels("zstd", "1", "19"),
	"delete.retention.ms":            deleteRetention,
	"file.delete.delay.ms":           fileDeleteDelay,
	"flush.messages":                 flushes("2"),
	"flush.ms":                       flushes("1"),
	"index.interval.bytes":           indexInterval,
	"internal.segment.bytes":         segmentSize("1000", 400),
	"local.retention.bytes":          localRetention("100", "local.retention.ms=-2"),
	"local.retention.ms":             localRetention("1000", "local.retention.bytes=-2"),
	"max.compaction.lag.ms":          maxCompactionLag,
	"max.decompressed.message.bytes": maxDecompressed,
	"max.message.bytes":              maxMessage,
	"message.timestamp.after.max.ms": timestampBound(time.Hour/2, "60000"),
	// Before the bound is set, any past is allowed.
	"message.timestamp.before.max.ms": timestampBound(-time.Hour/2, "60000"),
	"message.timestamp.type":          timestampType,
	"min.cleanable.dirty.ratio":       dirtyRatio,
	"min.compaction.lag.ms":           minCompactionLag,
	"min.insync.replicas":             minInsyncReplicas,
	"remote.copy.lag.bytes":           copyLag("100", "remote.copy.lag.ms=-1", "1000000"),
	"remote.copy.lag.ms":              copyLag("0", "remote.copy.lag.bytes=-1", "3600000"),
	"remote.log.copy.disable":         copyLag("false", "local.retention.ms=-2", "true"),
	"remote.log.delete.on.disable":    deleteOnDisable,
	"remote.storage.enable":           remoteStorage,
	"retention.bytes":                 retention("100"),
	"retention.ms":                    retention("60000"),
	"segment.bytes":                   segmentSize("1048576", 400<<10),
	"segment.index.bytes":             segmentIndex,
	"segment.jitter.ms":               segmentJitter,
	"segment.ms":                      segmentAge,
	"unclean.leader.election.enable":  uncleanElection,
}

// TestTopicKeys shows the effect of every topic key that is set on a topic, and
// then through its broker key: for all brokers and for this one in turn.
func TestTopicKeys(t *testing.T) {
	for _, k := range config.TopicKeys() {
		if k.Effect == config.Effective {
			require.Contains(t, topicRows, k.Name, "a topic key without a row: show its effect, or say with ignored(...) why it has none")
		} else {
			require.NotContains(t, topicRows, k.Name, "%s", k.Reason)
		}
	}
	n := start(t)
	t.Run("topic", func(t *testing.T) {
		for _, k := range config.TopicKeys() {
			if row := topicRows[k.Name]; row != nil {
				t.Run(k.Name, func(t *testing.T) {
					t.Parallel()
					row(way{running: n.to(t), key: k.Name, kind: ofTopic})
				})
			}
		}
	})
	t.Run("broker", func(t *testing.T) {
		for i, k := range config.TopicKeys() {
			row := topicRows[k.Name]
			if row == nil {
				continue
			}
			for _, synonym := range k.Synonyms {
				b, _ := config.BrokerKey(synonym)
				if b.Dynamic != config.ClusterWide {
					require.Contains(t, nodeRows, synonym)
					continue
				}
				t.Run(synonym, func(t *testing.T) {
					w := way{running: n.to(t), key: synonym, kind: ofBroker, of: []string{"", "1"}[i%2]}
					t.Cleanup(func() { w.mustAlter(w.kind, w.of, synonym) })
					row(w)
				})
			}
		}
	})
}

var old = func() time.Time { return time.Now().Add(-2 * time.Hour) }

func cleanupPolicy(w way) {
	topic := w.create(1, "retention.ms=60000", "internal.segment.bytes=200")
	w.set(topic, "compact")
	w.write(topic, 3, 100, old())
	w.passed()
	require.Zero(w.t, w.start(topic), "compact alone deletes nothing by age")
	w.set(topic, "delete")
	w.eventually("old segments go", func() bool { return w.start(topic) > 0 })
}

func compressionType(w way) {
	topic := w.create(1)
	codec := func(offset int64) recordbatch.Codec {
		b, _, err := recordbatch.First(w.fetch(topic, offset, 1<<20))
		require.NoError(w.t, err)
		return b.Compression()
	}
	w.write(topic, 1, 1000, time.Now())
	require.Equal(w.t, recordbatch.None, codec(0), "as the producer sent it")
	for i, c := range []recordbatch.Codec{recordbatch.Gzip, recordbatch.Snappy, recordbatch.LZ4, recordbatch.Zstd} {
		w.set(topic, strings.ToLower(c.String()))
		w.write(topic, 1, 1000, time.Now())
		require.Equal(w.t, c, codec(int64(i+1)))
	}
}

// words are bytes that compress better the harder one tries.
func words() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for len(b) < 200<<10 {
		b = fmt.Appendf(b, "%s-%d ", []string{"strand", "line", "broker", "topic", "partition", "offset"}[r.IntN(6)], r.IntN(300))
	}
	return b
}

func levels(codec, one, other string) func(way) {
	return func(w way) {
		topic := w.create(1, "compression.type="+codec)
		size := func(offset int64, level string) int {
			w.set(topic, level)
			b := recordbatch.NewBuilder(recordbatch.Options{})
			b.Add(time.Now().UnixMilli(), nil, words())
			require.Zero(w.t, w.put(topic, 0, b.Build()).ErrorCode)
			return len(w.fetch(topic, offset, 1<<20))
		}
		require.Greater(w.t, size(0, one), size(1, other), "harder makes it smaller")
	}
}

func fileDeleteDelay(w way) {
	fill := func() string {
		topic := w.create(1, "retention.ms=60000", "internal.segment.bytes=200")
		w.write(topic, 3, 100, old())
		w.eventually("old segments go", func() bool { return w.start(topic) >= 2 })
		return topic
	}
	first := fill()
	require.NotEmpty(w.t, w.files(first, 0, ".deleted"), "a minute by default")
	w.set(first, "0")
	second := first
	if w.kind == ofBroker {
		second = fill()
	} else {
		w.write(first, 3, 100, old())
		w.eventually("old segments go", func() bool { return w.start(first) >= 5 })
	}
	w.eventually("the files of the second turn go at once", func() bool {
		for _, name := range w.files(second, 0, "") {
			if second == first && strings.HasPrefix(name, "00000000000000000004.") || second != first && strings.HasSuffix(name, ".deleted") {
				return false
			}
		}
		return true
	})
	require.NotEmpty(w.t, w.files(first, 0, ".deleted"), "what was deleted before keeps its time")
}

// recovered is a partition's recovery point: what is on disk for certain.
func (n *running) recovered(topic string) int64 {
	n.t.Helper()
	b, err := os.ReadFile(filepath.Join(n.Dir, "logs", "recovery-point-offset-checkpoint"))
	if err != nil {
		return 0 // not written yet
	}
	for line := range strings.Lines(string(b)) {
		var offset int64
		if _, err := fmt.Sscanf(line, topic+" 0 %d", &offset); err == nil {
			return offset
		}
	}
	return 0
}

func flushes(value string) func(way) {
	return func(w way) {
		topic := w.create(1)
		w.write(topic, 3, 100, time.Now())
		w.passed()
		require.Zero(w.t, w.recovered(topic), "nothing asks for a flush")
		w.set(topic, value)
		w.write(topic, 3, 100, time.Now())
		w.eventually("the log is flushed", func() bool { return w.recovered(topic) >= 4 })
	}
}

func indexInterval(w way) {
	entries := func(topic string) int {
		w.write(topic, 20, 500, time.Now())
		w.mustAlter(ofTopic, topic, "segment.ms=1")
		w.eventually("the segment is sealed", func() bool { return w.segments(topic, 0) == 2 })
		info, err := os.Stat(filepath.Join(w.Dir, "logs", topic+"-0", "00000000000000000000.index"))
		require.NoError(w.t, err)
		return int(info.Size() / 8)
	}
	sparse, dense := w.create(1), w.create(1)
	require.Less(w.t, entries(sparse), 5)
	w.set(dense, "0")
	require.Greater(w.t, entries(dense), 15)
}

func segmentSize(value string, size int) func(way) {
	return func(w way) {
		topic := w.create(1)
		w.write(topic, 4, size, time.Now())
		require.Equal(w.t, 1, w.segments(topic, 0))
		w.set(topic, value)
		w.write(topic, 4, size, time.Now())
		require.GreaterOrEqual(w.t, w.segments(topic, 0), 3)
	}
}

func segmentIndex(w way) {
	topic := w.create(1, "index.interval.bytes=0")
	w.write(topic, 10, 100, time.Now())
	require.Equal(w.t, 1, w.segments(topic, 0))
	w.set(topic, "40")
	w.write(topic, 10, 100, time.Now())
	require.GreaterOrEqual(w.t, w.segments(topic, 0), 3)
}

func segmentAge(w way) {
	topic := w.create(1)
	now := time.Now()
	w.write(topic, 1, 100, now.Add(-2*time.Hour))
	w.write(topic, 1, 100, now)
	require.Equal(w.t, 1, w.segments(topic, 0))
	w.set(topic, "3600000")
	w.write(topic, 1, 100, now.Add(-time.Hour/2))
	require.Equal(w.t, 2, w.segments(topic, 0), "the age that timestamps give")
	w.set(topic, "100")
	w.eventually("the segment is sealed with nothing written", func() bool { return w.segments(topic, 0) == 3 })
}

func segmentJitter(w way) {
	const partitions = 32
	topic := w.create(partitions, "segment.ms=3600000")
	w.set(topic, "3600000")
	now := time.Now()
	counts := map[int]int{}
	for p := range partitions {
		// The first two make a segment that draws its jitter.
		for _, ago := range []time.Duration{150, 30, 0} {
			require.Zero(w.t, w.put(topic, int32(p), batch(100, now.Add(-ago*time.Minute))).ErrorCode)
		}
		counts[w.segments(topic, p)]++
	}
	require.NotZero(w.t, counts[2], "jitter below half an hour")
	require.NotZero(w.t, counts[3], "jitter above half an hour")
	require.Len(w.t, counts, 2)
}

func maxDecompressed(w way) {
	topic := w.create(1, "compression.type=zstd")
	b := recordbatch.NewBuilder(recordbatch.Options{Codec: recordbatch.Gzip})
	b.Add(time.Now().UnixMilli(), nil, make([]byte, 100<<10))
	data := b.Build()
	require.Zero(w.t, w.put(topic, 0, append([]byte(nil), data...)).ErrorCode)
	w.set(topic, "1000")
	require.ErrorIs(w.t, kerr.ErrorForCode(w.put(topic, 0, data).ErrorCode), kerr.InvalidRecord)
}

func maxMessage(w way) {
	topic := w.create(1)
	require.Zero(w.t, w.put(topic, 0, batch(2000, time.Now())).ErrorCode)
	w.set(topic, "1000")
	require.ErrorIs(w.t, kerr.ErrorForCode(w.put(topic, 0, batch(2000, time.Now())).ErrorCode), kerr.MessageTooLarge)
	w.set(topic, "3000")
	require.Zero(w.t, w.put(topic, 0, batch(2000, time.Now())).ErrorCode)
}

func timestampBound(at time.Duration, value string) func(way) {
	return func(w way) {
		topic := w.create(1)
		require.Zero(w.t, w.put(topic, 0, batch(10, time.Now().Add(at))).ErrorCode)
		w.set(topic, value)
		require.ErrorIs(w.t, kerr.ErrorForCode(w.put(topic, 0, batch(10, time.Now().Add(at))).ErrorCode), kerr.InvalidTimestamp)
		require.Zero(w.t, w.put(topic, 0, batch(10, time.Now())).ErrorCode)
	}
}

func timestampType(w way) {
	topic := w.create(1)
	require.EqualValues(w.t, -1, w.put(topic, 0, batch(10, old())).LogAppendTime)
	w.set(topic, "LogAppendTime")
	require.WithinDuration(w.t, time.Now(), time.UnixMilli(w.put(topic, 0, batch(10, old())).LogAppendTime), time.Minute)
	b, _, err := recordbatch.First(w.fetch(topic, 1, 1<<20))
	require.NoError(w.t, err)
	require.WithinDuration(w.t, time.Now(), time.UnixMilli(b.MaxTimestamp()), time.Minute)
}

func retention(value string) func(way) {
	return func(w way) {
		topic := w.create(1, "internal.segment.bytes=200")
		w.write(topic, 4, 100, old())
		w.passed()
		require.Zero(w.t, w.start(topic))
		w.set(topic, value)
		w.eventually("old segments go", func() bool { return w.start(topic) > 0 })
	}
}

func localRetention(value, other string) func(way) {
	return func(w way) {
		topic := w.create(1, "internal.segment.bytes=200", "remote.storage.enable=true", other)
		w.write(topic, 4, 100, old())
		w.eventually("segments go to the tier", func() bool { return w.uploaded(topic) >= 3 })
		w.passed()
		require.Zero(w.t, w.localStart(topic))
		w.set(topic, value)
		w.eventually("the local copy goes", func() bool { return w.localStart(topic) > 0 })
		require.Zero(w.t, w.start(topic))
	}
}

// copyLag holds uploads back with one value and lets them go with another.
func copyLag(release, other, hold string) func(way) {
	return func(w way) {
		topic := w.create(1, "internal.segment.bytes=200", "remote.storage.enable=true", other)
		w.set(topic, hold)
		w.write(topic, 4, 100, time.Now())
		w.archived()
		require.Zero(w.t, w.uploaded(topic))
		w.set(topic, release)
		w.eventually("segments go to the tier", func() bool { return w.uploaded(topic) > 0 })
	}
}

func remoteStorage(w way) {
	topic := w.create(1, "internal.segment.bytes=200")
	w.write(topic, 4, 100, time.Now())
	w.archived()
	require.Empty(w.t, w.objects(topic))
	w.set(topic, "true")
	w.eventually("segments go to the tier", func() bool { return len(w.objects(topic)) > 0 })
}

func deleteOnDisable(w way) {
	topic := w.create(1, "internal.segment.bytes=200", "remote.storage.enable=true", "local.retention.bytes=200", "local.retention.ms=-2")
	w.write(topic, 6, 100, time.Now())
	w.eventually("the local copy of some goes", func() bool { return w.localStart(topic) > 0 })
	require.ErrorIs(w.t, kerr.ErrorForCode(w.alter(ofTopic, topic, "remote.storage.enable=false").ErrorCode), kerr.InvalidConfig)
	require.Zero(w.t, w.start(topic))
	w.set(topic, "true")
	w.mustAlter(ofTopic, topic, "remote.storage.enable=false")
	w.eventually("what is only in the tier goes", func() bool { return w.start(topic) > 0 })
	w.eventually("so do its objects", func() bool { return len(w.objects(topic)) <= 6-int(w.start(topic)) })
}
