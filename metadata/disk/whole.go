package disk

import (
	"errors"
	"io"
	"os"
	"path"
)

// tempSuffix ends the name of a file that WriteFileAtomic has not finished.
const tempSuffix = ".tmp"

// ReadFile returns the contents of a file.
func ReadFile(fs FS, name string) ([]byte, error) {
	f, err := fs.OpenReadOnly(name)
	if err != nil {
		return nil, err
	}
	data, err := readAll(f)
	return data, errors.Join(err, f.Close())
}

func readAll(f File) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return data[:n], nil
}

// WriteFileAtomic makes name a file with the given contents: after a power loss
// it has the old contents or the new ones, and the new ones once the call
// returned nil. A leftover of an earlier, interrupted call is replaced.
func WriteFileAtomic(fs FS, name string, data []byte) error {
	return writeFile(fs, name, data, true)
}

// WriteFileUnsynced is WriteFileAtomic without its syncs, for caches that can
// be rebuilt: another process sees the old or the new contents, a power loss
// may leave anything.
func WriteFileUnsynced(fs FS, name string, data []byte) error {
	return writeFile(fs, name, data, false)
}

func writeFile(fs FS, name string, data []byte, sync bool) error {
	temp := name + tempSuffix
	f, err := fs.Create(temp)
	if errors.Is(err, os.ErrExist) {
		if err = fs.Remove(temp); err == nil {
			f, err = fs.Create(temp)
		}
	}
	if err != nil {
		return err
	}
	if len(data) > 0 {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil && sync {
		err = f.SyncData()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, fs.Remove(temp))
	}
	if err := fs.Rename(temp, name); err != nil {
		return err
	}
	if !sync {
		return nil
	}
	return fs.SyncDir(path.Dir(name))
}

// EnsureDir makes a folder and its missing parents, durably.
func EnsureDir(fs FS, dir string) error {
	var missing []string
	for d := path.Clean(dir); ; d = path.Dir(d) {
		_, err := fs.Stat(d)
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrNotExist) || d == path.Dir(d) {
			return err
		}
		missing = append(missing, d)
	}
	if len(missing) == 0 {
		return nil
	}
	if err := fs.MkdirAll(dir); err != nil {
		return err
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := fs.SyncDir(path.Dir(missing[i])); err != nil {
			return err
		}
	}
	return nil
}
