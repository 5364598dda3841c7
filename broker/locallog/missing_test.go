package locallog

import (
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// damaged opens a log again that was closed in order after several segments, its
// folder changed in between.
func damaged(t *testing.T, change func(dir string, bases []cluster.Offset), set func(cfg *Config, end cluster.Offset)) (*Log, cluster.Offset, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "topic-0")
	cfg := config(disk.OS())
	cfg.Dir = dir
	l := openLog(t, cfg)
	fill(t, l, 400)
	end := l.EndOffset()
	var bases []cluster.Offset
	for _, s := range l.Segments() {
		bases = append(bases, s.Base)
	}
	require.Greater(t, len(bases), 4)
	require.NoError(t, l.Close(true))
	change(dir, bases)
	cfg.CleanStop, cfg.RecoveryPoint = true, end
	if set != nil {
		set(&cfg, end)
	}
	again, err := Open(cfg)
	if err == nil {
		t.Cleanup(func() { require.NoError(t, again.Close(false)) })
	}
	return again, end, err
}

func logFile(dir string, base cluster.Offset) string {
	return path.Join(dir, segment.Name(base, segment.LogSuffix))
}

// TestLogThatLostItsEnd: what was durable and is gone is said, however the stop
// was, and its offsets are not given to other records.
func TestLogThatLostItsEnd(t *testing.T) {
	for name, change := range map[string]func(dir string, bases []cluster.Offset){
		"last segment removed": func(dir string, bases []cluster.Offset) {
			require.NoError(t, os.Remove(logFile(dir, bases[len(bases)-1])))
		},
		"last segment emptied": func(dir string, bases []cluster.Offset) {
			require.NoError(t, os.Truncate(logFile(dir, bases[len(bases)-1]), 0))
		},
		"every segment removed": func(dir string, bases []cluster.Offset) {
			for _, b := range bases {
				require.NoError(t, os.Remove(logFile(dir, b)))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, clean := range []bool{true, false} {
				_, _, err := damaged(t, change, func(cfg *Config, _ cluster.Offset) { cfg.CleanStop = clean })
				require.ErrorIs(t, err, errShort)
				require.ErrorAs(t, err, new(*segment.CorruptError), "of the replica alone, not of its disk")
			}
			_, _, err := damaged(t, change, func(cfg *Config, _ cluster.Offset) { cfg.RecoveryPoint = 0 })
			require.NoError(t, err, "given up by hand")
			_, _, err = damaged(t, change, func(cfg *Config, end cluster.Offset) { cfg.RemoteEnd = end })
			require.NoError(t, err, "the tier has it")
			l, end, err := damaged(t, change, func(cfg *Config, end cluster.Offset) { cfg.LogStart = end })
			require.NoError(t, err, "deleted anyway")
			require.Equal(t, end, l.EndOffset())
		})
	}
}

// TestSegmentThatLostItsEnd: a sealed file that ends within a batch is found at
// open, and never served beside the next one.
func TestSegmentThatLostItsEnd(t *testing.T) {
	_, _, err := damaged(t, func(dir string, bases []cluster.Offset) {
		info, err := os.Stat(logFile(dir, bases[1]))
		require.NoError(t, err)
		require.NoError(t, os.Truncate(logFile(dir, bases[1]), info.Size()-10))
	}, nil)
	require.ErrorIs(t, err, segment.ErrTornTail)
}

func TestMissingBetweenSegmentsIsFound(t *testing.T) {
	for name, change := range map[string]func(dir string, bases []cluster.Offset){
		"a segment removed": func(dir string, bases []cluster.Offset) { require.NoError(t, os.Remove(logFile(dir, bases[2]))) },
		"a segment emptied": func(dir string, bases []cluster.Offset) {
			require.NoError(t, os.Truncate(logFile(dir, bases[2]), 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var want Missing
			l, _, err := damaged(t, func(dir string, bases []cluster.Offset) {
				want = Missing{bases[2], bases[3]}
				change(dir, bases)
			}, nil)
			require.NoError(t, err)
			require.Equal(t, []Missing{want}, l.Missing())
		})
	}
	l, _, err := damaged(t, func(string, []cluster.Offset) {}, nil)
	require.NoError(t, err)
	require.Empty(t, l.Missing())
}
