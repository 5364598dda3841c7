package compaction

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

// subject is a broker that is measured.
type subject struct {
	at
	name string
	pid  int
	logs string // its log directory
}

// figures are what was measured of one.
type figures struct {
	load, clean          time.Duration
	before, after        int64 // bytes of the log
	cpu                  time.Duration
	residentMax          int64
	alone, during, later time.Duration // p99 of produce to another topic
}

// TestBesideProducers compacts 5 million keys that were updated 20 million times
// with Zipf's skew, while another topic is written to, and prints size, time,
// memory and the producers' p99 beside Apache Kafka's on the same bytes, three times
// in turn. The short form does a fiftieth of it, here alone, and judges the outcome
// but no time.
func TestBesideProducers(t *testing.T) {
	keys, updates, probe, rounds := 100_000, 400_000, 2*time.Second, 1
	if kit.Long() {
		keys, updates, probe, rounds = 5_000_000, 20_000_000, 30*time.Second, 3
	}
	set := map[string]string{"log.cleaner.backoff.ms": "500", "log.segment.delete.delay.ms": "1000", "auto.create.topics.enable": "false"}
	var here, kafka []figures
	for range rounds {
		s := kit.Start(t, set)
		ours := subject{at{t, s.Addr}, "here", s.Pid(), filepath.Join(s.Dir, "logs")}
		f := ours.measure(keys, updates, probe)
		require.Less(t, f.after, f.before/2)
		require.Zero(t, s.Metric("strandline_compaction_failures_total"))
		require.Zero(t, s.Stop())
		here = append(here, f)
		if !kit.Long() {
			return
		}
		require.Less(t, f.residentMax, int64(400<<20), "of which log.cleaner.dedupe.buffer.size is 128 MiB")
		k := kit.NewKafka(t, t.TempDir(), "1G", set)
		k.Spawn()
		kit.Eventually(t, 3*time.Minute, "Apache Kafka answers", func() bool {
			c, err := kit.TryDial(t, k.Addr)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
		theirs := subject{at{t, k.Addr}, "Apache Kafka", k.Pid(), filepath.Join(k.Dir, "logs")}
		kafka = append(kafka, theirs.measure(keys, updates, probe))
		k.Stop()
	}
	judge(t, "Apache Kafka", kafka)
	require.LessOrEqual(t, judge(t, "here", here), 1.3, "what producers feel of compaction")
}

// judge says how many times their p99 alone, before and after, the producers' p99 was
// during compaction, in the middle one of the rounds: it is not the same twice alone.
func judge(t *testing.T, name string, rounds []figures) float64 {
	t.Helper()
	var all []float64
	for _, f := range rounds {
		all = append(all, float64(f.during)/(float64(f.alone+f.later)/2))
	}
	slices.Sort(all)
	t.Logf("%s: produce p99 during compaction %.2f times that alone (%.2f)", name, all[len(all)/2], all)
	return all[len(all)/2]
}

func (s subject) measure(keys, updates int, probe time.Duration) figures {
	s.t.Helper()
	var f figures
	segment := max(1<<20, (keys+updates)*125/40)
	s.create("t", "cleanup.policy=compact", fmt.Sprint("segment.bytes=", segment), "min.cleanable.dirty.ratio=1", "retention.ms=-1")
	s.create("probe", "segment.bytes=268435456")
	began := time.Now()
	latest := s.fill(keys, updates)
	f.load = time.Since(began)
	f.before = s.bytes()
	f.alone = s.probe(time.After(probe))
	cpu := kit.ProcessOf(s.t, s.pid)
	forgetPeak(s.pid)
	began = time.Now()
	s.alter("t", "min.cleanable.dirty.ratio", "0.01")
	done := make(chan time.Time)
	go func() {
		s.settled()
		f.clean = time.Since(began) - settledFor
		done <- time.Now()
	}()
	f.during = s.probe(done)
	after := kit.ProcessOf(s.t, s.pid)
	f.cpu, f.residentMax = after.CPU-cpu.CPU, peak(s.t, s.pid)
	f.after = s.bytes()
	f.later = s.probe(time.After(probe))
	s.t.Logf("%s: loaded in %v; %d MB became %d MB in %v, %v of CPU with the probe's; resident at most %d MB; produce p99 alone %v, during compaction %v (%.2f), after %v",
		s.name, f.load.Round(time.Millisecond), f.before/1e6, f.after/1e6, f.clean.Round(time.Millisecond), f.cpu.Round(10*time.Millisecond), f.residentMax/1e6,
		f.alone, f.during, float64(f.during)/float64(f.alone), f.later)
	s.check(latest)
	return f
}

const batchRecords = 140

// fill writes every key once, and then updates by Zipf's law; it returns the
// number of each key's last record.
func (s subject) fill(keys, updates int) []int32 {
	latest := make([]int32, keys)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 100, uint64(keys-1))
	c := kit.Dial(s.t, s.addr)
	defer c.Close()
	value := make([]byte, 100)
	b := recordbatch.NewBuilder(recordbatch.Options{})
	now := time.Now().UnixMilli()
	for n := 0; n < keys+updates; {
		b.Reset(recordbatch.Options{})
		for range batchRecords {
			k := n
			if n >= keys {
				k = int(zipf.Uint64())
			}
			n++
			latest[k] = int32(n)
			binary.BigEndian.PutUint32(value, uint32(n))
			b.Add(now, binary.BigEndian.AppendUint64(nil, uint64(k)*0x9e3779b97f4a7c15), value)
			if n == keys+updates {
				break
			}
		}
		req := kit.Produce(9, "t", 0, b.Build())
		req.Acks = 1
		resp := c.Call(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		require.NoError(s.t, kerr.ErrorForCode(resp.ErrorCode))
	}
	return latest
}

func (s subject) alter(topic, key, value string) {
	s.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = key, &value
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	require.NoError(s.t, kerr.ErrorForCode(call[*kmsg.IncrementalAlterConfigsResponse](s.at, req).Resources[0].ErrorCode))
}

// forgetPeak makes the most memory that a process has held what it holds now.
func forgetPeak(pid int) { _ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) }

// peak is the most memory that a process has held, in bytes.
func peak(t testing.TB, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); err == nil {
			return kilobytes << 10
		}
	}
	return 0
}

// bytes is the size of the log's segments.
func (s subject) bytes() int64 {
	names, err := filepath.Glob(filepath.Join(s.logs, "t-0", "*.log"))
	require.NoError(s.t, err)
	var n int64
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			n += info.Size()
		}
	}
	return n
}

// settledFor is how long the log's files must be as they are.
const settledFor = 4 * time.Second

// settleMax is how long it may take until they do not change.
const settleMax = 20 * time.Minute

// settled returns once the log's files are less than they are now, see settledBelow.
func (s subject) settled() { s.settledBelow(s.bytes()) }

// settledBelow returns once the log's files are less than that many bytes, and have not
// changed for settledFor. It looks at
// the folder, whose time every new, renamed and removed file changes, and seldom: the
// probes are on the same processors, and hundreds of files cost a millisecond.
func (s subject) settledBelow(first int64) {
	tick := time.NewTicker(settledFor / 8)
	defer tick.Stop()
	var was time.Time
	since := time.Now()
	for begun := time.Now(); time.Since(begun) < settleMax; <-tick.C {
		info, err := os.Stat(filepath.Join(s.logs, "t-0"))
		require.NoError(s.t, err)
		if now := info.ModTime(); !now.Equal(was) {
			was, since = now, time.Now()
		}
		if time.Since(since) <= settledFor || s.bytes() >= first {
			continue
		}
		if cleaned, _ := filepath.Glob(filepath.Join(s.logs, "t-0", "*.cleaned")); len(cleaned) == 0 {
			return
		}
	}
}

const (
	probeConnections = 4
	probeEvery       = 5 * time.Millisecond // of each connection
)

// probe writes records of 1 KB to another topic, 800 a second, until told to stop,
// and returns the 99th percentile of the time until they were acknowledged.
func (s subject) probe(until <-chan time.Time) time.Duration {
	s.t.Helper()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		all  []time.Duration
		stop atomic.Bool
	)
	b := recordbatch.NewBuilder(recordbatch.Options{})
	b.Add(time.Now().UnixMilli(), []byte("k"), make([]byte, 1000))
	batch := b.Build()
	for range probeConnections {
		c := kit.Dial(s.t, s.addr)
		wg.Go(func() {
			defer c.Close()
			tick := time.NewTicker(probeEvery)
			defer tick.Stop()
			for !stop.Load() {
				<-tick.C
				began := time.Now()
				resp := c.Call(kit.Produce(9, "probe", 0, slices.Clone(batch))).(*kmsg.ProduceResponse)
				took := time.Since(began)
				if resp.Topics[0].Partitions[0].ErrorCode != 0 {
					panic(resp.Topics[0].Partitions[0].ErrorCode)
				}
				mu.Lock()
				all = append(all, took)
				mu.Unlock()
			}
		})
	}
	<-until
	stop.Store(true)
	wg.Wait()
	slices.Sort(all)
	return all[len(all)*99/100].Round(time.Microsecond)
}

// check reads the whole topic: of each key its last record is there.
func (s subject) check(latest []int32) {
	s.t.Helper()
	c := kit.Dial(s.t, s.addr)
	defer c.Close()
	got := make([]int32, len(latest))
	var d recordbatch.Decoder
	for from := int64(0); ; {
		p := c.Call(kit.Fetch(11, "t", 0, from, 8<<20)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		require.NoError(s.t, kerr.ErrorForCode(p.ErrorCode))
		if from >= p.HighWatermark {
			break
		}
		for data := p.RecordBatches; len(data) > 0; {
			b, rest, err := recordbatch.First(data)
			if err != nil {
				break
			}
			for r, err := range d.Records(b) {
				require.NoError(s.t, err)
				got[binary.BigEndian.Uint64(r.Key)*0xf1de83e19937733d] = int32(binary.BigEndian.Uint32(r.Value))
			}
			data, from = rest, int64(b.NextOffset())
		}
	}
	require.True(s.t, slices.Equal(latest, got))
}
