package serve

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/cleaner"
	"strandline/broker/replicas"
	"strandline/metadata/config"
)

func TestWhatIsSaidOfCompaction(t *testing.T) {
	settings := config.Topic{MinCleanableDirtyRatio: 0.5}
	dirty := cleaner.Dirt{DirtyBytes: 30, CleanBytes: 70, Ratio: 0.3}
	due := cleaner.Dirt{DirtyBytes: 60, CleanBytes: 40, Ratio: 0.6, Due: cleaner.DueDirty}
	for want, o := range map[string]replicas.CompactionOutlook{
		"30% of 100 sealed bytes are dirty; due above 50% (min.cleanable.dirty.ratio)":  {Threads: 1, Seen: true, Dirt: dirty},
		"60% of 100 sealed bytes are dirty; due: min.cleanable.dirty.ratio is exceeded": {Threads: 1, Seen: true, Dirt: due},
		"no segment is sealed yet": {Threads: 1, Seen: true},
		"not looked at yet":        {Threads: 1},
		"under way":                {Threads: 1, Seen: true, Dirt: due, Running: true},
		"off: log.cleaner.enable or log.cleaner.threads says so":                             {Seen: true, Dirt: due},
		"stopped until the topic's configuration changes or the broker starts again: damage": {Threads: 1, Failed: errors.New("damage")},
	} {
		require.Equal(t, want, compaction(&o, settings))
	}
}
