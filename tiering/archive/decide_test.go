package archive

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/locallog"
	"strandline/metadata/config"
)

func TestCopyLag(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	segment := locallog.SegmentInfo{Base: 0, Next: 10, Bytes: 100, Sealed: true, MaxTimestamp: now.Add(-time.Minute).UnixMilli(), Modified: now.Add(-30 * time.Second)}
	lagging := func(lag time.Duration, bytes int64) config.Topic {
		return config.Topic{
			Tiered: true, RetentionTime: config.Forever, RetentionBytes: config.Unlimited,
			LocalRetentionTime: config.Forever, LocalRetentionBytes: config.Unlimited, TierCopyLag: lag, TierCopyLagBytes: bytes,
		}
	}
	local := lagging(config.Forever, -1)
	local.LocalRetentionTime = 50 * time.Second
	localBytes := lagging(config.Forever, -1)
	localBytes.LocalRetentionBytes = 200
	disabled := lagging(0, -1)
	disabled.TierCopyDisabled = true
	for name, c := range map[string]struct {
		settings config.Topic
		tail     int64
		want     action
	}{
		"none":                              {lagging(0, -1), 0, upload},
		"by time, passed":                   {lagging(50*time.Second, -1), 0, upload},
		"by time, not yet":                  {lagging(70*time.Second, -1), 1000, nothing},
		"by bytes, passed":                  {lagging(config.Forever, 200), 200, upload},
		"by bytes, not yet":                 {lagging(config.Forever, 200), 199, nothing},
		"bytes come first":                  {lagging(time.Hour, 200), 200, upload},
		"time comes first":                  {lagging(time.Minute, 1<<40), 0, upload},
		"neither counts":                    {lagging(config.Forever, -1), 1 << 40, nothing},
		"local retention by time, anyway":   {local, 0, upload},
		"local retention by bytes, anyway":  {localBytes, 200, upload},
		"local retention by bytes, not yet": {localBytes, 199, nothing},
		"disabled":                          {disabled, 0, nothing},
	} {
		got, err := decide(situation{now: now, settings: c.settings, offered: []locallog.SegmentInfo{segment}, tailBytes: c.tail})
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}
