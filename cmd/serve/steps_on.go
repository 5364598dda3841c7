//go:build steps

package serve

import (
	"context"
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"strandline/broker/partition"
	"strandline/metadata/cluster"
)

// stepHook pauses for ever at a named step, for a driver that then kills the
// process: STRANDLINE_STEP=name:n is its n-th occurrence, and the file
// STRANDLINE_STEP_FILE appears when it is reached. With name:n:after only those count
// that occur once there is a file of that name and ".after".
func stepHook() func(step string) {
	name, count, ok := strings.Cut(os.Getenv("STRANDLINE_STEP"), ":")
	if !ok {
		return nil
	}
	count, armed := strings.CutSuffix(count, ":after")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		panic("STRANDLINE_STEP: want name:count")
	}
	file := os.Getenv("STRANDLINE_STEP_FILE")
	var seen atomic.Int64
	return func(step string) {
		if step != name {
			return
		}
		if armed {
			if _, err := os.Stat(file + ".after"); err != nil {
				return
			}
		}
		if seen.Add(1) != n {
			return
		}
		if err := os.WriteFile(file, []byte(step), 0o600); err != nil {
			panic(err)
		}
		select {}
	}
}

// plant wraps the remote log with a bug that the tests must see:
// STRANDLINE_PLANT=seam-shift reads from the offset after the one that was asked
// for; seam-drop leaves a batch at a seam out.
func plant(r partition.RemoteLog) partition.RemoteLog {
	if r == nil {
		return nil
	}
	switch os.Getenv("STRANDLINE_PLANT") {
	case "seam-shift":
		return shifted{r}
	case "seam-drop":
		return dropping{r, &sync.Mutex{}, map[cluster.TopicPartition]cluster.Offset{}}
	}
	return r
}

type shifted struct{ partition.RemoteLog }

func (s shifted) Read(ctx context.Context, tp cluster.TopicPartition, read partition.RemoteRead) (partition.RemoteSlice, error) {
	if end, ok := s.RemoteEndOffset(tp); ok && read.Offset+1 < end {
		read.Offset++
	}
	return s.RemoteLog.Read(ctx, tp, read)
}

// dropping leaves out, once a partition, the first batch after a seam between
// two reads.
type dropping struct {
	partition.RemoteLog
	mu   *sync.Mutex
	next map[cluster.TopicPartition]cluster.Offset // NoOffset: done
}

func (d dropping) Read(ctx context.Context, tp cluster.TopicPartition, read partition.RemoteRead) (partition.RemoteSlice, error) {
	slice, err := d.RemoteLog.Read(ctx, tp, read)
	if err != nil || len(slice.Regions) == 0 {
		return slice, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	next, seen := d.next[tp]
	if next == cluster.NoOffset {
		return slice, nil
	}
	d.next[tp] = slice.NextOffset
	first := firstBatchBytes(slice)
	if !seen || next != read.Offset || first == 0 || first >= int64(slice.Bytes) {
		return slice, nil
	}
	d.next[tp] = cluster.NoOffset
	slice.Bytes -= int(first)
	for first > 0 {
		r := &slice.Regions[0]
		cut := min(first, r.Bytes)
		r.Position += cut
		r.Bytes -= cut
		if first -= cut; r.Bytes == 0 {
			r.Release()
			slice.Regions = slice.Regions[1:]
		}
	}
	return slice, nil
}

func firstBatchBytes(slice partition.RemoteSlice) int64 {
	var head [12]byte
	if n, _ := slice.Regions[0].ReadAt(head[:], 0); n < len(head) {
		return 0
	}
	return 12 + int64(binary.BigEndian.Uint32(head[8:]))
}
