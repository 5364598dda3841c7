package locallog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// CompactionName is the file of a log directory that tells what compaction has
// done to it. There is none before the first time.
const CompactionName = "compaction-checkpoint"

// compaction is what is known of the log's compaction.
type compaction struct {
	known bool // there was one
	// removedBelow is one past the highest offset of a tombstone or transaction
	// marker that may have been removed; 0 where none was.
	removedBelow cluster.Offset
	// durableBelow is one past the highest offset that was rewritten: all below it
	// is durable, whatever the recovery point says, and holes are no torn ends.
	durableBelow cluster.Offset
}

func (c compaction) encode() []byte {
	return fmt.Appendf(nil, "version: 0\nremoved_below: %d\nrewritten_below: %d\n", c.removedBelow, c.durableBelow)
}

var errBadCompaction = errors.New("malformed " + CompactionName)

func parseCompaction(data []byte) (compaction, error) {
	c := compaction{known: true}
	seen := 0
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil || n < 0 {
			return c, fmt.Errorf("%w: %q", errBadCompaction, lines.Text())
		}
		switch key {
		case "version":
			if n != 0 {
				return c, fmt.Errorf("%w: %d", errLaterCompaction, n)
			}
		case "removed_below":
			c.removedBelow = cluster.Offset(n)
		case "rewritten_below":
			c.durableBelow = cluster.Offset(n)
		default:
			continue
		}
		seen++
	}
	if seen < 3 {
		return c, fmt.Errorf("%w: %d lines", errBadCompaction, seen)
	}
	return c, nil
}

func (l *Log) compactionName() string { return path.Join(l.config.Dir, CompactionName) }

// errLaterCompaction is a file of a version to come.
var errLaterCompaction = errors.New("later version of " + CompactionName)

// loadCompaction reads what compaction has left of a log with segments at bases.
// Where the file is damaged everything but the last segment may have been
// rewritten, and deletions removed from it: whoever follows the log begins again,
// and no hole is taken for a torn end.
func (l *Log) loadCompaction(bases []cluster.Offset) error {
	data, err := disk.ReadFile(l.config.FS, l.compactionName())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	c, err := parseCompaction(data)
	switch {
	case errors.Is(err, errLaterCompaction):
		return &segment.CorruptError{File: l.compactionName(), Cause: err}
	case err != nil:
		l.logger().Warn("what compaction has done is not known any more: deletions of everything but the last segment may be gone", "file", l.compactionName(), "error", err)
		below := cluster.Offset(0)
		if len(bases) > 0 {
			below = bases[len(bases)-1]
		}
		return l.noteCompaction(func(c *compaction) { *c = compaction{known: true, removedBelow: below, durableBelow: below} })
	}
	l.mu.compaction = c
	return nil
}

// durableBelow is the bound (exclusive) of what is known to be durable at an open.
func (l *Log) durableBelow() cluster.Offset {
	return max(l.config.RecoveryPoint, l.mu.compaction.durableBelow)
}

// CompactedTombstonesBelow is one past the highest offset of a tombstone or
// transaction marker that compaction may have removed from this log, 0 where it
// has removed none. Whoever follows the log and has read it up to an offset below
// that may have missed a deletion: it begins again at the log's start.
func (l *Log) CompactedTombstonesBelow() cluster.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.compaction.removedBelow
}

// Compacted says that segments were rewritten: offsets may be missing.
func (l *Log) Compacted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.compaction.known
}

// noteCompaction makes what change makes of the compaction's state durable, where
// it makes a difference.
func (l *Log) noteCompaction(change func(c *compaction)) error {
	l.mu.Lock()
	was := l.mu.compaction
	l.mu.Unlock()
	now := was
	if change(&now); now == was {
		return nil
	}
	if err := disk.WriteFileAtomic(l.config.FS, l.compactionName(), now.encode()); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.compaction = now
	return nil
}

// uncompactFrom forgets, durably, that batches at end or above were rewritten:
// they are about to go, and their offsets to be taken by others.
func (l *Log) uncompactFrom(end cluster.Offset) error {
	return l.noteCompaction(func(c *compaction) { c.durableBelow = min(c.durableBelow, end) })
}
