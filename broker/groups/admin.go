package groups

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"strandline/broker/coordinator"
	"strandline/broker/group"
	"strandline/broker/group/classic"
	"strandline/broker/group/consumer"
)

// deleteMax and deleteBytesMax bound the offsets that one event of a deletion drops,
// so that their records fit one batch.
const (
	deleteMax      = 256
	deleteBytesMax = 512 << 10
)

// Describe implements broker/api's GroupAdmin.
func (g *Groups) Describe(ctx context.Context, groupID string) (group.Description, error) {
	var d group.Description
	_, err := g.ask(ctx, groupID, g.cfg.Groups.OffsetsCommitTimeout, func(s *shard, now time.Time, tx *coordinator.Tx, token group.Token) {
		err := s.describe(now, groupID, &d)
		s.reply(tx, group.Reply{Token: token, Err: err})
	})
	if err != nil {
		return group.Description{}, err
	}
	return d, nil
}

func (s *shard) describe(now time.Time, id string, d *group.Description) error {
	e, err := s.find(now, id)
	if err != nil {
		return err
	}
	if e != nil {
		defer s.settle(e)
	}
	switch {
	case e != nil && e.consumer != nil:
		return notOfKind(id, "classic")
	case e != nil:
		*d = e.classic.Describe()
		return nil
	}
	if _, err := s.rules(now, id, nil); err != nil {
		return err
	}
	*d = classic.New(s.g.classic, id, now).Describe()
	return nil
}

// reply answers a request that appends nothing, once the log has what the answer
// may tell of.
func (s *shard) reply(tx *coordinator.Tx, r group.Reply) {
	s.append(tx, group.Effects{Replies: []group.Reply{r}}, func(error) {})
}

// DescribeConsumer implements broker/api's GroupAdmin.
func (g *Groups) DescribeConsumer(ctx context.Context, groupID string) (consumer.Description, error) {
	if err := checkGroupID(groupID); err != nil {
		return consumer.Description{}, err
	}
	var d consumer.Description
	_, err := g.ask(ctx, groupID, g.cfg.Groups.OffsetsCommitTimeout, func(s *shard, now time.Time, tx *coordinator.Tx, token group.Token) {
		e, err := s.find(now, groupID)
		switch {
		case err != nil:
		case e == nil:
			err = notFound(groupID)
		case e.consumer == nil:
			err = notOfKind(groupID, "consumer")
		default:
			d = e.consumer.Describe(g.env(groupID))
		}
		if e != nil {
			s.settle(e)
		}
		s.reply(tx, group.Reply{Token: token, Err: err})
	})
	if err != nil {
		return consumer.Description{}, err
	}
	return d, nil
}

// Delete implements broker/api's GroupAdmin. A group with many offsets loses them
// in several steps, of which the last one deletes the group; a failure leaves
// what is not yet deleted.
func (g *Groups) Delete(ctx context.Context, groupID string) error {
	if len(groupID) > textMax {
		return group.ErrInvalidGroupID
	}
	for {
		more := false
		_, err := g.ask(ctx, groupID, g.cfg.Groups.OffsetsCommitTimeout, func(s *shard, now time.Time, tx *coordinator.Tx, token group.Token) {
			var err error
			if more, err = s.delete(now, tx, groupID, token); err != nil {
				s.reply(tx, group.Reply{Token: token, Err: err})
			}
		})
		if err != nil || !more {
			return err
		}
	}
}

// delete deletes some offsets of a group, or, where no more than that are left,
// the group with them.
func (s *shard) delete(now time.Time, tx *coordinator.Tx, id string, token group.Token) (more bool, err error) {
	e, err := s.find(now, id)
	if err != nil {
		return false, err
	}
	if e != nil {
		defer s.settle(e)
	}
	rules, err := s.rules(now, id, e)
	if err != nil {
		return false, err
	}
	if err := rules.CheckDelete(); err != nil {
		return false, err
	}
	var fx group.Effects
	bytes := 0
	for o, err := range s.everyOffset(id) {
		if err != nil {
			return false, err
		}
		if len(fx.Records) == deleteMax || bytes >= deleteBytesMax {
			more = true
			break
		}
		fx.Records = append(fx.Records, group.OffsetTombstone(id, o.Topic, o.Partition))
		bytes += size(fx.Records[len(fx.Records)-1:])
	}
	fx.Replies = []group.Reply{{Token: token}}
	if more {
		s.applyOffsets(tx, e, fx)
		return true, nil
	}
	if e == nil {
		s.applyOffsets(tx, nil, fx)
		return false, nil
	}
	last, err := s.bury(now, e)
	if err != nil {
		return false, err
	}
	fx.Append(last)
	s.apply(tx, e, fx)
	s.remove(e)
	return false, nil
}

// bury deletes what the log has of an empty group itself.
func (s *shard) bury(now time.Time, e *entry) (group.Effects, error) {
	if e.consumer != nil {
		return e.consumer.Delete()
	}
	return e.classic.Delete(now)
}

// everyOffset are the partitions that a group has offsets of, also in open
// transactions.
func (s *shard) everyOffset(id string) iter.Seq2[group.PartitionName, error] {
	return func(yield func(group.PartitionName, error) bool) {
		pending, err := pendingOffsets(s.reader, id)
		if err != nil {
			yield(group.PartitionName{}, err)
			return
		}
		for r, err := range s.reader.Scan(group.ViewPrefix(group.OffsetKind, id)) {
			if err != nil {
				yield(group.PartitionName{}, err)
				return
			}
			k, err := group.ParseRecordKey(r.Key)
			name := group.PartitionName{Topic: k.Topic, Partition: k.Partition}
			delete(pending, name)
			if !yield(name, err) || err != nil {
				return
			}
		}
		for name := range pending {
			if !yield(name, nil) {
				return
			}
		}
	}
}

// List implements broker/api's GroupAdmin. Partitions are listed side by side.
func (g *Groups) List(ctx context.Context, filter group.ListFilter) ([]group.Listed, error) {
	loaded, loading := g.runtime.Led()
	if len(loading) > 0 {
		return nil, group.ErrCoordinatorLoading
	}
	slices.Sort(loaded)
	lists, errs := make([][]group.Listed, len(loaded)), make([]error, len(loaded))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(loaded), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(loaded)); i = next.Add(1) - 1 {
				lists[i], errs[i] = g.listPartition(ctx, loaded[i], filter)
				if errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(lists...), nil
}

// listPartition lists the groups in memory, and from the view those that are not.
func (g *Groups) listPartition(ctx context.Context, p int32, filter group.ListFilter) ([]group.Listed, error) {
	var list []group.Listed
	seen := map[string]bool{}
	_, err := g.askPartition(ctx, p, g.cfg.Groups.OffsetsCommitTimeout, func(s *shard, _ time.Time, tx *coordinator.Tx, token group.Token) {
		for _, e := range s.groups {
			seen[e.id] = true
			if l := e.listed(); filter.Selects(l) {
				list = append(list, l)
			}
		}
		s.reply(tx, group.Reply{Token: token})
	})
	if err != nil {
		return nil, err
	}
	err = g.runtime.Read(p, func(r coordinator.Reader) error {
		for l, err := range storedGroups(r, seen) {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				return err
			case filter.Selects(l):
				list = append(list, l)
			}
		}
		return nil
	})
	if err != nil {
		return nil, translate(err)
	}
	return list, nil
}

// storedGroups are the groups that the view knows, as they are while they have no
// members, each once and without those that were seen.
func storedGroups(r coordinator.Reader, seen map[string]bool) iter.Seq2[group.Listed, error] {
	return func(yield func(group.Listed, error) bool) {
		for id, err := range storedIDs(r, group.ConsumerKind) {
			if err == nil && seen[id] {
				continue
			}
			seen[id] = true
			if !yield(group.Listed{GroupID: id, ProtocolType: group.ConsumerProtocol, State: group.Empty, Type: group.Consumer}, err) || err != nil {
				return
			}
		}
		for e, err := range r.Scan([]byte{byte(group.ClassicKind)}) {
			if err != nil {
				yield(group.Listed{}, err)
				return
			}
			k, kerr := group.ParseRecordKey(e.Key)
			m, merr := group.ParseMetadata(e.Value)
			if kerr != nil || merr != nil || seen[k.Group] {
				continue // a request for the group tells
			}
			seen[k.Group] = true
			if !yield(group.Listed{GroupID: k.Group, ProtocolType: m.ProtocolType, State: group.Empty, Type: group.Classic}, nil) {
				return
			}
		}
		for id, err := range storedIDs(r, group.OffsetKind) {
			if err == nil && len(seen) > 0 && seen[id] {
				continue
			}
			if !yield(group.Listed{GroupID: id, State: group.Empty, Type: group.Classic}, err) || err != nil {
				return
			}
		}
	}
}

// storedIDs are the groups that have entries of a kind, each once.
func storedIDs(r coordinator.Reader, kind group.ViewKind) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for set, err := range r.Sets([]byte{byte(kind)}) {
			id := ""
			if err == nil {
				id, _ = group.ViewKeyGroup(set)
			}
			if !yield(id, err) {
				return
			}
		}
	}
}
