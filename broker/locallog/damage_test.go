package locallog

import (
	"bytes"
	"errors"
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// walk reads a damaged log to its end, from every offset that a reader would be
// at, over what cannot be read: it counts the batches whose bytes were right, and
// those that came with a wrong checksum, as only their readers can tell.
func walk(t *testing.T, l *Log, name string) (right, wrong, refused int) {
	t.Helper()
	steps := 0
	for from := cluster.Offset(0); from < l.EndOffset(); {
		steps++
		require.Less(t, steps, 1000, "reading goes on for ever")
		s, err := l.Read(from, l.EndOffset(), 100, true)
		if err != nil {
			var corrupt *segment.CorruptError
			require.ErrorAs(t, err, &corrupt)
			require.Equal(t, name, corrupt.File)
			refused++
			from++
			continue
		}
		require.Greater(t, s.NextOffset, from, "a read makes progress")
		var data []byte
		for _, r := range s.Regions {
			p := make([]byte, r.Bytes)
			n, _ := r.ReadAt(p, 0)
			data = append(data, p[:n]...)
		}
		from = s.NextOffset
		s.Release()
		for len(data) > 0 {
			b, rest, err := recordbatch.First(data)
			if err != nil || b.Verify() != nil {
				wrong++
			} else {
				right++
			}
			if err != nil {
				break
			}
			data = rest
		}
	}
	return right, wrong, refused
}

// TestEveryDamagedByteOfASealedSegment: with the log stopped in order and one bit
// of any byte of a sealed segment wrong, the log opens, reading ends, what cannot
// be read is named, and the rest is read. A wrong bit under a batch's checksum is
// its reader's to find, since a fetch sends files as they are; a deep dump,
// recovery and the copy to the tier compare checksums too.
func TestEveryDamagedByteOfASealedSegment(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	cfg.Settings.SegmentBytes = 300
	l := openLog(t, cfg)
	batches := fill(t, l, 16)
	sealed := l.Segments()[1]
	require.NoError(t, l.Close(true))
	cfg.CleanStop = true
	name := path.Join(testDir, segment.Name(sealed.Base, segment.LogSuffix))
	whole, err := disk.ReadFile(fs, name)
	require.NoError(t, err)
	quiet := 0
	for i := range whole {
		bad := bytes.Clone(whole)
		bad[i] ^= 1 << (i % 8)
		one := cfg
		one.FS = fs.Kill()
		require.NoError(t, disk.WriteFileUnsynced(one.FS, name, bad))
		l, err := Open(one)
		if err != nil {
			var corrupt *segment.CorruptError
			require.True(t, errors.As(err, &corrupt), "byte %d: %v", i, err)
			require.Equal(t, name, corrupt.File)
			continue
		}
		right, wrong, refused := walk(t, l, name)
		require.GreaterOrEqual(t, right, len(batches)-5, "byte %d: what lies elsewhere is read", i)
		if wrong+refused == 0 {
			quiet++
			require.Len(t, batches, right, "byte %d", i)
		}
		require.NoError(t, l.Err())
		require.NoError(t, l.Close(false))
	}
	// The base offset's and the leader epoch's bytes are under no checksum.
	t.Logf("%d of %d damaged bytes were not seen by a reader of checksums", quiet, len(whole))
}

// TestEveryDamagedByteOfAnIndex: an index is made anew or does no harm.
func TestEveryDamagedByteOfAnIndex(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	l := openLog(t, cfg)
	want := fill(t, l, 200)
	sealed := l.Segments()[1]
	require.NoError(t, l.Close(true))
	cfg.CleanStop = true
	for _, suffix := range []string{segment.IndexSuffix, segment.TimeIndexSuffix} {
		name := path.Join(testDir, segment.Name(sealed.Base, suffix))
		whole, err := disk.ReadFile(fs, name)
		require.NoError(t, err)
		require.NotEmpty(t, whole)
		for i := range 2 * len(whole) {
			bad := bytes.Clone(whole)
			if i < len(whole) {
				bad[i] ^= 1 << (i % 8)
			} else {
				bad = bad[:i-len(whole)]
			}
			one := cfg
			one.FS = fs.Kill()
			require.NoError(t, disk.WriteFileUnsynced(one.FS, name, bad))
			l := openLog(t, one)
			requireBatches(t, want, readAll(t, l, 0, 1000))
			for o := sealed.Base; o < sealed.Next; o++ {
				s, err := l.Read(o, l.EndOffset(), 1, true)
				require.NoError(t, err)
				got := contents(t, s)
				require.True(t, got[0].BaseOffset() <= o && o < got[0].NextOffset(), "%s byte %d: offset %d", suffix, i, o)
			}
			require.NoError(t, l.Close(true))
		}
	}
}
