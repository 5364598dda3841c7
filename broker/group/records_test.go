package group

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
)

// golden are bytes of Apache Kafka 4.4.0, by name and version.
func golden(t testing.TB) map[string][]byte {
	file, err := os.ReadFile("testdata/records.golden")
	require.NoError(t, err)
	list := map[string][]byte{}
	for line := range strings.Lines(string(file)) {
		if f := strings.Fields(line); f[0] != "#" {
			b, err := hex.DecodeString(f[len(f)-1])
			require.NoError(t, err)
			list[strings.Join(f[:len(f)-1], " ")] = b
		}
	}
	require.Len(t, list, 27)
	return list
}

var goldenKeys = map[string]RecordKey{
	"offset-key":                 OffsetKey("grüße", "t", 258),
	"legacy-offset-key":          {Type: LegacyOffsetCommitRecord, Group: "grüße", Topic: "t", Partition: 258},
	"group-key":                  MetadataKey("g"),
	"consumer-group-key":         {Type: ConsumerGroupMetadataRecord, Group: "g"},
	"consumer-partitions-key":    {Type: ConsumerPartitionMetadataRecord, Group: "g"},
	"consumer-member-key":        {Type: ConsumerMemberMetadataRecord, Group: "g", Member: "m"},
	"consumer-target-key":        {Type: ConsumerTargetAssignmentMetadataRecord, Group: "g"},
	"consumer-target-member-key": {Type: ConsumerTargetAssignmentMemberRecord, Group: "g", Member: "m"},
	"consumer-current-key":       {Type: ConsumerCurrentAssignmentRecord, Group: "g", Member: "m"},
	"consumer-regex-key":         {Type: ConsumerRegularExpressionRecord, Group: "g", Member: "a.*"},
}

func TestKeysAreApacheKafkas(t *testing.T) {
	written := golden(t)
	for name, k := range goldenKeys {
		require.Equal(t, written[name], k.Append(nil), name)
		read, err := ParseRecordKey(written[name])
		require.NoError(t, err, name)
		require.Equal(t, k, read, name)
	}
	offset := kmsg.OffsetCommitKey{Version: 1, Group: "grüße", Topic: "t", Partition: 258}
	require.Equal(t, written["offset-key"], offset.AppendTo(nil))
	metadata := kmsg.GroupMetadataKey{Version: 2, Group: "g"}
	require.Equal(t, written["group-key"], metadata.AppendTo(nil))
}

func TestOffsetsAreApacheKafkas(t *testing.T) {
	written := golden(t)
	want := func(version int) CommittedOffset {
		o := CommittedOffset{Offset: 1 << 40, LeaderEpoch: cluster.NoLeaderEpoch, Metadata: "méta", CommitTime: time.UnixMilli(1700000000123)}
		switch version {
		case 1:
			o.ExpireTime = time.UnixMilli(1700000999456)
		case 4:
			o.TopicID = cluster.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
		}
		if version >= 3 {
			o.LeaderEpoch = 7
		}
		return o
	}
	for version := range 5 {
		got, err := ParseOffset(written[fmt.Sprintf("offset v%d", version)])
		require.NoError(t, err)
		require.Equal(t, want(version), got, "version %d", version)
	}
	legacy, err := ParseOffset(written["legacy-offset v0"])
	require.NoError(t, err)
	require.Equal(t, want(0), legacy)
	none, err := ParseOffset(written["offset-without v4"])
	require.NoError(t, err)
	require.Equal(t, CommittedOffset{LeaderEpoch: cluster.NoLeaderEpoch, CommitTime: time.UnixMilli(0)}, none)

	key := written["offset-key"]
	require.Equal(t, Record{Key: key, Value: written["offset v4"]}, OffsetRecord("grüße", "t", 258, want(4)))
	require.Equal(t, Record{Key: key, Value: written["offset v1"]}, OffsetRecord("grüße", "t", 258, want(1)))
	require.Equal(t, written["offset-without v4"], OffsetRecord("grüße", "t", 258, none).Value)
	require.Equal(t, Record{Key: key}, OffsetTombstone("grüße", "t", 258))
}

func TestGroupsAreApacheKafkas(t *testing.T) {
	written := golden(t)
	want := func(version int) Metadata {
		m := Metadata{ProtocolType: "consumer", Generation: 77, Protocol: "range", Leader: "m1", Members: []MemberMetadata{
			{
				MemberID: "m1", Client: Client{ID: "c", Host: "/10.0.0.1"}, RebalanceTimeout: 5 * time.Minute, SessionTimeout: 45 * time.Second,
				Subscription: []byte{0, 1, 2}, Assignment: []byte{3},
			},
			{
				MemberID: "m2", Client: Client{Host: "/h"}, RebalanceTimeout: time.Minute, SessionTimeout: 10 * time.Second,
				Subscription: []byte{}, Assignment: []byte{},
			},
		}}
		if version == 0 {
			m.Members[0].RebalanceTimeout, m.Members[1].RebalanceTimeout = 45*time.Second, 10*time.Second
		}
		if version >= 2 {
			m.StateTime = time.UnixMilli(1700000000123)
		}
		if version >= 3 {
			m.Members[0].InstanceID = "A"
		}
		return m
	}
	for version := range 5 {
		got, err := ParseMetadata(written[fmt.Sprintf("group v%d", version)])
		require.NoError(t, err)
		require.Equal(t, want(version), got, "version %d", version)
		got, err = ParseMetadata(written[fmt.Sprintf("empty-group v%d", version)])
		require.NoError(t, err)
		require.Equal(t, Metadata{}, got, "version %d", version)
	}
	require.Equal(t, Record{Key: written["group-key"], Value: written["group v3"]}, MetadataRecord("g", want(3)))
	require.Equal(t, Record{Key: written["group-key"], Value: written["empty-group v3"]}, MetadataRecord("g", Metadata{}))
	require.Equal(t, Record{Key: written["group-key"]}, MetadataTombstone("g"))
}

func TestWhatIsNotARecordIsAnError(t *testing.T) {
	for name, b := range golden(t) {
		parse := func(b []byte) (err error) {
			switch {
			case strings.Contains(name, "key"):
				_, err = ParseRecordKey(b)
			case strings.Contains(name, "offset"):
				_, err = ParseOffset(b)
			default:
				_, err = ParseMetadata(b)
			}
			return err
		}
		require.NoError(t, parse(b), name)
		for n := range b {
			require.Error(t, parse(b[:n:n]), "%s cut at %d", name, n)
		}
		require.ErrorIs(t, parse(nil), ErrMalformedRecord)
		require.ErrorIs(t, parse(append([]byte{0, 99}, b[2:]...)), ErrUnknownRecord, name)
		require.ErrorIs(t, parse(append([]byte{0xff, 0xff}, b[2:]...)), ErrUnknownRecord, name)
		if strings.Contains(name, "key") {
			require.ErrorIs(t, parse(append(b[:len(b):len(b)], 0)), ErrMalformedRecord, name)
		}
	}
}

func TestSubscriptions(t *testing.T) {
	v := kmsg.NewConsumerMemberMetadata()
	v.Topics, v.UserData = []string{"t1", "", "t2"}, []byte("own")
	for v.Version = range int16(4) {
		topics, err := SubscribedTopics(v.AppendTo(nil))
		require.NoError(t, err)
		require.Equal(t, v.Topics, topics)
	}
	v.Version = 0
	whole := v.AppendTo(nil)
	for n := range whole {
		_, err := SubscribedTopics(whole[:n])
		require.ErrorIs(t, err, ErrMalformedRecord, "cut at %d", n)
	}
	for _, bad := range []string{"\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff", "\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", "\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff"} {
		_, err := SubscribedTopics([]byte(bad))
		require.ErrorIs(t, err, ErrMalformedRecord, "%q", bad)
	}
}

func FuzzParseRecordKey(f *testing.F) {
	for _, b := range golden(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := ParseRecordKey(b); err == nil {
			require.Equal(t, b, k.Append(nil))
		}
	})
}

func FuzzParseValues(f *testing.F) {
	for _, b := range golden(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// What is read is what is written, but for what the written version cannot say.
		if o, err := ParseOffset(b); err == nil {
			again, err := ParseOffset(OffsetRecord("g", "t", 0, o).Value)
			require.NoError(t, err)
			require.Equal(t, o, again)
		}
		if m, err := ParseMetadata(b); err == nil && len(m.ProtocolType)+len(m.Protocol)+len(m.Leader) < 1<<15 {
			for _, o := range m.Members {
				if len(o.MemberID)+len(o.InstanceID)+len(o.Client.ID)+len(o.Client.Host) >= 1<<15 {
					return
				}
			}
			again, err := ParseMetadata(MetadataRecord("g", m).Value)
			require.NoError(t, err)
			require.Equal(t, m, again)
		}
	})
}

func FuzzSubscribedTopics(f *testing.F) {
	f.Add([]byte("\x00\x01\x00\x00\x00\x02\x00\x01a\x00\x01b\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		topics, err := SubscribedTopics(b)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformedRecord)
			return
		}
		// The part that was read begins with just that.
		v := kmsg.NewConsumerMemberMetadata()
		v.Topics = topics
		prefix := v.AppendTo(nil)
		require.Equal(t, prefix[2:len(prefix)-4], b[2:len(prefix)-4])
	})
}
