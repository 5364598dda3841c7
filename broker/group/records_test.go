package group

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
)

func TestKeysAreApacheKafkas(t *testing.T) {
	offset := kmsg.OffsetCommitKey{Version: 1, Group: "g", Topic: "t", Partition: 7}
	require.Equal(t, offset.AppendTo(nil), OffsetKey("g", "t", 7).Append(nil))
	metadata := kmsg.GroupMetadataKey{Version: 2, Group: "g"}
	require.Equal(t, metadata.AppendTo(nil), MetadataKey("g").Append(nil))
}

func TestAnOffsetComesBack(t *testing.T) {
	want := CommittedOffset{Offset: 9, LeaderEpoch: 3, Metadata: "m", CommitTime: time.UnixMilli(12), TopicID: cluster.TopicID{1}}
	got, err := ParseOffset(OffsetRecord("g", "t", 1, want).Value)
	require.NoError(t, err)
	require.Equal(t, want, got)

	want.ExpireTime = time.UnixMilli(55)
	got, err = ParseOffset(OffsetRecord("g", "t", 1, want).Value)
	require.NoError(t, err)
	want.LeaderEpoch, want.TopicID = cluster.NoLeaderEpoch, cluster.TopicID{}
	require.Equal(t, want, got)
}

func TestOldKeysOfAnOffsetAreTheSame(t *testing.T) {
	k := OffsetKey("g", "t", 1)
	old := k
	old.Type = LegacyOffsetCommitRecord
	a, err := ViewKey(k.Append(nil))
	require.NoError(t, err)
	b, err := ViewKey(old.Append(nil))
	require.NoError(t, err)
	require.Equal(t, a, b)
	require.True(t, bytes.HasPrefix(a, OffsetsViewPrefix("g", "t")))
}
