package tiertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"strandline/broker/leaderepoch"
	"strandline/broker/locallog"
	"strandline/broker/partition"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/request"
)

// Batch is one generated batch.
type Batch struct {
	recordbatch.Batch
	Position int64 // in its segment
}

// Segment is one generated local segment.
type Segment struct {
	locallog.SegmentInfo
	Batches []Batch
	file    string
}

// Replica is a partition made of generated segments: what archive and sweep need
// of one.
type Replica struct {
	FS      disk.FS
	Catalog *Catalog
	TP      cluster.TopicPartition
	Name    string
	// Aborted is what AbortedTxns answers with.
	Aborted []producerstate.AbortedTxn
	// Opened is called before a segment is opened; may be nil.
	Opened func(base cluster.Offset) error

	mu       sync.Mutex
	settings config.Topic
	epoch    cluster.LeaderEpoch
	leading  bool
	start    cluster.Offset
	stable   cluster.Offset
	segments []*Segment
	rng      *rand.Rand
	clock    int64
}

// NewReplica returns an empty leader under epoch 1 of a tiered topic without
// retention.
func NewReplica(fs disk.FS, c *Catalog, name string, number int32) *Replica {
	r := &Replica{
		FS: fs, Catalog: c, Name: name, leading: true, epoch: 1,
		rng: rand.New(rand.NewPCG(uint64(number), 9)), clock: 1_000_000,
		settings: config.Topic{
			CleanupPolicy: config.CleanupDelete, RetentionTime: config.Forever, RetentionBytes: config.Unlimited,
			LocalRetentionTime: config.Forever, LocalRetentionBytes: config.Unlimited, Tiered: true,
		},
	}
	copy(r.TP.Topic[:], name+"................")
	r.TP.Partition = number
	c.SetEpoch(r.TP, 1)
	return r
}

// AddSegment appends a sealed segment of so many batches of one to four records
// each, with timestamps that go back at times, and returns it.
func (r *Replica) AddSegment(batches, valueBytes int) *Segment {
	r.mu.Lock()
	defer r.mu.Unlock()
	base := r.endLocked()
	s := &Segment{SegmentInfo: locallog.SegmentInfo{Base: base, Next: base, Sealed: true, MaxTimestamp: -1, Created: time.Now(), Modified: time.Now()}}
	var data []byte
	for range batches {
		b := r.batchLocked(s.Next, valueBytes)
		s.Batches = append(s.Batches, Batch{b, int64(len(data))})
		data = append(data, b...)
		s.Next = b.NextOffset()
		s.MaxTimestamp = max(s.MaxTimestamp, b.MaxTimestamp())
	}
	s.Bytes = int64(len(data))
	s.file = fmt.Sprintf("/%s-%d/%020d.log", r.Name, r.TP.Partition, base)
	if err := write(r.FS, s.file, data); err != nil {
		panic(err)
	}
	r.segments = append(r.segments, s)
	r.stable = s.Next
	return s
}

func write(fs disk.FS, name string, data []byte) error {
	dir := name[:len(name)-len("/00000000000000000000.log")]
	if err := fs.MkdirAll(dir); err != nil {
		return err
	}
	return disk.WriteFileUnsynced(fs, name, data)
}

func (r *Replica) batchLocked(base cluster.Offset, valueBytes int) recordbatch.Batch {
	b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: base, LeaderEpoch: r.epoch})
	r.clock += r.rng.Int64N(2000) - 500
	for range 1 + r.rng.IntN(4) {
		value := make([]byte, valueBytes)
		for i := 0; i < len(value); i += 8 {
			v := r.rng.Uint64()
			for j := i; j < min(i+8, len(value)); j++ {
				value[j] = byte(v)
				v >>= 8
			}
		}
		b.Add(r.clock+r.rng.Int64N(300), fmt.Appendf(nil, "k%d", base), value)
	}
	return b.Build()
}

func (r *Replica) endLocked() cluster.Offset {
	if n := len(r.segments); n > 0 {
		return r.segments[n-1].Next
	}
	return r.start
}

// SetClock sets the timestamp that the next batches are near to.
func (r *Replica) SetClock(ms int64) { r.set(func() { r.clock = ms }) }

// SetLeader makes the replica the leader under an epoch, or not.
func (r *Replica) SetLeader(e cluster.LeaderEpoch, leading bool) {
	r.set(func() { r.epoch, r.leading = e, leading })
	if leading {
		r.Catalog.SetEpoch(r.TP, e)
	}
}

// SetStable sets the bound of what may leave.
func (r *Replica) SetStable(o cluster.Offset) { r.set(func() { r.stable = o }) }

// SetStart moves the log start offset, without telling the catalog.
func (r *Replica) SetStart(o cluster.Offset) { r.set(func() { r.start = o }) }

// Change changes the settings.
func (r *Replica) Change(f func(*config.Topic)) { r.set(func() { f(&r.settings) }) }

// DropLocal removes the segments that end at or below an offset from the local
// log.
func (r *Replica) DropLocal(below cluster.Offset) {
	r.set(func() {
		r.segments = slices.DeleteFunc(slices.Clone(r.segments), func(s *Segment) bool { return s.Next <= below })
	})
}

func (r *Replica) set(f func()) {
	r.mu.Lock()
	f()
	r.mu.Unlock()
}

// Segments returns the segments, local or trimmed.
func (r *Replica) Segments() []*Segment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.segments
}

// Batches returns every batch of the log.
func (r *Replica) Batches() []Batch {
	var out []Batch
	for _, s := range r.Segments() {
		out = append(out, s.Batches...)
	}
	return out
}

// TopicPartition is part of the replica ports, as are the methods below.
func (r *Replica) TopicPartition() cluster.TopicPartition { return r.TP }

func (r *Replica) Topic() string { return r.Name }

func (r *Replica) Settings() config.Topic {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settings
}

func (r *Replica) LogStartOffset() cluster.Offset {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.start
}

func (r *Replica) Leading() (cluster.LeaderEpoch, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epoch, r.leading
}

func (r *Replica) Archivable(from cluster.Offset) ([]locallog.SegmentInfo, cluster.LeaderEpoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []locallog.SegmentInfo
	for _, s := range r.segments {
		if r.leading && s.Next > from && s.Next <= r.stable {
			out = append(out, s.SegmentInfo)
		}
	}
	return out, r.epoch
}

func (r *Replica) OpenSealed(base cluster.Offset) (*locallog.SealedView, error) {
	if r.Opened != nil {
		if err := r.Opened(base); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.segments {
		if s.Base == base {
			f, err := r.FS.OpenReadOnly(s.file)
			if err != nil {
				return nil, err
			}
			return &locallog.SealedView{
				SegmentInfo: s.SegmentInfo, Handle: disk.NewHandle(f, nil),
				Epochs:           []leaderepoch.Entry{{Epoch: s.Batches[0].PartitionLeaderEpoch(), Start: base}},
				ProducerSnapshot: fmt.Appendf(nil, "snapshot at %d", s.Next),
			}, nil
		}
	}
	return nil, locallog.ErrNoSegment
}

func (r *Replica) AbortedTxns(from, to cluster.Offset) ([]producerstate.AbortedTxn, error) {
	var out []producerstate.AbortedTxn
	for _, a := range r.Aborted {
		if a.First < to && a.Last >= from {
			out = append(out, a)
		}
	}
	return out, nil
}

func (r *Replica) BatchBase(o cluster.Offset) (cluster.Offset, error) {
	for _, b := range r.Batches() {
		if b.BaseOffset() <= o && o < b.NextOffset() {
			return b.BaseOffset(), nil
		}
	}
	return o, nil
}

func (r *Replica) AdvanceLogStart(ctx context.Context, to cluster.Offset) (cluster.Offset, error) {
	base, err := r.BatchBase(to)
	if err != nil {
		return 0, err
	}
	epoch, _ := r.Leading()
	res, err := r.Catalog.Submit(ctx, request.AdvanceLogStart{Partition: r.TP, LeaderEpoch: epoch, Offset: to, BatchBase: base})
	if err != nil {
		return 0, err
	}
	start := res.(request.LogStart).Offset
	r.SetStart(start)
	return start, nil
}

func (r *Replica) Status() partition.Status {
	sum, _ := r.Catalog.Summary(r.TP)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := partition.Status{
		Topic: r.Name, Partition: r.TP, LeaderEpoch: r.epoch, Leading: r.leading, Tiered: r.settings.Tiered, Remote: true,
		LogStartOffset: r.start, RemoteEndOffset: max(sum.RemoteEnd, r.start), LastStableOffset: r.stable,
		HighWatermark: r.stable, FlushedOffset: r.stable, LogEndOffset: r.endLocked(),
	}
	s.LocalLogStartOffset = s.LogEndOffset
	if len(r.segments) > 0 {
		s.LocalLogStartOffset = r.segments[0].Base
	}
	for _, seg := range r.segments {
		s.Segments = append(s.Segments, seg.SegmentInfo)
		s.LocalBytes += seg.Bytes
		if seg.Next > s.RemoteEndOffset {
			s.PendingSegments++
			s.PendingBytes += seg.Bytes
			if s.OldestPending.IsZero() {
				s.OldestPending = seg.Modified
			}
		}
	}
	return s
}
