package recordbatch

import (
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Kafka's default levels (compression.gzip.level and its kind).
const (
	gzipLevelDefault = gzip.DefaultCompression
	lz4LevelDefault  = 9
	zstdLevelDefault = 3
)

// Compressors by what they make of a level: each keeps its tables for the next
// batch.
var (
	gzipWriters [gzip.BestCompression + 2]sync.Pool
	lz4Writers  [lz4LevelDefault + 1]sync.Pool
	zstdWriters [zstd.SpeedBestCompression + 1]sync.Pool
)

// DefaultLevel is the level of a codec where nothing says another: -1 for gzip,
// which else has 1 to 9; 9 for lz4, of 1 to 17; 3 for zstd, of up to 22; 0 for
// the codecs that have none. Levels out of range count as the nearest.
func (c Codec) DefaultLevel() int {
	switch c {
	case Gzip:
		return gzipLevelDefault
	case LZ4:
		return lz4LevelDefault
	case Zstd:
		return zstdLevelDefault
	}
	return 0
}

func gzipSlot(level int) int {
	return min(max(level, gzip.DefaultCompression), gzip.BestCompression) - gzip.DefaultCompression
}

func newGzipWriter(level int) *gzip.Writer {
	w, err := gzip.NewWriterLevel(nil, gzipSlot(level)+gzip.DefaultCompression)
	if err != nil {
		panic(err)
	}
	return w
}

// lz4Slot is 0 for the fast compressor, which Kafka takes at the default level,
// and else a level of the thorough one. That has nine here: those above the
// default are its highest.
func lz4Slot(level int) int {
	switch {
	case level == lz4LevelDefault:
		return 0
	case level > lz4LevelDefault:
		return len(lz4Writers) - 1
	}
	return max(level, 1)
}

var lz4Levels = [...]lz4.CompressionLevel{
	lz4.Fast, lz4.Level1, lz4.Level2, lz4.Level3, lz4.Level4, lz4.Level5, lz4.Level6, lz4.Level7, lz4.Level8, lz4.Level9,
}

func newLZ4Writer(level int) *lz4.Writer {
	w := lz4.NewWriter(nil)
	// What Kafka's clients write: independent blocks of 64 KiB and no checksum
	// of the whole, the batch having its own.
	err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1),
		lz4.CompressionLevelOption(lz4Levels[lz4Slot(level)]))
	if err != nil {
		panic(err)
	}
	return w
}

func newZstdWriter(level zstd.EncoderLevel) *zstd.Encoder {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level))
	if err != nil {
		panic(err)
	}
	return w
}
