package quorum_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/metadata/disk"
	"strandline/metadata/quorum"
)

// counter is a machine that keeps the commands it applied. What it holds in
// memory is as lost at a restart as a state whose last batches were not synced.
type counter struct {
	fs   disk.FS
	file string

	mu    sync.Mutex
	state counterState
	// seen and skipped count calls of Apply, and those of them that a
	// restart repeated.
	seen, skipped int
	restored      int
}

type counterState struct {
	Applied  uint64
	Commands []string
}

func openCounter(fs disk.FS, dir string) (*counter, error) {
	c := &counter{fs: fs, file: dir + "/state.json"}
	data, err := disk.ReadFile(fs, c.file)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	return c, json.Unmarshal(data, &c.state)
}

func (c *counter) Apply(index, _ uint64, data []byte) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen++
	if index <= c.state.Applied {
		c.skipped++
		return "skipped"
	}
	c.state.Applied = index
	c.state.Commands = append(c.state.Commands, string(data))
	return fmt.Sprintf("%d:%s", len(c.state.Commands), data)
}

func (c *counter) Checkpoint(dir string) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, err := json.Marshal(c.state)
	if err != nil {
		return 0, err
	}
	if err := disk.WriteFileAtomic(c.fs, c.file, data); err != nil {
		return 0, err
	}
	if err := disk.EnsureDir(c.fs, dir); err != nil {
		return 0, err
	}
	if err := disk.WriteFileAtomic(c.fs, dir+"/empty", nil); err != nil {
		return 0, err
	}
	return c.state.Applied, disk.WriteFileAtomic(c.fs, dir+"/state.json", data)
}

func (c *counter) Restore(dir string) error {
	data, err := disk.ReadFile(c.fs, dir+"/state.json")
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restored++
	c.state = counterState{}
	if err := json.Unmarshal(data, &c.state); err != nil {
		return err
	}
	return disk.WriteFileAtomic(c.fs, c.file, data)
}

func (c *counter) Applied() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Applied
}

func (c *counter) commands() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.state.Commands...)
}

func (c *counter) counts() (seen, skipped, restored int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen, c.skipped, c.restored
}

const dir = "/m"

// start opens a quorum over its counter; a fresh one is bootstrapped alone.
func start(fs disk.FS, change func(*quorum.Config)) (*quorum.Quorum, *counter, error) {
	if err := disk.EnsureDir(fs, dir); err != nil {
		return nil, nil, err
	}
	c, err := openCounter(fs, dir)
	if err != nil {
		return nil, nil, err
	}
	cfg := quorum.Config{FS: fs, Dir: dir, ID: "1-a", Machine: c}
	if change != nil {
		change(&cfg)
	}
	q, err := quorum.Open(cfg)
	if err != nil {
		return nil, nil, err
	}
	empty, err := q.Empty()
	if err == nil && empty {
		err = q.Bootstrap([]quorum.Server{{ID: cfg.ID, Voter: true}})
	}
	if err == nil {
		err = q.Start()
	}
	if err != nil {
		return nil, nil, errors.Join(err, q.Close())
	}
	return q, c, nil
}

func mustStart(t *testing.T, fs disk.FS, change func(*quorum.Config)) (*quorum.Quorum, *counter) {
	t.Helper()
	q, c, err := start(fs, change)
	require.NoError(t, err)
	return q, c
}

// lead waits until the quorum leads and has applied what was committed before.
func lead(q *quorum.Quorum) error {
	for {
		tenure, changed := q.Tenure()
		if tenure.Leader {
			return q.Barrier()
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Second):
			return errors.New("no leadership in 20 s")
		}
	}
}

func propose(t *testing.T, q *quorum.Quorum, command string) {
	t.Helper()
	_, _, err := q.Propose([]byte(command)).Wait()
	require.NoError(t, err)
}

func noLeak(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

// network joins stream layers in memory.
type network struct {
	mu    sync.Mutex
	ports map[string]*port
	cut   map[string]bool
	conns map[string][]net.Conn
}

type port struct {
	net    *network
	id     string
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newNetwork() *network {
	return &network{ports: map[string]*port{}, cut: map[string]bool{}, conns: map[string][]net.Conn{}}
}

func (n *network) port(id string) *port {
	p := &port{net: n, id: id, accept: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[id] = p
	return p
}

// setCut isolates a server, or ends its isolation.
func (n *network) setCut(id string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[id] = cut
	for _, c := range n.conns[id] {
		_ = c.Close()
	}
	delete(n.conns, id)
}

func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *port) Dial(id string, timeout time.Duration) (net.Conn, error) {
	p.net.mu.Lock()
	to, ok := p.net.ports[id]
	if !ok || p.net.cut[id] || p.net.cut[p.id] {
		p.net.mu.Unlock()
		return nil, errors.New("unreachable")
	}
	a, b := net.Pipe()
	p.net.conns[id] = append(p.net.conns[id], a, b)
	p.net.conns[p.id] = append(p.net.conns[p.id], a, b)
	p.net.mu.Unlock()
	select {
	case to.accept <- b:
		return a, nil
	case <-to.closed:
	case <-time.After(timeout):
	}
	return nil, errors.New("refused")
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.closed) })
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	for _, c := range p.net.conns[p.id] {
		_ = c.Close()
	}
	return nil
}
