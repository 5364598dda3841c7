package cases

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

func TestWire(t *testing.T) {
	addr := broker(t)
	t.Run("WI-01 an ApiVersions version from the future", func(t *testing.T) { futureApiVersions(t, addr) })
	t.Run("WI-01 clients negotiate", func(t *testing.T) { clientsNegotiate(t, addr) })
	t.Run("WI-03 several topics and partitions in every version", func(t *testing.T) { manyPartitions(t, addr) })
	t.Run("WI-03 a client's batches of many partitions", func(t *testing.T) { manyPartitionsByClient(t, addr) })
	t.Run("every advertised version is answered", func(t *testing.T) { everyVersion(t, addr) })
}

func apiVersionsFrame(version int16, correlation int32, body ...byte) []byte {
	frame := binary.BigEndian.AppendUint16(nil, 18)
	frame = binary.BigEndian.AppendUint16(frame, uint16(version))
	frame = binary.BigEndian.AppendUint32(frame, uint32(correlation))
	frame = append(frame, body...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}

func futureApiVersions(t *testing.T, addr string) {
	bodies := map[string][]byte{
		"tags and a body":  {0, 3, 'r', 'a', 'w', 0, 5, 1, 2, 3},
		"a null client id": {0xff, 0xff, 0},
		"unknown tags":     {0, 3, 'r', 'a', 'w', 1, 9, 2, 7, 7, 4, 'n', 'a', 'm', 2, '1', 0},
		"an empty client":  {0, 0, 0},
	}
	for name, body := range bodies {
		for _, version := range []int16{6, 99, 32767, -1} {
			t.Run(fmt.Sprintf("%s, %d", name, version), func(t *testing.T) {
				c := kit.Dial(t, addr)
				for round := range int32(2) { // the socket stays open, and may be wrong again
					_, err := c.Write(apiVersionsFrame(version, 70+round, body...))
					require.NoError(t, err)
					answer, err := c.Frame()
					require.NoError(t, err)
					require.EqualValues(t, 70+round, binary.BigEndian.Uint32(answer))
					resp := kmsg.NewPtrApiVersionsResponse()
					require.NoError(t, resp.ReadFrom(answer[4:]))
					same(t, kerr.UnsupportedVersion, resp.ErrorCode)
					require.Len(t, resp.ApiKeys, 1)
					require.EqualValues(t, 18, resp.ApiKeys[0].ApiKey)
					require.Zero(t, resp.ApiKeys[0].MinVersion)
					require.GreaterOrEqual(t, resp.ApiKeys[0].MaxVersion, int16(4))
				}
				for version := range int16(5) {
					full := apiVersions(c, version)
					same(t, nil, full.ErrorCode)
					require.Greater(t, len(full.ApiKeys), 14)
				}
			})
		}
	}
	t.Run("both in one packet", func(t *testing.T) {
		c := kit.Dial(t, addr)
		next := apiVersionsFrame(3, 2, 0xff, 0xff, 0, 2, 'n', 2, '1', 0)
		_, err := c.Write(append(apiVersionsFrame(99, 1, 0xff, 0xff, 0, 1), next...))
		require.NoError(t, err)
		for n := range uint32(2) {
			answer, err := c.Frame()
			require.NoError(t, err)
			require.Equal(t, n+1, binary.BigEndian.Uint32(answer))
		}
	})
	t.Run("a client without a name", func(t *testing.T) {
		c := kit.Dial(t, addr)
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "", ""
		same(t, kerr.InvalidRequest, ask[*kmsg.ApiVersionsResponse](c, req).ErrorCode)
		same(t, nil, apiVersions(c, 3).ErrorCode)
	})
}

func apiVersions(c *kit.Raw, version int16) *kmsg.ApiVersionsResponse {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, "raw", "1"
	return ask[*kmsg.ApiVersionsResponse](c, req)
}

func clientsNegotiate(t *testing.T, addr string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, client(t, addr).Ping(ctx))
	out, errOut, code := kit.Kcat(t, "", "-L", "-b", addr)
	require.Zero(t, code, errOut)
	require.Contains(t, out, addr)
}

// manyPartitions produces to and fetches from two topics of three partitions in
// one request of each version.
func manyPartitions(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	var names [2]string
	var ids [2][16]byte
	for i := range names {
		names[i], ids[i] = create(t, c, 3)
	}
	for version := int16(3); version <= 13; version++ {
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.Acks, req.TimeoutMillis = version, -1, 10000
		for i, name := range names {
			rt := kmsg.NewProduceRequestTopic()
			rt.Topic, rt.TopicID = name, ids[i]
			for p := range int32(3) {
				rp := kmsg.NewProduceRequestTopicPartition()
				rp.Partition, rp.Records = p, records(fmt.Sprint(version, i, p))
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
		}
		resp := ask[*kmsg.ProduceResponse](c, req)
		require.Len(t, resp.Topics, 2)
		for _, rt := range resp.Topics {
			require.Len(t, rt.Partitions, 3)
			if version < 13 {
				require.Contains(t, names, rt.Topic)
			} else {
				require.Contains(t, ids, rt.TopicID)
			}
			seen := map[int32]bool{}
			for _, rp := range rt.Partitions {
				same(t, nil, rp.ErrorCode, "version %d", version)
				require.False(t, seen[rp.Partition])
				seen[rp.Partition] = true
				require.EqualValues(t, version-3, rp.BaseOffset)
			}
		}
	}
	for version := int16(4); version <= 18; version++ {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = version, 1000, 1, 1<<20, -1
		for i, name := range names {
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic, rt.TopicID = name, ids[i]
			for p := range int32(3) {
				rp := kmsg.NewFetchRequestTopicPartition()
				rp.Partition, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p, 1<<20, -1
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
		}
		resp := ask[*kmsg.FetchResponse](c, req)
		require.Len(t, resp.Topics, 2)
		for _, rt := range resp.Topics {
			i := 0
			if rt.Topic == names[1] || rt.TopicID == ids[1] {
				i = 1
			}
			require.Len(t, rt.Partitions, 3)
			for _, rp := range rt.Partitions {
				var want []string
				for produced := range int16(11) {
					want = append(want, fmt.Sprint(produced+3, i, rp.Partition))
				}
				same(t, nil, rp.ErrorCode, "version %d", version)
				require.EqualValues(t, 11, rp.HighWatermark)
				require.Equal(t, want, values(t, rp.RecordBatches), "version %d", version)
			}
		}
	}
	for version := int16(1); version <= 11; version++ {
		req := lookup(version, names[0], at(0, -1), at(1, -1), at(2, -1))
		req.Topics = append(req.Topics, lookup(version, names[1], at(2, -1), at(0, -2)).Topics...)
		resp := ask[*kmsg.ListOffsetsResponse](c, req)
		got := map[string]int64{}
		for _, rt := range resp.Topics {
			for _, rp := range rt.Partitions {
				same(t, nil, rp.ErrorCode, "version %d", version)
				got[fmt.Sprint(rt.Topic == names[1], rp.Partition)] = rp.Offset
			}
		}
		require.Equal(t, map[string]int64{"false 0": 11, "false 1": 11, "false 2": 11, "true 2": 11, "true 0": 0}, got, "version %d", version)
	}
}

func manyPartitionsByClient(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	a, _ := create(t, c, 3)
	b, _ := create(t, c, 3)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cl := client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(50*time.Millisecond))
	var all []*kgo.Record
	for _, topic := range []string{a, b} {
		for p := range int32(3) {
			all = append(all, &kgo.Record{Topic: topic, Partition: p, Value: fmt.Append(nil, topic, p)})
		}
	}
	require.NoError(t, cl.ProduceSync(ctx, all...).FirstErr())
	for _, topic := range []string{a, b} {
		for p := range int32(3) {
			require.Equal(t, []string{fmt.Sprint(topic, p)}, values(t, fetchOne(c, topic, p, 0).RecordBatches))
		}
	}
}

// everyVersion sends an empty request of every key and version that the broker
// advertises: it is answered, in that version's form.
func everyVersion(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	for _, api := range apiVersions(c, 3).ApiKeys {
		if api.ApiKey > 75 || kmsg.RequestForKey(api.ApiKey) == nil {
			continue // of a broker with more than we serve
		}
		served := map[int16]bool{0: true, 1: true, 2: true, 3: true, 18: true, 19: true, 20: true, 21: true, 22: true, 23: true, 32: true, 37: true, 44: true, 60: true, 75: true}
		if !served[api.ApiKey] {
			continue
		}
		for version := api.MinVersion; version <= api.MaxVersion; version++ {
			if api.ApiKey == 0 && version < 3 {
				continue // advertised for the sake of old clients, and refused
			}
			req := kmsg.RequestForKey(api.ApiKey)
			if d, ok := req.(interface{ Default() }); ok {
				d.Default()
			}
			req.SetVersion(version)
			switch q := req.(type) {
			case *kmsg.ProduceRequest:
				q.Acks = 1
			case *kmsg.ApiVersionsRequest:
				q.ClientSoftwareName, q.ClientSoftwareVersion = "raw", "1"
			}
			if version > req.MaxVersion() {
				continue
			}
			c.Send(req)
			resp, err := c.Receive(req)
			require.NoError(t, err, "key %d version %d", api.ApiKey, version)
			again := resp.AppendTo(nil)
			require.NotEmpty(t, again, "key %d version %d", api.ApiKey, version)
		}
	}
}
