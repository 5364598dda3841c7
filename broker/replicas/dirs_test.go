package replicas

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

func dirsConfig(fs disk.FS, dirs ...string) DirsConfig {
	return DirsConfig{FS: fs, Dirs: dirs, MetadataDir: metadataDir, NodeID: self}
}

// initialised is a disk on which two directories were in use.
func initialised(t *testing.T) *disk.Crash {
	fs := disk.NewCrash(1)
	require.NoError(t, disk.EnsureDir(fs, metadataDir))
	d, err := OpenDirs(dirsConfig(fs, twoDirs...))
	require.NoError(t, err)
	require.Empty(t, d.ClusterID())
	require.NoError(t, d.Init(clusterID))
	require.NoError(t, d.Close())
	return fs
}

func TestDirectoriesAreRemembered(t *testing.T) {
	fs := initialised(t).Clone(newRand(1)) // Init is durable
	d, err := OpenDirs(dirsConfig(fs, twoDirs...))
	require.NoError(t, err)
	require.Equal(t, clusterID, d.ClusterID())
	require.NoError(t, d.Init(clusterID))
	ids := d.IDs()
	require.NoError(t, d.Close())
	// A third one is new; the others keep their ids.
	d, err = OpenDirs(dirsConfig(fs, append([]string{"/data/logs-c"}, twoDirs...)...))
	require.NoError(t, err)
	require.NoError(t, d.Init(clusterID))
	require.Equal(t, ids, d.IDs()[1:])
	var other *DirError
	require.ErrorAs(t, d.Init("another-cluster-id"), &other)
	require.NoError(t, d.Close())
}

func TestRefusedDirectories(t *testing.T) {
	write := func(name, text string) func(*testing.T, *disk.Crash) {
		return func(t *testing.T, fs *disk.Crash) {
			require.NoError(t, disk.EnsureDir(fs, path.Dir(name)))
			require.NoError(t, disk.WriteFileAtomic(fs, name, []byte(text)))
		}
	}
	ours := "version=1\nnode.id=%d\ncluster.id=%s\ndirectory.id=%s\nstrandline.format=%d\n"
	id := cluster.NewDirectoryID()
	cases := []struct {
		name    string
		prepare func(*testing.T, *disk.Crash)
		dirs    []string
		want    string
	}{
		{"kafka", write("/new/meta.properties", "version=1\nnode.id=1\ncluster.id=x\n"), []string{"/new"}, "data directory of Apache Kafka"},
		{"empty name", write("/new/meta.properties", ""), []string{"/new"}, "meta.properties is empty or damaged"},
		{"name without ids", write("/new/meta.properties", "#\nversion=1\n"), []string{"/new"}, "meta.properties is empty or damaged"},
		{"empty name of a known one", write(twoDirs[1]+"/meta.properties", ""), twoDirs, "meta.properties is empty or damaged"},
		{"another node", write("/new/meta.properties", fmt.Sprintf(ours, 2, clusterID, id, 1)), []string{"/new"}, "belongs to node.id 2"},
		{"another cluster", write("/new/meta.properties", fmt.Sprintf(ours, 1, "other", id, 1)), []string{twoDirs[0], "/new"}, "belongs to cluster.id other"},
		{"newer format", write("/new/meta.properties", fmt.Sprintf(ours, 1, clusterID, id, 2)), []string{"/new"}, "is newer than"},
		{"garbage", write("/new/meta.properties", "what"), []string{"/new"}, "cannot be understood"},
		{"foreign", write("/new/holiday.jpg", "x"), []string{"/new"}, "is not empty (holiday.jpg)"},
		{"listed twice", nil, []string{twoDirs[0], twoDirs[0] + "/"}, "listed twice"},
		{"unmounted", func(t *testing.T, fs *disk.Crash) {
			require.NoError(t, fs.RemoveAll(twoDirs[0]))
			require.NoError(t, fs.MkdirAll(twoDirs[0]))
		}, twoDirs, "now empty or missing"},
		{"missing", func(t *testing.T, fs *disk.Crash) { require.NoError(t, fs.RemoveAll(twoDirs[0])) }, twoDirs, "now empty or missing"},
		{"mixed up", func(t *testing.T, fs *disk.Crash) {
			require.NoError(t, fs.Rename(twoDirs[0], "/tmp-dir"))
			require.NoError(t, fs.Rename(twoDirs[1], twoDirs[0]))
			require.NoError(t, fs.Rename("/tmp-dir", twoDirs[1]))
		}, twoDirs, "mixed up"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fs := initialised(t)
			if c.prepare != nil {
				c.prepare(t, fs)
			}
			_, err := OpenDirs(dirsConfig(fs, c.dirs...))
			var refused *DirError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, c.want)
			if files, err := fs.List("/new"); err == nil {
				require.NotContains(t, files, lockName, "a foreign directory gets no file of ours")
			}
			if c.name == "unmounted" {
				require.Empty(t, list(t, fs, twoDirs[0]), "an unmounted directory is not written to")
			}
			// Every lock was given back.
			d, err := OpenDirs(dirsConfig(initialised(t), twoDirs...))
			require.NoError(t, err)
			require.NoError(t, d.Close())
		})
	}
}

// TestLostDirectoryName: a known directory whose meta.properties is gone over full
// folders, or garbled, is called that, and the lines of the remedy bring it back.
func TestLostDirectoryName(t *testing.T) {
	for how, c := range map[string]struct {
		damage func(fs disk.FS, name string) error
		want   string
	}{
		"missing": {func(fs disk.FS, name string) error { return fs.Remove(name) }, "meta.properties is missing, though it holds replicas (t-0)"},
		"garbled": {func(fs disk.FS, name string) error { return disk.WriteFileAtomic(fs, name, []byte("garbage")) }, "cannot be understood"},
		"empty":   {func(fs disk.FS, name string) error { return disk.WriteFileAtomic(fs, name, nil) }, "is empty or damaged"},
	} {
		for i, dir := range twoDirs { // the cluster id is known from the first one, or not
			t.Run(how+path.Base(dir), func(t *testing.T) {
				fs := initialised(t)
				name := path.Join(dir, metaName)
				before, err := disk.ReadFile(fs, name)
				require.NoError(t, err)
				require.NoError(t, disk.EnsureDir(fs, path.Join(dir, "t-0")))
				require.NoError(t, c.damage(fs, name))
				_, err = OpenDirs(dirsConfig(fs, twoDirs...))
				require.ErrorContains(t, err, c.want)
				require.NotContains(t, err.Error(), "empty or missing")
				_, lines, found := strings.Cut(err.Error(), "with the lines ")
				require.True(t, found, "%v", err)
				if i == 0 {
					unknown := "<cluster.id in /data/metadata/meta.properties>"
					require.Contains(t, lines, unknown)
					lines = strings.Replace(lines, unknown, clusterID, 1)
				}
				text := strings.ReplaceAll(strings.TrimSuffix(lines, ")"), ", ", "\n") + "\n"
				want, err := parseMeta(before)
				require.NoError(t, err)
				got, err := parseMeta([]byte(text))
				require.NoError(t, err)
				require.Equal(t, want, got)
				require.NoError(t, disk.WriteFileAtomic(fs, name, []byte(text)))
				d, err := OpenDirs(dirsConfig(fs, twoDirs...))
				require.NoError(t, err)
				require.NoError(t, d.Close())
			})
		}
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	fs := initialised(t)
	first, err := OpenDirs(dirsConfig(fs, twoDirs...))
	require.NoError(t, err)
	_, err = OpenDirs(dirsConfig(fs, twoDirs...))
	require.ErrorIs(t, err, disk.ErrLocked)
	require.ErrorContains(t, err, twoDirs[0])
	require.NoError(t, first.Close())
	require.NoError(t, first.Close())
	again, err := OpenDirs(dirsConfig(fs, twoDirs...))
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

// TestInitSurvivesAnyStop cuts the power at each call of a first start: the next
// start succeeds, with the directory's id where it had one.
func TestInitSurvivesAnyStop(t *testing.T) {
	for i := int64(0); ; i++ {
		crash := disk.NewCrash(uint64(i))
		require.NoError(t, disk.EnsureDir(crash, metadataDir))
		fs := disk.NewFault(crash, disk.FailFrom(i))
		d, err := OpenDirs(dirsConfig(fs, twoDirs...))
		if err == nil {
			err = d.Init(clusterID)
		}
		after := crash.Clone(newRand(uint64(i)))
		again, err2 := OpenDirs(dirsConfig(after, twoDirs...))
		require.NoError(t, err2, "stopped at call %d", i)
		require.NoError(t, again.Init(clusterID))
		require.NoError(t, again.Close())
		if err == nil {
			return
		}
	}
}

func TestCleanStopNeedsEveryDirectory(t *testing.T) {
	fs := initialised(t)
	previous := func() cluster.BrokerEpoch {
		d, err := OpenDirs(dirsConfig(fs, twoDirs...))
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		return d.PreviousEpoch()
	}
	require.Equal(t, cluster.NoBrokerEpoch, previous())
	require.NoError(t, writeCleanStop(fs, twoDirs[0], 7))
	require.Equal(t, cluster.NoBrokerEpoch, previous())
	require.NoError(t, writeCleanStop(fs, twoDirs[1], 7))
	require.Equal(t, cluster.BrokerEpoch(7), previous())
	require.NoError(t, writeCleanStop(fs, twoDirs[1], 8))
	require.Equal(t, cluster.NoBrokerEpoch, previous())
	require.NoError(t, disk.WriteFileAtomic(fs, path.Join(twoDirs[1], cleanName), []byte("{")))
	require.Equal(t, cluster.NoBrokerEpoch, previous())
}

func TestCheckpointText(t *testing.T) {
	offsets := map[folderKey]cluster.Offset{{"b", 1}: 5, {"a-b", 10}: 1 << 40, {"a-b", 2}: 0}
	text := encodeOffsets(offsets)
	require.Equal(t, "0\n3\na-b 2 0\na-b 10 1099511627776\nb 1 5\n", string(text))
	parsed, err := parseOffsets(text)
	require.NoError(t, err)
	require.Equal(t, offsets, parsed)
	for _, bad := range []string{"", "1\n0\n", "0\nx\n", "0\n2\na 1 2\n", "0\n1\na 1\n", "0\n1\na 1 -2\n", "0\n-1\n"} {
		_, err := parseOffsets([]byte(bad))
		require.ErrorIs(t, err, errBadCheckpoint, "%q", bad)
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte("0\n1\na 1 2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := parseOffsets(data)
		if err != nil {
			return
		}
		again, err := parseOffsets(encodeOffsets(parsed))
		require.NoError(t, err)
		require.Equal(t, parsed, again)
	})
}

func TestFolderNames(t *testing.T) {
	for name, want := range map[string]folderKey{"t-0": {"t", 0}, "a-b-12": {"a-b", 12}, "x.y_z-3": {"x.y_z", 3}, "t--1": {"t-", 1}} {
		k, ok := parseFolder(name)
		require.True(t, ok, name)
		require.Equal(t, want, k)
		require.Equal(t, name, k.String())
	}
	for _, name := range []string{"t", "-1", "t-", "t-x", "t-+1", "meta.properties", "t-0.0123-delete"} {
		_, ok := parseFolder(name)
		require.False(t, ok, name)
	}
	long := folderKey{topic: string(make([]byte, 249)), partition: 12}
	require.Len(t, asideName(long, deleteSuffix), nameMax)
}

func TestPartitionMetadata(t *testing.T) {
	m := partitionMeta{topic: cluster.NewTopicID(), index: 42}
	parsed, err := parsePartitionMeta(m.encode())
	require.NoError(t, err)
	require.Equal(t, m, parsed)
	// Apache Kafka's own: no image index, so that nothing is ever deleted for
	// lack of a topic.
	parsed, err = parsePartitionMeta([]byte("version: 0\ntopic_id: " + m.topic.String() + "\n"))
	require.NoError(t, err)
	require.Equal(t, uint64(1<<64-1), parsed.index)
	for _, bad := range []string{"", "version: 0\n", "version: 0\ntopic_id: x\n"} {
		_, err = parsePartitionMeta([]byte(bad))
		require.True(t, errors.Is(err, errBadPartitionMeta), "%q", bad)
	}
}
