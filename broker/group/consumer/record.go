package consumer

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"

	"strandline/broker/group"
	"strandline/metadata/cluster"
)

// kind is the type of a record.
type kind = group.RecordType

// The records of a group. Those of kindPartitions were written by Apache Kafka
// 4.0; here they are only deleted (KIP-1101).
const (
	kindGroup        = group.ConsumerGroupMetadataRecord
	kindPartitions   = group.ConsumerPartitionMetadataRecord
	kindMember       = group.ConsumerMemberMetadataRecord
	kindTarget       = group.ConsumerTargetAssignmentMetadataRecord
	kindTargetMember = group.ConsumerTargetAssignmentMemberRecord
	kindCurrent      = group.ConsumerCurrentAssignmentRecord
	kindRegex        = group.ConsumerRegularExpressionRecord
)

// value is what a record says; nil is a tombstone.
type value interface{ encode() []byte }

// groupValue is the group's epoch and the hash of the topics that it reads, as
// they were when the epoch began.
type groupValue struct {
	epoch int32
	hash  uint64
}

// memberValue is what a member said of itself.
type memberValue struct {
	instance, rack       *string
	clientID, clientHost string
	// topics are in order, without duplicates.
	topics           []string
	regex            *string
	rebalanceTimeout time.Duration
	assignor         *string
	classic          *classicMember
}

// classicMember is what is known of a member that speaks the classic protocol.
type classicMember struct {
	sessionTimeout time.Duration
	protocols      []group.Protocol
}

// targetValue is the epoch of the target assignment and when it was computed;
// zero time: never.
type targetValue struct {
	epoch int32
	at    time.Time
}

// targetMemberValue is the target of a member.
type targetMemberValue struct{ partitions assignment }

// currentValue is where a member is on the way to its target.
type currentValue struct {
	epoch, previous    int32
	state              memberState
	assigned, revoking holding
}

// regexValue is what a regular expression matched.
type regexValue struct {
	// topics are in order, without duplicates.
	topics []string
	// version is that of Topics at the time.
	version int64
	at      time.Time
}

// partitionsValue stands for a record whose content is of no use any more.
type partitionsValue struct{}

const valueVersion = 0

func (v groupValue) encode() []byte {
	b := kbin.AppendInt16(nil, valueVersion)
	b = kbin.AppendInt32(b, v.epoch)
	if v.hash == 0 {
		return appendTag(b, nil)
	}
	return appendTag(b, kbin.AppendInt64(nil, int64(v.hash)))
}

func (v memberValue) encode() []byte {
	b := kbin.AppendInt16(nil, valueVersion)
	b = kbin.AppendCompactNullableString(b, v.instance)
	b = kbin.AppendCompactNullableString(b, v.rack)
	b = kbin.AppendCompactString(b, v.clientID)
	b = kbin.AppendCompactString(b, v.clientHost)
	b = appendStrings(b, v.topics)
	b = kbin.AppendCompactNullableString(b, v.regex)
	b = kbin.AppendInt32(b, toMillis(v.rebalanceTimeout))
	b = kbin.AppendCompactNullableString(b, v.assignor)
	// Apache Kafka takes a field that is not there for an empty struct, so that
	// null has to be said.
	if v.classic == nil {
		return appendTag(b, []byte{0})
	}
	c := []byte{1}
	c = kbin.AppendInt32(c, toMillis(v.classic.sessionTimeout))
	c = kbin.AppendCompactArrayLen(c, len(v.classic.protocols))
	for _, p := range v.classic.protocols {
		c = kbin.AppendCompactString(c, p.Name)
		c = kbin.AppendCompactBytes(c, p.Metadata)
		c = appendTag(c, nil)
	}
	return appendTag(b, appendTag(c, nil))
}

func (v targetValue) encode() []byte {
	b := kbin.AppendInt16(nil, valueVersion)
	b = kbin.AppendInt32(b, v.epoch)
	if v.at.IsZero() {
		return appendTag(b, nil)
	}
	return appendTag(b, kbin.AppendInt64(nil, v.at.UnixMilli()))
}

func (v targetMemberValue) encode() []byte {
	b := kbin.AppendInt16(nil, valueVersion)
	b = kbin.AppendCompactArrayLen(b, len(v.partitions))
	for _, topic := range v.partitions.topics() {
		b = kbin.AppendUuid(b, topic)
		b = appendInt32s(b, v.partitions[topic])
		b = appendTag(b, nil)
	}
	return appendTag(b, nil)
}

func (v currentValue) encode() []byte {
	b := kbin.AppendInt16(nil, valueVersion)
	b = kbin.AppendInt32(b, v.epoch)
	b = kbin.AppendInt32(b, v.previous)
	b = kbin.AppendInt8(b, int8(v.state))
	b = appendHolding(b, v.assigned)
	b = appendHolding(b, v.revoking)
	return appendTag(b, nil)
}

func (v regexValue) encode() []byte {
	b := kbin.AppendInt16(nil, valueVersion)
	b = appendStrings(b, v.topics)
	b = kbin.AppendInt64(b, v.version)
	b = kbin.AppendInt64(b, v.at.UnixMilli())
	return appendTag(b, nil)
}

func (partitionsValue) encode() []byte {
	return appendTag(kbin.AppendCompactArrayLen(kbin.AppendInt16(nil, valueVersion), 0), nil)
}

// decodeValue decodes the value of a record of kind k.
func decodeValue(k kind, b []byte) (value, error) {
	if b == nil {
		return nil, nil
	}
	r := valueReader{Reader: kbin.Reader{Src: b}}
	if v := r.Int16(); v != valueVersion && r.Ok() {
		return nil, fmt.Errorf("%w: value of type %d and version %d", group.ErrUnknownRecord, k, v)
	}
	var v value
	switch k {
	case kindGroup:
		v = r.group()
	case kindPartitions:
		return partitionsValue{}, nil
	case kindMember:
		v = r.member()
	case kindTarget:
		v = r.target()
	case kindTargetMember:
		v = r.targetMember()
	case kindCurrent:
		v = r.current()
	case kindRegex:
		v = r.regex()
	default:
		return nil, fmt.Errorf("%w: value of type %d", group.ErrUnknownRecord, k)
	}
	if r.bad || !r.Ok() {
		return nil, fmt.Errorf("%w: value of type %d", group.ErrMalformedRecord, k)
	}
	return v, nil
}

// valueReader is a kbin.Reader for the values. It is bad after what a kbin.Reader
// lets pass: null where none may be.
type valueReader struct {
	kbin.Reader
	bad bool
}

func (r *valueReader) group() value {
	v := groupValue{epoch: r.Int32()}
	r.tags(func(t *valueReader) { v.hash = uint64(t.Int64()) })
	return v
}

func (r *valueReader) member() value {
	v := memberValue{
		instance: r.CompactNullableString(), rack: r.CompactNullableString(),
		clientID: r.CompactString(), clientHost: r.CompactString(),
		topics: r.names(), regex: r.CompactNullableString(),
		rebalanceTimeout: fromMillis(r.Int32()), assignor: r.CompactNullableString(),
	}
	r.tags(func(t *valueReader) {
		if t.Uvarint() == 0 {
			return
		}
		v.classic = &classicMember{sessionTimeout: fromMillis(t.Int32())}
		for range t.array() {
			p := group.Protocol{Name: t.CompactString(), Metadata: slices.Clone(t.CompactBytes())}
			t.tags(nil)
			v.classic.protocols = append(v.classic.protocols, p)
		}
		t.tags(nil)
	})
	return v
}

func (r *valueReader) target() value {
	v := targetValue{epoch: r.Int32()}
	r.tags(func(t *valueReader) {
		if at := t.Int64(); at != 0 {
			v.at = time.UnixMilli(at)
		}
	})
	return v
}

func (r *valueReader) targetMember() value {
	v := targetMemberValue{partitions: assignment{}}
	for range r.array() {
		topic := cluster.TopicID(r.Uuid())
		v.partitions[topic] = append(v.partitions[topic], r.int32s()...)
		r.tags(nil)
	}
	r.tags(nil)
	v.partitions.normalize()
	return v
}

func (r *valueReader) current() value {
	v := currentValue{epoch: r.Int32(), previous: r.Int32(), state: memberState(r.Int8())}
	if v.state < stable || v.state > unreleased {
		v.state = unknown
	}
	v.assigned, v.revoking = r.holding(v.epoch), r.holding(v.epoch)
	r.tags(nil)
	return v
}

func (r *valueReader) regex() value {
	v := regexValue{topics: r.names(), version: r.Int64(), at: time.UnixMilli(r.Int64())}
	r.tags(nil)
	return v
}

// holding reads partitions with the epochs that they were assigned at; those
// without one, as Apache Kafka wrote them before 4.3, have the member's.
func (r *valueReader) holding(memberEpoch int32) holding {
	h := holding{}
	for range r.array() {
		topic := cluster.TopicID(r.Uuid())
		partitions := r.int32s()
		var epochs []int32
		r.tags(func(t *valueReader) {
			if n := t.nullableArray(); n >= 0 {
				epochs = t.int32sOf(n)
			}
		})
		for i, p := range partitions {
			epoch := max(memberEpoch, 0)
			if len(epochs) == len(partitions) {
				epoch = epochs[i]
			}
			h.add(topic, p, epoch)
		}
	}
	return h
}

// names reads strings as a set: in order, without duplicates.
func (r *valueReader) names() []string {
	var names []string
	for range r.array() {
		names = append(names, r.CompactString())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (r *valueReader) int32s() []int32 { return r.int32sOf(r.array()) }

func (r *valueReader) int32sOf(n int) []int32 {
	if n > len(r.Src)/4 {
		r.bad = true
		return nil
	}
	list := make([]int32, n)
	for i := range list {
		list[i] = r.Int32()
	}
	return list
}

// array reads the length of an array, no more than the bytes that are left.
func (r *valueReader) array() int {
	n := r.nullableArray()
	if n < 0 {
		r.bad = true
		return 0
	}
	return n
}

func (r *valueReader) nullableArray() int {
	n := int64(r.Uvarint()) - 1
	if n > int64(len(r.Src)) {
		r.bad = true
		return 0
	}
	return int(n)
}

// tags reads tagged fields; zero gets the content of tag 0, the others are
// passed over.
func (r *valueReader) tags(zero func(*valueReader)) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		tag := r.Uvarint()
		t := valueReader{Reader: kbin.Reader{Src: r.Span(int(r.Uvarint()))}}
		if tag != 0 || zero == nil || !r.Ok() {
			continue
		}
		zero(&t)
		r.bad = r.bad || t.bad || !t.Ok()
	}
}

// appendTag appends the tagged fields: tag 0 with that content, or none.
func appendTag(b, zero []byte) []byte {
	if zero == nil {
		return append(b, 0)
	}
	b = append(b, 1, 0)
	b = kbin.AppendUvarint(b, uint32(len(zero)))
	return append(b, zero...)
}

func appendStrings(b []byte, list []string) []byte {
	b = kbin.AppendCompactArrayLen(b, len(list))
	for _, s := range list {
		b = kbin.AppendCompactString(b, s)
	}
	return b
}

func appendInt32s(b []byte, list []int32) []byte {
	b = kbin.AppendCompactArrayLen(b, len(list))
	for _, n := range list {
		b = kbin.AppendInt32(b, n)
	}
	return b
}

func appendHolding(b []byte, h holding) []byte {
	b = kbin.AppendCompactArrayLen(b, len(h))
	for _, topic := range h.topics() {
		partitions := h.partitions(topic)
		epochs := make([]int32, len(partitions))
		for i, p := range partitions {
			epochs[i] = h[topic][p]
		}
		b = kbin.AppendUuid(b, topic)
		b = appendInt32s(b, partitions)
		b = appendTag(b, appendInt32s(nil, epochs))
	}
	return b
}

const noTimeout = -time.Millisecond

func toMillis(d time.Duration) int32 {
	if d < 0 {
		return -1
	}
	return int32(min(d.Milliseconds(), 1<<31-1))
}

// inMillis is t as a record keeps it.
func inMillis(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()) }

func fromMillis(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }

// nullable is nil for "".
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// text is "" for nil.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
