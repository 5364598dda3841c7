package command

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/metadata/varint"
)

var (
	topic = cluster.TopicID{1, 2, 3}
	part  = cluster.TopicPartition{Topic: topic, Partition: 4}
	seg   = cluster.SegmentID{9, 8, 7}
)

// samples has one record of every kind.
var samples = map[string]Record{
	"controller_started": ControllerStarted{Node: 1},
	"cluster_created":    ClusterCreated{ClusterID: "abc"},
	"feature_set":        FeatureSet{Name: "strandline.version", Level: 1},
	"broker_registered": BrokerRegistered{
		ID: 3, Incarnation: cluster.IncarnationID{5}, Rack: "r", LogDirs: []cluster.DirectoryID{{1}, {2}},
		Listeners: []request.Listener{{Name: "PLAINTEXT", Host: "h", Port: 9092, Security: "PLAINTEXT"}},
		Features:  map[string]request.FeatureRange{"a": {Min: 1, Max: 2}, "b": {}}, Unclean: true,
	},
	"broker_state":        BrokerState{ID: 3, Epoch: 77, Fenced: true, ShuttingDown: true, OfflineDirs: []cluster.DirectoryID{{1}}},
	"broker_unregistered": BrokerUnregistered{ID: 3, Epoch: 77},
	"topic_created": TopicCreated{
		ID: topic, Name: "t", Partitions: 2, Configs: map[string]string{"retention.ms": "5", "cleanup.policy": "delete"},
		TieredByDefault: true, Internal: true, CreatedMs: 1_700_000_000_000,
	},
	"partitions_added": PartitionsAdded{Topic: topic, First: 1, Total: 3, Partitions: []NewPartition{
		{Leader: 1, Replicas: []cluster.BrokerID{1, 2}, ISR: []cluster.BrokerID{1}, Dirs: []cluster.DirectoryID{{1}, {}}},
		{Leader: 2, Replicas: []cluster.BrokerID{2}, ISR: []cluster.BrokerID{2}, Dirs: []cluster.DirectoryID{{3}}},
	}},
	"dirs_assigned": DirsAssigned{Broker: 3, Assignments: []DirAssignment{
		{Partition: cluster.TopicPartition{Topic: topic, Partition: 2}, Dir: cluster.DirectoryID{1, 2, 3}},
		{Partition: cluster.TopicPartition{Topic: topic, Partition: 300}, Dir: cluster.DirectoryID{0xff}},
	}},
	"partitions_changed": PartitionsChanged{Topic: topic, Changes: []PartitionChange{
		{Partition: 1, PartitionEpoch: 2, Leader: -1, LeaderEpoch: 3, ELR: []cluster.BrokerID{1}, LastKnownELR: []cluster.BrokerID{2}},
		{Partition: 2, PartitionEpoch: 9, Leader: 4, LeaderEpoch: 5, ISR: []cluster.BrokerID{4, 5}},
	}},
	"topic_deleted": TopicDeleted{Topic: topic},
	"configs_changed": ConfigsChanged{Kind: request.BrokerResource, Broker: -1, Changes: []ConfigChange{
		{Key: "a", Value: "1"}, {Key: "b", Delete: true},
	}},
	"group_configs_changed": GroupConfigsChanged{Group: "g", Changes: []ConfigChange{
		{Key: "a", Value: "1"}, {Key: "b", Delete: true},
	}},
	"producer_ids_allocated":  ProducerIDsAllocated{Next: 2000},
	"deleted_topic_forgotten": DeletedTopicForgotten{Topic: topic},
	"segment_started": SegmentChanged{Partition: part, Event: catalog.StartedEvent{LeaderEpoch: 6, DeadlineMs: 10, Span: request.SegmentSpan{
		ID: seg, Base: 5, End: 9, LeaderEpoch: 6, Location: "l", Key: "k",
	}}},
	"segment_published": SegmentChanged{Partition: part, Event: catalog.PublishedEvent{LeaderEpoch: 6, ID: seg, Object: request.ObjectSummary{
		ObjectBytes: 100, SegmentBytes: 80, IndexPosition: 80, IndexBytes: 15, FooterBytes: 5, MinTimestamp: -1, MaxTimestamp: 3,
		RecordCount: 4, FirstEpoch: 5, LastEpoch: 6, FormatVersion: 1, CRC32C: 0xdeadbeef,
	}}},
	"segment_abandoned":  SegmentChanged{Partition: part, Event: catalog.AbandonedEvent{LeaderEpoch: 6, ID: seg}},
	"log_start_advanced": SegmentChanged{Partition: part, Event: catalog.LogStartEvent{LeaderEpoch: 6, Offset: 20, BatchBase: 18}},
	"segments_removed":   SegmentChanged{Partition: part, Event: catalog.RemovedEvent{LeaderEpoch: -1, IDs: []cluster.SegmentID{seg, {1}}}},
}

func wrap(r Record) Command {
	return Command{Level: Level, ControllerEpoch: 12, Sequence: 34, TimeMs: 1_700_000_000_001, Records: []Record{r}}
}

// TestGolden reads what version 1 of each record wrote, and writes the same. A
// golden file is never changed: a new version gets a file of its own.
func TestGolden(t *testing.T) {
	kinds := map[Kind]bool{}
	for name, r := range samples {
		kinds[KindOf(r)] = true
		b, err := Encode(wrap(r))
		require.NoError(t, err)
		file := "testdata/" + name + ".v1.hex"
		if os.Getenv("REWRITE_GOLDEN") != "" {
			require.NoError(t, os.WriteFile(file, []byte(hex.EncodeToString(b)+"\n"), 0o644))
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		golden, err := hex.DecodeString(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		require.Equal(t, golden, b, name)
		c, err := Decode(golden)
		require.NoError(t, err, name)
		require.Equal(t, wrap(r), c, name)
		require.Equal(t, len(AppendRecord(nil, r)), Size(r), name)
	}
	require.Len(t, kinds, len(readers), "one sample of every kind")
}

func TestRefuses(t *testing.T) {
	good, err := Encode(wrap(samples["topic_created"]))
	require.NoError(t, err)
	for n := range good {
		_, err := Decode(good[:n])
		var ce *CorruptError
		require.True(t, errors.As(err, &ce), "%d bytes", n)
	}
	for n := range good {
		bad := bytes.Clone(good)
		bad[n] ^= 1
		_, err := Decode(bad)
		var ce *CorruptError
		require.True(t, errors.As(err, &ce), "byte %d", n)
	}
	require.ErrorContains(t, func() error { _, err := Decode(good[:len(good)-1]); return err }(), "checksum")
}

// TestUnknownRecord reads a command of a later version.
func TestUnknownRecord(t *testing.T) {
	for _, c := range []struct{ kind, version uint64 }{{200, 1}, {uint64(KindTopicDeleted), 2}, {1 << 20, 1}} {
		b := []byte{formatVersion}
		b = varint.Uint(b, 7) // level
		b = varint.Uint(b, 1)
		b = varint.Uint(b, 1)
		b = varint.Int(b, 0)
		b = varint.Uint(b, 1)
		b = varint.Uint(b, c.kind)
		b = varint.Uint(b, c.version)
		b = varint.String(b, "payload of the future")
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
		_, err := Decode(b)
		var ue *UnknownRecordError
		require.True(t, errors.As(err, &ue), "%v", err)
		require.Equal(t, cluster.FeatureLevel(7), ue.Needs)
		require.ErrorContains(t, err, "supports level 7 of strandline.version")
	}
}

func TestTooLarge(t *testing.T) {
	ids := make([]cluster.SegmentID, 4096)
	r := SegmentChanged{Event: catalog.RemovedEvent{IDs: ids}}
	var rs []Record
	size := 0
	for size+Size(r) <= RecordsMaxBytes {
		rs, size = append(rs, r), size+Size(r)
	}
	_, err := Encode(Command{ControllerEpoch: 1 << 62, Sequence: 1 << 63, TimeMs: -1 << 63, Records: rs})
	require.NoError(t, err)
	_, err = Encode(Command{Records: append(rs, r)})
	require.ErrorIs(t, err, ErrTooLarge)
}

func FuzzDecode(f *testing.F) {
	for _, r := range samples {
		b, err := Encode(wrap(r))
		require.NoError(f, err)
		f.Add(b[:len(b)-crcBytes])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = Decode(body)
		// The checksum is made right, so that the fuzzer gets past it.
		b := binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
		c, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Encode(c)
		if errors.Is(err, ErrTooLarge) {
			return
		}
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}
