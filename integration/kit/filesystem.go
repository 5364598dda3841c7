package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// FileSystem returns the root of a file system of its own with that size: ext4
// in a file, else tmpfs. Where neither can be mounted, as without root, it skips
// like for a missing tool.
func FileSystem(t testing.TB, bytes int64) string {
	t.Helper()
	root := t.TempDir()
	at := filepath.Join(root, "mounted")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if !mountLoop(filepath.Join(root, "image"), at, bytes) &&
		syscall.Mount("none", at, "tmpfs", 0, "size="+strconv.FormatInt(bytes, 10)) != nil {
		Missing(t, "the right to mount a file system")
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at, 0); err != nil {
			_ = syscall.Unmount(at, syscall.MNT_DETACH)
			t.Errorf("unmount %s: %v", at, err)
		}
	})
	return at
}

func mountLoop(image, at string, bytes int64) bool {
	f, err := os.Create(image)
	if err != nil {
		return false
	}
	defer f.Close()
	if f.Truncate(bytes) != nil {
		return false
	}
	// No blocks are kept back for root, who runs this.
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-m", "0", image},
		{"mount", "-o", "loop", image, at},
	} {
		path, err := exec.LookPath(args[0])
		if err != nil {
			path = filepath.Join("/usr/sbin", args[0])
		}
		if exec.Command(path, args[1:]...).Run() != nil {
			return false
		}
	}
	return true
}

// FillUp writes a file in dir until the file system has no room.
func FillUp(t testing.TB, dir string) (name string) {
	t.Helper()
	name = filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := 1 << 20; chunk >= 512; {
		if _, err := f.Write(make([]byte, chunk)); err != nil {
			chunk /= 2
		}
	}
	return name
}
