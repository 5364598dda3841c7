package api_test

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/api"
	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/config"
)

// The bounds on what converted answers take: of one, and of all.
const (
	oldAnswerBytes  = 8 << 20
	oldAnswersBytes = 64 << 20
)

func legacy(b *config.Broker) { b.LegacyClients = true }

// count is the value of a counter with this label.
func (k *kit) count(name, label string) int {
	k.t.Helper()
	families, err := k.registry.Gather()
	require.NoError(k.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

// messages are the offsets in a message set.
func messages(t testing.TB, set []byte) []int64 {
	t.Helper()
	var out []int64
	for m, err := range recordbatch.NewDecoder(1 << 24).Messages(set) {
		require.NoError(t, err)
		out = append(out, int64(m.Offset))
	}
	return out
}

// hungry asks for everything from several partitions.
func hungry(id [16]byte, partitions int) *kmsg.FetchRequest {
	req := fetchRequest("t", id, make([]int64, partitions)...)
	req.MaxBytes = 1 << 30
	for i := range req.Topics[0].Partitions {
		req.Topics[0].Partitions[i].PartitionMaxBytes = 1 << 30
	}
	return req
}

func TestAnOldAnswerIsBounded(t *testing.T) {
	k := newKit(t, legacy)
	id := doubles(k, newDouble(k, 150, 100_000), newDouble(k, 150, 100_000))
	c := k.dial()
	for version := int16(0); version < 4; version++ {
		before := k.count("strandline_converted_records_total", "down")
		resp := ask[*kmsg.FetchResponse](c, hungry(id, 2), version)
		bytes, records, most := 0, 0, oldAnswerBytes
		if version < 3 {
			most += 100_100 // each partition yields a message, until the bound is passed
		}
		for _, p := range resp.Topics[0].Partitions {
			require.Zero(t, p.ErrorCode)
			require.Equal(t, int64(150), p.HighWatermark)
			for i, o := range messages(t, p.RecordBatches) {
				require.Equal(t, int64(i), o)
				records++
			}
			bytes += len(p.RecordBatches)
		}
		require.LessOrEqual(t, bytes, most, "version %d", version)
		require.Greater(t, bytes, oldAnswerBytes-200_000, "version %d", version)
		require.Equal(t, records, k.count("strandline_converted_records_total", "down")-before)
	}
	require.Zero(t, k.count("strandline_limit_hits_total", api.LimitOldAnswers))
}

// Clients that do not read their answers keep the others' from being made, and
// no longer than that.
func TestOldAnswersTogetherAreBounded(t *testing.T) {
	k := newKit(t, legacy)
	id := doubles(k, newDouble(k, 90, 100_000))
	var slow []*client
	var sizes []int
	for range oldAnswersBytes / oldAnswerBytes {
		c := k.dial()
		require.NoError(t, c.c.(*net.TCPConn).SetReadBuffer(64<<10))
		c.send(hungry(id, 1), 3)
		require.NoError(t, c.c.SetReadDeadline(time.Now().Add(20*time.Second)))
		var size [4]byte
		_, err := io.ReadFull(c.c, size[:]) // it is made, and being sent
		require.NoError(t, err)
		slow, sizes = append(slow, c), append(sizes, int(binary.BigEndian.Uint32(size[:])))
		require.Greater(t, sizes[len(sizes)-1], oldAnswerBytes-200_000)
	}
	require.Zero(t, k.count("strandline_limit_hits_total", api.LimitOldAnswers))
	c := k.dial()
	req := hungry(id, 1)
	req.MaxWaitMillis = 50
	p := ask[*kmsg.FetchResponse](c, req, 3).Topics[0].Partitions[0]
	require.Zero(t, p.ErrorCode)
	require.Empty(t, p.RecordBatches)
	require.Equal(t, int64(90), p.HighWatermark)
	require.Equal(t, 1, k.count("strandline_limit_hits_total", api.LimitOldAnswers))
	// Today's formats need no memory.
	require.NotEmpty(t, ask[*kmsg.FetchResponse](c, hungry(id, 1), 4).Topics[0].Partitions[0].RecordBatches)
	require.NoError(t, slow[0].c.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err := io.CopyN(io.Discard, slow[0].c, int64(sizes[0]))
	require.NoError(t, err)
	p = ask[*kmsg.FetchResponse](c, hungry(id, 1), 3).Topics[0].Partitions[0]
	require.Len(t, messages(t, p.RecordBatches), oldAnswerBytes/(len(p.RecordBatches)/len(messages(t, p.RecordBatches))))
	for _, c := range slow {
		require.NoError(t, c.c.Close())
	}
}

// Markers of transactions are not for old clients, however many there are: what
// follows is served, and at the end nothing.
func TestControlBatchesAreSkippedForOldClients(t *testing.T) {
	k := newKit(t, legacy)
	id := k.topic("t", 1)
	c := k.dial()
	marker := recordbatch.NewMarkerBatch(recordbatch.Options{Producer: &recordbatch.Producer{ID: 7, BaseSequence: -1}, Transactional: true}, now(), recordbatch.Marker{Type: recordbatch.ControlCommit})
	mark := func(n int) {
		for range n {
			_, _, err := k.real[0].Append(partition.AppendRequest{Records: append([]byte(nil), marker...), Origin: partition.FromCoordinator, RequiredAcks: 1, CurrentLeaderEpoch: -1})
			require.NoError(t, err)
		}
	}
	mark(2000) // more than one read takes
	require.Zero(t, ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", id, map[int32][]byte{0: batch(now(), "a", "b")}), 13).Topics[0].Partitions[0].ErrorCode)
	mark(1)
	for version := int16(0); version < 4; version++ {
		req := fetchRequest("t", id, 0)
		req.Topics[0].Partitions[0].PartitionMaxBytes = 100
		p := ask[*kmsg.FetchResponse](c, req, version).Topics[0].Partitions[0]
		require.Zero(t, p.ErrorCode)
		got := messages(t, p.RecordBatches)
		require.Equal(t, []int64{2000, 2001}, got, "version %d", version)
		req = fetchRequest("t", id, 2002)
		req.MaxWaitMillis = 10
		p = ask[*kmsg.FetchResponse](c, req, version).Topics[0].Partitions[0]
		require.Zero(t, p.ErrorCode)
		require.Empty(t, p.RecordBatches)
	}
}
