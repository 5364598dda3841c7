package coordinator

import (
	"iter"
	"time"

	"strandline/broker/partition"
	"strandline/metadata/cluster"
)

// Partition is what the runtime needs of a hosted replica; *partition.Partition
// is one. Its methods may be called from several goroutines at once.
type Partition interface {
	TopicPartition() cluster.TopicPartition
	// LogState describes the log. What it says of the present leadership may be
	// over when it returns; an append is checked again.
	LogState() partition.LogState
	// EpochAt returns the leader epoch of the record at an offset, false where
	// the log has none there.
	EpochAt(o cluster.Offset) (cluster.LeaderEpoch, bool)
	// ReadDecided appends to dst whole batches from the one that reaches past
	// an offset on, below the high watermark: about maxBytes of them, and one
	// at least where there is one.
	ReadDecided(dst []byte, from cluster.Offset, maxBytes int) ([]byte, error)
	// Append appends batches; see partition.Partition. It is asked with FlushLater,
	// so that it returns no commit: the high watermark tells.
	Append(req partition.AppendRequest) (partition.AppendResult, *partition.Commit, error)
	// FlushAppended syncs what was appended with FlushLater, where that is due.
	FlushAppended()
	// AddWaiter and RemoveWaiter: w is woken when the high watermark, the log
	// start offset or the role changes.
	AddWaiter(w *partition.Waiter)
	RemoveWaiter(w *partition.Waiter)
}

// Schema maps keys of records to keys of the view, under which the latest record
// is kept and in whose order it is scanned. It must not fail for a key that a
// newer version or another program may have written; an error stops the view.
type Schema interface {
	// AppendViewKey appends the view key to dst.
	AppendViewKey(dst, recordKey []byte) ([]byte, error)
	// SetBytes says how many bytes of a view key name the set that it belongs to,
	// which all its keys begin with; 0: to none. Sets can be listed without their
	// entries (Reader.Sets). It is the same for ever, or the format of views
	// changes.
	SetBytes(viewKey []byte) int
}

// Record is one record to append. A nil Value is a tombstone. The runtime keeps
// the slices; nobody may change them after they were handed over.
type Record struct{ Key, Value []byte }

// Entry is the latest record under a view key. It is never a tombstone. Its
// slices must not be changed; of a Scan they are valid until the next entry.
type Entry struct {
	ViewKey    []byte
	Key, Value []byte
	Offset     cluster.Offset // NoOffset: appended by an event and has none yet
	Timestamp  int64          // of the record, ms
}

// Pending is a record of a transaction that is not decided yet.
type Pending struct {
	ProducerID cluster.ProducerID
	Entry      // Value nil: a tombstone
}

// Reader reads the view of one partition.
type Reader interface {
	// Get returns the latest record under a key, false where there is none or
	// it was deleted.
	Get(viewKey []byte) (Entry, bool, error)
	// Scan yields the entries whose view key has the prefix, in the order of
	// view keys. An error ends it.
	Scan(prefix []byte) iter.Seq2[Entry, error]
	// ScanFrom is Scan without the entries whose view key sorts before from.
	ScanFrom(prefix, from []byte) iter.Seq2[Entry, error]
	// Sets yields the sets (Schema.SetBytes) that have an entry and that begin with
	// the prefix, in order. A set is valid until the next one. An error ends it.
	Sets(prefix []byte) iter.Seq2[[]byte, error]
	// Pending yields the decided records of open transactions whose view key
	// has the prefix, by producer id and offset. An error ends it.
	Pending(prefix []byte) iter.Seq2[Pending, error]
}

// Machine is the user's state of one led partition. All calls come from the
// goroutine of its shard, one at a time, and none may block.
type Machine interface {
	// Load builds the state. The view has everything that was in the log. The
	// reader shows, whenever it is used, what all events until then appended,
	// and is valid until Unload, on the shard's goroutine. Where Load fails the
	// machine is dropped, without Unload, and another one is tried later.
	Load(now time.Time, r Reader) error
	// Deadline is when Tick is to be called; zero: never. It is asked again
	// after every event.
	Deadline() time.Time
	// Tick handles what has become due; it is an event like those of Do.
	Tick(now time.Time, tx *Tx)
	// Unload ends the machine: leadership is lost, the runtime closes, or the
	// view cannot be read and another tenure has to begin. Every function given
	// to Tx.Then has run by then. What still waits for an answer gets it now: err
	// is ErrNotCoordinator or ErrClosed.
	Unload(err error)
}
