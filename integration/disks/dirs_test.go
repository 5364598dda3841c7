package disks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// dirOf is the log directory that holds a partition, by its folder.
func dirOf(t *testing.T, dirs []string, folder string) string {
	t.Helper()
	for _, d := range dirs {
		if _, err := os.Stat(filepath.Join(d, folder)); err == nil {
			return d
		}
	}
	t.Fatalf("%s is in none of %v", folder, dirs)
	return ""
}

// metadata asks for a topic's partitions.
func (b *broker) metadata(topic string) []kmsg.MetadataResponseTopicPartition {
	b.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = &topic
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(b.ctx(), b.cl)
	require.NoError(b.t, err)
	require.Len(b.t, resp.Topics, 1)
	return resp.Topics[0].Partitions
}

// TestDirectoryFails: of two log directories one stops to take writes. Its
// replicas answer KAFKA_STORAGE_ERROR and are offline in the metadata; the other
// directory, and the process, go on; after a start with the disk good again
// everything is there.
func TestDirectoryFails(t *testing.T) {
	dir := t.TempDir()
	bad := kit.NewDisk(t, 64*mib)
	dirs := []string{filepath.Join(dir, "good"), filepath.Join(bad.Path, "logs")}
	b := start(t, dir, map[string]string{"log.dirs": strings.Join(dirs, ","), "disk.reserved.bytes": "1000000", "log.remote.storage.enable": "false"})
	b.create("t", 4, nil)
	for p := range int32(4) {
		b.mustWrite("t", p, 5, 1000)
	}
	where := map[string]int{}
	for p := range 4 {
		where[dirOf(t, dirs, fmt.Sprintf("t-%d", p))]++
	}
	require.Equal(t, map[string]int{dirs[0]: 2, dirs[1]: 2}, where, "the directory with fewest takes the next")
	pid := b.Pid()
	there := map[int32]bool{} // on the disk that fails
	for p := range int32(4) {
		there[p] = dirOf(t, dirs, fmt.Sprintf("t-%d", p)) == dirs[1]
	}
	failed := func(p int32) bool { return there[p] }

	bad.Break()
	for p := range int32(4) {
		err := b.write("t", p, 1000)
		if failed(p) {
			require.ErrorIs(t, err, kerr.KafkaStorageError)
		} else {
			require.NoError(t, err)
		}
	}
	kit.Eventually(t, 10*time.Second, "the metadata shows it", func() bool {
		offline := 0
		for _, p := range b.metadata("t") {
			if failed(p.Partition) && p.Leader == -1 && len(p.OfflineReplicas) == 1 && p.ErrorCode == kerr.LeaderNotAvailable.Code {
				offline++
			}
		}
		return offline == 2
	})
	kit.Eventually(t, 10*time.Second, "the log says so", func() bool { return strings.Contains(b.Log(), "log directory offline") })
	resp, err := b.cl.Broker(1).Request(b.ctx(), kmsg.NewPtrDescribeLogDirsRequest())
	require.NoError(t, err)
	for _, d := range resp.(*kmsg.DescribeLogDirsResponse).Dirs {
		if d.Dir == dirs[1] {
			require.Equal(t, kerr.KafkaStorageError.Code, d.ErrorCode)
			require.Empty(t, d.Topics)
		} else {
			require.Zero(t, d.ErrorCode)
			require.Len(t, d.Topics, 1)
		}
	}
	b.create("new", 2, nil)
	for p := range int32(2) {
		require.Equal(t, dirs[0], dirOf(t, dirs, fmt.Sprintf("new-%d", p)), "no new replica goes there")
		b.mustWrite("new", p, 2, 1000)
	}
	require.Equal(t, pid, b.Pid())
	require.Zero(t, b.Stop())
	bad.Repair() // what was not synced is gone, as after a power loss
	b.MustStart()
	b.connect()
	for _, p := range b.metadata("t") {
		require.Equal(t, int32(1), p.Leader)
	}
	b.mustWrite("t", 0, 1, 1000)

	// One that is not listed any more keeps its replicas: they are offline, not
	// made anew, and back with it.
	require.Zero(t, b.Stop())
	b.Set("log.dirs", dirs[0])
	b.MustStart()
	b.connect()
	kit.Eventually(t, 10*time.Second, "its replicas are offline", func() bool {
		offline := 0
		for _, p := range b.metadata("t") {
			if p.Leader == -1 {
				offline++
			}
		}
		return offline == 2
	})
	require.Zero(t, b.Stop())
	b.Set("log.dirs", strings.Join(dirs, ","))
	b.MustStart()
	b.connect()
	for p := range int32(4) {
		b.mustWrite("t", p, 1, 1000)
	}

	// A missing one is refused.
	require.Zero(t, b.Stop())
	require.NoError(t, os.Rename(dirs[1], dirs[1]+"-away"))
	b.Spawn()
	require.Equal(t, 3, b.Wait(20*time.Second))
	require.NoError(t, os.Rename(dirs[1]+"-away", dirs[1]))
}

// TestDirectoryFailsUnderAReader: the disk of a log directory fails and nothing but
// the sending of what lies there meets it. The reader's connection ends, since no
// answer can say so any more; what it asks next is answered with
// KAFKA_STORAGE_ERROR, and the directory is offline.
func TestDirectoryFailsUnderAReader(t *testing.T) {
	bad := kit.NewDisk(t, 64*mib)
	dir := t.TempDir()
	dirs := []string{filepath.Join(bad.Path, "logs"), filepath.Join(dir, "good")}
	b := start(t, dir, map[string]string{"log.dirs": strings.Join(dirs, ","), "disk.reserved.bytes": "1000000", "log.remote.storage.enable": "false"})
	b.create("t", 2, nil)
	there := int32(0)
	if dirOf(t, dirs, "t-0") != dirs[0] {
		there = 1
	}
	for p := range int32(2) {
		b.mustWrite("t", p, 1, 300_000)
	}
	fetch := func(p int32) (*kmsg.FetchResponse, error) {
		c := kit.Dial(t, b.Addr)
		req := kit.Fetch(12, "t", p, 0, 1<<20)
		c.Send(req)
		resp, err := c.Receive(req)
		if err != nil {
			return nil, err
		}
		return resp.(*kmsg.FetchResponse), nil
	}
	for p := range int32(2) {
		resp, err := fetch(p)
		require.NoError(t, err)
		require.Greater(t, len(resp.Topics[0].Partitions[0].RecordBatches), 300_000)
	}
	bad.Break()
	_, err := fetch(there)
	require.Error(t, err, "the answer was under way")
	require.NotContains(t, b.Log(), "log directory offline", "nobody else has met it")
	resp, err := fetch(there)
	require.NoError(t, err)
	require.Equal(t, kerr.KafkaStorageError.Code, resp.Topics[0].Partitions[0].ErrorCode)
	kit.Eventually(t, 10*time.Second, "the log says so", func() bool {
		return strings.Contains(b.Log(), "log directory offline") && strings.Contains(b.Log(), "sendfile")
	})
	resp, err = fetch(1 - there)
	require.NoError(t, err)
	require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
	require.ErrorIs(t, b.write("t", there, 1000), kerr.KafkaStorageError)
	require.NoError(t, b.write("t", 1-there, 1000))
	require.Zero(t, b.Stop())
}

// TestEveryDirectoryFails: without any log directory the process ends and says so.
func TestEveryDirectoryFails(t *testing.T) {
	dir := t.TempDir()
	bad := kit.NewDisk(t, 64*mib)
	b := start(t, dir, map[string]string{"log.dirs": filepath.Join(bad.Path, "logs"), "disk.reserved.bytes": "1000000", "log.remote.storage.enable": "false"})
	b.create("t", 1, map[string]string{"flush.messages": "1"})
	b.mustWrite("t", 0, 5, 1000)
	bad.Break()
	kit.Eventually(t, 90*time.Second, "the process ends", func() bool {
		select {
		case <-b.Exited():
			return true
		default:
			_ = b.write("t", 0, 1000)
			return false
		}
	})
	require.Equal(t, 1, b.Wait(time.Second))
	require.Contains(t, b.Log(), "every log directory has failed")
	bad.Repair()
	b.MustStart()
	b.connect()
	b.readBack("t", 0, 0)
}

// TestKafkaLogDirs (AD-09): kafka-log-dirs of Apache Kafka shows local bytes, not
// those of the tier, and where a replica is after it moved while it was written.
func TestKafkaLogDirs(t *testing.T) {
	dir := t.TempDir()
	dirs := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	b := start(t, dir, map[string]string{
		"log.dirs": strings.Join(dirs, ","), "remote.store.url": "file://" + t.TempDir(), "log.retention.check.interval.ms": "200",
		"log.initial.task.delay.ms": "200", "remote.log.manager.task.interval.ms": "200", "log.segment.delete.delay.ms": "100",
	})
	b.create("plain", 2, map[string]string{"remote.storage.enable": "false"})
	b.create("tiered", 1, map[string]string{"remote.storage.enable": "true", "segment.bytes": fmt.Sprint(mib), "local.retention.bytes": "1"})
	b.mustWrite("plain", 0, 10, 100_000)
	b.mustWrite("tiered", 0, 50, 100_000)
	type described struct {
		Brokers []struct {
			Broker  int
			LogDirs []struct {
				Error, LogDir string
				Partitions    []struct {
					Partition string
					Size      int64
					OffsetLag int64
					IsFuture  bool
				}
			}
		}
	}
	describe := func() (sizes map[string]int64, at map[string]string) {
		out, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", b.Addr, "--describe")
		if code != 0 { // seen once, with no word of why, while segments left
			t.Logf("LogDirsCommand ended with %d: %q %q", code, out, errOut)
			return nil, nil
		}
		var d described
		line := out[strings.Index(out, "{"):]
		require.NoError(t, json.NewDecoder(bytes.NewReader([]byte(line))).Decode(&d), out)
		require.Len(t, d.Brokers, 1)
		sizes, at = map[string]int64{}, map[string]string{}
		for _, l := range d.Brokers[0].LogDirs {
			require.Empty(t, l.Error)
			require.Contains(t, dirs, l.LogDir)
			for _, p := range l.Partitions {
				if p.IsFuture {
					continue // it may lag, and is not where the replica is
				}
				require.Zero(t, p.OffsetLag)
				sizes[p.Partition], at[p.Partition] = p.Size, l.LogDir
			}
		}
		return sizes, at
	}
	kit.Eventually(t, 20*time.Second, "local segments of the tiered topic leave", func() bool {
		sizes, at := describe()
		if at == nil {
			return false
		}
		require.Len(t, at, 3)
		require.Greater(t, sizes["plain-0"], int64(1_000_000))
		require.Zero(t, sizes["plain-1"])
		return sizes["tiered-0"] > 0 && sizes["tiered-0"] < 2*mib
	})
	_, at := describe()
	require.NotNil(t, at)
	to := dirs[0]
	if at["plain-0"] == to {
		to = dirs[1]
	}
	req := kmsg.NewPtrAlterReplicaLogDirsRequest()
	req.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{
		{Dir: to, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "plain", Partitions: []int32{0, 9}}, {Topic: "absent", Partitions: []int32{0}}}},
		{Dir: "/nowhere", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "plain", Partitions: []int32{1}}}},
	}
	resp, err := b.cl.Broker(1).Request(b.ctx(), req)
	require.NoError(t, err)
	codes := map[string]int16{}
	for _, topic := range resp.(*kmsg.AlterReplicaLogDirsResponse).Topics {
		for _, p := range topic.Partitions {
			codes[fmt.Sprintf("%s-%d", topic.Topic, p.Partition)] = p.ErrorCode
		}
	}
	require.Equal(t, map[string]int16{"plain-0": 0, "plain-9": 3, "absent-0": 3, "plain-1": 57}, codes)
	kit.Eventually(t, 20*time.Second, "the replica is in the other directory", func() bool {
		b.mustWrite("plain", 0, 1, 1000)
		_, at := describe()
		return at["plain-0"] == to
	})
	b.readBack("plain", 0, 0)

	back := dirs[0]
	if to == back {
		back = dirs[1]
	}
	b.Restart(true)
	b.connect()
	b.readBack("plain", 0, 0)
	require.DirExists(t, filepath.Join(to, "plain-0"))
	require.NoDirExists(t, filepath.Join(back, "plain-0"))
}
