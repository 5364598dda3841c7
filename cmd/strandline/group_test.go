package main

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestAges(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "36h": 36 * time.Hour, "7d": 168 * time.Hour, "0s": 0, "0d": 0, "1h30m": 90 * time.Minute,
		"PT1H": time.Hour, "P7D": 168 * time.Hour, "P1DT12H": 36 * time.Hour, "pt90m": 90 * time.Minute, "PT1H2M3S": time.Hour + 2*time.Minute + 3*time.Second,
	} {
		got, err := parseAge(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "7", "-1h", "-1d", "d", "P", "PT", "P1DT", "P1H", "P1Y", "PT-1H", "yesterday", "200000d", "P200000D", "PT99999999999999999999H", "P106751DT99H"} {
		_, err := parseAge(in)
		require.Error(t, err, in)
		require.Contains(t, err.Error(), "--by-duration "+in+":")
	}
}

func TestPlansFromFiles(t *testing.T) {
	for in, want := range map[string]resetPlan{
		"":                                 {},
		"a,0,5\n\n a,1,6 \nb,0,7\n":        {"a": {0: 5, 1: 6}, "b": {0: 7}},
		"g,a,0,5\nother,a,0,9\n":           {"a": {0: 5}},
		"\"g\",a,0,5\r\n\"h,i\",a,1,6\r\n": {"a": {0: 5}},
		`{"group":"g","topic":"a","partition":3,"oldOffset":null,"newOffset":8,"executed":false}`: {"a": {3: 8}},
		`{"topic":"a","partition":3,"newOffset":0}`:                                               {"a": {3: 0}},
	} {
		got, _, err := readPlan(strings.NewReader(in), "g")
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for in, words := range map[string]string{
		"a,0,5\na,0,6":                  "line 2: topic a partition 0 is there twice",
		"a,0":                           "line 1: want TOPIC,PARTITION,OFFSET",
		"a,b,c,d,e":                     "want TOPIC,PARTITION,OFFSET",
		"a,x,5":                         "want a partition and an offset",
		"a,0,9223372036854775808":       "want a partition and an offset",
		"a,-1,5":                        "0 or more",
		"a,0,-5":                        "0 or more",
		",0,5":                          "want a topic",
		`{"topic":"a","newOffset":5}`:   "partition of 0 or more",
		`{"topic":"a","partition":0}`:   "offset of 0 or more",
		`{"topic":`:                     "not a JSON object",
		`"a`:                            "line 1",
		"a,0,5\ntopic,partition,offset": "line 2",
	} {
		_, _, err := readPlan(strings.NewReader(in), "g")
		require.ErrorContains(t, err, words, in)
	}
}

func TestTopicsWithPartitions(t *testing.T) {
	set, err := topicPartitions([]string{"a:0,2", "b", "a: 1", "b", "c:7"})
	require.NoError(t, err)
	var want kadm.TopicsSet
	want.Add("a", 0, 1, 2)
	want.Add("b")
	want.Add("c", 7)
	require.Equal(t, want, set)
	for _, values := range [][]string{{""}, {":0"}, {"a:"}, {"a:x"}, {"a:-1"}, {"a:0,,1"}, {"a:2147483648"}, {"a", "a:0"}, {"a:0", "a"}} {
		_, err := topicPartitions(values)
		require.ErrorContains(t, err, "--topic", "%v", values)
	}
}

func TestOffsetsStayInTheLog(t *testing.T) {
	b := partitionBounds{start: 10, end: 20}
	for in, want := range map[int64]int64{math.MinInt64: 10, 9: 10, 10: 10, 15: 15, 20: 20, 21: 20, math.MaxInt64: 20} {
		got, note, err := b.clamp(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, got == in, note == "", "a note says when it is not what was asked for")
	}
	require.Equal(t, int64(math.MaxInt64), addOffset(5, math.MaxInt64))
	require.Equal(t, int64(5-math.MaxInt64), addOffset(5, -math.MaxInt64))
	require.Equal(t, int64(math.MinInt64+5), addOffset(5, math.MinInt64))
}

func TestErrorsOfGroups(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.GroupIDNotFound, kerr.NonEmptyGroup, kerr.InvalidGroupID, kerr.GroupAuthorizationFailed, kerr.UnknownMemberID} {
		text := explain(groupError("billing", err, ""))
		require.True(t, strings.HasPrefix(text, err.Message+": "), text)
		require.Contains(t, text, "billing")
		require.NotContains(t, text, "%!")
		require.ErrorIs(t, groupError("billing", err, ""), err)
	}
	for k := range remedies {
		require.NotContains(t, groupError("g", k, "").Error(), "%!")
	}
	require.Equal(t, "INVALID_REQUEST: group g: it is no good", explain(groupError("g", kerr.InvalidRequest, "it is no good")))
	require.NoError(t, groupError("g", nil, ""))

	var f failures
	require.NoError(t, f.err())
	f.add("a", 0, kerr.UnknownTopicOrPartition)
	f.add("b", 0, kerr.UnknownTopicOrPartition)
	f.add("a", 2, kerr.UnknownTopicOrPartition)
	f.add("a", 3, errors.New("else"))
	require.Equal(t, []string{
		"topic a partition 0, 2: " + kerr.UnknownTopicOrPartition.Error(), "topic b partition 0: " + kerr.UnknownTopicOrPartition.Error(), "topic a partition 3: else",
	}, strings.Split(f.err().Error(), "\n"))
}

// A partition has a row if something is committed of it or a member reads it.
func TestLagOfAGroup(t *testing.T) {
	offsets := kadm.OffsetResponses{}
	for p, at := range map[int32]int64{0: 5, 1: -1, 2: 12} {
		offsets.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: "a", Partition: p, At: at, LeaderEpoch: -1, Metadata: "m"}})
	}
	offsets.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: "gone", Partition: 0, At: 3, LeaderEpoch: 4}})
	ends := kadm.ListedOffsets{"a": {}, "gone": {0: {Topic: "gone", Err: kerr.UnknownTopicOrPartition}}}
	for p := range int32(4) {
		ends["a"][p] = kadm.ListedOffset{Topic: "a", Partition: p, Offset: 10}
	}
	d := describedGroup{Members: []groupMember{{MemberID: "m-1", ClientID: "c", Host: "/h", Assignment: []topicAssignment{{"a", []int32{0, 3}}}}}}
	d.addOffsets(offsets, ends)
	rows, err := json.Marshal(d.Offsets)
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"topic":"a","partition":0,"committedOffset":5,"leaderEpoch":null,"metadata":"m","logEndOffset":10,"lag":5,"memberId":"m-1","instanceId":null,"clientId":"c","host":"/h"},
		{"topic":"a","partition":2,"committedOffset":12,"leaderEpoch":null,"metadata":"m","logEndOffset":10,"lag":-2,"memberId":null,"instanceId":null,"clientId":null,"host":null},
		{"topic":"a","partition":3,"committedOffset":null,"leaderEpoch":null,"metadata":"","logEndOffset":10,"lag":null,"memberId":"m-1","instanceId":null,"clientId":"c","host":"/h"},
		{"topic":"gone","partition":0,"committedOffset":3,"leaderEpoch":4,"metadata":"","logEndOffset":null,"lag":null,"memberId":null,"instanceId":null,"clientId":null,"host":null,
		 "error":"UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition."}]`, string(rows))
	require.Equal(t, int64(3), d.TotalLag)
	require.Equal(t, "3, without 2 partitions whose lag is not known", d.lagText())
	d.Offsets = d.Offsets[:2]
	require.Equal(t, "3", d.lagText())
	d.Offsets = []groupOffset{{}}
	require.Equal(t, "-", d.lagText())
	require.Equal(t, "a:0,3;b:1", assignmentText([]topicAssignment{{"a", []int32{0, 3}}, {"b", []int32{1}}}))
}
