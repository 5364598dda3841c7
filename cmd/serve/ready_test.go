package serve

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadyFileThatCannotBeWrittenIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	data := filepath.Join(dir, "data")
	made := []string{filepath.Join(data, "logs")}
	for name, reason := range map[string]string{
		dir:                                 "it is a directory",
		filepath.Join(dir, "none", "ready"): "its folder " + filepath.Join(dir, "none") + " does not exist",
		filepath.Join(dir, "dat", "ready"):  "does not exist",
		filepath.Join(file, "ready"):        "not a",
		"/proc/ready":                       "no file can be made in /proc",
	} {
		err := checkReadyFile(name, made)
		var exit *ExitError
		require.True(t, errors.As(err, &exit), "%s: %v", name, err)
		require.Equal(t, ExitConfig, exit.Code)
		require.ErrorContains(t, err, reason)
		require.ErrorContains(t, err, "ready.file "+name)
	}
	for _, name := range []string{filepath.Join(dir, "ready"), file, filepath.Join(data, "ready"), filepath.Join(data, "logs", "ready")} {
		require.NoError(t, checkReadyFile(name, made))
	}
	require.NoDirExists(t, data, "nothing was made")
	t.Chdir(dir)
	require.NoError(t, checkReadyFile("ready", nil))
	require.NoError(t, checkReadyFile("data/ready", []string{"./data/logs"}))
	require.Error(t, checkReadyFile("data/logs/0/ready", []string{"./data/logs"}))
}
