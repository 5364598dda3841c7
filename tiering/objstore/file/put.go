package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"

	"strandline/metadata/disk"
	"strandline/tiering/objstore"
)

// copyBytes is the unit in which a body is read and written.
const copyBytes = 1 << 20

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Info, error) {
	if err := s.check(ctx, objstore.VerbPut, key); err != nil {
		return objstore.Info{}, err
	}
	if o.IfAbsent {
		if _, err := s.stat(key); err == nil {
			return objstore.Info{}, s.exists(key)
		}
	}
	tmp := path.Join(s.tmp.Load().dir, strconv.FormatInt(s.names.Add(1), 10))
	crc, err := s.write(ctx, tmp, key, body, o)
	if err == nil {
		err = s.publish(tmp, key, o.IfAbsent)
	}
	if err != nil {
		_ = s.fs.Remove(tmp)
		return objstore.Info{}, err
	}
	info, err := s.stat(key)
	if err != nil {
		// Deleted since: it was there all the same.
		info = objstore.Info{Key: key, Bytes: body.Size()}
	}
	info.CRC32C, info.HasCRC = crc, true
	return info, nil
}

// write makes the temporary file, complete and synced, and compares checksums.
func (s *Store) write(ctx context.Context, tmp, key string, body objstore.Body, o objstore.PutOptions) (uint32, error) {
	f, err := s.fs.Create(tmp)
	if err != nil {
		return 0, s.fail(objstore.VerbPut, key, notExists(err))
	}
	crc, err := s.copy(ctx, f, key, body)
	if err == nil && o.HasCRC && crc != o.CRC32C {
		err = s.classed(objstore.VerbPut, key, objstore.ErrChecksum, fmt.Errorf("the body has CRC32C %08x, %08x was promised", crc, o.CRC32C))
	}
	if err == nil {
		if serr := f.SyncData(); serr != nil {
			err = s.fail(objstore.VerbPut, key, serr)
		}
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = s.fail(objstore.VerbPut, key, cerr)
	}
	return crc, err
}

// notExists hides that a temporary name exists, or its folder does not: it is
// not the key.
func notExists(err error) error {
	if errors.Is(err, os.ErrExist) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("temporary file: %v", err)
	}
	return err
}

func (s *Store) copy(ctx context.Context, f disk.File, key string, body objstore.Body) (uint32, error) {
	var crc uint32
	size := body.Size()
	buf := make([]byte, min(size, copyBytes))
	for pos := int64(0); pos < size; {
		if ctx.Err() != nil {
			return 0, s.classed(objstore.VerbPut, key, objstore.ErrUnavailable, context.Cause(ctx))
		}
		b := buf[:min(int64(len(buf)), size-pos)]
		if n, err := body.ReadAt(b, pos); n < len(b) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, s.classed(objstore.VerbPut, key, objstore.ErrInvalid, fmt.Errorf("reading the body: %w", err))
		}
		if _, err := f.WriteAt(b, pos); err != nil {
			return 0, s.fail(objstore.VerbPut, key, err)
		}
		crc = objstore.UpdateCRC32C(crc, b)
		pos += int64(len(b))
	}
	return crc, nil
}

// folderRaces bounds how often a concurrent Delete may remove a folder between
// our making and using it.
const folderRaces = 100

// publish gives the temporary file its name, durably.
func (s *Store) publish(tmp, key string, ifAbsent bool) error {
	name := s.path(key)
	var err error
	for range folderRaces {
		if _, err = s.fs.Stat(s.root); err != nil {
			return s.fail(objstore.VerbPut, key, err)
		}
		if err = s.fs.MkdirAll(path.Dir(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			break
		}
		if ifAbsent {
			err = s.fs.Link(tmp, name)
		} else {
			err = s.fs.Rename(tmp, name)
		}
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	switch {
	case errors.Is(err, os.ErrExist):
		return s.exists(key)
	case err != nil:
		return s.fail(objstore.VerbPut, key, err)
	}
	if err := s.syncUp(path.Dir(name)); err != nil {
		return s.fail(objstore.VerbPut, key, err)
	}
	if ifAbsent {
		// The object is safe; the next Open removes what stays here.
		_ = s.fs.Remove(tmp)
	}
	return nil
}

// exists answers that the key is taken, once that is durable (F2): the caller
// may be retrying a Put of its own whose sync failed.
func (s *Store) exists(key string) error {
	if info, err := s.fs.Stat(s.path(key)); err == nil && info.Dir {
		return s.classed(objstore.VerbPut, key, objstore.ErrInvalidKey, errors.New("the key is a folder of other keys"))
	}
	if err := s.syncUp(path.Dir(s.path(key))); err != nil && !errors.Is(err, os.ErrNotExist) {
		return s.fail(objstore.VerbPut, key, err)
	}
	return s.classed(objstore.VerbPut, key, objstore.ErrExists, nil)
}

// syncUp syncs a folder and all above it up to the root. Which of them are new
// is not tracked: another Put may have made one and not synced it yet.
func (s *Store) syncUp(dir string) error {
	for {
		if err := s.fs.SyncDir(dir); err != nil {
			return err
		}
		if dir == s.root {
			return nil
		}
		dir = path.Dir(dir)
	}
}

// Delete implements objstore.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	if err := s.check(ctx, objstore.VerbDelete, keys...); err != nil {
		return err
	}
	var folders []string
	seen := map[string]bool{}
	for _, key := range keys {
		if err := s.check(ctx, objstore.VerbDelete); err != nil {
			return err
		}
		_, err := s.stat(key)
		if err == nil {
			err = s.fs.Remove(s.path(key))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return s.fail(objstore.VerbDelete, key, err)
		}
		if dir := path.Dir(s.path(key)); !seen[dir] {
			seen[dir] = true
			folders = append(folders, dir)
		}
	}
	for _, dir := range folders {
		if err := s.prune(dir); err != nil {
			return s.fail(objstore.VerbDelete, "", err)
		}
	}
	return nil
}

// prune removes a folder and those above it while they are empty, and syncs the
// first one that stays.
func (s *Store) prune(dir string) error {
	for ; dir != s.root; dir = path.Dir(dir) {
		if info, err := s.fs.Stat(dir); err == nil && info.Dir {
			if s.fs.Remove(dir) != nil {
				break // not empty
			}
		}
	}
	for {
		err := s.fs.SyncDir(dir)
		if dir == s.root || !errors.Is(err, os.ErrNotExist) {
			return err
		}
		dir = path.Dir(dir) // another Delete removed it meanwhile
	}
}
