package segment

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// TestWhatRecoveryMakesDurable: everything, unless it is told that a later sync
// will; and at once all the same where it wrote over or cut.
func TestWhatRecoveryMakesDurable(t *testing.T) {
	for _, c := range []struct {
		name              string
		cutBytes          int
		rewrite, unsynced bool
		synced            bool
	}{
		{"by default", 0, false, false, true},
		{"left to a later sync", 0, false, true, false},
		{"written over", 0, true, true, true},
		{"cut", 5, false, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			crash := disk.NewCrash(3)
			require.NoError(t, crash.MkdirAll(testDir))
			var ops []disk.Op
			fs := disk.NewFault(crash, func(op disk.Op) error {
				ops = append(ops, op)
				return nil
			})
			w := Where{FS: fs, Dir: testDir, Handles: disk.NewHandleCache(fs, 8)}
			s, headers := write(t, w, 0, 30)
			s.Close()
			require.NoError(t, crash.SyncDir("/"))
			require.NoError(t, crash.SyncDir(testDir))
			log, err := disk.ReadFile(crash, s.logName)
			require.NoError(t, err)
			good := log[:headers[28].End()]
			if c.cutBytes == 0 {
				good = log
			}
			require.NoError(t, disk.WriteFileUnsynced(crash, s.logName, log[:len(log)-c.cutBytes]))
			txn := &producerstate.AbortedTxn{ProducerID: 3, First: headers[0].Base, Last: headers[4].Base, LastStableOffset: headers[5].Base}
			ops = nil
			s, r, err := Recover(w, 0, RecoverOptions{
				Rewrite: c.rewrite, Unsynced: c.unsynced, IntervalBytes: testInterval,
				Visit: func(b Located) (*producerstate.AbortedTxn, error) {
					if b.Position == headers[4].Position {
						return txn, nil
					}
					return nil, nil
				},
			})
			require.NoError(t, err)
			require.Equal(t, c.synced, r.Synced)
			require.Equal(t, c.cutBytes > 0, r.CutBytes > 0)
			require.Equal(t, c.cutBytes > 0, r.Cause != nil)
			require.EqualValues(t, len(good), s.Bytes())
			txns, err := s.Aborted()
			require.NoError(t, err)
			require.Equal(t, []producerstate.AbortedTxn{*txn}, txns)
			require.Equal(t, 1, s.Info().AbortedCount)
			require.Equal(t, c.rewrite, wrote(ops, disk.OpWriteAt, s.logName))

			ops = nil
			require.NoError(t, s.WriteIndexes(true))
			require.Empty(t, ops, "they are written already")
			if !c.synced {
				require.False(t, wrote(ops, disk.OpSyncData, s.logName))
				_, err = s.SyncLog()
				require.NoError(t, err)
			}
			require.NoError(t, s.SyncIndexes())
			require.Equal(t, !c.synced, len(ops) > 0, "synced just where they were not")
			require.NoError(t, crash.SyncDir(testDir))
			ops = nil
			require.NoError(t, s.SyncIndexes())
			require.Empty(t, ops)

			after := crash.Clone(nil)
			for name, want := range map[string][]byte{s.logName: good, s.txnName: AppendTxnEntry(nil, *txn)} {
				got, err := disk.ReadFile(after, name)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, got), name)
			}
			w = Where{FS: after, Dir: testDir, Handles: disk.NewHandleCache(after, 8)}
			again, err := OpenSealed(w, 0, 5000, testInterval)
			require.NoError(t, err)
			require.EqualValues(t, r.Next, again.DataEnd())
		})
	}
}

// TestRecoveryWritesWhatIsWrong: an index of the right size that says something
// else is made anew, one that is right is left alone, and a stray byte goes.
func TestRecoveryWritesWhatIsWrong(t *testing.T) {
	crash := disk.NewCrash(1)
	require.NoError(t, crash.MkdirAll(testDir))
	var ops []disk.Op
	fs := disk.NewFault(crash, func(op disk.Op) error {
		ops = append(ops, op)
		return nil
	})
	w := Where{FS: fs, Dir: testDir, Handles: disk.NewHandleCache(fs, 8)}
	s := closed(t, w)
	visit := func(b Located) (*producerstate.AbortedTxn, error) {
		if b.Position == 0 {
			return &producerstate.AbortedTxn{ProducerID: 1, First: 1, Last: 2, LastStableOffset: 3}, nil
		}
		return nil, nil
	}
	names := []string{s.logName, s.indexName, s.timeName, s.txnName}
	good := map[string][]byte{}
	for _, name := range names {
		data, err := disk.ReadFile(crash, name)
		require.NoError(t, err)
		good[name] = data
	}
	for _, damaged := range append(names[1:], "") {
		if damaged != "" {
			bad := bytes.Clone(good[damaged])
			bad[len(bad)/2] ^= 1
			require.NoError(t, disk.WriteFileUnsynced(crash, damaged, bad))
		}
		ops = nil
		s, r, err := Recover(w, 0, RecoverOptions{IntervalBytes: testInterval, Unsynced: true, Visit: visit})
		require.NoError(t, err)
		require.False(t, r.Synced)
		s.Close()
		for _, name := range names {
			require.Equal(t, name == damaged, wrote(ops, disk.OpWriteAt, name) || wrote(ops, disk.OpTruncate, name), "%s, damaged %s", name, damaged)
			data, err := disk.ReadFile(crash, name)
			require.NoError(t, err)
			require.True(t, bytes.Equal(good[name], data))
		}
	}
	require.NoError(t, disk.WriteFileUnsynced(crash, s.logName, append(bytes.Clone(good[s.logName]), 7)))
	s, r, err := Recover(w, 0, RecoverOptions{IntervalBytes: testInterval, Unsynced: true, Visit: visit})
	require.NoError(t, err)
	require.EqualValues(t, 1, r.CutBytes)
	require.True(t, r.Synced, "what was cut")
	s.Close()
	data, err := disk.ReadFile(crash, s.logName)
	require.NoError(t, err)
	require.True(t, bytes.Equal(good[s.logName], data))

	// Opened after an orderly close there is nothing to write.
	s, err = OpenActive(w, 0, testInterval)
	require.NoError(t, err)
	ops = nil
	require.NoError(t, s.Finish())
	require.NoError(t, s.SyncIndexes())
	require.Empty(t, ops)
	s.Close()
}

func wrote(ops []disk.Op, kind disk.OpKind, name string) bool {
	for _, op := range ops {
		if op.Kind == kind && op.Name == name {
			return true
		}
	}
	return false
}

// TestRecoveryWritesOverWholeFiles: Rewrite touches each byte once, in pieces.
func TestRecoveryWritesOverWholeFiles(t *testing.T) {
	crash := disk.NewCrash(1)
	require.NoError(t, crash.MkdirAll(testDir))
	for _, size := range []int{100, batchChunkBytes, batchChunkBytes + 1, 2*batchChunkBytes + 77} {
		name := testDir + "/" + Name(0, LogSuffix)
		log := sized(t, 0, size, 5)
		require.NoError(t, disk.WriteFileUnsynced(crash, name, log))
		writes := 0
		fs := disk.NewFault(crash, func(op disk.Op) error {
			if op.Kind == disk.OpWriteAt && op.Name == name {
				writes++
			}
			return nil
		})
		w := Where{FS: fs, Dir: testDir, Handles: disk.NewHandleCache(fs, 8)}
		s, _, err := Recover(w, 0, RecoverOptions{Rewrite: true, IntervalBytes: testInterval, Visit: visitAll})
		require.NoError(t, err)
		s.Close()
		require.Equal(t, (size+batchChunkBytes-1)/batchChunkBytes, writes)
		got, err := disk.ReadFile(crash, name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(log, got))
	}
}

// TestRecoveryHeedsItsVisitor: a batch that the visitor refuses is a bad one, and
// whether its loss is one is a question of where it starts.
func TestRecoveryHeedsItsVisitor(t *testing.T) {
	w := testWhere(t)
	s, headers := write(t, w, 0, 20)
	s.AddAborted(producerstate.AbortedTxn{ProducerID: 1, First: 0, Last: 1, LastStableOffset: 2})
	require.NoError(t, s.Finish())
	s.Close()
	refused := errors.New("refused")
	options := RecoverOptions{
		IntervalBytes: testInterval,
		Visit: func(b Located) (*producerstate.AbortedTxn, error) {
			if b.Position == headers[15].Position {
				return nil, refused
			}
			return nil, nil
		},
	}
	next := headers[14].Next
	options.DurableBelow = next + 1
	_, r, err := Recover(w, 0, options)
	require.ErrorIs(t, err, refused)
	requireCorrupt(t, err, s.logName, int(headers[15].Position), refused)
	require.Equal(t, next, r.Next)
	options.DurableBelow = next
	s, r, err = Recover(w, 0, options)
	require.NoError(t, err)
	requireCorrupt(t, r.Cause, s.logName, int(headers[15].Position), refused)
	require.Equal(t, headers[15].Position, s.Bytes())
	require.Equal(t, headers[19].End()-headers[15].Position, r.CutBytes)
	_, err = w.FS.Stat(s.txnName)
	require.ErrorIs(t, err, os.ErrNotExist, "there is no transaction any more")
	// The segment is open to be written.
	b := batchAtOffset(s.Next(), 2, 5000)
	require.NoError(t, s.Write(b))
	s.Commit(b, testInterval, time.UnixMilli(2000), 0)
	requireLookups(t, s, append(headers[:15:15], headerOf(b, headers[15].Position)))
	s.Close()
}

// TestBatchesOfEverySize: a walk over batches that end before, at and behind the
// pieces in which it reads.
func TestBatchesOfEverySize(t *testing.T) {
	for _, sizes := range [][]int{
		{100, batchChunkBytes - 100, 100},
		{100, batchChunkBytes - 101, 100},
		{100, batchChunkBytes - 99, 100},
		{batchChunkBytes, 100},
		{batchChunkBytes + 1, 100},
		{3 * batchChunkBytes, 200, 3 * batchChunkBytes},
		{batchChunkBytes - 61, 100, 100},
		{batchChunkBytes - 60, 100, 100},
		{headerChunkBytes, 100},
		{headerChunkBytes - 61, 100, 100},
	} {
		var log []byte
		var headers []Header
		for i, n := range sizes {
			b := sized(t, cluster.Offset(5*i), n, int64(i+1))
			headers = append(headers, headerOf(b, int64(len(log))))
			log = append(log, b...)
		}
		for first := range sizes {
			from, n := headers[first].Position, first
			for b, err := range Batches(bytes.NewReader(log), int64(len(log)), from, headers[first].Base, "x.log") {
				require.NoError(t, err)
				require.Equal(t, headers[n].Position, b.Position)
				require.True(t, bytes.Equal(log[b.Position:headers[n].End()], b.Batch))
				n++
			}
			require.Equal(t, len(sizes), n)
			for range Batches(bytes.NewReader(log), int64(len(log)), from, headers[first].Base, "x.log") {
				n++
				break
			}
			require.Equal(t, len(sizes)+1, n, "it ends where it is told to")
			last := Located{}
			var end error
			for b, err := range Batches(bytes.NewReader(log), int64(len(log)), from, headers[first].Base+1, "x.log") {
				last, end = b, err
			}
			requireCorrupt(t, end, "x.log", int(from), ErrUnordered)
			require.Equal(t, from, last.Position)
		}
		w := headerWalk{src: bytes.NewReader(log), name: "x.log", limit: int64(len(log))}
		for _, h := range headers {
			require.True(t, w.next())
			require.Equal(t, h, w.h)
		}
		require.False(t, w.next())
		require.NoError(t, w.err)
		w.close()
	}
}

// TestOffsetsMustRise: batches that overlap, go back, are empty or further on than
// one segment reaches end a walk.
func TestOffsetsMustRise(t *testing.T) {
	last := append(bytes.Clone(batchAtOffset(5, 2, 1)), batchAtOffset(5+math.MaxInt32, 1, 1)...)
	w := headerWalk{src: bytes.NewReader(last), name: "x.log", limit: int64(len(last)), from: 5}
	require.True(t, w.next())
	require.True(t, w.next(), "the last offset that a segment may have")
	w.close()
	for _, err := range Batches(bytes.NewReader(last), int64(len(last)), 0, 5, "x.log") {
		require.NoError(t, err)
	}
	for name, second := range map[string]recordbatch.Batch{
		"back": batchAtOffset(4, 1, 1), "overlapping": batchAtOffset(6, 5, 1),
		"too far": batchAtOffset(5+math.MaxInt32+1, 1, 1), "no number": batchAtOffset(7|0x55<<56, 1, 1), "the last of all": batchAtOffset(math.MaxInt64, 1, 1),
	} {
		first := batchAtOffset(5, 2, 1)
		log := append(bytes.Clone(first), second...)
		w := headerWalk{src: bytes.NewReader(log), name: "x.log", limit: int64(len(log)), from: 5}
		require.True(t, w.next(), name)
		require.False(t, w.next(), name)
		requireCorrupt(t, w.err, "x.log", len(first), ErrUnordered)
		require.False(t, w.next(), "it stays where it is")
		w.close()
		n := 0
		for _, err := range Batches(bytes.NewReader(log), int64(len(log)), 0, 5, "x.log") {
			if n++; n == 2 {
				require.ErrorIs(t, err, ErrUnordered, name)
				requireCorrupt(t, err, "x.log", len(first), ErrUnordered)
			}
		}
		require.Equal(t, 2, n)
	}
	for n := 1; n < recordbatch.HeaderBytes; n++ {
		log := batchAtOffset(5, 2, 1)
		w := headerWalk{src: bytes.NewReader(log), name: "x.log", limit: int64(n), from: 5}
		require.False(t, w.next())
		requireCorrupt(t, w.err, "x.log", 0, ErrTornTail)
		for _, err := range Batches(bytes.NewReader(log), int64(n), 0, 0, "x.log") {
			requireCorrupt(t, err, "x.log", 0, ErrTornTail)
		}
		two := append(bytes.Clone(log), batchAtOffset(7, 1, 1)...)
		w = headerWalk{src: bytes.NewReader(two), name: "x.log", limit: int64(len(log) + n)}
		require.True(t, w.next())
		require.False(t, w.next())
		requireCorrupt(t, w.err, "x.log", len(log), ErrTornTail)
	}
}

// TestBatchesOfAHeaderOnly: compaction leaves batches without a record; one may be
// the last, and one that says that it is shorter than a header is none.
func TestBatchesOfAHeaderOnly(t *testing.T) {
	b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: 7})
	require.NoError(t, b.SetLastOffset(9))
	empty := b.Build()
	require.Equal(t, recordbatch.HeaderBytes, empty.Bytes())
	log := append(batchAtOffset(5, 2, 1), empty...)
	w := headerWalk{src: bytes.NewReader(log), name: "x.log", limit: int64(len(log))}
	require.True(t, w.next())
	require.True(t, w.next())
	require.EqualValues(t, 10, w.h.Next)
	require.False(t, w.next())
	require.NoError(t, w.err)
	n := 0
	for _, err := range Batches(bytes.NewReader(log), int64(len(log)), 0, 0, "x.log") {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 2, n)

	negative := bytes.Clone(empty)
	copy(negative[23:], "\xff\xff\xff\xff") // the last offset is below the base
	short := bytes.Clone(empty)
	copy(short[8:], "\x00\x00\x00\x30") // 60 bytes in all
	for bad, cause := range map[*[]byte]error{&negative: ErrUnordered, &short: recordbatch.ErrBadLength} {
		w = headerWalk{src: bytes.NewReader(*bad), name: "x.log", limit: int64(len(*bad))}
		require.False(t, w.next())
		requireCorrupt(t, w.err, "x.log", 0, cause)
	}
}

// TestReadsOfAWalk: small batches are read by the chunk, of large ones the headers
// alone; and a walk over whole batches reads each byte about once.
func TestReadsOfAWalk(t *testing.T) {
	for _, c := range []struct {
		bytes, count, reads int
		most                int64
	}{
		{100, 400, 10, 41_000},
		{headerChunkBytes, 20, 20, headerChunkBytes + 19*recordbatch.HeaderBytes},
		{100_000, 20, 20, headerChunkBytes + 19*recordbatch.HeaderBytes},
	} {
		var log []byte
		for i := range c.count {
			log = append(log, sized(t, cluster.Offset(i), c.bytes, 1)...)
		}
		src := &countedReads{ReaderAt: bytes.NewReader(log)}
		w := headerWalk{src: src, name: "x.log", limit: int64(len(log))}
		n := 0
		for w.next() {
			n++
		}
		require.NoError(t, w.err)
		require.Equal(t, c.count, n)
		require.Equal(t, c.reads, src.reads, "batches of %d bytes", c.bytes)
		require.LessOrEqual(t, src.bytes, c.most, "batches of %d bytes", c.bytes)
		w.close()

		src = &countedReads{ReaderAt: bytes.NewReader(log)}
		for _, err := range Batches(src, int64(len(log)), 0, 0, "x.log") {
			require.NoError(t, err)
		}
		require.LessOrEqual(t, src.bytes, int64(len(log))*3/2, "batches of %d bytes", c.bytes)
	}
}

// TestReadFull: all that was asked for, or an error that says that it ended.
func TestReadFull(t *testing.T) {
	p := make([]byte, 4)
	require.NoError(t, readFull(bytes.NewReader([]byte("12345678")), p, 4))
	require.Equal(t, "5678", string(p))
	require.ErrorIs(t, readFull(bytes.NewReader([]byte("12345678")), p, 5), io.ErrUnexpectedEOF)
	require.ErrorIs(t, readFull(silent{}, p, 0), io.ErrUnexpectedEOF)
}

// silent ends early and does not say so.
type silent struct{}

func (silent) ReadAt(p []byte, _ int64) (int, error) { return len(p) - 1, nil }
