package consumer

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
)

// What consumers of the classic protocol say is read in every version.
func TestReadEmbedded(t *testing.T) {
	w := newWorld()
	w.set("a", 3, nil)
	a, _ := w.Topic("a")
	said := kmsg.ConsumerMemberMetadata{
		Topics: []string{"b", "a", "b"}, Rack: ptr("r"), Generation: 7,
		OwnedPartitions: []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "a", Partitions: []int32{1}}, {Topic: "gone", Partitions: []int32{0}}},
	}
	for version := range int16(5) {
		said.Version = version
		got, err := readEmbedded(w, []group.Protocol{{Name: "p", Metadata: said.AppendTo(nil)}, {Name: "q"}})
		require.NoError(t, err)
		want := embedded{version: min(version, 3), topics: []string{"a", "b"}, owned: []group.TopicPartitions{}}
		if version >= 1 {
			want.owned = []group.TopicPartitions{{Topic: a.ID, Partitions: []int32{1}}}
		}
		if version >= 3 {
			want.rack = said.Rack
		}
		require.Equal(t, want, got)
	}
	said.Version, said.Rack = 3, ptr("")
	got, err := readEmbedded(w, []group.Protocol{{Metadata: said.AppendTo(nil)}})
	require.NoError(t, err)
	require.Nil(t, got.rack)
	said.Version = -1
	for _, protocols := range [][]group.Protocol{nil, {{Metadata: nil}}, {{Metadata: []byte{0, 0, 0}}}, {{Metadata: said.AppendTo(nil)}}} {
		_, err := readEmbedded(w, protocols)
		require.ErrorIs(t, err, group.ErrInconsistentProtocol)
	}
}

func TestReadAssigned(t *testing.T) {
	w := newWorld()
	w.set("a", 3, nil)
	a, _ := w.Topic("a")
	m := kmsg.ConsumerMemberAssignment{Version: 1, Topics: []kmsg.ConsumerMemberAssignmentTopic{
		{Topic: "gone", Partitions: []int32{0}}, {Topic: "a", Partitions: []int32{2}}, {Topic: "a", Partitions: []int32{1, 2}},
	}}
	got, err := readAssigned(w, m.AppendTo(nil))
	require.NoError(t, err)
	require.Equal(t, assignment{a.ID: {1, 2}}, got)
	got, err = readAssigned(w, nil)
	require.NoError(t, err)
	require.Empty(t, got)
	m.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "a"}}
	got, err = readAssigned(w, m.AppendTo(nil))
	require.NoError(t, err)
	require.Empty(t, got)
	for _, bad := range []kmsg.ConsumerMemberAssignment{{Version: -1}, {Version: 1, UserData: []byte{1}}} {
		_, err := readAssigned(w, bad.AppendTo(nil))
		require.ErrorIs(t, err, group.ErrGroupIDNotFound)
	}
	_, err = readAssigned(w, []byte{0, 1, 0})
	require.ErrorIs(t, err, group.ErrGroupIDNotFound)

	// And back, without what is not there.
	b := appendAssigned(w, 2, assignment{a.ID: {0, 2}, idOf("gone", 9): {1}})
	var back kmsg.ConsumerMemberAssignment
	require.NoError(t, back.ReadFrom(b))
	require.Equal(t, kmsg.ConsumerMemberAssignment{Version: 2, Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: "a", Partitions: []int32{0, 2}}}}, back)
}
