package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
)

// describeLogDirs tells what lies in each log directory; what is only in the
// remote tier is in none.
//
// Versions: 3 has a code for the whole, 4 the size of the file systems, 5 whether
// a directory takes new replicas, which all of ours do.
func (h *Handler) describeLogDirs(_ context.Context, req *kmsg.DescribeLogDirsRequest) *kmsg.DescribeLogDirsResponse {
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	asked := map[string][]int32{}
	for i := range req.Topics {
		asked[req.Topics[i].Topic] = append(asked[req.Topics[i].Topic], req.Topics[i].Partitions...)
	}
	wanted := func(r LogDirReplica) bool {
		return req.Topics == nil || slices.Contains(asked[r.Topic], r.Partition)
	}
	for _, d := range h.cfg.LogDirs.Describe() {
		out := kmsg.NewDescribeLogDirsResponseDir()
		out.Dir, out.TotalBytes, out.UsableBytes = d.Path, d.TotalBytes, d.UsableBytes
		if d.Offline {
			out.ErrorCode = codeKafkaStorageError
		}
		for _, r := range d.Replicas {
			if !wanted(r) {
				continue
			}
			if n := len(out.Topics); n == 0 || out.Topics[n-1].Topic != r.Topic {
				t := kmsg.NewDescribeLogDirsResponseDirTopic()
				t.Topic = r.Topic
				out.Topics = append(out.Topics, t)
			}
			p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			p.Partition, p.Size, p.OffsetLag, p.IsFuture = r.Partition, r.Bytes, r.Lag, r.Future
			t := &out.Topics[len(out.Topics)-1]
			t.Partitions = append(t.Partitions, p)
		}
		resp.Dirs = append(resp.Dirs, out)
	}
	return resp
}

// noLogDirs are those of a broker without any.
type noLogDirs struct{}

func (noLogDirs) Known(string) bool                         { return false }
func (noLogDirs) Move(cluster.TopicPartition, string) error { return ErrReplicaNotAvailable }
func (noLogDirs) Describe() []LogDir                        { return nil }
