package crash

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/integration/kit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

// steps are where the server can be made to pause until it is killed.
var steps = []string{"append", "roll", "upload", "publish", "local-trim", "startup-recovery", "topic-deletion"}

// ledger is what an idempotent producer of one partition was told.
type ledger struct {
	topic     string
	partition int32

	mu    sync.Mutex
	acked map[int]int64 // number of the record: offset
	sent  int
}

// run produces numbered records, in order, until ctx ends; every record is sent
// once by us and retried by the client for ever.
func (l *ledger) run(ctx context.Context, t *testing.T, addr string) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(l.topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(2*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.UnknownTopicRetries(-1),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.DialTimeout(time.Second), kgo.MaxBufferedRecords(2000), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Error(err)
		return
	}
	defer cl.Close()
	pad := strings.Repeat("p", 400)
	tick := time.NewTicker(4 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		n := l.sent
		l.sent++
		cl.Produce(context.Background(), &kgo.Record{Partition: l.partition, Value: []byte(strconv.Itoa(n) + " " + pad)}, func(r *kgo.Record, err error) {
			if err != nil {
				t.Errorf("record %d: %v", n, err)
				return
			}
			l.mu.Lock()
			l.acked[n] = r.Offset
			l.mu.Unlock()
		})
	}
	flush, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := cl.Flush(flush); err != nil {
		t.Errorf("flush: %v", err)
	}
}

// check reads everything back: every acknowledged record at its offset, in
// order, once.
func (l *ledger) check(t *testing.T, s *kit.Server) {
	t.Helper()
	start := kgo.NewOffset().At(0)
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: {l.partition: start}}))
	require.NoError(t, err)
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), l.topic)
	require.NoError(t, err)
	end, _ := ends.Lookup(l.topic, l.partition)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next, found := int64(0), map[int]int64{}
	last := -1
	for next < end.Offset {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			_, stacks := s.Get("/debug/pprof/goroutine?debug=1")
			_, status := s.Get("/tier/status")
			t.Fatalf("%s-%d: read up to %d of %d\n%s\n%s", l.topic, l.partition, next, end.Offset, status, stacks)
		}
		for _, e := range fetches.Errors() {
			require.NoError(t, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			require.Equal(t, next, r.Offset, "no gap")
			next++
			head, _, _ := strings.Cut(string(r.Value), " ")
			n, err := strconv.Atoi(head)
			require.NoError(t, err)
			_, twice := found[n]
			require.False(t, twice, "record %d is there twice", n)
			require.Greater(t, n, last, "records are in order")
			found[n], last = r.Offset, n
		})
	}
	for _, n := range slices.Sorted(maps.Keys(l.acked)) {
		at, ok := found[n]
		require.True(t, ok, "record %d was acknowledged at offset %d", n, l.acked[n])
		require.Equal(t, l.acked[n], at, "offset of record %d", n)
	}
	require.NotEmpty(t, l.acked)
}

func fixedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

// killConfig makes every step happen often.
func killConfig(addr, tier string) map[string]string {
	return map[string]string{
		"listeners":                           "PLAINTEXT://" + addr,
		"remote.store.url":                    "file://" + tier,
		"internal.segment.bytes":              "-",
		"log.retention.check.interval.ms":     "100",
		"log.initial.task.delay.ms":           "100",
		"log.segment.delete.delay.ms":         "100",
		"remote.log.manager.task.interval.ms": "100",
		"remote.manifest.interval.ms":         "200",
		"remote.object.delete.delay.ms":       "300",
		"remote.upload.deadline.ms":           "2000",
	}
}

// TestKill kills the server at every named step and at random, under idempotent
// producers of several partitions, and then looks for every acknowledged record.
// A topic whose deletion was acknowledged stays away.
func TestKill(t *testing.T) {
	rounds := 14
	if kit.Long() {
		rounds = 60
	}
	seed := seedOf(t)
	r := rand.New(rand.NewPCG(seed, 1))
	addr := fixedPort(t)
	tier := filepath.Join(t.TempDir(), "tier")
	s := kit.New(t, t.TempDir(), killConfig(addr, tier))
	s.MustStart()
	create(t, addr, "killed", 2, true)
	create(t, addr, "plain", 1, false)
	ledgers := []*ledger{{topic: "killed"}, {topic: "killed", partition: 1}, {topic: "plain"}}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, l := range ledgers {
		l.acked = map[int]int64{}
		wg.Go(func() { l.run(ctx, t, addr) })
	}
	hits, gone := map[string]int{}, map[string]bool{}
	for round := range rounds {
		step := ""
		if directed := 3 * len(steps); round < directed && (kit.Long() || round < rounds-3) {
			step = steps[round%len(steps)]
		}
		s.Kill()
		if hitStep(t, s, r, step, round, gone) {
			hits[step]++
		}
		s.Kill()
		s.Env("STRANDLINE_STEP=")
		s.MustStart()
	}
	least := 1
	if kit.Long() {
		least = 3
	}
	t.Logf("kills at steps: %v, others: %d, acknowledged deletions: %d", hits, rounds-len(hits)*hits[steps[0]], len(gone))
	for _, step := range steps {
		require.GreaterOrEqual(t, hits[step], least, "kills at step %s", step)
	}
	stop()
	wg.Wait()
	for _, l := range ledgers {
		l.check(t, s)
	}
	s.Restart(false)
	for _, l := range ledgers {
		l.check(t, s)
	}
	requireGone(t, addr, gone)
	awaitBucketEqualsCatalog(t, s, tier)
}

func requireGone(t *testing.T, addr string, gone map[string]bool) {
	t.Helper()
	require.NotEmpty(t, gone)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	require.NoError(t, err)
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(t.Context())
	require.NoError(t, err)
	for name := range gone {
		require.False(t, topics.Has(name), "the deletion of %s was acknowledged", name)
	}
}

func create(t *testing.T, addr, topic string, partitions int32, tiered bool) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	require.NoError(t, err)
	defer cl.Close()
	small, local, remote := "65536", "131072", strconv.FormatBool(tiered)
	_, err = kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 1, map[string]*string{
		"internal.segment.bytes": &small, "local.retention.bytes": &local, "remote.storage.enable": &remote,
	}, topic)
	require.NoError(t, err)
}

// hitStep starts the server so that it pauses at step, makes the step happen
// where load alone does not, and waits until it pauses. Without a step it runs
// for a random while. It reports whether the server paused there.
func hitStep(t *testing.T, s *kit.Server, r *rand.Rand, step string, round int, gone map[string]bool) bool {
	t.Helper()
	if step == "" {
		s.Env("STRANDLINE_STEP=")
		s.MustStart()
		if round%2 == 0 {
			deleteATopic(t, s.Addr, fmt.Sprintf("doomed-%d", round), gone)
		}
		<-time.After(time.Duration(50+r.IntN(800)) * time.Millisecond)
		return false
	}
	mark := filepath.Join(t.TempDir(), "paused")
	s.Env("STRANDLINE_STEP="+step+":"+strconv.Itoa(1+r.IntN(3)), "STRANDLINE_STEP_FILE="+mark)
	if step == "startup-recovery" || step == "topic-deletion" {
		s.Env("STRANDLINE_STEP=" + step + ":1")
	}
	s.Spawn()
	paused := func() bool { _, err := os.Stat(mark); return err == nil }
	if step == "topic-deletion" {
		require.NoError(t, s.AwaitReady(20*time.Second))
		deleteATopic(t, s.Addr, fmt.Sprintf("doomed-%d", round), gone)
	}
	kit.Eventually(t, 20*time.Second, "the server pauses at step "+step, paused)
	return true
}

// deleteATopic creates a topic with some records and asks for its deletion; the
// answer may never come, and is noted where it does.
func deleteATopic(t *testing.T, addr, topic string, gone map[string]bool) {
	t.Helper()
	create(t, addr, topic, 2, true)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.RequestTimeoutOverhead(time.Second))
	require.NoError(t, err)
	defer cl.Close()
	for range 300 {
		cl.Produce(t.Context(), &kgo.Record{Value: make([]byte, 1000)}, nil)
	}
	require.NoError(t, cl.Flush(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if resp, err := kadm.NewClient(cl).DeleteTopics(ctx, topic); err == nil && resp[topic].Err == nil {
		gone[topic] = true
	}
}

// awaitBucketEqualsCatalog waits until the .seg files of a directory tier are
// those of the catalog.
func awaitBucketEqualsCatalog(t *testing.T, s *kit.Server, tier string) {
	t.Helper()
	var onDisk, catalog []string
	defer func() {
		if t.Failed() {
			t.Logf("bucket only: %v\ncatalog only: %v", minus(onDisk, catalog), minus(catalog, onDisk))
		}
	}()
	kit.Eventually(t, 30*time.Second, "bucket and catalog agree", func() bool {
		onDisk, catalog = segmentFiles(t, tier), catalogKeys(t, s)
		return slices.Equal(onDisk, catalog)
	})
	require.NotEmpty(t, catalog)
}

func minus(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

func segmentFiles(t *testing.T, tier string) []string {
	t.Helper()
	var keys []string
	_ = filepath.WalkDir(tier, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".seg") {
			rel, _ := filepath.Rel(tier, path)
			keys = append(keys, filepath.ToSlash(rel))
		}
		return nil
	})
	slices.Sort(keys)
	return keys
}

func catalogKeys(t *testing.T, s *kit.Server) []string {
	t.Helper()
	out, errOut, code := s.CLI("", "tier", "ls", "--admin", s.Admin, "-o", "json")
	require.Zero(t, code, errOut)
	var keys []string
	for l := range strings.Lines(out) {
		if _, rest, ok := strings.Cut(l, `"key":"`); ok && strings.Contains(l, `"state":"live"`) {
			key, _, _ := strings.Cut(rest, `"`)
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
