package disks

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// sizes of the file system and its reserve.
func sizes() (total, reserve int64) {
	if kit.Long() {
		return 1 << 30, 128 * mib
	}
	return 192 * mib, 32 * mib
}

// TestDiskFullWithTheStoreDown (OP-01): a file system fills up while the object
// store is down. Clients get a code that they retry, everything else goes on,
// also when someone else takes the rest of the disk, and writes resume by
// themselves: after a topic is deleted, after records are, and when the store is
// back.
func TestDiskFullWithTheStoreDown(t *testing.T) {
	total, reserve := sizes()
	minio := kit.StartMinIO(t, "full")
	fs := kit.NewDisk(t, total).Path
	b := start(t, t.TempDir(), on(fs, map[string]string{
		"disk.reserved.bytes": fmt.Sprint(reserve),
		"remote.store.url":    "s3://full/", "remote.store.endpoint": "http://" + minio.Addr, "remote.store.path.style": "true",
		"remote.store.access.key.id": kit.MinIOUser, "remote.store.secret.access.key": kit.MinIOPassword,
	}))
	pid := b.Pid()
	b.create("tiered", 1, map[string]string{"remote.storage.enable": "true", "segment.bytes": fmt.Sprint(4 * mib), "local.retention.bytes": "-2", "retention.ms": "-1"})
	plain := map[string]string{"remote.storage.enable": "false", "segment.bytes": fmt.Sprint(4 * mib)}
	b.create("plain", 1, plain)
	b.create("victim", 1, plain)
	const record = 512 << 10
	b.mustWrite("victim", 0, int(total/6/record), record)
	b.mustWrite("plain", 0, int(total/6/record), record)
	b.mustWrite("tiered", 0, 20, record)
	kit.Eventually(t, 20*time.Second, "the metadata directory has its reserve", func() bool {
		_, err := os.Stat(fs + "/metadata/ballast")
		return err == nil
	})
	minio.Kill()

	b.fill("tiered", record)
	kit.Eventually(t, 10*time.Second, "the log says so", func() bool { return strings.Contains(b.Log(), "log directory is full") })
	line := ""
	for l := range strings.SplitSeq(b.Log(), "\n") {
		if strings.Contains(l, "log directory is full") {
			line = l
		}
	}
	for _, says := range []string{"level=ERROR", "dir=" + fs + "/logs", "free_bytes=", "disk.reserved.bytes=" + fmt.Sprint(reserve), "remedy=", "largest_topic.name="} {
		require.Contains(t, line, says, "a person is told what to do")
	}
	require.Positive(t, b.Metric("strandline_disk_free_bytes", `dir="`+fs+`/logs"`))
	require.Less(t, b.Metric("strandline_disk_free_bytes", `dir="`+fs+`/logs"`), float64(reserve+reserve/2))
	b.readBack("tiered", 0, b.localStart("tiered"))
	b.readBack("plain", 0, 0)

	filler := kit.FillUp(t, fs)
	require.Zero(t, b.Metric("strandline_disk_free_bytes", `dir="`+fs+`/logs"`))
	for i := range 20 {
		b.alter("plain", "retention.ms", fmt.Sprint(1_000_000+i))
	}
	require.Error(t, b.write("plain", 0, record))
	b.deleteRecords("plain", 3)
	b.readBack("plain", 0, 3)
	require.NoError(t, os.Remove(filler))
	require.Error(t, b.write("tiered", 0, record), "still below the reserve")

	b.deleteTopic("victim")
	b.resumes("tiered", 20*time.Second, 1000)
	b.fill("tiered", record)
	first := b.acked["plain"]
	b.deleteRecords("plain", int64(len(first)*3/4))
	b.resumes("tiered", 20*time.Second, 1000)
	b.fill("tiered", record)
	b.readBack("tiered", 0, b.localStart("tiered"))

	minio.Start()
	b.resumes("tiered", 60*time.Second, 1000)
	for range int(total / 8 / record) { // more than what was left
		b.resumes("tiered", 60*time.Second, record)
	}
	require.Equal(t, pid, b.Pid())
	require.NotContains(t, b.Log(), "log directory offline")
	kit.Eventually(t, 20*time.Second, "the metadata directory has its reserve again", func() bool {
		_, err := os.Stat(fs + "/metadata/ballast")
		return err == nil
	})
	b.readBack("tiered", 0, 0)
	b.readBack("plain", 0, int64(len(first)*3/4))
	b.create("after", 1, plain)
	b.mustWrite("after", 0, 3, 1000)
	b.Restart(false)
	b.connect()
	b.readBack("tiered", 0, 0)
	b.readBack("plain", 0, int64(len(first)*3/4))
	b.readBack("after", 0, 0)
	require.Zero(t, b.Stop())
}

// TestDiskFullWithoutAReserve: with no reserve the disk itself refuses writes.
// Nothing is torn or goes offline for good, a killed server starts on the full
// disk, and writes resume once there is room.
func TestDiskFullWithoutAReserve(t *testing.T) {
	fs := kit.NewDisk(t, 96*mib).Path
	b := start(t, t.TempDir(), on(fs, map[string]string{"disk.reserved.bytes": "0", "remote.store.url": "file://" + t.TempDir(), "log.remote.storage.enable": "false"}))
	b.create("t", 1, map[string]string{"segment.bytes": fmt.Sprint(2 * mib)})
	b.create("flushed", 1, map[string]string{"segment.bytes": fmt.Sprint(2 * mib), "flush.messages": "1"})
	b.create("small", 3, map[string]string{"segment.bytes": fmt.Sprint(mib)})
	b.mustWrite("flushed", 0, 10, 100<<10)
	for p := range int32(3) {
		b.mustWrite("small", p, 3, 1000)
	}
	pid := b.Pid()
	kit.Eventually(t, 20*time.Second, "the metadata directory has its reserve", func() bool {
		_, err := os.Stat(fs + "/metadata/ballast")
		return err == nil
	})
	b.fill("t", 700<<10)
	filler := kit.FillUp(t, fs)
	for range 30 {
		require.Error(t, b.write("flushed", 0, 100<<10))
		require.Error(t, b.write("t", 0, 100<<10))
	}
	b.readBack("t", 0, 0)
	b.readBack("flushed", 0, 0)
	require.Equal(t, pid, b.Pid())
	b.Kill()
	b.MustStart()
	b.connect()
	b.readBack("t", 0, 0)
	b.readBack("flushed", 0, 0)
	require.NoError(t, os.Remove(filler))
	b.deleteRecords("t", int64(len(b.acked["t"])/2))
	b.resumes("t", 20*time.Second, 1000)
	b.resumes("flushed", 20*time.Second, 1000)
	b.mustWrite("flushed", 0, 20, 100<<10)
	b.readBack("t", 0, int64(len(b.acked["t"])/2))
	b.readBack("flushed", 0, 0)
	require.NotContains(t, b.Log(), "log directory offline")
	require.Zero(t, b.Stop())
}
