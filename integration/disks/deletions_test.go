package disks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// TestDeletionsWhenNothingIsFree: a log directory that has a file system to
// itself has not a block left. Records are deleted all the same, from the middle
// of a segment too, the new start outlives a kill, and what is deleted makes the
// room in which writes resume.
func TestDeletionsWhenNothingIsFree(t *testing.T) {
	fs := kit.NewDisk(t, 96*mib).Path
	logs := fs + "/logs"
	b := start(t, t.TempDir(), map[string]string{
		"log.dirs": logs, "disk.reserved.bytes": "0", "log.segment.delete.delay.ms": "100", "log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "100", "log.remote.storage.enable": "false",
		"log.flush.offset.checkpoint.interval.ms": "3600000", "log.flush.start.offset.checkpoint.interval.ms": "3600000",
	})
	b.create("t", 1, map[string]string{"segment.bytes": fmt.Sprint(2 * mib)})
	b.create("u", 1, map[string]string{"segment.bytes": fmt.Sprint(2 * mib)})
	kit.Eventually(t, 20*time.Second, "the log directory has its reserve", func() bool {
		_, err := os.Stat(logs + "/ballast")
		return err == nil
	})
	const record = 100 << 10
	b.mustWrite("u", 0, 50, record)
	b.fill("t", record)
	filler := kit.FillUp(t, fs)
	rest, err := os.OpenFile(filler, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	defer rest.Close()
	kit.Eventually(t, 20*time.Second, "not a block is free", func() bool {
		for err == nil {
			_, err = rest.Write(make([]byte, 512))
		}
		err = nil
		return b.Metric("strandline_disk_free_bytes", `dir="`+logs+`"`) == 0
	})

	for at := int64(1); at <= 5; at++ { // all in the first segment
		b.deleteRecords("u", at)
	}
	require.NoFileExists(t, logs+"/ballast", "the reserve is what it took")
	b.Kill()
	b.MustStart()
	b.connect()
	b.readBack("u", 0, 5)
	first := b.next["t"]
	b.deleteRecords("t", int64(first/2))
	b.readBack("t", 0, int64(first/2))
	b.resumes("t", 20*time.Second, record)

	require.NoError(t, os.Remove(filler))
	kit.Eventually(t, 20*time.Second, "the log directory has its reserve again", func() bool {
		_, err := os.Stat(logs + "/ballast")
		return err == nil
	})
	b.readBack("u", 0, 5)
	b.Restart(false)
	b.connect()
	b.readBack("u", 0, 5)
	b.readBack("t", 0, int64(first/2))
	require.Zero(t, b.Stop())
}
