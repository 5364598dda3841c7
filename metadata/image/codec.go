package image

import (
	"maps"
	"slices"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/varint"
)

func appendMeta(m Meta) []byte {
	b := varint.Uint([]byte{entryVersion}, m.Index)
	b = varint.String(b, m.ClusterID)
	b = varint.Int(b, int64(m.Controller))
	b = varint.Int(b, int64(m.ControllerEpoch))
	b = varint.Uint(b, m.Sequence)
	b = varint.Int(b, m.TimeMs)
	b = varint.Int(b, int64(m.NextProducerID))
	b = varint.Uint(b, uint64(len(m.Features)))
	for _, name := range slices.Sorted(maps.Keys(m.Features)) {
		b = varint.Int(varint.String(b, name), int64(m.Features[name]))
	}
	return b
}

func readMeta(r *varint.Reader) Meta {
	m := Meta{
		Index: r.Uint(), ClusterID: r.String(), Controller: cluster.BrokerID(r.Int32()),
		ControllerEpoch: cluster.ControllerEpoch(r.Int()), Sequence: r.Uint(), TimeMs: r.Int(),
		NextProducerID: cluster.ProducerID(r.Int()),
	}
	for range r.Count(2) {
		if m.Features == nil {
			m.Features = map[string]cluster.FeatureLevel{}
		}
		name := r.String()
		m.Features[name] = cluster.FeatureLevel(r.Int16())
	}
	return m
}

func appendBroker(b *Broker) []byte {
	v := varint.Int([]byte{entryVersion}, int64(b.Epoch))
	v = append(v, b.Incarnation[:]...)
	v = command.AppendListeners(v, b.Listeners)
	v = varint.String(v, b.Rack)
	v = command.AppendDirs(v, b.LogDirs)
	v = command.AppendDirs(v, b.OfflineDirs)
	v = command.AppendRanges(v, b.Features)
	v = varint.Bool(v, b.Fenced)
	v = varint.Bool(v, b.ShuttingDown)
	return varint.Bool(v, b.Unclean)
}

func readBroker(r *varint.Reader) *Broker {
	return &Broker{
		Epoch: cluster.BrokerEpoch(r.Int()), Incarnation: r.ID(), Listeners: command.ReadListeners(r),
		Rack: r.String(), LogDirs: command.ReadDirs(r), OfflineDirs: command.ReadDirs(r),
		Features: command.ReadRanges(r), Fenced: r.Bool(), ShuttingDown: r.Bool(), Unclean: r.Bool(),
	}
}

func appendPartition(p *Partition) []byte {
	b := varint.Int([]byte{entryVersion}, int64(p.Leader))
	b = varint.Int(b, int64(p.LeaderEpoch))
	b = varint.Int(b, int64(p.PartitionEpoch))
	b = command.AppendBrokers(b, p.Replicas)
	b = command.AppendBrokers(b, p.ISR)
	b = command.AppendBrokers(b, p.ELR)
	b = command.AppendBrokers(b, p.LastKnownELR)
	return command.AppendDirs(b, p.Dirs)
}

func readPartition(r *varint.Reader) *Partition {
	return &Partition{
		Leader: cluster.BrokerID(r.Int32()), LeaderEpoch: cluster.LeaderEpoch(r.Int32()),
		PartitionEpoch: cluster.PartitionEpoch(r.Int32()),
		Replicas:       command.ReadBrokers(r), ISR: command.ReadBrokers(r), ELR: command.ReadBrokers(r),
		LastKnownELR: command.ReadBrokers(r), Dirs: command.ReadDirs(r),
	}
}

func appendTopic(t *Topic, total int32) []byte {
	return appendTopicBody([]byte{entryVersion}, t, total)
}

func appendTopicBody(b []byte, t *Topic, total int32) []byte {
	b = varint.String(b, t.Name)
	b = varint.Int(b, int64(total))
	b = command.AppendStrings(b, t.Configs)
	b = varint.Bool(b, t.TieredByDefault)
	b = varint.Bool(b, t.Internal)
	return varint.Int(b, t.CreatedMs)
}

func readTopic(id cluster.TopicID, r *varint.Reader) (*Topic, int32) {
	t := &Topic{ID: id, Name: r.String()}
	total := r.Int32()
	t.Configs = command.ReadStrings(r)
	t.TieredByDefault, t.Internal, t.CreatedMs = r.Bool(), r.Bool(), r.Int()
	t.Tiered = tiered(t)
	return t, total
}

func appendPending(p *pending) []byte {
	b := varint.Int([]byte{entryVersion}, int64(p.first))
	b = varint.Bool(b, p.topic != nil)
	if p.topic != nil {
		return appendTopicBody(b, p.topic, p.total)
	}
	return varint.Int(b, int64(p.total))
}
