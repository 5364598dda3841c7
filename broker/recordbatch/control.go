package recordbatch

import (
	"encoding/binary"
	"fmt"
)

// ControlType says what a control record means.
type ControlType int16

// The markers that end a transaction. Other types exist, in logs that hold no
// client's records.
const (
	ControlAbort  ControlType = 0
	ControlCommit ControlType = 1
)

// Marker ends a producer's transaction in one partition.
type Marker struct {
	Type             ControlType
	CoordinatorEpoch int32
}

// Marker reads the marker of a control batch. It returns false for a batch that
// is none, for a control batch that compaction has emptied, and for control
// types that end no transaction.
func (b Batch) Marker() (Marker, bool, error) {
	if !b.IsControl() || b.RecordCount() == 0 {
		return Marker{}, false, nil
	}
	w := newWalk(b, b.Payload())
	if b.Compression() != None {
		p, err := new(Decoder).Payload(b)
		if err != nil {
			return Marker{}, false, err
		}
		w = newWalk(b, p)
	}
	if !w.next() {
		return Marker{}, false, w.err
	}
	key, value := w.c.key(), w.c.value()
	if len(key) < 4 {
		return Marker{}, false, fmt.Errorf("%w: control key of %d bytes", ErrBadRecord, len(key))
	}
	m := Marker{Type: ControlType(binary.BigEndian.Uint16(key[2:]))}
	if m.Type != ControlAbort && m.Type != ControlCommit {
		return Marker{}, false, nil
	}
	if len(value) < 6 {
		return Marker{}, false, fmt.Errorf("%w: control value of %d bytes", ErrBadRecord, len(value))
	}
	m.CoordinatorEpoch = int32(binary.BigEndian.Uint32(value[2:]))
	return m, true, nil
}

// NewMarkerBatch makes the control batch of a marker. Of the options it uses
// offset, leader epoch and the producer's id and epoch.
func NewMarkerBatch(o Options, timestamp int64, m Marker) Batch {
	if o.Producer != nil {
		p := *o.Producer
		p.BaseSequence = NoSequence
		o.Producer = &p
	}
	o.Codec, o.Transactional, o.Control = None, true, true
	key := binary.BigEndian.AppendUint16(make([]byte, 2, 4), uint16(m.Type))
	value := binary.BigEndian.AppendUint32(make([]byte, 2, 6), uint32(m.CoordinatorEpoch))
	b := NewBuilder(o)
	b.Add(timestamp, key, value)
	return b.Build()
}
