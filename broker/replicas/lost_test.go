package replicas

import (
	"path"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// TestLostFiles: files that are gone after an orderly stop are never taken for
// an empty log in silence.
func TestLostFiles(t *testing.T) {
	const dir = "/data/logs"
	remove := func(fs disk.FS, folder string) {
		names, err := fs.List(path.Join(dir, folder))
		require.NoError(t, err)
		for _, name := range names {
			require.NoError(t, fs.Remove(path.Join(dir, folder, name)))
		}
		require.NoError(t, fs.Remove(path.Join(dir, folder)))
	}
	synctest.Test(t, func(t *testing.T) {
		fs, ctl := disk.NewCrash(1), newController(t)
		n := startNode(t, fs, ctl, nil, dir)
		n.activate()
		topic := ctl.create("t", 2, nil)
		synctest.Wait()
		for i := range int32(2) {
			n.produce(topic, i, 10)
		}
		n.stop()
		require.NoError(t, fs.Remove(path.Join(dir, "t-0", segment.Name(0, segment.LogSuffix))))
		remove(fs, "t-1")

		again := startNode(t, fs, ctl.fork(t), nil, dir)
		again.activate()
		_, err := again.m.Get(cluster.TopicPartition{Topic: topic})
		require.ErrorIs(t, err, ErrOffline)
		require.ErrorAs(t, err, new(*segment.CorruptError))
		require.ErrorContains(t, err, recoveryName, "what to do")
		require.Empty(t, again.m.OfflineDirs(), "the disk is well")
		require.Equal(t, cluster.Offset(0), again.get(topic, 1).LogEndOffset())
		require.Contains(t, again.log.String(), "the folder of a partition is gone")
		again.kill() // a directory with a replica that does not open has no orderly stop
	})
}

// TestLostMetadata: metadata that is older than a log directory is refused,
// before a folder is taken for one of a topic that was deleted (M6).
func TestLostMetadata(t *testing.T) {
	const dir = "/data/logs"
	for name, orderly := range map[string]bool{"closed": true, "killed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, ctl := disk.NewCrash(1), newController(t)
				before := ctl.fork(t)
				n := startNode(t, fs, ctl, nil, dir)
				n.activate()
				topic := ctl.create("t", 1, nil)
				synctest.Wait()
				n.produce(topic, 0, 10)
				if orderly {
					n.stop()
				} else {
					n.kill()
				}
				again, err := tryNode(t, fs, before, nil, nil, dir)
				require.ErrorAs(t, err, new(*DirError))
				require.ErrorContains(t, err, "what was decided in between is lost")
				again.kill()

				well := startNode(t, fs, ctl.fork(t), nil, dir)
				well.activate()
				require.Equal(t, cluster.Offset(10), well.get(topic, 0).LogEndOffset())
				well.stop()
			})
		})
	}
}
