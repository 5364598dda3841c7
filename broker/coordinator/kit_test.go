package coordinator

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
	"strandline/metadata/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// identity is a schema under which keys are their own view keys.
type identity struct{}

func (identity) AppendViewKey(dst, key []byte) ([]byte, error) {
	if string(key) == "poison" {
		return dst, errors.New("unreadable key")
	}
	return append(dst, key...), nil
}

// SetBytes makes sets of the keys that begin with the same byte, but for x.
func (identity) SetBytes(viewKey []byte) int {
	if strings.HasPrefix(string(viewKey), "x") {
		return 0
	}
	return min(1, len(viewKey))
}

// ledger is a machine that keeps every pair in memory, as its users' machines
// keep their groups.
type ledger struct {
	k     *kit
	epoch cluster.LeaderEpoch
	r     Reader
	pairs map[string]string
	due   time.Time
	ticks int
	ended []error
}

func (m *ledger) Load(_ time.Time, r Reader) error {
	if err := m.k.takeLoadErr(); err != nil {
		return err
	}
	m.r, m.pairs = r, map[string]string{}
	for e, err := range r.Scan(nil) {
		if err != nil {
			return err
		}
		m.pairs[string(e.Key)] = string(e.Value)
	}
	return nil
}

func (m *ledger) Deadline() time.Time { return m.due }

func (m *ledger) Tick(_ time.Time, tx *Tx) {
	m.ticks++
	m.due = time.Time{}
	m.put(tx, "tick", "1", func(error) {})
}

func (m *ledger) Unload(err error) {
	m.ended = append(m.ended, err)
	m.k.t.Logf("unloaded: %v", err)
}

// put sets a pair, or removes it where the value is "-", and takes it back where
// that fails.
func (m *ledger) put(tx *Tx, key, value string, then func(error)) {
	r := Record{Key: []byte(key)}
	if value == "-" {
		delete(m.pairs, key)
	} else {
		m.pairs[key] = value
		r.Value = []byte(value)
	}
	tx.Append(r)
	tx.Then(func(err error) {
		if err != nil {
			m.reload(key)
		}
		then(err)
	})
}

func (m *ledger) reload(key string) {
	e, ok, err := m.r.Get([]byte(key))
	switch {
	case err != nil:
		m.k.t.Logf("reload: %v", err)
	case ok:
		m.pairs[key] = string(e.Value)
	default:
		delete(m.pairs, key)
	}
}

// kit is a runtime over doubles.
type kit struct {
	t     testing.TB
	fs    disk.FS
	views *Views
	r     *Runtime
	cfg   Config

	mu       sync.Mutex
	machines []*ledger
	loadErr  error
	limits   map[string]int
}

func newKit(t testing.TB, fs disk.FS, change ...func(*Config)) *kit {
	k := &kit{t: t, fs: fs, limits: map[string]int{}}
	k.openViews()
	k.cfg = Config{
		Topic: "__test", Views: k.views, Schema: identity{}, NewMachine: k.newMachine, LimitHit: k.hit, Logger: testLogger(t),
	}
	for _, fn := range change {
		fn(&k.cfg)
	}
	k.r = New(k.cfg)
	return k
}

func (k *kit) openViews() {
	views, err := OpenViews(ViewsConfig{FS: k.fs, Dir: "/m/views", Logger: testLogger(k.t)})
	require.NoError(k.t, err)
	k.views = views
}

func testLogger(t testing.TB) *slog.Logger {
	if os.Getenv("STRANDLINE_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(testWriter{t}, nil))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(p))
	return len(p), nil
}

func (k *kit) close() {
	require.NoError(k.t, k.r.Close())
	require.NoError(k.t, k.r.Close())
	require.NoError(k.t, k.views.Close())
	require.NoError(k.t, k.views.Close())
}

func (k *kit) newMachine(_ int32, epoch cluster.LeaderEpoch) Machine {
	m := &ledger{k: k, epoch: epoch}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.machines = append(k.machines, m)
	return m
}

func (k *kit) hit(limit string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.limits[limit]++
}

func (k *kit) hits(limit string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.limits[limit]
}

func (k *kit) takeLoadErr() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.loadErr
}

func (k *kit) failLoads(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.loadErr = err
}

func (k *kit) machine(n int) *ledger {
	k.mu.Lock()
	defer k.mu.Unlock()
	require.Greater(k.t, len(k.machines), n)
	return k.machines[n]
}

// made are the machines so far.
func (k *kit) made() []*ledger {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.machines)
}

// outcome is what became of a put.
type outcome struct {
	mu   sync.Mutex
	errs []error
	ran  int
}

func (o *outcome) then(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, err)
}

func (o *outcome) all() []error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.errs)
}

// put asks for a pair and returns what becomes of it.
func (k *kit) put(partitionID int32, key, value string) *outcome {
	o := &outcome{}
	require.NoError(k.t, k.r.Do(partitionID, func(_ time.Time, m Machine, tx *Tx) {
		o.mu.Lock()
		o.ran++
		o.mu.Unlock()
		m.(*ledger).put(tx, key, value, o.then)
	}))
	return o
}

// read returns all committed pairs.
func (k *kit) read(partitionID int32) map[string]string {
	out, err := k.tryRead(partitionID)
	require.NoError(k.t, err)
	return out
}

func (k *kit) tryRead(partitionID int32) (map[string]string, error) {
	out := map[string]string{}
	err := k.r.Read(partitionID, func(r Reader) error {
		for e, err := range r.Scan(nil) {
			if err != nil {
				return err
			}
			out[string(e.Key)] = string(e.Value)
		}
		compareSets(k.t, r)
		return nil
	})
	return out, err
}

// seen returns all pairs as an event sees them, and what its machine holds.
func (k *kit) seen(partitionID int32) (reader, machine map[string]string) {
	reader, machine = map[string]string{}, map[string]string{}
	require.NoError(k.t, k.r.Do(partitionID, func(_ time.Time, m Machine, tx *Tx) {
		for e, err := range tx.Reader().Scan(nil) {
			require.NoError(k.t, err)
			reader[string(e.Key)] = string(e.Value)
		}
		compareSets(k.t, tx.Reader())
		for key, value := range m.(*ledger).pairs {
			machine[key] = value
		}
	}))
	synctest.Wait()
	return reader, machine
}

// bubble runs a test on a fake clock, over a disk in memory.
func bubble(t *testing.T, fn func(t *testing.T, fs *disk.Crash)) {
	synctest.Test(t, func(t *testing.T) { fn(t, disk.NewCrash(1)) })
}

// applied is how far a partition's view is.
func (k *kit) applied(tp cluster.TopicPartition) cluster.Offset {
	k.r.mu.Lock()
	defer k.r.mu.Unlock()
	return cluster.Offset(k.r.mu.replicas[tp].applied.Load())
}

func positionKey(tp cluster.TopicPartition) []byte { return store.ViewPositionKey(tp) }

func entryKey(tp cluster.TopicPartition, viewKey string) []byte {
	return store.AppendViewEntryKey(nil, tp, []byte(viewKey))
}

// keyPartition is the partition of a key of the views.
func keyPartition(key []byte) cluster.TopicPartition {
	var tp cluster.TopicPartition
	copy(tp.Topic[:], key[1:])
	tp.Partition = int32(binary.BigEndian.Uint32(key[17:]))
	return tp
}

// keys are all keys of all views.
func (k *kit) keys() [][]byte {
	var out [][]byte
	for e, err := range k.views.db.Load().Scan(store.Range{}) {
		require.NoError(k.t, err)
		out = append(out, append([]byte(nil), e.Key...))
	}
	return out
}
