package file

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"strandline/metadata/disk"
	"strandline/tiering/objstore"
)

// Config says where a store is.
type Config struct {
	FS disk.FS
	// Dir is the root, an absolute path; it is made if missing.
	Dir string
}

// Store is an objstore.Store in a folder.
type Store struct {
	fs   disk.FS
	root string

	starting sync.Mutex
	tmp      atomic.Pointer[instance] // nil until the folder could be used; set under starting

	names  atomic.Int64
	closed atomic.Bool
	once   sync.Once
	err    error // of closing
}

// Open opens the store, making its root where it is missing, and removes what
// instances that are no more have left behind. A folder that cannot be used is
// an error of each call until it can.
func Open(cfg Config) *Store {
	s := &Store{fs: cfg.FS, root: path.Clean(cfg.Dir)}
	_ = s.start(objstore.VerbList)
	return s
}

// start makes the folder ready once; it is cheap from then on.
func (s *Store) start(op objstore.Verb) error {
	if s.tmp.Load() != nil {
		return nil
	}
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.tmp.Load() != nil {
		return nil
	}
	if s.closed.Load() {
		return s.classed(op, "", objstore.ErrClosed, nil)
	}
	if err := disk.EnsureDir(s.fs, s.root); err != nil {
		return s.unusable(op, err)
	}
	crashed, err := removeDeadInstances(s.fs, s.root)
	if err == nil && crashed {
		err = s.pruneTree()
	}
	if err != nil {
		return s.unusable(op, err)
	}
	tmp, err := newInstance(s.fs, s.root)
	if err != nil {
		return s.unusable(op, err)
	}
	s.tmp.Store(tmp)
	return nil
}

// unusable is an error of the root itself.
func (s *Store) unusable(op objstore.Verb, cause error) error {
	err := s.fail(op, "", cause)
	var e *objstore.Error
	if errors.As(err, &e) && (e.Class == objstore.ErrInvalidKey || e.Class == objstore.ErrNotFound) {
		e.Class = objstore.ErrNoBucket
		e.Remedy = "remote.store.url must name a directory, or one that can be made"
	}
	return err
}

// fail wraps an error of the file system.
func (s *Store) fail(op objstore.Verb, key string, cause error) error {
	e := &objstore.Error{Op: op, Key: key, Bucket: s.root, Cause: cause, Class: objstore.ErrUnavailable}
	switch {
	case errors.Is(cause, objstore.ErrInvalidKey):
		e.Class = objstore.ErrInvalidKey
	case errors.Is(cause, os.ErrExist):
		e.Class = objstore.ErrExists
	case errors.Is(cause, os.ErrNotExist):
		e.Class = objstore.ErrNotFound
		if info, err := s.fs.Stat(s.root); err != nil || !info.Dir {
			e.Class = objstore.ErrNoBucket
			e.Remedy = "the directory of the store is gone; is its disk mounted?"
		}
	case errors.Is(cause, os.ErrPermission), errors.Is(cause, syscall.EROFS):
		e.Class = objstore.ErrAccess
		e.Remedy = "the server's user must own the directory of the store, on a file system that is writable and has hard links"
	case errors.Is(cause, syscall.ENOSPC), errors.Is(cause, syscall.EDQUOT):
		e.Class = objstore.ErrFull
		e.Remedy = "free space on the disk that holds the store"
	case errors.Is(cause, syscall.ENOTDIR), errors.Is(cause, syscall.EISDIR), errors.Is(cause, syscall.ENAMETOOLONG):
		e.Class = objstore.ErrInvalidKey
		e.Remedy = "a key cannot be a folder of another one"
	case errors.Is(cause, syscall.EXDEV), errors.Is(cause, syscall.ENOTSUP):
		e.Class = objstore.ErrInvalid
		e.Remedy = "the store needs one file system with hard links for all of its directory"
	}
	return e
}

func (s *Store) classed(op objstore.Verb, key string, class, cause error) error {
	return &objstore.Error{Op: op, Key: key, Bucket: s.root, Class: class, Cause: cause}
}

// check is what every call begins with.
func (s *Store) check(ctx context.Context, op objstore.Verb, keys ...string) error {
	if s.closed.Load() {
		return s.classed(op, "", objstore.ErrClosed, nil)
	}
	if err := ctx.Err(); err != nil {
		return s.classed(op, "", objstore.ErrUnavailable, context.Cause(ctx))
	}
	if err := s.start(op); err != nil {
		return err
	}
	for _, key := range keys {
		if err := objstore.ValidateKey(key); err != nil {
			return s.fail(op, key, err)
		}
	}
	return nil
}

func (s *Store) path(key string) string { return path.Join(s.root, key) }

// stat describes an object; folders are none.
func (s *Store) stat(key string) (objstore.Info, error) {
	info, err := s.fs.Stat(s.path(key))
	if errors.Is(err, syscall.ENOTDIR) {
		err = os.ErrNotExist
	}
	if err == nil && info.Dir {
		err = os.ErrNotExist
	}
	return objstore.Info{Key: key, Bytes: info.Bytes, Modified: info.Modified}, err
}

// Head implements objstore.Store.
func (s *Store) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := s.check(ctx, objstore.VerbHead, key); err != nil {
		return objstore.Info{}, err
	}
	info, err := s.stat(key)
	if err != nil {
		return objstore.Info{}, s.fail(objstore.VerbHead, key, err)
	}
	return info, nil
}

// Get implements objstore.Store.
func (s *Store) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := s.check(ctx, objstore.VerbGet, key); err != nil {
		return nil, err
	}
	if _, err := s.stat(key); err != nil {
		return nil, s.fail(objstore.VerbGet, key, err)
	}
	f, err := s.fs.OpenReadOnly(s.path(key))
	if err != nil {
		return nil, s.fail(objstore.VerbGet, key, err)
	}
	size, err := f.Size()
	if err != nil {
		_ = f.Close()
		return nil, s.fail(objstore.VerbGet, key, err)
	}
	if n, err = objstore.ClampRange(off, n, size); err != nil {
		_ = f.Close()
		return nil, s.classed(objstore.VerbGet, key, objstore.ErrRange, err)
	}
	return &reader{s: s, ctx: ctx, key: key, f: f, off: off, n: n}, nil
}

// reader is the body of a Get.
type reader struct {
	s      *Store
	ctx    context.Context
	key    string
	f      disk.File
	off, n int64
}

func (r *reader) Read(p []byte) (int, error) {
	if r.n == 0 {
		return 0, io.EOF
	}
	if r.ctx.Err() != nil {
		return 0, r.s.classed(objstore.VerbGet, r.key, objstore.ErrUnavailable, context.Cause(r.ctx))
	}
	if int64(len(p)) > r.n {
		p = p[:r.n]
	}
	n, err := r.f.ReadAt(p, r.off)
	r.off += int64(n)
	r.n -= int64(n)
	if err != nil && (r.n > 0 || !errors.Is(err, io.EOF)) {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return n, r.s.classed(objstore.VerbGet, r.key, objstore.ErrUnavailable, err)
	}
	return n, nil
}

func (r *reader) Close() error { return r.f.Close() }

// List implements objstore.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		if err := s.check(ctx, objstore.VerbList); err != nil {
			yield(objstore.Info{}, err)
			return
		}
		if _, err := s.fs.List(s.root); err != nil {
			yield(objstore.Info{}, s.fail(objstore.VerbList, prefix, err))
			return
		}
		s.walk(ctx, "", prefix, after, yield)
	}
}

// entry is a child of a folder in a walk.
type entry struct {
	key  string // of a folder: with a slash at the end, which gives its place in the order
	info disk.Info
}

// walk yields the objects in a folder, given with its slash, in the order of
// their keys, and returns false when it is to end.
func (s *Store) walk(ctx context.Context, folder, prefix, after string, yield func(objstore.Info, error) bool) bool {
	if err := s.check(ctx, objstore.VerbList); err != nil {
		yield(objstore.Info{}, err)
		return false
	}
	entries, err := s.entries(folder, prefix, after)
	if err != nil {
		yield(objstore.Info{}, s.fail(objstore.VerbList, folder, err))
		return false
	}
	for _, e := range entries {
		if e.info.Dir {
			if !s.walk(ctx, e.key, prefix, after, yield) {
				return false
			}
		} else if !yield(objstore.Info{Key: e.key, Bytes: e.info.Bytes, Modified: e.info.Modified}, nil) {
			return false
		}
	}
	return true
}

// entries are the children of a folder that match, or may hold matches.
func (s *Store) entries(folder, prefix, after string) ([]entry, error) {
	names, err := s.fs.List(path.Join(s.root, folder))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries := make([]entry, 0, len(names))
	for _, name := range names {
		key := folder + name
		if strings.HasPrefix(name, objstore.ReservedPrefix) || !strings.HasPrefix(key, prefix) && !strings.HasPrefix(prefix, key+"/") {
			continue
		}
		info, err := s.fs.Stat(path.Join(s.root, key))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch {
		case info.Dir:
			if key += "/"; key <= after && !strings.HasPrefix(after, key) {
				continue
			}
		case key <= after || !strings.HasPrefix(key, prefix):
			continue
		}
		entries = append(entries, entry{key, info})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	return entries, nil
}

// Location implements objstore.Store.
func (s *Store) Location() objstore.Location {
	return objstore.Location{Scheme: objstore.SchemeFile, Bucket: s.root}
}

// Close implements objstore.Store. Puts under way fail.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.starting.Lock()
		defer s.starting.Unlock()
		s.closed.Store(true)
		if tmp := s.tmp.Load(); tmp != nil {
			s.err = tmp.close()
		}
	})
	return s.err
}

var _ objstore.Store = (*Store)(nil)
