package crash

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"strandline/broker/recordbatch"
	"strandline/cmd/serve"
	"strandline/integration/kit"
	"strandline/metadata/disk"
)

// trouble fails calls of a disk: one of them, some, or all from some time on.
type trouble struct {
	mu     sync.Mutex
	rng    *rand.Rand
	err    error
	after  int // calls that pass first
	odds   int // then one in so many fails
	most   int // and no more than that
	kinds  func(disk.OpKind) bool
	failed []disk.Op
}

func newTrouble(rng *rand.Rand) *trouble {
	b := &trouble{rng: rng, err: fmt.Errorf("chaos: %w", syscall.EIO), after: rng.IntN(400), odds: 1, most: 1, kinds: disk.OpKind.Mutates}
	if rng.IntN(2) == 0 {
		b.err = fmt.Errorf("chaos: %w", syscall.ENOSPC)
	}
	switch rng.IntN(4) {
	case 0: // one call
	case 1: // a few
		b.odds, b.most = 20, 5
	case 2: // every write from then on
		b.most = 1 << 30
	case 3: // reads too
		b.odds, b.most, b.kinds = 10, 20, func(disk.OpKind) bool { return true }
	}
	return b
}

func (b *trouble) inject(op disk.Op) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.kinds(op.Kind) || op.Kind == disk.OpClose {
		return nil
	}
	if b.after > 0 {
		b.after--
		return nil
	}
	if len(b.failed) >= b.most || b.rng.IntN(b.odds) > 0 {
		return nil
	}
	b.failed = append(b.failed, op)
	return b.err
}

// TestDiskErrors fails calls of the disk under a busy node. Whatever it answers
// is true: a record that it acknowledged as flushed is there after a restart,
// what it serves is what was written. It ends in time, and leaves no goroutine.
func TestDiskErrors(t *testing.T) {
	rounds := 8
	if kit.Long() {
		rounds = 120
	}
	r := rand.New(rand.NewPCG(seedOf(t), 7))
	codes, fatal, injected := map[string]int{}, 0, 0
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			c := &chaos{codes: codes, rng: rand.New(rand.NewPCG(r.Uint64(), 8))}
			c.run(t)
			injected += len(c.bad.failed)
			if c.fatal.Load() {
				fatal++
			}
		})
	}
	t.Logf("%d failed calls in %d runs, %d nodes ended themselves, answers: %v", injected, rounds, fatal, codes)
}

type chaos struct {
	rng   *rand.Rand
	codes map[string]int
	bad   *trouble
	fatal atomic.Bool
	acked int64
	log   lockedLog
}

type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (c *chaos) run(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	inner := disk.NewCrash(c.rng.Uint64())
	fs := disk.NewFault(inner, nil)
	cfg := powerConfig(t, fs)
	cfg.Logger = slog.New(slog.NewTextHandler(&c.log, nil))
	cfg.Failed = func(error) { c.fatal.Store(true) }
	node, err := serve.Start(t.Context(), cfg)
	require.NoError(t, err)
	p := &promises{now: newPromise()}
	createFlushed(t, addrOf(node), p)
	c.bad = newTrouble(rand.New(rand.NewPCG(c.rng.Uint64(), 9)))
	defer func() {
		if t.Failed() {
			t.Logf("failed calls: %v\n%s", c.bad.failed, c.log.b.String())
		}
	}()
	fs.SetInjector(c.bad.inject)
	c.load(t, addrOf(node))
	began := time.Now()
	patience := 8 * time.Second
	if c.fatal.Load() {
		patience = time.Second // it waits for what stands still
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = node.Close(ctx)
	require.Less(t, time.Since(began), 10*time.Second, "the stop is in time")
	fs.SetInjector(nil)
	after := inner.Kill()
	if c.rng.IntN(2) == 0 {
		after = inner.Clone(c.rng)
	}
	if !c.fatal.Load() { // a metadata store that failed stands still until the process ends
		goleak.VerifyNone(t, ignore)
	}
	again, err := serve.Start(t.Context(), powerConfig(t, after))
	require.NoError(t, err)
	defer closeNode(t, again)
	c.read(t, addrOf(again), c.acked, true)
}

// load writes and reads for a while, whatever comes.
func (c *chaos) load(t *testing.T, addr string) {
	conn := kit.Dial(t, addr)
	defer conn.Close()
	for n := 0; n < 250 && !c.fatal.Load(); n++ {
		b := recordbatch.NewBuilder(recordbatch.Options{})
		b.Add(time.Now().UnixMilli(), nil, value(c.acked))
		req := kit.Produce(9, "flushed", 0, b.Build())
		conn.Send(req)
		resp, err := conn.Receive(req)
		if err != nil {
			require.True(t, c.fatal.Load(), "the connection ended: %v", err)
			return
		}
		got := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		c.note(t, "produce", got.ErrorCode)
		if got.ErrorCode == 0 {
			require.Equal(t, c.acked, got.BaseOffset, "the log is as it was told to be")
			c.acked++
		}
		if n%25 == 24 {
			c.read(t, addr, c.acked, false)
		}
	}
}

func (c *chaos) note(t *testing.T, what string, code int16) {
	name := what + " ok"
	if err := kerr.ErrorForCode(code); err != nil {
		name = what + " " + kerr.TypedErrorForCode(code).Message
		require.Contains(t, []int16{
			kerr.KafkaStorageError.Code, kerr.NotLeaderForPartition.Code, kerr.LeaderNotAvailable.Code,
			kerr.UnknownTopicOrPartition.Code, kerr.RequestTimedOut.Code,
		}, code, "%s", name)
	}
	c.codes[name]++
}

// read looks at every record up to end; where an error may come it ends with it.
func (c *chaos) read(t *testing.T, addr string, end int64, must bool) {
	conn := kit.Dial(t, addr)
	defer conn.Close()
	for next, tries := int64(0), 0; next < end && tries < 200; tries++ {
		req := kit.Fetch(12, "flushed", 0, next, 1<<20)
		conn.Send(req)
		resp, err := conn.Receive(req)
		if err != nil {
			require.False(t, must, "%v", err)
			return
		}
		got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if must {
			require.Zero(t, got.ErrorCode, "fetch at %d of %d: %v", next, end, kerr.ErrorForCode(got.ErrorCode))
			require.GreaterOrEqual(t, got.HighWatermark, end, "flushed records are there")
		} else if c.note(t, "fetch", got.ErrorCode); got.ErrorCode != 0 {
			return
		}
		for rest := got.RecordBatches; len(rest) > 0; {
			var b recordbatch.Batch
			b, rest, err = recordbatch.First(rest)
			if err != nil {
				break
			}
			require.NoError(t, b.Verify())
			var d recordbatch.Decoder
			for rec, err := range d.Records(b) {
				require.NoError(t, err)
				if int64(rec.Offset) < next || int64(rec.Offset) >= end {
					continue
				}
				require.Equal(t, next, int64(rec.Offset), "no gap")
				require.Equal(t, string(value(next)), string(rec.Value))
				next++
			}
		}
		if must && next >= end {
			return
		}
	}
}
