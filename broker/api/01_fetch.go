package api

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/fetchsession"
	"strandline/broker/partition"
	"strandline/broker/wire"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// remoteGrace is how long a fetch that could be answered already waits for what
// the remote tier may have in its cache.
const remoteGrace = 10 * time.Millisecond

// fetching is one fetch request under way. It is reused.
//
// Versions: 4 to 12 name topics, later ones by id (13); 5 adds the log start
// offset, 7 sessions, 9 leader epochs, 11 racks, 12 tags and diverging epochs,
// 15 moves the replica id into a tag, 16 names the leader where it is another.
type fetching struct {
	h        *Handler
	header   wire.Request
	req      kmsg.FetchRequest
	img      *image.Image
	code     int16 // of the whole request
	session  fetchSession
	parts    []fetchPart
	bytes    int // of records found
	maxBytes int
	minBytes int
	failed   bool // a read failed: answer now
	remote   bool // parts wait for the remote tier
	deadline time.Time
	draining <-chan struct{}
}

var fetchings = sync.Pool{New: func() any { return new(fetching) }}

// free ends a fetch that is answered or abandoned. It keeps only the memory of
// its lists, and that only where they are short.
func (f *fetching) free() {
	parts, topics := f.parts, f.req.Topics
	if cap(parts) > keepTopics {
		parts = nil
	}
	if cap(topics) > keepTopics {
		topics = nil
	}
	clear(parts)
	clear(topics)
	*f = fetching{parts: parts[:0]}
	f.req.Topics = topics[:0]
	fetchings.Put(f)
}

// fetchPart is one partition of it.
type fetchPart struct {
	key       fetchsession.Key // as the request names it
	cached    *fetchsession.Part
	maxBytes  int
	partition Partition
	image     *image.Partition // nil: not known
	read      partition.ReadRequest
	result    partition.ReadResult
	code      int16
	known     bool // result has offsets
	left      bool // out of the answer: the client knows it all
}

func (h *Handler) fetch(c *Conn, q *wire.Request, out *wire.Out) (Deferred, error) {
	f := fetchings.Get().(*fetching)
	f.h, f.draining, f.img = h, c.Draining, h.cfg.Cluster.Image()
	if err := h.decode(q, &f.req, false); err != nil {
		f.free()
		return nil, err
	}
	f.header = *q
	f.header.ClientID, f.header.Body = nil, nil
	if f.prepare(); f.code != codeNone {
		f.write(out)
		f.free()
		return nil, nil
	}
	if _, old := f.oldFormat(); old {
		return f, nil // conversion is not for the goroutine that reads the connection
	}
	f.readLocal()
	if !f.remote && f.enough(time.Now()) {
		f.write(out)
		f.free()
		return nil, nil
	}
	f.release()
	return f, nil
}

// prepare finds what the request asks for.
func (f *fetching) prepare() {
	req := &f.req
	if req.IsolationLevel < 0 || req.IsolationLevel > 1 {
		f.code = codeInvalidRequest
		return
	}
	replica := consumerOr(req.ReplicaID)
	if req.Version >= 15 {
		replica = consumerOr(req.ReplicaState.ID)
	}
	if f.code = f.openSession(replica); f.code != codeNone {
		return
	}
	f.maxBytes = max(int(req.MaxBytes), 0)
	if most := int(f.h.cfg.Broker.FetchMaxBytes); replica < 0 && most > 0 {
		f.maxBytes = min(f.maxBytes, most)
	}
	f.minBytes = min(int(req.MinBytes), f.maxBytes)
	f.deadline = time.Now().Add(time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond)
	if f.session.incremental {
		f.session.turn.Parts(f.reserve, func(p *fetchsession.Part) { f.addCached(p, replica) })
		return
	}
	f.reserve(requested(req))
	for i := range req.Topics {
		topic, code := topicFor(f.img, req.Version >= 13, req.Topics[i].Topic, req.Topics[i].TopicID)
		for j := range req.Topics[i].Partitions {
			ask := f.ask(&req.Topics[i], &req.Topics[i].Partitions[j])
			f.add(&ask, replica, topic, code)
		}
	}
}

// reserve makes room for n parts.
func (f *fetching) reserve(n int) { f.parts = slices.Grow(f.parts[:0], n) }

// requested counts the partitions that a request names.
func requested(req *kmsg.FetchRequest) int {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	return n
}

func (f *fetching) ask(t *kmsg.FetchRequestTopic, p *kmsg.FetchRequestTopicPartition) fetchsession.Ask {
	a := fetchsession.Ask{
		Key: fetchsession.Key{Name: t.Topic, Partition: p.Partition}, Offset: cluster.Offset(p.FetchOffset), MaxBytes: p.PartitionMaxBytes,
		CurrentLeaderEpoch: cluster.LeaderEpoch(p.CurrentLeaderEpoch), LastFetchedEpoch: cluster.LeaderEpoch(p.LastFetchedEpoch),
	}
	if f.req.Version >= 13 {
		a.ID, a.Name = cluster.TopicID(t.TopicID), ""
	}
	return a
}

func (f *fetching) add(a *fetchsession.Ask, replica cluster.BrokerID, topic *image.Topic, code int16) {
	f.parts = append(f.parts, fetchPart{key: a.Key, maxBytes: max(int(a.MaxBytes), 0), code: code, read: partition.ReadRequest{
		Offset: a.Offset, ReadCommitted: f.req.IsolationLevel == 1, CurrentLeaderEpoch: a.CurrentLeaderEpoch,
		LastFetchedEpoch: a.LastFetchedEpoch, Replica: replica,
	}})
	if code == codeNone {
		f.find(&f.parts[len(f.parts)-1], topic, a.Partition)
	}
}

func (f *fetching) find(p *fetchPart, topic *image.Topic, index int32) {
	if p.partition, p.code = f.h.replica(topic, index); p.code == codeUnknownTopicOrPartition {
		return
	}
	p.image = topic.Partitions[index]
	if follower := p.read.Replica; p.code == codeNone && follower != cluster.NoBroker &&
		(!slices.Contains(p.image.Replicas, follower) || follower == p.image.Leader) {
		p.code = codeNotLeaderOrFollower
	}
	f.failed = f.failed || p.code != codeNone
}

// consumerOr is the broker that asks; whatever is no broker id is a consumer.
func consumerOr(replica int32) cluster.BrokerID {
	return max(cluster.BrokerID(replica), cluster.NoBroker)
}

// readLocal reads every partition in order within the budget. For parts that
// the remote tier has it sets aside what they may take.
func (f *fetching) readLocal() {
	f.bytes, f.remote = 0, false
	budget, first := f.maxBytes, true
	for i := range f.parts {
		p := &f.parts[i]
		if p.partition == nil || p.code != codeNone {
			continue
		}
		// Before version 3 a request has no limit but those of its partitions.
		p.read.MaxBytes, p.read.MinOneBatch = min(p.maxBytes, budget), first || f.req.Version < 3
		res, err := p.partition.Read(p.read)
		if err != nil {
			p.code = f.codeOfRead(err)
			f.failed = true
			continue
		}
		p.result, p.known = res, true
		switch {
		case res.Remote:
			f.remote = true
			budget, first = budget-p.read.MaxBytes, false
		case res.Bytes > 0:
			budget, first = max(budget-res.Bytes, 0), false
			f.bytes += res.Bytes
		}
	}
}

func (f *fetching) codeOfRead(err error) int16 {
	code := codeOf(err)
	if code == codeUnknownServerError {
		f.h.cfg.Logger.Error("fetch failed", "error", err)
	}
	return code
}

// enough tells whether the response need not wait any longer.
func (f *fetching) enough(now time.Time) bool {
	if f.bytes >= f.minBytes || f.failed || !now.Before(f.deadline) {
		return true
	}
	for i := range f.parts {
		if f.parts[i].result.Diverging != nil {
			return true
		}
	}
	return !f.waits()
}

// waits tells whether there is a partition that could have more one day.
func (f *fetching) waits() bool {
	for i := range f.parts {
		if p := &f.parts[i]; p.partition != nil && p.code == codeNone {
			return true
		}
	}
	return false
}

// release gives back what was read, to read again later.
func (f *fetching) release() {
	for i := range f.parts {
		f.parts[i].result.Release()
	}
	f.bytes = 0
}

// Complete waits until there is enough to answer, or the client's time is over.
func (f *fetching) Complete(ctx context.Context, out *wire.Out) error {
	defer f.free()
	waiter := partition.NewWaiter()
	for i := range f.parts {
		if p := f.parts[i].partition; p != nil {
			p.AddWaiter(waiter)
			defer p.RemoveWaiter(waiter)
		}
	}
	timer := time.NewTimer(time.Until(f.deadline))
	defer timer.Stop()
	for {
		f.readLocal()
		if f.remote && !f.failed {
			f.readRemote(ctx)
		}
		if _, old := f.oldFormat(); old {
			f.downgrade(ctx)
		}
		if ctx.Err() != nil {
			f.release()
			return ctx.Err()
		}
		if f.enough(time.Now()) {
			break
		}
		f.release()
		select {
		case <-waiter.C:
		case <-timer.C:
			f.deadline = time.Time{} // whatever there is now
		case <-f.draining:
			f.deadline = time.Time{}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.write(out)
	return nil
}

// Abandon has nothing to give back: nothing is held while it is queued.
func (f *fetching) Abandon() { f.free() }

// readRemote reads all remote parts at once, within what readLocal set aside for
// each. It returns when all have answered or when the client's time is over;
// where there is enough without them, soon.
func (f *fetching) readRemote(parent context.Context) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	type answer struct {
		part   int
		result partition.ReadResult
		err    error
	}
	pending := 0
	answers := make(chan answer, len(f.parts))
	for i := range f.parts {
		p := &f.parts[i]
		if !p.result.Remote || p.code != codeNone || p.read.MaxBytes == 0 && !p.read.MinOneBatch {
			continue
		}
		pending++
		go func(p *fetchPart, read partition.ReadRequest) {
			result, err := p.partition.ReadRemote(ctx, read)
			answers <- answer{i, result, err}
		}(p, p.read)
	}
	over := time.NewTimer(f.timeForRemote())
	defer over.Stop()
	for pending > 0 {
		select {
		case a := <-answers:
			pending--
			f.takeRemote(&f.parts[a.part], a.result, a.err)
			if f.bytes >= f.minBytes && pending > 0 && ctx.Err() == nil {
				over.Reset(min(remoteGrace, f.timeForRemote()))
			}
		case <-over.C:
			cancel()
		}
	}
	f.trim()
	if f.bytes == 0 && !f.failed && parent.Err() == nil {
		f.rereadLocal()
	}
}

// timeForRemote is how long the remote tier may take.
func (f *fetching) timeForRemote() time.Duration {
	left := max(time.Until(f.deadline), 0)
	if f.bytes >= f.minBytes {
		return min(left, remoteGrace)
	}
	// A client that does not wait still gets what is in the cache.
	return max(left, remoteGrace)
}

// takeRemote merges the answer of the remote tier; a read that was not done in
// time leaves the partition empty, and goes on into the cache.
func (f *fetching) takeRemote(p *fetchPart, result partition.ReadResult, err error) {
	switch {
	case err == nil:
		p.result = result
		f.bytes += result.Bytes
	case errors.Is(err, partition.ErrRemoteTimeout), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	default:
		p.code = f.codeOfRead(err)
		f.failed = true
	}
}

// trim drops, from the end, what the limit does not allow next to the first
// batch, which may have been larger than what was set aside for it (A3).
func (f *fetching) trim() {
	total := 0
	for i := range f.parts {
		r := &f.parts[i].result
		if r.Bytes == 0 {
			continue
		}
		if total > 0 && total+r.Bytes > f.maxBytes {
			f.bytes -= r.Bytes
			r.Release()
			r.Bytes, r.Aborted = 0, nil
			continue
		}
		total += r.Bytes
	}
}

// rereadLocal looks at the local parts again where the remote ones, which had
// come first, brought nothing: a batch larger than its limits must not wait
// behind a slow store for ever.
func (f *fetching) rereadLocal() {
	for i := range f.parts {
		p := &f.parts[i]
		if p.partition == nil || p.code != codeNone || p.result.Remote || p.read.MinOneBatch {
			continue
		}
		p.read.MaxBytes, p.read.MinOneBatch = min(p.maxBytes, f.maxBytes-f.bytes), f.bytes == 0
		res, err := p.partition.Read(p.read)
		if err != nil {
			p.code = f.codeOfRead(err)
			f.failed = true
			continue
		}
		p.result.Release()
		p.result = res
		if f.bytes += res.Bytes; f.bytes >= f.maxBytes {
			return
		}
	}
}
