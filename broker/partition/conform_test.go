package partition

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// idempotentBatch has one record with this value.
func idempotentBatch(codec recordbatch.Codec, sequence int32, value []byte) recordbatch.Batch {
	b := recordbatch.NewBuilder(recordbatch.Options{Codec: codec, Producer: &recordbatch.Producer{ID: 7, Epoch: 0, BaseSequence: sequence}})
	b.Add(startTime.UnixMilli(), []byte("k"), value)
	return b.Build()
}

// A duplicate is known by its sequence, whatever codec it is stored with, and is
// not written again.
func TestDuplicatesAreFoundThoughTheyAreRecompressed(t *testing.T) {
	settings := testSettings()
	settings.CompressionType, settings.ZstdLevel = "zstd", 3
	f := leadAlone(t, settings)
	for i, codec := range []recordbatch.Codec{recordbatch.None, recordbatch.Gzip, recordbatch.Zstd} {
		first := f.append(idempotentBatch(codec, int32(i), bytes.Repeat([]byte{'v'}, 1000)))
		require.False(t, first.Duplicate)
		require.Equal(t, cluster.Offset(i), first.BaseOffset)
		require.Equal(t, codec != recordbatch.Zstd, first.Recompressed == 1)
		again := f.append(idempotentBatch(codec, int32(i), bytes.Repeat([]byte{'v'}, 1000)))
		require.True(t, again.Duplicate)
		require.Equal(t, first.BaseOffset, again.BaseOffset)
		require.Equal(t, first.LastOffset, again.LastOffset)
	}
	result, err := f.read(consumer(0))
	require.NoError(t, err)
	stored := batchesOf(t, bytesOf(t, &result))
	require.Len(t, stored, 3)
	for i, b := range stored {
		require.Equal(t, recordbatch.Zstd, b.Compression())
		require.Equal(t, cluster.ProducerID(7), b.ProducerID())
		require.Equal(t, int32(i), b.BaseSequence())
		require.NoError(t, b.Verify())
	}
}

// max.message.bytes bounds a batch as it came and as it will be stored.
func TestMaxMessageBytesWithRecompression(t *testing.T) {
	settings := testSettings()
	settings.MaxMessageBytes = 2000
	smooth, noise := bytes.Repeat([]byte{'v'}, 10_000), make([]byte, 1950)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for _, test := range []struct {
		name, topic string
		produced    recordbatch.Codec
		value       []byte
		fits        bool
	}{
		{"small as it came, the producer's codec", "producer", recordbatch.Gzip, smooth, true},
		{"small as it came, large as it would be stored", "uncompressed", recordbatch.Gzip, smooth, false},
		{"large as it came, small as it would be stored", "gzip", recordbatch.None, smooth, false},
		{"small with both codecs", "gzip", recordbatch.Snappy, smooth, true},
		{"cannot be compressed, small", "zstd", recordbatch.None, noise[:1800], true},
	} {
		settings.CompressionType, settings.GzipLevel, settings.ZstdLevel = test.topic, -1, 3
		f := leadAlone(t, settings)
		result, err := f.try(idempotentBatch(test.produced, 0, test.value), -1)
		if !test.fits {
			require.ErrorIs(t, err, ErrMessageTooLarge, test.name)
			require.Zero(t, f.p.log.EndOffset(), test.name)
			// Nothing was remembered of the producer.
			result, err = f.try(idempotentBatch(test.produced, 0, []byte("v")), -1)
		}
		require.NoError(t, err, test.name)
		require.False(t, result.Duplicate, test.name)
	}
}
