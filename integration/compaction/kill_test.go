package compaction

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

// rewriteSteps are where a server can be made to pause within a rewrite.
var rewriteSteps = []string{"rewrite-cleaned", "rewrite-swap", "rewrite-replace"}

// pauseAt makes the server pause, at its next start, in the middle of a rewrite:
// at another step with each kill, and at none with every fourth. The file that it
// returns is there then.
func pauseAt(s *kit.Server, kill, nth int) (file string) {
	if kill%4 == 3 {
		s.Env("STRANDLINE_STEP=")
		return ""
	}
	file = filepath.Join(s.Dir, fmt.Sprint("paused-", kill))
	s.Env(fmt.Sprintf("STRANDLINE_STEP=%s:%d:after", rewriteSteps[kill%4], nth), "STRANDLINE_STEP_FILE="+file)
	return file
}

// proceed lets the server come to where it pauses.
func proceed(t *testing.T, paused string) {
	t.Helper()
	if paused != "" {
		require.NoError(t, os.WriteFile(paused+".after", nil, 0o600))
	}
}

// TestKilledWhileCompacting writes over and over to a few keys of logs that are
// compacted all the time, kills the server at the steps of a rewrite and at random
// moments, and compares what is read, from the start, with what was acknowledged.
func TestKilledWhileCompacting(t *testing.T) {
	kills := 4
	if kit.Long() {
		kills = 50
	}
	rng := rand.New(rand.NewPCG(7, 7))
	s := kit.New(t, t.TempDir(), map[string]string{"log.cleaner.backoff.ms": "10", "log.cleaner.min.cleanable.ratio": "0.01", "log.segment.delete.delay.ms": "0"})
	paused := pauseAt(s, 0, 2)
	s.MustStart()
	a := at{t, s.Addr}
	topics := []string{"one", "two"}
	for _, topic := range topics {
		a.create(topic, "cleanup.policy=compact", "internal.segment.bytes=20000", "delete.retention.ms=100")
	}
	last := map[string]map[string]string{"one": {}, "two": {}} // "" is a deletion
	serial := 0
	for kill := range kills {
		moment := time.After(time.Duration(300+rng.IntN(1200)) * time.Millisecond)
		doubtful := map[string]map[string]string{"one": {}, "two": {}}
		proceed(t, paused)
		c := kit.Dial(t, s.Addr)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				topic := topics[rng.IntN(2)]
				batch, wrote := writes(rng, &serial)
				doubtful[topic] = wrote
				if c.TrySend(kit.Produce(9, topic, 0, batch)) != nil {
					return
				}
				resp, err := c.Receive(kit.Produce(9, topic, 0, nil))
				if err != nil || resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode != 0 {
					return
				}
				doubtful[topic] = map[string]string{}
				for k, v := range wrote {
					last[topic][k] = v
				}
			}
		}()
		if paused == "" {
			<-moment
		} else {
			kit.Eventually(t, 30*time.Second, "the server is in the middle of a rewrite", func() bool {
				_, err := os.Stat(paused)
				return err == nil
			})
		}
		s.Kill()
		<-ended
		if paused = pauseAt(s, kill+1, 1+rng.IntN(20)); kill == kills-1 {
			s.Env("STRANDLINE_STEP=")
		}
		s.MustStart()
		a.addr = s.Addr
		for _, topic := range topics {
			compare(t, a, topic, last[topic], doubtful[topic], kill)
		}
	}
	require.Positive(t, s.Metric("strandline_compaction_passes_total"))
	require.Zero(t, s.Metric("strandline_compaction_failures_total"))
}

// writes makes a batch and says what it leaves.
func writes(rng *rand.Rand, serial *int) ([]byte, map[string]string) {
	b := recordbatch.NewBuilder(recordbatch.Options{Codec: recordbatch.Codec(rng.IntN(2) * rng.IntN(5))})
	wrote := map[string]string{}
	for range 1 + rng.IntN(20) {
		*serial++
		key, value := fmt.Sprint("key-", rng.IntN(200)), fmt.Sprintf("value-%0*d", 1+rng.IntN(100), *serial)
		if rng.IntN(5) == 0 {
			b.Add(time.Now().UnixMilli(), []byte(key), nil)
			wrote[key] = ""
			continue
		}
		b.Add(time.Now().UnixMilli(), []byte(key), []byte(value))
		wrote[key] = value
	}
	return b.Build(), wrote
}

// compare reads a topic from its start. What was under way at the kill may be
// there or not, as a whole.
func compare(t *testing.T, a at, topic string, last, doubtful map[string]string, kill int) {
	t.Helper()
	got := map[string]string{}
	for _, b := range a.batches(topic, 0) {
		for r, err := range new(recordbatch.Decoder).Records(b) {
			require.NoError(t, err)
			got[string(r.Key)] = string(r.Value)
		}
	}
	arrived := len(doubtful) > 0
	for k, v := range doubtful {
		arrived = arrived && got[k] == v
	}
	if arrived {
		for k, v := range doubtful {
			last[k] = v
		}
	}
	for k, v := range last {
		require.Equal(t, v, got[k], "%s after kill %d: key %s", topic, kill, k)
	}
	for k, v := range got {
		require.Equal(t, last[k], v, "%s after kill %d: key %s", topic, kill, k)
	}
}

// TestKilledWhileKeysAreMerged kills the server over and over in the first passes over
// a log with more keys than go to the index at once: what is left is the same.
func TestKilledWhileKeysAreMerged(t *testing.T) {
	keys, kills := 100_000, 5
	if kit.Long() {
		keys, kills = 1_000_000, 40
	}
	rng := rand.New(rand.NewPCG(3, 3))
	s := kit.Start(t, map[string]string{
		"log.cleaner.backoff.ms": "10", "log.segment.delete.delay.ms": "0", "auto.create.topics.enable": "false",
		"log.cleaner.dedupe.buffer.size": "16777216", // 98,304 keys
	})
	o := subject{at{t, s.Addr}, "here", s.Pid(), filepath.Join(s.Dir, "logs")}
	o.create("t", "cleanup.policy=compact", "segment.bytes=4194304", "min.cleanable.dirty.ratio=1", "retention.ms=-1")
	latest := o.fill(keys, 2*keys)
	first := o.bytes()
	o.alter("t", "min.cleanable.dirty.ratio", "0.01")
	merging := 0
	for range kills {
		<-time.After(time.Duration(rng.IntN(max(50, keys/800))) * time.Millisecond)
		if left, err := os.ReadDir(filepath.Join(s.Dir, "metadata", "keyindex", "bulk")); err == nil && len(left) > 0 {
			merging++
		}
		s.Kill()
		s.MustStart()
		o.addr, o.pid = s.Addr, s.Pid()
	}
	t.Logf("of %d kills %d were in the middle of a merge", kills, merging)
	o.settledBelow(first)
	o.check(latest)
	require.Zero(t, s.Metric("strandline_compaction_failures_total"))
	left, err := os.ReadDir(filepath.Join(s.Dir, "metadata", "keyindex", "bulk"))
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	require.Empty(t, left)
}
