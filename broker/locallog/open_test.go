package locallog

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
)

// syncs counts the calls that make something durable while do runs.
func syncs(t *testing.T, fs *disk.Fault, do func()) int {
	t.Helper()
	n := 0
	fs.SetInjector(func(op disk.Op) error {
		if op.Kind == disk.OpSyncData || op.Kind == disk.OpSyncDir {
			n++
		}
		return nil
	})
	defer fs.SetInjector(nil)
	do()
	return n
}

// TestWhatDidNotChangeCostsNoSync counts the syncs of a broker's life that its
// number of partitions multiplies.
func TestWhatDidNotChangeCostsNoSync(t *testing.T) {
	crash := disk.NewCrash(1)
	fs := disk.NewFault(crash, nil)
	cfg := config(fs)
	asked := 0
	cfg.FolderSync = func() error { asked++; return nil }
	require.NoError(t, fs.MkdirAll(testDir))
	var l *Log
	require.Zero(t, syncs(t, fs, func() { l = openLog(t, cfg) }), "a new log")
	l.AssignEpoch(1)
	want := fill(t, l, 30)
	require.Zero(t, asked)
	require.Positive(t, syncs(t, fs, func() { require.NoError(t, l.Flush(context.Background())) }))
	require.Equal(t, 1, asked, "the folder is durable before the first data counts as such")
	point := l.FlushedOffset()
	segments := len(l.Segments())
	want = append(want, fill(t, l, l.EndOffset()+40)...)
	require.Greater(t, len(l.Segments()), segments)

	killed := disk.NewFault(crash.Kill(), nil)
	cfg.FS, cfg.RecoveryPoint = killed, point
	require.Zero(t, syncs(t, killed, func() { l = openLog(t, cfg) }), "after a kill, with batches past the recovery point")
	require.Less(t, l.FlushedOffset(), l.ActiveBase())
	require.NoError(t, l.Flush(context.Background()))
	require.Equal(t, l.EndOffset(), l.FlushedOffset())
	require.Contains(t, l.snapshotOffsets(), l.ActiveBase(), "L7")
	l.AssignEpoch(2)
	require.Positive(t, syncs(t, killed, func() { require.NoError(t, l.Close(true)) }))

	cfg.CleanStop = true
	require.Zero(t, syncs(t, killed, func() { l = openLog(t, cfg) }), "after an orderly stop")
	l.AssignEpoch(3)
	require.Zero(t, syncs(t, killed, func() { require.NoError(t, l.Close(true)) }), "a log that nobody wrote to")
	l = openLog(t, cfg)
	requireBatches(t, want, readAll(t, l, 0, 1000))
	require.NoError(t, l.Close(true))
}
