package segment

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// ErrUnknownFile: the name is not one of a file of a log directory.
var ErrUnknownFile = errors.New("not a file of a log directory: want a base offset of 20 digits and " +
	strings.Join([]string{LogSuffix, IndexSuffix, TimeIndexSuffix, TxnIndexSuffix, SnapshotSuffix}, ", ") + ", or " + EpochsName)

// Item is a thing in a file that Dump reads; of the pointers one is set.
type Item struct {
	// Position is where it starts in the file; for a Record its batch's.
	Position int64
	Batch    recordbatch.Batch
	// Record lies in Batch, of which a Dump that is deep tells before. It is
	// valid until the callback returns.
	Record   *recordbatch.Record
	Offset   *OffsetEntry
	Time     *TimeEntry
	Txn      *producerstate.AbortedTxn
	Producer *producerstate.Entry
	Epoch    *leaderepoch.Entry
}

// Dump reads one file of a log directory, ours or Kafka's, and calls emit with
// each thing in it in order. Deep it also decodes the records of a .log file,
// and compares an index with the .log file beside it, if there is one. It ends
// with the first thing that is wrong, a *CorruptError, or with emit's error.
func Dump(fs disk.FS, name string, deep bool, emit func(Item) error) error {
	bare := strings.TrimSuffix(path.Base(name), DeletedSuffix)
	if bare == EpochsName {
		return dumpEpochs(fs, name, emit)
	}
	base, suffix, ok := ParseName(bare)
	if !ok {
		return fmt.Errorf("%s: %w", name, ErrUnknownFile)
	}
	if suffix == LogSuffix {
		return dumpLog(fs, name, base, deep, emit)
	}
	data, err := disk.ReadFile(fs, name)
	if err != nil {
		return err
	}
	switch suffix {
	case IndexSuffix:
		return dumpOffsets(fs, name, data, base, deep, emit)
	case TimeIndexSuffix:
		return dumpTimes(fs, name, data, base, deep, emit)
	case TxnIndexSuffix:
		txns, err := ParseTxnIndex(data, name)
		for i := range txns {
			if err := emit(Item{Position: int64(i) * TxnEntryBytes, Txn: &txns[i]}); err != nil {
				return err
			}
		}
		return err
	}
	return dumpSnapshot(name, data, base, emit)
}

func dumpLog(fs disk.FS, name string, base cluster.Offset, deep bool, emit func(Item) error) error {
	f, err := fs.OpenReadOnly(name)
	if err != nil {
		return err
	}
	size, err := f.Size()
	var d recordbatch.Decoder
	if err == nil {
		for b, batchErr := range Batches(f, size, 0, base, name) {
			if err = batchErr; err == nil {
				err = emit(Item{Position: b.Position, Batch: b.Batch})
			}
			if err == nil && deep {
				err = dumpRecords(name, b, &d, emit)
			}
			if err != nil {
				break
			}
		}
	}
	return errors.Join(err, f.Close())
}

func dumpRecords(name string, b Located, d *recordbatch.Decoder, emit func(Item) error) error {
	for r, err := range d.Records(b.Batch) {
		if err != nil {
			return &CorruptError{name, b.Position, err}
		}
		if err := emit(Item{Position: b.Position, Batch: b.Batch, Record: &r}); err != nil {
			return err
		}
	}
	return nil
}

func dumpOffsets(fs disk.FS, name string, data []byte, base cluster.Offset, deep bool, emit func(Item) error) error {
	entries, parseErr := ParseOffsetIndex(data, base, name)
	err := besideLog(fs, name, base, deep, func(v *view) error {
		for i := range entries {
			pos := int64(i) * OffsetEntryBytes
			if v != nil {
				if err := v.checkOffset(entries[i]); err != nil {
					return entryError(name, pos, err)
				}
			}
			if err := emit(Item{Position: pos, Offset: &entries[i]}); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, parseErr)
}

func dumpTimes(fs disk.FS, name string, data []byte, base cluster.Offset, deep bool, emit func(Item) error) error {
	entries, parseErr := ParseTimeIndex(data, base, name)
	err := besideLog(fs, name, base, deep, func(v *view) error {
		for i := range entries {
			pos := int64(i) * TimeEntryBytes
			if v != nil {
				if err := v.checkTime(entries[i]); err != nil {
					return entryError(name, pos, err)
				}
			}
			if err := emit(Item{Position: pos, Time: &entries[i]}); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, parseErr)
}

// besideLog calls fn with a view of the .log file next to an index, without
// using the index, or with nil where there is none or it is not to be looked at.
func besideLog(fs disk.FS, name string, base cluster.Offset, deep bool, fn func(v *view) error) error {
	if !deep {
		return fn(nil)
	}
	s := newSegment(Where{FS: fs, Dir: path.Dir(name)}, base)
	f, err := fs.OpenReadOnly(s.logName)
	if errors.Is(err, os.ErrNotExist) {
		return fn(nil)
	}
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil {
		err = fn(&view{s: s, state: state{bytes: size}, log: f})
	}
	return errors.Join(err, f.Close())
}

// entryError is the error of an index entry that the log contradicts. A read that
// failed says nothing of the index.
func entryError(name string, position int64, err error) error {
	if errors.As(err, new(*CorruptError)) || errors.Is(err, ErrPastLog) || errors.Is(err, errIndexLies) {
		return &CorruptError{name, position, err}
	}
	return err
}

// checkOffset compares an offset index entry with the batch at its position (S1).
func (v *view) checkOffset(e OffsetEntry) error {
	if e.Position >= v.bytes {
		return fmt.Errorf("position %d of %d bytes: %w", e.Position, v.bytes, ErrPastLog)
	}
	w := v.walk(e.Position)
	defer w.close()
	if !w.next() {
		return w.err
	}
	if w.h.Next-1 != e.Offset {
		return fmt.Errorf("offset %d, the batch at position %d ends at %d: %w", e.Offset, e.Position, w.h.Next-1, errIndexLies)
	}
	return nil
}

// checkTime compares a time index entry with the batches up to its offset (S2).
func (v *view) checkTime(e TimeEntry) error {
	w := v.walk(0)
	defer w.close()
	greatest := noTimestamp
	for w.next() {
		if greatest = max(greatest, w.h.MaxTimestamp); w.h.Next > e.Offset {
			break
		}
	}
	if w.err != nil {
		return w.err
	}
	if greatest != e.Timestamp {
		return fmt.Errorf("timestamp %d, the greatest up to offset %d is %d: %w", e.Timestamp, e.Offset, greatest, errIndexLies)
	}
	return nil
}

func dumpSnapshot(name string, data []byte, at cluster.Offset, emit func(Item) error) error {
	m := producerstate.New(producerstate.Config{ProducersMax: len(data) + 1})
	if err := m.Load(data, at, time.Time{}); err != nil {
		var where *producerstate.SnapshotError
		if errors.As(err, &where) {
			return &CorruptError{name, int64(where.Position), err}
		}
		return &CorruptError{name, 0, err}
	}
	for _, e := range m.Entries() {
		if err := emit(Item{Producer: &e}); err != nil {
			return err
		}
	}
	return nil
}

func dumpEpochs(fs disk.FS, name string, emit func(Item) error) error {
	data, err := disk.ReadFile(fs, name)
	if err != nil {
		return err
	}
	list, err := leaderepoch.Parse(data)
	if err != nil {
		return &CorruptError{name, lineStart(data, err), err}
	}
	for _, e := range list.Entries() {
		if err := emit(Item{Epoch: &e}); err != nil {
			return err
		}
	}
	return nil
}

// lineStart is the position of the line that a checkpoint's error names.
func lineStart(data []byte, err error) int64 {
	var where *leaderepoch.ParseError
	if !errors.As(err, &where) {
		return 0
	}
	pos := 0
	for line := 1; line < where.Line && pos < len(data); pos++ {
		if data[pos] == '\n' {
			line++
		}
	}
	return int64(pos)
}

// Field is one named value of an Item.
type Field struct {
	Name  string
	Value any
}

// Fields describes the item under Kafka's names, in the order in which its
// dump-log tool prints them.
func (i Item) Fields() []Field {
	switch {
	case i.Record != nil:
		return recordFields(i.Record)
	case i.Batch != nil:
		return batchFields(i.Batch, i.Position)
	case i.Offset != nil:
		return []Field{{"offset", i.Offset.Offset}, {"position", i.Offset.Position}}
	case i.Time != nil:
		return []Field{{"timestamp", i.Time.Timestamp}, {"offset", i.Time.Offset}}
	case i.Txn != nil:
		return []Field{{"producerId", i.Txn.ProducerID}, {"firstOffset", i.Txn.First}, {"lastOffset", i.Txn.Last}, {"lastStableOffset", i.Txn.LastStableOffset}}
	case i.Producer != nil:
		p := i.Producer
		return []Field{
			{"producerId", p.ProducerID},
			{"producerEpoch", p.ProducerEpoch},
			{"coordinatorEpoch", p.CoordinatorEpoch},
			{"currentTxnFirstOffset", p.CurrentTxnFirst},
			{"lastTimestamp", p.LastTimestamp},
			{"lastSequence", p.LastSequence},
			{"lastOffset", p.LastOffset},
		}
	case i.Epoch != nil:
		return []Field{{"leaderEpoch", i.Epoch.Epoch}, {"startOffset", i.Epoch.Start}}
	}
	return nil
}

func batchFields(b recordbatch.Batch, position int64) []Field {
	timestamp := "CreateTime"
	if b.LogAppendTime() {
		timestamp = "LogAppendTime"
	}
	fields := []Field{
		{"baseOffset", b.BaseOffset()},
		{"lastOffset", b.LastOffset()},
		{"count", b.RecordCount()},
		{"baseSequence", b.BaseSequence()},
		{"lastSequence", b.LastSequence()},
		{"producerId", b.ProducerID()},
		{"producerEpoch", b.ProducerEpoch()},
		{"partitionLeaderEpoch", b.PartitionLeaderEpoch()},
		{"isTransactional", b.IsTransactional()},
		{"isControl", b.IsControl()},
	}
	if b.HasDeleteHorizon() { // compaction has been here
		fields = append(fields, Field{"deleteHorizonMs", b.FirstTimestamp()})
	}
	return append(fields,
		Field{"position", position},
		Field{timestamp, b.MaxTimestamp()},
		Field{"size", b.Bytes()},
		Field{"magic", b.Magic()},
		Field{"compresscodec", b.Compression().String()},
		Field{"crc", b.CRC()},
	)
}

func recordFields(r *recordbatch.Record) []Field {
	out := []Field{{"offset", r.Offset}, {"timestamp", r.Timestamp}, {"keySize", sizeOf(r.Key)}, {"valueSize", sizeOf(r.Value)}}
	if r.Key != nil {
		out = append(out, Field{"key", string(r.Key)})
	}
	if r.Value != nil {
		out = append(out, Field{"payload", string(r.Value)})
	}
	for _, h := range r.Headers {
		out = append(out, Field{"header." + h.Key, string(h.Value)})
	}
	return out
}

func sizeOf(p []byte) int {
	if p == nil {
		return -1
	}
	return len(p)
}

// oneLine is text as it is, or quoted where it would end the line or steer a
// terminal: headers are what clients made them.
func oneLine(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return text
	}
	return strconv.Quote(text)
}

// String is the item on one line.
func (i Item) String() string {
	var b strings.Builder
	if i.Record != nil {
		b.WriteString("| ")
	}
	for k, f := range i.Fields() {
		if k > 0 {
			b.WriteByte(' ')
		}
		switch f.Name {
		case "key", "payload":
			fmt.Fprintf(&b, "%s: %q", f.Name, f.Value)
		default:
			fmt.Fprintf(&b, "%s: %s", oneLine(f.Name), oneLine(fmt.Sprint(f.Value)))
		}
	}
	return b.String()
}
