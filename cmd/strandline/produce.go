package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxLineBytes bounds a line of produce's input: the largest record that a
// default broker takes, with room for a raised limit.
const maxLineBytes = 64 << 20

type produceFlags struct {
	*clientFlags
	partition    int32
	keySeparator string
	acks         string
	compression  string
}

func newProduce(c *clientFlags) *cobra.Command {
	p := &produceFlags{clientFlags: c}
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Write each line of standard input as a record",
		Args:  exactArgs(1, "one topic name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.run(cmd.Context(), args[0], os.Stdin)
		},
	}
	c.add(cmd)
	f := cmd.Flags()
	f.Int32Var(&p.partition, "partition", -1, "write to this partition (default: spread by key)")
	f.StringVar(&p.keySeparator, "key-separator", "", "split each line into key and value at its first occurrence")
	f.StringVar(&p.acks, "acks", "all", "all, 1 or 0")
	f.StringVar(&p.compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	return cmd
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (p *produceFlags) options() ([]kgo.Opt, error) {
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
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return opts, nil
}

func (p *produceFlags) run(ctx context.Context, topic string, in io.Reader) error {
	opts, err := p.options()
	if err != nil {
		return err
	}
	cl, err := p.client(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	var done atomic.Int64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	read := p.lines(ctx, topic, in, func(r *kgo.Record) {
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				cancel(err)
				return
			}
			done.Add(1)
		})
	})
	flushed := cl.Flush(ctx)
	fmt.Fprintf(os.Stderr, "produced %d records\n", done.Load())
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("producing to %s: %w", topic, cause)
	}
	return errors.Join(read, flushed)
}

// lines calls send for each line of in until its end or ctx is done.
func (p *produceFlags) lines(ctx context.Context, topic string, in io.Reader, send func(*kgo.Record)) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(make([]byte, 64<<10), maxLineBytes)
	for scanner.Scan() && ctx.Err() == nil {
		line := bytes.Clone(scanner.Bytes())
		r := &kgo.Record{Topic: topic, Value: line, Partition: p.partition}
		if p.keySeparator != "" {
			if key, value, ok := bytes.Cut(line, []byte(p.keySeparator)); ok {
				r.Key, r.Value = key, value
			}
		}
		send(r)
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("reading standard input: %w", err)
	}
	return nil
}
