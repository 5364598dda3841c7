package api

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/broker/wire"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// production is one produce request and its response. It is reused, so that a
// small request costs few allocations.
//
// Versions: 0 to 2 carry message sets of the old formats, and are advertised
// and refused, as Apache Kafka 4 does, unless compat.legacy.clients is set; 3 to
// 8 name topics and have no tags; 8 adds the records that were refused; 10 names
// the leader where it is another; 13 names topics by id.
type production struct {
	req     kmsg.ProduceRequest
	resp    kmsg.ProduceResponse
	waiting []waiting
	failed  bool
	// Of a response that waits:
	header   wire.Request
	deadline time.Time
}

// waiting is a partition whose append is not durable enough yet.
type waiting struct {
	topic, partition int // in resp
	commit           Commit
}

var productions = sync.Pool{New: func() any { return new(production) }}

// keepTopics bounds what a production keeps for its next request.
const keepTopics = 64

func (p *production) free() {
	if cap(p.req.Topics) > keepTopics || cap(p.waiting) > keepTopics {
		return // for the collector
	}
	clear(p.waiting)
	p.waiting = p.waiting[:0]
	p.failed = false
	// The request's records and strings are views of a frame that is gone.
	clear(p.req.Topics[:cap(p.req.Topics)])
	p.req.TransactionID = nil
	p.header = wire.Request{}
	productions.Put(p)
}

func (h *Handler) produce(q *wire.Request, out *wire.Out) (Deferred, error) {
	p := productions.Get().(*production)
	if err := h.decode(q, &p.req, true); err != nil {
		p.free()
		return nil, err
	}
	h.appendAll(p)
	if p.req.Acks == 0 {
		defer p.free()
		if p.failed {
			return nil, ErrNoAnswer
		}
		return nil, nil
	}
	if len(p.waiting) == 0 {
		respond(out, q, &p.resp)
		p.free()
		return nil, nil
	}
	p.detach(q)
	return p, nil
}

// appendAll appends what the request holds and fills the response.
func (h *Handler) appendAll(p *production) {
	img := h.cfg.Cluster.Image()
	byID := p.req.Version >= 13
	p.resp.Default()
	p.resp.Brokers = nil
	p.resp.Topics = resize(p.resp.Topics, len(p.req.Topics))
	for i := range p.req.Topics {
		from, to := &p.req.Topics[i], &p.resp.Topics[i]
		to.Topic, to.TopicID = from.Topic, from.TopicID
		if cap(to.Partitions) > keepTopics {
			to.Partitions = nil
		}
		to.Partitions = resize(to.Partitions, len(from.Partitions))
		topic, code := topicFor(img, byID, from.Topic, from.TopicID)
		for j := range from.Partitions {
			result := &to.Partitions[j]
			*result = kmsg.ProduceResponseTopicPartition{}
			result.Default()
			result.Partition = from.Partitions[j].Partition
			result.BaseOffset = int64(cluster.NoOffset)
			if code != codeNone {
				result.ErrorCode = code
				p.failed = true
				continue
			}
			if commit := h.appendOne(p, topic, from.Partitions[j].Records, result); commit != nil {
				p.waiting = append(p.waiting, waiting{topic: i, partition: j, commit: commit})
			}
			if result.ErrorCode != codeNone {
				p.failed = true
				h.nameLeader(p, img, topic, result)
			}
		}
	}
}

func (h *Handler) appendOne(p *production, topic *image.Topic, records []byte, result *kmsg.ProduceResponseTopicPartition) Commit {
	replica, code := h.replica(topic, result.Partition)
	if code != codeNone {
		result.ErrorCode = code
		return nil
	}
	if topic.Internal {
		out := refused(codeInvalidTopic, "Cannot append to internal topic "+topic.Name)
		result.ErrorCode, result.ErrorMessage = out.code, out.text
		return nil
	}
	old := p.req.Version < 3
	if old && len(records) == 0 {
		return nil // as Apache Kafka answered it: nothing was asked for
	}
	set := old && isMessageSet(records)
	if !set {
		if out := checkProduced(records, p.req.Version); out.code != codeNone {
			result.ErrorCode, result.ErrorMessage = out.code, out.text
			return nil
		}
	}
	if p.req.Acks < -1 || p.req.Acks > 1 {
		result.ErrorCode = codeInvalidRequiredAcks
		return nil
	}
	res, commit, err := replica.Append(partition.AppendRequest{
		Records: records, MessageSet: set, CurrentLeaderEpoch: cluster.NoLeaderEpoch,
		RequiredAcks: p.req.Acks, Origin: partition.FromClient,
	})
	if err != nil {
		h.refuse(result, err)
		if saysLogStart(result.ErrorCode) {
			if start, err := replica.ListOffset(h.ctx, logStart); err == nil {
				result.LogStartOffset = int64(start.Offset)
			}
		}
		return nil
	}
	h.cfg.Conversions.add(conversionUp, res.Upgraded)
	h.cfg.Conversions.add(conversionCodec, res.Recompressed)
	result.BaseOffset = int64(res.BaseOffset)
	result.LogAppendTime = res.LogAppendTime
	result.LogStartOffset = int64(res.LogStartOffset)
	if p.req.Acks == 0 {
		return nil
	}
	return commit
}

var logStart = partition.ListOffsetRequest{
	Timestamp: partition.EarliestTimestamp, Replica: cluster.NoBroker, CurrentLeaderEpoch: cluster.NoLeaderEpoch,
}

// saysLogStart tells whether a refusal names the log's start, from which
// clients see whether records were deleted meanwhile.
func saysLogStart(code int16) bool {
	switch code {
	case codeInvalidRecord, codeInvalidTimestamp, codeOutOfOrderSequence, codeInvalidProducerEpoch:
		return true
	}
	return false
}

// magicAt is where every format of records says which it is.
const magicAt = 16

// isMessageSet tells whether records are of format v0 or v1, or too few to say.
func isMessageSet(records []byte) bool { return len(records) <= magicAt || records[magicAt] < 2 }

// checkProduced applies what a produce request of any version must keep to,
// before the partition looks at the batch: exactly one batch, of format 2.
func checkProduced(records []byte, version int16) outcome {
	if len(records) <= magicAt {
		return outcome{code: codeInvalidRecord} // nothing that could be a batch
	}
	switch magic := records[magicAt]; {
	case magic < 2:
		return refused(codeInvalidRecord, "Produce requests are only allowed to contain record batches with magic version 2")
	case magic > 2:
		return refused(codeCorruptMessage, "Invalid magic found in record: "+itoa(int(int8(magic))))
	}
	batch, rest, err := recordbatch.First(records)
	switch {
	case errors.Is(err, recordbatch.ErrTruncated):
		return outcome{code: codeInvalidRecord}
	case err != nil:
		return outcomeOf(err)
	case len(rest) > 0:
		return refused(codeInvalidRecord, "Produce requests are only allowed to contain exactly one record batch per partition")
	case version < 7 && batch.Compression() == recordbatch.Zstd:
		return refused(codeUnsupportedCompressionType, "Produce requests before version 7 are not allowed to use ZStandard compression")
	case batch.IsTransactional():
		// There is no coordinator to have begun a transaction with.
		return refused(codeInvalidTxnState, "Transactions are not served")
	}
	return outcome{}
}

// refuse answers one partition with an error.
func (h *Handler) refuse(result *kmsg.ProduceResponseTopicPartition, err error) {
	result.ErrorCode = codeOf(err)
	result.BaseOffset, result.LogAppendTime, result.LogStartOffset = -1, -1, -1
	var invalid *partition.InvalidRecordError
	if errors.As(err, &invalid) {
		for _, r := range invalid.Records {
			e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			e.RelativeOffset = r.BatchIndex
			e.ErrorMessage = kmsg.StringPtr(r.Message)
			result.ErrorRecords = append(result.ErrorRecords, e)
		}
	}
	switch result.ErrorCode {
	case codeUnknownServerError:
		h.cfg.Logger.Error("produce failed", "error", err)
	case codeNotLeaderOrFollower, codeFencedLeaderEpoch:
		return
	}
	result.ErrorMessage = kmsg.StringPtr(err.Error())
}

// nameLeader tells a client that asked the wrong broker which one it is.
func (h *Handler) nameLeader(p *production, img *image.Image, topic *image.Topic, result *kmsg.ProduceResponseTopicPartition) {
	if p.req.Version < 10 || result.ErrorCode != codeNotLeaderOrFollower && result.ErrorCode != codeFencedLeaderEpoch {
		return
	}
	leader := topic.Partitions[result.Partition]
	result.CurrentLeader.LeaderID, result.CurrentLeader.LeaderEpoch = int32(leader.Leader), int32(leader.LeaderEpoch)
	for i := range p.resp.Brokers {
		if p.resp.Brokers[i].NodeID == int32(leader.Leader) {
			return
		}
	}
	if e, ok := endpointOf(img, leader.Leader, ""); ok {
		b := kmsg.NewProduceResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = e.id, e.host, e.port, e.rack
		p.resp.Brokers = append(p.resp.Brokers, b)
	}
}

// detach makes the response independent of the frame.
func (p *production) detach(q *wire.Request) {
	for i := range p.resp.Topics {
		p.resp.Topics[i].Topic = strings.Clone(p.resp.Topics[i].Topic)
	}
	p.header = *q
	p.header.ClientID, p.header.Body = nil, nil
	p.deadline = time.Now().Add(time.Duration(max(p.req.TimeoutMillis, 0)) * time.Millisecond)
}

// Complete waits for the appends to be as durable as the request asks, each
// until the request's timeout.
func (p *production) Complete(ctx context.Context, out *wire.Out) error {
	timer := time.NewTimer(time.Until(p.deadline))
	defer timer.Stop()
	late := false
	for _, w := range p.waiting {
		result := &p.resp.Topics[w.topic].Partitions[w.partition]
		if late {
			select {
			case <-w.commit.Done():
				p.settle(result, w.commit)
			default:
				timedOut(result)
			}
			continue
		}
		select {
		case <-w.commit.Done():
			p.settle(result, w.commit)
		case <-timer.C:
			late = true
			timedOut(result)
		case <-ctx.Done():
			p.free()
			return ctx.Err()
		}
	}
	respond(out, &p.header, &p.resp)
	p.free()
	return nil
}

func (p *production) settle(result *kmsg.ProduceResponseTopicPartition, c Commit) {
	if err := c.Err(); err != nil {
		result.ErrorCode = codeOf(err)
		result.ErrorMessage = kmsg.StringPtr(err.Error())
		result.BaseOffset, result.LogAppendTime, result.LogStartOffset = -1, -1, -1
	}
}

func timedOut(result *kmsg.ProduceResponseTopicPartition) {
	result.ErrorCode = codeRequestTimedOut
	result.BaseOffset, result.LogAppendTime, result.LogStartOffset = -1, -1, -1
}

// Abandon drops the response; the appends stay.
func (p *production) Abandon() { p.free() }

// resize returns a slice of n elements that keeps what the elements of s own.
func resize[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return append(s[:cap(s)], make([]T, n-cap(s))...)
}
