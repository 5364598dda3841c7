package partition

import (
	"errors"
	"fmt"
	"io"

	"strandline/metadata/cluster"
)

// LogState is what a reader that follows the log goes by.
type LogState struct {
	LeaderEpoch cluster.LeaderEpoch
	Leading     bool // this replica leads under LeaderEpoch
	// LogStartOffset <= HighWatermark <= LogEndOffset, as of one moment or
	// between moments in which each only rose.
	LogStartOffset cluster.Offset
	HighWatermark  cluster.Offset
	LogEndOffset   cluster.Offset
	// CompactedTombstonesBelow is one past the highest offset of a tombstone or
	// transaction marker that compaction may have removed: who has read only up
	// to an offset below it may have missed a deletion. 0: none was.
	CompactedTombstonesBelow cluster.Offset
	// MaxMessageBytes is the topic's max.message.bytes.
	MaxMessageBytes int
	Offline         error // why nothing can be read or written; nil: it can
}

// LogState describes the log for a reader that follows it.
func (p *Partition) LogState() LogState {
	r, b := p.role.Load(), p.bounds()
	return LogState{
		LeaderEpoch: r.LeaderEpoch, Leading: r.leading && p.online() == nil,
		LogStartOffset: b.start, HighWatermark: b.mark, LogEndOffset: b.end,
		CompactedTombstonesBelow: p.log.log.Load().CompactedTombstonesBelow(),
		MaxMessageBytes:          int(p.settings.Load().MaxMessageBytes), Offline: p.online(),
	}
}

// EpochAt returns the leader epoch of the record at an offset of the log, false
// where it has none there.
func (p *Partition) EpochAt(o cluster.Offset) (cluster.LeaderEpoch, bool) {
	if o < p.log.StartOffset() || o >= p.log.EndOffset() {
		return cluster.NoLeaderEpoch, false
	}
	return p.log.EpochAt(o)
}

// ReadDecided appends to dst whole batches of the local log from the one that
// reaches past an offset on, below the high watermark, whatever this replica's
// role is: at most maxBytes, but one batch where there is one. It fails with
// ErrOffsetOutOfRange outside the log.
func (p *Partition) ReadDecided(dst []byte, from cluster.Offset, maxBytes int) ([]byte, error) {
	if err := p.online(); err != nil {
		return dst, err
	}
	b := p.bounds()
	if from < b.start || from > b.end {
		return dst, p.outOfRange(from, b)
	}
	if from >= b.mark {
		return dst, nil
	}
	slice, err := p.log.Read(from, b.mark, maxBytes, true)
	if err != nil {
		return dst, p.storage(err)
	}
	defer slice.Release()
	for _, region := range slice.Regions {
		at := len(dst)
		dst = append(dst, make([]byte, region.Bytes)...)
		if n, err := region.ReadAt(dst[at:], 0); int64(n) < region.Bytes {
			if err == nil || errors.Is(err, io.EOF) { // cut short under the read
				return dst[:at], p.wrap(ErrStorage, fmt.Errorf("decided records at %d: %w", from, io.ErrUnexpectedEOF))
			}
			return dst[:at], p.storage(err)
		}
	}
	return dst, nil
}
