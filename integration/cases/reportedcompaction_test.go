package cases

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
	"strandline/metadata/cluster"
)

// TestReportedOfCompaction has cleaners that look for work all the time.
func TestReportedOfCompaction(t *testing.T) {
	addr := ""
	if reference() {
		addr = broker(t)
	} else {
		addr = kit.Start(t, map[string]string{
			"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.001",
			"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "300", "log.segment.delete.delay.ms": "100",
		}).Addr
	}
	replay(t, addr, "testdata/compaction-kafka-4.4.0.json", reportedOfCompaction)
}

// kv is a record; a nil key or value is null.
type kv struct {
	key, value []byte
	at         int64 // stamp, in ms after the first
}

// firstStamp is old enough for what follows, and not so old that a producer is
// forgotten.
var firstStamp = time.Now().Add(-time.Hour).UnixMilli()

func stampedBatch(o recordbatch.Options, records ...kv) []byte {
	b := recordbatch.NewBuilder(o)
	for _, r := range records {
		b.Add(firstStamp+r.at, r.key, r.value)
	}
	return b.Build()
}

func text(key, value string, at int64) kv { return kv{[]byte(key), []byte(value), at} }

// compacted creates a topic whose segments are a second of its records long.
func (s *transcript) compacted(configs ...string) string {
	s.t.Helper()
	name := s.named("compacted")
	out := createTopics(s.c, 7, false, newTopic(name, 1, append(configs, "segment.ms=1000")...))
	same(s.t, nil, out[0].ErrorCode)
	kit.Eventually(s.t, 20*time.Second, "it has offsets", func() bool { return listOffsets(s.c, name, 1)[0].ErrorCode == 0 })
	return name
}

func (s *transcript) append(topic string, batch []byte) {
	p := send(s.c, 9, topic, [16]byte{}, 0, batch)
	s.note("produced: %d at %d", p.ErrorCode, p.BaseOffset)
}

// holds reads all of a topic until it is what is wanted, or some seconds have gone
// by, and notes it.
func (s *transcript) holds(topic, want string) {
	var got string
	s.await(func() bool {
		got = s.contents(topic)
		return got == want
	})
	s.note("holds %s", got)
}

func (s *transcript) contents(topic string) string {
	var out []string
	from := ask[*kmsg.ListOffsetsResponse](s.c, lookup(7, topic, at(0, -2))).Topics[0].Partitions[0].Offset
	for {
		p := ask[*kmsg.FetchResponse](s.c, kit.Fetch(11, topic, 0, from, 8<<20)).Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			return fmt.Sprint("error ", p.ErrorCode)
		}
		if from >= p.HighWatermark {
			return strings.Join(out, " ")
		}
		for rest := p.RecordBatches; len(rest) > 0; {
			batch, next, err := recordbatch.First(rest)
			if err != nil {
				break // cut off by the limit
			}
			for r, err := range recordbatch.NewDecoder(0).Records(batch) {
				if err != nil {
					return err.Error()
				}
				if int64(r.Offset) >= from {
					out = append(out, shownRecord(r))
				}
			}
			rest, from = next, int64(batch.NextOffset())
		}
	}
}

func shownRecord(r recordbatch.Record) string {
	field := func(b []byte) string {
		switch {
		case b == nil:
			return "null"
		case len(b) > 20:
			return fmt.Sprintf("%d bytes", len(b))
		}
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%d:%s=%s@%d", r.Offset, field(r.Key), field(r.Value), r.Timestamp-firstStamp)
}

func (s *transcript) lookups(topic string, stamps ...int64) {
	for _, stamp := range stamps {
		if stamp >= 0 {
			stamp += firstStamp
		}
		p := ask[*kmsg.ListOffsetsResponse](s.c, lookup(7, topic, at(0, stamp))).Topics[0].Partitions[0]
		when := p.Timestamp
		if when > 0 {
			when -= firstStamp
		}
		if stamp >= 0 {
			stamp -= firstStamp
		}
		s.note("lookup of %d: %d, offset %d of %d", stamp, p.ErrorCode, p.Offset, when)
	}
}

func (s *transcript) alterTopic(topic, key, value string) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = key, &value
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	req.Version = 1
	s.note("%s=%s: %d", key, value, ask[*kmsg.IncrementalAlterConfigsResponse](s.c, req).Resources[0].ErrorCode)
	pause(time.Second) // logs learn of it soon after
}

var plainBatch = recordbatch.Options{}

var reportedOfCompaction = []reported{
	{name: "a policy that was delete", from: "brod #263, pulsar #11287", play: func(s *transcript) {
		topic := s.compacted("cleanup.policy=delete", "retention.ms=-1")
		s.append(topic, stampedBatch(plainBatch, text("a", "1", 0), kv{nil, []byte("none"), 1}, text("b", "1", 2), text("a", "2", 3)))
		s.append(topic, stampedBatch(plainBatch, kv{nil, nil, 4}))
		s.append(topic, stampedBatch(plainBatch, text("b", "2", 5)))
		s.append(topic, stampedBatch(plainBatch, text("end", "", 5000)))
		s.alterTopic(topic, "cleanup.policy", "compact")
		s.append(topic, stampedBatch(plainBatch, kv{nil, []byte("refused"), 5001}))
		s.append(topic, stampedBatch(plainBatch, text("end", "2", 10000)))
		s.holds(topic, `3:"a"="2"@3 5:"b"="2"@5 6:"end"=""@5000 7:"end"="2"@10000`)
		s.lookups(topic, -2, -1, -3, 0, 4, 5, 6, 5001)
		s.alterTopic(topic, "cleanup.policy", "delete")
		s.append(topic, stampedBatch(plainBatch, kv{nil, []byte("taken"), 10001}))
		s.holds(topic, `3:"a"="2"@3 5:"b"="2"@5 6:"end"=""@5000 7:"end"="2"@10000 8:null="taken"@10001`)
	}},
	{name: "empty is not null", from: "nisshi #46, redpanda #13982", play: func(s *transcript) {
		topic := s.compacted("cleanup.policy=compact", "delete.retention.ms=3600000")
		s.append(topic, stampedBatch(plainBatch, text("", "1", 0), text("a", "1", 1), text("b", "1", 2), text("c", "1", 3)))
		s.append(topic, stampedBatch(plainBatch, text("", "", 4), kv{[]byte("a"), nil, 5}, text("b", "", 6)))
		s.append(topic, stampedBatch(plainBatch, text("end", "", 5000)))
		s.append(topic, stampedBatch(plainBatch, text("end", "2", 10000)))
		s.holds(topic, `3:"c"="1"@3 4:""=""@4 5:"a"=null@5 6:"b"=""@6 7:"end"=""@5000 8:"end"="2"@10000`)
	}},
	{name: "large records", from: "KAFKA-5316, KAFKA-20036", play: func(s *transcript) {
		topic := s.compacted("cleanup.policy=compact", "max.message.bytes=3000000", "min.cleanable.dirty.ratio=0")
		for i := range 3 {
			s.append(topic, stampedBatch(plainBatch, kv{[]byte("large"), bytes.Repeat([]byte{'0' + byte(i)}, 2_500_000), int64(i)}))
		}
		s.append(topic, stampedBatch(plainBatch, kv{[]byte("too large"), make([]byte, 3_000_000), 3}))
		s.append(topic, stampedBatch(plainBatch, text("end", "", 5000)))
		s.append(topic, stampedBatch(plainBatch, text("end", "2", 10000)))
		s.holds(topic, `2:"large"=2500000 bytes@2 3:"end"=""@5000 4:"end"="2"@10000`)
		s.alterTopic(topic, "max.message.bytes", "1000")
		s.append(topic, stampedBatch(plainBatch, text("large", "small", 10001)))
		s.append(topic, stampedBatch(plainBatch, text("end", "3", 15000)))
		s.append(topic, stampedBatch(plainBatch, text("end", "4", 20000)))
		s.holds(topic, `5:"large"="small"@10001 6:"end"="3"@15000 7:"end"="4"@20000`)
	}},
	{name: "stamps that go back", from: "KAFKA-7385", play: func(s *transcript) {
		topic := s.compacted("cleanup.policy=compact")
		s.append(topic, stampedBatch(plainBatch, text("a", "1", 300), text("b", "1", 100)))
		s.append(topic, stampedBatch(plainBatch, text("c", "1", 200), text("a", "2", 50)))
		s.append(topic, stampedBatch(plainBatch, text("b", "2", 250)))
		s.append(topic, stampedBatch(plainBatch, text("end", "", 5000)))
		s.append(topic, stampedBatch(plainBatch, text("end", "2", 10000)))
		s.holds(topic, `2:"c"="1"@200 3:"a"="2"@50 4:"b"="2"@250 5:"end"=""@5000 6:"end"="2"@10000`)
		s.lookups(topic, -2, -1, -3, 0, 50, 51, 200, 201, 250, 251, 300, 5000, 5001, 10000, 10001)
	}},
	{name: "records are deleted before they are compacted", from: "KAFKA-6975, KAFKA-8764", play: func(s *transcript) {
		only := s.compacted("cleanup.policy=compact")
		topic := s.compacted("cleanup.policy=compact,delete", "retention.ms=-1")
		remove := func(topic string, before int64) {
			req := &kmsg.DeleteRecordsRequest{Version: 2, TimeoutMillis: 5000, Topics: []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: before}}}}}
			p := ask[*kmsg.DeleteRecordsResponse](s.c, req).Topics[0].Partitions[0]
			s.note("deleted before %d: %d %d", before, p.ErrorCode, p.LowWatermark)
		}
		s.append(only, stampedBatch(plainBatch, text("a", "1", 0)))
		remove(only, 1)
		s.append(topic, stampedBatch(plainBatch, text("a", "1", 0), text("b", "1", 1), text("c", "1", 2), text("a", "2", 3)))
		remove(topic, 2)
		s.append(topic, stampedBatch(plainBatch, text("c", "2", 4)))
		s.append(topic, stampedBatch(plainBatch, text("end", "", 5000)))
		s.append(topic, stampedBatch(plainBatch, text("end", "2", 10000)))
		s.holds(topic, `3:"a"="2"@3 4:"c"="2"@4 5:"end"=""@5000 6:"end"="2"@10000`)
		s.lookups(topic, -2, -1, 0)
		remove(topic, 6)
		s.holds(topic, `6:"end"="2"@10000`)
		s.append(topic, stampedBatch(plainBatch, text("end", "3", 15000)))
		s.holds(topic, `6:"end"="2"@10000 7:"end"="3"@15000`)
	}},
	{name: "unique keys expire", from: "KAFKA-9157, KAFKA-12889", play: func(s *transcript) {
		topic := s.compacted("cleanup.policy=compact,delete", "retention.ms=600000")
		s.append(topic, stampedBatch(plainBatch, text("a", "1", 0), text("b", "1", 1)))
		s.append(topic, stampedBatch(plainBatch, text("c", "1", 5000)))
		s.holds(topic, "")
		s.lookups(topic, -2, -1, -3, 0)
		s.append(topic, stampedBatch(plainBatch, text("d", "1", 10000)))
	}},
	{name: "a producer goes on", from: "KAFKA-5490, KAFKA-8335", play: func(s *transcript) {
		topic := s.compacted("cleanup.policy=compact")
		id := ask[*kmsg.InitProducerIDResponse](s.c, initProducer(nil, -1, -1)(nil, 0)).ProducerID
		of := func(sequence int32) recordbatch.Options {
			return recordbatch.Options{Producer: &recordbatch.Producer{ID: cluster.ProducerID(id), BaseSequence: sequence}}
		}
		s.append(topic, stampedBatch(of(0), text("a", "1", 0), text("a", "2", 1)))
		s.append(topic, stampedBatch(of(2), text("a", "3", 2)))
		s.append(topic, stampedBatch(plainBatch, text("a", "4", 3)))
		s.append(topic, stampedBatch(plainBatch, text("end", "", 5000)))
		s.append(topic, stampedBatch(plainBatch, text("end", "2", 10000)))
		s.holds(topic, `3:"a"="4"@3 4:"end"=""@5000 5:"end"="2"@10000`)
		s.append(topic, stampedBatch(of(2), text("a", "3", 2)))
		s.append(topic, stampedBatch(of(0), text("a", "1", 0), text("a", "2", 1)))
		s.append(topic, stampedBatch(of(5), text("a", "6", 10001)))
		s.append(topic, stampedBatch(of(3), text("a", "5", 10001)))
		s.holds(topic, `3:"a"="4"@3 4:"end"=""@5000 5:"end"="2"@10000 6:"a"="5"@10001`)
	}},
}
