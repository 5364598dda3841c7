package replicas

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
	"strandline/metadata/image"
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
		require.Regexp(t, `msg="replica cannot be opened" partition=t-0 .* remedy="restore the file from a copy.* move the folder /data/logs/t-0 out`, again.log.String())
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

// TestDamagedPartitionMetadata: a partition whose folder has records, by its
// segments or its recovery point, and does not say which topic they are of is
// offline, its folder stays, and the remedy in the log brings it back.
func TestDamagedPartitionMetadata(t *testing.T) {
	const dir = "/data/logs"
	remedy := regexp.MustCompile(`topic_id: (\S+?)\\"`)
	for name, c := range map[string]struct {
		damage func(t *testing.T, fs disk.FS, folder string)
		back   cluster.Offset // the records that the remedy brings back
	}{
		"one wrong digit": {func(t *testing.T, fs disk.FS, folder string) {
			data, err := disk.ReadFile(fs, path.Join(folder, partitionName))
			require.NoError(t, err)
			at := strings.Index(string(data), "topic_id: ") + len("topic_id: ") + 3
			data[at] = map[bool]byte{true: 'A', false: 'B'}[data[at] != 'A']
			require.NoError(t, disk.WriteFileUnsynced(fs, path.Join(folder, partitionName), data))
		}, 10},
		"the id of no topic": {func(t *testing.T, fs disk.FS, folder string) {
			require.NoError(t, disk.WriteFileUnsynced(fs, path.Join(folder, partitionName), []byte("version: 0\ntopic_id: xxxxxxxxxxxxxxxxxxxxxx\n")))
		}, 10},
		"empty": {func(t *testing.T, fs disk.FS, folder string) {
			require.NoError(t, disk.WriteFileUnsynced(fs, path.Join(folder, partitionName), nil))
		}, 10},
		"missing": {func(t *testing.T, fs disk.FS, folder string) {
			require.NoError(t, fs.Remove(path.Join(folder, partitionName)))
		}, 10},
		"cut short after an orderly stop": {func(t *testing.T, fs disk.FS, folder string) {
			require.NoError(t, disk.WriteFileUnsynced(fs, path.Join(folder, partitionName), []byte("version: 0\ntopic")))
		}, 10},
		"missing with the segments": {func(t *testing.T, fs disk.FS, folder string) {
			require.NoError(t, fs.Remove(path.Join(folder, partitionName)))
			require.NoError(t, fs.Remove(path.Join(folder, segment.Name(0, segment.LogSuffix))))
		}, cluster.NoOffset},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, topic known late %v", name, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fs, ctl := disk.NewCrash(1), newController(t)
					n := startNode(t, fs, ctl, nil, dir, "/data/other")
					n.activate()
					before := ctl.fork(t)
					topic := ctl.create("t", 2, nil)
					synctest.Wait()
					n.produce(topic, 0, 10)
					n.produce(topic, 1, 10)
					n.stop()
					folder := path.Join(dir, "t-0")
					if !exists(fs, folder) {
						folder = path.Join("/data/other", "t-0")
					}
					c.damage(t, fs, folder)
					files := list(t, fs, folder)

					ctl = ctl.fork(t)
					var again *node
					if late { // a node that has not caught up yet
						require.NoError(t, disk.EnsureDir(fs, metadataDir))
						dirs, err := OpenDirs(DirsConfig{FS: fs, Dirs: []string{dir, "/data/other"}, MetadataDir: metadataDir, NodeID: self})
						require.NoError(t, err)
						require.NoError(t, dirs.Init(clusterID))
						behind := &lateWatch{controller: ctl, start: before.Image()}
						again = &node{t: t, fs: fs, ctl: ctl, dirs: dirs}
						again.m = New(Config{FS: fs, Dirs: dirs, Broker: brokerConfig(t, nil), Watch: behind, Logger: slog.New(slog.NewTextHandler(&again.log, nil))})
						require.NoError(t, again.m.Start(context.Background()))
						behind.started.Store(true)
					} else {
						again = startNode(t, fs, ctl, nil, dir, "/data/other")
					}
					again.activate()
					time.Sleep(5 * time.Second)
					_, err := again.m.Get(cluster.TopicPartition{Topic: topic})
					require.ErrorIs(t, err, ErrOffline)
					require.Empty(t, again.m.OfflineDirs(), "the disk is well")
					require.Equal(t, cluster.Offset(10), again.get(topic, 1).LogEndOffset(), "the other partition is served")
					again.produce(topic, 1, 1)
					require.Equal(t, files, list(t, fs, folder), "the folder is as it was")
					text := again.log.String()
					require.Equal(t, 1, strings.Count(text, "replica is offline: its folder has records"))
					require.NotContains(t, text, "is gone, with its local records")
					again.kill()
					if c.back == cluster.NoOffset {
						return
					}
					id := remedy.FindStringSubmatch(text)
					require.NotNil(t, id, text)
					require.NoError(t, disk.WriteFileUnsynced(fs, path.Join(folder, partitionName), []byte("version: 0\ntopic_id: "+id[1]+"\n")))
					well := startNode(t, fs, ctl.fork(t), nil, dir, "/data/other")
					well.activate()
					require.Equal(t, c.back, well.get(topic, 0).LogEndOffset())
					well.stop()
				})
			})
		}
	}
}

// lateWatch shows an older image until the manager has started.
type lateWatch struct {
	*controller
	start   *image.Image
	started atomic.Bool
}

func (w *lateWatch) Image() *image.Image {
	if !w.started.Load() {
		return w.start
	}
	return w.controller.Image()
}

// TestLostLogStarts: log starts that go back because their checkpoint is lost are
// said once a directory, and nothing is said where none was lost.
func TestLostLogStarts(t *testing.T) {
	const dir = "/data/logs"
	const warning = "log start offsets are lost"
	name := path.Join(dir, logStartName)
	for how, damage := range map[string]func(t *testing.T, fs disk.FS){
		"missing": func(t *testing.T, fs disk.FS) { require.NoError(t, fs.Remove(name)) },
		"damaged": func(t *testing.T, fs disk.FS) {
			require.NoError(t, disk.WriteFileUnsynced(fs, name, []byte("0\n2\nt 0")))
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, ctl := disk.NewCrash(1), newController(t)
				n := startNode(t, fs, ctl, nil, dir)
				n.activate()
				topic := ctl.create("t", 2, nil)
				synctest.Wait()
				n.produce(topic, 0, 10)
				_, err := n.get(topic, 0).DeleteRecords(context.Background(), 7)
				require.NoError(t, err)
				n.stop()
				whole := fs.Clone(nil)
				damage(t, fs)
				later := ctl.fork(t)
				again := startNode(t, fs, later, nil, dir)
				again.activate()
				require.Equal(t, cluster.Offset(0), again.get(topic, 0).LogStartOffset())
				require.Equal(t, 1, strings.Count(again.log.String(), warning))
				require.Regexp(t, `level=WARN msg="`+warning, again.log.String())
				again.stop()
				third := startNode(t, fs, later.fork(t), nil, dir)
				require.NotContains(t, third.log.String(), warning, "only once")
				third.kill()

				well := startNode(t, whole, ctl.fork(t), nil, dir)
				well.activate()
				require.Equal(t, cluster.Offset(7), well.get(topic, 0).LogStartOffset())
				require.NotContains(t, well.log.String(), warning)
				well.kill()
			})
		})
	}
	t.Run("killed before the first checkpoint", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fs, ctl := disk.NewCrash(1), newController(t)
			n := startNode(t, fs, ctl, nil, dir)
			n.activate()
			topic := ctl.create("t", 1, nil)
			synctest.Wait()
			n.produce(topic, 0, 10)
			n.kill()
			again := startNode(t, fs, ctl.fork(t), nil, dir)
			require.NotContains(t, again.log.String(), warning)
			again.kill()
		})
	})
}

func TestTornPartitionMetadata(t *testing.T) {
	whole := partitionMeta{topic: cluster.NewTopicID(), index: 42, moves: 1}.encode()
	for n := range whole {
		require.True(t, isTornMeta(whole[:n]), "%q", whole[:n])
		require.True(t, isTornMeta(append(bytes.Clone(whole[:n]), make([]byte, len(whole)-n)...)), "%q", whole[:n])
	}
	for _, damaged := range []string{string(whole), "garbage", "#"} {
		require.False(t, isTornMeta([]byte(damaged)), "%q", damaged)
	}
}

// TestOccupiedFolder: a former topic's folder in the way of a new one is worth a
// warning only once it stays.
func TestOccupiedFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, ctl := disk.NewCrash(1), newController(t)
		n := startNode(t, fs, ctl, nil, "/data/logs")
		n.activate()
		former := folder{dir: &dir{path: "/data/logs"}, key: folderKey{"t", 0}, meta: partitionMeta{topic: cluster.NewTopicID(), index: 1}}
		require.NoError(t, makeFolder(fs, former))
		topic := ctl.create("t", 1, nil)
		time.Sleep(occupiedMax - time.Second)
		synctest.Wait()
		require.NotContains(t, n.log.String(), "cannot take its role")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Regexp(t, "level=WARN msg=\"replica cannot take its role yet\" topic=t partition=0 .*another topic", n.log.String())
		require.NoError(t, fs.RemoveAll("/data/logs/t-0"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		n.produce(topic, 0, 1)
		n.stop()
	})
}
