package consumer

import (
	"encoding/hex"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/group"
	"strandline/metadata/cluster"
)

// goldenLines are the lines of what Apache Kafka's own classes say (see
// integration/groupformat) that begin with a word.
func goldenLines(t testing.TB, word string) []string {
	b, err := os.ReadFile("testdata/kafka.golden")
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), word+" "); ok {
			lines = append(lines, rest)
		}
	}
	require.NotEmpty(t, lines)
	return lines
}

func ptr(s string) *string { return &s }

// samples are the records of the golden file.
func samples() map[string]struct {
	kind kind
	name string
	v    value
} {
	type sample = struct {
		kind kind
		name string
		v    value
	}
	at := time.UnixMilli(1_700_000_000_123)
	a, b := idOf("a", 0), idOf("b", 0)
	return map[string]sample{
		"group":           {kindGroup, "", groupValue{epoch: 7, hash: 1<<64 - 2}},
		"group-no-hash":   {kindGroup, "", groupValue{epoch: 1}},
		"group-gone":      {kindGroup, "", nil},
		"partitions-gone": {kindPartitions, "", nil},
		"member": {kindMember, "m", memberValue{
			clientID: "c", clientHost: "/10.0.0.1", topics: []string{"a", "b"}, regex: ptr(""), rebalanceTimeout: 1234 * time.Millisecond,
		}},
		"member-all": {kindMember, "m2", memberValue{
			instance: ptr("i"), rack: ptr("r"), clientID: "c", clientHost: "h", regex: ptr("a.*"), rebalanceTimeout: noTimeout, assignor: ptr("range"),
			classic: &classicMember{sessionTimeout: 45 * time.Second, protocols: []group.Protocol{
				{Name: "range", Metadata: []byte{0, 1, 2}}, {Name: "sticky", Metadata: []byte{}},
			}},
		}},
		"member-gone":       {kindMember, "m", nil},
		"target":            {kindTarget, "", targetValue{epoch: 9, at: at}},
		"target-no-time":    {kindTarget, "", targetValue{epoch: 9}},
		"target-gone":       {kindTarget, "", nil},
		"target-of":         {kindTargetMember, "m", targetMemberValue{assignment{a: {0, 1, 200}, b: {3}}}},
		"target-of-nothing": {kindTargetMember, "m", targetMemberValue{assignment{}}},
		"target-of-gone":    {kindTargetMember, "m", nil},
		"current": {kindCurrent, "m", currentValue{
			epoch: 9, previous: 8, state: unrevoked, assigned: holding{a: {0: 5, 1: 6}}, revoking: holding{a: {4: 7}, b: {0: 3}},
		}},
		"current-gone": {kindCurrent, "m", nil},
		"current-old":  {kindCurrent, "m", currentValue{epoch: 4, previous: 3, assigned: holding{a: {1: 4, 2: 4}}, revoking: holding{}}},
		"regex":        {kindRegex, "a.*", regexValue{topics: []string{"aa", "ab"}, version: 77, at: at}},
		"regex-gone":   {kindRegex, "a.*", nil},
	}
}

func TestRecordsAreApacheKafkas(t *testing.T) {
	all := samples()
	lines := goldenLines(t, "record")
	require.Len(t, lines, len(all))
	for _, line := range lines {
		words := strings.Fields(line)
		s, ok := all[words[0]]
		require.True(t, ok, line)
		t.Run(words[0], func(t *testing.T) {
			key, err := hex.DecodeString(words[1])
			require.NoError(t, err)
			require.Equal(t, key, group.RecordKey{Type: s.kind, Group: "gruppe-ä", Member: s.name}.Append(nil))
			if s.v == nil {
				require.Equal(t, "-", words[2])
				return
			}
			v, err := decodeValue(s.kind, unhex(t, words[2]))
			require.NoError(t, err)
			require.Equal(t, s.v, v)
			if words[0] != "current-old" {
				require.Equal(t, words[2], hex.EncodeToString(s.v.encode()))
			}
		})
	}
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func TestHashesAreApacheKafkas(t *testing.T) {
	w := newWorld()
	for _, topic := range []Topic{
		{Name: "a", ID: idOf("a", 0), Partitions: 1},
		{Name: "thema-ä-😀", ID: idOf("ids", 0), Partitions: 3},
		{Name: "racks", ID: idOf("racks", 0), Partitions: 2, Racks: [][]string{{"z", "a"}, {"räck"}}},
		{Name: strings.Repeat("x", 200), ID: idOf("long", 0), Partitions: 50},
	} {
		w.byName[topic.Name] = topic
	}
	for _, line := range goldenLines(t, "hash") {
		words := strings.Fields(line)
		want, err := strconv.ParseUint(words[1], 16, 64)
		require.NoError(t, err)
		if words[0] == "*" {
			require.Equal(t, want, hashTopics(w, slices.Values(append(sortedKeys(w.byName), "unknown"))))
		} else {
			require.Equal(t, want, hashTopic(w.byName[words[0]]), words[0])
		}
	}
	require.Zero(t, hashTopics(w, slices.Values([]string{"unknown"})))
}

// goldenParty reads a line of an assignor: topics, members, and the answer.
func goldenParty(t testing.TB, line string) (party, []assignment) {
	parts := strings.Split(line, "|")
	require.Len(t, parts, 3)
	p := party{partitions: map[cluster.TopicID]int32{}}
	for word := range strings.FieldsSeq(parts[0]) {
		name, count, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(count)
		require.NoError(t, err)
		p.partitions[idOf(name, 0)] = int32(n)
	}
	for word := range strings.FieldsSeq(parts[1]) {
		f := strings.Split(word, "/")
		require.Len(t, f, 4)
		s := subscriber{id: f[0], instance: f[1], current: goldenAssignment(t, f[3])}
		for name := range strings.SplitSeq(f[2], "+") {
			if name != "" {
				s.topics = append(s.topics, idOf(name, 0))
			}
		}
		p.subscribers = append(p.subscribers, s)
	}
	var answer []assignment
	for i, word := range strings.Fields(parts[2]) {
		id, target, _ := strings.Cut(word, "/")
		require.Equal(t, p.subscribers[i].id, id)
		answer = append(answer, goldenAssignment(t, target))
	}
	return p, answer
}

func goldenAssignment(t testing.TB, text string) assignment {
	a := assignment{}
	for word := range strings.SplitSeq(text, "+") {
		name, numbers, ok := strings.Cut(word, ":")
		if !ok {
			continue
		}
		for number := range strings.SplitSeq(numbers, ".") {
			n, err := strconv.Atoi(number)
			require.NoError(t, err)
			a[idOf(name, 0)] = append(a[idOf(name, 0)], int32(n))
		}
	}
	return a
}

func TestRangeIsApacheKafkas(t *testing.T) {
	for _, line := range goldenLines(t, "range") {
		p, want := goldenParty(t, line)
		require.Equal(t, want, assign(Range, p.subscribers, p.partitions), line)
	}
}

// The uniform assignor may decide otherwise than Apache Kafka's, which goes by
// the order of a hash table, but loads are spread at least as evenly each time,
// and over all no more partitions move.
func TestUniformIsNoWorseThanApacheKafkas(t *testing.T) {
	spread := func(targets []assignment) int {
		squares := 0
		for _, target := range targets {
			squares += target.count() * target.count()
		}
		return squares
	}
	kept, theirKept := 0, 0
	for _, line := range goldenLines(t, "uniform") {
		p, theirs := goldenParty(t, line)
		p.check(t, theirs)
		ours := p.uniformly()
		p.check(t, ours)
		require.LessOrEqual(t, spread(ours), spread(theirs), line)
		kept += p.kept(ours)
		theirKept += p.kept(theirs)
	}
	t.Logf("%d partitions stay, with Apache Kafka %d", kept, theirKept)
	require.GreaterOrEqual(t, kept, theirKept)
}
