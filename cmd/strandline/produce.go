package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxLineBytes bounds a line of produce's input: the largest record that a
// default broker takes, with room for a raised limit.
const maxLineBytes = 64 << 20

// brokerBatchBytes is max.message.bytes where nobody sets it.
const brokerBatchBytes = 1_048_588

const produceHelp = `Write each line of standard input as a record.

A compacted topic takes only records with a key, and deletes a key once it gets
a record of it whose value is null, a tombstone:

  echo 'user-7=on'   | strandline produce settings --key-separator =
  echo 'user-7=NULL' | strandline produce settings --key-separator = --null-marker NULL`

type produceFlags struct {
	*clientFlags
	partition    int32
	keySeparator string
	nullMarker   string
	acks         string
	compression  string
}

func newProduce(c *clientFlags) *cobra.Command {
	p := &produceFlags{clientFlags: c}
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Write each line of standard input as a record",
		Long:  produceHelp,
		Args:  exactArgs(1, "one topic name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.run(cmd.Context(), args[0], os.Stdin)
		},
	}
	c.add(cmd)
	f := cmd.Flags()
	f.Int32Var(&p.partition, "partition", -1, "write to this partition (default: spread by key)")
	f.StringVar(&p.keySeparator, "key-separator", "", "split each line into key and value at its first occurrence")
	f.StringVar(&p.nullMarker, "null-marker", "", "a key or value that is this text is null; not given: none is")
	f.StringVar(&p.acks, "acks", "all", "all, 1 or 0")
	f.StringVar(&p.compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	return cmd
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// options are the client's; refuse is told of a partition that is not there.
func (p *produceFlags) options(refuse func(error)) ([]kgo.Opt, error) {
	if err := checkPartition(p.partition); err != nil {
		return nil, err
	}
	codec, ok := codecs[p.compression]
	if !ok {
		return nil, usagef("--compression %s: want none, gzip, snappy, lz4 or zstd", p.compression)
	}
	opts := []kgo.Opt{
		kgo.ProducerBatchCompression(codec),
		kgo.RecordDeliveryTimeout(p.timeout), kgo.UnknownTopicRetries(10), kgo.AllowAutoTopicCreation(),
	}
	switch p.acks {
	case "all", "-1":
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, usagef("--acks %s: want all, 1 or 0", p.acks)
	}
	if p.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
			return func(r *kgo.Record, n int) int {
				if int(r.Partition) >= n {
					refuse(fmt.Errorf("%w: topic %s has %s, and so no partition %d", kerr.UnknownTopicOrPartition, topic, counted(int64(n), "partition"), r.Partition))
				}
				return int(r.Partition)
			}
		})))
	}
	return opts, nil
}

func (p *produceFlags) run(ctx context.Context, topic string, in io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opts, err := p.options(cancel)
	if err != nil {
		return err
	}
	limit, err := p.batchLimit(ctx, topic)
	if err != nil {
		fmt.Fprintln(os.Stderr, "produced 0 records")
		return err
	}
	if limit > 0 {
		opts = append(opts, kgo.ProducerBatchMaxBytes(limit))
	}
	cl, err := p.client(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	var done atomic.Int64
	keyless := false
	read := p.lines(ctx, topic, in, func(r *kgo.Record) {
		keyless = keyless || r.Key == nil
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				cancel(err)
				return
			}
			done.Add(1)
		})
	})
	flushed := cl.Flush(ctx)
	fmt.Fprintln(os.Stderr, "produced", counted(done.Load(), "record"))
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, kerr.MessageTooLarge):
		return fmt.Errorf("%w: a line is larger than the topic takes; `strandline topic alter %s --config max.message.bytes=N` raises that", kerr.MessageTooLarge, topic)
	case errors.Is(cause, kerr.RecordListTooLarge):
		return fmt.Errorf("%w: a line is larger than a segment of the topic; `strandline topic alter %s --config segment.bytes=N` raises that", kerr.RecordListTooLarge, topic)
	case errors.Is(cause, kerr.InvalidRecord) && keyless:
		return fmt.Errorf("%w: a compacted topic takes no record without a key; --key-separator splits each line into key and value", kerr.InvalidRecord)
	case errors.Is(cause, kgo.ErrRecordTimeout):
		return fmt.Errorf("%w: %s took no more records within %s; the broker's log says why, as where its disk is full, and --timeout waits longer", kerr.RequestTimedOut, topic, p.timeout)
	case cause != nil && errors.As(cause, new(*kerr.Error)):
		return cause
	case cause != nil:
		return fmt.Errorf("producing to %s: %w", topic, cause)
	}
	return errors.Join(read, flushed)
}

// batchLimit is max.message.bytes of a topic that raises it above the client's
// default, else 0. A topic that is not there yet has the broker's default.
func (p *produceFlags) batchLimit(ctx context.Context, topic string) (int32, error) {
	limit := int64(0)
	err := p.withAdmin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		described, err := adm.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return err
		}
		r, err := described.On(topic, nil)
		for _, c := range r.Configs {
			if c.Key == "max.message.bytes" && c.Value != nil {
				limit, err = strconv.ParseInt(*c.Value, 10, 32)
			}
		}
		return err
	})
	switch {
	case err != nil && !errors.As(err, new(*kerr.Error)):
		return 0, err // no broker
	case limit <= brokerBatchBytes:
		return 0, nil
	}
	return int32(min(limit, maxLineBytes)), nil
}

// lines calls send for each line of in until its end or ctx is done.
func (p *produceFlags) lines(ctx context.Context, topic string, in io.Reader, send func(*kgo.Record)) error {
	reader := bufio.NewReaderSize(in, 64<<10)
	for n := 1; ctx.Err() == nil; n++ {
		line, err := readLine(reader)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, bufio.ErrTooLong):
			return fmt.Errorf("line %d of standard input is longer than %d bytes, the most that a record may have here", n, maxLineBytes)
		case err != nil:
			return fmt.Errorf("reading standard input: %w", err)
		}
		r := &kgo.Record{Topic: topic, Value: line, Partition: p.partition}
		if p.keySeparator != "" {
			if key, value, ok := bytes.Cut(line, []byte(p.keySeparator)); ok {
				r.Key, r.Value = p.unlessNull(key), value
			}
		}
		r.Value = p.unlessNull(r.Value)
		send(r)
	}
	return nil
}

// unlessNull is nil for --null-marker, else the text of a key or value.
func (p *produceFlags) unlessNull(text []byte) []byte {
	if p.nullMarker != "" && string(text) == p.nullMarker {
		return nil
	}
	return text
}

// readLine returns a line of its own without its end, or io.EOF.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxLineBytes {
			return nil, bufio.ErrTooLong
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == io.EOF && len(line) > 0:
			return line, nil
		case err != nil:
			return nil, err
		}
		return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
	}
}
