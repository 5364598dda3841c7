package catalog

import (
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

var (
	sampleSegment = Segment{
		SegmentSpan: request.SegmentSpan{ID: cluster.SegmentID{1, 2, 3}, Base: 100, End: 250, LeaderEpoch: 7, Location: "loc", Key: "p/loc/x/t/0/100.seg"},
		StartEpoch:  7, State: Live, DeadlineMs: 1_700_000_600_000, ChangedMs: 1_700_000_000_000, PrefixMaxTimestamp: 1_700_000_000_001,
		Object: request.ObjectSummary{
			ObjectBytes: 16 << 20, SegmentBytes: 16<<20 - 5000, IndexPosition: 16<<20 - 5000, IndexBytes: 4900, FooterBytes: 100,
			MinTimestamp: -1, MaxTimestamp: 1_700_000_000_001, RecordCount: 150, FirstEpoch: 6, LastEpoch: 7, FormatVersion: 1, CRC32C: 0xdeadbeef,
		},
	}
	sampleSummary = Summary{
		LogStart: 5, RemoteEnd: 250, Location: "loc", LiveCount: 2, LiveBytes: 3, LiveSegmentBytes: 4, StartedCount: 1,
		DeadCount: 6, DeadBytes: 7, MaxTimestamp: 8, LastEpoch: 9,
	}
	sampleDeleted = DeletedTopic{Topic: cluster.TopicID{4}, Name: "t", Partitions: 3, DeletedMs: 12}
)

// TestGolden reads what version 1 wrote, and writes the same.
func TestGolden(t *testing.T) {
	written := map[string][]byte{
		"segment": AppendSegment(nil, sampleSegment),
		"summary": AppendSummary(nil, sampleSummary),
		"deleted": AppendDeletedTopic(nil, sampleDeleted),
	}
	if os.Getenv("REWRITE_GOLDEN") != "" {
		for name, b := range written {
			require.NoError(t, os.WriteFile("testdata/"+name+".v1.hex", []byte(hex.EncodeToString(b)+"\n"), 0o644))
		}
	}
	for name, b := range written {
		golden := goldenBytes(t, name)
		require.Equal(t, golden, b, name)
	}
	s, err := DecodeSegment(goldenBytes(t, "segment"))
	require.NoError(t, err)
	require.Equal(t, sampleSegment, s)
	sum, err := DecodeSummary(goldenBytes(t, "summary"))
	require.NoError(t, err)
	require.Equal(t, sampleSummary, sum)
	d, err := DecodeDeletedTopic(sampleDeleted.Topic, goldenBytes(t, "deleted"))
	require.NoError(t, err)
	require.Equal(t, sampleDeleted, d)
}

func goldenBytes(t *testing.T, name string) []byte {
	text, err := os.ReadFile("testdata/" + name + ".v1.hex")
	require.NoError(t, err)
	b, err := hex.DecodeString(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	return b
}

func TestCutShort(t *testing.T) {
	b := AppendSegment(nil, sampleSegment)
	for n := range b {
		_, err := DecodeSegment(b[:n])
		var ce *CorruptError
		require.True(t, errors.As(err, &ce), "%d bytes", n)
	}
	_, err := DecodeSegment(append(b, 0))
	require.ErrorContains(t, err, "bytes after the end")
	b[0] = 2
	_, err = DecodeSegment(b)
	require.ErrorContains(t, err, "version 2 is not known here")
}

func TestUnknownStates(t *testing.T) {
	for state, ok := range map[State]bool{0: false, Started: true, Live: true, Replaced: true, Expired: true, Gone: false, 200: false} {
		s := sampleSegment
		s.State = state
		_, err := DecodeSegment(AppendSegment(nil, s))
		if ok {
			require.NoError(t, err, state)
		} else {
			require.ErrorContains(t, err, "unknown state", state)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(AppendSegment(nil, sampleSegment))
	f.Add(AppendSummary(nil, sampleSummary))
	f.Add(AppendDeletedTopic(nil, sampleDeleted))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := DecodeSegment(b); err == nil {
			require.Equal(t, b, AppendSegment(nil, s))
		}
		if s, err := DecodeSummary(b); err == nil {
			require.Equal(t, b, AppendSummary(nil, s))
		}
		if d, err := DecodeDeletedTopic(cluster.TopicID{}, b); err == nil {
			require.Equal(t, b, AppendDeletedTopic(nil, d))
		}
	})
}
