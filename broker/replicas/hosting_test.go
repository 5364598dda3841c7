package replicas

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/disk"
)

// hostings writes down what a listener is told.
type hostings struct {
	mu     sync.Mutex
	events []string
	latest map[cluster.TopicPartition]*partition.Partition
}

func (h *hostings) Hosted(p *partition.Partition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.latest == nil {
		h.latest = map[cluster.TopicPartition]*partition.Partition{}
	}
	h.latest[p.TopicPartition()] = p
	h.events = append(h.events, fmt.Sprintf("+%s-%d", p.Topic(), p.TopicPartition().Partition))
}

func (h *hostings) Unhosted(topic string, tp cluster.TopicPartition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.latest, tp)
	h.events = append(h.events, fmt.Sprintf("-%s-%d", topic, tp.Partition))
}

func (h *hostings) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := h.events
	h.events = nil
	slices.Sort(events)
	return events
}

func TestTheListenerIsToldWhatIsHosted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := disk.NewCrash(1)
		ctl := newController(t)
		listener := &hostings{}
		n := startListened(t, fs, ctl, listener)
		n.activate()
		a := ctl.create("a", 2, nil)
		b := ctl.create("b", 1, nil)
		synctest.Wait()
		require.Equal(t, []string{"+a-0", "+a-1", "+b-0"}, listener.take())
		require.Same(t, n.get(a, 1), listener.latest[cluster.TopicPartition{Topic: a, Partition: 1}])

		// A log that had no descriptor for a moment comes back as another replica.
		old := n.get(b, 0)
		old.TakeOffline(syscall.EMFILE)
		time.Sleep(3 * retryEvery)
		synctest.Wait()
		require.Equal(t, []string{"+b-0"}, listener.take())
		require.NotSame(t, old, listener.latest[cluster.TopicPartition{Topic: b}])

		ctl.apply(command.TopicDeleted{Topic: a})
		synctest.Wait()
		require.Equal(t, []string{"-a-0", "-a-1"}, listener.take())
		n.stop()
		require.Empty(t, listener.take(), "a stop is no loss")

		n = startListened(t, fs, ctl.fork(t), listener)
		require.Equal(t, []string{"+b-0"}, listener.take(), "what is found is told at once")
		n.stop()
	})
}

func startListened(t *testing.T, fs disk.FS, ctl *controller, listener HostingListener) *node {
	require.NoError(t, disk.EnsureDir(fs, metadataDir))
	n := &node{t: t, fs: fs, ctl: ctl}
	var err error
	n.dirs, err = OpenDirs(DirsConfig{FS: fs, Dirs: []string{"/a"}, MetadataDir: metadataDir, NodeID: self})
	require.NoError(t, err)
	require.NoError(t, n.dirs.Init(clusterID))
	n.m = New(Config{FS: fs, Dirs: n.dirs, Broker: brokerConfig(t, nil), Watch: ctl, ImageComplete: true, Hosting: listener})
	require.NoError(t, n.m.Start(t.Context()))
	return n
}
