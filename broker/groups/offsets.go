package groups

import (
	"bytes"
	"context"
	"iter"
	"time"

	"strandline/broker/coordinator"
	"strandline/broker/group"
	"strandline/broker/group/classic"
	"strandline/broker/group/consumer"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// Commit implements broker/api's Groups. The group id may be "".
func (g *Groups) Commit(ctx context.Context, groupID string, req group.CommitRequest) (group.CommitResponse, error) {
	if len(groupID) > textMax {
		return group.CommitResponse{}, group.ErrInvalidGroupID
	}
	r, err := g.ask(ctx, groupID, g.cfg.Groups.OffsetsCommitTimeout, func(s *shard, now time.Time, tx *coordinator.Tx, token group.Token) {
		req.Token = token
		s.commit(now, tx, groupID, req)
	})
	if r.Commit != nil {
		return *r.Commit, err
	}
	return group.CommitResponse{}, err
}

func (s *shard) commit(now time.Time, tx *coordinator.Tx, id string, req group.CommitRequest) {
	e, err := s.find(now, id)
	switch {
	case err != nil:
		s.reply(tx, group.Reply{Token: req.Token, Err: err})
	case e != nil && e.consumer != nil:
		s.applyOffsets(tx, e, e.consumer.Commit(now, s.g.env(id), req))
	case e != nil:
		s.applyOffsets(tx, e, e.classic.Commit(now, req))
	case req.Generation >= 0:
		s.reply(tx, group.Reply{Token: req.Token, Err: s.noMember(id)})
	default: // a group that only has offsets comes with its first one
		s.applyOffsets(tx, nil, classic.New(s.g.classic, id, now).Commit(now, req))
	}
}

// noMember says why somebody who thinks to be a member of a group of which find
// found nothing is none: there is no such group, or it only has offsets.
func (s *shard) noMember(id string) error {
	has, err := hasOffsets(s.reader, id)
	switch {
	case err != nil:
		return err
	case has:
		return group.ErrUnknownMember
	}
	return notFound(id)
}

// FetchOffsets implements broker/api's Groups. It reads the view, which has what
// is committed and acknowledged, and waits for nobody. The group id may be "".
func (g *Groups) FetchOffsets(_ context.Context, groupID string, req group.OffsetFetchRequest) (group.OffsetFetchResponse, error) {
	p, err := g.partition(groupID)
	if err != nil {
		return group.OffsetFetchResponse{}, err
	}
	var resp group.OffsetFetchResponse
	refused := error(nil)
	err = g.runtime.Read(p, func(r coordinator.Reader) error {
		if refused = g.checkFetch(r, groupID, req); refused != nil {
			return nil
		}
		unstable := map[group.PartitionName]bool{}
		if req.RequireStable {
			if unstable, err = pendingOffsets(r, groupID); err != nil {
				return err
			}
		}
		if req.All {
			resp.Offsets, err = g.allOffsets(r, groupID, unstable)
		} else {
			resp.Offsets, err = someOffsets(r, groupID, req.Partitions, unstable)
		}
		return err
	})
	switch {
	case err != nil:
		return group.OffsetFetchResponse{}, translate(err)
	case refused != nil:
		return group.OffsetFetchResponse{}, refused
	}
	return resp, nil
}

// checkFetch says whether a member of a KIP-848 group may read its offsets.
func (g *Groups) checkFetch(r coordinator.Reader, id string, req group.OffsetFetchRequest) error {
	if req.MemberID == "" && req.MemberEpoch < 0 {
		return nil
	}
	_, ok, err := r.Get(group.RecordKey{Type: group.ConsumerGroupMetadataRecord, Group: id}.ViewKey())
	if err != nil || !ok {
		return err // no group, or one whose members do not say who they are
	}
	if current, ok, err := r.Get(group.RecordKey{Type: group.ConsumerCurrentAssignmentRecord, Group: id, Member: req.MemberID}.ViewKey()); err != nil {
		return err
	} else if ok {
		if epoch, err := consumer.MemberEpoch(current.Value); err == nil && epoch == req.MemberEpoch {
			return nil
		}
	}
	// Not the common case: what is wrong is the group's to say.
	var records []group.Record
	for e, err := range r.Scan(group.ViewPrefix(group.ConsumerKind, id)) {
		if err != nil {
			return err
		}
		records = append(records, group.Record{Key: bytes.Clone(e.Key), Value: bytes.Clone(e.Value)})
	}
	c, err := consumer.Load(time.Time{}, g.env(id).Config, id, records)
	if err != nil {
		return err
	}
	return c.CheckFetch(req.MemberID, req.MemberEpoch)
}

// pendingOffsets are the partitions whose offset an open transaction is about to
// change.
func pendingOffsets(r coordinator.Reader, id string) (map[group.PartitionName]bool, error) {
	pending := map[group.PartitionName]bool{}
	for p, err := range r.Pending(group.ViewPrefix(group.OffsetKind, id)) {
		if err != nil {
			return nil, err
		}
		k, err := group.ParseRecordKey(p.Key)
		if err != nil {
			return nil, err
		}
		pending[group.PartitionName{Topic: k.Topic, Partition: k.Partition}] = true
	}
	return pending, nil
}

func someOffsets(r coordinator.Reader, id string, asked []group.FetchPartition, unstable map[group.PartitionName]bool) ([]group.FetchedOffset, error) {
	out := make([]group.FetchedOffset, len(asked))
	for i, p := range asked {
		name := group.PartitionName{Topic: p.Topic, Partition: p.Partition}
		if unstable[name] {
			out[i] = group.NothingCommitted(name, group.ErrUnstableOffset)
			continue
		}
		e, ok, err := r.Get(group.OffsetKey(id, p.Topic, p.Partition).ViewKey())
		if err != nil {
			return nil, err
		}
		out[i] = group.NothingCommitted(name, nil)
		if !ok {
			continue
		}
		o, err := group.ParseOffset(e.Value)
		if err != nil {
			return nil, err
		}
		if o.Of(p.TopicID) {
			out[i] = fetched(name, o)
		}
	}
	return out, nil
}

func (g *Groups) allOffsets(r coordinator.Reader, id string, unstable map[group.PartitionName]bool) ([]group.FetchedOffset, error) {
	img := g.cfg.Watch.Image()
	var out []group.FetchedOffset
	for o, err := range storedOffsets(r.Scan(group.ViewPrefix(group.OffsetKind, id)), unstable) {
		switch {
		case err != nil:
			return nil, err
		case gone(img, o):
		case o.Pending:
			out = append(out, group.NothingCommitted(o.PartitionName, group.ErrUnstableOffset))
		default:
			out = append(out, fetched(o.PartitionName, o.CommittedOffset))
		}
	}
	return out, nil
}

// gone says whether the topic that an offset is of was deleted: where the offset
// says which one it is.
func gone(img *image.Image, o group.StoredOffset) bool {
	if o.TopicID == (cluster.TopicID{}) {
		return false
	}
	t, ok := img.Topic(o.Topic)
	return !ok || t.ID != o.TopicID
}

func fetched(name group.PartitionName, o group.CommittedOffset) group.FetchedOffset {
	return group.FetchedOffset{PartitionName: name, Offset: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata}
}

// storedOffsets parses offsets of one group.
func storedOffsets(entries iter.Seq2[coordinator.Entry, error], pending map[group.PartitionName]bool) iter.Seq2[group.StoredOffset, error] {
	return func(yield func(group.StoredOffset, error) bool) {
		for e, err := range entries {
			o := group.StoredOffset{}
			if err == nil {
				o, err = storedOffset(e)
			}
			o.Pending = pending[o.PartitionName]
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

func storedOffset(e coordinator.Entry) (group.StoredOffset, error) {
	k, err := group.ParseRecordKey(e.Key)
	if err != nil {
		return group.StoredOffset{}, err
	}
	o, err := group.ParseOffset(e.Value)
	return group.StoredOffset{PartitionName: group.PartitionName{Topic: k.Topic, Partition: k.Partition}, CommittedOffset: o}, err
}

// DeleteOffsets implements broker/api's GroupAdmin.
func (g *Groups) DeleteOffsets(ctx context.Context, groupID string, req group.OffsetDeleteRequest) (group.OffsetDeleteResponse, error) {
	if err := checkGroupID(groupID); err != nil {
		return group.OffsetDeleteResponse{}, err
	}
	r, err := g.ask(ctx, groupID, g.cfg.Groups.OffsetsCommitTimeout, func(s *shard, now time.Time, tx *coordinator.Tx, token group.Token) {
		req.Token = token
		if err := s.deleteOffsets(now, tx, groupID, req); err != nil {
			s.reply(tx, group.Reply{Token: token, Err: err})
		}
	})
	if r.Delete != nil {
		return *r.Delete, err
	}
	return group.OffsetDeleteResponse{}, err
}

func (s *shard) deleteOffsets(now time.Time, tx *coordinator.Tx, id string, req group.OffsetDeleteRequest) error {
	e, err := s.find(now, id)
	if err != nil {
		return err
	}
	rules, err := s.rules(now, id, e)
	if err != nil {
		return err
	}
	pending, err := pendingOffsets(s.reader, id)
	if err != nil {
		return err
	}
	fx, err := group.DeleteOffsets(id, rules, req, func(p group.PartitionName) (bool, error) {
		_, ok, err := s.reader.Get(group.OffsetKey(id, p.Topic, p.Partition).ViewKey())
		return ok || pending[p], err
	})
	if err != nil {
		return err
	}
	s.applyOffsets(tx, e, fx)
	return nil
}

// rules are those of the group that find found; where it found none, those of a
// group that only has offsets. The error is ErrGroupIDNotFound where it has none
// either.
func (s *shard) rules(now time.Time, id string, e *entry) (group.Rules, error) {
	if e != nil {
		return e.member(), nil
	}
	has, err := hasOffsets(s.reader, id)
	switch {
	case err != nil:
		return nil, err
	case !has:
		return nil, notFound(id)
	}
	return classic.New(s.g.classic, id, now), nil
}

// hasOffsets says whether a group has offsets, committed or in an open
// transaction.
func hasOffsets(r coordinator.Reader, id string) (bool, error) {
	prefix := group.ViewPrefix(group.OffsetKind, id)
	for _, err := range r.Scan(prefix) {
		return err == nil, err
	}
	for _, err := range r.Pending(prefix) {
		return err == nil, err
	}
	return false, nil
}
