package tiercases

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// AD-09: the sizes of log directories are those of the files in them, and what is
// in the tier alone does not count.
func TestLogDirsCountWhatIsLocal(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	b.create("kept", 2, small(11_200, "remote.storage.enable", "false", "local.retention.bytes", "-2"))
	b.create("gone", 1, small(11_200))
	for p := range int32(2) {
		b.write("kept", p, 0, 50, 1000, time.Time{})
	}
	b.write("gone", 0, 0, 103, 1000, time.Time{})
	b.tiered("gone", 0, 9)
	b.localOnlyTail("gone", 0)
	c := kit.Dial(t, b.Addr)
	sizes := func(version int16, topics []kmsg.DescribeLogDirsRequestTopic) map[string]int64 {
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Version, req.Topics = version, topics
		out := map[string]int64{}
		dirs := c.Call(req).(*kmsg.DescribeLogDirsResponse).Dirs
		require.Len(t, dirs, 1)
		require.Zero(t, dirs[0].ErrorCode)
		require.Equal(t, filepath.Join(b.Dir, "logs"), dirs[0].Dir)
		for _, topic := range dirs[0].Topics {
			for _, p := range topic.Partitions {
				require.Zero(t, p.OffsetLag)
				require.False(t, p.IsFuture)
				out[topic.Topic+string('0'+p.Partition)] = p.Size
			}
		}
		return out
	}
	onDisk := func(folder string) (bytes int64) {
		require.NoError(t, filepath.WalkDir(filepath.Join(b.Dir, "logs", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".log") {
				return err
			}
			info, err := d.Info()
			bytes += info.Size()
			return err
		}))
		return bytes
	}
	// A segment is gone for clients before its file has another name.
	kit.Eventually(t, 20*time.Second, "the files of the segments have gone after them", func() bool {
		return sizes(4, nil)["gone0"] == onDisk("gone-0")
	})
	one := kmsg.NewDescribeLogDirsRequestTopic()
	one.Topic, one.Partitions = "gone", []int32{0, 7}
	for version := int16(1); version <= 4; version++ {
		all := sizes(version, nil)
		require.Equal(t, map[string]int64{"kept0": onDisk("kept-0"), "kept1": onDisk("kept-1"), "gone0": onDisk("gone-0")}, all, "version %d", version)
		require.Greater(t, all["kept0"], int64(50_000))
		require.Positive(t, all["gone0"])
		require.Less(t, all["gone0"], int64(30_000), "ten times that is in the tier")
		require.Equal(t, map[string]int64{"gone0": all["gone0"]}, sizes(version, []kmsg.DescribeLogDirsRequestTopic{one}))
		require.Empty(t, sizes(version, []kmsg.DescribeLogDirsRequestTopic{}), "none asked for")
	}
}
