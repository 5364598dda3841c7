package clients

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const limit = 20 * time.Second

type franz struct{ addr string }

func newFranz(_ *testing.T, addr string) driver { return franz{addr} }

func (f franz) client(opts ...kgo.Opt) (*kgo.Client, context.Context, func(), error) {
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(f.addr))...)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	return cl, ctx, func() { cancel(); cl.Close() }, nil
}

func (f franz) produce(topic, codec string, idempotent bool, records []record) error {
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	opts := []kgo.Opt{kgo.ProducerBatchCompression(codecs[codec]), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	if !idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	cl, ctx, done, err := f.client(opts...)
	if err != nil {
		return err
	}
	defer done()
	var out []*kgo.Record
	for _, r := range records {
		k := &kgo.Record{Topic: topic, Partition: r.Partition, Timestamp: time.UnixMilli(r.Timestamp), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
		out = append(out, k)
	}
	return cl.ProduceSync(ctx, out...).FirstErr()
}

func (f franz) consume(topic string, partition int32, offset int64, count int) ([]record, error) {
	cl, ctx, done, err := f.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(offset)}}), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer done()
	var out []record
	for len(out) < count && ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return out, err
		}
		fetches.EachRecord(func(k *kgo.Record) {
			r := record{Offset: k.Offset, Timestamp: k.Timestamp.UnixMilli(), Key: k.Key, Value: k.Value}
			for _, h := range k.Headers {
				r.Headers = append(r.Headers, field{h.Key, h.Value})
			}
			out = append(out, r)
		})
	}
	return out[:min(count, len(out))], ctx.Err()
}

func (f franz) offsets(topic string, partition int32, timestamp int64) (int64, int64, int64, error) {
	cl, ctx, done, err := f.client()
	if err != nil {
		return 0, 0, 0, err
	}
	defer done()
	a := kadm.NewClient(cl)
	first, err1 := a.ListStartOffsets(ctx, topic)
	last, err2 := a.ListEndOffsets(ctx, topic)
	at, err3 := a.ListOffsetsAfterMilli(ctx, timestamp, topic)
	return first[topic][partition].Offset, last[topic][partition].Offset, at[topic][partition].Offset, errors.Join(err1, err2, err3)
}

func (f franz) create(topic string, partitions int32) error {
	cl, ctx, done, err := f.client()
	if err != nil {
		return err
	}
	defer done()
	_, err = kadm.NewClient(cl).CreateTopic(ctx, partitions, 1, nil, topic)
	return err
}

func (f franz) describe(topic string) (int, error) {
	cl, ctx, done, err := f.client()
	if err != nil {
		return 0, err
	}
	defer done()
	topics, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	return len(topics[topic].Partitions), errors.Join(err, topics.Error())
}

func (f franz) remove(topic string) error {
	cl, ctx, done, err := f.client()
	if err != nil {
		return err
	}
	defer done()
	_, err = kadm.NewClient(cl).DeleteTopic(ctx, topic)
	return err
}

type saramaDriver struct {
	addr  []string
	plain *sarama.Config
}

func newSarama(t *testing.T, addr string) driver {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	require.NoError(t, c.Validate())
	return saramaDriver{[]string{addr}, c}
}

func (s saramaDriver) produce(topic, codec string, idempotent bool, records []record) error {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Idempotent = idempotent
	c.Net.MaxOpenRequests = 1
	if err := c.Producer.Compression.UnmarshalText([]byte(codec)); err != nil {
		return err
	}
	p, err := sarama.NewSyncProducer(s.addr, c)
	if err != nil {
		return err
	}
	defer p.Close()
	var out []*sarama.ProducerMessage
	for _, r := range records {
		m := &sarama.ProducerMessage{Topic: topic, Partition: r.Partition, Timestamp: time.UnixMilli(r.Timestamp)}
		if r.Key != nil {
			m.Key = sarama.ByteEncoder(r.Key)
		}
		if r.Value != nil {
			m.Value = sarama.ByteEncoder(r.Value)
		}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Name), Value: h.Value})
		}
		out = append(out, m)
	}
	return p.SendMessages(out)
}

func (s saramaDriver) consume(topic string, partition int32, offset int64, count int) ([]record, error) {
	c, err := sarama.NewConsumer(s.addr, s.plain)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	pc, err := c.ConsumePartition(topic, partition, offset)
	if err != nil {
		return nil, err
	}
	defer pc.Close()
	var out []record
	late := time.After(limit)
	for len(out) < count {
		select {
		case m := <-pc.Messages():
			r := record{Offset: m.Offset, Timestamp: m.Timestamp.UnixMilli(), Key: m.Key, Value: m.Value}
			for _, h := range m.Headers {
				r.Headers = append(r.Headers, field{string(h.Key), h.Value})
			}
			out = append(out, r)
		case <-late:
			return out, fmt.Errorf("%d records of %d", len(out), count)
		}
	}
	return out, nil
}

func (s saramaDriver) offsets(topic string, partition int32, timestamp int64) (int64, int64, int64, error) {
	c, err := sarama.NewClient(s.addr, s.plain)
	if err != nil {
		return 0, 0, 0, err
	}
	defer c.Close()
	first, err1 := c.GetOffset(topic, partition, sarama.OffsetOldest)
	last, err2 := c.GetOffset(topic, partition, sarama.OffsetNewest)
	at, err3 := c.GetOffset(topic, partition, timestamp)
	return first, last, at, errors.Join(err1, err2, err3)
}

func (s saramaDriver) admin(do func(sarama.ClusterAdmin) error) error {
	a, err := sarama.NewClusterAdmin(s.addr, s.plain)
	if err != nil {
		return err
	}
	defer a.Close()
	return do(a)
}

func (s saramaDriver) create(topic string, partitions int32) error {
	return s.admin(func(a sarama.ClusterAdmin) error {
		return a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
	})
}

func (s saramaDriver) describe(topic string) (n int, err error) {
	err = s.admin(func(a sarama.ClusterAdmin) error {
		found, err := a.DescribeTopics([]string{topic})
		if err == nil {
			n = len(found[0].Partitions)
		}
		return err
	})
	return n, err
}

func (s saramaDriver) remove(topic string) error {
	return s.admin(func(a sarama.ClusterAdmin) error { return a.DeleteTopic(topic) })
}

type kafkaGo struct {
	addr string
	cl   *kafkago.Client
}

func newKafkaGo(_ *testing.T, addr string) driver {
	return kafkaGo{addr, &kafkago.Client{Addr: kafkago.TCP(addr), Timeout: limit}}
}

func (k kafkaGo) produce(topic, codec string, _ bool, records []record) error {
	w := &kafkago.Writer{
		Addr: kafkago.TCP(k.addr), Topic: topic, RequiredAcks: kafkago.RequireAll, BatchTimeout: 10 * time.Millisecond, BatchBytes: 900_000,
		Balancer: kafkago.BalancerFunc(func(kafkago.Message, ...int) int { return 1 }),
	}
	defer w.Close()
	if codec != "none" {
		if err := w.Compression.UnmarshalText([]byte(codec)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out []kafkago.Message
	for _, r := range records {
		m := kafkago.Message{Key: r.Key, Value: r.Value, Time: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, kafkago.Header{Key: h.Name, Value: h.Value})
		}
		out = append(out, m)
	}
	return w.WriteMessages(ctx, out...)
}

func (k kafkaGo) consume(topic string, partition int32, offset int64, count int) ([]record, error) {
	r := kafkago.NewReader(kafkago.ReaderConfig{Brokers: []string{k.addr}, Topic: topic, Partition: int(partition), MaxBytes: 32 << 20, MaxWait: 100 * time.Millisecond})
	defer r.Close()
	if err := r.SetOffset(offset); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out []record
	for len(out) < count {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return out, err
		}
		got := record{Offset: m.Offset, Timestamp: m.Time.UnixMilli(), Key: m.Key, Value: m.Value}
		for _, h := range m.Headers {
			got.Headers = append(got.Headers, field{h.Key, h.Value})
		}
		out = append(out, got)
	}
	return out, nil
}

func (k kafkaGo) offsets(topic string, partition int32, timestamp int64) (int64, int64, int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	p := int(partition)
	got, err := k.cl.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{
		topic: {kafkago.FirstOffsetOf(p), kafkago.LastOffsetOf(p), kafkago.TimeOffsetOf(p, time.UnixMilli(timestamp))},
	}})
	if err != nil {
		return 0, 0, 0, err
	}
	at := int64(-1)
	o := got.Topics[topic][0]
	for offset := range o.Offsets {
		if offset != o.FirstOffset && offset != o.LastOffset || len(o.Offsets) == 1 {
			at = offset
		}
	}
	return o.FirstOffset, o.LastOffset, at, o.Error
}

func (k kafkaGo) create(topic string, partitions int32) error {
	got, err := k.cl.CreateTopics(context.Background(), &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{{Topic: topic, NumPartitions: int(partitions), ReplicationFactor: 1}}})
	if err != nil {
		return err
	}
	return got.Errors[topic]
}

func (k kafkaGo) describe(topic string) (int, error) {
	got, err := k.cl.Metadata(context.Background(), &kafkago.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, err
	}
	return len(got.Topics[0].Partitions), got.Topics[0].Error
}

func (k kafkaGo) remove(topic string) error {
	got, err := k.cl.DeleteTopics(context.Background(), &kafkago.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return got.Errors[topic]
}
