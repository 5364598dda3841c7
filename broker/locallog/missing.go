package locallog

import (
	"errors"
	"fmt"

	"strandline/broker/segment"
	"strandline/metadata/cluster"
)

// Missing is a range of offsets that no batch of the log has.
type Missing struct{ From, To cluster.Offset } // To is exclusive

// Missing returns the ranges between two segments that Open found without
// batches: what compaction leaves, or a file that somebody removed.
func (l *Log) Missing() []Missing { return l.missing }

func (l *Log) noteMissing(end, next cluster.Offset) {
	if end < next {
		l.missing = append(l.missing, Missing{end, next})
	}
}

var errShort = errors.New("the log ends below its recovery point")

// checkEnd refuses a log that ends below its recovery point: batches are gone
// that were durable once, and going on would give their offsets to others. Not
// where they are below the start of the log, or in the remote tier.
func (l *Log) checkEnd(start, end cluster.Offset) error {
	point := l.config.RecoveryPoint
	if max(start, end, l.config.RemoteEnd) >= point {
		return nil
	}
	return &segment.CorruptError{
		File: l.config.Dir, Position: 0,
		Cause: fmt.Errorf("%w: offsets %d to %d were durable and are missing (restore the folder, or take the partition out of recovery-point-offset-checkpoint to go on without them)", errShort, end, point-1),
	}
}
