package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"unsafe"
)

// Disk is a file system of its own.
type Disk struct {
	Path string // its root

	t     testing.TB
	image string // of ext4; "" for tmpfs
}

// NewDisk makes a file system with that size: ext4 in a file, else tmpfs. Where
// neither can be mounted, as without root, it skips like for a missing tool.
func NewDisk(t testing.TB, bytes int64) *Disk {
	t.Helper()
	root := t.TempDir()
	d := &Disk{Path: filepath.Join(root, "mounted"), t: t, image: filepath.Join(root, "image")}
	if err := os.Mkdir(d.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	if !mountLoop(d.image, d.Path, bytes) {
		d.image = ""
		if syscall.Mount("none", d.Path, "tmpfs", 0, "size="+strconv.FormatInt(bytes, 10)) != nil {
			Missing(t, "the right to mount a file system")
		}
	}
	t.Cleanup(d.unmount)
	return d
}

func (d *Disk) unmount() {
	if err := syscall.Unmount(d.Path, 0); err != nil {
		_ = syscall.Unmount(d.Path, syscall.MNT_DETACH)
		d.t.Errorf("unmount %s: %v", d.Path, err)
	}
}

// Break makes every read, write and sync of the disk fail with EIO, until
// Repair. It skips where the file system cannot do that.
func (d *Disk) Break() {
	d.t.Helper()
	if d.image == "" {
		Missing(d.t, "an ext4 file system, which can be shut down under the server,")
	}
	f, err := os.Open(d.Path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	const shutDown, withoutLog = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN
	flags := uint32(withoutLog)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), shutDown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		d.t.Fatalf("shut down %s: %v", d.Path, errno)
	}
}

// Repair mounts a broken disk again, once nobody has a file open there.
func (d *Disk) Repair() {
	d.t.Helper()
	d.unmount()
	if out, err := exec.Command(sbin("mount"), "-o", "loop", d.image, d.Path).CombinedOutput(); err != nil {
		d.t.Fatalf("mount: %v\n%s", err, out)
	}
}

func sbin(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	return filepath.Join("/usr/sbin", name)
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
		if exec.Command(sbin(args[0]), args[1:]...).Run() != nil {
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
