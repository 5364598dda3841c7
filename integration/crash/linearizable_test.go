package crash

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// nothing is the value of an offset that is not committed.
const nothing = -1

// offsetOp is what a client asks of one committed offset.
type offsetOp struct {
	place committed
	write bool
	value int64 // written; nothing: deleted
}

// offsetModel is a register for each committed offset: a fetch finds the last
// commit or deletion before it.
var offsetModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		places := map[committed]int{}
		var parts [][]porcupine.Operation
		for _, op := range history {
			place := op.Input.(offsetOp).place
			i, ok := places[place]
			if !ok {
				i = len(parts)
				places[place] = i
				parts = append(parts, nil)
			}
			parts[i] = append(parts[i], op)
		}
		return parts
	},
	Init: func() any { return int64(nothing) },
	Step: func(state, input, output any) (bool, any) {
		op := input.(offsetOp)
		if op.write {
			return true, op.value
		}
		return output == state, state
	},
	DescribeOperation: func(input, output any) string {
		op := input.(offsetOp)
		if op.write {
			return fmt.Sprintf("%v = %d", op.place, op.value)
		}
		return fmt.Sprintf("%v: %v", op.place, output)
	},
}

// TestTheModelOfOffsets: what the next test relies on can say no.
func TestTheModelOfOffsets(t *testing.T) {
	place := committed{"g", "t", 0}
	op := func(client int, write bool, value, call, end int64) porcupine.Operation {
		in := offsetOp{place: place, write: write}
		if write {
			in.value = value
			return porcupine.Operation{ClientId: client, Input: in, Call: call, Return: end}
		}
		return porcupine.Operation{ClientId: client, Input: in, Output: value, Call: call, Return: end}
	}
	one, two := op(0, true, 1, 0, 10), op(0, true, 2, 20, 30)
	for _, c := range []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"the last commit is found", []porcupine.Operation{one, two, op(1, false, 2, 40, 50)}, true},
		{"an older one is found", []porcupine.Operation{one, two, op(1, false, 1, 40, 50)}, false},
		{"nothing is found", []porcupine.Operation{one, op(1, false, nothing, 40, 50)}, false},
		{"one under way may be found", []porcupine.Operation{one, two, op(1, false, 2, 15, 25)}, true},
		{"what was found is lost", []porcupine.Operation{one, two, op(1, false, 2, 21, 22), op(2, false, 1, 23, 24)}, false},
		{"one without an answer takes effect late", []porcupine.Operation{one, op(0, true, 2, 20, math.MaxInt64), op(1, false, 1, 40, 50), op(1, false, 2, 60, 70)}, true},
		{"and is then lost", []porcupine.Operation{one, op(0, true, 2, 20, math.MaxInt64), op(1, false, 2, 40, 50), op(1, false, 1, 60, 70)}, false},
		{"a deletion", []porcupine.Operation{one, op(0, true, nothing, 20, 30), op(1, false, nothing, 40, 50)}, true},
	} {
		require.Equal(t, c.want, porcupine.CheckOperations(offsetModel, c.history), c.name)
	}
}

// offsetHistory is what several clients asked and were told.
type offsetHistory struct {
	start   time.Time
	next    atomic.Int64 // the next value: each is committed once
	clients atomic.Int64 // ids; one that was not answered gets a new one

	mu      sync.Mutex
	ops     []porcupine.Operation
	unknown int
}

func (h *offsetHistory) now() int64 { return int64(time.Since(h.start)) }

func (h *offsetHistory) add(op porcupine.Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if op.Return == math.MaxInt64 {
		h.unknown++
	}
	h.ops = append(h.ops, op)
}

// run asks one thing after the other. A request is sent once: whether one that
// was not answered was done is not known, and it stays open for ever.
func (h *offsetHistory) run(ctx context.Context, t *testing.T, r *rand.Rand, addr string, places []committed) {
	client := int(h.clients.Add(1))
	var conn *kit.Raw
	failed := false
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		if conn == nil {
			c, err := kit.TryDial(t, addr)
			if err != nil {
				continue // nobody is there yet
			}
			conn = c
		}
		in := offsetOp{place: places[r.IntN(len(places))]}
		switch n := r.IntN(20); {
		case failed: // the more open requests, the longer is the search for an order
		case n < 10:
			in.write, in.value = true, h.next.Add(1)
		case n == 10:
			in.write, in.value = true, nothing
		}
		op := porcupine.Operation{ClientId: client, Input: in, Call: h.now()}
		out, code, err := askOffset(conn, in)
		op.Return, op.Output = h.now(), out
		switch {
		case err == nil && code == 0:
			h.add(op)
			failed = false
			continue
		case err == nil && code == kerr.CoordinatorLoadInProgress.Code:
			continue // not begun
		case err == nil && !kerr.IsRetriable(kerr.ErrorForCode(code)):
			t.Errorf("%+v: %v", in, kerr.ErrorForCode(code))
			return
		}
		failed = true
		if in.write {
			op.Return, op.Output = math.MaxInt64, nil
			h.add(op)
			client = int(h.clients.Add(1))
		}
		if err != nil {
			_ = conn.Close()
			conn = nil
		}
	}
}

// askOffset does one operation.
func askOffset(c *kit.Raw, op offsetOp) (value int64, code int16, err error) {
	p := op.place
	switch {
	case op.write && op.value != nothing:
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group, req.Generation = 8, p.group, -1
		rt := kmsg.NewOffsetCommitRequestTopic()
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata = p.partition, op.value, kmsg.StringPtr(fmt.Sprint(op.value))
		rt.Topic, rt.Partitions = p.topic, append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := c.Try(req)
		if err != nil {
			return 0, 0, err
		}
		return 0, resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode, nil
	case op.write:
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = p.group
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rp := kmsg.NewOffsetDeleteRequestTopicPartition()
		rp.Partition = p.partition
		rt.Topic, rt.Partitions = p.topic, append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := c.Try(req)
		if err != nil {
			return 0, 0, err
		}
		got := resp.(*kmsg.OffsetDeleteResponse)
		if got.ErrorCode == kerr.GroupIDNotFound.Code {
			return 0, 0, nil // there was nothing to delete
		}
		if got.ErrorCode != 0 {
			return 0, got.ErrorCode, nil
		}
		return 0, got.Topics[0].Partitions[0].ErrorCode, nil
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 8
	rg := kmsg.NewOffsetFetchRequestGroup()
	rt := kmsg.NewOffsetFetchRequestGroupTopic()
	rt.Topic, rt.Partitions = p.topic, []int32{p.partition}
	rg.Group, rg.Topics = p.group, append(rg.Topics, rt)
	req.Groups = append(req.Groups, rg)
	resp, err := c.Try(req)
	if err != nil {
		return 0, 0, err
	}
	got := resp.(*kmsg.OffsetFetchResponse).Groups[0]
	if got.ErrorCode != 0 {
		return 0, got.ErrorCode, nil
	}
	at := got.Topics[0].Partitions[0]
	if want := fmt.Sprint(at.Offset); at.Offset != nothing && (at.Metadata == nil || *at.Metadata != want) {
		return 0, kerr.InvalidRequest.Code, nil // it has the metadata of another commit
	}
	return at.Offset, at.ErrorCode, nil
}

// TestOffsetsAreLinearizable has several clients commit, delete and fetch the
// same offsets while the server is stopped, killed and started: there is one
// order of what they did, within the times of their requests, in which every
// fetch found the last commit. What was not answered may have been done at any
// time after it was asked, or never.
func TestOffsetsAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	restarts := 6
	if kit.Long() {
		restarts = 40
	}
	r := rand.New(rand.NewPCG(seedOf(t), 13))
	addr := fixedPort(t)
	s := kit.New(t, t.TempDir(), map[string]string{
		"listeners": "PLAINTEXT://" + addr, "offsets.topic.num.partitions": "2", "offsets.topic.segment.bytes": "30000",
		"log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.01", "log.cleaner.delete.retention.ms": "100",
		"log.initial.task.delay.ms": "100", "log.segment.delete.delay.ms": "100",
	})
	s.MustStart()
	topic := fillTopic(t, addr, "read", 2, 1)
	cl := groupClient(t, addr)
	defer cl.Close()
	require.NoError(t, commitOffset(t.Context(), cl, "made", topic, 0, 0), "the topic of groups is there")
	places := []committed{{"a", "read", 0}, {"a", "read", 1}, {"b", "read", 0}}
	h := &offsetHistory{start: time.Now()}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for range 4 {
		mine := rand.New(rand.NewPCG(r.Uint64(), 1))
		wg.Go(func() { h.run(ctx, t, mine, addr, places) })
	}
	for n := range restarts {
		<-time.After(time.Duration(200+r.IntN(500)) * time.Millisecond)
		s.Restart(n%3 != 2)
	}
	<-time.After(300 * time.Millisecond)
	stop()
	wg.Wait()
	require.Greater(t, len(h.ops), 50*restarts)
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(offsetModel, h.ops, 2*time.Minute)
	t.Logf("%d operations, %d of them without an answer, %d restarts: %s in %v", len(h.ops), h.unknown, restarts, result, time.Since(began))
	if result != porcupine.Ok {
		page := filepath.Join(os.TempDir(), "strandline-offsets.html")
		require.NoError(t, porcupine.VisualizePath(offsetModel, info, page))
		t.Fatalf("%s: see %s", result, page)
	}
}
