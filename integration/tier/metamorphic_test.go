package tier

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
	"strandline/metadata/cluster"
)

// The same seeded workload runs against servers that differ in nothing that a
// client may see: tier on or off, segment size, restarts. What is fetched must
// be the same batches, byte for byte, partitionLeaderEpoch apart.

// operation is one step of the workload.
type operation struct {
	partition    int32
	records      []byte // a batch to produce, or
	deleteBefore int64  // records to delete
}

func workload(seed uint64, count int) []operation {
	r := rand.New(rand.NewPCG(seed, 3))
	now := time.Now().UnixMilli()
	codecs := []recordbatch.Codec{recordbatch.None, recordbatch.None, recordbatch.Gzip, recordbatch.Snappy, recordbatch.LZ4, recordbatch.Zstd}
	var ops []operation
	sequence, next := [2]int32{}, [2]int64{}
	for range count {
		p := int32(r.IntN(2))
		if r.IntN(60) == 0 && next[p] > 50 {
			ops = append(ops, operation{partition: p, deleteBefore: 1 + r.Int64N(next[p]/8+1)})
			continue
		}
		n := 1 + r.IntN(3)*r.IntN(12)
		b := recordbatch.NewBuilder(recordbatch.Options{
			Codec:    codecs[r.IntN(len(codecs))],
			Producer: &recordbatch.Producer{ID: cluster.ProducerID(900 + int64(p)), Epoch: 0, BaseSequence: sequence[p]},
		})
		for range n {
			value := make([]byte, r.IntN(700))
			for i := range value {
				value[i] = byte(r.Uint32())
			}
			b.Add(now-int64(r.IntN(100_000)), []byte(fmt.Sprint(r.IntN(50))), value, recordbatch.Header{Key: "h", Value: []byte{byte(n)}})
		}
		sequence[p] += int32(n)
		next[p] += int64(n)
		ops = append(ops, operation{partition: p, records: b.Build()})
	}
	return ops
}

// variant is one configuration to run the workload under.
type variant struct {
	name         string
	tiered       bool
	segmentBytes int
	restarts     int
	plant        string
}

// seen is what a client sees of a partition: everything that can be fetched, and
// the answers to lookups by time.
type seen struct {
	batches []byte
	lookups []string
}

// play runs the workload and returns what is seen of each partition.
func play(t *testing.T, m *kit.MinIO, v variant, ops []operation) ([2]seen, error) {
	t.Helper()
	set := map[string]string{
		"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100", "log.segment.delete.delay.ms": "100",
		"remote.log.manager.task.interval.ms": "100", "remote.manifest.interval.ms": "200",
	}
	configs := map[string]string{"internal.segment.bytes": fmt.Sprint(v.segmentBytes)}
	if v.tiered {
		for k, val := range m.Properties("metamorphic-" + v.name) {
			set[k] = val
		}
		configs["local.retention.bytes"] = "1"
	}
	s := kit.New(t, t.TempDir(), set)
	s.Env("STRANDLINE_PLANT=" + v.plant)
	s.MustStart()
	defer s.Kill()
	createTopic(t, s.Addr, "m", 2, configs)
	c := kit.Dial(t, s.Addr)
	for i, op := range ops {
		if v.restarts > 0 && i > 0 && i%(len(ops)/(v.restarts+1)) == 0 {
			s.Restart(i%2 == 0)
			c = kit.Dial(t, s.Addr)
		}
		apply(t, c, op)
	}
	if v.tiered {
		kit.Eventually(t, 30*time.Second, "most of the log is remote only", func() bool {
			for _, p := range status(t, s).Partitions {
				if p.PendingSegments > 0 || p.LocalStartOffset == 0 {
					return false
				}
			}
			return true
		})
	}
	var all [2]seen
	for p := range int32(2) {
		c := kit.Dial(t, s.Addr)
		var batches []recordbatch.Batch
		got, err := fetchAll(t, c, "m", p, listOffset(t, s.Addr, "m", p, -2), uint64(v.segmentBytes), &batches)
		if err != nil {
			return all, err
		}
		all[p].batches = got
		if v.plant != "" {
			continue // lookups have nothing to be wrong about
		}
		all[p].lookups = lookups(c, p, batches)
		requireEpochs(t, c, p, batches)
		if v.tiered {
			requireTierSpecs(t, s, c, p)
		}
	}
	return all, nil
}

func apply(t *testing.T, c *kit.Raw, op operation) {
	t.Helper()
	if op.records != nil {
		resp := c.Call(kit.Produce(9, "m", op.partition, bytes.Clone(op.records))).(*kmsg.ProduceResponse)
		require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
		return
	}
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = 2, 10000
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = "m"
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Partition, rp.Offset = op.partition, op.deleteBefore
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp := c.Call(req).(*kmsg.DeleteRecordsResponse)
	require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
}

// fetchAll reads a partition from an offset with fetches of many sizes and returns its batches
// with partitionLeaderEpoch zeroed, and adds them as they came to batches. It
// checks I8 on the way.
func fetchAll(t *testing.T, c *kit.Raw, topic string, partition int32, offset int64, seed uint64, batches *[]recordbatch.Batch) ([]byte, error) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 5))
	var all []byte
	for stalls := 0; ; {
		resp := c.Call(kit.Fetch(12, topic, partition, offset, int32(1+r.IntN(200_000)))).(*kmsg.FetchResponse)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			return nil, fmt.Errorf("fetch at %d: code %d", offset, p.ErrorCode)
		}
		if offset >= p.HighWatermark {
			return all, nil
		}
		next, got, err := wholeBatches(p.RecordBatches, offset, batches)
		if err != nil {
			return nil, err
		}
		if next == offset {
			if stalls++; stalls > 50 {
				return nil, fmt.Errorf("no progress at offset %d of %d", offset, p.HighWatermark)
			}
			continue
		}
		stalls = 0
		all = append(all, got...)
		offset = next
	}
}

// wholeBatches cuts a trailing part of a batch off and checks the rest.
func wholeBatches(b []byte, offset int64, batches *[]recordbatch.Batch) (next int64, whole []byte, err error) {
	next = offset
	for len(b) >= recordbatch.HeaderBytes {
		size := 12 + int(binary.BigEndian.Uint32(b[8:]))
		if size > len(b) {
			break
		}
		one := recordbatch.Batch(b[:size])
		if err := one.Verify(); err != nil {
			return 0, nil, fmt.Errorf("batch at %d: %w", one.BaseOffset(), err)
		}
		if int64(one.NextOffset()) <= next {
			return 0, nil, fmt.Errorf("batch %d..%d does not reach past %d", one.BaseOffset(), one.LastOffset(), next)
		}
		if len(whole) > 0 && int64(one.BaseOffset()) != next {
			return 0, nil, fmt.Errorf("gap: batch %d after %d", one.BaseOffset(), next)
		}
		next = int64(one.NextOffset())
		*batches = append(*batches, bytes.Clone(one))
		one.SetPartitionLeaderEpoch(0)
		whole = append(whole, one...)
		b = b[size:]
	}
	return next, whole, nil
}

func TestTierOnEqualsTierOff(t *testing.T) {
	m := kit.StartMinIO(t, "strandline")
	seed, count := uint64(time.Now().UnixNano()), 300
	if kit.Long() {
		count = 3000
	}
	t.Logf("seed %d", seed)
	ops := workload(seed, count)
	want, err := play(t, m, variant{name: "off", segmentBytes: 1 << 20}, ops)
	require.NoError(t, err)
	require.NotEmpty(t, want[0].batches)
	for _, v := range []variant{
		{name: "off-small", segmentBytes: 25_000, restarts: 1},
		{name: "on-tiny", tiered: true, segmentBytes: 20_000},
		{name: "on-small", tiered: true, segmentBytes: 30_000, restarts: 2},
		{name: "on-large", tiered: true, segmentBytes: 100_000, restarts: 1},
	} {
		t.Run(v.name, func(t *testing.T) {
			got, err := play(t, m, v, ops)
			require.NoError(t, err)
			for p := range want {
				require.True(t, bytes.Equal(want[p].batches, got[p].batches), "partition %d: %d bytes with the tier off, %d with %s",
					p, len(want[p].batches), len(got[p].batches), v.name)
				compareLookups(t, want[p].lookups, got[p].lookups)
			}
		})
	}
	for _, plant := range []string{"seam-shift", "seam-drop"} {
		t.Run("catches "+plant, func(t *testing.T) {
			got, err := play(t, m, variant{name: plant, tiered: true, segmentBytes: 20_000, plant: plant}, ops)
			t.Logf("found: %v", err)
			require.True(t, err != nil || !bytes.Equal(want[0].batches, got[0].batches) || !bytes.Equal(want[1].batches, got[1].batches), "the planted bug is seen")
		})
	}
}
