package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/broker/leaderepoch"
	"strandline/broker/locallog"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	self = cluster.BrokerID(1)
	dir  = "/logs/t-0"
)

var testTP = cluster.TopicPartition{Topic: cluster.TopicID{1}}

// startTime is what the fixtures' clocks show at first.
var startTime = time.UnixMilli(1_700_000_000_000)

func testSettings() config.Topic {
	return config.Topic{
		CleanupPolicy: config.CleanupDelete, RetentionTime: config.Forever, RetentionBytes: config.Unlimited,
		LocalRetentionTime: config.Forever, LocalRetentionBytes: config.Unlimited,
		SegmentBytes: 1 << 20, SegmentAge: 7 * 24 * time.Hour, IndexBytes: 1 << 20, IndexInterval: 4096,
		FlushMessages: config.Unlimited, FlushInterval: config.Forever, MaxMessageBytes: 1 << 20,
		TimestampBeforeMax: config.Forever, TimestampAfterMax: time.Hour, MinInsyncReplicas: 1, FileDeleteDelay: time.Minute,
	}
}

// fixture is one replica over a disk in memory, with doubles of its ports.
type fixture struct {
	t      testing.TB
	crash  *disk.Crash
	fs     *disk.Fault
	p      *Partition
	remote *fakeRemote
	now    time.Time
	config Config
}

func newFixture(t testing.TB, settings config.Topic) *fixture {
	crash := disk.NewCrash(1)
	f := &fixture{t: t, crash: crash, fs: disk.NewFault(crash, nil), now: startTime}
	require.NoError(t, disk.EnsureDir(f.fs, "/logs"))
	if settings.Tiered {
		f.remote = &fakeRemote{fs: crash}
		f.config.Remote, f.config.Keeper = f.remote, f.remote
	}
	f.config.Settings = settings
	f.open(locallog.Config{LogStart: cluster.NoOffset})
	t.Cleanup(func() { _ = f.p.Close(false) })
	return f
}

func (f *fixture) open(cfg locallog.Config) {
	cfg.FS, cfg.Dir, cfg.Partition = f.fs, dir, "t-0"
	cfg.Settings = LogSettings(f.config.Settings)
	cfg.Now = func() time.Time { return f.now }
	if f.remote != nil {
		cfg.RemoteBelow = true
		if start, known := f.remote.LogStartOffset(testTP); known {
			cfg.LogStart = start
		}
	}
	log, err := locallog.Open(cfg)
	require.NoError(f.t, err)
	f.config.TopicPartition, f.config.Topic, f.config.Self, f.config.Log = testTP, "t", self, log
	f.config.HighWatermark = cluster.NoOffset
	f.config.Now = cfg.Now
	f.p = New(f.config)
}

// lead makes the replica leader, alone in its in-sync set.
func (f *fixture) lead(epoch cluster.LeaderEpoch) {
	f.t.Helper()
	one := []cluster.BrokerID{self}
	require.NoError(f.t, f.p.Become(context.Background(), Leadership{Leader: self, LeaderEpoch: epoch, Replicas: one, ISR: one}))
}

func leadAlone(t testing.TB, settings config.Topic) *fixture {
	f := newFixture(t, settings)
	f.lead(1)
	return f
}

// batch makes a batch of n records that all have the same size.
func (f *fixture) batch(n int, options ...func(*recordbatch.Options)) recordbatch.Batch {
	var o recordbatch.Options
	for _, option := range options {
		option(&o)
	}
	b := recordbatch.NewBuilder(o)
	for i := range n {
		b.Add(f.now.UnixMilli(), []byte("k"), fmt.Appendf(nil, "value %08d", i))
	}
	return b.Build()
}

func idempotent(id cluster.ProducerID, epoch cluster.ProducerEpoch, sequence int32) func(*recordbatch.Options) {
	return func(o *recordbatch.Options) {
		o.Producer = &recordbatch.Producer{ID: id, Epoch: epoch, BaseSequence: sequence}
	}
}

// append appends one batch and waits for it.
func (f *fixture) append(b []byte) AppendResult {
	f.t.Helper()
	result, err := f.try(b, -1)
	require.NoError(f.t, err)
	return result
}

func (f *fixture) try(b []byte, acks int16) (AppendResult, error) {
	result, commit, err := f.p.Append(AppendRequest{Records: b, CurrentLeaderEpoch: cluster.NoLeaderEpoch, RequiredAcks: acks})
	if err == nil && commit != nil {
		<-commit.Done()
		err = commit.Err()
	}
	return result, err
}

func consumer(offset cluster.Offset) ReadRequest {
	return ReadRequest{
		Offset: offset, MaxBytes: 1 << 20, MinOneBatch: true, Replica: cluster.NoBroker,
		CurrentLeaderEpoch: cluster.NoLeaderEpoch, LastFetchedEpoch: cluster.NoLeaderEpoch,
	}
}

// read reads as the fetch handler does: locally, else remotely.
func (f *fixture) read(req ReadRequest) (ReadResult, error) {
	result, err := f.p.Read(req)
	if err == nil && result.Remote {
		return f.p.ReadRemote(context.Background(), req)
	}
	return result, err
}

// bytesOf copies a result's bytes and releases it.
func bytesOf(t testing.TB, r *ReadResult) []byte {
	var out []byte
	for _, region := range r.Regions {
		p := make([]byte, region.Bytes)
		n, err := region.ReadAt(p, 0)
		require.True(t, err == nil || errors.Is(err, io.EOF) && n == len(p), "%v", err)
		out = append(out, p...)
	}
	r.Release()
	return out
}

func batchesOf(t testing.TB, data []byte) []recordbatch.Batch {
	var out []recordbatch.Batch
	for len(data) > 0 {
		b, rest, err := recordbatch.First(data)
		require.NoError(t, err)
		out, data = append(out, b), rest
	}
	return out
}

// fakeRemote keeps what is published in one file in memory. It answers as the
// ports say: whole batches, bounds, an error where nothing holds the offset.
type fakeRemote struct {
	fs *disk.Crash

	mu      sync.Mutex
	known   bool
	start   cluster.Offset
	end     cluster.Offset
	batches []recordbatch.Batch
	state   RemoteState
	chunks  int
	down    error         // answer of every call that may block
	hold    chan struct{} // Read waits for it to be closed, or its context
	kept    []cluster.Offset
}

func (r *fakeRemote) RemoteEndOffset(cluster.TopicPartition) (cluster.Offset, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end, r.known
}

func (r *fakeRemote) LogStartOffset(cluster.TopicPartition) (cluster.Offset, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.start, r.known
}

func (r *fakeRemote) LiveBytes(cluster.TopicPartition) int64 { return 0 }

// publish takes a sealed segment of the partition in.
func (r *fakeRemote) publish(t testing.TB, p *Partition, s locallog.SegmentInfo) {
	view, err := p.OpenSealed(s.Base)
	require.NoError(t, err)
	defer view.Release()
	data := make([]byte, view.SegmentInfo.Bytes)
	_, err = view.Handle.File().ReadAt(data, 0)
	require.True(t, err == nil || errors.Is(err, io.EOF))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range batchesOf(t, data) {
		if b.BaseOffset() >= r.end {
			r.batches = append(r.batches, b)
		}
	}
	r.known, r.end = true, s.Next
	r.state.End, r.state.ProducerSnapshot = s.Next, view.ProducerSnapshot
	for _, e := range view.Epochs {
		if n := len(r.state.Epochs); n == 0 || r.state.Epochs[n-1].Epoch < e.Epoch {
			r.state.Epochs = append(r.state.Epochs, leaderepoch.Entry{Epoch: e.Epoch, Start: e.Start})
		}
	}
}

func (r *fakeRemote) Read(ctx context.Context, _ cluster.TopicPartition, read RemoteRead) (RemoteSlice, error) {
	r.mu.Lock()
	hold, down := r.hold, r.down
	r.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return RemoteSlice{}, ctx.Err()
		}
	}
	if down != nil {
		return RemoteSlice{}, down
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var data []byte
	next := read.Offset
	if read.Offset < r.start || read.Offset >= r.end {
		return RemoteSlice{}, fmt.Errorf("remote: %w", ErrOffsetOutOfRange)
	}
	for _, b := range r.batches {
		if b.LastOffset() < read.Offset {
			continue
		}
		if b.NextOffset() > read.Bound || len(data)+len(b) > read.MaxBytes && (len(data) > 0 || !read.MinOneBatch) {
			break
		}
		data, next = append(data, b...), b.NextOffset()
	}
	if len(data) == 0 {
		return RemoteSlice{NextOffset: next}, nil
	}
	r.chunks++
	name := fmt.Sprintf("/chunk-%d", r.chunks)
	file, err := r.fs.Create(name)
	if err != nil {
		return RemoteSlice{}, err
	}
	if _, err := file.WriteAt(data, 0); err != nil {
		return RemoteSlice{}, err
	}
	handle := disk.NewHandle(file, func(error) { _ = r.fs.Remove(name) })
	return RemoteSlice{Regions: []disk.Region{{Handle: handle, Bytes: int64(len(data))}}, Bytes: len(data), NextOffset: next}, nil
}

func (r *fakeRemote) OffsetForTimestamp(_ context.Context, _ cluster.TopicPartition, ts int64, from cluster.Offset) (TimestampOffset, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down != nil {
		return TimestampOffset{}, false, r.down
	}
	for _, b := range r.batches {
		o, stamp, ok, err := recordbatch.OffsetForTimestampFrom(b, ts, from, &recordbatch.Decoder{})
		if ok || err != nil {
			return TimestampOffset{Offset: o, Timestamp: stamp, LeaderEpoch: b.PartitionLeaderEpoch()}, ok, err
		}
	}
	return TimestampOffset{}, false, nil
}

func (r *fakeRemote) EpochEnd(_ cluster.TopicPartition, epoch cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset, bool) {
	return cluster.NoLeaderEpoch, cluster.NoOffset, false
}

func (r *fakeRemote) Aborted(context.Context, cluster.TopicPartition, cluster.Offset, cluster.Offset) ([]producerstate.AbortedTxn, error) {
	return nil, r.down
}

func (r *fakeRemote) State(context.Context, cluster.TopicPartition) (RemoteState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state, r.down
}

// Advance is the LogStartKeeper: the rules of request.AdvanceLogStart.
func (r *fakeRemote) Advance(_ context.Context, _ cluster.TopicPartition, _ cluster.LeaderEpoch, offset, batchBase cluster.Offset) (cluster.Offset, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down != nil {
		return cluster.NoOffset, r.down
	}
	r.known = true
	if offset <= r.start {
		return r.start, nil
	}
	r.start = offset
	if offset > r.end {
		r.end, r.batches = batchBase, nil
	}
	r.kept = append(r.kept, offset)
	return offset, nil
}
