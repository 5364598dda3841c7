package cleaner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"strandline/broker/keyindex"
	"strandline/metadata/cluster"
)

// TestCompactionRules runs the transcripts of testdata/compaction. A command is
//
//	plan [decided=O] [indexed=O] [ratio=R] [min-lag=D] [max-lag=D] [segment=B]
//
// with a segment a line:
//
//	base next bytes [age=D] [first=D] [active] [unknown]
//	    [records=N] [dead=N] [tombstones=N] [markers=N] [emptied=N] [unstamped=N]
//	    [horizon=D] [filtered=D] [through=O] [txn]
//
// age and first are how old the newest and the oldest timestamp are, filtered how
// long ago the segment was filtered, horizon how long ago (negative: ahead) the
// earliest delete horizon is. Every record has 100 bytes. The answer is what is
// dirty, then the rewrites of a pass up to the bound.
func TestCompactionRules(t *testing.T) {
	datadriven.Walk(t, "testdata/compaction", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			require.Equal(t, "plan", d.Cmd)
			s := CompactionState{Now: time.UnixMilli(1_700_000_000_000), Indexed: cluster.NoOffset, Decided: 1 << 40}
			l := CompactionLimits{DirtyRatio: 0.5, MaxLag: forever, SegmentBytes: 10_000}
			ratio, minLag, maxLag := "", "", ""
			for key, to := range map[string]any{
				"decided": &s.Decided, "indexed": &s.Indexed, "ratio": &ratio, "min-lag": &minLag, "max-lag": &maxLag, "segment": &l.SegmentBytes,
			} {
				if d.HasArg(key) {
					var text string
					d.ScanArgs(t, key, &text)
					_, err := fmt.Sscan(text, to)
					require.NoError(t, err)
				}
			}
			if ratio != "" {
				_, err := fmt.Sscan(ratio, &l.DirtyRatio)
				require.NoError(t, err)
			}
			l.MinLag, l.MaxLag = duration(t, minLag, 0), duration(t, maxLag, forever)
			for _, text := range strings.Split(strings.TrimSpace(d.Input), "\n") {
				s.Segments = append(s.Segments, compactionSegment(t, s, text))
			}
			return describeCompaction(s, l)
		})
	})
}

func duration(t *testing.T, text string, none time.Duration) time.Duration {
	t.Helper()
	if text == "" {
		return none
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

func compactionSegment(t *testing.T, s CompactionState, text string) CompactionSegment {
	t.Helper()
	c := CompactionSegment{Sealed: true, Known: true, MaxTimestamp: s.Now.UnixMilli(), FirstTimestamp: s.Now.UnixMilli()}
	_, err := fmt.Sscan(text, &c.Base, &c.Next, &c.Bytes)
	require.NoError(t, err, "%s", text)
	k := &c.Counts
	*k = keyindex.Segment{Base: c.Base, Next: c.Next, Bytes: c.Bytes, Records: c.Bytes / 100}
	ago := func(value string) int64 { return s.Now.Add(-duration(t, value, 0)).UnixMilli() }
	for _, field := range strings.Fields(text)[3:] {
		key, value, _ := strings.Cut(field, "=")
		var n int64
		_, _ = fmt.Sscan(value, &n)
		switch key {
		case "active":
			c.Sealed = false
		case "unknown":
			c.Known = false
		case "age":
			c.MaxTimestamp = ago(value)
		case "first":
			c.FirstTimestamp = ago(value)
		case "records":
			k.Records = n
		case "dead":
			k.DeadRecords, k.DeadBytes = n, 100*n
		case "tombstones":
			k.Tombstones = n
		case "markers":
			k.Markers = n
		case "emptied":
			k.Emptied = n
		case "unstamped":
			k.Unstamped = n
		case "horizon":
			k.Horizon = ago(value)
		case "filtered":
			k.FilteredAt = ago(value)
		case "through":
			k.CleanedThrough = cluster.Offset(n)
		case "txn":
			k.Transactions = true
		default:
			t.Fatalf("no field %s", key)
		}
	}
	k.RecordBytes = 100 * k.Records
	return c
}

func describeCompaction(s CompactionState, l CompactionLimits) string {
	d := Dirtiness(s, l)
	var b strings.Builder
	due := string(d.Due)
	if due == "" {
		due = "nothing is due, but a pass would"
	}
	fmt.Fprintf(&b, "bound %d, dirty %d, clean %d of which dead %d, ratio %.2f: %s\n", d.Bound, d.DirtyBytes, d.CleanBytes, d.DeadBytes, d.Ratio, due)
	// The counts of a line are those that the index has once it has come to the bound.
	s.Indexed = max(s.Indexed, d.Bound)
	for _, r := range Runs(s, l, d.Bound) {
		fmt.Fprintf(&b, "rewrite [%d, %d), about %d bytes; tombstones below %d may go\n", r.First, r.Next, r.LiveBytes, r.TombstonesBelow)
	}
	return b.String()
}
