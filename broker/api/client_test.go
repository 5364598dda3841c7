package api_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A real client, from a topic that does not exist yet to its last record.
func TestFranzGo(t *testing.T) {
	k := newKit(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var want []string
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		producer, err := kgo.NewClient(kgo.SeedBrokers(k.addr), kgo.AllowAutoTopicCreation(), kgo.ProducerBatchCompression(codec),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, err)
		for i := range 30 {
			value := fmt.Sprintf("%s %d %s", name, i, string(make([]byte, 1000)))
			want = append(want, value)
			require.NoError(t, producer.ProduceSync(ctx, &kgo.Record{Topic: "kgo", Key: []byte(name), Value: []byte(value)}).FirstErr())
		}
		producer.Close()
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(k.addr), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"kgo": {0: kgo.NewOffset().AtStart()}}))
	require.NoError(t, err)
	defer consumer.Close()
	var got []string
	for len(got) < len(want) {
		fetches := consumer.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			require.Equal(t, int64(len(got)), r.Offset)
			got = append(got, string(r.Value))
		})
	}
	require.Equal(t, want, got)
}
