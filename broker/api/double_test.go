package api_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/api"
	"strandline/broker/partition"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// double is a Partition that answers as its test says. Its batches lie in one
// file whose references are counted.
type double struct {
	mu      sync.Mutex
	file    *disk.Handle
	batch   recordbatch.Batch
	count   int // batches
	remote  bool
	waiters map[*partition.Waiter]bool
	// fill is what a remote read waits for: closed, it is in the cache.
	fill    chan struct{}
	asked   chan partition.ReadRequest // receives remote reads, where set
	failure error
	commit  func(partition.AppendRequest) (partition.AppendResult, api.Commit, error)
}

func newDouble(k *kit, count, bytes int) *double {
	t := k.t
	t.Helper()
	b := batch(1, string(make([]byte, bytes)))
	f, err := disk.OS().Create(t.TempDir() + "/segment")
	require.NoError(t, err)
	for i := range count {
		b.SetBaseOffset(cluster.Offset(i))
		_, err := f.WriteAt(b, int64(i*len(b)))
		require.NoError(t, err)
	}
	d := &double{file: disk.NewHandle(f, nil), batch: b, count: count, waiters: map[*partition.Waiter]bool{}, fill: make(chan struct{})}
	k.closed = append(k.closed, func() { // nothing is being sent any more
		d.file.Release()
		require.False(t, d.file.Acquire(), "regions are still held")
	})
	return d
}

func (d *double) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := range d.waiters {
		select {
		case w.C <- struct{}{}:
		default:
		}
	}
}

func (d *double) AddWaiter(w *partition.Waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiters[w] = true
}

func (d *double) RemoveWaiter(w *partition.Waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiters, w)
}

func (d *double) Producers() ([]producerstate.Entry, error) { return nil, d.failure }

func (d *double) Append(req partition.AppendRequest) (partition.AppendResult, api.Commit, error) {
	return d.commit(req)
}

func (d *double) Read(req partition.ReadRequest) (partition.ReadResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	res := partition.ReadResult{HighWatermark: cluster.Offset(d.count), LastStableOffset: cluster.Offset(d.count), NextOffset: req.Offset}
	if d.failure != nil && !d.remote {
		return res, d.failure
	}
	if d.remote {
		res.Remote = true
		return res, nil
	}
	return d.slice(req, res), nil
}

func (d *double) slice(req partition.ReadRequest, res partition.ReadResult) partition.ReadResult {
	n := min(req.MaxBytes/len(d.batch), d.count-int(req.Offset))
	if n == 0 && req.MinOneBatch && int(req.Offset) < d.count {
		n = 1
	}
	if n <= 0 {
		return res
	}
	if !d.file.Acquire() {
		panic("file closed")
	}
	res.Bytes = n * len(d.batch)
	res.Regions = []disk.Region{{Handle: d.file, Position: int64(int(req.Offset) * len(d.batch)), Bytes: int64(res.Bytes)}}
	return res
}

func (d *double) ReadRemote(ctx context.Context, req partition.ReadRequest) (partition.ReadResult, error) {
	if d.asked != nil {
		d.asked <- req
	}
	res := partition.ReadResult{HighWatermark: cluster.Offset(d.count), LastStableOffset: cluster.Offset(d.count), Tier: partition.Remote}
	select {
	case <-d.fill:
	default:
		select {
		case <-d.fill:
		case <-ctx.Done():
			return res, fmt.Errorf("%w: %w", partition.ErrRemoteTimeout, ctx.Err())
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure != nil {
		return res, d.failure
	}
	return d.slice(req, res), nil
}

func (d *double) OffsetsBefore(int64, int, cluster.BrokerID) ([]cluster.Offset, error) {
	return []cluster.Offset{0}, nil
}

func (d *double) ListOffset(context.Context, partition.ListOffsetRequest) (partition.ListOffsetResult, error) {
	return partition.ListOffsetResult{Offset: -1, Timestamp: -1, LeaderEpoch: -1}, d.failure
}

func (d *double) DeleteRecords(context.Context, cluster.Offset) (cluster.Offset, error) {
	return 0, d.failure
}

func (d *double) EpochEnd(_, _ cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset, error) {
	return -1, -1, d.failure
}

// doubles makes a topic "t" of these partitions.
func doubles(k *kit, ds ...*double) [16]byte {
	k.double = func(tp cluster.TopicPartition) api.Partition { return ds[tp.Partition] }
	return k.topic("t", int32(len(ds)))
}

// TI-19: a remote read that takes longer than the client waits is answered
// empty, and found by a later poll.
func TestASlowRemoteReadDoesNotFailTheFetch(t *testing.T) {
	k := newKit(t, nil)
	d := newDouble(k, 3, 40000)
	d.remote = true
	d.asked = make(chan partition.ReadRequest, 10)
	id := doubles(k, d)
	c := k.dial()
	for _, wait := range []int32{200, 0} {
		fetch := fetchRequest("t", id, 1)
		fetch.MaxWaitMillis = wait
		start := time.Now()
		p := ask[*kmsg.FetchResponse](c, fetch, 18).Topics[0].Partitions[0]
		require.GreaterOrEqual(t, time.Since(start).Milliseconds(), int64(wait))
		require.Less(t, time.Since(start), 3*time.Second)
		require.Zero(t, p.ErrorCode)
		require.Empty(t, p.RecordBatches)
		require.Equal(t, int64(3), p.HighWatermark)
		require.Equal(t, cluster.Offset(1), (<-d.asked).Offset)
	}
	close(d.fill)
	for _, wait := range []int32{60000, 0} {
		fetch := fetchRequest("t", id, 1)
		fetch.MaxWaitMillis = wait
		p := ask[*kmsg.FetchResponse](c, fetch, 18).Topics[0].Partitions[0]
		require.Len(t, p.RecordBatches, 2*len(d.batch))
	}
	require.Equal(t, int64(4*len(d.batch)), k.metrics.Stats().Bytes(1, 0))
}

// TI-21
func TestRemotePartitionsShareTheLimit(t *testing.T) {
	k := newKit(t, nil)
	var ds []*double
	for range 5 {
		d := newDouble(k, 2, 3<<20)
		d.remote = true
		close(d.fill)
		ds = append(ds, d)
	}
	id := doubles(k, ds...)
	c := k.dial()
	total := func(maxBytes, partMax int32) (sum int, parts []int) {
		fetch := fetchRequest("t", id, 0, 0, 0, 0, 0)
		fetch.MaxBytes = maxBytes
		for i := range fetch.Topics[0].Partitions {
			fetch.Topics[0].Partitions[i].PartitionMaxBytes = partMax
		}
		for _, p := range ask[*kmsg.FetchResponse](c, fetch, 18).Topics[0].Partitions {
			require.Zero(t, p.ErrorCode)
			require.Equal(t, int64(2), p.HighWatermark)
			sum += len(p.RecordBatches)
			parts = append(parts, len(p.RecordBatches))
		}
		return sum, parts
	}
	sum, _ := total(4<<20, 1<<20)
	require.Equal(t, len(ds[0].batch), sum)
	sum, _ = total(1<<20, 1<<20)
	require.Equal(t, len(ds[0].batch), sum)
	sum, parts := total(10<<20, 4<<20)
	require.Equal(t, 2*len(ds[0].batch), sum, "%v", parts)
	sum, _ = total(40<<20, 4<<20)
	require.Equal(t, 5*len(ds[0].batch), sum)

	// A mixture: what is local comes behind a remote batch that is larger than
	// what was set aside for it.
	for _, d := range []*double{ds[1], ds[3]} {
		d.mu.Lock()
		d.remote = false
		d.mu.Unlock()
	}
	sum, parts = total(4<<20, 1<<20)
	require.LessOrEqual(t, sum, 4<<20, "%v", parts)
	require.NotZero(t, parts[0])
}

func TestALocalBatchDoesNotWaitBehindTheStoreForEver(t *testing.T) {
	k := newKit(t, nil)
	slow, local := newDouble(k, 2, 1000), newDouble(k, 2, 100000)
	slow.remote = true
	id := doubles(k, slow, local)
	c := k.dial()
	fetch := fetchRequest("t", id, 0, 0)
	fetch.MaxWaitMillis = 50
	for i := range fetch.Topics[0].Partitions {
		fetch.Topics[0].Partitions[i].PartitionMaxBytes = 10
	}
	parts := ask[*kmsg.FetchResponse](c, fetch, 18).Topics[0].Partitions
	require.Empty(t, parts[0].RecordBatches)
	require.Len(t, parts[1].RecordBatches, len(local.batch))

	// Enough is there without the store: the answer does not take max_wait.
	fetch.MaxWaitMillis = 60000
	fetch.Topics[0].Partitions[1].PartitionMaxBytes = 1 << 20
	parts = ask[*kmsg.FetchResponse](c, fetch, 18).Topics[0].Partitions
	require.Len(t, parts[1].RecordBatches, 2*len(local.batch))
}

func TestAStoreThatFailsIsRetriable(t *testing.T) {
	k := newKit(t, nil)
	d := newDouble(k, 2, 10)
	d.remote = true
	d.failure = fmt.Errorf("bucket: %w", partition.ErrRemote)
	close(d.fill)
	id := doubles(k, d)
	p := ask[*kmsg.FetchResponse](k.dial(), fetchRequest("t", id, 0), 18).Topics[0].Partitions[0]
	require.Equal(t, int16(56), p.ErrorCode)
	require.Equal(t, int64(-1), p.HighWatermark)
}

// The file of a region ends early: a small one is answered with an error, and
// everything is given back (A1).
func TestARegionThatCannotBeReadIsAnsweredAsAStorageError(t *testing.T) {
	k := newKit(t, nil)
	bad, good := newDouble(k, 2, 10), newDouble(k, 2, 10)
	require.NoError(t, bad.file.File().Truncate(20))
	id := doubles(k, bad, good)
	parts := ask[*kmsg.FetchResponse](k.dial(), fetchRequest("t", id, 0, 0), 18).Topics[0].Partitions
	require.Equal(t, int16(56), parts[0].ErrorCode)
	require.Zero(t, parts[1].ErrorCode)
	require.Len(t, parts[1].RecordBatches, 2*len(good.batch))

	large := newDouble(k, 2, 100000)
	require.NoError(t, large.file.File().Truncate(20))
	k.double = func(cluster.TopicPartition) api.Partition { return large }
	other := k.topic("other", 1)
	c := k.dial()
	c.send(fetchRequest("other", other, 0), 18)
	b := make([]byte, 4)
	_, err := c.c.Read(b)
	require.NoError(t, err, "the header is on its way")
	for err == nil {
		_, err = c.c.Read(make([]byte, 1000))
	}
	require.ErrorContains(t, err, "EOF")
}

func TestALongPollEndsWithItsClientOrTheServer(t *testing.T) {
	k := newKit(t, nil)
	d := newDouble(k, 0, 10)
	id := doubles(k, d)
	waiting := func(n int) func() bool {
		return func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.waiters) == n
		}
	}
	gone, stays := k.dial(), k.dial()
	for _, c := range []*client{gone, stays} {
		fetch := fetchRequest("t", id, 0)
		fetch.MaxWaitMillis = 600000
		c.send(fetch, 18)
	}
	require.Eventually(t, waiting(2), 5*time.Second, time.Millisecond)
	require.NoError(t, gone.c.Close())
	require.Eventually(t, waiting(1), 5*time.Second, time.Millisecond)
	d.wake() // for nothing
	closed := make(chan error, 1)
	go func() { closed <- k.server.Close(context.Background()) }()
	resp := kmsg.NewPtrFetchResponse()
	stays.receive(1, resp, 18)
	require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
	require.NoError(t, <-closed)
}

// commit is a Commit that its test settles.
type commit struct {
	done chan struct{}
	err  error
}

func (c *commit) Done() <-chan struct{} { return c.done }
func (c *commit) Err() error            { return c.err }

func TestAppendsThatWait(t *testing.T) {
	k := newKit(t, nil)
	appended := make(chan *commit, 10)
	d := newDouble(k, 0, 10)
	offset := cluster.Offset(0)
	d.commit = func(partition.AppendRequest) (partition.AppendResult, api.Commit, error) {
		c := &commit{done: make(chan struct{})}
		appended <- c
		offset++ // by one connection alone
		return partition.AppendResult{BaseOffset: offset, LogAppendTime: -1}, c, nil
	}
	id := doubles(k, d)
	c := k.dial()
	for i := range 4 {
		req := produceRequest(-1, "t", id, map[int32][]byte{0: batch(now(), "x")})
		if i == 2 {
			req.TimeoutMillis = 20
		}
		c.send(req, 11)
	}
	// A request with nothing to wait for, behind those that do.
	c.send(produceRequest(-1, "nope", id, map[int32][]byte{0: batch(now(), "x")}), 11)
	answer := func(correlation int32) kmsg.ProduceResponseTopicPartition {
		resp := kmsg.NewPtrProduceResponse()
		c.receive(correlation, resp, 11)
		require.Equal(t, map[bool]string{true: "nope", false: "t"}[correlation == 5], resp.Topics[0].Topic)
		return resp.Topics[0].Partitions[0]
	}
	var commits []*commit
	for range 4 { // all are appended although none is answered
		commits = append(commits, <-appended)
	}
	close(commits[1].done)
	commits[0].err = partition.ErrNotEnoughReplicasAfterAppend
	close(commits[0].done)
	p := answer(1)
	require.Equal(t, int16(20), p.ErrorCode)
	require.Equal(t, int64(-1), p.BaseOffset)
	require.Equal(t, int64(2), answer(2).BaseOffset)
	p = answer(3)
	require.Equal(t, int16(7), p.ErrorCode)
	require.Equal(t, int64(-1), p.BaseOffset)
	close(commits[3].done)
	require.Zero(t, answer(4).ErrorCode)
	require.Equal(t, int16(3), answer(5).ErrorCode)
}
