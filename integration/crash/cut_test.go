package crash

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/integration/kit"
)

// TestALogCutBelowItsView takes the end of the log of groups away, below what
// their view has: the view is built again from what the log still has, and
// groups go on from there (I10). Where the log was known to be on the disk it is
// refused first, until somebody says that it may go on without its end.
func TestALogCutBelowItsView(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	s := kit.Start(t, map[string]string{"offsets.topic.num.partitions": "1"})
	s.Set("listeners", "PLAINTEXT://"+s.Addr)
	topic := fillTopic(t, s.Addr, "read", 1, 1)
	cl := groupClient(t, s.Addr)
	defer cl.Close()
	for at := int64(1); at <= 20; at++ {
		require.NoError(t, commitOffset(t.Context(), cl, "first", topic, at, 0))
		require.NoError(t, commitOffset(t.Context(), cl, "second", topic, 100+at, 0))
	}
	requireCommitted(t, s, map[string]int64{"first": 20, "second": 120})

	require.Zero(t, s.Stop()) // the view is durable, and so is the log's end
	cutGroups(t, s, 21)
	s.Spawn()
	kit.Eventually(t, 30*time.Second, "it says what to do, and serves what else there is", func() bool {
		return strings.Contains(s.Log(), "take the partition out of recovery-point-offset-checkpoint") && strings.Contains(s.Log(), "clients are served")
	})
	requireNoCoordinator(t, s.Addr)
	s.Kill()
	forgetGroups(t, s)
	s.MustStart()
	requireCommitted(t, s, map[string]int64{"first": 11, "second": 110})
	require.EqualValues(t, 1, rebuilt(s))
	require.NoError(t, commitOffset(t.Context(), cl, "second", topic, 500, 0))
	requireCommitted(t, s, map[string]int64{"first": 11, "second": 500})

	s.Restart(false)
	require.Zero(t, rebuilt(s), "a view that is of its log stays")
	requireCommitted(t, s, map[string]int64{"first": 11, "second": 500})

	// Longer than the view again, but of another history.
	require.Zero(t, s.Stop())
	cutGroups(t, s, 2)
	forgetGroups(t, s)
	views := filepath.Join(s.Dir, "metadata", "views")
	require.NoError(t, os.Rename(views, views+".kept"))
	s.MustStart()
	for at := int64(1000); at < 1100; at++ {
		require.NoError(t, commitOffset(t.Context(), cl, "first", topic, at, 0))
	}
	require.Zero(t, s.Stop())
	require.NoError(t, os.RemoveAll(views))
	require.NoError(t, os.Rename(views+".kept", views))
	s.MustStart()
	require.EqualValues(t, 1, rebuilt(s), "the log has another epoch where the view ends")
	requireCommitted(t, s, map[string]int64{"first": 1099, "second": 101})
	require.NoError(t, commitOffset(t.Context(), cl, "first", topic, 2000, 0))
	s.Restart(true)
	requireCommitted(t, s, map[string]int64{"first": 2000, "second": 101})
}

const groupsDir = "__consumer_offsets-0"

func cutGroups(t *testing.T, s *kit.Server, batches int) {
	t.Helper()
	cutLog(t, filepath.Join(s.Dir, "logs", groupsDir), batches)
}

func forgetGroups(t *testing.T, s *kit.Server) {
	t.Helper()
	forgetRecoveryPoint(t, filepath.Join(s.Dir, "logs"), "__consumer_offsets 0 ")
}

func rebuilt(s *kit.Server) float64 {
	return s.Metric("strandline_coordinator_views_rebuilt_total", `topic="__consumer_offsets"`)
}

func requireCommitted(t *testing.T, s *kit.Server, want map[string]int64) {
	t.Helper()
	cl := groupClient(t, s.Addr)
	defer cl.Close()
	for group, at := range want {
		offsets, err := kadm.NewClient(cl).FetchOffsets(t.Context(), group)
		require.NoError(t, err, group)
		got, ok := offsets.Lookup("read", 0)
		require.True(t, ok, group)
		require.Equal(t, at, got.At, group)
		require.Equal(t, fmt.Sprint(group, " at ", at), got.Metadata)
	}
}

// requireNoCoordinator: without its log a group has no answer, least of all an
// old one.
func requireNoCoordinator(t *testing.T, addr string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestRetries(1), kgo.RetryTimeout(time.Second))
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = kadm.NewClient(cl).FetchOffsets(ctx, "first")
	require.Error(t, err)
}

// cutLog leaves the first batches of a log of one segment.
func cutLog(t *testing.T, dir string, batches int) {
	t.Helper()
	name := filepath.Join(dir, "00000000000000000000.log")
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	end := 0
	for range batches {
		require.Less(t, end+12, len(b), "the log has fewer batches")
		end += 12 + int(binary.BigEndian.Uint32(b[end+8:]))
	}
	require.Less(t, end, len(b), "there is something to cut")
	require.NoError(t, os.Truncate(name, int64(end)))
}

// forgetRecoveryPoint takes a partition out of a log directory's checkpoint.
func forgetRecoveryPoint(t *testing.T, dir, partition string) {
	t.Helper()
	name := filepath.Join(dir, "recovery-point-offset-checkpoint")
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	kept := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.HasPrefix(l, partition) })
	require.Len(t, kept, len(lines)-1)
	kept[1] = strconv.Itoa(len(kept) - 2)
	require.NoError(t, os.WriteFile(name, []byte(strings.Join(kept, "\n")+"\n"), 0o600))
}
