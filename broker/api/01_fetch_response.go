package api

import (
	"encoding/binary"

	"strandline/broker/partition"
	"strandline/broker/producerstate"
	"strandline/broker/wire"
	"strandline/metadata/cluster"
)

// write encodes the response, which is made here and not by kmsg because its
// records are file regions. It takes over every region (A1).
func (f *fetching) write(out *wire.Out) {
	e := fetchEncoder{f: f, out: out, version: f.req.Version, flexible: f.req.Version >= 12}
	out.Begin(f.header.CorrelationID, e.flexible)
	if e.version >= 1 {
		e.int32(0) // throttle
	}
	id := f.answerSession()
	if e.version >= 7 {
		e.int16(f.code)
		e.int32(id)
	}
	if f.code != codeNone {
		f.release()
		f.parts = nil
	}
	e.arrayLen(topicCount(f.parts))
	for parts := f.parts; len(parts) > 0; {
		var topic []fetchPart
		topic, parts = ofOneTopic(parts)
		e.topic(topic)
	}
	e.leaders()
	out.End()
}

// ofOneTopic takes the next partitions of one topic that are in the answer; nothing
// where none are left.
func ofOneTopic(parts []fetchPart) (topic, rest []fetchPart) {
	for len(parts) > 0 && parts[0].left {
		parts = parts[1:]
	}
	end := 0
	for end < len(parts) && !parts[end].left && parts[end].key.ID == parts[0].key.ID && parts[end].key.Name == parts[0].key.Name {
		end++
	}
	return parts[:end], parts[end:]
}

func topicCount(parts []fetchPart) int {
	n := 0
	for len(parts) > 0 {
		var topic []fetchPart
		if topic, parts = ofOneTopic(parts); len(topic) > 0 {
			n++
		}
	}
	return n
}

func (e *fetchEncoder) topic(parts []fetchPart) {
	if len(parts) == 0 {
		return
	}
	if e.version >= 13 {
		e.out.Buf = append(e.out.Buf, parts[0].key.ID[:]...)
	} else {
		e.string(parts[0].key.Name)
	}
	e.arrayLen(len(parts))
	for i := range parts {
		e.part(parts[i].key.Partition, &parts[i])
	}
	e.noTags()
}

type fetchEncoder struct {
	f        *fetching
	out      *wire.Out
	version  int16
	flexible bool
	others   []cluster.BrokerID // leaders that the response names
}

func (e *fetchEncoder) part(index int32, p *fetchPart) {
	if p.code == codeNone && p.known {
		mark := e.out.Mark()
		if e.found(index, p) {
			return
		}
		e.out.Rollback(mark)
		p.code = codeKafkaStorageError
	}
	p.result.Release()
	e.int32(index)
	e.int16(p.code)
	e.int64(-1)
	if e.version >= 4 {
		e.int64(-1)
	}
	if e.version >= 5 {
		e.int64(-1)
	}
	e.aborted(nil, false)
	if e.version >= 11 {
		e.int32(int32(cluster.NoBroker)) // preferred read replica
	}
	e.bytesLen(0)
	e.leaderTag(p)
}

// found encodes a partition that was read; false where a region could not be.
func (e *fetchEncoder) found(index int32, p *fetchPart) bool {
	r := &p.result
	e.int32(index)
	e.int16(codeNone)
	e.int64(int64(r.HighWatermark))
	if e.version >= 4 {
		e.int64(int64(r.LastStableOffset))
	}
	if e.version >= 5 {
		e.int64(int64(r.LogStartOffset))
	}
	e.aborted(r.Aborted, p.read.ReadCommitted)
	if e.version >= 11 {
		e.int32(int32(cluster.NoBroker)) // preferred read replica
	}
	size := 0
	for _, region := range r.Regions {
		size += int(region.Bytes)
	}
	e.bytesLen(size)
	tier := wire.LocalTier
	if r.Tier == partition.Remote {
		tier = wire.RemoteTier
	}
	for len(r.Regions) > 0 {
		region := r.Regions[0]
		r.Regions = r.Regions[1:]
		if err := e.out.Place(region, tier); err != nil {
			e.f.h.cfg.Logger.Error("fetch failed", "error", err)
			r.Release()
			return false
		}
	}
	if !e.flexible {
		return true
	}
	if r.Diverging == nil {
		e.noTags()
		return true
	}
	e.uvarint(1) // one tag: number 0, 13 bytes
	e.uvarint(0)
	e.uvarint(13)
	e.int32(int32(r.Diverging.LeaderEpoch))
	e.int64(int64(r.Diverging.EndOffset))
	e.uvarint(0)
	return true
}

// aborted encodes the aborted transactions; null for a reader of everything and
// where there is an error.
func (e *fetchEncoder) aborted(txns []producerstate.AbortedTxn, committed bool) {
	if e.version < 4 {
		return
	}
	if !committed {
		if e.flexible {
			e.uvarint(0)
		} else {
			e.int32(-1)
		}
		return
	}
	e.arrayLen(len(txns))
	for _, t := range txns {
		e.int64(int64(t.ProducerID))
		e.int64(int64(t.First))
		e.noTags()
	}
}

// leaderTag names the present leader to whoever asked the wrong broker.
func (e *fetchEncoder) leaderTag(p *fetchPart) {
	if !e.flexible {
		return
	}
	if e.version < 16 || p.image == nil || p.code != codeNotLeaderOrFollower && p.code != codeFencedLeaderEpoch {
		e.uvarint(0)
		return
	}
	e.uvarint(1) // one tag: number 1, 9 bytes
	e.uvarint(1)
	e.uvarint(9)
	e.int32(int32(p.image.Leader))
	e.int32(int32(p.image.LeaderEpoch))
	e.uvarint(0)
	for _, id := range e.others {
		if id == p.image.Leader {
			return
		}
	}
	e.others = append(e.others, p.image.Leader)
}

// leaders ends the response with the endpoints of the leaders named in it.
func (e *fetchEncoder) leaders() {
	if !e.flexible {
		return
	}
	var found []endpoint
	for _, id := range e.others {
		if b, ok := endpointOf(e.f.img, id, ""); ok {
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		e.uvarint(0)
		return
	}
	body := fetchEncoder{out: &wire.Out{}, flexible: true}
	body.arrayLen(len(found))
	for _, b := range found {
		body.int32(b.id)
		body.string(b.host)
		body.int32(b.port)
		if b.rack == nil {
			body.uvarint(0)
		} else {
			body.string(*b.rack)
		}
		body.uvarint(0)
	}
	e.uvarint(1)
	e.uvarint(0)
	e.uvarint(len(body.out.Buf))
	e.out.Buf = append(e.out.Buf, body.out.Buf...)
}

func (e *fetchEncoder) int16(v int16) {
	e.out.Buf = binary.BigEndian.AppendUint16(e.out.Buf, uint16(v))
}

func (e *fetchEncoder) int32(v int32) {
	e.out.Buf = binary.BigEndian.AppendUint32(e.out.Buf, uint32(v))
}

func (e *fetchEncoder) int64(v int64) {
	e.out.Buf = binary.BigEndian.AppendUint64(e.out.Buf, uint64(v))
}

func (e *fetchEncoder) uvarint(v int) {
	e.out.Buf = binary.AppendUvarint(e.out.Buf, uint64(v))
}

func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.uvarint(0)
	}
}

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.uvarint(len(s) + 1)
	} else {
		e.int16(int16(len(s)))
	}
	e.out.Buf = append(e.out.Buf, s...)
}

func (e *fetchEncoder) arrayLen(n int) {
	if e.flexible {
		e.uvarint(n + 1)
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) bytesLen(n int) { e.arrayLen(n) }
