package consumer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/group"
)

// large is a group of many members that have what they are to have.
func large(b *testing.B, members int) (*Group, Env, time.Time) {
	w := newWorld()
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("t%02d", i))
		w.set(names[i], 100, nil)
	}
	env := Env{Config: DefaultConfig(), Topics: w}
	env.Config.AssignmentInterval = time.Hour
	g, now := New("g"), time.UnixMilli(1)
	for i := range members {
		fx := g.Heartbeat(now, env, group.ConsumerHeartbeatRequest{
			MemberID: fmt.Sprintf("m%04d", i), SubscribedTopics: names, Owned: []group.TopicPartitions{}, RebalanceTimeout: time.Minute,
		})
		require.NoError(b, fx.Replies[0].Err)
	}
	return g, env, now
}

// Nearly all heartbeats are such: nothing has changed.
func BenchmarkHeartbeat(b *testing.B) {
	g, env, now := large(b, 1000)
	m := g.members["m0500"]
	req := group.ConsumerHeartbeatRequest{MemberID: m.id, MemberEpoch: m.epoch, RebalanceTimeout: -1}
	g.Heartbeat(now, env, req)
	b.ReportAllocs()
	for b.Loop() {
		if fx := g.Heartbeat(now, env, req); len(fx.Records) > 0 || fx.Replies[0].Err != nil {
			b.Fatal(fx)
		}
		g.Deadline()
	}
}

// A member that comes to a large group.
func BenchmarkRetarget(b *testing.B) {
	g, env, now := large(b, 1000)
	for b.Loop() {
		now = now.Add(2 * time.Hour)
		e := &event{Group: g, Env: env, now: now}
		e.bump(true)
		e.retarget()
	}
}
