package command

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/metadata/varint"
)

const (
	formatVersion = 1
	// recordVersion is the version of every payload so far.
	recordVersion = 1
	crcBytes      = 4
	// overheadBytes bounds what the envelope adds to its records.
	overheadBytes = 1 + 5*binary.MaxVarintLen64 + crcBytes
)

// RecordsMaxBytes is how much the Size of a command's records may sum up to for
// Encode to accept the command.
const RecordsMaxBytes = MaxBytes - overheadBytes

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode gives the bytes of a command, or ErrTooLarge.
func Encode(c Command) ([]byte, error) {
	b := make([]byte, 0, 256)
	b = append(b, formatVersion)
	b = varint.Uint(b, uint64(c.Level))
	b = varint.Uint(b, uint64(c.ControllerEpoch))
	b = varint.Uint(b, c.Sequence)
	b = varint.Int(b, c.TimeMs)
	b = varint.Uint(b, uint64(len(c.Records)))
	for _, r := range c.Records {
		b = AppendRecord(b, r)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("%d bytes: %w", len(b), ErrTooLarge)
	}
	return b, nil
}

// AppendRecord appends one record as it lies in a command.
func AppendRecord(b []byte, r Record) []byte {
	payload := appendPayload(nil, r)
	b = varint.Uint(b, uint64(r.kind()))
	b = varint.Uint(b, recordVersion)
	b = varint.Uint(b, uint64(len(payload)))
	return append(b, payload...)
}

// Size is the number of bytes that a record adds to a command.
func Size(r Record) int { return len(AppendRecord(nil, r)) }

// Decode reads what Encode wrote. Strings and lists are copied out of b.
func Decode(b []byte) (Command, error) {
	if len(b) < crcBytes {
		return Command{}, &CorruptError{Position: len(b), Cause: "ends too early"}
	}
	body, sum := b[:len(b)-crcBytes], binary.LittleEndian.Uint32(b[len(b)-crcBytes:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return Command{}, &CorruptError{
			Position: len(body), Cause: fmt.Sprintf("checksum %08x does not match the bytes' %08x", sum, got),
		}
	}
	r := varint.NewReader(body)
	if v := r.Byte(); !r.Failed() && v != formatVersion {
		r.Fail(fmt.Sprintf("format %d is not known here", v))
	}
	level, epoch := r.Uint(), r.Uint()
	if level > math.MaxInt16 || epoch > math.MaxInt64 {
		r.Fail("level or epoch out of range")
	}
	c := Command{Level: cluster.FeatureLevel(level), ControllerEpoch: cluster.ControllerEpoch(epoch)}
	c.Sequence, c.TimeMs = r.Uint(), r.Int()
	for range r.Count(3) {
		rec, err := decodeRecord(r, c.Level)
		if err != nil {
			return Command{}, err
		}
		if r.Failed() {
			break
		}
		c.Records = append(c.Records, rec)
	}
	r.End()
	if r.Failed() {
		return Command{}, &CorruptError{Position: r.Position(), Cause: r.Cause()}
	}
	return c, nil
}

func decodeRecord(r *varint.Reader, level cluster.FeatureLevel) (Record, error) {
	kind, version := r.Uint(), r.Uint()
	payload := varint.NewReader(r.Bytes(r.Count(1)))
	if r.Failed() {
		return nil, nil
	}
	read, ok := readers[Kind(kind)]
	if !ok || kind > 1<<16-1 || version != recordVersion {
		return nil, &UnknownRecordError{Kind: Kind(kind), Version: version, Needs: level}
	}
	rec := read(payload)
	payload.End()
	if payload.Failed() {
		r.Fail(fmt.Sprintf("record of kind %d, byte %d: %s", kind, payload.Position(), payload.Cause()))
	}
	return rec, nil
}

func appendPayload(b []byte, rec Record) []byte {
	switch v := rec.(type) {
	case ControllerStarted:
		return varint.Int(b, int64(v.Node))
	case ClusterCreated:
		return varint.String(b, v.ClusterID)
	case FeatureSet:
		return varint.Int(varint.String(b, v.Name), int64(v.Level))
	case BrokerRegistered:
		return appendBrokerRegistered(b, v)
	case BrokerState:
		b = varint.Int(b, int64(v.ID))
		b = varint.Int(b, int64(v.Epoch))
		b = varint.Bool(b, v.Fenced)
		b = varint.Bool(b, v.ShuttingDown)
		return AppendDirs(b, v.OfflineDirs)
	case BrokerUnregistered:
		return varint.Int(varint.Int(b, int64(v.ID)), int64(v.Epoch))
	case TopicCreated:
		b = append(b, v.ID[:]...)
		b = varint.String(b, v.Name)
		b = varint.Int(b, int64(v.Partitions))
		b = AppendStrings(b, v.Configs)
		b = varint.Bool(b, v.TieredByDefault)
		b = varint.Bool(b, v.Internal)
		return varint.Int(b, v.CreatedMs)
	case PartitionsAdded:
		return appendPartitionsAdded(b, v)
	case PartitionsChanged:
		return appendPartitionsChanged(b, v)
	case DirsAssigned:
		b = varint.Int(b, int64(v.Broker))
		b = varint.Uint(b, uint64(len(v.Assignments)))
		for _, a := range v.Assignments {
			b = append(b, a.Partition.Topic[:]...)
			b = varint.Int(b, int64(a.Partition.Partition))
			b = append(b, a.Dir[:]...)
		}
		return b
	case TopicDeleted:
		return append(b, v.Topic[:]...)
	case ConfigsChanged:
		return appendConfigsChanged(b, v)
	case GroupConfigsChanged:
		return appendChanges(varint.String(b, v.Group), v.Changes)
	case ProducerIDsAllocated:
		return varint.Int(b, int64(v.Next))
	case DeletedTopicForgotten:
		return append(b, v.Topic[:]...)
	case SegmentChanged:
		return appendSegmentChanged(b, v)
	}
	return b
}

var readers = map[Kind]func(*varint.Reader) Record{
	KindControllerStarted: func(r *varint.Reader) Record { return ControllerStarted{Node: readBroker(r)} },
	KindClusterCreated:    func(r *varint.Reader) Record { return ClusterCreated{ClusterID: r.String()} },
	KindFeatureSet: func(r *varint.Reader) Record {
		return FeatureSet{Name: r.String(), Level: cluster.FeatureLevel(r.Int16())}
	},
	KindBrokerRegistered: readBrokerRegistered,
	KindBrokerState: func(r *varint.Reader) Record {
		return BrokerState{
			ID: readBroker(r), Epoch: cluster.BrokerEpoch(r.Int()), Fenced: r.Bool(), ShuttingDown: r.Bool(),
			OfflineDirs: ReadDirs(r),
		}
	},
	KindBrokerUnregistered: func(r *varint.Reader) Record {
		return BrokerUnregistered{ID: readBroker(r), Epoch: cluster.BrokerEpoch(r.Int())}
	},
	KindTopicCreated: func(r *varint.Reader) Record {
		return TopicCreated{
			ID: r.ID(), Name: r.String(), Partitions: r.Int32(), Configs: ReadStrings(r),
			TieredByDefault: r.Bool(), Internal: r.Bool(), CreatedMs: r.Int(),
		}
	},
	KindPartitionsAdded:   readPartitionsAdded,
	KindPartitionsChanged: readPartitionsChanged,
	KindDirsAssigned:      readDirsAssigned,
	KindTopicDeleted:      func(r *varint.Reader) Record { return TopicDeleted{Topic: r.ID()} },
	KindConfigsChanged:    readConfigsChanged,
	KindGroupConfigsChanged: func(r *varint.Reader) Record {
		return GroupConfigsChanged{Group: r.String(), Changes: readChanges(r)}
	},
	KindProducerIDsAllocated: func(r *varint.Reader) Record {
		return ProducerIDsAllocated{Next: cluster.ProducerID(r.Int())}
	},
	KindDeletedTopicForgotten: func(r *varint.Reader) Record { return DeletedTopicForgotten{Topic: r.ID()} },
	KindSegmentStarted: func(r *varint.Reader) Record {
		return SegmentChanged{Partition: readTopicPartition(r), Event: catalog.StartedEvent{
			LeaderEpoch: readEpoch(r), Span: catalog.ReadSpan(r), DeadlineMs: r.Int(),
		}}
	},
	KindSegmentPublished: func(r *varint.Reader) Record {
		return SegmentChanged{Partition: readTopicPartition(r), Event: catalog.PublishedEvent{
			LeaderEpoch: readEpoch(r), ID: r.ID(), Object: catalog.ReadObject(r),
		}}
	},
	KindSegmentAbandoned: func(r *varint.Reader) Record {
		return SegmentChanged{Partition: readTopicPartition(r), Event: catalog.AbandonedEvent{
			LeaderEpoch: readEpoch(r), ID: r.ID(),
		}}
	},
	KindLogStartAdvanced: func(r *varint.Reader) Record {
		return SegmentChanged{Partition: readTopicPartition(r), Event: catalog.LogStartEvent{
			LeaderEpoch: readEpoch(r), Offset: cluster.Offset(r.Int()), BatchBase: cluster.Offset(r.Int()),
		}}
	},
	KindSegmentsRemoved: readSegmentsRemoved,
}

func appendBrokerRegistered(b []byte, v BrokerRegistered) []byte {
	b = varint.Int(b, int64(v.ID))
	b = append(b, v.Incarnation[:]...)
	b = AppendListeners(b, v.Listeners)
	b = varint.String(b, v.Rack)
	b = AppendDirs(b, v.LogDirs)
	b = AppendRanges(b, v.Features)
	return varint.Bool(b, v.Unclean)
}

func readBrokerRegistered(r *varint.Reader) Record {
	return BrokerRegistered{
		ID: readBroker(r), Incarnation: r.ID(), Listeners: ReadListeners(r), Rack: r.String(),
		LogDirs: ReadDirs(r), Features: ReadRanges(r), Unclean: r.Bool(),
	}
}

func appendPartitionsAdded(b []byte, v PartitionsAdded) []byte {
	b = append(b, v.Topic[:]...)
	b = varint.Int(b, int64(v.First))
	b = varint.Int(b, int64(v.Total))
	b = varint.Uint(b, uint64(len(v.Partitions)))
	for _, p := range v.Partitions {
		b = varint.Int(b, int64(p.Leader))
		b = AppendBrokers(b, p.Replicas)
		b = AppendBrokers(b, p.ISR)
		b = AppendDirs(b, p.Dirs)
	}
	return b
}

func readPartitionsAdded(r *varint.Reader) Record {
	v := PartitionsAdded{Topic: r.ID(), First: r.Int32(), Total: r.Int32()}
	for range r.Count(4) {
		v.Partitions = append(v.Partitions, NewPartition{
			Leader: readBroker(r), Replicas: ReadBrokers(r), ISR: ReadBrokers(r), Dirs: ReadDirs(r),
		})
	}
	return v
}

func appendPartitionsChanged(b []byte, v PartitionsChanged) []byte {
	b = append(b, v.Topic[:]...)
	b = varint.Uint(b, uint64(len(v.Changes)))
	for _, c := range v.Changes {
		b = varint.Int(b, int64(c.Partition))
		b = varint.Int(b, int64(c.PartitionEpoch))
		b = varint.Int(b, int64(c.Leader))
		b = varint.Int(b, int64(c.LeaderEpoch))
		b = AppendBrokers(b, c.ISR)
		b = AppendBrokers(b, c.ELR)
		b = AppendBrokers(b, c.LastKnownELR)
	}
	return b
}

func readPartitionsChanged(r *varint.Reader) Record {
	v := PartitionsChanged{Topic: r.ID()}
	for range r.Count(7) {
		v.Changes = append(v.Changes, PartitionChange{
			Partition: r.Int32(), PartitionEpoch: cluster.PartitionEpoch(r.Int32()),
			Leader: readBroker(r), LeaderEpoch: readEpoch(r),
			ISR: ReadBrokers(r), ELR: ReadBrokers(r), LastKnownELR: ReadBrokers(r),
		})
	}
	return v
}

func readDirsAssigned(r *varint.Reader) Record {
	v := DirsAssigned{Broker: readBroker(r)}
	for range r.Count(33) {
		v.Assignments = append(v.Assignments, DirAssignment{Partition: readTopicPartition(r), Dir: r.ID()})
	}
	return v
}

func appendConfigsChanged(b []byte, v ConfigsChanged) []byte {
	b = varint.Int(b, int64(v.Kind))
	b = append(b, v.Topic[:]...)
	b = varint.Int(b, int64(v.Broker))
	return appendChanges(b, v.Changes)
}

func appendChanges(b []byte, changes []ConfigChange) []byte {
	b = varint.Uint(b, uint64(len(changes)))
	for _, c := range changes {
		b = varint.String(b, c.Key)
		b = varint.String(b, c.Value)
		b = varint.Bool(b, c.Delete)
	}
	return b
}

func readConfigsChanged(r *varint.Reader) Record {
	kind := r.Int16()
	if kind != int16(request.TopicResource) && kind != int16(request.BrokerResource) {
		r.Fail("unknown config resource")
	}
	return ConfigsChanged{Kind: request.ConfigResourceKind(kind), Topic: r.ID(), Broker: readBroker(r), Changes: readChanges(r)}
}

func readChanges(r *varint.Reader) []ConfigChange {
	var changes []ConfigChange
	for range r.Count(3) {
		changes = append(changes, ConfigChange{Key: r.String(), Value: r.String(), Delete: r.Bool()})
	}
	return changes
}

func appendSegmentChanged(b []byte, v SegmentChanged) []byte {
	b = append(b, v.Partition.Topic[:]...)
	b = varint.Int(b, int64(v.Partition.Partition))
	switch ev := v.Event.(type) {
	case catalog.StartedEvent:
		b = catalog.AppendSpan(varint.Int(b, int64(ev.LeaderEpoch)), ev.Span)
		return varint.Int(b, ev.DeadlineMs)
	case catalog.PublishedEvent:
		b = append(varint.Int(b, int64(ev.LeaderEpoch)), ev.ID[:]...)
		return catalog.AppendObject(b, ev.Object)
	case catalog.AbandonedEvent:
		return append(varint.Int(b, int64(ev.LeaderEpoch)), ev.ID[:]...)
	case catalog.LogStartEvent:
		b = varint.Int(b, int64(ev.LeaderEpoch))
		b = varint.Int(b, int64(ev.Offset))
		return varint.Int(b, int64(ev.BatchBase))
	case catalog.RemovedEvent:
		b = varint.Int(b, int64(ev.LeaderEpoch))
		b = varint.Uint(b, uint64(len(ev.IDs)))
		for _, id := range ev.IDs {
			b = append(b, id[:]...)
		}
	}
	return b
}

func readSegmentsRemoved(r *varint.Reader) Record {
	tp, ev := readTopicPartition(r), catalog.RemovedEvent{LeaderEpoch: readEpoch(r)}
	for range r.Count(16) {
		ev.IDs = append(ev.IDs, r.ID())
	}
	return SegmentChanged{Partition: tp, Event: ev}
}
