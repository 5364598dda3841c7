package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/file"
	"strandline/tiering/objstore/objstoretest"
)

func open(t *testing.T, fs disk.FS, dir string) *file.Store {
	t.Helper()
	s := file.Open(file.Config{FS: fs, Dir: dir})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestSuiteOnRealFiles(t *testing.T) {
	objstoretest.Run(t, objstoretest.Options{}, func(t *testing.T) objstore.Store { return open(t, disk.OS(), t.TempDir()+"/tier") })
}

func TestSuiteOnCrashDisk(t *testing.T) {
	objstoretest.Run(t, objstoretest.Options{}, func(t *testing.T) objstore.Store { return open(t, disk.NewCrash(1), "/var/tier") })
}

// A folder that cannot be used is said by every call, until it can.
func TestFolderThatCannotBeUsedYet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tier")
	require.NoError(t, os.WriteFile(dir, []byte("in the way"), 0o600))
	s := open(t, disk.OS(), dir)
	err := putOne(s, "a/1")
	require.ErrorIs(t, err, objstore.ErrNoBucket)
	require.ErrorContains(t, err, "remote.store.url")
	_, err = s.Head(t.Context(), "a/1")
	require.ErrorIs(t, err, objstore.ErrNoBucket, "nothing is said to be missing")
	require.NoError(t, os.Remove(dir))
	require.NoError(t, putOne(s, "a/1"))
	require.NoError(t, s.Close())

	for i, failed := int64(0), true; failed; i++ {
		failed = false
		fault := disk.NewFault(disk.NewCrash(1), nil)
		fault.SetInjector(func(disk.Op) error {
			if fault.Calls() == i+1 {
				failed = true
				return disk.ErrInjected
			}
			return nil
		})
		s := open(t, fault, "/var/tier")
		fault.SetInjector(nil)
		require.NoError(t, putOne(s, "a/1"), "call %d of the start failed", i)
		require.NoError(t, s.Close())
		if i == 0 {
			require.True(t, failed)
		}
	}
}
