package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/cmd/serve"
	"strandline/integration/kit"
	"strandline/metadata/config"
	"strandline/metadata/disk"
)

// groupPromise is what had been acknowledged of consumer groups. Each group has
// one writer.
type groupPromise struct {
	offsets map[committed]int64 // at least
	sent    map[committed]int64 // at most; taken at the end of the run, not at the moment
	tried   map[string]bool     // groups that may be there; the same
	gone    map[string]bool     // groups whose deletion was answered
	dropped map[committed]bool  // offsets whose deletion was answered
	members map[string]bool     // groups that had a member
}

func newGroupPromise() groupPromise {
	return groupPromise{map[committed]int64{}, map[committed]int64{}, map[string]bool{}, map[string]bool{}, map[committed]bool{}, map[string]bool{}}
}

func (p groupPromise) copy() groupPromise {
	return groupPromise{maps.Clone(p.offsets), maps.Clone(p.sent), maps.Clone(p.tried), maps.Clone(p.gone), maps.Clone(p.dropped), maps.Clone(p.members)}
}

type groupPromises struct {
	mu  sync.Mutex
	now groupPromise
}

func (p *groupPromises) change(f func(*groupPromise)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.now)
}

func (p *groupPromises) copy() groupPromise {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.copy()
}

const groupsRead = "read"

// commitForGroups commits rising offsets for a group.
func commitForGroups(ctx context.Context, t *testing.T, addr, group string, topic topicRef, p *groupPromises) {
	cl := groupClient(t, addr)
	defer cl.Close()
	for at := int64(1); ctx.Err() == nil; at++ {
		places := []committed{{group, groupsRead, 0}, {group, groupsRead, 1}}
		p.change(func(p *groupPromise) {
			p.tried[group] = true
			for _, place := range places {
				p.sent[place] = at
			}
		})
		if err := commitOffset(context.Background(), cl, group, topic, at, 0, 1); err != nil {
			t.Errorf("commit for %s: %v", group, err)
			return
		}
		p.change(func(p *groupPromise) {
			for _, place := range places {
				p.offsets[place] = at
			}
		})
	}
}

// changeGroups makes groups and keeps one, deletes one, and deletes one of the
// offsets of another.
func changeGroups(ctx context.Context, t *testing.T, addr string, topic topicRef, p *groupPromises) {
	cl := groupClient(t, addr)
	defer cl.Close()
	adm, done := kadm.NewClient(cl), context.Background()
	for n := 0; ctx.Err() == nil; n++ {
		group := fmt.Sprint("made-", n)
		first, second := committed{group, groupsRead, 0}, committed{group, groupsRead, 1}
		p.change(func(p *groupPromise) {
			p.tried[group] = true
			p.sent[first], p.sent[second] = int64(n), int64(n)
		})
		if err := commitOffset(done, cl, group, topic, int64(n), 0, 1); err != nil {
			t.Errorf("commit for %s: %v", group, err)
			return
		}
		switch n % 3 {
		case 0:
			p.change(func(p *groupPromise) { p.offsets[first], p.offsets[second] = int64(n), int64(n) })
		case 1:
			if _, err := adm.DeleteGroup(done, group); err != nil {
				t.Errorf("delete %s: %v", group, err)
				return
			}
			p.change(func(p *groupPromise) { p.gone[group] = true })
		case 2:
			p.change(func(p *groupPromise) { p.offsets[first] = int64(n) })
			resp, err := adm.DeleteOffsets(done, group, kadm.TopicsSet{groupsRead: {1: {}}})
			if err = errors.Join(err, resp.Error()); err != nil {
				t.Errorf("delete an offset of %s: %v", group, err)
				return
			}
			p.change(func(p *groupPromise) { p.dropped[second] = true })
		}
	}
}

// joinGroups has one member after the other join a group, commit with its
// generation, and leave.
func joinGroups(ctx context.Context, t *testing.T, addr string, p *groupPromises) {
	for n := 0; ctx.Err() == nil; n++ {
		group := fmt.Sprint("joined-", n%2)
		p.change(func(p *groupPromise) { p.tried[group] = true })
		opts := []kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(groupsRead), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(100 * time.Millisecond)}
		if n%2 == 1 {
			opts = append(opts, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
		}
		cl := groupClient(t, addr, opts...)
		for commits := 0; commits < 5 && ctx.Err() == nil; commits++ {
			fetches := cl.PollRecords(ctx, 3)
			for _, r := range fetches.Records() {
				place := committed{group, r.Topic, r.Partition}
				p.change(func(p *groupPromise) { p.sent[place] = max(p.sent[place], r.Offset+1) })
			}
			if err := cl.CommitRecords(context.Background(), fetches.Records()...); err != nil {
				if kerr.IsRetriable(err) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.StaleMemberEpoch) {
					continue // a rebalance came between
				}
				t.Errorf("commit of a member of %s: %v", group, err)
				break
			}
			p.change(func(p *groupPromise) {
				for _, r := range fetches.Records() {
					place := committed{group, r.Topic, r.Partition}
					p.offsets[place] = max(p.offsets[place], r.Offset+1)
					p.members[group] = true
				}
			})
		}
		if n%4 < 2 {
			_ = cl.LeaveGroupContext(context.Background())
		}
		cl.CloseAllowingRebalance()
	}
}

func checkGroupsMoment(t *testing.T, i int, fs *disk.Crash, topic topicRef, was groupPromise) {
	t.Helper()
	cfg, log := groupsConfig(t, fs), &bytes.Buffer{}
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	defer func() {
		if t.Failed() {
			t.Logf("clone %d:\n%s", i, log)
		}
	}()
	node, err := serve.Start(t.Context(), cfg)
	require.NoError(t, err, "clone %d starts", i)
	defer closeNode(t, node)
	checkGroups(t, i, addrOf(node), topic, was)
}

// checkGroups looks for everything that was acknowledged of groups, and for
// what nobody asked for; then the groups must go on.
func checkGroups(t *testing.T, i int, addr string, topic topicRef, was groupPromise) {
	t.Helper()
	cl := groupClient(t, addr)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	listed, err := adm.ListGroups(ctx)
	require.NoError(t, err, "clone %d", i)
	for group := range listed {
		require.True(t, was.tried[group], "clone %d: nobody made group %s", i, group)
	}
	offsets := map[string]kadm.OffsetResponses{}
	for group := range listed {
		offsets[group], err = adm.FetchOffsets(ctx, group)
		require.NoError(t, err, "clone %d: offsets of %s", i, group)
	}
	for place, at := range was.offsets {
		got, ok := offsets[place.group].Lookup(place.topic, place.partition)
		require.True(t, ok, "clone %d: %v was committed at %d and is gone", i, place, at)
		require.GreaterOrEqual(t, got.At, at, "clone %d: %v went back", i, place)
	}
	for group := range was.gone {
		require.NotContains(t, listed, group, "clone %d: its deletion was acknowledged", i)
	}
	for place := range was.dropped {
		_, ok := offsets[place.group].Lookup(place.topic, place.partition)
		require.False(t, ok, "clone %d: the deletion of %v was acknowledged", i, place)
	}
	for group := range was.members {
		require.Contains(t, listed, group, "clone %d", i)
	}
	for group, all := range offsets {
		all.Each(func(o kadm.OffsetResponse) {
			most, ok := was.sent[committed{group, o.Topic, o.Partition}]
			require.True(t, ok, "clone %d: nobody committed %s-%d for %s", i, o.Topic, o.Partition, group)
			require.LessOrEqual(t, o.At, most, "clone %d: %s-%d of %s was never sent", i, o.Topic, o.Partition, group)
			if !strings.HasPrefix(group, "joined-") {
				require.Equal(t, fmt.Sprint(group, " at ", o.At), o.Metadata, "clone %d: offset and metadata are of one commit", i)
			}
		})
	}
	if len(listed) == 0 {
		return
	}
	for _, group := range listed.Sorted() {
		if group.GroupType == "consumer" {
			d, err := adm.DescribeConsumerGroups(ctx, group.Group)
			require.NoError(t, err, "clone %d", i)
			require.NoError(t, d.Error(), "clone %d: describe %s", i, group.Group)
			continue
		}
		d, err := adm.DescribeGroups(ctx, group.Group)
		require.NoError(t, err, "clone %d", i)
		require.NoError(t, d.Error(), "clone %d: describe %s", i, group.Group)
	}
	require.NoError(t, commitOffset(ctx, cl, "rising-0", topic, 1<<40, 0, 1), "clone %d: commits go on", i)
	after, err := adm.FetchOffsets(ctx, "rising-0")
	require.NoError(t, err, "clone %d", i)
	got, _ := after.Lookup(groupsRead, 0)
	require.Equal(t, int64(1<<40), got.At, "clone %d", i)
}

// groupsConfig keeps everything on a disk in memory; the log of the groups rolls
// and is compacted all the time.
func groupsConfig(t *testing.T, fs disk.FS) serve.Config {
	t.Helper()
	b, _, err := config.ParseBroker(map[string]string{
		"log.dirs": "/d/logs", "metadata.log.dir": "/d/metadata", "remote.cache.dir": "/d/cache", "remote.store.url": "file:///d/tier",
		"listeners": "PLAINTEXT://127.0.0.1:0", "admin.listeners": "http://127.0.0.1:0",
		"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100", "log.segment.delete.delay.ms": "100",
		"offsets.topic.num.partitions": "3", "offsets.topic.segment.bytes": "20000",
		"log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.01", "log.cleaner.delete.retention.ms": "100",
		"log.cleaner.dedupe.buffer.size": "1048576", "group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "0",
		"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "1000",
		"group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "100",
	})
	require.NoError(t, err)
	return serve.Config{Broker: b, FS: fs, Version: "test", Commit: "test"}
}

// TestCommitsSurvivePowerLoss clones the disk at random moments of a broker that
// serves groups, and looks on each clone for every commit and deletion that had
// been acknowledged by then, and for nothing else.
func TestCommitsSurvivePowerLoss(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many nodes")
	}
	clones := 40
	if kit.Long() {
		clones = 500
	}
	r := rand.New(rand.NewPCG(seedOf(t), 11))
	total := map[string]int{}
	for done := 0; done < clones; {
		n := min(10, clones-done)
		groupsRun(t, rand.New(rand.NewPCG(r.Uint64(), 1)), n, total)
		done += n
	}
	t.Logf("%d clones: %v", clones, total)
	for what, n := range total {
		require.Positive(t, n, what)
	}
}

func groupsRun(t *testing.T, r *rand.Rand, clones int, total map[string]int) {
	t.Helper()
	fs := disk.NewCrash(r.Uint64())
	node, err := serve.Start(t.Context(), groupsConfig(t, fs))
	require.NoError(t, err)
	addr, p := addrOf(node), &groupPromises{now: newGroupPromise()}
	topic := fillTopic(t, addr, groupsRead, 2, 1500)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := range 2 {
		wg.Go(func() { commitForGroups(ctx, t, addr, fmt.Sprint("rising-", n), topic, p) })
	}
	wg.Go(func() { changeGroups(ctx, t, addr, topic, p) })
	wg.Go(func() { joinGroups(ctx, t, addr, p) })
	type moment struct {
		disk *disk.Crash
		was  groupPromise
	}
	var moments []moment
	for range clones - 1 {
		<-time.After(time.Duration(5+r.IntN(150)) * time.Millisecond)
		was := p.copy()
		moments = append(moments, moment{fs.Clone(r), was})
	}
	stop()
	wg.Wait()
	closeNode(t, node)
	moments = append(moments, moment{fs.Clone(r), p.copy()})
	final := p.copy()
	for i, m := range moments {
		m.was.sent, m.was.tried = final.sent, final.tried
		checkGroupsMoment(t, i, m.disk, topic, m.was)
	}
	for what, n := range map[string]int{
		"offsets": len(final.offsets), "deleted groups": len(final.gone), "deleted offsets": len(final.dropped), "groups that had members": len(final.members),
	} {
		total[what] += n
	}
}
