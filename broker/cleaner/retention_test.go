package cleaner

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
)

// Each script line of a "pass" is a segment: base next bytes age [written=age]
// [active]; ages are durations before now, negative ones lie in the future.
func TestRetentionRules(t *testing.T) {
	datadriven.Walk(t, "testdata/retention", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			state := State{Now: time.UnixMilli(1_000_000_000_000), Leading: true}
			limits := Limits{Delete: true, Age: -1, Bytes: -1, LocalAge: -1, LocalBytes: -1}
			scanArgs(t, d, &state, &limits)
			for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
				state.Segments = append(state.Segments, parseSegment(t, state.Now, line))
			}
			if !d.HasArg("hw") {
				state.HighWatermark = state.Segments[len(state.Segments)-1].Next
			}
			plan := Pass(state, limits)
			again := Pass(apply(state, plan), limits)
			require.Empty(t, again.Removals, "a second pass with the same clock must remove nothing")
			return describe(plan)
		})
	})
}

func scanArgs(t *testing.T, d *datadriven.TestData, state *State, limits *Limits) {
	for _, arg := range d.CmdArgs {
		value := ""
		if len(arg.Vals) > 0 {
			value = arg.Vals[0]
		}
		offset := func() cluster.Offset { var o cluster.Offset; _, _ = fmt.Sscan(value, &o); return o }
		bytes := func() int64 { var b int64; _, _ = fmt.Sscan(value, &b); return b }
		age := func() time.Duration { a, err := time.ParseDuration(value); require.NoError(t, err); return a }
		switch arg.Key {
		case "start":
			state.LogStart = offset()
		case "hw":
			state.HighWatermark = offset()
		case "remote-end":
			state.Tiered, state.RemoteEnd = true, offset()
		case "follower":
			state.Leading = false
		case "pressure":
			state.DiskPressure = true
		case "compact":
			limits.Delete = false
		case "age":
			limits.Age = age()
		case "bytes":
			limits.Bytes = bytes()
		case "local-age":
			limits.LocalAge = age()
		case "local-bytes":
			limits.LocalBytes = bytes()
		default:
			t.Fatalf("unknown argument %q", arg.Key)
		}
	}
}

func parseSegment(t *testing.T, now time.Time, line string) Segment {
	fields := strings.Fields(line)
	require.GreaterOrEqual(t, len(fields), 4, line)
	segment := Segment{Sealed: true}
	_, err := fmt.Sscan(strings.Join(fields[:3], " "), &segment.Base, &segment.Next, &segment.Bytes)
	require.NoError(t, err)
	segment.MaxTimestamp = -1
	if fields[3] != "none" {
		age, err := time.ParseDuration(fields[3])
		require.NoError(t, err)
		segment.MaxTimestamp = now.Add(-age).UnixMilli()
	}
	for _, field := range fields[4:] {
		if field == "active" {
			segment.Sealed = false
			continue
		}
		age, err := time.ParseDuration(strings.TrimPrefix(field, "written="))
		require.NoError(t, err)
		segment.Written = now.Add(-age)
	}
	return segment
}

func apply(s State, p Plan) State {
	s.LogStart = p.LogStart
	var left []Segment
	for _, segment := range s.Segments {
		if p.Roll {
			segment.Sealed = true
		}
		if segment.Next > p.TrimBelow || p.TrimBelow == cluster.NoOffset {
			left = append(left, segment)
		}
	}
	s.Segments = left
	return s
}

func describe(p Plan) string {
	var b strings.Builder
	for _, r := range p.Removals {
		fmt.Fprintf(&b, "%d-%d: %s\n", r.Segment.Base, r.Segment.Next, r.Reason)
	}
	fmt.Fprintf(&b, "log start %d", p.LogStart)
	if p.Roll {
		b.WriteString(", roll")
	}
	if p.FutureStamped > 0 {
		fmt.Fprintf(&b, ", %d stamped in the future", p.FutureStamped)
	}
	return b.String() + "\n"
}

// TestPassNeverBreaksBounds draws random states: nothing goes that a rule does
// not allow (I4), what goes is a prefix, and a second pass removes nothing.
func TestPassNeverBreaksBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		s, limits := randomState(rng)
		plan := Pass(s, limits)
		require.GreaterOrEqual(t, plan.LogStart, s.LogStart)
		for i, r := range plan.Removals {
			require.Equal(t, s.Segments[i].Base, r.Segment.Base)
			below := r.Segment.Next <= plan.LogStart
			require.True(t, below || s.Tiered && r.Segment.Next <= s.RemoteEnd, "%+v %+v", s, r)
		}
		if plan.LogStart > s.LogStart {
			require.LessOrEqual(t, plan.LogStart, s.HighWatermark)
			require.True(t, !s.Tiered || s.LogStart >= s.RemoteEnd)
		}
		require.Empty(t, Pass(apply(s, plan), limits).Removals)
	}
}

func randomState(rng *rand.Rand) (State, Limits) {
	limit := func() int64 { return rng.Int64N(120) - 20 }
	limits := Limits{
		Delete: rng.IntN(4) > 0, Age: time.Duration(limit()) * time.Second, Bytes: limit(),
		LocalAge: time.Duration(limit()) * time.Second, LocalBytes: limit(),
	}
	s := State{Now: time.UnixMilli(1_000_000_000_000), Leading: rng.IntN(5) > 0, Tiered: rng.IntN(2) == 0, DiskPressure: rng.IntN(8) == 0}
	base := cluster.Offset(rng.IntN(50))
	for i := range rng.IntN(6) + 1 {
		_ = i
		next := base + cluster.Offset(rng.IntN(10)+1)
		age := time.Duration(rng.IntN(140)-40) * time.Second
		s.Segments = append(s.Segments, Segment{Base: base, Next: next, Bytes: rng.Int64N(30), Sealed: true, MaxTimestamp: s.Now.Add(-age).UnixMilli()})
		base = next
	}
	s.Segments[len(s.Segments)-1].Sealed = false
	s.HighWatermark = base - cluster.Offset(rng.IntN(5))
	s.LogStart = min(cluster.Offset(rng.IntN(100)), s.HighWatermark)
	s.RemoteEnd = min(cluster.Offset(rng.IntN(100)), s.HighWatermark)
	return s, limits
}
