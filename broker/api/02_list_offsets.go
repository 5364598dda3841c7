package api

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// lookupsAtOnce bounds the lookups by time of one request that run at once: each
// may have to read an index from the remote tier.
const lookupsAtOnce = 8

// listOffsets looks up offsets by time or by a special timestamp.
//
// Versions: 0 answers with a list of offsets and knows no time index; 2 adds the isolation level, 4 leader epochs, 7 the maximum
// timestamp (-3), 8 the earliest local offset (-4), 9 the last tiered one (-5),
// 10 a timeout, 11 the earliest not uploaded (-6).
func (h *Handler) listOffsets(ctx context.Context, req *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	wait := req.TimeoutMillis
	if req.Version < 10 {
		wait = 0 // the client cannot say: what is decoded is the protocol's default
	}
	ctx, cancel := timeoutOr(ctx, wait, h.cfg.Broker.RemoteListTimeout)
	defer cancel()
	img := h.cfg.Cluster.Image()
	resp := kmsg.NewPtrListOffsetsResponse()
	var (
		lookups sync.WaitGroup
		slots   = make(chan struct{}, lookupsAtOnce)
	)
	twice := repeated(req.Topics)
	for i := range req.Topics {
		asked := &req.Topics[i]
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = asked.Topic
		topic, code := topicFor(img, false, asked.Topic, [16]byte{})
		// The slice has its final size: lookups write into it.
		t.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, 0, len(asked.Partitions))
		for j := range asked.Partitions {
			a := &asked.Partitions[j]
			at := listed{asked.Topic, a.Partition}
			if twice[at] == answered {
				continue
			}
			if twice[at] > 0 {
				twice[at] = answered
			}
			t.Partitions = append(t.Partitions, noOffset(a.Partition, code))
			p := &t.Partitions[len(t.Partitions)-1]
			switch {
			case twice[at] > 0:
				p.ErrorCode = codeInvalidRequest
			case !knowsTimestamp(req.Version, a.Timestamp):
				p.ErrorCode = codeUnsupportedVersion
			case code != codeNone:
			case a.Timestamp >= 0:
				slots <- struct{}{}
				lookups.Add(1)
				go func() {
					defer func() { <-slots; lookups.Done() }()
					h.listOffset(ctx, req, topic, a, p)
				}()
			default:
				h.listOffset(ctx, req, topic, a, p)
			}
		}
		if len(t.Partitions) > 0 || len(asked.Partitions) == 0 {
			resp.Topics = append(resp.Topics, t)
		}
	}
	lookups.Wait()
	return resp
}

func noOffset(index int32, code int16) kmsg.ListOffsetsResponseTopicPartition {
	p := kmsg.NewListOffsetsResponseTopicPartition()
	p.Partition, p.ErrorCode = index, code
	p.Offset, p.Timestamp, p.LeaderEpoch = int64(cluster.NoOffset), -1, int32(cluster.NoLeaderEpoch)
	return p
}

func (h *Handler) listOffset(ctx context.Context, req *kmsg.ListOffsetsRequest, topic *image.Topic, asked *kmsg.ListOffsetsRequestTopicPartition, p *kmsg.ListOffsetsResponseTopicPartition) {
	replica, code := h.replica(topic, asked.Partition)
	if code != codeNone {
		p.ErrorCode = code
		return
	}
	if req.Version == 0 {
		h.offsetsBefore(req, asked, replica, p)
		return
	}
	found, err := replica.ListOffset(ctx, partition.ListOffsetRequest{
		Timestamp: asked.Timestamp, ReadCommitted: req.IsolationLevel == 1,
		Replica: consumerOr(req.ReplicaID), CurrentLeaderEpoch: cluster.LeaderEpoch(asked.CurrentLeaderEpoch),
	})
	if err != nil {
		if p.ErrorCode = codeOf(err); p.ErrorCode == codeUnknownServerError {
			h.cfg.Logger.Error("offset lookup failed", "topic", topic.Name, "partition", asked.Partition, "error", err)
		}
		return
	}
	p.Offset, p.Timestamp, p.LeaderEpoch = int64(found.Offset), found.Timestamp, int32(found.LeaderEpoch)
}

// offsetsBefore answers version 0.
func (h *Handler) offsetsBefore(req *kmsg.ListOffsetsRequest, asked *kmsg.ListOffsetsRequestTopicPartition, replica Partition, p *kmsg.ListOffsetsResponseTopicPartition) {
	found, err := replica.OffsetsBefore(asked.Timestamp, int(max(asked.MaxNumOffsets, 0)), consumerOr(req.ReplicaID))
	p.ErrorCode = codeOf(err)
	for _, o := range found {
		p.OldStyleOffsets = append(p.OldStyleOffsets, int64(o))
	}
}

// knowsTimestamp tells whether a version has this special timestamp.
func knowsTimestamp(version int16, timestamp int64) bool {
	switch {
	case timestamp >= partition.EarliestTimestamp:
		return true
	case timestamp == partition.MaxTimestamp:
		return version >= 7
	case timestamp == partition.EarliestLocalTimestamp:
		return version >= 8
	case timestamp == partition.LatestTieredTimestamp:
		return version >= 9
	case timestamp == partition.EarliestPendingUpload:
		return version >= 11
	}
	return false
}

// listed is a partition that is asked for.
type listed struct {
	topic     string
	partition int32
}

// answered marks a repeated partition that has had its answer.
const answered = 2

// repeated has the partitions that are asked for more than once.
func repeated(topics []kmsg.ListOffsetsRequestTopic) map[listed]int {
	if len(topics) == 1 && len(topics[0].Partitions) < 2 {
		return nil
	}
	once, twice := map[listed]bool{}, map[listed]int{}
	for i := range topics {
		for j := range topics[i].Partitions {
			at := listed{topics[i].Topic, topics[i].Partitions[j].Partition}
			if once[at] {
				twice[at] = 1
			}
			once[at] = true
		}
	}
	return twice
}
