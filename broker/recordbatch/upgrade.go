package recordbatch

// Upgraded says what AppendUpgraded made.
type Upgraded struct {
	Messages int
	// Codec is that of the last compressed message, None where there was none.
	Codec Codec
}

// AppendUpgraded appends the messages of a set of format v0 or v1 to dst as
// uncompressed v2 batches from offset 0 on, in the set's order; their offsets in
// the set do not matter. A batch ends before it would be larger than bytesMax,
// one message always fitting. Messages without a timestamp have NoTimestamp.
// The errors are those of Messages, dst then being what it was.
func (d *Decoder) AppendUpgraded(dst, set []byte, bytesMax int) ([]byte, Upgraded, error) {
	var (
		done Upgraded
		b    Builder
		at   = len(dst)
	)
	b.Reset(Options{})
	for m, err := range d.Messages(set) {
		if err != nil {
			return dst[:at], Upgraded{}, err
		}
		if b.count > 0 && b.UncompressedBytes()+b.nextBytes(m) > bytesMax {
			dst = b.AppendTo(dst)
			b.Reset(Options{})
		}
		if m.LogAppendTime {
			// The flag stays, for whoever looks at what a client may not set.
			b.options.LogAppendTime = true
			b.options.AppendTimestamp = max(b.options.AppendTimestamp, m.Timestamp)
		}
		b.Add(m.Timestamp, m.Key, m.Value)
		done.Messages++
		if m.Codec != None {
			done.Codec = m.Codec
		}
	}
	if b.count > 0 {
		dst = b.AppendTo(dst)
	}
	return dst, done, nil
}

// nextBytes is what a message would add to the batch.
func (b *Builder) nextBytes(m Message) int {
	n := recordBytes(m.Timestamp-b.firstTimestamp, b.lastDelta+1, m.Key, m.Value, nil)
	return n + varlongBytes(int64(n))
}
