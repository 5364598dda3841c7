package recordbatch_test

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
)

func TestFirstCutsOneBatchAfterTheOther(t *testing.T) {
	a, b := kafkaBatch(t, "none"), kafkaBatch(t, "zstd")
	both := append(append([]byte{}, a...), b...)
	first, rest, err := recordbatch.First(both)
	require.NoError(t, err)
	require.Equal(t, a, first)
	second, rest, err := recordbatch.First(rest)
	require.NoError(t, err)
	require.Equal(t, b, second)
	_, rest, err = recordbatch.First(rest)
	require.ErrorIs(t, err, recordbatch.ErrTruncated)
	require.Empty(t, rest)
	require.Equal(t, len(first), cap(first), "an append to a batch must not reach the next one")
}

func TestFirstRefusesEveryShorterPrefix(t *testing.T) {
	b := kafkaBatch(t, "none")
	for n := range b {
		_, rest, err := recordbatch.First(b[:n])
		require.ErrorIs(t, err, recordbatch.ErrTruncated, "%d bytes", n)
		require.ErrorIs(t, err, recordbatch.ErrCorrupt)
		require.Len(t, rest, n)
	}
}

func TestFirstRefusesLengthsAndMagics(t *testing.T) {
	for _, length := range []int32{-1, 0, 1, 48, -1 << 31} {
		b := clone(kafkaBatch(t, "none"))
		binary.BigEndian.PutUint32(b[8:], uint32(length))
		_, _, err := recordbatch.First(b)
		require.ErrorIs(t, err, recordbatch.ErrBadLength, "length %d", length)
	}
	for _, magic := range []byte{0, 1, 3, 255} {
		b := clone(kafkaBatch(t, "none"))
		b[16] = magic
		_, _, err := recordbatch.First(b)
		require.ErrorIs(t, err, recordbatch.ErrBadMagic, "magic %d", magic)
		require.ErrorIs(t, b.Verify(), recordbatch.ErrBadMagic)
		binary.BigEndian.PutUint32(b[8:], 20) // an old message of one byte
		_, _, err = recordbatch.First(b[:32])
		require.ErrorIs(t, err, recordbatch.ErrBadMagic, "magic %d in a small message", magic)
	}
	_, err := recordbatch.PeekBytes(kafkaBatch(t, "none")[:recordbatch.PrefixBytes])
	require.NoError(t, err)
}

func TestVerifyFindsEveryFlippedBit(t *testing.T) {
	good := kafkaBatch(t, "none")
	b := clone(good)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			err := b.Verify()
			switch {
			case i < 8, i >= 12 && i < 16: // base offset and leader epoch
				require.NoError(t, err, "byte %d", i)
			case i < 12:
				require.ErrorIs(t, err, recordbatch.ErrBadLength, "byte %d", i)
			case i == 16:
				require.ErrorIs(t, err, recordbatch.ErrBadMagic)
			default:
				require.ErrorIs(t, err, recordbatch.ErrBadCRC, "byte %d", i)
			}
			b[i] ^= 1 << bit
		}
	}
	require.Equal(t, good, b)
}

func TestVerifyChecksCountAndCodec(t *testing.T) {
	for _, c := range []struct {
		name  string
		patch func(recordbatch.Batch)
		want  error
	}{
		{"negative count", func(b recordbatch.Batch) { put32(b, 57, -1) }, recordbatch.ErrBadCount},
		{"more records than offsets", func(b recordbatch.Batch) { put32(b, 57, 21) }, recordbatch.ErrBadCount},
		{"fewer records than offsets", func(b recordbatch.Batch) { put32(b, 57, 3) }, nil},
		{"no records left", func(b recordbatch.Batch) { put32(b, 57, 0) }, nil},
		{"negative offset delta", func(b recordbatch.Batch) { put32(b, 23, -1) }, recordbatch.ErrBadCount},
		{"unknown codec", func(b recordbatch.Batch) { b[22] |= 5 }, recordbatch.ErrUnknownCodec},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := clone(kafkaBatch(t, "none"))
			c.patch(b)
			seal(b)
			require.ErrorIs(t, b.Verify(), c.want)
		})
	}
	require.ErrorIs(t, recordbatch.Batch{}.Verify(), recordbatch.ErrTruncated)
}

func TestPatchingKeepsTheChecksum(t *testing.T) {
	b := clone(kafkaBatch(t, "none"))
	b.SetBaseOffset(1 << 40)
	b.SetPartitionLeaderEpoch(123456)
	require.NoError(t, b.Verify())
	require.EqualValues(t, int64(1<<40), b.BaseOffset())
	require.EqualValues(t, 123456, b.PartitionLeaderEpoch())
	b.SetLogAppendTime(42)
	require.NoError(t, b.Verify())
	require.True(t, b.LogAppendTime())
	require.EqualValues(t, 42, b.MaxTimestamp())
	b.SetCreateTime(kafkaBatch(t, "none").MaxTimestamp())
	b.SetBaseOffset(4242)
	b.SetPartitionLeaderEpoch(9)
	require.Equal(t, kafkaBatch(t, "none"), b)
}

func TestVerifyAllocatesNothing(t *testing.T) {
	plain, packed := build(recordbatch.Options{}, stamped(1, 2, 3)...), build(recordbatch.Options{Codec: recordbatch.LZ4}, stamped(1, 2, 3)...)
	rules := recordbatch.Rules{KeysRequired: true, CheckTimestamps: true, Now: time.UnixMilli(2), TimestampBefore: time.Second, TimestampAfter: time.Second}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, _, _ = recordbatch.First(plain)
		_ = plain.Verify()
		_ = plain.VerifyProduced()
		_, _ = plain.Examine(rules, nil)
		_ = packed.VerifyProduced()
	}))
}

func TestSequencesWrap(t *testing.T) {
	const highest = 1<<31 - 1
	require.EqualValues(t, 0, recordbatch.IncrementSequence(highest, 1))
	require.EqualValues(t, 4, recordbatch.IncrementSequence(highest-5, 10))
	require.EqualValues(t, highest, recordbatch.IncrementSequence(highest-5, 5))
	require.EqualValues(t, highest, recordbatch.DecrementSequence(0, 1))
	require.EqualValues(t, highest-5, recordbatch.DecrementSequence(4, 10))
}

func clone(b recordbatch.Batch) recordbatch.Batch { return append(recordbatch.Batch{}, b...) }

func put32(b recordbatch.Batch, pos int, v int32) { binary.BigEndian.PutUint32(b[pos:], uint32(v)) }

// seal computes length and checksum again, independently of the package.
func seal(b recordbatch.Batch) {
	put32(b, 8, int32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
}

func BenchmarkVerify(b *testing.B) {
	for _, c := range []struct {
		name  string
		value int
	}{{"100B", 100}, {"1KiB", 1024}} {
		builder := recordbatch.NewBuilder(recordbatch.Options{})
		for builder.UncompressedBytes() < 1_000_000 {
			builder.Add(1, nil, make([]byte, c.value))
		}
		batch := builder.Build()
		b.Run(c.name+"/verify", func(b *testing.B) {
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if err := batch.Verify(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/produced", func(b *testing.B) {
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if err := batch.VerifyProduced(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
