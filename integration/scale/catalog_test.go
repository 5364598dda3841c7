package scale

import (
	"context"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/node"
	"strandline/metadata/request"
)

// catalogSize is how many remote segments are announced and published.
func catalogSize() (partitions, each int) {
	if kit.Long() {
		return 5000, 20
	}
	return 100, 20
}

// metadataNode opens the metadata plane in a folder.
func metadataNode(t *testing.T, dir string) *node.Node {
	broker, _, err := config.ParseBroker(map[string]string{
		"node.id": "1", "metadata.log.dir": dir, "log.dirs": dir + "-logs",
		"broker.session.timeout.ms": "3600000", // nobody sends heartbeats meanwhile
	})
	require.NoError(t, err)
	n, err := node.Open(node.Config{FS: disk.OS(), Dir: dir, Broker: broker})
	require.NoError(t, err)
	require.NoError(t, n.Start(context.Background(), n.ClusterID()))
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func submit[R request.Result](t *testing.T, n *node.Node, req request.Request) R {
	t.Helper()
	result, err := n.Submit(context.Background(), req)
	require.NoError(t, err)
	return result.(R)
}

// heap is what the process keeps.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestCatalogOfManySegments enters remote segments into the catalog, opens it
// again, and goes over it as retention does: neither the memory nor the time of a
// pass may follow the number of segments, and all of them must be there.
func TestCatalogOfManySegments(t *testing.T) {
	partitions, each := catalogSize()
	dir := filepath.Join(t.TempDir(), "metadata")
	n := metadataNode(t, dir)
	reg := submit[request.BrokerRegistered](t, n, request.RegisterBroker{
		Broker: 1, Incarnation: cluster.NewIncarnationID(), Features: image.SupportedFeatures(), LogDirs: []cluster.DirectoryID{{7}},
		Listeners:     []request.Listener{{Name: "PLAINTEXT", Host: "localhost", Port: 9092, Security: "PLAINTEXT"}},
		PreviousEpoch: cluster.NoBrokerEpoch,
	})
	kit.Eventually(t, time.Minute, "the broker may lead", func() bool {
		return !submit[request.HeartbeatResult](t, n, request.Heartbeat{Broker: 1, Epoch: reg.Epoch, CaughtUpTo: n.Image().Index()}).Fenced
	})
	began := time.Now()
	created := submit[request.CreateTopicsResult](t, n, request.CreateTopics{Topics: []request.NewTopic{
		{Name: "tiered", Partitions: int32(partitions), Replication: 1, Configs: map[string]string{"remote.storage.enable": "true"}},
	}})
	require.NoError(t, created.Topics[0].Err)
	t.Logf("topic of %d partitions in the image after %v", partitions, time.Since(began))
	topic := created.Topics[0].ID
	empty := heap()

	began = time.Now()
	var wg sync.WaitGroup
	next, failed := make(chan int), make(chan error, 1)
	for range 512 {
		wg.Go(func() {
			for p := range next {
				if err := publish(n, cluster.TopicPartition{Topic: topic, Partition: int32(p)}, each); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		})
	}
	for p := range partitions {
		next <- p
	}
	close(next)
	wg.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	total := partitions * each
	t.Logf("%d segments announced and published in %v", total, time.Since(began))
	full := heap()
	t.Logf("heap %d KiB -> %d KiB", empty>>10, full>>10)
	require.Less(t, (full-empty)/int64(partitions), int64(4<<10), "bytes a partition: segments are not to be kept in memory")
	require.NoError(t, n.Close())

	began = time.Now()
	n = metadataNode(t, dir)
	t.Logf("opened again in %v, heap %d KiB", time.Since(began), heap()>>10)
	began = time.Now()
	catalog := n.Catalog()
	for p := range partitions {
		tp := cluster.TopicPartition{Topic: topic, Partition: int32(p)}
		sum, known := catalog.Summary(tp)
		require.True(t, known)
		require.Equal(t, int64(each), sum.LiveCount)
		require.Equal(t, cluster.Offset(each*10), sum.RemoteEnd)
		for s, err := range catalog.Live(tp, 0) {
			require.NoError(t, err)
			require.Zero(t, s.Base)
			break // retention reads no further than the first that stays
		}
	}
	t.Logf("a pass over %d partitions in %v", partitions, time.Since(began))
	began = time.Now()
	found := 0
	for p := range partitions {
		end := cluster.Offset(0)
		for s, err := range catalog.Live(cluster.TopicPartition{Topic: topic, Partition: int32(p)}, 0) {
			require.NoError(t, err)
			require.Equal(t, end, s.Base)
			end = s.End
			found++
		}
	}
	require.Equal(t, total, found)
	t.Logf("all %d segments read in %v", total, time.Since(began))
}

// publish gives one partition its remote segments of ten records each.
func publish(n *node.Node, tp cluster.TopicPartition, segments int) error {
	ctx := context.Background()
	_, p, _ := n.Image().Partition(tp)
	for i := range segments {
		id := cluster.NewSegmentID()
		base := cluster.Offset(i * 10)
		span := request.SegmentSpan{ID: id, Base: base, End: base + 10, Location: "location", Key: "segments/" + id.String() + ".seg"}
		if _, err := n.Submit(ctx, request.StartSegment{Partition: tp, LeaderEpoch: p.LeaderEpoch, Span: span, Deadline: time.Now().Add(time.Hour)}); err != nil {
			return err
		}
		object := request.ObjectSummary{
			ObjectBytes: 5000, SegmentBytes: 4000, IndexPosition: 4000, IndexBytes: 900, FooterBytes: 100,
			MinTimestamp: int64(i), MaxTimestamp: int64(i), RecordCount: 10, FirstEpoch: p.LeaderEpoch, LastEpoch: p.LeaderEpoch, FormatVersion: 1,
		}
		if _, err := n.Submit(ctx, request.PublishSegment{Partition: tp, LeaderEpoch: p.LeaderEpoch, ID: id, Object: object}); err != nil {
			return err
		}
	}
	return nil
}
