package sweep

import (
	"context"
	"iter"
	"time"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
)

// holdings is what a partition has, as retention sees it.
type holdings struct {
	now      time.Time
	settings config.Topic
	logStart cluster.Offset
	// live yields the live remote segments in order.
	live iter.Seq2[catalog.Segment, error]
	// bytes is the size of the whole log: remote, and local past its end.
	bytes int64
}

// expire gives the log start offset that total retention asks for, as far as
// remote segments are concerned: by time and by size in one pass. It reads no
// further than the first segment that stays.
//
// The age of a segment is that of its highest timestamp. A timestamp in the
// future, or none, says nothing about age: the time of the upload stands for it,
// so that one wrong record does not keep a topic for ever.
func expire(h holdings) (start cluster.Offset, futureStamped int, err error) {
	start = h.logStart
	if !h.settings.CleanupPolicy.Delete() {
		return start, 0, nil
	}
	left := h.bytes
	for s, err := range h.live {
		if err != nil {
			return start, futureStamped, err
		}
		stamp := s.Object.MaxTimestamp
		if stamp > h.now.UnixMilli() {
			futureStamped++
		}
		if stamp < 0 || stamp > h.now.UnixMilli() {
			stamp = s.ChangedMs
		}
		age := h.now.Sub(time.UnixMilli(stamp))
		old := h.settings.RetentionTime != config.Forever && age > h.settings.RetentionTime
		large := h.settings.RetentionBytes != config.Unlimited && left-s.Object.SegmentBytes >= h.settings.RetentionBytes
		if !old && !large {
			break
		}
		left -= s.Object.SegmentBytes
		start = max(start, s.End)
	}
	return start, futureStamped, nil
}

// retain applies total retention to one partition. What is local only is the
// business of the broker's own retention.
func (s *Sweeper) retain(ctx context.Context, r Replica) error {
	tp := r.TopicPartition()
	sum, known := s.cfg.Catalog.Summary(tp)
	if !known || sum.LiveCount == 0 {
		return nil
	}
	h := holdings{
		now: s.cfg.Now(), settings: r.Settings(), logStart: sum.LogStart,
		live: s.cfg.Catalog.Live(tp, 0), bytes: sum.LiveSegmentBytes,
	}
	for _, segment := range r.Status().Segments {
		if segment.Base >= sum.RemoteEnd {
			h.bytes += segment.Bytes
		}
	}
	start, future, err := expire(h)
	s.counts.futureStamped.Add(int64(future))
	if h.settings.TierDeleteAllowed && !h.settings.Tiered {
		// The tier was turned off with what it holds: only what is local too
		// remains, until total retention removes it.
		start = max(start, min(r.Status().LocalLogStartOffset, sum.RemoteEnd))
	}
	if err != nil || start <= sum.LogStart {
		return err
	}
	if _, err := r.AdvanceLogStart(ctx, start); err != nil {
		return err
	}
	s.cfg.Logger.Info("retention moved the log start offset", "topic", r.Topic(), "partition", tp.Partition,
		"from", sum.LogStart, "to", start)
	return nil
}
