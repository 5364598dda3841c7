package remotelog_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/partition"
	"strandline/metadata/catalog"
	"strandline/metadata/disk"
	"strandline/tiering/archive/tiertest"
	"strandline/tiering/objstore"
	"strandline/tiering/remotelog"
)

// damaged replaces an object by a damaged copy of itself.
func (w *world) damaged(seg catalog.Segment, whole, bad []byte) (restore func()) {
	w.replace(seg.Key, bad)
	return func() { w.replace(seg.Key, whole) }
}

func (w *world) replace(key string, b []byte) {
	_, err := w.store.Put(context.Background(), key, objstore.NewBytesBody(b), objstore.PutOptions{})
	require.NoError(w.t, err)
}

// whole is the content of an object.
func (w *world) whole(seg catalog.Segment) []byte {
	r, err := w.store.Store.Get(context.Background(), seg.Key, 0, -1)
	require.NoError(w.t, err)
	b, err := io.ReadAll(r)
	require.NoError(w.t, err)
	require.NoError(w.t, r.Close())
	return b
}

// requireRefused reads with an object damaged: what is served is right, nothing
// else is, the object is named, and once it is whole again so is the log.
func (w *world) requireRefused(r *tiertest.Replica, seg catalog.Segment, whole, bad []byte, what string, at int) {
	w.t.Helper()
	restore := w.damaged(seg, whole, bad)
	w.wipe()
	s, err := w.read(r, seg.Base, 1<<20)
	require.Error(w.t, err, "%s %d: %d bytes served", what, at, s.Bytes)
	require.ErrorIs(w.t, err, partition.ErrRemote, "%s %d", what, at)
	require.ErrorContains(w.t, err, seg.Key, "%s %d", what, at)
	require.Len(w.t, w.log.BadObjects(), 1, "%s %d", what, at)
	next, err := w.read(r, seg.End, 1<<20)
	require.NoError(w.t, err, "%s %d: the next segment is none of it", what, at)
	require.True(w.t, bytes.HasPrefix(local(r, seg.End), contents(w.t, next)))
	restore()
	time.Sleep(remotelog.DefaultBadFor + time.Second) // on the fake clock
	require.True(w.t, bytes.Equal(local(r, seg.Base), w.readAll(r, seg.Base, 1<<20)), "%s %d: whole again", what, at)
	require.Empty(w.t, w.log.BadObjects())
}

// TestEveryDamagedByteIsFound: one bit of any byte of a small object, a cut at
// any length, and random bytes of a large one.
func TestEveryDamagedByteIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 16<<20)
		small := w.replica(0, 2, 2, 16)
		seg := w.live(small)[0]
		whole := w.whole(seg)
		for i := range whole {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << (i % 8)
			w.requireRefused(small, seg, whole, bad, "byte", i)
		}
		for n := range whole {
			w.requireRefused(small, seg, whole, whole[:n], "cut to", n)
		}
		large := w.replica(1, 2, 40, 8000)
		seg = w.live(large)[0]
		whole = w.whole(seg)
		rng := rand.New(rand.NewPCG(7, 7))
		for range 10 {
			bad, at := bytes.Clone(whole), rng.IntN(len(whole))
			bad[at] ^= 0x10
			restore := w.damaged(seg, whole, bad)
			w.wipe()
			// All of it is asked for, so that the damage is met somewhere.
			var err error
			for o := seg.Base; o < seg.End && err == nil; {
				var s partition.RemoteSlice
				if s, err = w.read(large, o, 1<<20); err == nil {
					o = s.NextOffset
					require.True(t, bytes.Contains(local(large, seg.Base), contents(t, s)))
				}
			}
			require.ErrorContains(t, err, seg.Key, "byte %d", at)
			restore()
		}
	})
}

// TestEveryDamagedCachedByteIsFetchedAnew: whatever byte of the cache's files is
// damaged while the broker is down, or wherever they are cut.
func TestEveryDamagedCachedByteIsFetchedAnew(t *testing.T) {
	w := newWorld(t, 16<<20)
	r := w.replica(0, 1, 2, 16)
	want := local(r, 0)
	require.True(t, bytes.Equal(want, w.readAll(r, 0, 1<<20)))
	names, err := w.fs.List(cacheDir)
	require.NoError(t, err)
	files := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".chunk") {
			continue
		}
		files++
		whole, err := disk.ReadFile(w.fs, path.Join(cacheDir, name))
		require.NoError(t, err)
		for i := range 2 * len(whole) {
			bad := bytes.Clone(whole)
			if i < len(whole) {
				bad[i] ^= 1 << (i % 8)
			} else {
				bad = bad[:i-len(whole)]
			}
			w.close()
			require.NoError(t, disk.WriteFileUnsynced(w.fs, path.Join(cacheDir, name), bad))
			w.open(16 << 20)
			require.True(t, bytes.Equal(want, w.readAll(r, 0, 1<<20)), "%s, damage %d", name, i)
			require.Empty(t, w.log.BadObjects())
		}
	}
	require.Equal(t, 2, files)
}
