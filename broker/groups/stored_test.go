package groups

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/coordinator"
	"strandline/broker/group"
)

// countedReader counts what is read of a view.
type countedReader struct {
	coordinator.Reader
	gets int
}

func (r *countedReader) Get(viewKey []byte) (coordinator.Entry, bool, error) {
	r.gets++
	return r.Reader.Get(viewKey)
}

// reads has a group's shard count what it reads, and returns what it has read
// since the last call.
func (k *kit) reads(groupID string) (n int) {
	p := k.of(groupID).TopicPartition().Partition
	done := make(chan struct{})
	require.NoError(k.t, k.runtime.Do(p, func(_ time.Time, m coordinator.Machine, _ *coordinator.Tx) {
		s := m.(*shard)
		if counted, ok := s.reader.(*countedReader); ok {
			n, counted.gets = counted.gets, 0
		} else {
			s.reader = &countedReader{Reader: s.reader}
		}
		close(done)
	}))
	<-done
	return n
}

// TestCommitsWithoutMembersReadNothing also where there are groups that had some.
func TestCommitsWithoutMembersReadNothing(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		k.reads("simple")
		for o := range 3 {
			require.NoError(t, k.commit("simple", "t", 5, group.JoinResponse{}), o)
		}
		require.Zero(t, k.reads("simple"))

		// What had members is known at once, after a restart and after a pass.
		j := k.stable("had", "t")
		_, err := k.groups.Leave(t.Context(), "had", group.LeaveRequest{Members: []group.LeavingMember{{MemberID: j.MemberID}}})
		require.NoError(t, err)
		knows := func(when string) {
			t.Helper()
			require.Empty(t, k.inMemory(), when)
			k.reads("had")
			require.ErrorIs(t, k.commit("had", "t", 1, j), group.ErrUnknownMember, when)
			require.NoError(t, k.commit("had", "t", 6, group.JoinResponse{}), when)
			require.Equal(t, 4, k.reads("had"), when)
			require.Equal(t, group.ConsumerProtocol, k.list()["had"].ProtocolType, when)
			k.reads("simple")
			require.NoError(t, k.commit("simple", "t", 7, group.JoinResponse{}), when)
			require.Zero(t, k.reads("simple"), when)
		}
		knows("at once")
		k.pass()
		knows("after a pass")
		k.restart()
		knows("after a restart")

		// A pass forgets what was deleted.
		require.NoError(t, k.groups.Delete(t.Context(), "had"))
		require.NoError(t, k.commit("had", "t", 8, group.JoinResponse{}))
		require.NotZero(t, k.reads("had"))
		k.pass()
		require.NoError(t, k.commit("had", "t", 9, group.JoinResponse{}))
		k.reads("had")
		require.NoError(t, k.commit("had", "t", 9, group.JoinResponse{}))
		require.Zero(t, k.reads("had"))
		require.Empty(t, k.list()["had"].ProtocolType)
	}, "offsets.retention.check.interval.ms", "60000")
}

// TestAGroupThatComesDuringAPassIsKnownAfterIt holds a pass in its middle.
func TestAGroupThatComesDuringAPassIsKnownAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		var before, during *shard
		var running, known bool
		p := k.of("g").TopicPartition().Partition
		shardOf := func(fn func(*shard)) {
			done := make(chan struct{})
			require.NoError(t, k.runtime.Do(p, func(_ time.Time, m coordinator.Machine, _ *coordinator.Tx) { fn(m.(*shard)); close(done) }))
			<-done
		}
		shardOf(func(s *shard) {
			before = s
			s.sweep = sweep{running: true, phase: sweepConsumers, began: k.groups.cfg.Now(), cursor: []byte{byte(group.ConsumerKind)}, next: k.groups.cfg.Now().Add(time.Minute)}
		})
		j := k.stable("g", "t")
		require.NoError(t, k.commit("g", "t", 1, j)) // or the next pass deletes it
		_, err := k.groups.Leave(t.Context(), "g", group.LeaveRequest{Members: []group.LeavingMember{{MemberID: j.MemberID}}})
		require.NoError(t, err)
		<-time.After(2 * time.Minute)
		shardOf(func(s *shard) {
			during, running, known = s, s.sweep.running, s.stored.maybe("g")
		})
		require.False(t, running)
		require.True(t, known)
		require.Same(t, before, during)
		require.ErrorIs(t, k.commit("g", "t", 1, j), group.ErrUnknownMember)
	})
}

func TestAFilterFindsWhatWasAdded(t *testing.T) {
	var s stored
	require.False(t, s.maybe("g"), "nothing was added")
	const n = 10_000
	for i := range n {
		s.add(fmt.Sprint("group-", i))
	}
	wrong := 0
	for i := range n {
		require.True(t, s.maybe(fmt.Sprint("group-", i)))
		if s.maybe(fmt.Sprint("other-", i)) {
			wrong++
		}
	}
	require.Less(t, wrong, n/20)
	t.Logf("%d of %d that were not added may be there", wrong, n)
}
