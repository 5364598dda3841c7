package tiercases

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

// kept is what a reader should see of one record; timestamp -1 is none.
type kept struct {
	offset, timestamp int64
	value             string
}

// aBatch is a client's batch of five records from offset n on, with timestamps
// of n*1000 and up.
func aBatch(codec recordbatch.Codec, topic string, n int64, size int) recordbatch.Batch {
	b := recordbatch.NewBuilder(recordbatch.Options{Codec: codec})
	for i := n; i < n+5; i++ {
		b.Add(i*1000, []byte("key"), odd(topic, i, size), recordbatch.Header{Key: "h", Value: []byte("v")})
	}
	return b.Build()
}

// odd is a value that no codec makes much smaller.
func odd(topic string, n int64, size int) []byte {
	v := value(topic, 0, n, 0)
	rnd := rand.New(rand.NewPCG(uint64(n), 7))
	for len(v) < size {
		v = append(v, '0'+byte(rnd.IntN(64)))
	}
	return v
}

// put produces records with some version, a message set where that is below 3,
// and returns the stamp that the answer names.
func put(t *testing.T, c *kit.Raw, version int16, topic string, b recordbatch.Batch, at int64) int64 {
	t.Helper()
	records := []byte(b)
	if version < 3 {
		magic := int8(0)
		if version == 2 {
			magic = 1
		}
		var err error
		records, _, err = new(recordbatch.Downgrader).Append(nil, b, magic, 0, 1<<20, false)
		require.NoError(t, err)
	}
	p := c.Call(kit.Produce(version, topic, 0, records)).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	require.Zero(t, p.ErrorCode, "version %d", version)
	require.Equal(t, at, p.BaseOffset)
	return p.LogAppendTime
}

// readAll reads a topic with one version of Fetch, in answers of at most so many
// bytes.
func readAll(t *testing.T, c *kit.Raw, version int16, topic string, end int64, bytesMax int32) []kept {
	t.Helper()
	var all []kept
	next := int64(0)
	deadline := time.Now().Add(30 * time.Second)
	for next < end {
		require.True(t, time.Now().Before(deadline), "version %d stands at offset %d", version, next)
		p := c.Call(kit.Fetch(version, topic, 0, next, bytesMax)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		require.Zero(t, p.ErrorCode)
		var d recordbatch.Decoder
		if version < 4 {
			require.True(t, len(p.RecordBatches) <= int(bytesMax) || onlyOne(&d, p.RecordBatches), "%d bytes, asked for %d", len(p.RecordBatches), bytesMax)
			for m, err := range d.Messages(p.RecordBatches) {
				require.NoError(t, err)
				require.Equal(t, next, int64(m.Offset))
				all = append(all, kept{int64(m.Offset), m.Timestamp, string(m.Value)})
				next++
			}
			continue
		}
		for rest := p.RecordBatches; len(rest) > 0; {
			b, more, err := recordbatch.First(rest)
			require.NoError(t, err)
			rest = more
			for r, err := range d.Records(b) {
				require.NoError(t, err)
				if int64(r.Offset) < next {
					continue
				}
				require.Equal(t, next, int64(r.Offset))
				all = append(all, kept{int64(r.Offset), r.Timestamp, string(r.Value)})
				next++
			}
		}
	}
	return all
}

func onlyOne(d *recordbatch.Decoder, set []byte) bool {
	n := 0
	for range d.Messages(set) {
		n++
	}
	return n == 1
}

// Writers of every format and codec, readers of every format, and both tiers:
// each reader sees what was written, in order, once.
func TestOldAndNewFormatsAcrossTheSeam(t *testing.T) {
	b := start(t, fast(map[string]string{"compat.legacy.clients": "true"}))
	topic := "formats"
	b.create(topic, 1, small(16<<10, "retention.ms", "-1"))
	c := kit.Dial(t, b.Addr)
	var want []kept
	end := int64(0)
	for round := range 60 {
		codec := recordbatch.Codec(round % 5)
		version := []int16{0, 7, 2, 9, 1, 8, 2}[round%7]
		if version < 3 && codec == recordbatch.Zstd {
			codec = recordbatch.LZ4
		}
		batch := aBatch(codec, topic, end, 700)
		put(t, c, version, topic, batch, end)
		for i := end; i < end+5; i++ {
			k := kept{i, i * 1000, string(odd(topic, i, 700))}
			if version < 2 {
				k.timestamp = -1
			}
			want = append(want, k)
		}
		end += 5
	}
	b.tiered(topic, 0, 2)
	b.localOnlyTail(topic, 0)
	require.Less(t, b.partition(topic, 0).LocalStartOffset, end, "and some is local")
	require.Equal(t, want, readAll(t, c, 11, topic, end, 1<<20))
	for _, version := range []int16{0, 1, 2, 3, 4} {
		for _, bytesMax := range []int32{500, 3000, 1 << 20} {
			got := readAll(t, c, version, topic, end, bytesMax)
			require.Len(t, got, len(want))
			for i := range got {
				if version < 2 {
					require.Equal(t, int64(-1), got[i].timestamp)
					got[i].timestamp = want[i].timestamp
				}
				require.Equal(t, want[i], got[i], "version %d", version)
			}
		}
	}
	require.Positive(t, b.Metric("strandline_converted_records_total", `kind="up"`))
	require.Positive(t, b.Metric("strandline_converted_records_total", `kind="down"`))
}

// FE-11: with LogAppendTime the stamp in the answer is the time of every record
// of the batch, whatever its producer said and whatever the broker does to its
// form, and lookups by time go by it on both tiers.
func TestLogAppendTimeAcrossTheSeam(t *testing.T) {
	b := start(t, fast(map[string]string{"compat.legacy.clients": "true"}))
	for _, compression := range []string{"producer", "zstd", "uncompressed"} {
		t.Run(compression, func(t *testing.T) {
			b := &broker{Server: b.Server, t: t, cl: b.cl, admin: b.admin}
			topic := "stamped-" + compression
			b.create(topic, 1, small(8<<10, "message.timestamp.type", "LogAppendTime", "compression.type", compression))
			c := kit.Dial(t, b.Addr)
			var stamps []int64 // by offset
			for round := range int64(30) {
				version := []int16{9, 2, 7, 1}[round%4]
				codec := recordbatch.Codec(round % 4)
				stamp := put(t, c, version, topic, aBatch(codec, topic, round*5, 700), round*5)
				if version < 2 {
					stamp = 0 // the answer has no room for it
				} else {
					require.InDelta(t, time.Now().UnixMilli(), stamp, 60_000)
				}
				for range 5 {
					stamps = append(stamps, stamp)
				}
				if round%3 == 0 {
					kit.Eventually(t, time.Second, "the clock moves", func() bool { return time.Now().UnixMilli() > stamp+1 })
				}
			}
			end := int64(len(stamps))
			b.tiered(topic, 0, 1)
			b.localOnlyTail(topic, 0)
			got := readAll(t, c, 11, topic, end, 1<<20)
			for i, k := range got {
				if stamps[i] == 0 {
					stamps[i] = k.timestamp
				}
				require.Equal(t, stamps[i], k.timestamp, "offset %d", i)
				require.Equal(t, string(odd(topic, int64(i), 700)), k.value)
			}
			for i, k := range readAll(t, c, 3, topic, end, 1<<20) {
				require.Equal(t, stamps[i], k.timestamp, "offset %d for an old reader", i)
			}
			first := func(ts int64) int64 {
				for i, stamp := range stamps {
					if stamp >= ts {
						return int64(i)
					}
				}
				return -1
			}
			asked := map[int64]bool{}
			for _, stamp := range stamps {
				for _, ts := range []int64{stamp - 1, stamp, stamp + 1} {
					if asked[ts] {
						continue
					}
					asked[ts] = true
					require.Equal(t, first(ts), b.offset(topic, 0, ts), "time %d of %v", ts, stamps)
				}
			}
			require.Equal(t, first(stamps[end-1]), b.offset(topic, 0, -3))
			b.storedWith(topic, compression)
		})
	}
}

// storedWith reads the batches of a topic and compares their codecs with the
// topic's.
func (b *broker) storedWith(topic, compression string) {
	b.t.Helper()
	c := kit.Dial(b.t, b.Addr)
	codecs := map[recordbatch.Codec]int{}
	for next, end := int64(0), b.offset(topic, 0, -1); next < end; {
		p := c.Call(kit.Fetch(11, topic, 0, next, 1<<20)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		require.Zero(b.t, p.ErrorCode)
		for rest := p.RecordBatches; len(rest) > 0; {
			batch, more, err := recordbatch.First(rest)
			require.NoError(b.t, err)
			require.NoError(b.t, batch.Verify())
			codecs[batch.Compression()]++
			next, rest = int64(batch.NextOffset()), more
		}
	}
	switch compression {
	case "producer":
		require.Len(b.t, codecs, 4, "%v", codecs)
	case "uncompressed":
		require.Len(b.t, codecs, 1)
		require.Positive(b.t, codecs[recordbatch.None])
	default:
		codec, err := recordbatch.ParseCodec(compression)
		require.NoError(b.t, err)
		require.Len(b.t, codecs, 1)
		require.Positive(b.t, codecs[codec])
	}
}

// Segments of an old log are listed by when they were last written; the end
// comes first, the tiered part counts as the oldest.
func TestOldOffsetLists(t *testing.T) {
	b := start(t, fast(map[string]string{"compat.legacy.clients": "true"}))
	topic := "lists"
	b.create(topic, 1, map[string]string{"internal.segment.bytes": "8192", "remote.storage.enable": "false"})
	b.write(topic, 0, 0, 60, 1000, time.Time{})
	c := kit.Dial(t, b.Addr)
	list := func(timestamp int64, max int32) []int64 {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Timestamp, rp.MaxNumOffsets = timestamp, max
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		p := c.Call(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		require.Zero(t, p.ErrorCode)
		return p.OldStyleOffsets
	}
	require.Equal(t, []int64{60}, list(-1, 1))
	require.Equal(t, []int64{0}, list(-2, 1))
	all := list(-1, 100)
	require.Greater(t, len(all), 4, "%v", all)
	require.Equal(t, int64(60), all[0])
	require.Equal(t, int64(0), all[len(all)-1])
	require.IsDecreasing(t, all)
	require.Equal(t, all[:3], list(-1, 3))
	require.Equal(t, all, list(time.Now().Add(time.Hour).UnixMilli(), 100))
	require.Empty(t, list(1000, 100), "before the log was written")
	b.trim(topic, 30)
	require.Equal(t, []int64{30}, list(-2, 1))
	require.Equal(t, int64(30), list(-1, 100)[len(list(-1, 100))-1])
}
