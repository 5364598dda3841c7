package segment

import (
	"fmt"
	"strconv"
	"strings"

	"strandline/metadata/cluster"
)

// Suffixes of a segment's files. All of a segment's files are named after its
// base offset; a snapshot is named after the offset at which it was taken.
const (
	LogSuffix       = ".log"
	IndexSuffix     = ".index"
	TimeIndexSuffix = ".timeindex"
	TxnIndexSuffix  = ".txnindex"
	SnapshotSuffix  = ".snapshot"

	// DeletedSuffix follows the name of a file that is to be removed;
	// CleanedSuffix and SwapSuffix the names of a rewrite that is under way.
	DeletedSuffix = ".deleted"
	CleanedSuffix = ".cleaned"
	SwapSuffix    = ".swap"
)

// EpochsName is the name of the file with the leader epochs of a log directory.
const EpochsName = "leader-epoch-checkpoint"

const nameDigits = 20

// Name is the name of the file of that kind for an offset.
func Name(o cluster.Offset, suffix string) string {
	return fmt.Sprintf("%0*d%s", nameDigits, int64(o), suffix)
}

// ParseName splits what Name made. Names that end in DeletedSuffix and its like
// are not names of segment files.
func ParseName(name string) (o cluster.Offset, suffix string, ok bool) {
	if len(name) <= nameDigits {
		return 0, "", false
	}
	digits, suffix := name[:nameDigits], name[nameDigits:]
	if strings.TrimLeft(digits, "0123456789") != "" {
		return 0, "", false
	}
	switch suffix {
	case LogSuffix, IndexSuffix, TimeIndexSuffix, TxnIndexSuffix, SnapshotSuffix:
	default:
		return 0, "", false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return cluster.Offset(n), suffix, err == nil
}
