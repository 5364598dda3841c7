package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Crash is a file system in memory that knows what of it would survive a power
// loss. It is as hostile as the package comment allows: of the bytes that were
// not synced, each sector may be lost or kept; a file's size may be the old one,
// the new one or one between; each change of a folder that was not synced may be
// lost or kept, on its own, as long as what is kept makes sense (a rename is one
// change: it never loses or doubles the file).
type Crash struct {
	seed uint64
	ops  atomic.Int64

	mu struct {
		sync.Mutex
		root *node
		// pending are the changes of folders that are not durable, oldest first.
		pending []change
		locks   map[string]bool
		rng     *rand.Rand
	}
}

// node is a file or a folder. Its fields are guarded by Crash.mu.
type node struct {
	dir      bool
	modified time.Time
	// entries and durableEntries are a folder's, now and after a power loss.
	entries, durableEntries map[string]*node
	file                    fileData
}

// change is one atomic change of one or two folder entries.
type change []entryChange

type entryChange struct {
	dir      *node
	name     string
	from, to *node // nil: absent
}

// NewCrash returns an empty file system. The seed drives Clone(nil).
func NewCrash(seed uint64) *Crash {
	c := &Crash{seed: seed}
	c.mu.root = newDir()
	c.mu.locks = map[string]bool{}
	c.mu.rng = rand.New(rand.NewPCG(seed, 0x5374_7261_6e64))
	return c
}

func newDir() *node {
	return &node{dir: true, entries: map[string]*node{}, durableEntries: map[string]*node{}, modified: time.Now()}
}

// Ops counts the calls that change the disk, syncs included.
func (c *Crash) Ops() int64 { return c.ops.Load() }

// SyncAll makes everything durable.
func (c *Crash) SyncAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.pending = nil
	syncTree(c.mu.root)
}

func syncTree(n *node) {
	if !n.dir {
		n.file.sync()
		return
	}
	n.durableEntries = map[string]*node{}
	for name, child := range n.entries {
		n.durableEntries[name] = child
		syncTree(child)
	}
}

// Clone returns the disk as it would be found after a power loss now. The
// receiver goes on unharmed. A nil rng means the file system's own.
func (c *Crash) Clone(rng *rand.Rand) *Crash {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rng == nil {
		rng = c.mu.rng
	}
	// How much of what was not synced survives varies from crash to crash:
	// often nothing or everything, else a share of it.
	keep := 0.0
	switch rng.IntN(4) {
	case 0:
	case 1:
		keep = 1
	default:
		keep = rng.Float64()
	}
	after := durableView{}
	for _, ch := range c.mu.pending {
		if rng.Float64() < keep && after.allows(ch) {
			after.apply(ch)
		}
	}
	return c.copyTree(func(n *node) map[string]*node { return after.entries(n) }, func(f *fileData) fileData {
		return f.afterPowerLoss(rng, keep)
	})
}

// Kill returns the disk as the next process finds it after kill -9 now:
// everything that was written is there, nothing more of it is durable.
func (c *Crash) Kill() *Crash {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[*node]*node{}
	out := NewCrash(c.seed + 1)
	out.mu.root = copyBoth(c.mu.root, seen)
	for _, ch := range c.mu.pending {
		copied := make(change, len(ch))
		for i, e := range ch {
			copied[i] = entryChange{
				dir: copyBoth(e.dir, seen), name: e.name,
				from: copyBoth(e.from, seen), to: copyBoth(e.to, seen),
			}
		}
		out.mu.pending = append(out.mu.pending, copied)
	}
	return out
}

func copyBoth(n *node, seen map[*node]*node) *node {
	if n == nil {
		return nil
	}
	if m, ok := seen[n]; ok {
		return m
	}
	m := &node{dir: n.dir, modified: n.modified}
	seen[n] = m
	if !n.dir {
		m.file = n.file.clone()
		return m
	}
	m.entries, m.durableEntries = map[string]*node{}, map[string]*node{}
	for name, child := range n.entries {
		m.entries[name] = copyBoth(child, seen)
	}
	for name, child := range n.durableEntries {
		m.durableEntries[name] = copyBoth(child, seen)
	}
	return m
}

// durableView is the durable folder entries with some pending changes on top.
type durableView map[*node]map[string]*node

func (v durableView) at(dir *node, name string) *node {
	if m, ok := v[dir]; ok {
		if n, ok := m[name]; ok {
			return n
		}
	}
	return dir.durableEntries[name]
}

func (v durableView) allows(ch change) bool {
	for _, e := range ch {
		if v.at(e.dir, e.name) != e.from {
			return false
		}
	}
	return true
}

func (v durableView) apply(ch change) {
	for _, e := range ch {
		if v[e.dir] == nil {
			v[e.dir] = map[string]*node{}
		}
		v[e.dir][e.name] = e.to
	}
}

func (v durableView) entries(dir *node) map[string]*node {
	out := map[string]*node{}
	for name, n := range dir.durableEntries {
		out[name] = n
	}
	for name, n := range v[dir] {
		if n == nil {
			delete(out, name)
		} else {
			out[name] = n
		}
	}
	return out
}

// copyTree copies what is reachable by entries into a file system in which all
// of it is durable. Folders are walked in the order of their names, so that one
// rng gives one disk.
func (c *Crash) copyTree(entries func(*node) map[string]*node, file func(*fileData) fileData) *Crash {
	out := NewCrash(c.seed + 1)
	seen := map[*node]*node{}
	var walk func(n *node) *node
	walk = func(n *node) *node {
		if m, ok := seen[n]; ok {
			return m
		}
		m := &node{dir: n.dir, modified: n.modified}
		seen[n] = m
		if !n.dir {
			m.file = file(&n.file)
			return m
		}
		m.entries, m.durableEntries = map[string]*node{}, map[string]*node{}
		children := entries(n)
		for _, name := range sortedKeys(children) {
			child := walk(children[name])
			m.entries[name], m.durableEntries[name] = child, child
		}
		return m
	}
	out.mu.root = walk(c.mu.root)
	return out
}

func sortedKeys(m map[string]*node) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func split(name string) []string {
	clean := strings.Trim(path.Clean("/"+name), "/")
	if clean == "" {
		return nil
	}
	return strings.Split(clean, "/")
}

// findLocked returns the node under a name.
func (c *Crash) findLocked(name string) (*node, error) {
	n := c.mu.root
	for _, part := range split(name) {
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		next, ok := n.entries[part]
		if !ok {
			return nil, os.ErrNotExist
		}
		n = next
	}
	return n, nil
}

// parentLocked returns the folder that holds, or would hold, a name.
func (c *Crash) parentLocked(name string) (*node, string, error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", os.ErrInvalid
	}
	dir, err := c.findLocked(strings.Join(parts[:len(parts)-1], "/"))
	if err == nil && !dir.dir {
		err = syscall.ENOTDIR
	}
	return dir, parts[len(parts)-1], err
}

func (c *Crash) changeLocked(ch ...entryChange) {
	for _, e := range ch {
		if e.to == nil {
			delete(e.dir.entries, e.name)
		} else {
			e.dir.entries[e.name] = e.to
		}
		e.dir.modified = time.Now()
	}
	c.mu.pending = append(c.mu.pending, ch)
}

// Create implements FS, as do the methods below.
func (c *Crash) Create(name string) (File, error) {
	c.ops.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	dir, last, err := c.parentLocked(name)
	if err != nil {
		return nil, pathError("create", name, err)
	}
	if dir.entries[last] != nil {
		return nil, pathError("create", name, os.ErrExist)
	}
	n := &node{modified: time.Now()}
	c.changeLocked(entryChange{dir: dir, name: last, to: n})
	return &crashFile{fs: c, node: n, name: name}, nil
}

func (c *Crash) Open(name string) (File, error) { return c.open(name, false) }

func (c *Crash) OpenReadOnly(name string) (File, error) { return c.open(name, true) }

func (c *Crash) open(name string, readOnly bool) (File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.findLocked(name)
	if err == nil && n.dir {
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &crashFile{fs: c, node: n, name: name, readOnly: readOnly}, nil
}

func (c *Crash) Rename(oldName, newName string) error {
	c.ops.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	fromDir, from, err := c.parentLocked(oldName)
	if err != nil {
		return pathError("rename", oldName, err)
	}
	toDir, to, err := c.parentLocked(newName)
	if err != nil {
		return pathError("rename", newName, err)
	}
	n, target := fromDir.entries[from], toDir.entries[to]
	switch {
	case n == nil:
		return pathError("rename", oldName, os.ErrNotExist)
	case n == target:
		return nil
	case target != nil && target.dir && (!n.dir || len(target.entries) > 0):
		return pathError("rename", newName, os.ErrExist)
	case target != nil && n.dir && !target.dir:
		return pathError("rename", newName, syscall.ENOTDIR)
	case n.dir && strings.HasPrefix(path.Clean("/"+newName)+"/", path.Clean("/"+oldName)+"/"):
		return pathError("rename", newName, os.ErrInvalid)
	}
	c.changeLocked(
		entryChange{dir: fromDir, name: from, from: n},
		entryChange{dir: toDir, name: to, from: target, to: n},
	)
	return nil
}

func (c *Crash) Link(oldName, newName string) error {
	c.ops.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.findLocked(oldName)
	if err == nil && n.dir {
		err = syscall.EPERM
	}
	if err != nil {
		return pathError("link", oldName, err)
	}
	dir, last, err := c.parentLocked(newName)
	if err != nil {
		return pathError("link", newName, err)
	}
	if dir.entries[last] != nil {
		return pathError("link", newName, os.ErrExist)
	}
	c.changeLocked(entryChange{dir: dir, name: last, to: n})
	return nil
}

func (c *Crash) Remove(name string) error {
	c.ops.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	dir, last, err := c.parentLocked(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	n := dir.entries[last]
	switch {
	case n == nil:
		return pathError("remove", name, os.ErrNotExist)
	case n.dir && len(n.entries) > 0:
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	c.changeLocked(entryChange{dir: dir, name: last, from: n})
	return nil
}

func (c *Crash) RemoveAll(name string) error {
	c.ops.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	dir, last, err := c.parentLocked(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return pathError("remove-all", name, err)
	}
	if n := dir.entries[last]; n != nil {
		c.removeTreeLocked(dir, last, n)
	}
	return nil
}

func (c *Crash) removeTreeLocked(dir *node, name string, n *node) {
	for _, child := range sortedKeys(n.entries) {
		c.removeTreeLocked(n, child, n.entries[child])
	}
	c.changeLocked(entryChange{dir: dir, name: name, from: n})
}

func (c *Crash) List(dir string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.findLocked(dir)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("list", dir, err)
	}
	return sortedKeys(n.entries), nil
}

func (c *Crash) Stat(name string) (Info, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.findLocked(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	return Info{Bytes: int64(len(n.file.now)), Dir: n.dir, Modified: n.modified}, nil
}

func (c *Crash) MkdirAll(dir string) error {
	c.ops.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.mu.root
	for _, part := range split(dir) {
		next := n.entries[part]
		if next == nil {
			next = newDir()
			c.changeLocked(entryChange{dir: n, name: part, to: next})
		}
		if !next.dir {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
		n = next
	}
	return nil
}

// SyncDir makes the pending changes of one folder durable, with the earlier
// changes that they build on.
func (c *Crash) SyncDir(dir string) error {
	c.ops.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.findLocked(dir)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathError("sync-dir", dir, err)
	}
	type entry struct {
		dir  *node
		name string
	}
	needed := map[entry]bool{}
	var rest []change
	taken := make([]bool, len(c.mu.pending))
	for i := len(c.mu.pending) - 1; i >= 0; i-- {
		for _, e := range c.mu.pending[i] {
			taken[i] = taken[i] || e.dir == n || needed[entry{e.dir, e.name}]
		}
		if taken[i] {
			for _, e := range c.mu.pending[i] {
				needed[entry{e.dir, e.name}] = true
			}
		}
	}
	for i, ch := range c.mu.pending {
		if !taken[i] {
			rest = append(rest, ch)
			continue
		}
		for _, e := range ch {
			if e.to == nil {
				delete(e.dir.durableEntries, e.name)
			} else {
				e.dir.durableEntries[e.name] = e.to
			}
		}
	}
	c.mu.pending = rest
	return nil
}

func (c *Crash) Lock(name string) (io.Closer, error) {
	c.mu.Lock()
	clean := path.Clean("/" + name)
	if c.mu.locks[clean] {
		c.mu.Unlock()
		return nil, &LockedError{Name: name, PID: os.Getpid()}
	}
	c.mu.locks[clean] = true
	c.mu.Unlock()
	f, err := c.Create(name)
	if errors.Is(err, os.ErrExist) {
		f, err = c.Open(name)
	}
	if err != nil {
		c.unlock(clean)
		return nil, err
	}
	return &crashLock{fs: c, name: clean, file: f}, nil
}

func (c *Crash) unlock(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.locks, name)
}

type crashLock struct {
	fs   *Crash
	name string
	file File
	once sync.Once
}

func (l *crashLock) Close() error {
	err := fmt.Errorf("%s: %w", l.name, os.ErrClosed)
	l.once.Do(func() {
		l.fs.unlock(l.name)
		err = l.file.Close()
	})
	return err
}

// crashCapacity is the size of the disk that Usage speaks of.
const crashCapacity = 1 << 40

func (c *Crash) Usage(dir string) (Usage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.findLocked(dir); err != nil {
		return Usage{}, pathError("usage", dir, err)
	}
	seen := map[*node]bool{}
	var used int64
	var walk func(n *node)
	walk = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		used += int64(len(n.file.now))
		for _, child := range n.entries {
			walk(child)
		}
	}
	walk(c.mu.root)
	return Usage{FreeBytes: crashCapacity - used, TotalBytes: crashCapacity}, nil
}
