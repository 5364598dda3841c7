package file

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"strandline/metadata/disk"
	"strandline/tiering/objstore"
)

// tmpFolder holds, for each open store, a folder of temporary files and a lock
// file beside it with the suffix lockSuffix.
const (
	tmpFolder  = objstore.ReservedPrefix + "tmp"
	lockSuffix = ".lock"
)

// instance is the temporary folder of one open store.
type instance struct {
	fs   disk.FS
	dir  string
	lock io.Closer
}

// newInstance makes a temporary folder under a name that nobody has used.
func newInstance(fs disk.FS, root string) (i *instance, err error) {
	for range 3 {
		i, err = tryInstance(fs, root)
		if !errors.Is(err, disk.ErrLocked) {
			break
		}
		// Another Open took our lock for a dead one's before we held it.
	}
	return i, err
}

func tryInstance(fs disk.FS, root string) (*instance, error) {
	var id [8]byte
	_, _ = rand.Read(id[:])
	i := &instance{fs: fs, dir: path.Join(root, tmpFolder, hex.EncodeToString(id[:]))}
	if err := fs.MkdirAll(path.Dir(i.dir)); err != nil {
		return nil, err
	}
	var err error
	if i.lock, err = fs.Lock(i.dir + lockSuffix); err != nil {
		return nil, err
	}
	err = fs.MkdirAll(i.dir)
	// Durable, so that the Open after a crash knows that there was one.
	for _, dir := range []string{path.Dir(i.dir), root} {
		if err == nil {
			err = fs.SyncDir(dir)
		}
	}
	if err != nil {
		return nil, errors.Join(err, i.lock.Close())
	}
	return i, nil
}

func (i *instance) close() error {
	err := i.fs.RemoveAll(i.dir)
	return errors.Join(err, ignoreMissing(i.fs.Remove(i.dir+lockSuffix)), i.lock.Close())
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// removeDeadInstances removes the temporary folders whose lock nobody holds,
// and reports whether there were any.
func removeDeadInstances(fs disk.FS, root string) (bool, error) {
	tmp := path.Join(root, tmpFolder)
	names, err := fs.List(tmp)
	if err != nil {
		return false, ignoreMissing(err)
	}
	found := false
	seen := map[string]bool{}
	for _, name := range names {
		id := strings.TrimSuffix(name, lockSuffix)
		if seen[id] {
			continue
		}
		seen[id] = true
		dir := path.Join(tmp, id)
		lock, err := fs.Lock(dir + lockSuffix)
		if errors.Is(err, disk.ErrLocked) {
			continue
		}
		if err != nil {
			return found, err
		}
		found = true
		err = errors.Join(fs.RemoveAll(dir), ignoreMissing(fs.Remove(dir+lockSuffix)), lock.Close())
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// pruneTree removes all empty folders below the root.
func (s *Store) pruneTree() error {
	names, err := s.fs.List(s.root)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, objstore.ReservedPrefix) {
			if err := s.pruneFolder(path.Join(s.root, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// pruneFolder removes a folder where nothing is in it but empty folders.
func (s *Store) pruneFolder(dir string) error {
	info, err := s.fs.Stat(dir)
	if err != nil || !info.Dir {
		return ignoreMissing(err)
	}
	names, err := s.fs.List(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	for _, name := range names {
		if err := s.pruneFolder(path.Join(dir, name)); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		_ = s.fs.Remove(dir)
		return nil
	}
	if names, err = s.fs.List(dir); err == nil && len(names) == 0 {
		_ = s.fs.Remove(dir)
	}
	return nil
}
