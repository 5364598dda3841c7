package archive

import (
	"errors"
	"fmt"
	"time"

	"strandline/broker/locallog"
	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
)

// ErrGap: the local log starts past RemoteEndOffset, so what lies between is
// lost and nothing can follow it.
var ErrGap = errors.New("local segments do not continue the remote ones")

// situation is what a decision is made from.
type situation struct {
	now      time.Time
	settings config.Topic
	summary  catalog.Summary
	logStart cluster.Offset
	// offered are the sealed segments that may leave, in order; tailBytes is
	// the size of the local log past the last of them.
	offered   []locallog.SegmentInfo
	tailBytes int64
}

// action is what to do next for a partition.
type action int8

const (
	nothing action = iota
	align          // tell the catalog where the log starts
	upload         // the first segment offered, from RemoteEndOffset on
)

// decide gives the next action.
func decide(s situation) (action, error) {
	if !s.settings.Tiered || s.settings.TierCopyDisabled || len(s.offered) == 0 {
		return nothing, nil
	}
	first := s.offered[0]
	if s.logStart > s.summary.LogStart || s.logStart == s.summary.LogStart && s.lostBatch(first.Base) {
		return align, nil
	}
	if first.Base > s.summary.RemoteEnd {
		return nothing, fmt.Errorf("%w: remote end offset %d, first local segment starts at %d",
			ErrGap, s.summary.RemoteEnd, first.Base)
	}
	later := s.tailBytes
	for _, segment := range s.offered[1:] {
		later += segment.Bytes
	}
	if s.expired(first, later) || s.waits(first, later) {
		return nothing, nil
	}
	return upload, nil
}

// lostBatch tells whether the batch is gone at whose start uploads were to go on,
// with nothing above the log start lost: the local log was, and began anew at the
// log start in its middle.
func (s situation) lostBatch(firstLocal cluster.Offset) bool {
	return s.summary.RemoteEnd < firstLocal && firstLocal <= s.logStart
}

// waits tells whether the segment's upload is put off (remote.copy.lag): until
// it is old enough, or enough of the log follows it, whatever comes first, and
// at the latest until local retention wants it gone. later is the size of the
// log after it.
func (s situation) waits(segment locallog.SegmentInfo, later int64) bool {
	lag, bytes := s.settings.TierCopyLag, s.settings.TierCopyLagBytes
	if lag == 0 || bytes == 0 {
		return false
	}
	if bytes > 0 && later >= bytes || later >= s.settings.LocalRetentionBytes {
		return false
	}
	written := segment.Modified
	if stamp := segment.MaxTimestamp; stamp >= 0 && (written.IsZero() || time.UnixMilli(stamp).Before(written)) {
		written = time.UnixMilli(stamp)
	}
	return s.now.Sub(written) < min(lag, s.settings.LocalRetentionTime)
}

// expired tells whether total retention removes the segment with everything
// before it anyway; later is the size of the log after it.
func (s situation) expired(segment locallog.SegmentInfo, later int64) bool {
	if !s.settings.CleanupPolicy.Delete() {
		return false
	}
	if segment.Next <= s.logStart || later >= s.settings.RetentionBytes {
		return true
	}
	if s.settings.RetentionTime == config.Forever {
		return false
	}
	now, cutoff := s.now.UnixMilli(), s.now.Add(-s.settings.RetentionTime).UnixMilli()
	// Stamps of the future say nothing about age: those stay for retention to
	// judge.
	old := func(stamp int64) bool { return stamp >= 0 && stamp <= now && stamp < cutoff }
	return old(segment.MaxTimestamp) && (s.summary.LiveCount == 0 || old(s.summary.MaxTimestamp))
}
