package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const consumeHelp = `Print the values of a topic's records, a line each. With --key-separator a line has
the key, too, and with --null-marker a null key or value, as that of a tombstone,
is this text; -o json prints whole records.

With --group, the partitions are shared with the other members of a consumer
group (the classic protocol, cooperative-sticky). Reading goes on after what the
group has committed, and at --offset where it has committed nothing. What is
printed is committed then, so that each record is printed at least once; on the
way out the member leaves the group. --exit-at-end stops once the group, with
whoever else is in it, has read what the topic had at the start.`

type consumeFlags struct {
	*clientFlags
	partition int32
	offset    string
	count     int64

	keySeparator string
	nullMarker   string
	exitAtEnd    bool
	group        string
}

func newConsume(c *clientFlags) *cobra.Command {
	f := &consumeFlags{clientFlags: c}
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Print the records of a topic",
		Long:  consumeHelp,
		Args:  exactArgs(1, "one topic name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), args[0])
		},
	}
	c.add(cmd)
	fl := cmd.Flags()
	fl.Int32Var(&f.partition, "partition", -1, "read this partition only (default: all)")
	fl.StringVar(&f.offset, "offset", "earliest", "earliest, latest, an offset, or @unix-ms")
	fl.Int64Var(&f.count, "count", 0, "stop after this many records (0: no limit)")
	fl.StringVar(&f.keySeparator, "key-separator", "", "print the key and this text before the value")
	fl.StringVar(&f.nullMarker, "null-marker", "", "print this text for a null key or value")
	fl.BoolVar(&f.exitAtEnd, "exit-at-end", false, "stop at the end that each partition had at the start; fail where no record of it comes for --timeout")
	fl.StringVar(&f.group, "group", "", "read as a member of this consumer group: from what it has committed, else from --offset, and commit what is printed")
	return cmd
}

// start is where a partition is read from and, with exit-at-end, up to which
// offset (exclusive).
type start struct{ from, end int64 }

func (f *consumeFlags) run(ctx context.Context, topic string) error {
	if err := checkPartition(f.partition); err != nil {
		return err
	}
	if f.count < 0 {
		return usagef("--count %d: want 1 or more, or 0 for no limit", f.count)
	}
	if f.group != "" {
		return f.runGroup(ctx, topic)
	}
	var starts map[int32]start
	if err := f.withAdmin(ctx, func(ctx context.Context, adm *kadm.Client) (err error) {
		starts, err = f.starts(ctx, adm, topic)
		return err
	}); err != nil {
		return err
	}
	from := map[int32]kgo.Offset{}
	open := map[int32]int64{}
	for p, s := range starts {
		if f.exitAtEnd && s.from >= s.end {
			continue
		}
		from[p] = kgo.NewOffset().At(s.from)
		open[p] = s.end
	}
	if len(from) == 0 {
		return nil
	}
	cl, err := f.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchMaxBytes(16<<20), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer cl.Close()
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	err = f.poll(ctx, cl, out, open)
	return errors.Join(err, out.Flush())
}

func (f *consumeFlags) poll(ctx context.Context, cl *kgo.Client, out *bufio.Writer, open map[int32]int64) error {
	arrived := time.Now()
	for n := int64(0); ; {
		fetches := f.pollOnce(ctx, cl, arrived)
		switch {
		case ctx.Err() != nil:
			return nil
		case fetches.NumRecords() > 0:
			arrived = time.Now()
		case f.exitAtEnd && time.Since(arrived) >= f.timeout:
			return f.stuck(open)
		}
		for _, e := range fetches.Errors() {
			if errors.Is(e.Err, kerr.OffsetOutOfRange) {
				return fmt.Errorf("%w: %s partition %d does not have the offset that was asked for; `--offset earliest` and `--offset latest` read from its ends", kerr.OffsetOutOfRange, e.Topic, e.Partition)
			}
			return fmt.Errorf("reading %s partition %d: %w", e.Topic, e.Partition, e.Err)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			end, isOpen := open[r.Partition]
			if r.Attrs.IsControl() || f.exitAtEnd && (!isOpen || r.Offset >= end) {
				continue
			}
			if err := f.printRecord(out, r); err != nil {
				return err
			}
			if n++; f.count > 0 && n >= f.count {
				return nil
			}
		}
		if f.exitAtEnd && f.allAtEnd(fetches, open) {
			return nil
		}
		if err := out.Flush(); err != nil {
			return fmt.Errorf("writing standard output: %w", err)
		}
	}
}

// pollOnce waits for records, with --exit-at-end no longer than --timeout since
// the last ones arrived.
func (f *consumeFlags) pollOnce(ctx context.Context, cl *kgo.Client, arrived time.Time) kgo.Fetches {
	if !f.exitAtEnd {
		return cl.PollFetches(ctx)
	}
	waiting, cancel := context.WithDeadline(ctx, arrived.Add(f.timeout))
	defer cancel()
	fetches := cl.PollFetches(waiting)
	if waiting.Err() != nil && fetches.NumRecords() == 0 {
		return nil // what it says then is that it waited
	}
	return fetches
}

// stuck is what to say where records are there and do not come: the client tries
// again what the broker cannot read just now.
func (f *consumeFlags) stuck(open map[int32]int64) error {
	first := slices.Min(slices.Collect(maps.Keys(open)))
	return fmt.Errorf("%w: partition %d has records below offset %d, but none came within %s; `strandline tier status` and the broker's log say whether they can be read, --timeout waits longer",
		kerr.RequestTimedOut, first, open[first], f.timeout)
}

// allAtEnd drops the partitions whose end has been reached and reports whether
// none is left. Control records count: a transaction marker may be the last.
func (f *consumeFlags) allAtEnd(fetches kgo.Fetches, open map[int32]int64) bool {
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		end, ok := open[p.Partition]
		if n := len(p.Records); ok && n > 0 && p.Records[n-1].Offset+1 >= end {
			delete(open, p.Partition)
		}
	})
	return len(open) == 0
}

func (f *consumeFlags) starts(ctx context.Context, adm *kadm.Client, topic string) (map[int32]start, error) {
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	from, err := f.listStart(ctx, adm, topic)
	if err != nil {
		return nil, err
	}
	starts := map[int32]start{}
	for _, e := range ends.Offsets().Sorted() {
		if f.partition >= 0 && e.Partition != f.partition {
			continue
		}
		listed, ok := ends.Lookup(topic, e.Partition)
		if ok && listed.Err != nil {
			return nil, topicError(topic, listed.Err)
		}
		s := start{from: from.at, end: e.At}
		if from.listed != nil {
			o, ok := from.listed.Lookup(topic, e.Partition)
			if !ok || o.Err != nil {
				return nil, fmt.Errorf("topic %s partition %d: %w", topic, e.Partition, o.Err)
			}
			if s.from = o.Offset; s.from < 0 {
				s.from = e.At // no record is that new
			}
		}
		starts[e.Partition] = s
	}
	if listed, ok := ends[topic]; !ok || len(starts) == 0 {
		for _, l := range listed {
			if l.Err != nil {
				return nil, topicError(topic, l.Err)
			}
		}
		if f.partition >= 0 && ok && len(listed) > 0 {
			return nil, unknownPartition(topic, f.partition, len(listed))
		}
		return nil, topicError(topic, kerr.UnknownTopicOrPartition)
	}
	return starts, nil
}

// listedStart is a start offset a partition, or the same for all.
type listedStart struct {
	listed kadm.ListedOffsets
	at     int64
}

func (f *consumeFlags) listStart(ctx context.Context, adm *kadm.Client, topic string) (s listedStart, err error) {
	ms, isTime := strings.CutPrefix(f.offset, "@")
	switch {
	case f.offset == "earliest":
		s.listed, err = adm.ListStartOffsets(ctx, topic)
	case f.offset == "latest":
		s.listed, err = adm.ListEndOffsets(ctx, topic)
	case isTime:
		t, perr := strconv.ParseInt(ms, 10, 64)
		if perr != nil {
			return s, usagef("--offset %s: want @ and milliseconds since 1970", f.offset)
		}
		s.listed, err = adm.ListOffsetsAfterMilli(ctx, t, topic)
	default:
		s.at, err = strconv.ParseInt(f.offset, 10, 64)
		if err != nil || s.at < 0 {
			return s, usagef("--offset %s: want earliest, latest, an offset, or @unix-ms", f.offset)
		}
	}
	return s, err
}

// jsonRecord is one line of -o json. Bytes that are not UTF-8 are in the
// fields that end in Base64.
type jsonRecord struct {
	Partition   int32        `json:"partition"`
	Offset      int64        `json:"offset"`
	Timestamp   int64        `json:"timestamp"`
	Key         *string      `json:"key"`
	Value       *string      `json:"value"`
	Headers     []jsonHeader `json:"headers"`
	KeyBase64   bool         `json:"keyBase64,omitempty"`
	ValueBase64 bool         `json:"valueBase64,omitempty"`
}

type jsonHeader struct {
	Key         string  `json:"key"`
	Value       *string `json:"value"`
	ValueBase64 bool    `json:"valueBase64,omitempty"`
}

func text(b []byte) (s *string, isBase64 bool) {
	if b == nil {
		return nil, false
	}
	v := string(b)
	if !utf8.Valid(b) {
		v, isBase64 = base64.StdEncoding.EncodeToString(b), true
	}
	return &v, isBase64
}

func (f *consumeFlags) printRecord(out *bufio.Writer, r *kgo.Record) error {
	if !f.json() {
		if f.keySeparator != "" {
			f.printText(out, r.Key)
			_, _ = out.WriteString(f.keySeparator)
		}
		f.printText(out, r.Value)
		return out.WriteByte('\n')
	}
	j := jsonRecord{Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Headers: []jsonHeader{}}
	j.Key, j.KeyBase64 = text(r.Key)
	j.Value, j.ValueBase64 = text(r.Value)
	for _, h := range r.Headers {
		v, isBase64 := text(h.Value)
		j.Headers = append(j.Headers, jsonHeader{Key: h.Key, Value: v, ValueBase64: isBase64})
	}
	return json.NewEncoder(out).Encode(j)
}

// printText prints a key or value, or what stands for null. The writer keeps its
// first error.
func (f *consumeFlags) printText(out *bufio.Writer, b []byte) {
	if b == nil {
		_, _ = out.WriteString(f.nullMarker)
		return
	}
	_, _ = out.Write(b)
}
