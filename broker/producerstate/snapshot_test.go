package producerstate_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// testdata/kafka.snapshot was written by Apache Kafka 4.4.0's own classes.
func TestReadsAndWritesKafkasSnapshot(t *testing.T) {
	data, err := os.ReadFile("testdata/kafka.snapshot")
	require.NoError(t, err)
	m := producerstate.New(producerstate.Config{})
	require.NoError(t, m.Load(data, 130, start))
	require.EqualValues(t, 130, m.MapEnd())
	require.Equal(t, []producerstate.Entry{
		{ProducerID: 1, ProducerEpoch: 0, CoordinatorEpoch: -1, LastSequence: 9, LastOffset: 109, LastTimestamp: 1700000000001, CurrentTxnFirst: -1},
		{ProducerID: 2, ProducerEpoch: 5, CoordinatorEpoch: 7, LastSequence: 3, LastOffset: 124, LastTimestamp: 1700000000002, CurrentTxnFirst: 120},
		{ProducerID: 3, ProducerEpoch: 1, CoordinatorEpoch: 2, LastSequence: -1, LastOffset: -1, LastTimestamp: 1700000000003, CurrentTxnFirst: -1},
	}, m.Entries())
	require.Equal(t, data, m.Snapshot(), "byte for byte")
	first, ok := m.FirstUnstableOffset()
	require.True(t, ok)
	require.EqualValues(t, 120, first)

	v, err := m.Check(batch(2, 5, 2147483647, 5, true)) // wrapped within the batch
	require.NoError(t, err)
	require.Equal(t, producerstate.Verdict{Duplicate: true, BaseOffset: 120, LastOffset: 124, Timestamp: 1700000000002}, v)
	_, err = m.Check(batch(3, 1, 0, 1, false))
	require.NoError(t, err)
	_, err = m.Check(batch(3, 1, 1, 1, false))
	require.ErrorIs(t, err, producerstate.ErrOutOfOrderSequence)
}

// PR-01 after a restart, which Kafka's snapshot alone would not survive.
func TestDuplicatesAreFoundAfterARestart(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	for i := range int32(7) {
		l.accepts(7, 2, i, 1)
	}
	l.accepts(8, 0, 0, 2)
	_, err := l.append(batch(9, 0, 0, 1, true))
	require.NoError(t, err)
	l.store(marker(10, 0, 4, recordbatch.ControlAbort))

	restarted := producerstate.New(producerstate.Config{})
	require.NoError(t, restarted.Load(l.m.Snapshot(), l.m.MapEnd(), l.now))
	require.Equal(t, l.m.Entries(), restarted.Entries())
	require.Equal(t, l.m.Snapshot(), restarted.Snapshot())
	l.m = restarted
	for i := int32(2); i < 7; i++ {
		l.duplicate(cluster.Offset(i), 7, 2, i, 1)
	}
	l.refuses(producerstate.ErrOutOfOrderSequence, 7, 2, 1, 1)
	l.duplicate(7, 8, 0, 0, 2)
	require.EqualValues(t, 9, l.unstable())
	require.Zero(t, restarted.Expire(l.now), "a restart does not make producers older")
}

func TestGoldenSnapshotWithHistory(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	for i := range int32(3) {
		l.accepts(7, 2, i, 1)
	}
	l.accepts(8, 0, 0, 2)
	golden, err := os.ReadFile("testdata/history.snapshot")
	require.NoError(t, err)
	require.Equal(t, golden, l.m.Snapshot())
}

func TestEmptySnapshot(t *testing.T) {
	m := producerstate.New(producerstate.Config{})
	data := m.Snapshot()
	require.Len(t, data, 10)
	require.NoError(t, m.Load(data, 5, start))
	require.Zero(t, m.Len())
	require.EqualValues(t, 5, m.MapEnd())
}

// sealSnapshot computes the checksum again.
func sealSnapshot(data []byte) []byte {
	if len(data) >= 6 {
		binary.BigEndian.PutUint32(data[2:], crc32.Checksum(data[6:], crc32.MakeTable(crc32.Castagnoli)))
	}
	return data
}

func TestLoadRefusesDamageAndKeepsTheState(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	for i := range int32(3) {
		l.accepts(7, 2, i, 1)
	}
	l.accepts(8, 0, 0, 2)
	good := l.m.Snapshot()
	before := l.m.Entries()

	refuse := func(data []byte, what string, args ...any) {
		t.Helper()
		err := l.m.Load(data, 99, start)
		require.ErrorIs(t, err, producerstate.ErrCorruptSnapshot, append([]any{what}, args...)...)
		var at *producerstate.SnapshotError
		require.ErrorAs(t, err, &at)
		require.Equal(t, before, l.m.Entries())
		require.EqualValues(t, 5, l.m.MapEnd())
	}
	history := 10 + 2*46
	for n := range good {
		refuse(good[:n], "cut to %d bytes", n)
		if n < history || n >= history+9 {
			refuse(sealSnapshot(bytes.Clone(good[:n])), "cut to %d bytes and sealed", n)
		}
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		refuse(bad, "byte %d", i)
	}
	patch := func(pos int, v ...byte) []byte {
		bad := bytes.Clone(good)
		copy(bad[pos:], v)
		return sealSnapshot(bad)
	}
	refuse(patch(0, 0, 2), "version")
	refuse(patch(6, 0xff, 0xff, 0xff, 0xff), "count")
	refuse(patch(6, 0, 0, 0, 9), "count")
	refuse(patch(10, 0xff), "negative producer")
	refuse(patch(17, 8), "the same producer twice")
	refuse(patch(history+5, 0, 0, 0, 2), "count of the earlier batches")
	refuse(patch(history+16, 9), "earlier batches of a producer without any")
	refuse(patch(history+17, 0), "no earlier batches")
	refuse(patch(history+17, 5), "too many earlier batches")
	require.NoError(t, l.m.Load(patch(history+4, 2), 5, start), "a later version is passed over")
	require.NoError(t, l.m.Load(patch(history, 0), 5, start), "so is what is not ours")
}

// Each kind of damage is named where it is, in entries alone and behind them.
func TestDamageIsNamed(t *testing.T) {
	kafkas, err := os.ReadFile("testdata/kafka.snapshot")
	require.NoError(t, err)
	ours, err := os.ReadFile("testdata/history.snapshot")
	require.NoError(t, err)
	history := 10 + 2*46
	for _, c := range []struct {
		data     []byte
		at       int
		bytes    []byte
		seal     bool
		position int
		cause    string
	}{
		{kafkas, 0, []byte{0, 2}, false, 0, "unknown version 2"},
		{kafkas, 2, []byte{0, 0, 0, 0}, false, 2, "checksum mismatch"},
		{kafkas, 6, []byte{0, 0, 0, 4}, true, 10, "cut short in 4 entries"},
		{kafkas, 10, []byte{0xff}, true, 18, "negative or twice"},
		{kafkas, 10 + 46 + 7, []byte{1}, true, 10 + 46 + 8, "producer 1 negative or twice"},
		{append(bytes.Clone(ours), make([]byte, 3*24)...), history + 17, []byte{5}, true, history + 18, "5 earlier batches of producer 7"},
	} {
		data := bytes.Clone(c.data)
		copy(data[c.at:], c.bytes)
		if c.seal {
			data = sealSnapshot(data)
		}
		err := producerstate.New(producerstate.Config{}).Load(data, 1, start)
		require.ErrorContains(t, err, c.cause)
		var at *producerstate.SnapshotError
		require.ErrorAs(t, err, &at)
		require.Equal(t, c.position, at.Position, c.cause)
	}
}

func TestSnapshotIsInOrderOfIDs(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	for id := cluster.ProducerID(20); id > 0; id-- {
		l.accepts(id, 0, 0, 1)
	}
	data := l.m.Snapshot()
	for i := range 20 {
		require.EqualValues(t, i+1, binary.BigEndian.Uint64(data[10+46*i:]))
	}
}

// FuzzLoad: no bytes panic; what loads is written and loaded as the same.
func FuzzLoad(f *testing.F) {
	for _, name := range []string{"kafka", "history"} {
		data, err := os.ReadFile("testdata/" + name + ".snapshot")
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := producerstate.New(producerstate.Config{})
		if m.Load(sealSnapshot(bytes.Clone(data)), 1, start) != nil {
			return
		}
		snapshot := m.Snapshot()
		again := producerstate.New(producerstate.Config{})
		if err := again.Load(snapshot, 1, start); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(snapshot, again.Snapshot()) {
			t.Fatal("not the same again")
		}
	})
}
