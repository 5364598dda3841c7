package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeProducers lists the producers that partitions led here remember.
func (h *Handler) describeProducers(_ context.Context, req *kmsg.DescribeProducersRequest) *kmsg.DescribeProducersResponse {
	resp := kmsg.NewPtrDescribeProducersResponse()
	img := h.cfg.Cluster.Image()
	for i := range req.Topics {
		asked := &req.Topics[i]
		t := kmsg.NewDescribeProducersResponseTopic()
		t.Topic = asked.Topic
		topic, code := topicFor(img, false, asked.Topic, [16]byte{})
		bad := outcome{code: code}
		if text := invalidTopicName(asked.Topic); text != "" {
			bad = refused(codeInvalidTopic, text)
		} else if code != codeNone {
			bad = refused(code, textUnknownTopic)
		}
		for _, n := range asked.Partitions {
			p := kmsg.NewDescribeProducersResponseTopicPartition()
			p.Partition, p.ErrorCode, p.ErrorMessage = n, bad.code, bad.text
			if bad.code == codeNone {
				var replica Partition
				if replica, p.ErrorCode = h.replica(topic, n); p.ErrorCode == codeNone {
					producersOf(&p, replica)
				}
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func producersOf(p *kmsg.DescribeProducersResponseTopicPartition, replica Partition) {
	entries, err := replica.Producers()
	if err != nil {
		o := outcomeOf(err)
		p.ErrorCode, p.ErrorMessage = o.code, o.text
		return
	}
	for _, e := range entries {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch, a.LastSequence = int64(e.ProducerID), int32(e.ProducerEpoch), e.LastSequence
		a.LastTimestamp, a.CoordinatorEpoch, a.CurrentTxnStartOffset = e.LastTimestamp, e.CoordinatorEpoch, int64(e.CurrentTxnFirst)
		p.ActiveProducers = append(p.ActiveProducers, a)
	}
}
