package classic

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
)

// metadata of a consumer that subscribes to topics joined by +, or the bytes
// after a !.
func metadata(topics string) []byte {
	if raw, ok := strings.CutPrefix(topics, "!"); ok {
		return []byte(raw)
	}
	v := kmsg.NewConsumerMemberMetadata()
	v.Version = 1
	v.Topics = strings.Split(topics, "+")
	return v.AppendTo(nil)
}

func subscription(metadata []byte) string {
	topics, err := group.SubscribedTopics(metadata)
	if err != nil {
		return "!" + string(metadata)
	}
	return "[" + strings.Join(topics, " ") + "]"
}

// check holds g to its invariants; open are the tokens that have no answer yet.
func check(t *testing.T, g *Group, open map[group.Token]bool) {
	t.Helper()
	parked := map[group.Token]bool{}
	for _, token := range g.Parked() {
		require.True(t, open[token], "C1: %d waits and is answered", token)
		require.False(t, parked[token], "C1")
		parked[token] = true
	}
	for token := range open {
		require.True(t, parked[token], "C1: %d is forgotten", token)
	}
	joining, unsynced, static := 0, 0, 0
	supporters := map[string]int{}
	for _, m := range g.members {
		require.Same(t, m, g.byID[m.id])
		require.False(t, m.join.waits && m.sync.waits, "C2")
		require.False(t, m.join.waits && m.unsynced, "C2")
		require.False(t, m.sync.waits && m.unsynced, "C2")
		require.Nil(t, g.pending[m.id])
		if m.join.waits {
			joining++
		}
		if m.unsynced {
			unsynced++
		}
		if m.instance != "" {
			static++
			require.Same(t, m, g.static[m.instance])
		}
		if m.sync.waits {
			require.Equal(t, group.CompletingRebalance, g.state, "C2")
		}
		if g.state == group.Stable || g.state == group.CompletingRebalance {
			require.NotNil(t, g.protocol)
			require.Equal(t, len(g.members), g.supporters[g.protocol])
		}
		seen := map[string]bool{}
		for _, p := range m.protocols {
			if !seen[p.Name] {
				seen[p.Name] = true
				supporters[p.Name]++
			}
		}
		require.NotNil(t, m.session)
		require.Equal(t, m.id, m.session.id)
		require.True(t, m.session.place >= 0 || m.excused() || g.state == group.Dead, "C5: %s could stay for ever", m.id)
	}
	require.Equal(t, joining, g.joining)
	require.Equal(t, unsynced, g.unsynced)
	require.Equal(t, supporters, g.supporters)
	require.Len(t, g.byID, len(g.members))
	require.Len(t, g.static, static)
	require.True(t, joining == 0 || g.state == group.PreparingRebalance, "C2")
	if g.state == group.Dead {
		require.Empty(t, parked, "C1")
		require.Zero(t, g.Deadline(), "C5")
		return
	}
	checkPhase(t, g)
}

func checkPhase(t *testing.T, g *Group) {
	t.Helper()
	if len(g.members) == 0 {
		require.Empty(t, g.leader, "C4")
	} else {
		require.NotNil(t, g.byID[g.leader], "C4")
	}
	if g.state == group.Empty {
		require.Empty(t, g.members)
		require.Empty(t, g.protocol, "C4")
	}
	require.Equal(t, g.state == group.PreparingRebalance, !g.join.at.IsZero(), "C5")
	if !g.syncBy.IsZero() {
		require.Positive(t, g.unsynced, "C5")
		require.True(t, g.state == group.CompletingRebalance || g.state == group.Stable, "C5")
	}
	require.True(t, g.unsynced == 0 || !g.syncBy.IsZero(), "C5")
	require.LessOrEqual(t, len(g.sessions), len(g.members)+len(g.pending), "C5")
	for i, s := range g.sessions {
		require.Equal(t, i, s.place)
		require.False(t, g.sessions.Less(i, 0), "C5: the first to end is on top")
		m := g.byID[s.id]
		require.True(t, g.pending[s.id] == s || m != nil && m.session == s, "C5: a session of nobody")
	}
}
