package tier

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

// Special timestamps of ListOffsets.
const (
	latest                = -1
	earliest              = -2
	maxTimestamp          = -3
	earliestLocal         = -4
	latestTiered          = -5
	earliestPendingUpload = -6
)

// lookup asks for an offset by time; "code offset timestamp".
func lookup(c *kit.Raw, partition int32, ts int64) (code int16, offset, timestamp int64) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 11, -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = "m"
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, ts
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	p := c.Call(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return p.ErrorCode, p.Offset, p.Timestamp
}

// lookups are the answers to every question by time whose answer a client may
// compare: around the stamps of every batch, which go back and forth, wherever
// the seam between the tiers is.
func lookups(c *kit.Raw, partition int32, batches []recordbatch.Batch) []string {
	stamps := []int64{0, latest, earliest, maxTimestamp, 1 << 50}
	for _, b := range batches {
		stamps = append(stamps, b.FirstTimestamp(), b.MaxTimestamp(), b.MaxTimestamp()+1)
	}
	slices.Sort(stamps)
	stamps = slices.Compact(stamps)
	var out []string
	for _, ts := range stamps {
		code, offset, stamp := lookup(c, partition, ts)
		out = append(out, fmt.Sprintf("at %d: code %d, offset %d, timestamp %d", ts, code, offset, stamp))
	}
	return out
}

// requireEpochs asks where every epoch that the batches show ends: where the next
// one begins, also where its records are remote only.
func requireEpochs(t *testing.T, c *kit.Raw, partition int32, batches []recordbatch.Batch) {
	t.Helper()
	for i, b := range batches {
		e := b.PartitionLeaderEpoch()
		if i > 0 && batches[i-1].PartitionLeaderEpoch() == e {
			continue
		}
		end := batches[len(batches)-1].NextOffset()
		for _, later := range batches[i:] {
			if later.PartitionLeaderEpoch() > e {
				end = later.BaseOffset()
				break
			}
		}
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version, req.ReplicaID = 4, -1
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = "m"
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = partition, -1, int32(e)
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		p := c.Call(req).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
		require.Zero(t, p.ErrorCode)
		require.Equal(t, int32(e), p.LeaderEpoch)
		require.Equal(t, int64(end), p.EndOffset, "end of epoch %d of partition %d", e, partition)
	}
}

// requireTierSpecs compares the offsets that only a tiered log has with what tier
// status says.
func requireTierSpecs(t *testing.T, s *kit.Server, c *kit.Raw, partition int32) {
	t.Helper()
	kit.Eventually(t, 20*time.Second, "ListOffsets and tier status agree", func() bool {
		partitions := status(t, s).Partitions
		p := partitions[partition] // in order, of one topic
		for spec, want := range map[int64]int64{
			earliestLocal: p.LocalStartOffset, latestTiered: p.RemoteEndOffset - 1, earliestPendingUpload: p.RemoteEndOffset,
		} {
			if code, offset, _ := lookup(c, partition, spec); code != 0 || offset != want {
				t.Logf("%d: code %d, offset %d, tier status says %d", spec, code, offset, want)
				return false
			}
		}
		return true
	})
}

// compareLookups names the first answers that differ.
func compareLookups(t *testing.T, want, got []string) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Errorf("tier off: %s\nhere:     %s", want[i], got[i])
			return
		}
	}
	require.Equal(t, len(want), len(got))
}
