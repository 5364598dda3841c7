package file_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
	"strandline/tiering/objstore"
)

const root = "/var/tier"

var errNoSpace error = syscall.ENOSPC

func data(i int) []byte {
	b := make([]byte, 3000+i*700)
	r := rand.New(rand.NewPCG(uint64(i), 5))
	for j := range b {
		b[j] = byte(r.Uint32())
	}
	return b
}

// history is what was answered before a power loss.
type history struct {
	// present must be there, absent must not, maybe may be either; whole in
	// any case.
	present, maybe map[string][]byte
	absent         map[string]bool
}

func (h *history) put(key string, b []byte) {
	h.present[key] = b
	delete(h.absent, key)
	delete(h.maybe, key)
}

func (h *history) check(t *testing.T, s objstore.Store) {
	t.Helper()
	found := map[string]bool{}
	for info, err := range s.List(t.Context(), "", "") {
		require.NoError(t, err)
		found[info.Key] = true
		want := h.present[info.Key]
		if want == nil {
			want = h.maybe[info.Key]
		}
		require.NotNil(t, want, "%s is back", info.Key)
		b, err := objstore.ReadAll(t.Context(), s, info.Key, 1<<20)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, b), "%s is not whole", info.Key)
	}
	for key := range h.present {
		require.True(t, found[key], "%s is lost", key)
	}
	for key := range h.absent {
		require.False(t, found[key], "%s is back", key)
	}
}

// leftovers are what an open store's folder holds besides objects, its own
// temporary folder apart.
func leftovers(t *testing.T, fs disk.FS) (out []string) {
	t.Helper()
	var walk func(dir string) int
	walk = func(dir string) int {
		names, err := fs.List(dir)
		require.NoError(t, err)
		for _, n := range names {
			info, err := fs.Stat(dir + "/" + n)
			require.NoError(t, err)
			if info.Dir && walk(dir+"/"+n) == 0 {
				out = append(out, dir+"/"+n)
			}
		}
		return len(names)
	}
	names, err := fs.List(root)
	require.NoError(t, err)
	for _, n := range names {
		if info, err := fs.Stat(root + "/" + n); err == nil && info.Dir && n != ".strandline-tmp" && walk(root+"/"+n) == 0 {
			out = append(out, root+"/"+n)
		}
	}
	tmp, err := fs.List(root + "/.strandline-tmp")
	require.NoError(t, err)
	if len(tmp) > 2 {
		out = append(out, tmp...)
	}
	return out
}

// TestPowerLossAtAnyPoint: what Put and Delete have answered survives, and
// nothing half-written is ever visible (F1, F2, O1, O2).
func TestPowerLossAtAnyPoint(t *testing.T) {
	ops := []func(ctx context.Context, s objstore.Store, h *history) error{}
	put := func(key string, i int, ifAbsent bool) {
		ops = append(ops, func(ctx context.Context, s objstore.Store, h *history) error {
			b := data(i)
			delete(h.absent, key)
			h.maybe[key] = b
			_, err := s.Put(ctx, key, objstore.NewBytesBody(b), objstore.PutOptions{IfAbsent: ifAbsent})
			if err == nil {
				h.put(key, b)
			}
			return err
		})
	}
	del := func(keys ...string) {
		ops = append(ops, func(ctx context.Context, s objstore.Store, h *history) error {
			for _, k := range keys {
				if b := h.present[k]; b != nil {
					h.maybe[k] = b
				}
				delete(h.present, k)
			}
			err := s.Delete(ctx, keys...)
			for _, k := range keys {
				if err == nil {
					delete(h.maybe, k)
					h.absent[k] = true
				}
			}
			return err
		})
	}
	put("a/b/c/1.seg", 1, true)
	put("a/b/c/2.seg", 2, true)
	put("a/x/1.seg", 3, true)
	del("a/b/c/1.seg", "a/x/1.seg")
	put("a/x/2.seg", 4, false)
	put("m", 5, false)
	del("a/b/c/2.seg")
	put("a/b/c/1.seg", 6, true)
	del("m")

	rng := rand.New(rand.NewPCG(7, 7))
	for cut := int64(0); ; cut++ {
		crash := disk.NewCrash(uint64(cut))
		fault := disk.NewFault(crash, nil)
		s := open(t, fault, root)
		opened := fault.Calls()
		fault.SetInjector(func(op disk.Op) error {
			if fault.Calls()-opened > cut {
				return errors.New("the machine is off")
			}
			return nil
		})
		h := &history{present: map[string][]byte{}, maybe: map[string][]byte{}, absent: map[string]bool{}}
		done := true
		for _, op := range ops {
			if err := op(t.Context(), s, h); err != nil {
				done = false
				break
			}
		}
		for range 2 {
			after := crash.Clone(rng)
			s2 := open(t, after, root)
			h.check(t, s2)
			require.Empty(t, leftovers(t, after), "cut at call %d", cut)
			require.NoError(t, putOne(s2, "a/b/c/9.seg"), "the store works on")
		}
		if done {
			require.Greater(t, cut, int64(40))
			break
		}
	}
}

func putOne(s objstore.Store, key string) error {
	_, err := s.Put(context.Background(), key, objstore.NewBytesBody([]byte("x")), objstore.PutOptions{IfAbsent: true})
	return err
}

// TestEachDiskErrorIsReportedAndSurvived fails the i-th call for each i, then
// tries again on the same store.
func TestEachDiskErrorIsReportedAndSurvived(t *testing.T) {
	for i := int64(0); ; i++ {
		fault := disk.NewFault(disk.NewCrash(1), nil)
		s := open(t, fault, root)
		require.NoError(t, putOne(s, "old/1"))
		before := fault.Calls()
		failed := false
		fault.SetInjector(func(disk.Op) error {
			if fault.Calls()-before == i+1 {
				failed = true
				return disk.ErrInjected
			}
			return nil
		})
		// A guard retries as production does.
		g := objstore.NewGuard(s, objstore.GuardConfig{BackoffMin: 1})
		_, err := g.Put(t.Context(), "new/1", objstore.NewBytesBody(data(1)), objstore.PutOptions{IfAbsent: true})
		if err == nil {
			err = g.Delete(t.Context(), "old/1")
		}
		require.NoError(t, err, "call %d", i)
		fault.SetInjector(nil)
		b, err := objstore.ReadAll(t.Context(), g, "new/1", 1<<20)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data(1), b))
		_, err = g.Head(t.Context(), "old/1")
		require.ErrorIs(t, err, objstore.ErrNotFound)
		if !failed {
			require.Greater(t, i, int64(12))
			return
		}
	}
}

func TestErrorClassesOfTheDisk(t *testing.T) {
	fault := disk.NewFault(disk.NewCrash(1), nil)
	s := open(t, fault, root)
	for cause, class := range map[error]error{
		os.ErrPermission:  objstore.ErrAccess,
		errNoSpace:        objstore.ErrFull,
		errors.New("EIO"): objstore.ErrUnavailable,
	} {
		fault.SetInjector(func(op disk.Op) error {
			if op.Kind == disk.OpCreate {
				return cause
			}
			return nil
		})
		err := putOne(s, "k")
		require.ErrorIs(t, err, class)
	}
	fault.SetInjector(nil)
	require.NoError(t, fault.RemoveAll(root))
	err := putOne(s, "k")
	require.Error(t, err)
	_, err = s.Head(t.Context(), "k")
	require.ErrorIs(t, err, objstore.ErrNoBucket)
	require.Contains(t, objstore.Remedy(err), "mounted")
	for _, err := range s.List(t.Context(), "", "") {
		require.ErrorIs(t, err, objstore.ErrNoBucket)
	}
	_, err = fault.Stat(root)
	require.ErrorIs(t, err, os.ErrNotExist, "a root that is gone is not made again")
}

func TestFoldersArePrunedAndKeysAreFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, disk.OS(), dir)
	require.NoError(t, putOne(s, "a/b/c/1"))
	require.NoError(t, putOne(s, "a/d"))
	require.FileExists(t, filepath.Join(dir, "a/b/c/1"))
	require.NoError(t, s.Delete(t.Context(), "a/b/c/1"))
	require.NoDirExists(t, filepath.Join(dir, "a/b"))
	require.DirExists(t, filepath.Join(dir, "a"))
	require.ErrorIs(t, putOne(s, "a/d/e"), objstore.ErrInvalidKey, "a key as a folder of another")
	require.ErrorIs(t, putOne(s, "a"), objstore.ErrInvalidKey)
	require.NoError(t, s.Delete(t.Context(), "a/d"))
	require.NoDirExists(t, filepath.Join(dir, "a"))
	require.NoError(t, s.Close())
	tmp, err := os.ReadDir(filepath.Join(dir, ".strandline-tmp"))
	require.NoError(t, err)
	require.Empty(t, tmp, "an orderly close leaves nothing")
	require.ErrorIs(t, putOne(s, "k"), objstore.ErrClosed)
}

func TestLivingInstancesAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	a := open(t, disk.OS(), dir)
	dead := filepath.Join(dir, ".strandline-tmp", "dead")
	require.NoError(t, os.MkdirAll(dead, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dead, "1"), []byte("half"), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "left/over/by"), 0o755))
	require.NoError(t, putOne(a, "kept/1"))
	b := open(t, disk.OS(), dir)
	require.NoDirExists(t, dead)
	require.NoDirExists(t, filepath.Join(dir, "left"))
	for i, s := range []objstore.Store{a, b} {
		require.NoError(t, putOne(s, fmt.Sprintf("from/%d", i)))
	}
	keys := 0
	for _, err := range b.List(t.Context(), "", "") {
		require.NoError(t, err)
		keys++
	}
	require.Equal(t, 3, keys)
}
