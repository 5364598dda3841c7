package crash

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/cmd/serve"
	"strandline/integration/kit"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
)

// powerConfig keeps everything, the object store included, on a disk in memory.
func powerConfig(t *testing.T, fs disk.FS) serve.Config {
	t.Helper()
	b, _, err := config.ParseBroker(map[string]string{
		"log.dirs": "/d/logs", "metadata.log.dir": "/d/metadata", "remote.cache.dir": "/d/cache", "remote.store.url": "file:///d/tier",
		"listeners": "PLAINTEXT://127.0.0.1:0", "admin.listeners": "http://127.0.0.1:0",
		"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100", "log.segment.delete.delay.ms": "100",
		"remote.log.manager.task.interval.ms": "100", "remote.manifest.interval.ms": "100", "remote.object.delete.delay.ms": "200",
		"remote.cache.size.bytes": "4194304",
	})
	require.NoError(t, err)
	return serve.Config{Broker: b, FS: fs, Version: "test", Commit: "test"}
}

// promise is what had been acknowledged at some moment.
type promise struct {
	topics  map[string]bool
	config  map[string]int64 // retention.ms of a topic
	start   int64            // DeleteRecords of the topic "flushed"
	records int64            // acknowledged records of "flushed": offsets 0 to this, exclusive
	live    int64            // RemoteEndOffset of "flushed" as the catalog said it

	gone       map[string]bool  // topics whose deletion was answered
	partitions map[string]int32 // of topics that were given more
	next       int32            // sequence after the last acknowledged one of "once", and its offset
	producer   int64            // who writes "once"
	plain      int64            // acknowledged records of "plain", which is never flushed
	stopped    bool             // an orderly stop has ended
}

func newPromise() promise {
	return promise{topics: map[string]bool{}, config: map[string]int64{}, gone: map[string]bool{}, partitions: map[string]int32{}}
}

type promises struct {
	mu  sync.Mutex
	now promise
}

func (p *promises) change(f func(*promise)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.now)
}

func (p *promises) copy() promise {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.now
	c.topics, c.config = maps.Clone(c.topics), maps.Clone(c.config)
	c.gone, c.partitions = maps.Clone(c.gone), maps.Clone(c.partitions)
	return c
}

func addrOf(n *serve.Node) string {
	l := n.Listeners()[0]
	return l[len("PLAINTEXT://"):]
}

func value(n int64) []byte { return []byte(fmt.Sprintf("%08d %0300d", n, n)) }

// seedOf is the seed of a run, which the environment may repeat.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("STRANDLINE_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("seed %d (STRANDLINE_SEED)", seed)
	return seed
}

// TestPowerLoss clones the disk at random moments of a busy broker, as it would
// be found after a power loss, starts a broker on each clone, and looks for
// everything that had been acknowledged when the clone was made.
func TestPowerLoss(t *testing.T) {
	clones := 60
	if kit.Long() {
		clones = 500
	}
	seed := seedOf(t)
	r := rand.New(rand.NewPCG(seed, 9))
	for done := 0; done < clones; {
		n := min(12, clones-done)
		powerRun(t, rand.New(rand.NewPCG(r.Uint64(), 1)), n)
		done += n
	}
}

func powerRun(t *testing.T, r *rand.Rand, clones int) {
	fs := disk.NewCrash(r.Uint64())
	node, err := serve.Start(t.Context(), powerConfig(t, fs))
	require.NoError(t, err)
	p := &promises{now: newPromise()}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	createFlushed(t, addrOf(node), p)
	wg.Go(func() { writeFlushed(ctx, t, addrOf(node), p) })
	wg.Go(func() { changeTopics(ctx, t, addrOf(node), p) })
	wg.Go(func() { watchCatalog(ctx, node, p) })
	createPlain(t, addrOf(node), "plain", nil)
	createPlain(t, addrOf(node), "once", map[string]string{"flush.messages": "1"})
	wg.Go(func() { writePlain(ctx, t, addrOf(node), p) })
	wg.Go(func() { writeOnce(ctx, t, addrOf(node), p) })
	wg.Go(func() { deleteTopics(ctx, t, addrOf(node), p) })
	type moment struct {
		disk *disk.Crash
		was  promise
	}
	var moments []moment
	for range clones - 1 {
		<-time.After(time.Duration(5+r.IntN(120)) * time.Millisecond)
		was := p.copy()
		moments = append(moments, moment{fs.Clone(r), was})
	}
	stop()
	wg.Wait()
	closeNode(t, node)
	p.change(func(p *promise) { p.stopped = true })
	moments = append(moments, moment{fs.Clone(r), p.copy()})
	for i, m := range moments {
		checkMoment(t, i, m.disk, m.was)
	}
}

func closeNode(t *testing.T, n *serve.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, n.Close(ctx))
}

func createFlushed(t *testing.T, addr string, p *promises) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	require.NoError(t, err)
	defer cl.Close()
	one, small, local := "1", "20000", "40000"
	_, err = kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, map[string]*string{
		"flush.messages": &one, "internal.segment.bytes": &small, "local.retention.bytes": &local,
	}, "flushed")
	require.NoError(t, err)
	p.change(func(p *promise) { p.topics["flushed"] = true })
}

func writeFlushed(ctx context.Context, t *testing.T, addr string, p *promises) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("flushed"), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(8),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Error(err)
		return
	}
	defer cl.Close()
	for n := int64(0); ctx.Err() == nil; n++ {
		cl.Produce(context.Background(), &kgo.Record{Value: value(n)}, func(rec *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
				return
			}
			p.change(func(p *promise) { p.records = max(p.records, rec.Offset+1) })
		})
	}
	_ = cl.Flush(context.Background())
}

func changeTopics(ctx context.Context, t *testing.T, addr string, p *promises) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Error(err)
		return
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for n := int64(0); ctx.Err() == nil; n++ {
		name := fmt.Sprintf("topic-%d", n)
		if _, err := adm.CreateTopic(context.Background(), 1, 1, nil, name); err != nil {
			t.Errorf("create: %v", err)
			return
		}
		p.change(func(p *promise) { p.topics[name] = true })
		ms := strconv.FormatInt(100_000+n, 10)
		if resp, err := adm.AlterTopicConfigs(context.Background(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &ms}}, name); err != nil || resp[0].Err != nil {
			t.Errorf("alter: %v %v", err, resp)
			return
		}
		p.change(func(p *promise) { p.config[name] = 100_000 + n })
		if n%3 != 2 {
			continue
		}
		to := p.copy().records / 4
		if _, err := adm.DeleteRecords(context.Background(), kadm.Offsets{"flushed": {0: {Topic: "flushed", Partition: 0, At: to}}}); err != nil {
			t.Errorf("delete records: %v", err)
			return
		}
		p.change(func(p *promise) { p.start = max(p.start, to) })
	}
}

func watchCatalog(ctx context.Context, n *serve.Node, p *promises) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		topic, ok := n.Image().Topic("flushed")
		if !ok {
			continue
		}
		if s, ok := n.Catalog().Summary(cluster.TopicPartition{Topic: topic.ID}); ok {
			p.change(func(p *promise) { p.live = max(p.live, int64(s.RemoteEnd)) })
		}
	}
}

func checkMoment(t *testing.T, i int, fs *disk.Crash, was promise) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	node, err := serve.Start(ctx, powerConfig(t, fs))
	require.NoError(t, err, "clone %d starts", i)
	defer closeNode(t, node)
	img := node.Image()
	for name := range was.topics {
		_, ok := img.Topic(name)
		require.True(t, ok, "clone %d: topic %s was acknowledged", i, name)
	}
	for name, ms := range was.config {
		topic, _ := img.Topic(name)
		require.Equal(t, strconv.FormatInt(ms, 10), topic.Configs["retention.ms"], "clone %d: config of %s was acknowledged", i, name)
	}
	flushed, _ := img.Topic("flushed")
	summary, _ := node.Catalog().Summary(cluster.TopicPartition{Topic: flushed.ID})
	require.GreaterOrEqual(t, int64(summary.RemoteEnd), was.live, "clone %d: publishes survive", i)
	c := kit.Dial(t, addrOf(node))
	probe := c.Call(kit.Fetch(12, "flushed", 0, was.records, 1)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	require.Zero(t, probe.ErrorCode, "clone %d: fetch at %d: %s", i, was.records, describe(node))
	require.GreaterOrEqual(t, probe.LogStartOffset, was.start, "clone %d: DeleteRecords survives", i)
	require.GreaterOrEqual(t, probe.HighWatermark, was.records, "clone %d: flushed records survive", i)
	readFlushed(t, i, addrOf(node), probe.LogStartOffset, was.records)
	checkTopics(t, i, node, was)
	checkPlain(t, i, addrOf(node), was)
	checkOnce(t, i, addrOf(node), was)
}

func readFlushed(t *testing.T, i int, addr string, from, to int64) {
	t.Helper()
	if from >= to {
		return
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"flushed": {0: kgo.NewOffset().At(from)}}))
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for next := from; next < to; {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err0(), "clone %d at %d of %d", i, next, to)
		for _, e := range fetches.Errors() {
			require.NoError(t, e.Err, "clone %d", i)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			require.Equal(t, next, r.Offset, "clone %d: no gap", i)
			require.Equal(t, string(value(next)), string(r.Value), "clone %d", i)
			next++
		})
	}
}

// describe says where the one partition stands.
func describe(n *serve.Node) string {
	return fmt.Sprint(n.PartitionStatus("flushed", 0))
}
