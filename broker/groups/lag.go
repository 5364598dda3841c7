package groups

import (
	"context"
	"slices"
	"time"

	"strandline/broker/coordinator"
	"strandline/broker/group"
	"strandline/metadata/cluster"
)

// GroupOffset is what a group has committed for a partition.
type GroupOffset struct {
	Group, Topic string
	TopicID      cluster.TopicID // zero: not known
	Partition    int32
	Offset       cluster.Offset
}

// Offsets returns committed offsets of the groups that this broker coordinates,
// no more than limit: those of groups with members come first. more says that
// there are others. It takes what it finds by the time that ctx ends.
func (g *Groups) Offsets(ctx context.Context, limit int) (offsets []GroupOffset, more bool) {
	loaded, _ := g.runtime.Led()
	slices.Sort(loaded)
	active := make([][]string, len(loaded))
	for i, p := range loaded {
		var ids []string
		_, err := g.askPartition(ctx, p, 0, func(s *shard, _ time.Time, _ *coordinator.Tx, token group.Token) {
			for id := range s.groups {
				ids = append(ids, id)
			}
			s.answer(group.Reply{Token: token})
		})
		switch {
		case ctx.Err() != nil:
			return nil, true
		case err == nil:
			active[i] = ids
		}
	}
	c := &collection{g: g, ctx: ctx, limit: limit, seen: map[string]bool{}}
	for i, p := range loaded {
		c.read(p, func(r coordinator.Reader) error {
			for _, id := range active[i] {
				if err := c.group(r, id); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, p := range loaded {
		c.read(p, func(r coordinator.Reader) error {
			for id, err := range storedIDs(r, group.OffsetKind) {
				if err == nil && !c.seen[id] {
					err = c.group(r, id)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return c.offsets, c.more
}

// collection collects offsets, up to a limit.
type collection struct {
	g       *Groups
	ctx     context.Context
	limit   int
	seen    map[string]bool
	offsets []GroupOffset
	more    bool
}

func (c *collection) read(partition int32, fn func(coordinator.Reader) error) {
	if !c.more {
		_ = c.g.runtime.Read(partition, fn) // not led any more, or full
	}
}

// group adds a group's offsets. The error is that there is no more room, or what
// the view says.
func (c *collection) group(r coordinator.Reader, id string) error {
	c.seen[id] = true
	for o, err := range storedOffsets(r.Scan(group.ViewPrefix(group.OffsetKind, id)), nil) {
		switch {
		case err != nil:
			return err
		case len(c.offsets) >= c.limit || c.ctx.Err() != nil:
			c.more = true
			return context.Canceled
		}
		c.offsets = append(c.offsets, GroupOffset{Group: id, Topic: o.Topic, TopicID: o.TopicID, Partition: o.Partition, Offset: o.Offset})
	}
	return nil
}
