package config

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCleanerKeys(t *testing.T) {
	b, _, err := ParseBroker(m("log.cleaner.threads", "2", "log.cleaner.enable", "false"))
	require.NoError(t, err)
	require.Equal(t, Cleaner{Threads: 2, Backoff: 15 * time.Second, DedupeBytes: 128 << 20, BufferBytes: 512 << 10, BytesPerSecond: math.MaxFloat64}, b.Cleaner)
	c := EffectiveCleaner(Layers{
		Static: b.Static, Cluster: m("log.cleaner.threads", "3", "log.cleaner.backoff.ms", "7", "log.cleaner.enable", "true"),
		Broker: m("log.cleaner.io.max.bytes.per.second", "1000.5", "log.cleaner.backoff.ms", "rubbish"),
	})
	require.Equal(t, Cleaner{Threads: 3, Backoff: 7 * time.Millisecond, DedupeBytes: 128 << 20, BufferBytes: 512 << 10, BytesPerSecond: 1000.5}, c,
		"what cannot change while the broker runs does not")
	require.NoError(t, ValidateDynamicBroker(m("log.cleaner.threads", "3"), []string{"log.cleaner.threads"}, true))
	require.Error(t, ValidateDynamicBroker(m("log.cleaner.enable", "true"), []string{"log.cleaner.enable"}, true))
	require.Error(t, ValidateDynamicBroker(m("log.cleaner.dedupe.buffer.size", "1000"), []string{"log.cleaner.dedupe.buffer.size"}, true))
}
