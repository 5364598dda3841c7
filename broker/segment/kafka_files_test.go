package segment

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/producerstate"
	"strandline/metadata/disk"
)

// TestFilesOfKafka reads a log directory that Apache Kafka 4.4.0 wrote, and
// makes its indexes anew: byte for byte the same.
func TestFilesOfKafka(t *testing.T) {
	const sample = "testdata/kafka-4.4.0"
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(sample)))
	fs := disk.OS()
	for name, want := range map[string]int{
		Name(0, LogSuffix): 68, Name(0, IndexSuffix): 1, Name(0, TimeIndexSuffix): 2, Name(34, SnapshotSuffix): 0, EpochsName: 1,
	} {
		n := 0
		require.NoError(t, Dump(fs, filepath.Join(dir, name), true, func(Item) error {
			n++
			return nil
		}), name)
		require.Equal(t, want, n, name)
	}
	handles := disk.NewHandleCache(fs, 4)
	w := Where{FS: fs, Dir: dir, Handles: handles}
	s, err := OpenActive(w, 0, 4096)
	require.NoError(t, err)
	before := s.Info()
	s.Close()
	for _, suffix := range []string{IndexSuffix, TimeIndexSuffix} {
		require.NoError(t, fs.Remove(filepath.Join(dir, Name(0, suffix))))
	}
	s, r, err := Recover(w, 0, RecoverOptions{
		IntervalBytes: 4096,
		Visit:         func(Located) (*producerstate.AbortedTxn, error) { return nil, nil },
	})
	require.NoError(t, err)
	require.Zero(t, r.CutBytes)
	require.Equal(t, before.Next, r.Next)
	require.Equal(t, before.MaxTimestamp, s.Info().MaxTimestamp)
	s.Close()
	for _, suffix := range []string{LogSuffix, IndexSuffix, TimeIndexSuffix} {
		want, err := os.ReadFile(filepath.Join(sample, Name(0, suffix)))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, Name(0, suffix)))
		require.NoError(t, err)
		require.Equal(t, want, got, suffix)
	}
	require.NoError(t, handles.Close())
}

// TestFilesOfKafkaWithTransactions reads what Apache Kafka 4.4.0 wrote for five
// codecs, idempotent producers, one transaction that was committed and two that
// were aborted, over three segments.
func TestFilesOfKafkaWithTransactions(t *testing.T) {
	const sample = "testdata/kafka-4.4.0-transactions"
	fs := disk.OS()
	var aborted []producerstate.AbortedTxn
	for name, want := range map[string]int{
		Name(0, LogSuffix): 14 + 56, Name(56, LogSuffix): 5 + 8, Name(64, LogSuffix): 11 + 11,
		Name(0, IndexSuffix): 6, Name(56, IndexSuffix): 1, Name(0, TimeIndexSuffix): 7, Name(56, TimeIndexSuffix): 2,
		Name(56, SnapshotSuffix): 5, Name(64, SnapshotSuffix): 6, Name(64, TxnIndexSuffix): 2, EpochsName: 1,
	} {
		n := 0
		require.NoError(t, Dump(fs, filepath.Join(sample, name), true, func(i Item) error {
			n++
			if i.Txn != nil {
				aborted = append(aborted, *i.Txn)
			}
			return nil
		}), name)
		require.Equal(t, want, n, name)
	}
	require.Len(t, aborted, 2)
	require.Equal(t, []producerstate.AbortedTxn{
		{ProducerID: 49, First: 65, Last: 69, LastStableOffset: 70},
		{ProducerID: 49, First: 70, Last: 74, LastStableOffset: 75},
	}, aborted)
}
