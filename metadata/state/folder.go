package state

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"strandline/metadata/disk"
)

const currentName = "current"

func folderName(n uint64) string { return fmt.Sprintf("%08d", n) }

// folders keeps the numbered folders of a state.
type folders struct {
	fs  disk.FS
	dir string
}

func (f folders) path(n uint64) string { return path.Join(f.dir, folderName(n)) }

// live reads the number of the live folder, 0 where there is none yet.
func (f folders) live() (uint64, error) {
	data, err := disk.ReadFile(f.fs, path.Join(f.dir, currentName))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%s names no folder: %q", path.Join(f.dir, currentName), data)
	}
	return n, nil
}

// setLive makes a folder, complete and durable, the live one.
func (f folders) setLive(n uint64) error {
	if err := f.fs.SyncDir(f.dir); err != nil { // the folder's own name
		return err
	}
	return disk.WriteFileAtomic(f.fs, path.Join(f.dir, currentName), []byte(folderName(n)+"\n"))
}

// sweep removes every folder but one, and returns the highest number seen.
func (f folders) sweep(keep uint64) (highest uint64, err error) {
	names, err := f.fs.List(f.dir)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		n, err := strconv.ParseUint(name, 10, 64)
		if err != nil {
			continue
		}
		highest = max(highest, n)
		if n != keep {
			if err := f.fs.RemoveAll(path.Join(f.dir, name)); err != nil {
				return 0, err
			}
		}
	}
	return highest, nil
}

// fill makes folder n of the files in a checkpoint. Tables are linked, they are
// never written again; the rest is small and is copied.
func (f folders) fill(n uint64, checkpoint string) error {
	to := f.path(n)
	if err := f.fs.RemoveAll(to); err != nil {
		return err
	}
	if err := disk.EnsureDir(f.fs, to); err != nil {
		return err
	}
	names, err := f.fs.List(checkpoint)
	if err != nil {
		return err
	}
	for _, name := range names {
		from, target := path.Join(checkpoint, name), path.Join(to, name)
		if path.Ext(name) == ".sst" {
			if err := f.fs.Link(from, target); err != nil {
				return err
			}
			continue
		}
		if err := f.copy(from, target); err != nil {
			return err
		}
	}
	return f.fs.SyncDir(to)
}

func (f folders) copy(from, to string) (err error) {
	data, err := disk.ReadFile(f.fs, from)
	if err != nil {
		return err
	}
	out, err := f.fs.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if len(data) > 0 {
		if _, err := out.WriteAt(data, 0); err != nil {
			return err
		}
	}
	return out.SyncData()
}
