package locallog

import (
	"bytes"
	"context"
	"log/slog"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// FE-07: stamps inside a batch; FE-09: nothing is new enough.
func TestTimestampsInsideABatch(t *testing.T) {
	l := openLog(t, config(disk.NewCrash(1)))
	_, ok, err := l.OffsetForTimestamp(0, l.EndOffset())
	require.NoError(t, err)
	require.False(t, ok, "an empty log")
	_, ok, err = l.MaxTimestamp(l.EndOffset())
	require.NoError(t, err)
	require.False(t, ok)
	for _, codec := range []recordbatch.Codec{recordbatch.None, recordbatch.Zstd} {
		b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: l.EndOffset(), Codec: codec, LeaderEpoch: 2})
		base := l.EndOffset()
		shift := 10 * int64(base)
		for _, ts := range []int64{2, 4, 6, 8} {
			b.Add(ts+shift, nil, []byte("v"))
		}
		_, err := l.Append(b.Build())
		require.NoError(t, err)
		for ts, want := range map[int64]cluster.Offset{1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 6: 2, 7: 3, 8: 3} {
			f, ok, err := l.OffsetForTimestamp(ts+shift, l.EndOffset())
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, base+want, f.Offset)
			require.Equal(t, 2*(int64(want)+1)+shift, f.Timestamp)
			require.Equal(t, cluster.LeaderEpoch(2), f.LeaderEpoch)
		}
		_, ok, err = l.OffsetForTimestamp(9+shift, l.EndOffset())
		require.NoError(t, err)
		require.False(t, ok)
		f, ok, err := l.MaxTimestamp(l.EndOffset())
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, Found{base + 3, 8 + shift, 2}, f)
	}
	f, ok, err := l.MaxTimestamp(5)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, cluster.Offset(3), f.Offset, "below the bound only")
	l.SetStartOffset(2)
	f, ok, err = l.OffsetForTimestamp(1, l.EndOffset())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, cluster.Offset(2), f.Offset, "not below the log start")
}

// RT-01: a stamp far in the future is its own segment's maximum, not a later
// one's, and the clock rolls the segment all the same.
func TestFutureTimestampStaysInItsSegment(t *testing.T) {
	cfg := config(disk.NewCrash(1))
	now := startTime
	cfg.Now = func() time.Time { return now }
	cfg.Settings.SegmentAge = time.Hour
	l := openLog(t, cfg)
	future := startTime.AddDate(10, 0, 0).UnixMilli()
	b := recordbatch.NewBuilder(recordbatch.Options{})
	b.Add(future, nil, []byte("v"))
	_, err := l.Append(b.Build())
	require.NoError(t, err)
	appendBatch(t, l, 1)
	now = now.Add(2 * time.Hour)
	rolled, err := l.RollIfDue(now)
	require.NoError(t, err)
	require.True(t, rolled)
	fill(t, l, 200)
	infos := l.Segments()
	require.Equal(t, future, infos[0].MaxTimestamp)
	for _, info := range infos[1:] {
		require.Less(t, info.MaxTimestamp, startTime.UnixMilli()+1000)
	}
	f, ok, err := l.MaxTimestamp(l.EndOffset())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Found{0, future, 0}, f)
}

func TestEpochsOutliveRestarts(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	l := openLog(t, cfg)
	var want []leaderepoch.Entry
	for e := cluster.LeaderEpoch(1); e <= 6; e++ {
		l.AssignEpoch(e)
		want = append(want, leaderepoch.Entry{Epoch: e, Start: l.EndOffset()})
		for range 10 {
			_, err := l.Append(batchOf(l.EndOffset(), 3, recordbatch.Options{LeaderEpoch: e}))
			require.NoError(t, err)
		}
	}
	require.Equal(t, want, l.Epochs().Entries())
	found, end, ok := l.EpochEnd(3)
	require.True(t, ok)
	require.Equal(t, want[3].Start, end)
	require.Equal(t, cluster.LeaderEpoch(3), found)

	killed := cfg
	killed.FS = fs.Kill()
	require.Equal(t, want, openLog(t, killed).Epochs().Entries(), "from the headers, after a kill")

	require.NoError(t, l.Flush(context.Background()))
	lost := cfg
	lost.FS, lost.RecoveryPoint = fs.Clone(nil), l.FlushedOffset()
	require.Equal(t, want, openLog(t, lost).Epochs().Entries(), "from the file, where only the last segment is scanned")

	l.AssignEpoch(9)
	require.NoError(t, l.Close(true))
	cfg.CleanStop = true
	l = openLog(t, cfg)
	require.Equal(t, want, l.Epochs().Entries(), "an epoch without a batch is not kept: whoever leads enters its own")
	require.NoError(t, l.Close(true))

	require.NoError(t, fs.Remove(path.Join(testDir, segment.EpochsName)))
	require.Equal(t, want, openLog(t, cfg).Epochs().Entries(), "a lost file is made from the headers")
}

// Epochs are forgotten below the log start, while the segment that it lies in
// still holds batches of them: indexes of such a segment are made anew all the
// same, and so is a log whose recovery point is lost.
func TestIndexesAreMadeAnewBelowTheEpochsThatAreKept(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, fs disk.FS, cfg *Config, base cluster.Offset){
		"index": func(t *testing.T, fs disk.FS, _ *Config, base cluster.Offset) {
			require.NoError(t, fs.Remove(path.Join(testDir, segment.Name(base, segment.IndexSuffix))))
		},
		"recovery point": func(_ *testing.T, _ disk.FS, cfg *Config, _ cluster.Offset) {
			cfg.CleanStop, cfg.RecoveryPoint = false, 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := disk.NewCrash(1)
			cfg := config(fs)
			cfg.Settings.SegmentBytes = 1 << 20
			l := openLog(t, cfg)
			for _, e := range []cluster.LeaderEpoch{0, 2, 4} {
				l.AssignEpoch(e)
				for range 10 {
					_, err := l.Append(batchOf(l.EndOffset(), 3, recordbatch.Options{LeaderEpoch: e}))
					require.NoError(t, err)
				}
			}
			l.SetStartOffset(45)
			require.NoError(t, l.Flush(context.Background()))
			want := []leaderepoch.Entry{{Epoch: 2, Start: 45}, {Epoch: 4, Start: 60}}
			require.Equal(t, want, l.Epochs().Entries())
			base, end := l.Segments()[0].Base, l.EndOffset()
			require.Zero(t, base)
			require.NoError(t, l.Close(true))

			cfg.CleanStop, cfg.LogStart, cfg.RecoveryPoint = true, 45, end
			damage(t, fs, &cfg, base)
			l = openLog(t, cfg)
			require.Equal(t, end, l.EndOffset())
			require.Equal(t, cluster.Offset(45), l.StartOffset())
			require.Equal(t, want, l.Epochs().Entries())
			require.Len(t, readAll(t, l, 45, 1<<20), 15)
			require.NoError(t, l.Close(true))
		})
	}
}

func TestReset(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	cfg.RemoteBelow, cfg.LogStart = true, 5
	l := openLog(t, cfg)
	require.Equal(t, cluster.Offset(5), l.EndOffset())
	fill(t, l, 200)
	m := producerstate.New(producerstate.Config{})
	_, _, err := m.Update(batchOf(10, 1, recordbatch.Options{Producer: &recordbatch.Producer{ID: 77}}), startTime)
	require.NoError(t, err)
	epochs := []leaderepoch.Entry{{Epoch: 1, Start: 5}, {Epoch: 4, Start: 900}}
	require.NoError(t, l.Reset(1000, epochs, m.Snapshot()))
	check := func(l *Log) {
		require.Equal(t, cluster.Offset(5), l.StartOffset())
		require.Equal(t, cluster.Offset(1000), l.LocalStartOffset())
		require.Equal(t, cluster.Offset(1000), l.EndOffset())
		require.Equal(t, cluster.Offset(1000), l.FlushedOffset())
		require.Equal(t, epochs, l.Epochs().Entries())
		require.Equal(t, cluster.ProducerID(77), l.Producers().Entries()[0].ProducerID)
		_, err := l.Read(100, 1000, 1, true)
		require.ErrorIs(t, err, ErrNotLocal)
	}
	check(l)
	after := cfg
	after.FS = fs.Clone(nil)
	check(openLog(t, after))
	appendBatch(t, l, 3)
	require.ErrorIs(t, l.Reset(2000, nil, []byte("no snapshot")), producerstate.ErrCorruptSnapshot)
	require.Equal(t, cluster.Offset(1003), l.EndOffset(), "refused before anything changed")
	require.NoError(t, l.TruncateTo(700))
	require.Equal(t, cluster.Offset(700), l.EndOffset())
	require.Equal(t, epochs[:1], l.Epochs().Entries())
}

func TestDamagedBatch(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	l := openLog(t, cfg)
	fill(t, l, 300)
	require.NoError(t, l.Flush(context.Background()))
	infos := l.Segments()
	in := infos[1]
	name := path.Join(testDir, segment.Name(in.Base, segment.LogSuffix))
	b, err := l.FindBatch(in.Base + 9)
	require.NoError(t, err)
	data, err := disk.ReadFile(fs, name)
	require.NoError(t, err)
	damaged := bytes.Clone(data)
	damaged[b.Position+16]++ // the magic, so that a header tells
	require.NoError(t, disk.WriteFileUnsynced(fs, name, damaged))
	require.NoError(t, l.Close(false))

	cfg.RecoveryPoint = infos[len(infos)-1].Base
	l = openLog(t, cfg)
	_, err = l.Read(in.Base+9, l.EndOffset(), 1, true)
	var corrupt *segment.CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, name, corrupt.File)
	require.Equal(t, b.Position, corrupt.Position)
	require.NoError(t, l.Err(), "reading elsewhere goes on")
	s, err := l.Read(0, l.EndOffset(), 100, true)
	require.NoError(t, err)
	s.Release()
	require.NoError(t, l.Close(false))

	// Unsynced it is torn, and the log ends before it; synced it is corrupt.
	cfg.RecoveryPoint = in.Base
	torn := cfg
	torn.FS = fs.Kill()
	require.Equal(t, b.Base, openLog(t, torn).EndOffset())
	cfg.RecoveryPoint = in.Next - 1
	_, err = Open(cfg)
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, b.Position, corrupt.Position)
}

func TestMissingIndexesAreMadeAgain(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	l := openLog(t, cfg)
	want := fill(t, l, 400)
	require.NoError(t, l.Close(true))
	names, err := fs.List(testDir)
	require.NoError(t, err)
	files := map[string][]byte{}
	for i, name := range names {
		if _, suffix, _ := segment.ParseName(name); suffix == segment.IndexSuffix || suffix == segment.TimeIndexSuffix {
			full := path.Join(testDir, name)
			files[full], err = disk.ReadFile(fs, full)
			require.NoError(t, err)
			if i%2 == 0 {
				require.NoError(t, fs.Remove(full))
			}
		}
	}
	require.NoError(t, disk.WriteFileUnsynced(fs, path.Join(testDir, "00000000000000000007.index"), nil))
	require.NoError(t, disk.WriteFileUnsynced(fs, path.Join(testDir, "00000000000000000007.log.deleted"), nil))
	cfg.CleanStop = true
	l = openLog(t, cfg)
	requireBatches(t, want, readAll(t, l, 0, 1000))
	require.NoError(t, l.Close(true))
	for full, data := range files {
		got, err := disk.ReadFile(fs, full)
		require.NoError(t, err)
		require.Equal(t, data, got, full)
	}
	names, err = fs.List(testDir)
	require.NoError(t, err)
	require.NotContains(t, names, "00000000000000000007.index")
	require.NotContains(t, names, "00000000000000000007.log.deleted")
}

// LO-06: low retention and short segments, with restarts: the bounds stay in order.
func TestShortSegmentsAndRetentionKeepBoundsInOrder(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	now := startTime
	cfg.Now = func() time.Time { return now }
	cfg.Settings.SegmentAge = 5 * time.Millisecond
	l := openLog(t, cfg)
	at := cluster.Offset(0)
	for i := range 300 {
		appendBatch(t, l, 2)
		now = now.Add(2 * time.Millisecond)
		_, err := l.RollIfDue(now)
		require.NoError(t, err)
		infos := l.Segments()
		_, _, err = l.DeleteSealedBelow(infos[max(len(infos)-3, 0)].Base)
		require.NoError(t, err)
		_, err = l.RunDeferred(now.Add(time.Hour))
		require.NoError(t, err)
		require.LessOrEqual(t, l.StartOffset(), l.LocalStartOffset())
		require.LessOrEqual(t, l.LocalStartOffset(), l.FlushedOffset()+cluster.Offset(1000))
		if i == 100 || i == 200 {
			require.NoError(t, l.Close(i == 100))
			cfg.CleanStop, cfg.LogStart = i == 100, l.StartOffset()
			l = openLog(t, cfg)
		}
		if at < l.StartOffset() {
			_, err := l.Read(at, l.EndOffset(), 500, true)
			require.ErrorIs(t, err, ErrOffsetOutOfRange)
			at = l.StartOffset()
		}
		s, err := l.Read(at, l.EndOffset(), 500, true)
		require.NoError(t, err)
		at = s.NextOffset
		contents(t, s)
	}
}

// TestWrongEpochFile: the epoch file is a cache. One with any digit wrong keeps no
// log from being opened, takes no batch, and is right again after a scan.
func TestWrongEpochFile(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	l := openLog(t, cfg)
	var want []leaderepoch.Entry
	for _, e := range []cluster.LeaderEpoch{11, 12, 14, 15, 17} {
		l.AssignEpoch(e)
		want = append(want, leaderepoch.Entry{Epoch: e, Start: l.EndOffset()})
		for range 20 {
			_, err := l.Append(batchOf(l.EndOffset(), 3, recordbatch.Options{LeaderEpoch: e}))
			require.NoError(t, err)
		}
	}
	require.NoError(t, l.Flush(context.Background()))
	end, bases := l.EndOffset(), l.Segments()
	require.Greater(t, len(bases), 4)
	batches := readAll(t, l, 0, 1000)
	require.NoError(t, l.Close(true))
	name := path.Join(testDir, segment.EpochsName)
	file, err := disk.ReadFile(fs, name)
	require.NoError(t, err)
	for stop, scan := range map[string]func(t *testing.T, one *Config){
		"unclean, all scanned":      func(_ *testing.T, one *Config) { one.CleanStop, one.RecoveryPoint = false, 0 },
		"unclean, the last scanned": func(_ *testing.T, one *Config) { one.CleanStop, one.RecoveryPoint = false, end },
		"clean, index of the first lost": func(t *testing.T, one *Config) {
			require.NoError(t, one.FS.Remove(path.Join(testDir, segment.Name(bases[0].Base, segment.IndexSuffix))))
		},
		"clean, index of the third lost": func(t *testing.T, one *Config) {
			require.NoError(t, one.FS.Remove(path.Join(testDir, segment.Name(bases[2].Base, segment.IndexSuffix))))
		},
	} {
		t.Run(stop, func(t *testing.T) {
			corrected := 0
			for i := range file {
				for _, digit := range "0569" {
					if file[i] < '0' || file[i] > '9' || file[i] == byte(digit) {
						continue
					}
					bad := bytes.Clone(file)
					bad[i] = byte(digit)
					one := cfg
					one.FS, one.CleanStop, one.RecoveryPoint = fs.Kill(), true, end
					require.NoError(t, disk.WriteFileUnsynced(one.FS, name, bad))
					scan(t, &one)
					var warned bytes.Buffer
					one.Logger = slog.New(slog.NewTextHandler(&warned, nil))
					l := openLog(t, one)
					require.Equal(t, end, l.EndOffset(), "%q", bad)
					requireBatches(t, batches, readAll(t, l, 0, 1000))
					if strings.Contains(warned.String(), "leader epochs") {
						corrected++
						require.Equal(t, want, l.Epochs().Entries(), "%q", bad)
					}
					if stop == "unclean, all scanned" {
						require.Equal(t, want, l.Epochs().Entries(), "%q", bad)
					}
					require.NoError(t, l.Close(true))
				}
			}
			require.NotZero(t, corrected)
			t.Log("corrected", corrected)
		})
	}
}
