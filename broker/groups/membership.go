package groups

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"strandline/broker/coordinator"
	"strandline/broker/group"
	"strandline/broker/group/classic"
	"strandline/broker/group/consumer"
)

// textMax bounds the strings that records keep: their lengths have 16 bits there.
const textMax = math.MaxInt16

// checkTexts refuses strings that no record can hold.
func checkTexts(texts ...string) error {
	for _, t := range texts {
		if len(t) > textMax {
			return fmt.Errorf("%w: a string of %d bytes, at most %d", group.ErrInvalidRequest, len(t), textMax)
		}
	}
	return nil
}

// subscriptionMax bounds the names that a member subscribes to, as its record has
// them: a batch of the default max.message.bytes holds no more, and to find that out
// would hold up the other groups of the partition.
const subscriptionMax = 1 << 20

func checkSubscription(names []string) error {
	bytes := 0
	for _, name := range names {
		bytes += 1 + len(name)
	}
	if bytes > subscriptionMax {
		return fmt.Errorf("%w: a subscription of %d bytes, at most %d", group.ErrInvalidRequest, bytes, subscriptionMax)
	}
	return nil
}

func checkGroupID(id string) error {
	if id == "" || len(id) > textMax {
		return group.ErrInvalidGroupID
	}
	return nil
}

// Join implements broker/api's Groups.
func (g *Groups) Join(ctx context.Context, groupID string, req group.JoinRequest) (group.JoinResponse, error) {
	refused := group.JoinResponse{MemberID: req.MemberID}
	if err := checkGroupID(groupID); err != nil {
		return refused, err
	}
	texts := []string{req.MemberID, req.InstanceID, req.NewMemberID, req.ProtocolType}
	for _, p := range req.Protocols {
		texts = append(texts, p.Name)
	}
	if err := checkTexts(texts...); err != nil {
		return refused, err
	}
	r, err := g.ask(ctx, groupID, 0, func(s *shard, now time.Time, tx *coordinator.Tx, token group.Token) {
		req.Token = token
		s.join(now, tx, groupID, req)
	})
	if r.Join != nil {
		return *r.Join, err
	}
	return refused, err
}

func (s *shard) join(now time.Time, tx *coordinator.Tx, id string, req group.JoinRequest) {
	e, err := s.find(now, id)
	var fx group.Effects
	switch {
	case err != nil:
		s.reply(tx, group.Reply{Token: req.Token, Err: err})
		return
	case e != nil && (e.consumer == nil || !e.consumer.Empty()):
	case req.MemberID != "":
		s.reply(tx, group.Reply{Token: req.Token, Err: group.ErrUnknownMember, Join: &group.JoinResponse{MemberID: req.MemberID}})
		return
	default:
		if e != nil { // an empty group of the other protocol makes room
			if fx, err = e.consumer.Delete(); err != nil {
				s.reply(tx, group.Reply{Token: req.Token, Err: err})
				return
			}
			s.remove(e)
		}
		e = &entry{id: id, classic: classic.New(s.g.classic, id, now), place: -1}
		s.insert(e)
	}
	if e.consumer != nil {
		fx.Append(e.consumer.Join(now, s.g.env(id), req))
	} else {
		fx.Append(e.classic.Join(now, req))
	}
	s.apply(tx, e, fx)
}

// Sync implements broker/api's Groups.
func (g *Groups) Sync(ctx context.Context, groupID string, req group.SyncRequest) (group.SyncResponse, error) {
	if err := checkGroupID(groupID); err != nil {
		return group.SyncResponse{}, err
	}
	r, err := g.ask(ctx, groupID, 0, func(s *shard, now time.Time, tx *coordinator.Tx, token group.Token) {
		req.Token = token
		s.ofMember(now, tx, groupID, token, func(e *entry) group.Effects {
			if e.consumer != nil {
				return e.consumer.Sync(now, g.env(groupID), req)
			}
			return e.classic.Sync(now, req)
		})
	})
	if r.Sync != nil {
		return *r.Sync, err
	}
	return group.SyncResponse{}, err
}

// ofMember runs an event of a group that somebody says to be a member of.
func (s *shard) ofMember(now time.Time, tx *coordinator.Tx, id string, token group.Token, run func(*entry) group.Effects) {
	e, err := s.find(now, id)
	switch {
	case err != nil:
		s.reply(tx, group.Reply{Token: token, Err: err})
	case e == nil:
		s.reply(tx, group.Reply{Token: token, Err: group.ErrUnknownMember})
	case e.idle():
		s.reply(tx, group.Reply{Token: token, Err: group.ErrUnknownMember})
		s.settle(e)
	default:
		s.apply(tx, e, run(e))
	}
}

// Heartbeat implements broker/api's Groups.
func (g *Groups) Heartbeat(ctx context.Context, groupID string, req group.HeartbeatRequest) error {
	if err := checkGroupID(groupID); err != nil {
		return err
	}
	_, err := g.ask(ctx, groupID, g.cfg.Groups.OffsetsCommitTimeout, func(s *shard, now time.Time, tx *coordinator.Tx, token group.Token) {
		req.Token = token
		s.ofMember(now, tx, groupID, token, func(e *entry) group.Effects {
			if e.consumer != nil {
				return e.consumer.HeartbeatClassic(now, g.env(groupID), req)
			}
			return e.classic.Heartbeat(now, req)
		})
	})
	return err
}

// Leave implements broker/api's Groups.
func (g *Groups) Leave(ctx context.Context, groupID string, req group.LeaveRequest) (group.LeaveResponse, error) {
	if err := checkGroupID(groupID); err != nil {
		return group.LeaveResponse{}, err
	}
	r, err := g.ask(ctx, groupID, g.cfg.Groups.OffsetsCommitTimeout, func(s *shard, now time.Time, tx *coordinator.Tx, token group.Token) {
		req.Token = token
		e, err := s.find(now, groupID)
		switch {
		case err != nil:
			s.reply(tx, group.Reply{Token: token, Err: err})
		case e == nil:
			s.reply(tx, group.Reply{Token: token, Err: group.ErrUnknownMember})
		case e.consumer != nil:
			s.apply(tx, e, e.consumer.Leave(now, g.env(groupID), req))
		default:
			s.apply(tx, e, e.classic.Leave(now, req))
		}
	})
	if r.Leave != nil {
		return *r.Leave, err
	}
	return group.LeaveResponse{}, err
}

// ConsumerHeartbeat implements broker/api's Groups.
func (g *Groups) ConsumerHeartbeat(ctx context.Context, groupID string, req group.ConsumerHeartbeatRequest) (group.ConsumerHeartbeatResponse, error) {
	if strings.TrimSpace(groupID) == "" {
		//lint:ignore ST1005 Kafka's sentence
		return group.ConsumerHeartbeatResponse{}, fmt.Errorf("%w: GroupId can't be empty.", group.ErrInvalidRequest)
	}
	if err := checkGroupID(groupID); err != nil {
		return group.ConsumerHeartbeatResponse{}, err
	}
	if err := checkSubscription(req.SubscribedTopics); err != nil {
		return group.ConsumerHeartbeatResponse{}, err
	}
	if err := checkTexts(heartbeatTexts(req)...); err != nil {
		return group.ConsumerHeartbeatResponse{}, err
	}
	r, err := g.ask(ctx, groupID, g.cfg.Groups.OffsetsCommitTimeout, func(s *shard, now time.Time, tx *coordinator.Tx, token group.Token) {
		req.Token = token
		s.consumerHeartbeat(now, tx, groupID, req)
	})
	if r.ConsumerHeartbeat != nil {
		return *r.ConsumerHeartbeat, err
	}
	return group.ConsumerHeartbeatResponse{}, err
}

func heartbeatTexts(req group.ConsumerHeartbeatRequest) []string {
	texts := append([]string{req.MemberID, req.InstanceID}, req.SubscribedTopics...)
	for _, t := range []*string{req.RackID, req.SubscribedRegex, req.Assignor} {
		if t != nil {
			texts = append(texts, *t)
		}
	}
	return texts
}

func (s *shard) consumerHeartbeat(now time.Time, tx *coordinator.Tx, id string, req group.ConsumerHeartbeatRequest) {
	e, err := s.find(now, id)
	switch {
	case err != nil:
		s.reply(tx, group.Reply{Token: req.Token, Err: err})
	case e != nil && e.consumer != nil:
		s.apply(tx, e, e.consumer.Heartbeat(now, s.g.env(id), req))
	case e != nil:
		to, fx := consumer.Upgrade(now, s.g.env(id), e.classic, req)
		if to != nil {
			e.classic, e.consumer = nil, to
		}
		s.apply(tx, e, fx)
	default:
		e = &entry{id: id, consumer: consumer.New(id), place: -1}
		s.insert(e)
		fx := e.consumer.Heartbeat(now, s.g.env(id), req)
		if req.MemberEpoch != group.JoinEpoch && len(fx.Replies) > 0 && errors.Is(fx.Replies[0].Err, group.ErrUnknownMember) {
			fx.Replies[0].Err = notFound(id)
		}
		s.apply(tx, e, fx)
	}
}
