package partition

import (
	"fmt"
	"sync"

	"strandline/broker/recordbatch"
	"strandline/metadata/config"
)

// scratch is what one append needs besides its records. It is reused.
type scratch struct {
	decoder recordbatch.Decoder
	plain   []byte // batches without compression
	stored  []byte // batches as they are to be stored
}

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// scratchBytesMax is the largest buffer that a scratch keeps.
const scratchBytesMax = 4 << 20

func (s *scratch) free() {
	if cap(s.plain) > scratchBytesMax {
		s.plain = nil
	}
	if cap(s.stored) > scratchBytesMax {
		s.stored = nil
	}
	scratches.Put(s)
}

// conformed is what an append becomes: checked, with the format and the codec
// that the log wants.
type conformed struct {
	records                []byte
	upgraded, recompressed int // records
}

// conform checks each batch and brings it into the form in which it is stored:
// message sets of the old formats become batches, and a batch whose codec is not
// the topic's is compressed anew. Whatever needs neither is left where it is. The
// result is valid until the scratch is freed.
func (p *Partition) conform(req AppendRequest, settings *config.Topic, s *scratch) (conformed, error) {
	s.decoder.SetLimit(int(settings.MaxDecompressedBytes))
	rules := recordbatch.Rules{
		KeysRequired:    settings.CleanupPolicy.Compact(),
		LogAppendTime:   settings.TimestampType == config.LogAppendTime,
		CheckTimestamps: true, Now: p.cfg.Now(),
		TimestampBefore: settings.TimestampBeforeMax, TimestampAfter: settings.TimestampAfterMax,
	}
	var (
		out conformed
		err error
	)
	switch {
	case req.Origin != FromClient:
		out, err = p.verify(req.Records)
	case req.MessageSet:
		out, err = p.upgrade(req.Records, settings, &rules, s)
	default:
		out, err = p.examine(req.Records, settings, &rules, s)
	}
	if err == nil && int64(len(out.records)) > settings.SegmentBytes {
		err = fmt.Errorf("%s: %w: %d bytes, segment.bytes %d", p.name, ErrRecordListTooLarge, len(out.records), settings.SegmentBytes)
	}
	return out, err
}

// verify checks batches that this broker made.
func (p *Partition) verify(records []byte) (conformed, error) {
	for rest, first := records, true; len(rest) > 0 || first; first = false {
		b, more, err := recordbatch.First(rest)
		if err == nil {
			err = b.Verify()
		}
		if err != nil {
			return conformed{}, p.refusal(err)
		}
		rest = more
	}
	return conformed{records: records}, nil
}

// examine checks the one batch that a client sent. Its size counts as it came
// and as it will be stored.
func (p *Partition) examine(records []byte, settings *config.Topic, rules *recordbatch.Rules, s *scratch) (conformed, error) {
	if size, err := recordbatch.PeekBytes(records); err == nil {
		if err := p.tooLarge(size, settings); err != nil {
			return conformed{}, err
		}
	}
	b, rest, err := recordbatch.First(records)
	if err != nil {
		return conformed{}, p.refusal(err)
	}
	if len(rest) > 0 {
		return conformed{}, fmt.Errorf("%s: %w: more than one batch for a partition", p.name, ErrInvalidRecord)
	}
	codec, level := target(settings, b.Compression())
	if codec == b.Compression() {
		if err := examineOne(b, rules, &s.decoder); err != nil {
			return conformed{}, p.refusal(err)
		}
		return conformed{records: records}, nil
	}
	if b.Compression() != recordbatch.None {
		if err := b.Verify(); err != nil {
			return conformed{}, p.refusal(err)
		}
		if s.plain, err = b.AppendUncompressed(s.plain[:0], s.decoder.Limit()); err != nil {
			return conformed{}, p.refusal(fmt.Errorf("%w: %w", recordbatch.ErrInvalid, err))
		}
		b = recordbatch.Batch(s.plain)
	}
	if err := examineOne(b, rules, &s.decoder); err != nil {
		return conformed{}, p.refusal(err)
	}
	stored := []byte(b)
	if codec != recordbatch.None {
		s.stored = b.AppendCompressed(s.stored[:0], codec, level)
		stored = s.stored
	}
	return conformed{records: stored, recompressed: int(b.RecordCount())}, p.tooLarge(len(stored), settings)
}

// upgrade makes batches of a message set, with the set's codec where the topic
// wants the producer's. A set whose records fit no single batch becomes several.
func (p *Partition) upgrade(set []byte, settings *config.Topic, rules *recordbatch.Rules, s *scratch) (conformed, error) {
	var (
		up  recordbatch.Upgraded
		err error
	)
	s.plain, up, err = s.decoder.AppendUpgraded(s.plain[:0], set, int(settings.MaxMessageBytes))
	if err != nil {
		return conformed{}, p.refusal(err)
	}
	if up.Messages == 0 {
		return conformed{}, fmt.Errorf("%s: %w: no message", p.name, ErrInvalidRecord)
	}
	out := conformed{records: s.plain, upgraded: up.Messages}
	codec, level := target(settings, up.Codec)
	s.stored = s.stored[:0]
	for rest := s.plain; len(rest) > 0; {
		var b recordbatch.Batch
		if b, rest, err = recordbatch.First(rest); err == nil {
			err = examineOne(b, rules, &s.decoder)
		}
		if err != nil {
			return conformed{}, p.refusal(err)
		}
		size := len(b)
		if codec != recordbatch.None {
			at := len(s.stored)
			s.stored = b.AppendCompressed(s.stored, codec, level)
			size, out.records = len(s.stored)-at, s.stored
		}
		if err := p.tooLarge(size, settings); err != nil {
			return conformed{}, err
		}
	}
	return out, nil
}

// target is the codec that a batch is stored with, and the level.
func target(settings *config.Topic, produced recordbatch.Codec) (recordbatch.Codec, int) {
	codec := produced
	switch settings.CompressionType {
	case "uncompressed":
		codec = recordbatch.None
	case "gzip":
		codec = recordbatch.Gzip
	case "snappy":
		codec = recordbatch.Snappy
	case "lz4":
		codec = recordbatch.LZ4
	case "zstd":
		codec = recordbatch.Zstd
	}
	switch codec {
	case recordbatch.Gzip:
		return codec, int(settings.GzipLevel)
	case recordbatch.LZ4:
		return codec, int(settings.LZ4Level)
	case recordbatch.Zstd:
		return codec, int(settings.ZstdLevel)
	}
	return codec, codec.DefaultLevel()
}

func (p *Partition) tooLarge(bytes int, settings *config.Topic) error {
	if bytes > int(settings.MaxMessageBytes) {
		return fmt.Errorf("%s: %w: %d bytes, max.message.bytes %d", p.name, ErrMessageTooLarge, bytes, settings.MaxMessageBytes)
	}
	return nil
}

// examineOne checks a batch and, for CreateTime, corrects a header that claims
// another highest timestamp than the records have.
func examineOne(b recordbatch.Batch, rules *recordbatch.Rules, d *recordbatch.Decoder) error {
	found, err := b.Examine(*rules, d)
	if err == nil && !rules.LogAppendTime && (found.Walked || b.LogAppendTime()) {
		b.SetCreateTime(found.MaxTimestamp)
	}
	return err
}
