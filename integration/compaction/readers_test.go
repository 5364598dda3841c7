package compaction

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
	"strandline/metadata/cluster"
)

// TestReadersOfACompactedLog compares what every version of Fetch finds in a
// compacted log, from many offsets, in a session, and what ListOffsets finds
// by time, with the batches. The server is then killed: the log ends where it did,
// and its producers go on where they were.
func TestReadersOfACompactedLog(t *testing.T) {
	s := kit.Start(t, map[string]string{
		"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.001", "compat.legacy.clients": "true",
	})
	a := at{t, s.Addr}
	a.create("t", "cleanup.policy=compact", "internal.segment.bytes=20000", "delete.retention.ms=0", "retention.ms=-1")
	w := &workload{rng: rand.New(rand.NewPCG(3, 3)), keys: 200, now: time.Now().Add(-time.Hour).UnixMilli()}
	c := kit.Dial(t, s.Addr)
	defer c.Close()
	// A batch that will be left without its only record, the latest by its timestamp.
	first := recordbatch.NewBuilder(recordbatch.Options{Producer: &recordbatch.Producer{ID: 4999}})
	first.Add(time.Now().Add(time.Minute).UnixMilli(), []byte("key-1"), []byte("value"))
	a.append(c, first.Build(), nil)
	last := map[cluster.ProducerID]sent{}
	for w.n < 8_000 {
		b := recordbatch.Batch(w.batch())
		at := a.append(c, b, nil)
		if b.HasProducerID() {
			last[b.ProducerID()] = sent{b, at}
		}
	}
	var left []recordbatch.Batch
	kit.Eventually(t, time.Minute, "the log is compacted", func() bool {
		was := len(left)
		left = a.batches("t", 0)
		return len(lines(t, left)) < 1000 && len(left) == was
	})
	var records []recordbatch.Record
	empty := 0
	for _, b := range left {
		if b.RecordCount() == 0 {
			empty++
		}
		for r, err := range new(recordbatch.Decoder).Records(b) {
			require.NoError(t, err)
			records = append(records, r)
		}
	}
	require.Positive(t, empty, "batches of producers that are left without records")
	for version := range int16(4) {
		for from := int64(0); from < int64(w.n); from += 250 + int64(version) {
			a.old(c, version, from, records)
		}
	}
	a.session(c, records)
	a.times(c, w, records)

	before := shapes(left)
	s.Kill()
	s.MustStart()
	a.addr = s.Addr
	require.Equal(t, before, shapes(a.batches("t", 0)))
	again := kit.Dial(t, s.Addr)
	defer again.Close()
	require.Len(t, last, 4)
	for id, l := range last {
		require.Equal(t, l.at, a.append(again, l.batch, nil), "the last batch of producer %d, once more", id)
		next := func(sequence int32) recordbatch.Batch {
			b := recordbatch.NewBuilder(recordbatch.Options{Producer: &recordbatch.Producer{ID: id, BaseSequence: sequence}})
			b.Add(time.Now().UnixMilli(), []byte("key"), []byte("value"))
			return b.Build()
		}
		a.append(again, next(l.batch.LastSequence()+2), kerr.OutOfOrderSequenceNumber)
		a.append(again, next(l.batch.LastSequence()+1), nil)
	}
	require.Zero(t, s.Metric("strandline_compaction_failures_total"))
}

// sent is a batch and the offset that it was given.
type sent struct {
	batch recordbatch.Batch
	at    int64
}

// append sends a batch and returns the offset that it was given.
func (a at) append(c *kit.Raw, batch []byte, want error) int64 {
	a.t.Helper()
	resp := c.Call(kit.Produce(9, "t", 0, slices.Clone(batch))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	require.Equal(a.t, want, kerr.ErrorForCode(resp.ErrorCode))
	return resp.BaseOffset
}

// old fetches in an old version: what comes are the records from the offset on,
// in the format of that time.
func (a at) old(c *kit.Raw, version int16, from int64, records []recordbatch.Record) {
	a.t.Helper()
	p := c.Call(kit.Fetch(version, "t", 0, from, 1<<16)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	require.NoError(a.t, kerr.ErrorForCode(p.ErrorCode))
	i := slices.IndexFunc(records, func(r recordbatch.Record) bool { return int64(r.Offset) >= from })
	n := 0
	for m, err := range recordbatch.NewDecoder(1 << 24).Messages(p.RecordBatches) {
		require.NoError(a.t, err)
		if int64(m.Offset) < from {
			continue // before it in a compressed message
		}
		require.GreaterOrEqual(a.t, i, 0)
		want := records[i+n]
		require.Equal(a.t, want.Offset, m.Offset, "version %d from %d", version, from)
		require.Equal(a.t, want.Key, m.Key)
		require.Equal(a.t, want.Value, m.Value)
		if version >= 2 {
			require.Equal(a.t, want.Timestamp, m.Timestamp)
		}
		n++
	}
	require.Equal(a.t, i >= 0, n > 0, "version %d from %d", version, from)
}

// session reads all of the topic in a session of fetches.
func (a at) session(c *kit.Raw, records []recordbatch.Record) {
	a.t.Helper()
	var got []string
	id, next := int32(0), int64(0)
	for epoch := int32(0); ; epoch++ {
		req := kit.Fetch(11, "t", 0, next, 5000)
		req.SessionID, req.SessionEpoch = id, epoch
		resp := c.Call(req).(*kmsg.FetchResponse)
		require.NoError(a.t, kerr.ErrorForCode(resp.ErrorCode))
		id = resp.SessionID
		require.NotZero(a.t, id)
		if len(resp.Topics) == 0 || len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
			break
		}
		for data := resp.Topics[0].Partitions[0].RecordBatches; len(data) > 0; {
			b, rest, err := recordbatch.First(data)
			if err != nil {
				break
			}
			got = append(got, lines(a.t, []recordbatch.Batch{b})...)
			data, next = rest, int64(b.NextOffset())
		}
	}
	var want []string
	for _, r := range records {
		want = append(want, line(r))
	}
	require.Equal(a.t, want, got)
}

// times looks offsets up by time.
func (a at) times(c *kit.Raw, w *workload, records []recordbatch.Record) {
	a.t.Helper()
	find := func(ts int64) kmsg.ListOffsetsResponseTopicPartition {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version, req.ReplicaID = 7, -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = "t"
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Timestamp, rp.CurrentLeaderEpoch = ts, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		p := c.Call(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		require.NoError(a.t, kerr.ErrorForCode(p.ErrorCode))
		return p
	}
	greatest := slices.MaxFunc(records, func(a, b recordbatch.Record) int { return int(a.Timestamp - b.Timestamp) })
	p := find(-3)
	require.Equal(a.t, []int64{int64(greatest.Offset), greatest.Timestamp}, []int64{p.Offset, p.Timestamp})
	for n := 0; n <= w.n; n += 397 {
		ts := w.now + int64(n)
		i := slices.IndexFunc(records, func(r recordbatch.Record) bool { return r.Timestamp >= ts })
		want := []int64{-1, -1}
		if i >= 0 {
			want = []int64{int64(records[i].Offset), records[i].Timestamp}
		}
		p := find(ts)
		require.Equal(a.t, want, []int64{p.Offset, p.Timestamp}, "record %d", n)
	}
}
