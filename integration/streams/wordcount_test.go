package streams

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/integration/kit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

const (
	limit       = 90 * time.Second
	repartition = "words-by-word-repartition"
	changelog   = "words-counts-changelog"
	words       = 50
)

// app is a running WordCount.
type app struct {
	cmd  *exec.Cmd
	in   io.Closer
	done chan struct{}

	mu   sync.Mutex
	said []string
}

func start(t *testing.T, addr, state string) *app {
	t.Helper()
	cmd := exec.Command(kit.Tool(t, "java"), slices.Concat(kit.JavaClass(t, "testdata/WordCount.java", kit.KafkaStreams(t)...), []string{addr, state})...)
	a := &app{cmd: cmd, done: make(chan struct{})}
	var err error
	a.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, kit.StartChild(cmd))
	go func() {
		defer close(a.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			a.mu.Lock()
			a.said = append(a.said, lines.Text())
			a.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		a.kill()
		if t.Failed() {
			t.Log(strings.Join(a.heard(), "\n"))
		}
	})
	return a
}

func (a *app) heard() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.said)
}

func (a *app) kill() {
	_ = a.cmd.Process.Kill()
	<-a.done
	_ = a.cmd.Wait()
}

// stop lets the application end by itself.
func (a *app) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, a.in.Close())
	select {
	case <-a.done:
	case <-time.After(limit):
		require.Fail(t, "it does not end")
	}
	require.Contains(t, a.heard(), "closed")
}

// TestWordCount counts words while the application is killed, its disk lost and
// the server killed: in the end each word's count is at least as often as it was
// written, and exactly so where nothing was killed, its state comes back from a
// changelog that was compacted, and the repartition topic does not grow.
func TestWordCount(t *testing.T) {
	s := kit.Start(t, map[string]string{
		"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000", "offsets.topic.num.partitions": "3",
		"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "100",
	})
	s.Set("listeners", "PLAINTEXT://"+s.Addr)
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.DefaultProduceTopic("lines"))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	adm := kadm.NewClient(cl)
	ctx, cancel := context.WithTimeout(t.Context(), 3*limit)
	defer cancel()
	for _, topic := range []string{"lines", "counts"} {
		_, err := adm.CreateTopic(ctx, 2, 1, nil, topic)
		require.NoError(t, err)
	}
	c := counts{t: t, addr: s.Addr}
	written := 0 // so often each word
	write := func(times int) {
		t.Helper()
		for range times {
			var line []string
			for w := range words {
				line = append(line, fmt.Sprint("word", w))
			}
			cl.Produce(ctx, kgo.StringRecord(strings.Join(line, " ")), nil)
		}
		require.NoError(t, cl.Flush(ctx))
		written += times
	}

	state := t.TempDir()
	first := start(t, s.Addr, state)
	write(200)
	c.reach(written)
	require.True(t, c.exactly(written), "nothing was killed")
	kit.Eventually(t, limit, "what was counted is deleted from the repartition topic", func() bool {
		starts, err := adm.ListStartOffsets(ctx, repartition)
		require.NoError(t, err)
		ends, err := adm.ListEndOffsets(ctx, repartition)
		require.NoError(t, err)
		var from, to int64
		starts.Each(func(o kadm.ListedOffset) { from += o.Offset })
		ends.Each(func(o kadm.ListedOffset) { to += o.Offset })
		return to == int64(words*written) && from == to
	})
	configs, err := adm.DescribeTopicConfigs(ctx, changelog)
	require.NoError(t, err)
	require.Contains(t, configured(configs[0], "cleanup.policy"), "compact")

	// A crash: the state on disk is taken up again.
	first.kill()
	write(100)
	second := start(t, s.Addr, state)
	c.reach(written)

	// The disk is lost: the state comes back from the changelog alone, of which
	// the cleaner has left what it must.
	second.kill()
	ends, err := adm.ListEndOffsets(ctx, changelog)
	require.NoError(t, err)
	appended := 0
	ends.Each(func(o kadm.ListedOffset) { appended += int(o.Offset) })
	require.GreaterOrEqual(t, appended, words*written)
	kit.Eventually(t, limit, "the changelog is compacted", func() bool { return c.kept(ends) < appended/2 })
	third := start(t, s.Addr, t.TempDir())
	write(100)
	c.reach(written)
	restored := 0
	for _, line := range third.heard() {
		var n int
		if _, err := fmt.Sscanf(line, "restored "+changelog+"-"+"%d %d", new(int), &n); err == nil {
			restored += n
		}
	}
	require.GreaterOrEqual(t, restored, words, "%q", third.heard())
	require.Less(t, restored, appended/2, "%q", third.heard())

	// The server is killed under it.
	s.Restart(true)
	write(100)
	c.reach(written)
	third.stop(t)
	for word, n := range c.last {
		require.LessOrEqual(t, n, 2*written, "%s: what is counted twice is what was not committed", word)
	}
}

// kept counts the changelog's records, up to where it ends.
func (c *counts) kept(ends kadm.ListedOffsets) (records int) {
	c.t.Helper()
	offsets := map[int32]kgo.Offset{}
	open := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if offsets[o.Partition] = kgo.NewOffset().AtStart(); o.Offset > 0 {
			open[o.Partition] = o.Offset
		}
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{changelog: offsets}), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(c.t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	for len(open) > 0 {
		fetches := cl.PollFetches(ctx)
		require.NoError(c.t, ctx.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if records++; r.Offset+1 == open[r.Partition] {
				delete(open, r.Partition)
			}
		})
	}
	return records
}

func configured(r kadm.ResourceConfig, key string) string {
	for _, c := range r.Configs {
		if c.Key == key {
			return c.MaybeValue()
		}
	}
	return ""
}

// counts is what the application has written, read again from the start each time.
type counts struct {
	t    *testing.T
	addr string
	last map[string]int
}

// reach waits until each word was counted so often, or more.
func (c *counts) reach(want int) {
	c.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.ConsumeTopics("counts"), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(c.t, err)
	defer cl.Close()
	c.last = map[string]int{}
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	for !c.atLeast(want) {
		fetches := cl.PollFetches(ctx)
		require.NoError(c.t, ctx.Err(), "each word is counted %d times: %v", want, c.last)
		fetches.EachRecord(func(r *kgo.Record) {
			var n int
			_, err := fmt.Sscan(string(r.Value), &n)
			require.NoError(c.t, err)
			c.last[string(r.Key)] = n
		})
	}
}

func (c *counts) atLeast(want int) bool {
	for _, n := range c.last {
		if n < want {
			return false
		}
	}
	return len(c.last) == words
}

func (c *counts) exactly(want int) bool {
	for _, n := range c.last {
		if n != want {
			return false
		}
	}
	return len(c.last) == words
}
