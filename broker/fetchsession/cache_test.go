package fetchsession

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func asks(n int) []Ask {
	out := make([]Ask, n)
	for i := range out {
		out[i].Key = Key{Name: "t", Partition: int32(i)}
	}
	return out
}

func create(c *Cache, now time.Time, h Head, n int) int32 {
	return c.Create(now, h, n, func(add func(Ask, string, Answer)) {
		for _, a := range asks(n) {
			add(a, "", Answer{})
		}
	})
}

// A request that comes twice is answered once (F1).
func TestALaterRequestWins(t *testing.T) {
	c := New(Config{Slots: 1})
	id := create(c, time.Time{}, Head{}, 2)
	first, ok, err := c.Begin(time.Time{}, Head{ID: id, Epoch: 1}, nil, nil)
	require.True(t, ok)
	require.NoError(t, err)
	second, _, err := c.Begin(time.Time{}, Head{ID: id, Epoch: 2}, nil, nil)
	require.NoError(t, err)
	require.ErrorIs(t, first.Answer(func(func(*Part, Answer) bool) { t.Error("called") }), ErrEpoch)
	called := false
	require.NoError(t, second.Answer(func(func(*Part, Answer) bool) { called = true }))
	require.True(t, called)
}

func TestEpochsBeginAgainAfterTheLast(t *testing.T) {
	c := New(Config{Slots: 1})
	id := create(c, time.Time{}, Head{}, 1)
	c.sessions[id].epoch = 1<<31 - 1
	_, _, err := c.Begin(time.Time{}, Head{ID: id, Epoch: 1<<31 - 1}, nil, nil)
	require.NoError(t, err)
	_, ok, err := c.Begin(time.Time{}, Head{ID: id, Epoch: 1}, nil, nil)
	require.NoError(t, err)
	require.True(t, ok)
}

// The index agrees with the sessions after any order of things.
func TestTheIndexStaysTrue(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c, now := New(Config{Slots: 8, Partitions: 60}), time.Unix(0, 0)
		epochs := map[int32]int32{}
		for range 400 {
			now = now.Add(time.Duration(rng.IntN(20)) * time.Second)
			h := Head{Follower: rng.IntN(4) == 0}
			if rng.IntN(3) == 0 {
				if id := create(c, now, h, 1+rng.IntN(12)); id != NoSession {
					epochs[id] = 1
				}
			} else {
				for id, epoch := range epochs { // any
					h.ID, h.Epoch = id, epoch
					if rng.IntN(10) == 0 {
						h.Epoch = Final
					}
					var forget []Key
					for _, a := range asks(rng.IntN(12)) {
						forget = append(forget, a.Key)
					}
					_, ok, err := c.Begin(now, h, asks(rng.IntN(14)), forget)
					if epochs[id]++; err != nil || !ok {
						delete(epochs, id)
					}
					break
				}
			}
			check(t, c, now)
		}
		require.Positive(t, c.evicted)
	}
}

func check(t *testing.T, c *Cache, now time.Time) {
	t.Helper()
	parts := 0
	for id, s := range c.sessions {
		require.Equal(t, id, s.id)
		require.Len(t, s.parts, s.size)
		n := 0
		for p := s.ring.next; p != &s.ring; p = p.next {
			require.Same(t, p, s.parts[p.Key])
			n++
		}
		require.Equal(t, s.size, n)
		parts += n
		if s.byAnyone >= 0 {
			require.Same(t, s, c.byAnyone.sessions[s.byAnyone])
		}
		if s.byFollower >= 0 {
			require.Same(t, s, c.byFollowers.sessions[s.byFollower])
		}
		require.True(t, s.byFollower >= 0 || s.privileged)
	}
	require.Equal(t, parts, c.parts)
	require.LessOrEqual(t, parts, c.cfg.Partitions)
	require.LessOrEqual(t, len(c.sessions), c.cfg.Slots)
	require.Equal(t, len(c.sessions), c.used.Len())
	for _, e := range []*evictable{&c.byAnyone, &c.byFollowers} {
		require.LessOrEqual(t, len(e.sessions), len(c.sessions))
		for i := 1; i < len(e.sessions); i++ {
			require.False(t, e.Less(i, 0), "the first to go is on top")
		}
	}
}

func TestManyClientsAtOnce(t *testing.T) {
	c := New(Config{Slots: 4})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				id := create(c, time.Now(), Head{}, 3)
				for epoch := int32(1); epoch < 5; epoch++ {
					turn, ok, err := c.Begin(time.Now(), Head{ID: id, Epoch: epoch}, asks(4), nil)
					if err != nil || !ok {
						break
					}
					var parts []*Part
					turn.Parts(func(int) {}, func(p *Part) { parts = append(parts, p) })
					_ = turn.Answer(func(say func(*Part, Answer) bool) {
						for _, p := range parts {
							say(p, Answer{Data: true})
						}
					})
				}
				_, _, _ = c.Begin(time.Now(), Head{ID: id, Epoch: Final}, nil, nil)
			}
		})
	}
	wg.Wait()
	require.Zero(t, c.Stats().Sessions)
	require.Zero(t, c.Stats().Partitions)
}

// An incremental request that changes nothing costs the session next to nothing.
func TestAnIdleTurnDoesNotAllocate(t *testing.T) {
	c := New(Config{Slots: 1})
	id := create(c, time.Now(), Head{}, 100)
	epoch := int32(0)
	var parts [100]*Part
	n := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		epoch++
		turn, _, err := c.Begin(time.Now(), Head{ID: id, Epoch: epoch}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		n = 0
		turn.Parts(func(int) {}, func(p *Part) { parts[n] = p; n++ })
		_ = turn.Answer(func(say func(*Part, Answer) bool) {
			for _, p := range parts[:n] {
				say(p, Answer{Data: true})
			}
		})
	}))
}
