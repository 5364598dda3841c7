package replicas

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/disk"
)

// A checkpoint that is under way while a topic is deleted, and made again under
// the same name, says nothing of the new one: a log start of the old one would
// make the next start throw the new one's records away.
func TestCheckpointBesideADeletion(t *testing.T) {
	for name, kind := range map[string]checkpointed{"log start": logStarts, "recovery point": recoveryPoints, "high watermark": highWatermarks} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkpointBesideADeletion(t, kind) })
		})
	}
}

func checkpointBesideADeletion(t *testing.T, kind checkpointed) {
	fs, ctl := disk.NewCrash(1), newController(t)
	n := startNode(t, fs, ctl, nil, twoDirs[0])
	n.activate()
	old := ctl.create("t", 1, flushedTopic)
	synctest.Wait()
	var topic cluster.TopicID
	n.m.checkpoint(checkpointed{file: kind.file, offset: func(p *partition.Partition) cluster.Offset {
		if p.TopicPartition().Topic != old {
			return kind.offset(p)
		}
		ctl.apply(command.TopicDeleted{Topic: old})
		topic = ctl.create("t", 1, flushedTopic)
		synctest.Wait()
		return 500
	}})
	n.produce(topic, 0, 3)
	noted, _ := kind.file(n.dirs.dirs[0]).get(folderKey{"t", 0})
	require.Zero(t, noted)
	n.kill()

	again := startNode(t, fs.Kill(), ctl.fork(t), nil, twoDirs[0])
	again.activate()
	p := again.get(topic, 0)
	require.Equal(t, cluster.Offset(0), p.LogStartOffset())
	require.Equal(t, cluster.Offset(3), p.HighWatermark())
	again.stop()
}
