package group

import (
	"iter"
	"time"
	"unicode/utf16"

	"strandline/metadata/cluster"
)

// OffsetConfig is what the broker's keys say of committed offsets.
type OffsetConfig struct {
	// MetadataMax is how long a CommitPartition's Metadata may be, in UTF-16
	// code units as Apache Kafka counts them (offset.metadata.max.bytes).
	MetadataMax int
	// Retention is how long an offset is kept once nothing needs it
	// (offsets.retention.minutes).
	Retention time.Duration
}

// Rules is a group as its offsets see it; the groups of both protocols are one.
type Rules interface {
	// CheckCommit says whether the group takes the commit now. Errors:
	// ErrCoordinatorNotAvailable, ErrUnknownMember, ErrFencedInstance,
	// ErrIllegalGeneration, ErrStaleMemberEpoch, ErrUnsupportedVersion,
	// ErrRebalanceInProgress.
	CheckCommit(CommitRequest) error
	// CheckFetch says whether a member of that id and epoch may read offsets;
	// "" and -1 is a client that is no member. Errors: ErrGroupIDNotFound,
	// ErrUnknownMember, ErrStaleMemberEpoch.
	CheckFetch(memberID string, memberEpoch int32) error
	// CheckOffsetDelete says whether offsets can be deleted at all. Errors:
	// ErrGroupIDNotFound, ErrNonEmptyGroup.
	CheckOffsetDelete() error
	// CheckDelete says whether the group can be deleted. Errors:
	// ErrGroupIDNotFound, ErrNonEmptyGroup.
	CheckDelete() error
	// Subscribed: members read the topic, or may, for all that is known.
	Subscribed(topic string) bool
	// Expiry says from when on the retention of offsets counts; false while
	// none may expire.
	Expiry() (Expiry, bool)
}

// Expiry is from when on the retention of a group's offsets counts.
type Expiry struct {
	// Since is when the group became empty; zero: the offset's CommitTime.
	Since time.Time
}

// Expired says whether the offset may be dropped. Its own ExpireTime wins over
// the retention.
func (e Expiry) Expired(now time.Time, retention time.Duration, o CommittedOffset) bool {
	if !o.ExpireTime.IsZero() {
		return !now.Before(o.ExpireTime)
	}
	since := e.Since
	if since.IsZero() {
		since = o.CommitTime
	}
	return now.Sub(since) >= retention
}

// Of says whether the offset is one of the topic of that id: it is where either
// does not say.
func (o CommittedOffset) Of(topic cluster.TopicID) bool {
	return o.TopicID.IsZero() || topic.IsZero() || o.TopicID == topic
}

// CommitOffsets has the group take the offsets of req: records for those that are
// accepted, and the answer.
func CommitOffsets(now time.Time, cfg OffsetConfig, groupID string, rules Rules, req CommitRequest) Effects {
	if err := rules.CheckCommit(req); err != nil {
		return Effects{Replies: []Reply{{Token: req.Token, Err: err}}}
	}
	var expires time.Time
	if req.Retention >= 0 && !req.Transactional {
		expires = now.Add(req.Retention)
	}
	fx := Effects{Records: make([]Record, 0, len(req.Partitions))}
	response := &CommitResponse{Partitions: make([]error, len(req.Partitions))}
	size := 0
	for _, p := range req.Partitions {
		size += offsetRecordBytes(groupID, p.Topic, p.Metadata)
	}
	buf := make([]byte, 0, size)
	for i, p := range req.Partitions {
		if longer(p.Metadata, cfg.MetadataMax) || len(p.Metadata) > recordTextMax {
			response.Partitions[i] = ErrOffsetMetadataTooLarge
			continue
		}
		var r Record
		r, buf = appendOffsetRecord(buf, groupID, p.Topic, p.Partition, CommittedOffset{
			Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata,
			CommitTime: now, ExpireTime: expires, TopicID: p.TopicID,
		})
		fx.Records = append(fx.Records, r)
	}
	fx.Replies = []Reply{{Token: req.Token, Commit: response}}
	return fx
}

// recordTextMax bounds a string in a record: its length has 16 bits there.
const recordTextMax = 1<<15 - 1

// longer says whether s has more than limit UTF-16 code units.
func longer(s string, limit int) bool {
	if len(s) <= limit {
		return false
	}
	n := 0
	for _, r := range s {
		n += max(utf16.RuneLen(r), 1)
	}
	return n > limit
}

// DeleteOffsets has the group forget the offsets of req, those of topics that it
// reads apart (ErrSubscribedToTopic). A partition that has none is no error;
// there says whether one has, committed or in an open transaction.
func DeleteOffsets(groupID string, rules Rules, req OffsetDeleteRequest, there func(PartitionName) (bool, error)) (Effects, error) {
	if err := rules.CheckOffsetDelete(); err != nil {
		return Effects{Replies: []Reply{{Token: req.Token, Err: err}}}, nil
	}
	var fx Effects
	response := &OffsetDeleteResponse{Partitions: make([]error, len(req.Partitions))}
	for i, p := range req.Partitions {
		if rules.Subscribed(p.Topic) {
			response.Partitions[i] = ErrSubscribedToTopic
			continue
		}
		ok, err := there(p)
		if err != nil {
			return Effects{}, err
		}
		if ok {
			fx.Records = append(fx.Records, OffsetTombstone(groupID, p.Topic, p.Partition))
		}
	}
	fx.Replies = []Reply{{Token: req.Token, Delete: response}}
	return fx, nil
}

// StoredOffset is a committed offset and where it belongs.
type StoredOffset struct {
	PartitionName
	CommittedOffset
	// Pending: an open transaction has an offset for the partition.
	Pending bool
}

// ExpireOffsets drops the offsets that are no longer needed, and says whether the
// group has none left. offsets are all of the group; it stops at their first
// error.
func ExpireOffsets(now time.Time, cfg OffsetConfig, groupID string, rules Rules, offsets iter.Seq2[StoredOffset, error]) (records []Record, none bool, err error) {
	expiry, ok := rules.Expiry()
	none = true
	for o, err := range offsets {
		switch {
		case err != nil:
			return nil, false, err
		case ok && !o.Pending && expiry.Expired(now, cfg.Retention, o.CommittedOffset) && !rules.Subscribed(o.Topic):
			records = append(records, OffsetTombstone(groupID, o.Topic, o.Partition))
		default:
			none = false
		}
	}
	return records, none, nil
}

// DropOffsets drops the offsets of a group for which drop is true, such as those
// of a topic that was deleted (see CommittedOffset.Of), or all of a group that is
// deleted. It stops at the first error of offsets.
func DropOffsets(groupID string, offsets iter.Seq2[StoredOffset, error], drop func(StoredOffset) bool) (records []Record, err error) {
	for o, err := range offsets {
		if err != nil {
			return nil, err
		}
		if drop(o) {
			records = append(records, OffsetTombstone(groupID, o.Topic, o.Partition))
		}
	}
	return records, nil
}
