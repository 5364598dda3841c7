package tiercases

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topicState is what a driver knows of one topic: what was acknowledged, and
// which changes have no known outcome.
type topicState struct {
	exists, existsUnknown bool
	retention             string
	retentionUnknown      string
}

// OP-05
func TestParallelTopicChangesOutliveAKill(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	const creates, writers = 200, 8
	states := make([]topicState, creates)
	name := func(i int) string { return fmt.Sprintf("parallel-%03d", i) }
	b.create("bystander", 1, small(11_200))
	b.write("bystander", 0, 0, 30, 1000, time.Time{})

	// round applies change to every topic of its share, from several clients at
	// once; kill ends the server after so many of them.
	round := func(kill int, change func(admin *kadm.Client, i int)) {
		var group sync.WaitGroup
		var dead atomic.Bool
		var mu sync.Mutex
		done := 0
		for w := range writers {
			group.Go(func() {
				cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.RetryTimeout(time.Second), kgo.RequestRetries(0), kgo.RequestTimeoutOverhead(time.Second))
				if err != nil {
					t.Error(err)
					return
				}
				defer cl.Close()
				for i := w; i < creates && !dead.Load(); i += writers {
					change(kadm.NewClient(cl), i)
					mu.Lock()
					done++
					now := done == kill
					mu.Unlock()
					if now {
						dead.Store(true)
						b.Kill()
					}
				}
			})
		}
		group.Wait()
		if kill > 0 {
			b.MustStart()
			b.connect()
		}
	}
	limited := func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), 3*time.Second) }
	create := func(admin *kadm.Client, i int) {
		ctx, cancel := limited()
		defer cancel()
		r, err := admin.CreateTopic(ctx, 1, 1, nil, name(i))
		states[i].exists = err == nil && r.Err == nil
		states[i].existsUnknown = !states[i].exists
	}
	edit := func(admin *kadm.Client, i int) {
		if !states[i].exists || i%2 == 1 {
			return
		}
		ctx, cancel := limited()
		defer cancel()
		v := fmt.Sprint(1_000_000 + i)
		r, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &v}}, name(i))
		if err == nil && r[0].Err == nil {
			states[i].retention = v
		} else {
			states[i].retentionUnknown = v
		}
	}
	remove := func(admin *kadm.Client, i int) {
		if !states[i].exists || i%4 > 1 {
			return
		}
		ctx, cancel := limited()
		defer cancel()
		r, err := admin.DeleteTopic(ctx, name(i))
		states[i].exists = err != nil || r.Err != nil
		states[i].existsUnknown = states[i].exists
	}
	verify := func(when string) {
		topics, err := b.admin.ListTopics(t.Context())
		require.NoError(t, err)
		known := 0
		for i := range states {
			s := &states[i]
			if _, there := topics[name(i)]; s.existsUnknown {
				s.exists, s.existsUnknown = there, false
			} else {
				require.Equal(t, s.exists, there, "%s: %s", when, name(i))
			}
			if s.exists {
				known++
			}
		}
		require.Len(t, topics, known+1, "%s: no ghosts", when)
		var names []string
		for i := range states {
			if states[i].exists {
				names = append(names, name(i))
			}
		}
		if len(names) == 0 {
			return
		}
		configs, err := b.admin.DescribeTopicConfigs(t.Context(), names...)
		require.NoError(t, err)
		got := map[string]string{}
		for _, c := range configs {
			require.NoError(t, c.Err)
			for _, kv := range c.Configs {
				if kv.Key == "retention.ms" && kv.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
					got[c.Name] = kv.MaybeValue()
				}
			}
		}
		for i := range states {
			s := &states[i]
			switch v := got[name(i)]; {
			case !s.exists:
			case s.retentionUnknown != "":
				require.Contains(t, []string{s.retention, s.retentionUnknown}, v, "%s: %s", when, name(i))
				s.retention, s.retentionUnknown = v, ""
			default:
				require.Equal(t, s.retention, v, "%s: %s", when, name(i))
			}
		}
	}
	round(120, create)
	verify("killed among creations")
	round(0, func(admin *kadm.Client, i int) {
		if !states[i].exists {
			create(admin, i)
		}
	})
	verify("all created")
	round(90, edit)
	verify("killed among config changes")
	round(70, remove)
	verify("killed among deletions")
	b.again(false)
	verify("after one more restart")
	b.tiered("bystander", 0, 2)
	b.check("bystander", 0, 0, 30, 1000)
}
