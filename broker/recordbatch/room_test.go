package recordbatch_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// TestDowngradeFillsItsRoom: of a plain batch exactly what fits; of a compressed
// one, whose size is not known before, no less than half of that, everything where
// there is twice the room, and never more than fits, a first message apart.
func TestDowngradeFillsItsRoom(t *testing.T) {
	records := func(n, varied int) (out []recordbatch.Record) {
		for i := range n {
			value := bytes.Repeat(fmt.Appendf(nil, "%d, ", i%7), 9+i%5)
			for j := range varied {
				value = append(value, byte((i+1)*(j+3)*2654435761>>7))
			}
			out = append(out, recordbatch.Record{Offset: cluster.Offset(100 + i), Timestamp: int64(1000 + i), Key: fmt.Appendf(nil, "key %d", i), Value: value})
		}
		return out
	}
	for _, codec := range codecs {
		for magic := int8(0); magic <= 1; magic++ {
			for _, varied := range []int{0, 150} {
				all := records(40, varied)
				b := build(recordbatch.Options{BaseOffset: 100, Codec: codec}, all...)
				for _, from := range []cluster.Offset{0, 100, 113, 139} {
					skip := max(int(from)-100, 0)
					// How large the first messages are, one, two, ...
					var sizes []int
					for n := skip + 1; n <= len(all); n++ {
						set, _, err := new(recordbatch.Downgrader).Append(nil, build(recordbatch.Options{BaseOffset: 100, Codec: codec}, all[:n]...), magic, from, 1<<30, false)
						require.NoError(t, err)
						sizes = append(sizes, len(set))
					}
					var g recordbatch.Downgrader
					for _, size := range append(sizes, 2*sizes[len(sizes)-1]) {
						for d := -1; d <= 1; d++ {
							room := size + d
							fit := 0 // sizes need not rise where they are compressed
							for i, size := range sizes {
								if size <= room {
									fit = i + 1
								}
							}
							for _, one := range []bool{false, true} {
								set, done, err := g.Append([]byte("head"), b, magic, from, room, one)
								require.NoError(t, err)
								require.Equal(t, "head", string(set[:4]))
								what := fmt.Sprintf("%v v%d from %d in %d bytes, %d fit, %d of at most %d", codec, magic, from, room, fit, done.Messages, len(sizes))
								require.Equal(t, done.Messages < len(sizes), done.Full, what)
								if done.Messages > 0 {
									require.Equal(t, sizes[done.Messages-1], len(set)-4, what)
								}
								if fit == 0 {
									require.Equal(t, one, done.Messages == 1, what)
									continue
								}
								require.LessOrEqual(t, done.Messages, fit, what)
								if codec == recordbatch.None || codec == recordbatch.Zstd {
									require.Equal(t, fit, done.Messages, what)
								}
								require.GreaterOrEqual(t, done.Messages, (fit+1)/2, what)
								if room >= 2*sizes[len(sizes)-1] {
									require.False(t, done.Full, what)
								}
							}
						}
					}
				}
			}
		}
	}
}

// TestDowngradeOfDamagedRecords: a record that is none, behind good ones, is an
// error; plain messages before it are there, of a compressed one there is nothing.
func TestDowngradeOfDamagedRecords(t *testing.T) {
	for _, codec := range codecs {
		good := build(recordbatch.Options{}, recordbatch.Record{Value: []byte("one")}, recordbatch.Record{Offset: 1, Value: []byte("two")}, recordbatch.Record{Offset: 2, Value: []byte("three")})
		payload := bytes.Clone(good.Payload())
		payload[len(payload)-8]++ // in the last record: its value is longer than it
		b := withPayload(3, 2, payload)
		if codec != recordbatch.None {
			b = b.AppendCompressed(nil, codec, 0)
		}
		require.Equal(t, codec, recordbatch.Batch(b).Compression())
		for magic := int8(0); magic <= 1; magic++ {
			_, err := decodeAll(b)
			require.Error(t, err)
			set, done, err := new(recordbatch.Downgrader).Append([]byte("head"), b, magic, 0, 1<<20, true)
			require.ErrorIs(t, err, recordbatch.ErrCorrupt, "%v v%d", codec, magic)
			require.Equal(t, "head", string(set[:4]))
			if codec != recordbatch.None && codec != recordbatch.Zstd {
				require.Len(t, set, 4)
				require.Zero(t, done)
				continue
			}
			before, err := messages(&recordbatch.Decoder{}, set[4:])
			require.NoError(t, err)
			require.Len(t, before, 2)
			require.Equal(t, "two", string(before[1].Value))
		}
	}
}

// TestOldestFormatHasNoTimestampType: the attributes of v0 are the codec alone.
func TestOldestFormatHasNoTimestampType(t *testing.T) {
	for _, codec := range []recordbatch.Codec{recordbatch.None, recordbatch.Gzip, recordbatch.Snappy, recordbatch.LZ4} {
		b := build(recordbatch.Options{Codec: codec, LogAppendTime: true, AppendTimestamp: 9}, recordbatch.Record{Timestamp: 5, Value: []byte("v")})
		for magic, bit := range []byte{0, 8} {
			set, _, err := new(recordbatch.Downgrader).Append(nil, b, int8(magic), 0, 1<<20, false)
			require.NoError(t, err)
			require.Equal(t, byte(codec)|bit, set[17], "%v v%d", codec, magic)
		}
	}
}
