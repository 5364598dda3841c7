package segment

import (
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
)

const indexBase cluster.Offset = 100

// TestOffsetIndexRules: S1, and where an index that breaks it is broken.
func TestOffsetIndexRules(t *testing.T) {
	for _, c := range []struct {
		name    string
		entries []OffsetEntry // relative to nothing: as they are encoded
		good    int
		cause   error
	}{
		{"none", nil, 0, nil},
		{"the base itself, at 0", []OffsetEntry{{100, 0}}, 1, nil},
		{"rising by one", []OffsetEntry{{100, 0}, {101, 1}, {102, 2}}, 3, nil},
		{"the greatest", []OffsetEntry{{100, 0}, {100 + 1<<31 - 1, 1<<31 - 1}}, 2, nil},
		{"below the base", []OffsetEntry{{101, 5}, {99, 6}}, 1, ErrUnordered},
		{"first below the base", []OffsetEntry{{99, 6}}, 0, ErrUnordered},
		{"negative position", []OffsetEntry{{101, -1}}, 0, ErrUnordered},
		{"offset twice", []OffsetEntry{{101, 5}, {101, 6}}, 1, ErrUnordered},
		{"offset falls", []OffsetEntry{{103, 5}, {102, 6}, {104, 7}}, 1, ErrUnordered},
		{"position twice", []OffsetEntry{{101, 5}, {102, 5}}, 1, ErrUnordered},
		{"position falls", []OffsetEntry{{101, 5}, {102, 4}}, 1, ErrUnordered},
		{"allocated ahead", []OffsetEntry{{101, 5}, {100, 0}, {100, 0}}, 1, nil},
		{"zeroes, then an entry", []OffsetEntry{{101, 5}, {100, 0}, {102, 6}}, 1, ErrUnordered},
		{"the second at 0", []OffsetEntry{{100, 0}, {101, 0}}, 1, ErrUnordered},
	} {
		t.Run(c.name, func(t *testing.T) {
			var data []byte
			for _, e := range c.entries {
				data = AppendOffsetEntry(data, indexBase, e)
			}
			got, err := ParseOffsetIndex(data, indexBase, "x.index")
			require.Equal(t, append([]OffsetEntry{}, c.entries[:c.good]...), got)
			requireCorrupt(t, err, "x.index", c.good*OffsetEntryBytes, c.cause)
			for cut := 1; cut < OffsetEntryBytes && c.cause == nil && c.good == len(c.entries) && c.good > 0; cut++ {
				got, err = ParseOffsetIndex(data[:len(data)-cut], indexBase, "x.index")
				require.Len(t, got, c.good-1)
				requireCorrupt(t, err, "x.index", (c.good-1)*OffsetEntryBytes, ErrPartialEntry)
			}
		})
	}
	// An index of nothing but zeroes has one entry: the base at 0.
	got, err := ParseOffsetIndex(make([]byte, 80), indexBase, "x.index")
	require.NoError(t, err)
	require.Equal(t, []OffsetEntry{{indexBase, 0}}, got)
}

// TestTimeIndexRules: S2.
func TestTimeIndexRules(t *testing.T) {
	for _, c := range []struct {
		name    string
		entries []TimeEntry
		good    int
		cause   error
	}{
		{"the base itself", []TimeEntry{{5, 100}}, 1, nil},
		{"rising by one, offsets stay", []TimeEntry{{5, 100}, {6, 100}, {7, 101}}, 3, nil},
		{"below the base", []TimeEntry{{5, 100}, {6, 99}}, 1, ErrUnordered},
		{"timestamp twice", []TimeEntry{{5, 100}, {5, 101}}, 1, ErrUnordered},
		{"timestamp falls", []TimeEntry{{5, 100}, {4, 101}}, 1, ErrUnordered},
		{"offset falls", []TimeEntry{{5, 102}, {6, 101}}, 1, ErrUnordered},
		{"allocated ahead", []TimeEntry{{5, 101}, {0, 100}, {0, 100}}, 1, nil},
		{"zeroes, then an entry", []TimeEntry{{5, 101}, {0, 100}, {6, 102}}, 1, ErrUnordered},
	} {
		t.Run(c.name, func(t *testing.T) {
			var data []byte
			for _, e := range c.entries {
				data = AppendTimeEntry(data, indexBase, e)
			}
			got, err := ParseTimeIndex(data, indexBase, "x.timeindex")
			require.Equal(t, c.entries[:c.good], got)
			requireCorrupt(t, err, "x.timeindex", c.good*TimeEntryBytes, c.cause)
			for cut := 1; cut < TimeEntryBytes && c.cause == nil && c.good == len(c.entries); cut++ {
				got, err = ParseTimeIndex(data[:len(data)-cut], indexBase, "x.timeindex")
				require.Len(t, got, c.good-1)
				requireCorrupt(t, err, "x.timeindex", (c.good-1)*TimeEntryBytes, ErrPartialEntry)
			}
		})
	}
	got, err := ParseTimeIndex(make([]byte, 120), indexBase, "x.timeindex")
	require.NoError(t, err)
	require.Equal(t, []TimeEntry{{0, indexBase}}, got)
}

func TestTxnIndexRules(t *testing.T) {
	txn := func(first, last cluster.Offset) producerstate.AbortedTxn {
		return producerstate.AbortedTxn{ProducerID: 7, First: first, Last: last, LastStableOffset: last + 1}
	}
	for _, c := range []struct {
		name    string
		entries []producerstate.AbortedTxn
		version int // of the entry that is bad
		good    int
		cause   error
	}{
		{"rising", []producerstate.AbortedTxn{txn(5, 5), txn(1, 6), txn(0, 9)}, 0, 3, nil},
		{"a marker before its first record", []producerstate.AbortedTxn{txn(5, 6), txn(8, 7)}, 0, 1, ErrUnordered},
		{"a marker twice", []producerstate.AbortedTxn{txn(5, 6), txn(5, 6)}, 0, 1, ErrUnordered},
		{"markers fall", []producerstate.AbortedTxn{txn(5, 6), txn(4, 5)}, 0, 1, ErrUnordered},
		{"a later version", []producerstate.AbortedTxn{txn(5, 6), txn(4, 7)}, 1, 1, ErrBadVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := encodeTxns(c.entries)
			if c.version != 0 {
				data[c.good*TxnEntryBytes+1] = byte(c.version)
			}
			got, err := ParseTxnIndex(data, "x.txnindex")
			require.Equal(t, c.entries[:c.good], got)
			requireCorrupt(t, err, "x.txnindex", c.good*TxnEntryBytes, c.cause)
			got, err = ParseTxnIndex(data[:c.good*TxnEntryBytes-1], "x.txnindex")
			require.Len(t, got, c.good-1)
			requireCorrupt(t, err, "x.txnindex", (c.good-1)*TxnEntryBytes, ErrPartialEntry)
		})
	}
	_, err := ParseTxnIndex(encodeTxns([]producerstate.AbortedTxn{txn(5, 6), txn(4, 5)}), "x.txnindex")
	require.ErrorContains(t, err, "last offset 5 after 6")
}

func requireCorrupt(t *testing.T, err error, file string, position int, cause error) {
	t.Helper()
	if cause == nil {
		require.NoError(t, err)
		return
	}
	var corrupt *CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.ErrorIs(t, err, cause)
	require.Equal(t, file, corrupt.File)
	require.EqualValues(t, position, corrupt.Position)
}
