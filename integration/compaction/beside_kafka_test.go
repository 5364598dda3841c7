package compaction

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// cleaner makes both cleaners eager.
var cleaner = map[string]string{"log.cleaner.backoff.ms": "200", "log.cleaner.min.cleanable.ratio": "0.001", "log.cleaner.enable": "true"}

// TestLeavesWhatApacheKafkaLeaves sends the same bytes to Apache Kafka and here,
// and compares what the two cleaners leave: the same records, in the same batches
// but for the delete horizon's time. Its tools then read our files.
func TestLeavesWhatApacheKafkaLeaves(t *testing.T) {
	k := kit.NewKafka(t, t.TempDir(), "512M", cleaner)
	k.Spawn()
	s := kit.Start(t, cleaner)
	kafka, ours := at{t, k.Addr}, at{t, s.Addr}
	kit.Eventually(t, 3*time.Minute, "Apache Kafka answers", func() bool {
		c, err := kit.TryDial(t, k.Addr)
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
	w := &workload{rng: rand.New(rand.NewPCG(1, 1)), keys: 900, now: time.Now().Add(-time.Hour).UnixMilli()}
	for _, a := range []at{kafka, ours} {
		a.create("t", "cleanup.policy=compact", "segment.bytes=1048576", "retention.ms=-1")
	}
	toKafka, toUs := kit.Dial(t, k.Addr), kit.Dial(t, s.Addr)
	for w.n < 40_000 {
		b := w.batch()
		kafka.produce(toKafka, "t", slices.Clone(b))
		ours.produce(toUs, "t", b)
	}
	var theirs, mine []string
	kit.Eventually(t, 2*time.Minute, "both leave the same records", func() bool {
		theirs, mine = lines(t, kafka.batches("t", 0)), lines(t, ours.batches("t", 0))
		return len(mine) < w.n/2 && slices.Equal(theirs, mine)
	})
	require.Equal(t, shapes(kafka.batches("t", 0)), shapes(ours.batches("t", 0)))
	t.Logf("%d records of %d are left", len(mine), w.n)
	require.Zero(t, s.Stop())
	dumped(t, filepath.Join(s.Dir, "logs", "t-0"))
}

// dumped lets Apache Kafka's tool read every file of a log.
func dumped(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	require.Greater(t, len(logs), 1)
	horizons := 0
	for _, name := range logs {
		files := []string{name}
		for _, suffix := range []string{".index", ".timeindex"} {
			files = append(files, strings.TrimSuffix(name, ".log")+suffix)
		}
		out, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", strings.Join(files, ","))
		require.Zero(t, code, "%s%s", out, errOut)
		require.NotContains(t, out, "isvalid: false")
		require.NotContains(t, out, "Mismatches")
		require.NotContains(t, out, "Found timestamp mismatch")
		require.NotContains(t, out, "out of order")
		require.NotContains(t, out, "Non-consecutive") // offsets within a batch
		require.Contains(t, out, "isvalid: true")
		horizons += strings.Count(out, "deleteHorizonMs: OptionalLong[")
	}
	require.Positive(t, horizons, "tombstones have their delete horizon")
}
