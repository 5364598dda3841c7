package conformance

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

func batch(values ...string) []byte {
	b := recordbatch.NewBuilder(recordbatch.Options{})
	for _, v := range values {
		b.Add(time.Now().UnixMilli(), nil, []byte(v))
	}
	return b.Build()
}

// resum makes a batch's CRC right again after it was changed.
func resum(b []byte) []byte {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func produceCode(t *testing.T, c *kit.Raw, version int16, topic string, records []byte) error {
	t.Helper()
	resp := c.Call(kit.Produce(version, topic, 0, records)).(*kmsg.ProduceResponse)
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

func TestBadBatches(t *testing.T) {
	s := kit.Start(t, nil)
	_, errOut, code := s.CLI("", "topic", "create", "bad", "--partitions", "1")
	require.Zero(t, code, errOut)
	c := kit.Dial(t, s.Addr)
	good := func() []byte { return batch("a", "b", "c") }
	mutate := func(f func(b []byte)) []byte { b := good(); f(b); return b }
	cases := []struct {
		name    string
		records []byte
		want    *kerr.Error
	}{
		{"wrong CRC", mutate(func(b []byte) { b[len(b)-1] ^= 1 }), kerr.CorruptMessage},
		{"truncated", good()[:40], kerr.InvalidRecord},
		{"cut in the records", good()[:len(good())-3], kerr.InvalidRecord},
		{"length beyond the data", mutate(func(b []byte) { binary.BigEndian.PutUint32(b[8:], 1<<30) }), kerr.InvalidRecord},
		{"negative length", mutate(func(b []byte) { binary.BigEndian.PutUint32(b[8:], 1<<31) }), kerr.CorruptMessage},
		{"count does not fit the delta", resum(mutate(func(b []byte) { binary.BigEndian.PutUint32(b[57:], 7) })), kerr.InvalidRecord},
		{"too large", batch(string(make([]byte, 1_100_000))), kerr.MessageTooLarge},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			require.ErrorIs(t, produceCode(t, c, 9, "bad", tc.records), tc.want)
		})
	}
	require.NoError(t, produceCode(t, c, 9, "bad", good()), "the connection and the partition are well")
	resp := c.Call(kit.Fetch(12, "bad", 0, 0, 1<<20)).(*kmsg.FetchResponse)
	require.EqualValues(t, 3, resp.Topics[0].Partitions[0].HighWatermark, "nothing bad was appended")
}

func TestUnknownThings(t *testing.T) {
	s := kit.Start(t, map[string]string{"auto.create.topics.enable": "false"})
	c := kit.Dial(t, s.Addr)
	require.ErrorIs(t, produceCode(t, c, 9, "nowhere", batch("x")), kerr.UnknownTopicOrPartition)
	fetched := c.Call(kit.Fetch(12, "nowhere", 0, 0, 1<<20)).(*kmsg.FetchResponse)
	require.ErrorIs(t, kerr.ErrorForCode(fetched.Topics[0].Partitions[0].ErrorCode), kerr.UnknownTopicOrPartition)
	byID := kit.Fetch(13, "", 0, 0, 1<<20)
	byID.Topics[0].TopicID = [16]byte{1, 2, 3}
	fetched = c.Call(byID).(*kmsg.FetchResponse)
	require.ErrorIs(t, kerr.ErrorForCode(fetched.Topics[0].Partitions[0].ErrorCode), kerr.UnknownTopicID)
}

func TestVersionsFromTheFuture(t *testing.T) {
	s := kit.Start(t, nil)
	c := kit.Dial(t, s.Addr)
	// ApiVersions 99: header v2 with no tags, then a body nobody knows.
	frame := []byte{0, 18, 0, 99, 0, 0, 0, 9, 0, 3, 'r', 'a', 'w', 0, 5, 1, 2, 3}
	_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	require.NoError(t, err)
	answer, err := c.Frame()
	require.NoError(t, err)
	require.EqualValues(t, 9, binary.BigEndian.Uint32(answer))
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = 0
	require.NoError(t, resp.ReadFrom(answer[4:]))
	require.Equal(t, kerr.UnsupportedVersion.Code, resp.ErrorCode)
	require.NotEmpty(t, resp.ApiKeys)
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "raw", "1"
	full := c.Call(req).(*kmsg.ApiVersionsResponse)
	require.Zero(t, full.ErrorCode)
}

func TestFramesThatCannotBe(t *testing.T) {
	s := kit.Start(t, nil)
	for name, bytes := range map[string][]byte{
		"negative size":     {0xff, 0xff, 0xff, 0xff},
		"huge size":         {0x7f, 0xff, 0xff, 0xff},
		"not Kafka":         []byte("GET / HTTP/1.1\r\n\r\n"),
		"unknown key":       {0, 0, 0, 10, 3, 0xe7, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
		"unknown version":   {0, 0, 0, 10, 0, 1, 0, 99, 0, 0, 0, 1, 0xff, 0xff},
		"body cut short":    {0, 0, 0, 12, 0, 1, 0, 11, 0, 0, 0, 1, 0xff, 0xff, 0, 0},
		"array without end": {0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			c := kit.Dial(t, s.Addr)
			_, err := c.Write(bytes)
			require.NoError(t, err)
			require.True(t, c.Closed(), "the connection is closed")
		})
	}
	_, errOut, code := s.CLI("x\n", "produce", "still-fine")
	require.Zero(t, code, errOut)
}
