package locallog

import (
	"bytes"
	"errors"
	"log/slog"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/producerstate"
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

// TestArchiveOfASegmentWithADamagedIndex: damage in the middle of an index, which
// opening does not see, is found by whoever needs the index, who makes it anew;
// after an orderly stop the file is whole again. Where the log is damaged too, that
// is the error.
func TestArchiveOfASegmentWithADamagedIndex(t *testing.T) {
	for _, suffix := range []string{segment.IndexSuffix, segment.TimeIndexSuffix} {
		t.Run(suffix, func(t *testing.T) {
			fs := disk.NewCrash(1)
			cfg := config(fs)
			cfg.Settings.SegmentBytes = 100_000
			l := openLog(t, cfg)
			want := fill(t, l, 3000)
			sealed := l.Segments()[0]
			require.True(t, sealed.Sealed)
			require.NoError(t, l.Close(true))
			cfg.CleanStop = true
			name := path.Join(testDir, segment.Name(sealed.Base, suffix))
			data, err := disk.ReadFile(fs, name)
			require.NoError(t, err)
			width := map[string]int{segment.IndexSuffix: segment.OffsetEntryBytes, segment.TimeIndexSuffix: segment.TimeEntryBytes}[suffix]
			require.Greater(t, len(data), 2*width)
			for i := range width - 1 {
				data[i] ^= 0x55 // the first entry points far away, or back
			}
			require.NoError(t, disk.WriteFileUnsynced(fs, name, data))
			bases := map[cluster.Offset]cluster.Offset{} // of batches, by their last offset
			for _, b := range want {
				bases[b.LastOffset()] = b.BaseOffset()
			}
			requireIndexes := func(v *SealedView) {
				t.Helper()
				require.NotEmpty(t, v.OffsetIndex)
				require.NotEmpty(t, v.TimeIndex)
				for _, e := range v.OffsetIndex {
					at, err := l.FindBatch(e.Offset)
					require.NoError(t, err)
					require.Equal(t, at.Position, e.Position)
					require.Equal(t, e.Offset, at.Next-1)
				}
				for _, e := range v.TimeIndex {
					require.Contains(t, bases, e.Offset)
				}
			}

			var warned bytes.Buffer
			cfg.Logger = slog.New(slog.NewTextHandler(&warned, nil))
			l = openLog(t, cfg)
			require.Empty(t, warned.String(), "opening does not see it")
			v, err := l.Sealed(sealed.Base)
			require.NoError(t, err)
			requireIndexes(v)
			v.Release()
			require.Equal(t, 1, strings.Count(warned.String(), "made anew"))
			require.NoError(t, l.Close(true))

			warned.Reset()
			l = openLog(t, cfg)
			v, err = l.Sealed(sealed.Base)
			require.NoError(t, err)
			requireIndexes(v)
			v.Release()
			require.Empty(t, warned.String(), "it was saved")
			require.NoError(t, l.Close(true))

			require.NoError(t, disk.WriteFileUnsynced(fs, name, data))
			logName := path.Join(testDir, segment.Name(sealed.Base, segment.LogSuffix))
			log, err := disk.ReadFile(fs, logName)
			require.NoError(t, err)
			log[len(want[0])+16] = 9 // the second batch's magic
			require.NoError(t, disk.WriteFileUnsynced(fs, logName, log))
			l = openLog(t, cfg)
			_, err = l.Sealed(sealed.Base)
			var corrupt *segment.CorruptError
			require.ErrorAs(t, err, &corrupt)
			require.Equal(t, logName, corrupt.File)
			require.EqualValues(t, len(want[0]), corrupt.Position)
			require.NoError(t, l.Err())
			require.NoError(t, l.Close(false))
		})
	}
}

// TestLookupsMakeADamagedIndexAnew: once, and not at each lookup.
func TestLookupsMakeADamagedIndexAnew(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	cfg.Settings.SegmentBytes = 100_000
	l := openLog(t, cfg)
	fill(t, l, 3000)
	sealed := l.Segments()[0]
	require.NoError(t, l.Close(true))
	cfg.CleanStop = true
	name := path.Join(testDir, segment.Name(sealed.Base, segment.IndexSuffix))
	data, err := disk.ReadFile(fs, name)
	require.NoError(t, err)
	for i := 7; i < len(data)-segment.OffsetEntryBytes; i += segment.OffsetEntryBytes {
		data[i]++ // each position but the last
	}
	require.NoError(t, disk.WriteFileUnsynced(fs, name, data))
	var warned bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&warned, nil))
	l = openLog(t, cfg)
	for o := sealed.Base; o < sealed.Next; o += 7 {
		s, err := l.Read(o, l.EndOffset(), 1, true)
		require.NoError(t, err)
		got := contents(t, s)
		require.True(t, got[0].BaseOffset() <= o && o < got[0].NextOffset(), "offset %d", o)
	}
	require.Equal(t, 1, strings.Count(warned.String(), "made anew"))
	require.NoError(t, l.Close(false))
}

// TestTransactionIndexesThatAreWrong: a transaction index that is damaged where
// opening does not look is made anew by whoever reads it; one that is readable and
// wrong, or gone, by whoever takes it elsewhere. After an orderly stop the file is
// what it was.
func TestTransactionIndexesThatAreWrong(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	l := openLog(t, cfg)
	someTransactions(t, l)
	want, err := l.AbortedTxns(0, l.EndOffset())
	require.NoError(t, err)
	var sealed []SegmentInfo // those with aborted transactions
	files := map[cluster.Offset][]byte{}
	segments := l.Segments()
	require.NoError(t, l.Close(true))
	cfg.CleanStop = true
	name := func(base cluster.Offset) string {
		return path.Join(testDir, segment.Name(base, segment.TxnIndexSuffix))
	}
	for _, s := range segments[:len(segments)-1] {
		if data, err := disk.ReadFile(fs, name(s.Base)); err == nil {
			sealed, files[s.Base] = append(sealed, s), data
		}
	}
	require.Greater(t, len(sealed), 2)
	spanning := 0 // those that end after the segment in which they begin
	for _, s := range segments {
		one := cfg
		one.FS = fs.Kill()
		l := openLog(t, one)
		got, err := l.CheckedAbortedTxns(s.Base, s.Next)
		require.NoError(t, err)
		overlap := slices.DeleteFunc(slices.Clone(want), func(a producerstate.AbortedTxn) bool { return a.Last < s.Base || a.First >= s.Next })
		require.Equal(t, overlap, got, "segment %d", s.Base)
		for _, a := range overlap {
			if a.Last >= s.Next {
				spanning++
			}
		}
		require.NoError(t, l.Close(true))
	}
	require.Positive(t, spanning)
	damaged := func(t *testing.T, change func(data []byte) []byte) (*Log, disk.FS, SegmentInfo) {
		s := sealed[1]
		one := cfg
		one.FS = fs.Kill()
		if data := change(bytes.Clone(files[s.Base])); data != nil {
			require.NoError(t, disk.WriteFileUnsynced(one.FS, name(s.Base), data))
		} else {
			require.NoError(t, one.FS.Remove(name(s.Base)))
		}
		return openLog(t, one), one.FS, s
	}
	whole := func(t *testing.T, l *Log, on disk.FS, s SegmentInfo) {
		for range 2 {
			got, err := l.CheckedAbortedTxns(0, l.EndOffset())
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		got, err := l.AbortedTxns(s.Base, s.Base+1)
		require.NoError(t, err)
		for _, w := range want {
			require.Equal(t, w.Last >= s.Base && w.First <= s.Base, slices.Contains(got, w))
		}
		require.NoError(t, l.Close(true))
		data, err := disk.ReadFile(on, name(s.Base))
		require.NoError(t, err)
		require.Equal(t, files[s.Base], data)
	}
	for i := range files[sealed[1].Base] {
		l, on, s := damaged(t, func(data []byte) []byte { data[i] ^= 1 << (i % 8); return data })
		if _, err := segment.ParseTxnIndex(mustRead(t, on, name(s.Base)), ""); err != nil {
			got, err := l.AbortedTxns(0, l.EndOffset())
			require.NoError(t, err, "byte %d", i)
			require.Equal(t, want, got, "byte %d", i)
		}
		whole(t, l, on, s)
	}
	for _, change := range []func(data []byte) []byte{
		func([]byte) []byte { return nil },
		func([]byte) []byte { return []byte{} },
		func(data []byte) []byte { return data[segment.TxnEntryBytes:] },
		func(data []byte) []byte { return append(data, files[sealed[2].Base]...) },
	} {
		l, on, s := damaged(t, change)
		whole(t, l, on, s)
	}

	// With a log that is damaged too, that is the error.
	l, on, s := damaged(t, func(data []byte) []byte { data[0] ^= 1; return data })
	log := path.Join(testDir, segment.Name(s.Base, segment.LogSuffix))
	data := mustRead(t, on, log)
	data[s.Bytes/2] ^= 1
	require.NoError(t, disk.WriteFileUnsynced(on, log, data))
	_, err = l.AbortedTxns(s.Base, s.Next)
	var corrupt *segment.CorruptError
	require.ErrorAs(t, err, &corrupt)
}

func mustRead(t *testing.T, fs disk.FS, name string) []byte {
	t.Helper()
	data, err := disk.ReadFile(fs, name)
	require.NoError(t, err)
	return data
}
