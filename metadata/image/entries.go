package image

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/varint"
)

// Entry is a stored piece of an image. Its key starts with a letter for the
// kind of thing, its value with a version byte.
//
//	a                    index, cluster id, controller, sequence, features ...
//	b + broker           one broker
//	c + broker           overrides of one broker, or of all (broker -1)
//	g + group            overrides of one consumer group
//	p + topic + number   one partition
//	q + topic            an unfinished topic, or how many partitions a visible
//	                     one will have
//	r + topic + number   one partition of it
//	t + topic            name, configs, number of partitions
//
// Numbers in keys are 4 bytes big-endian, topics their 16 bytes, groups their
// ids.
type Entry struct{ Key, Value []byte }

const entryVersion = 1

const (
	metaKey      = 'a'
	brokerKey    = 'b'
	configKey    = 'c'
	groupKey     = 'g'
	partitionKey = 'p'
	pendingKey   = 'q'
	pendingPart  = 'r'
	topicKey     = 't'
)

// CorruptError tells that an entry cannot be read or does not fit the others.
type CorruptError struct {
	Key   []byte
	Cause string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt metadata image entry %q: %s", e.Key, e.Cause)
}

// MetaEntry is the entry that changes with every applied Raft entry.
func (i *Image) MetaEntry() Entry { return Entry{Key: []byte{metaKey}, Value: appendMeta(i.meta)} }

// Entries gives the whole image as entries, sorted by key.
func (i *Image) Entries() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		if !yield(i.MetaEntry()) {
			return
		}
		for _, b := range i.brokers {
			if !yield(Entry{numberKey(brokerKey, nil, int32(b.ID)), appendBroker(b)}) {
				return
			}
		}
		ids := slices.SortedFunc(maps.Keys(i.configs), func(a, b cluster.BrokerID) int {
			return int(int64(uint32(a)) - int64(uint32(b))) // the order of their keys
		})
		for _, id := range ids {
			if !yield(i.configEntry(id)) {
				return
			}
		}
		for id := range i.ConfiguredGroups() {
			if !yield(i.groupEntry(id)) {
				return
			}
		}
		i.topicEntries(yield)
	}
}

func (i *Image) groupEntry(id string) Entry {
	return Entry{Key: append([]byte{groupKey}, id...), Value: command.AppendStrings([]byte{entryVersion}, i.GroupConfig(id))}
}

func (i *Image) topicEntries(yield func(Entry) bool) {
	for id, t := range walk(i.byID, "") {
		for n, p := range t.Partitions {
			if !yield(Entry{numberKey(partitionKey, id, int32(n)), appendPartition(p)}) {
				return
			}
		}
	}
	pendingIDs := slices.SortedFunc(maps.Keys(i.pending), func(a, b cluster.TopicID) int {
		return slices.Compare(a[:], b[:])
	})
	for _, id := range pendingIDs {
		if !yield(Entry{topicID(pendingKey, id), appendPending(i.pending[id])}) {
			return
		}
	}
	for _, id := range pendingIDs {
		for n, p := range i.pending[id].partitions {
			if !yield(Entry{numberKey(pendingPart, id[:], i.pending[id].first+int32(n)), appendPartition(p)}) {
				return
			}
		}
	}
	for id, t := range walk(i.byID, "") {
		if !yield(Entry{append([]byte{topicKey}, id...), appendTopic(t, int32(len(t.Partitions)))}) {
			return
		}
	}
}

func (i *Image) configEntry(id cluster.BrokerID) Entry {
	return Entry{
		Key:   numberKey(configKey, nil, int32(id)),
		Value: command.AppendStrings([]byte{entryVersion}, i.configs[id]),
	}
}

// Entries gives what to store and what to delete so that the stored entries of
// From become those of To.
func (d *Delta) Entries() (put []Entry, del [][]byte) {
	put = append(put, d.To.MetaEntry())
	for _, c := range d.Brokers {
		if c.New == nil {
			del = append(del, numberKey(brokerKey, nil, int32(c.Old.ID)))
			continue
		}
		put = append(put, Entry{numberKey(brokerKey, nil, int32(c.New.ID)), appendBroker(c.New)})
	}
	for _, id := range d.Configs {
		if _, ok := d.To.configs[id]; ok {
			put = append(put, d.To.configEntry(id))
		} else {
			del = append(del, numberKey(configKey, nil, int32(id)))
		}
	}
	for _, id := range d.Groups {
		if d.To.GroupConfig(id) != nil {
			put = append(put, d.To.groupEntry(id))
		} else {
			del = append(del, append([]byte{groupKey}, id...))
		}
	}
	for _, c := range d.Topics {
		id := c.Topic().ID
		if c.New == nil {
			del = append(del, topicID(topicKey, id))
			for n := range c.Old.Partitions {
				del = append(del, numberKey(partitionKey, id[:], int32(n)))
			}
			continue
		}
		if c.Old == nil || c.Configs || len(c.Old.Partitions) != len(c.New.Partitions) {
			put = append(put, Entry{topicID(topicKey, id), appendTopic(c.New, int32(len(c.New.Partitions)))})
		}
		for _, n := range c.Partitions {
			put = append(put, Entry{numberKey(partitionKey, id[:], n), appendPartition(c.New.Partitions[n])})
		}
	}
	for id := range d.pending {
		put, del = pendingDelta(id, d.From.pending[id], d.To.pending[id], put, del)
	}
	return put, del
}

func pendingDelta(id cluster.TopicID, from, to *pending, put []Entry, del [][]byte) ([]Entry, [][]byte) {
	known := map[int32]*Partition{}
	if from != nil {
		for n, p := range from.partitions {
			known[from.first+int32(n)] = p
		}
	}
	if to != nil {
		put = append(put, Entry{topicID(pendingKey, id), appendPending(to)})
		for n, p := range to.partitions {
			number := to.first + int32(n)
			if known[number] != p {
				put = append(put, Entry{numberKey(pendingPart, id[:], number), appendPartition(p)})
			}
			delete(known, number)
		}
	} else if from != nil {
		del = append(del, topicID(pendingKey, id))
	}
	for n := range known {
		del = append(del, numberKey(pendingPart, id[:], n))
	}
	return put, del
}

func topicID(kind byte, id cluster.TopicID) []byte { return append([]byte{kind}, id[:]...) }

func numberKey(kind byte, topic []byte, n int32) []byte {
	return binary.BigEndian.AppendUint32(append([]byte{kind}, topic...), uint32(n))
}

// Load builds the image from its entries, in any order.
func Load(entries iter.Seq2[Entry, error]) (*Image, error) {
	l := loader{
		img: Empty(), topics: map[cluster.TopicID]*loading{}, pending: map[cluster.TopicID]*loading{},
	}
	for e, err := range entries {
		if err != nil {
			return nil, err
		}
		r := varint.NewReader(e.Value)
		if v := r.Byte(); !r.Failed() && v != entryVersion {
			r.Fail(fmt.Sprintf("version %d is not known here", v))
		}
		if !l.entry(e.Key, r) {
			r.Fail("unknown key")
		}
		r.End()
		if r.Failed() {
			return nil, &CorruptError{Key: e.Key, Cause: r.Cause()}
		}
	}
	return l.finish()
}

// loading is a topic of which some entries were seen.
type loading struct {
	topic *Topic
	total int32
	first int32
	parts map[int32]*Partition
}

type loader struct {
	img             *Image
	topics, pending map[cluster.TopicID]*loading
}

func (l *loader) entry(key []byte, r *varint.Reader) bool {
	if len(key) == 0 {
		return false
	}
	kind, rest := key[0], key[1:]
	if kind == groupKey {
		l.img.groups, _, _ = l.img.groups.Insert(bytes.Clone(rest), command.ReadStrings(r))
		return true
	}
	want := map[byte]int{
		metaKey: 0, brokerKey: 4, configKey: 4, partitionKey: 20, pendingKey: 16, pendingPart: 20, topicKey: 16,
	}
	if n, ok := want[kind]; !ok || len(rest) != n {
		return false
	}
	var id cluster.TopicID
	if len(rest) >= 16 {
		id, rest = cluster.TopicID(rest[:16]), rest[16:]
	}
	var number int32
	if len(rest) == 4 {
		number = int32(binary.BigEndian.Uint32(rest))
	}
	switch kind {
	case metaKey:
		l.img.meta = readMeta(r)
	case brokerKey:
		b := readBroker(r)
		b.ID = cluster.BrokerID(number)
		l.img.brokers = append(l.img.brokers, b)
	case configKey:
		if l.img.configs == nil {
			l.img.configs = map[cluster.BrokerID]map[string]string{}
		}
		l.img.configs[cluster.BrokerID(number)] = command.ReadStrings(r)
	case partitionKey:
		at(l.topics, id).parts[number] = readPartition(r)
	case pendingPart:
		at(l.pending, id).parts[number] = readPartition(r)
	case topicKey:
		t := at(l.topics, id)
		t.topic, t.total = readTopic(id, r)
	case pendingKey:
		t := at(l.pending, id)
		t.first = r.Int32()
		if r.Bool() {
			t.topic, t.total = readTopic(id, r)
		} else {
			t.total = r.Int32()
		}
	}
	return true
}

func at(m map[cluster.TopicID]*loading, id cluster.TopicID) *loading {
	l, ok := m[id]
	if !ok {
		l = &loading{parts: map[int32]*Partition{}}
		m[id] = l
	}
	return l
}

func (l *loader) finish() (*Image, error) {
	i := l.img
	slices.SortFunc(i.brokers, func(a, b *Broker) int { return int(a.ID) - int(b.ID) })
	name, byID := iradix.New[*Topic]().Txn(), i.byID.Txn()
	for id, t := range l.topics {
		if t.topic == nil || int(t.total) != len(t.parts) || t.total == 0 {
			return nil, &CorruptError{Key: topicID(topicKey, id), Cause: "the topic or some of its partitions are missing"}
		}
		for n := range t.total {
			p, ok := t.parts[n]
			if !ok {
				return nil, &CorruptError{Key: numberKey(partitionKey, id[:], n), Cause: "the partition is missing"}
			}
			t.topic.Partitions = append(t.topic.Partitions, p)
		}
		i.parts += len(t.parts)
		if _, double := name.Insert([]byte(t.topic.Name), t.topic); double {
			return nil, &CorruptError{Key: topicID(topicKey, id), Cause: "two topics have this name"}
		}
		byID.Insert(id[:], t.topic)
	}
	i.byName, i.byID = name.Commit(), byID.Commit()
	for id, t := range l.pending {
		p := &pending{topic: t.topic, total: t.total, first: t.first}
		for n := t.first; n < t.first+int32(len(t.parts)); n++ {
			part, ok := t.parts[n]
			if !ok {
				return nil, &CorruptError{Key: numberKey(pendingPart, id[:], n), Cause: "the partition is missing"}
			}
			p.partitions = append(p.partitions, part)
		}
		if t.total == 0 {
			return nil, &CorruptError{Key: topicID(pendingKey, id), Cause: "the entry is missing"}
		}
		if i.pending == nil {
			i.pending = map[cluster.TopicID]*pending{}
		}
		i.pending[id] = p
	}
	return i, nil
}
