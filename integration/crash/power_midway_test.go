package crash

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/cmd/serve"
	"strandline/integration/kit"
	"strandline/metadata/disk"
)

// midwayDisk is cloned, as after a power loss, before some of its changes.
type midwayDisk struct {
	*disk.Fault
	crash *disk.Crash
	odds  int

	mu     sync.Mutex
	rng    *rand.Rand
	acked  map[string]int // topic: acknowledged and flushed records; -1: deleted
	clones []midwayClone
}

type midwayClone struct {
	at    disk.Op
	disk  *disk.Crash
	acked map[string]int
}

func newMidwayDisk(inner *disk.Crash, rng *rand.Rand, odds int) *midwayDisk {
	m := &midwayDisk{Fault: disk.NewFault(inner, nil), crash: inner, rng: rng, odds: odds, acked: map[string]int{}}
	m.SetInjector(func(op disk.Op) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if op.Kind.Mutates() && m.rng.IntN(m.odds) == 0 {
			acked := map[string]int{}
			for k, v := range m.acked {
				acked[k] = v
			}
			m.clones = append(m.clones, midwayClone{op, m.crash.Clone(m.rng), acked})
		}
		return nil
	})
	return m
}

func (m *midwayDisk) ack(topic string, records int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acked[topic] = records
}

// TestPowerLossMidway loses power before any change of the disk during a first
// start, a topic's life, an orderly stop and a second start: what is left always
// starts, and has what was acknowledged.
func TestPowerLossMidway(t *testing.T) {
	rounds, odds := 1, 25
	if kit.Long() {
		rounds, odds = 8, 8
	}
	r := rand.New(rand.NewPCG(seedOf(t), 5))
	checked := 0
	for range rounds {
		m := newMidwayDisk(disk.NewCrash(r.Uint64()), rand.New(rand.NewPCG(r.Uint64(), 6)), odds)
		for life := range 2 {
			node, err := serve.Start(t.Context(), powerConfig(t, m))
			require.NoError(t, err)
			midwayLife(t, addrOf(node), m, life)
			closeNode(t, node)
		}
		m.SetInjector(nil)
		for _, c := range m.clones {
			checkMidway(t, c)
		}
		checked += len(m.clones)
	}
	t.Logf("%d clones", checked)
	require.Positive(t, checked)
}

// midwayLife makes, writes, deletes and makes again.
func midwayLife(t *testing.T, addr string, m *midwayDisk, life int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	require.NoError(t, err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	write := func(topic string, to int) {
		for n := m.acked[topic]; n < to; n++ {
			require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: value(int64(n))}).FirstErr())
			m.ack(topic, n+1)
		}
	}
	if life == 0 {
		for _, topic := range []string{"kept", "again", "doomed"} {
			createPlain(t, addr, topic, map[string]string{"flush.messages": "1", "internal.segment.bytes": "2000", "file.delete.delay.ms": "0"})
			m.ack(topic, 0)
			write(topic, 10)
		}
	}
	write("kept", 10+life*10)
	for _, topic := range []string{"again", "doomed"} {
		m.mu.Lock()
		_, there := m.acked[topic]
		delete(m.acked, topic) // until it is answered, either way
		m.mu.Unlock()
		if !there || topic == "doomed" && life > 0 {
			m.ack(topic, -1)
			continue
		}
		resp, err := adm.DeleteTopics(t.Context(), topic)
		require.NoError(t, err)
		require.NoError(t, resp[topic].Err)
		m.ack(topic, -1)
	}
	m.mu.Lock()
	delete(m.acked, "again")
	m.mu.Unlock()
	createPlain(t, addr, "again", map[string]string{"flush.messages": "1", "internal.segment.bytes": "2000"})
	m.ack("again", 0)
	cl.PurgeTopicsFromClient("again")
	write("again", 4)
}

func checkMidway(t *testing.T, c midwayClone) {
	t.Helper()
	cfg, log := powerConfig(t, c.disk), &bytes.Buffer{}
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	defer func() {
		if t.Failed() {
			t.Logf("power was lost at %s %s\n%s", c.at.Kind, c.at.Name, log)
		}
	}()
	node, err := serve.Start(t.Context(), cfg)
	require.NoError(t, err)
	defer closeNode(t, node)
	for topic, records := range c.acked {
		_, ok := node.Image().Topic(topic)
		require.Equal(t, records >= 0, ok, "topic %s after power was lost at %s %s", topic, c.at.Kind, c.at.Name)
		if records <= 0 {
			continue
		}
		s, err := node.PartitionStatus(topic, 0)
		require.NoError(t, err)
		require.GreaterOrEqual(t, int(s.LogEndOffset), records, "%s after power was lost at %s %s", topic, c.at.Kind, c.at.Name)
		require.Zero(t, s.LogStartOffset)
	}
}
