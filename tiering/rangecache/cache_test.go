package rangecache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testDir   = "/cache"
	chunk     = 16 << 10
	testLimit = MinLimitBytes
)

// object is a Source over bytes that a function gives.
type object struct {
	id      cluster.SegmentID
	opens   atomic.Int64
	opened  func(position, bytes int64) error     // before each open; may be nil
	body    func(position int64, b []byte) []byte // changes what is served; may be nil
	retries bool
}

var errBadBytes = errors.New("bytes do not match")

func newObject(n byte) *object {
	o := &object{}
	o.id[0] = n
	return o
}

const patternBytes = 1_000_003

var pattern = func() []byte {
	rng := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, patternBytes, 2*patternBytes)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return append(b, b...)
}()

// content returns n bytes of an object, to be changed at will.
func content(id cluster.SegmentID, position, n int64) []byte {
	at := (position + int64(id[0])*77) % patternBytes
	return bytes.Clone(pattern[at : at+n])
}

func (o *object) Open(ctx context.Context, position, n int64) (io.ReadCloser, error) {
	o.opens.Add(1)
	if o.opened != nil {
		if err := o.opened(position, n); err != nil {
			return nil, err
		}
	}
	b := content(o.id, position, n)
	if o.body != nil {
		b = o.body(position, b)
	}
	return io.NopCloser(bytes.NewReader(b)), ctx.Err()
}

func (o *object) Check(position int64, data []byte) error {
	if !bytes.Equal(data, content(o.id, position, int64(len(data)))) {
		return errBadBytes
	}
	return nil
}

func (o *object) Retriable(error) bool { return o.retries }

func (o *object) keys(first, n int) []Key {
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = Key{Object: o.id, Position: int64(first+i) * chunk, Bytes: chunk}
	}
	return keys
}

func open(t *testing.T, fs disk.FS) *Cache {
	t.Helper()
	c, err := Open(Config{FS: fs, Dir: testDir, LimitBytes: testLimit})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func requireContent(t *testing.T, o *object, k Key, r disk.Region) {
	t.Helper()
	got := make([]byte, r.Bytes)
	_, err := r.ReadAt(got, 0)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content(o.id, k.Position, k.Bytes), got), "content of %v", k)
}

// take acquires, compares and releases.
func take(t *testing.T, c *Cache, o *object, keys []Key) int {
	t.Helper()
	regions, err := c.Acquire(context.Background(), keys, o)
	require.NoError(t, err)
	for i, r := range regions {
		requireContent(t, o, keys[i], r)
		r.Release()
	}
	return len(regions)
}

// dirBytes is what a look at the directory finds: files and their names.
func dirBytes(fs disk.FS) int64 {
	names, err := fs.List(testDir)
	if err != nil {
		return 0
	}
	total := int64(blockBytes)
	for _, name := range names {
		if info, err := fs.Stat(path.Join(testDir, name)); err == nil {
			total += (info.Bytes+blockBytes-1)/blockBytes*blockBytes + int64(len(name))
		}
	}
	return total
}

func TestAdjacentRangesComeInOneReadAndStay(t *testing.T) {
	c, o := open(t, disk.NewCrash(1)), newObject(1)
	require.Equal(t, 3, take(t, c, o, o.keys(0, 3)))
	require.EqualValues(t, 1, o.opens.Load())
	require.Equal(t, 3, take(t, c, o, o.keys(0, 3)))
	require.EqualValues(t, 1, o.opens.Load(), "all cached")

	require.Equal(t, 1, take(t, c, o, o.keys(4, 1)))
	require.Equal(t, 4, take(t, c, o, o.keys(2, 4)), "one before, one after a cached range are missing")
	require.EqualValues(t, 4, o.opens.Load())
	s := c.Stats()
	require.EqualValues(t, 6, s.RangeCount)
	require.Equal(t, baseChargeBytes+6*chargeBytes(chunk), s.Bytes)
	require.Zero(t, s.PinnedBytes)
}

func TestOneFillForManyReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, disk.NewCrash(1)), newObject(1)
		gate := make(chan struct{})
		o.opened = func(int64, int64) error { <-gate; return nil }
		var readers sync.WaitGroup
		for range 8 {
			readers.Go(func() { take(t, c, o, o.keys(0, 2)) })
		}
		synctest.Wait()
		close(gate)
		readers.Wait()
		require.EqualValues(t, 1, o.opens.Load())
	})
}

func TestFillOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, disk.NewCrash(1)), newObject(1)
		o.opened = func(int64, int64) error { time.Sleep(1900 * time.Millisecond); return nil } // a slow store, on the fake clock
		polls := 0
		for {
			polls++
			ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
			regions, err := c.Acquire(ctx, o.keys(0, 2), o)
			cancel()
			if err == nil {
				require.Len(t, regions, 2)
				for _, r := range regions {
					r.Release()
				}
				break
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Equal(t, 4, polls)
		require.EqualValues(t, 1, o.opens.Load())
	})
}

func TestLimitIsNeverPassed(t *testing.T) {
	inner := disk.NewCrash(1)
	var worst atomic.Int64
	fs := disk.NewFault(inner, func(disk.Op) error {
		for n := dirBytes(inner); ; {
			old := worst.Load()
			if n <= old || worst.CompareAndSwap(old, n) {
				return nil
			}
		}
	})
	c := open(t, fs)
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(i)))
			for range 60 {
				o := newObject(byte(rng.IntN(3)))
				keys := o.keys(rng.IntN(20), 1+rng.IntN(4))
				if rng.IntN(4) == 0 {
					c.Prefetch(keys, o)
					continue
				}
				take(t, c, o, keys)
			}
		})
	}
	readers.Wait()
	require.LessOrEqual(t, worst.Load(), int64(testLimit))
	require.Greater(t, worst.Load(), int64(testLimit)*3/4, "the test fills the cache")
	require.Positive(t, c.Stats().Evictions)
}

func TestHeldRangeIsNotEvicted(t *testing.T) {
	fs := disk.NewCrash(1)
	c, o := open(t, fs), newObject(1)
	held, err := c.Acquire(context.Background(), o.keys(0, 2), o)
	require.NoError(t, err)
	take(t, c, o, o.keys(2, 40))
	for i := 2; i < 42; i++ {
		take(t, c, o, o.keys(i, 1))
	}
	for i, r := range held {
		requireContent(t, o, o.keys(i, 1)[0], r)
		r.Release()
	}
	before := o.opens.Load()
	take(t, c, o, o.keys(0, 2))
	require.Equal(t, before, o.opens.Load(), "still cached")
}

func TestWaitsForSpaceOnlyWithNothingInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, disk.NewCrash(1)), newObject(1)
		all, err := c.Acquire(context.Background(), o.keys(0, 100), o)
		require.NoError(t, err)
		require.Less(t, len(all), 100, "the rest found no room")
		require.Greater(t, len(all), 10)

		got := make(chan int)
		go func() { got <- take(t, c, o, o.keys(200, 2)) }()
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("there is no room")
		default:
		}
		// Who holds a range does not wait for one that waits for room.
		more, err := c.Acquire(context.Background(), append(o.keys(0, 1), o.keys(200, 1)...), o)
		require.NoError(t, err)
		require.Len(t, more, 1)
		more[0].Release()
		require.Equal(t, 5, c.Prefetch(o.keys(0, 5), o), "cached")

		all[3].Release()
		require.Equal(t, 1, <-got)
		for i, r := range all {
			if i != 3 {
				r.Release()
			}
		}
	})
}

func TestPrefetchedRangesOutliveReadOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := open(t, disk.NewCrash(1)), newObject(1)
		require.Equal(t, 4, c.Prefetch(o.keys(0, 4), o))
		synctest.Wait()
		for i := 100; i < 111; i++ {
			take(t, c, o, o.keys(i, 1))
		}
		before := o.opens.Load()
		take(t, c, o, o.keys(0, 4))
		require.Equal(t, before, o.opens.Load(), "prefetched and still there")

		// At most half of the cache is kept for readers to come,
		c.Prefetch(o.keys(300, 20), o)
		synctest.Wait()
		c.mu.Lock()
		require.LessOrEqual(t, c.freshBytes, int64(testLimit/2))
		require.Greater(t, c.freshBytes, int64(testLimit/3))
		c.mu.Unlock()
		// and not for ever.
		for i := 400; i < 440; i++ {
			take(t, c, o, o.keys(i, 1))
		}
		before = o.opens.Load()
		take(t, c, o, o.keys(300, 1))
		require.Equal(t, before+1, o.opens.Load())
	})
}

func TestBadBytesAreNeverVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := disk.NewCrash(1)
		c, o := open(t, fs), newObject(1)
		o.body = func(position int64, b []byte) []byte { b[chunk+5-position] ^= 1; return b }
		regions, err := c.Acquire(context.Background(), o.keys(0, 2), o)
		require.NoError(t, err)
		require.Len(t, regions, 1, "the second one is bad")
		regions[0].Release()
		o.body = func(_ int64, b []byte) []byte { b[5] ^= 1; return b }
		_, err = c.Acquire(context.Background(), o.keys(1, 1), o)
		require.ErrorIs(t, err, errBadBytes)
		require.Equal(t, baseChargeBytes+chargeBytes(chunk), c.Stats().Bytes)

		// A body cut short once is read on from where it broke off.
		o.retries, o.opens = true, atomic.Int64{}
		o.body = func(_ int64, b []byte) []byte {
			if o.opens.Load() == 1 {
				return b[:chunk+100]
			}
			return b
		}
		require.Equal(t, 3, take(t, c, o, o.keys(10, 3)))
		require.EqualValues(t, 2, o.opens.Load())

		o.body = func(_ int64, b []byte) []byte { return b[:100] }
		o.opens = atomic.Int64{}
		_, err = c.Acquire(context.Background(), o.keys(20, 3), o)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.EqualValues(t, 4, o.opens.Load(), "bounded")
	})
}

func TestRestartKeepsGoodFilesAndRefetchesBadOnes(t *testing.T) {
	fs, o := disk.NewCrash(1), newObject(1)
	c, err := Open(Config{FS: fs, Dir: testDir, LimitBytes: testLimit})
	require.NoError(t, err)
	take(t, c, o, o.keys(0, 6))
	require.NoError(t, c.Close())

	names, err := fs.List(testDir)
	require.NoError(t, err)
	files := names[1:] // .lock is first
	require.Len(t, files, 6)
	damage := func(name string, f func(disk.File) error) {
		file, err := fs.Open(path.Join(testDir, name))
		require.NoError(t, err)
		require.NoError(t, f(file))
		require.NoError(t, file.Close())
	}
	damage(files[0], func(f disk.File) error { return f.Truncate(100) })
	damage(files[1], func(f disk.File) error { _, err := f.WriteAt(make([]byte, 50), 70); return err })
	damage(files[2], func(f disk.File) error { _, err := f.WriteAt([]byte("junk"), chunk+4); return err })
	damage(files[3], func(f disk.File) error { return f.Truncate(chunk * 3) })
	require.NoError(t, disk.WriteFileUnsynced(fs, testDir+"/notes.txt", []byte("x")))
	require.NoError(t, fs.MkdirAll(testDir+"/sub/dir"))

	c, o.opens = open(t, fs), atomic.Int64{}
	require.EqualValues(t, 4, c.Stats().RangeCount, "two are of the wrong size")
	require.Equal(t, 6, take(t, c, o, o.keys(0, 6)))
	// 0 is missing; 1 and 2 are found bad one after the other; 3, which is
	// missing, comes with 2.
	require.EqualValues(t, 3, o.opens.Load())
	names, err = fs.List(testDir)
	require.NoError(t, err)
	require.Len(t, names, 7, "nothing foreign is left")
}

func TestRestartWithASmallerLimit(t *testing.T) {
	fs, o := disk.NewCrash(1), newObject(1)
	c, err := Open(Config{FS: fs, Dir: testDir, LimitBytes: 4 * testLimit})
	require.NoError(t, err)
	take(t, c, o, o.keys(0, 50))
	require.Greater(t, dirBytes(fs), int64(testLimit))
	require.NoError(t, c.Close())
	c = open(t, fs)
	require.LessOrEqual(t, dirBytes(fs), int64(testLimit))
	require.Greater(t, c.Stats().RangeCount, int64(10))
}

func TestDirectoryIsLocked(t *testing.T) {
	fs := disk.NewCrash(1)
	c := open(t, fs)
	_, err := Open(Config{FS: fs, Dir: testDir, LimitBytes: testLimit})
	require.ErrorIs(t, err, disk.ErrLocked)
	require.ErrorContains(t, err, testDir)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	_, err = c.Acquire(context.Background(), newObject(1).keys(0, 1), newObject(1))
	require.ErrorIs(t, err, ErrClosed)
}

func TestFilesThatVanishAreFetchedAgain(t *testing.T) {
	fs := disk.NewCrash(1)
	c, o := open(t, fs), newObject(1)
	take(t, c, o, o.keys(0, 3))
	require.NoError(t, fs.RemoveAll(testDir))
	require.Equal(t, 3, take(t, c, o, o.keys(0, 3)))
	require.Equal(t, baseChargeBytes+3*chargeBytes(chunk), c.Stats().Bytes)
}

func TestDiscardAndDrop(t *testing.T) {
	fs := disk.NewCrash(1)
	c, o, other := open(t, fs), newObject(1), newObject(2)
	take(t, c, other, other.keys(0, 1))
	held, err := c.Acquire(context.Background(), o.keys(0, 1), o)
	require.NoError(t, err)
	c.Discard(o.keys(0, 1)[0])
	c.Discard(o.keys(9, 1)[0])
	requireContent(t, o, o.keys(0, 1)[0], held[0])
	take(t, c, o, o.keys(0, 2)) // beside the one that is held
	require.Equal(t, baseChargeBytes+4*chargeBytes(chunk), c.Stats().Bytes)
	held[0].Release()
	require.Equal(t, baseChargeBytes+3*chargeBytes(chunk), c.Stats().Bytes)
	c.Drop(o.id)
	require.Equal(t, baseChargeBytes+chargeBytes(chunk), c.Stats().Bytes)
	names, err := fs.List(testDir)
	require.NoError(t, err)
	require.Len(t, names, 2)
}

func TestWhatCannotFitIsReadAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := disk.NewCrash(1)
		c, o := open(t, fs), newObject(1)
		large := []Key{{Object: o.id, Position: 0, Bytes: testLimit}, {Object: o.id, Position: testLimit, Bytes: 10}}
		_, err := c.Acquire(context.Background(), large, o)
		require.ErrorIs(t, err, ErrTooLarge)
		var all [][]disk.Region
		for range bypassLimit {
			regions, err := c.Bypass(context.Background(), large, o)
			require.NoError(t, err)
			requireContent(t, o, large[0], regions[0])
			requireContent(t, o, large[1], regions[1])
			all = append(all, regions)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = c.Bypass(ctx, large, o)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		for _, regions := range all {
			for _, r := range regions {
				r.Release()
			}
		}
		o.body = func(_ int64, b []byte) []byte { b[5] ^= 1; return b }
		for range bypassLimit + 1 {
			_, err = c.Bypass(context.Background(), large, o)
			require.ErrorIs(t, err, errBadBytes)
		}
	})
}

func TestDiskErrorsLeaveACacheThatWorks(t *testing.T) {
	for i := int64(0); ; i++ {
		inner := disk.NewCrash(1)
		fs := disk.NewFault(inner, disk.FailOnce(i))
		done := false
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			o := newObject(1)
			c, err := Open(Config{FS: fs, Dir: testDir, LimitBytes: testLimit})
			if err != nil {
				require.ErrorIs(t, err, disk.ErrInjected)
				return
			}
			defer func() { require.NoError(t, c.Close()) }()
			for first := 0; first < 24; first += 3 {
				keys := o.keys(first, 3)
				regions, err := c.Acquire(context.Background(), keys, o)
				if err != nil {
					require.ErrorIs(t, err, ErrStorage)
				}
				for j, r := range regions {
					buf := make([]byte, r.Bytes)
					if _, err := r.ReadAt(buf, 0); err != nil {
						require.ErrorIs(t, err, disk.ErrInjected)
					} else {
						require.True(t, bytes.Equal(content(o.id, keys[j].Position, keys[j].Bytes), buf))
					}
					r.Release()
				}
				require.LessOrEqual(t, dirBytes(inner), int64(testLimit))
			}
			done = fs.Calls() <= i
			fs.SetInjector(nil)
			take(t, c, o, o.keys(50, 3))
		})
		if done {
			require.Greater(t, i, int64(30))
			return
		}
		require.Less(t, i, int64(1000))
	}
}

func TestCloseEndsFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := Open(Config{FS: disk.NewCrash(1), Dir: testDir, LimitBytes: testLimit})
		require.NoError(t, err)
		o := &blocking{object: newObject(1)}
		got := make(chan error)
		go func() {
			_, err := c.Acquire(context.Background(), o.keys(0, 1), o)
			got <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-got, context.Canceled)
		require.Zero(t, c.Prefetch(o.keys(0, 1), o))
	})
}

// blocking is a store that hangs until the request is cancelled.
type blocking struct{ *object }

func (b *blocking) Open(ctx context.Context, _, _ int64) (io.ReadCloser, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestFileNames(t *testing.T) {
	k := Key{Object: cluster.NewSegmentID(), Position: 1 << 40, Bytes: 77}
	name := fileName(k, 9)
	got, serial, ok := parseFileName(name)
	require.True(t, ok)
	require.Equal(t, k, got)
	require.EqualValues(t, 9, serial)
	for _, bad := range []string{
		"", ".chunk", "x.chunk", name + ".chunk", name[:len(name)-1], "0" + name, ".lock",
		fileName(Key{Object: k.Object}, 1),
	} {
		_, _, ok := parseFileName(bad)
		require.False(t, ok, bad)
	}
}

func FuzzTrailer(f *testing.F) {
	k := Key{Position: 5, Bytes: 9}
	f.Add(encodeTrailer(k, 77))
	f.Fuzz(func(t *testing.T, b []byte) {
		crc, err := checkTrailer(b, k)
		if err != nil {
			require.ErrorIs(t, err, errBadChunkFile)
			return
		}
		require.Equal(t, encodeTrailer(k, crc), b)
	})
}
