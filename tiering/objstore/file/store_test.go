package file_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/file"
	"strandline/tiering/objstore/objstoretest"
)

func open(t *testing.T, fs disk.FS, dir string) *file.Store {
	t.Helper()
	s, err := file.Open(file.Config{FS: fs, Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestSuiteOnRealFiles(t *testing.T) {
	objstoretest.Run(t, objstoretest.Options{}, func(t *testing.T) objstore.Store { return open(t, disk.OS(), t.TempDir()+"/tier") })
}

func TestSuiteOnCrashDisk(t *testing.T) {
	objstoretest.Run(t, objstoretest.Options{}, func(t *testing.T) objstore.Store { return open(t, disk.NewCrash(1), "/var/tier") })
}
