package groups

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"strandline/broker/coordinator"
	"strandline/broker/group"
	"strandline/broker/locallog"
	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/image"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const self = cluster.BrokerID(1)

// cluster of one broker, as its image shows it.
type world struct {
	mu       sync.Mutex
	img      *image.Image
	sequence uint64
	subs     []func(*image.Image, *image.Delta)
}

func newWorld() *world {
	w := &world{img: image.Empty()}
	w.apply(command.ControllerStarted{Node: self}, command.ClusterCreated{ClusterID: "c"})
	w.topic(Topic, 2)
	return w
}

func (w *world) apply(records ...command.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := command.Command{Level: command.Level, ControllerEpoch: 1, Sequence: w.sequence, TimeMs: 1, Records: records}
	img, d, err := w.img.Apply(image.Position{Index: w.sequence + 1, Term: 1}, c)
	if err != nil {
		panic(err)
	}
	w.sequence++
	w.img = img
	for _, fn := range w.subs {
		fn(img, d)
	}
}

func (w *world) topic(name string, partitions int32) cluster.TopicID {
	id := cluster.NewTopicID()
	w.apply(command.TopicCreated{ID: id, Name: name, Partitions: partitions},
		command.PartitionsAdded{Topic: id, Total: partitions, Partitions: alone(partitions)})
	return id
}

func alone(n int32) []command.NewPartition {
	out := make([]command.NewPartition, n)
	for i := range out {
		out[i] = command.NewPartition{Leader: self, Replicas: []cluster.BrokerID{self}, ISR: []cluster.BrokerID{self}}
	}
	return out
}

func (w *world) Image() *image.Image {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.img
}

func (w *world) Subscribe(fn func(*image.Image, *image.Delta)) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn(w.img, image.Diff(image.Empty(), w.img))
	w.subs = append(w.subs, fn)
	n := len(w.subs) - 1
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.subs[n] = func(*image.Image, *image.Delta) {}
	}
}

// replica is a real partition whose appends can be refused and whose high
// watermark can be held back.
type replica struct {
	*partition.Partition

	mu      sync.Mutex
	refuse  error
	held    bool
	mark    cluster.Offset
	waiters map[*partition.Waiter]bool
}

func (r *replica) Append(req partition.AppendRequest) (partition.AppendResult, *partition.Commit, error) {
	r.mu.Lock()
	err := r.refuse
	r.mu.Unlock()
	if err != nil {
		return partition.AppendResult{}, nil, err
	}
	return r.Partition.Append(req)
}

func (r *replica) LogState() partition.LogState {
	st := r.Partition.LogState()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held {
		st.HighWatermark = min(st.HighWatermark, r.mark)
	}
	return st
}

func (r *replica) AddWaiter(w *partition.Waiter) {
	r.mu.Lock()
	r.waiters[w] = true
	r.mu.Unlock()
	r.Partition.AddWaiter(w)
}

func (r *replica) RemoveWaiter(w *partition.Waiter) {
	r.mu.Lock()
	delete(r.waiters, w)
	r.mu.Unlock()
	r.Partition.RemoveWaiter(w)
}

// hold keeps the high watermark where it is until let.
func (r *replica) hold() {
	mark := r.Partition.LogState().HighWatermark
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held, r.mark = true, mark
}

func (r *replica) let() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = false
	for w := range r.waiters {
		select {
		case w.C <- struct{}{}:
		default:
		}
	}
}

func (r *replica) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = err
}

// kit is Groups over a real runtime and real partitions, on a disk in memory.
type kit struct {
	t        *testing.T
	fs       disk.FS
	w        *world
	cfg      config.Groups
	views    *coordinator.Views
	runtime  *coordinator.Runtime
	groups   *Groups
	replicas []*replica
	epoch    cluster.LeaderEpoch
	members  atomic.Int64 // ids given
}

// bubble runs a test on a fake clock.
func bubble(t *testing.T, run func(t *testing.T, k *kit), props ...string) {
	synctest.Test(t, func(t *testing.T) {
		set := map[string]string{}
		for i := 0; i < len(props); i += 2 {
			set[props[i]] = props[i+1]
		}
		b, _, err := config.ParseBroker(set)
		require.NoError(t, err)
		k := &kit{t: t, fs: disk.NewCrash(1), w: newWorld(), cfg: b.Groups}
		k.open()
		defer k.close()
		run(t, k)
	})
}

func (k *kit) open() {
	var err error
	k.views, err = coordinator.OpenViews(coordinator.ViewsConfig{FS: k.fs, Dir: "/m/views"})
	require.NoError(k.t, err)
	k.groups = New(Config{Watch: k.w, Groups: k.cfg})
	k.runtime = coordinator.New(coordinator.Config{Topic: Topic, Views: k.views, Schema: Schema{}, NewMachine: k.groups.Machine})
	k.groups.Start(k.runtime)
	topic, _ := k.w.Image().Topic(Topic)
	k.replicas = nil
	k.epoch++
	for i := range topic.Partitions {
		tp := cluster.TopicPartition{Topic: topic.ID, Partition: int32(i)}
		settings := config.EffectiveTopic(config.Layers{Topic: map[string]string{"cleanup.policy": "compact"}})
		dir := fmt.Sprintf("/logs/%s-%d", Topic, i)
		require.NoError(k.t, disk.EnsureDir(k.fs, dir))
		log, err := locallog.Open(locallog.Config{FS: k.fs, Dir: dir, Partition: tp.String(), Settings: partition.LogSettings(settings), LogStart: cluster.NoOffset})
		require.NoError(k.t, err)
		p := partition.New(partition.Config{TopicPartition: tp, Topic: Topic, Self: self, Settings: settings, Log: log, HighWatermark: cluster.NoOffset})
		r := &replica{Partition: p, waiters: map[*partition.Waiter]bool{}}
		k.replicas = append(k.replicas, r)
		k.lead(r, k.epoch)
		k.runtime.Host(r)
	}
	synctest.Wait()
}

func (k *kit) lead(r *replica, epoch cluster.LeaderEpoch) {
	one := []cluster.BrokerID{self}
	require.NoError(k.t, r.Become(context.Background(), partition.Leadership{
		Leader: self, LeaderEpoch: epoch, PartitionEpoch: cluster.PartitionEpoch(epoch), Replicas: one, ISR: one,
	}))
}

// resign has this broker lead the partition no more; again has it do so again.
func (k *kit) resign(r *replica) {
	k.epoch++
	two := []cluster.BrokerID{self, 2}
	require.NoError(k.t, r.Become(context.Background(), partition.Leadership{
		Leader: 2, LeaderEpoch: k.epoch, PartitionEpoch: cluster.PartitionEpoch(k.epoch), Replicas: two, ISR: two,
	}))
	synctest.Wait()
}

func (k *kit) again(r *replica) {
	k.epoch++
	k.lead(r, k.epoch)
	synctest.Wait()
}

func (k *kit) close() {
	require.NoError(k.t, k.groups.Close())
	require.NoError(k.t, k.runtime.Close())
	require.NoError(k.t, k.views.Close())
	for _, r := range k.replicas {
		require.NoError(k.t, r.Close(false))
	}
	require.Empty(k.t, k.groups.Stats().Groups, "nothing is counted after the end")
}

// restart ends everything and begins again with what the disk has.
func (k *kit) restart() {
	k.close()
	k.open()
}

// of is the replica that keeps a group.
func (k *kit) of(groupID string) *replica {
	p, err := k.groups.partition(groupID)
	require.NoError(k.t, err)
	return k.replicas[p]
}

// held lists the groups in memory.
func (k *kit) inMemory() []string {
	var ids []string
	for _, r := range k.replicas {
		done := make(chan struct{})
		require.NoError(k.t, k.runtime.Do(r.TopicPartition().Partition, func(_ time.Time, m coordinator.Machine, _ *coordinator.Tx) {
			for id := range m.(*shard).groups {
				ids = append(ids, id)
			}
			require.Empty(k.t, m.(*shard).waiting)
			close(done)
		}))
		<-done
	}
	return ids
}

// pass waits for a whole pass over all partitions.
func (k *kit) pass() {
	synctest.Wait()
	<-time.After(k.cfg.OffsetsRetentionCheck + firstSweep + time.Second)
	synctest.Wait()
}

// later is what a call in the background comes to.
type later[R any] struct {
	done chan struct{}
	res  R
	err  error
}

func start[R any](fn func() (R, error)) *later[R] {
	l := &later[R]{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.res, l.err = fn()
	}()
	synctest.Wait()
	return l
}

// pending says that the call still waits.
func (l *later[R]) pending() bool {
	synctest.Wait()
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

func (l *later[R]) wait(t *testing.T) R {
	t.Helper()
	<-l.done
	require.NoError(t, l.err)
	return l.res
}

// join asks for membership with a subscription.
func (k *kit) join(ctx context.Context, groupID, memberID string, topics ...string) *later[group.JoinResponse] {
	return start(func() (group.JoinResponse, error) {
		return k.groups.Join(ctx, groupID, group.JoinRequest{
			MemberID: memberID, NewMemberID: fmt.Sprint("m", k.members.Add(1)), ProtocolType: group.ConsumerProtocol,
			Client: group.Client{ID: "client", Host: "/h"}, SessionTimeout: 10 * time.Second, RebalanceTimeout: 20 * time.Second,
			Protocols: []group.Protocol{{Name: "range", Metadata: subscription(topics...)}},
		})
	})
}

func (k *kit) sync(groupID string, j group.JoinResponse, assignments ...group.Assignment) *later[group.SyncResponse] {
	return start(func() (group.SyncResponse, error) {
		return k.groups.Sync(k.t.Context(), groupID, group.SyncRequest{
			MemberID: j.MemberID, Generation: j.Generation, ProtocolType: group.ConsumerProtocol, Protocol: "range", Assignments: assignments,
		})
	})
}

// stable makes a classic group of one member that reads a topic.
func (k *kit) stable(groupID, topic string) group.JoinResponse {
	k.t.Helper()
	j := k.join(k.t.Context(), groupID, "", topic).wait(k.t)
	require.Equal(k.t, j.MemberID, j.Leader)
	s := k.sync(groupID, j, group.Assignment{MemberID: j.MemberID, Assignment: assigned(topic, 0)}).wait(k.t)
	require.Equal(k.t, assigned(topic, 0), s.Assignment)
	return j
}

func (k *kit) heartbeat(groupID string, j group.JoinResponse) error {
	return k.groups.Heartbeat(k.t.Context(), groupID, group.HeartbeatRequest{MemberID: j.MemberID, Generation: j.Generation})
}

// commit commits an offset of a topic's first partition; without a member where
// j is zero.
func (k *kit) commit(groupID, topic string, o cluster.Offset, j group.JoinResponse) error {
	req := group.CommitRequest{MemberID: j.MemberID, Generation: j.Generation, Retention: -1}
	if j.MemberID == "" {
		req.Generation = -1
	}
	t, ok := k.w.Image().Topic(topic)
	require.True(k.t, ok)
	req.Partitions = []group.CommitPartition{{Topic: topic, TopicID: t.ID, Offset: o, LeaderEpoch: 3, Metadata: "meta"}}
	res, err := k.groups.Commit(k.t.Context(), groupID, req)
	if err == nil {
		err = errors.Join(res.Partitions...)
	}
	return err
}

// committed is the offset of a topic's first partition; NoOffset: none.
func (k *kit) committed(groupID, topic string) cluster.Offset {
	k.t.Helper()
	p := group.FetchPartition{Topic: topic}
	if t, ok := k.w.Image().Topic(topic); ok {
		p.TopicID = t.ID
	}
	res, err := k.groups.FetchOffsets(k.t.Context(), groupID, group.OffsetFetchRequest{MemberEpoch: -1, Partitions: []group.FetchPartition{p}})
	require.NoError(k.t, err)
	require.Len(k.t, res.Offsets, 1)
	require.NoError(k.t, res.Offsets[0].Err)
	return res.Offsets[0].Offset
}

func (k *kit) list(states ...group.State) map[string]group.Listed {
	list, err := k.groups.List(k.t.Context(), group.ListFilter{States: states})
	require.NoError(k.t, err)
	out := map[string]group.Listed{}
	for _, l := range list {
		require.NotContains(k.t, out, l.GroupID)
		out[l.GroupID] = l
	}
	return out
}

// assigned is what a leader of consumers gives to one of them.
func assigned(topic string, partitions ...int32) []byte {
	a := kmsg.NewConsumerMemberAssignment()
	a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: topic, Partitions: partitions}}
	return a.AppendTo(nil)
}

// subscription is what a consumer without anything else to say sends.
func subscription(topics ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(len(topics)))
	for _, t := range topics {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(t))), t...)
	}
	return binary.BigEndian.AppendUint32(b, 1<<32-1)
}
