package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/disk"
)

// TestDumpOfKafkasFiles keeps what a dump says, line by line, of what Apache Kafka
// 4.4.0 wrote: "dump FILE [deep]", or "cut FILE BYTES" for a dump of its front.
func TestDumpOfKafkasFiles(t *testing.T) {
	fs := disk.NewCrash(1)
	require.NoError(t, fs.MkdirAll(testDir))
	datadriven.RunTest(t, filepath.Join("testdata", "dump"), func(t *testing.T, d *datadriven.TestData) string {
		name := filepath.Join("testdata", d.CmdArgs[0].String())
		data, err := disk.ReadFile(disk.OS(), name)
		require.NoError(t, err)
		var out strings.Builder
		emit := func(i Item) error {
			fmt.Fprintf(&out, "%d: %s\n", i.Position, i)
			return nil
		}
		deep := false
		switch d.Cmd {
		case "dump":
			deep = d.HasArg("deep")
			err = Dump(disk.OS(), name, deep, emit)
		case "cut":
			var n int
			d.ScanArgs(t, "bytes", &n)
			name = testDir + "/" + filepath.Base(name)
			require.NoError(t, disk.WriteFileUnsynced(fs, name, data[:n]))
			err = Dump(fs, name, true, emit)
		case "replace":
			var from, to string
			d.ScanArgs(t, "from", &from)
			d.ScanArgs(t, "to", &to)
			name = testDir + "/" + filepath.Base(name)
			require.NoError(t, disk.WriteFileUnsynced(fs, name, []byte(strings.ReplaceAll(string(data), from, to))))
			err = Dump(fs, name, true, emit)
		default:
			d.Fatalf(t, "no such command")
		}
		if err != nil {
			fmt.Fprintf(&out, "error: %v\n", err)
		}
		return out.String()
	})
}

func TestItemsOnOneLine(t *testing.T) {
	b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: 7, LogAppendTime: true, AppendTimestamp: 99})
	b.Add(5, nil, []byte("v"), recordbatch.Header{Key: "h", Value: []byte("1")})
	b.Add(6, []byte{}, nil)
	w := testWhere(t)
	name := testDir + "/" + Name(7, LogSuffix) + DeletedSuffix
	require.NoError(t, disk.WriteFileUnsynced(w.FS, name, b.Build()))
	var lines []string
	require.NoError(t, Dump(w.FS, name, true, func(i Item) error {
		lines = append(lines, i.String())
		return nil
	}))
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], "baseOffset: 7 lastOffset: 8 count: 2 ")
	require.Contains(t, lines[0], " LogAppendTime: 99 ")
	require.Equal(t, `| offset: 7 timestamp: 99 keySize: -1 valueSize: 1 payload: "v" header.h: 1`, lines[1])
	require.Equal(t, `| offset: 8 timestamp: 99 keySize: 0 valueSize: -1 key: ""`, lines[2])
	require.Empty(t, Item{}.Fields())
	require.NotContains(t, lines[0], "deleteHorizonMs")

	marked := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: 7, DeleteHorizon: 1234})
	marked.Add(5, []byte("k"), nil)
	batch := recordbatch.Batch(marked.Build())
	require.Contains(t, Item{Batch: batch}.String(), " isControl: false deleteHorizonMs: 1234 position: 0 CreateTime: 5 ")

	odd := Item{Record: &recordbatch.Record{Key: []byte("\n\xff"), Headers: []recordbatch.Header{{Key: "a\tb", Value: []byte("\x1b[31m")}}}}
	require.Equal(t, `| offset: 0 timestamp: 0 keySize: 2 valueSize: -1 key: "\n\xff" "header.a\tb": "\x1b[31m"`, odd.String())
}

// TestDumpEndsWithItsReader: an error of the callback ends the dump at once.
func TestDumpEndsWithItsReader(t *testing.T) {
	enough := errors.New("enough")
	const sample = "testdata/kafka-4.4.0-transactions"
	for _, name := range []string{
		Name(0, LogSuffix), Name(0, IndexSuffix), Name(0, TimeIndexSuffix), Name(64, TxnIndexSuffix), Name(56, SnapshotSuffix), EpochsName,
	} {
		total := 0
		require.NoError(t, Dump(disk.OS(), filepath.Join(sample, name), true, func(Item) error { total++; return nil }))
		for most := 1; most <= total; most++ {
			n := 0
			err := Dump(disk.OS(), filepath.Join(sample, name), true, func(Item) error {
				if n++; n == most {
					return enough
				}
				return nil
			})
			require.ErrorIs(t, err, enough, name)
			require.Equal(t, most, n, name)
		}
	}
	for _, name := range []string{Name(999, LogSuffix), Name(999, IndexSuffix), Name(999, SnapshotSuffix), EpochsName} {
		require.ErrorIs(t, Dump(disk.OS(), filepath.Join(t.TempDir(), name), true, nil), os.ErrNotExist)
	}
}

// TestDumpOfRecordsThatAreNone: a batch whose checksum is right and whose records
// are not ends a deep dump, and no other.
func TestDumpOfRecordsThatAreNone(t *testing.T) {
	first, second := batchAtOffset(7, 2, 5), batchAtOffset(9, 2, 5)
	second[recordbatch.HeaderBytes] = 0x7f // the first record's length: negative
	binary.BigEndian.PutUint32(second[17:], crc32.Checksum(second[21:], crc32.MakeTable(crc32.Castagnoli)))
	w := testWhere(t)
	name := testDir + "/" + Name(7, LogSuffix)
	require.NoError(t, disk.WriteFileUnsynced(w.FS, name, append(first, second...)))
	n := 0
	count := func(Item) error { n++; return nil }
	requireCorrupt(t, Dump(w.FS, name, true, count), name, len(first), recordbatch.ErrBadRecord)
	require.Equal(t, 2+2+0, n)
	n = 0
	require.NoError(t, Dump(w.FS, name, false, count))
	require.Equal(t, 2, n)
}

// TestDeepDumpComparesIndexesWithTheLog: entry by entry, and where there is no log
// or it is not asked for, not.
func TestDeepDumpComparesIndexesWithTheLog(t *testing.T) {
	ignore := func(Item) error { return nil }
	for _, suffix := range []string{IndexSuffix, TimeIndexSuffix} {
		w := testWhere(t)
		s := sealedAndSynced(t, w)
		name := testDir + "/" + Name(0, suffix)
		good, err := disk.ReadFile(w.FS, name)
		require.NoError(t, err)
		width := map[string]int{IndexSuffix: OffsetEntryBytes, TimeIndexSuffix: TimeEntryBytes}[suffix]
		rises := func(data []byte) bool {
			if suffix == IndexSuffix {
				_, err = ParseOffsetIndex(data, 0, name)
			} else {
				_, err = ParseTimeIndex(data, 0, name)
			}
			return err == nil
		}
		for at := 0; at < len(good); at += width {
			// The last byte of the offset, or of the timestamp.
			bad := append([]byte(nil), good...)
			bad[at+width-5]--
			if !rises(bad) {
				bad[at+width-5] += 2
			}
			require.NoError(t, disk.WriteFileUnsynced(w.FS, name, bad))
			err := Dump(w.FS, name, true, ignore)
			require.ErrorIs(t, err, errIndexLies)
			requireCorrupt(t, err, name, at, errIndexLies)
			if suffix == IndexSuffix {
				e, last := decodeOffsetEntry(bad[at:], 0), decodeOffsetEntry(good[at:], 0).Offset
				require.ErrorContains(t, err, fmt.Sprintf("offset %d, the batch at position %d ends at %d:", e.Offset, e.Position, last))
			}
			require.NoError(t, Dump(w.FS, name, false, ignore))
		}
		if suffix == IndexSuffix {
			past := AppendOffsetEntry(good[:len(good):len(good)], 0, OffsetEntry{9000, s.Bytes()})
			require.NoError(t, disk.WriteFileUnsynced(w.FS, name, past))
			err := Dump(w.FS, name, true, ignore)
			requireCorrupt(t, err, name, len(good), ErrPastLog)
			require.ErrorContains(t, err, fmt.Sprintf("position %d of %d bytes", s.Bytes(), s.Bytes()))
		}
		bad := append([]byte(nil), good...)
		bad[width-5]--
		require.NoError(t, disk.WriteFileUnsynced(w.FS, name, bad))
		require.NoError(t, w.FS.Remove(s.logName))
		require.NoError(t, Dump(w.FS, name, true, ignore), "no log to compare with")
	}
}
