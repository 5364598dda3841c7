package controller

import (
	"fmt"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/request"
)

// overlay is a partition's catalog with what is in flight on top.
type overlay struct {
	summary  catalog.Summary
	reader   *catalog.Overlay
	sequence uint64 // of the last command that changes it
}

func (c *Controller) segmentRequest(req request.Request) (request.Result, error) {
	switch r := req.(type) {
	case request.StartSegment:
		if t, _, ok := c.img.Partition(r.Partition); ok && !t.Tiered {
			return nil, request.Refuse(request.ErrInvalidRequest, "topic %s is not tiered", t.Name)
		}
		_, err := c.segmentEvent(r.Partition, catalog.StartedEvent{
			LeaderEpoch: r.LeaderEpoch, Span: r.Span, DeadlineMs: r.Deadline.UnixMilli(),
		})
		return nil, err
	case request.PublishSegment:
		_, err := c.segmentEvent(r.Partition, catalog.PublishedEvent{LeaderEpoch: r.LeaderEpoch, ID: r.ID, Object: r.Object})
		return nil, err
	case request.AbandonSegment:
		_, err := c.segmentEvent(r.Partition, catalog.AbandonedEvent{LeaderEpoch: r.LeaderEpoch, ID: r.ID})
		return nil, err
	case request.AdvanceLogStart:
		sum, err := c.segmentEvent(r.Partition, catalog.LogStartEvent{
			LeaderEpoch: r.LeaderEpoch, Offset: r.Offset, BatchBase: r.BatchBase,
		})
		if err != nil {
			return nil, err
		}
		return request.LogStart{Offset: sum.LogStart}, nil
	case request.RemoveSegments:
		_, err := c.segmentEvent(r.Partition, catalog.RemovedEvent{LeaderEpoch: r.LeaderEpoch, IDs: r.IDs})
		return nil, err
	case request.RemoveDeletedTopic:
		return nil, c.removeDeletedTopic(r.Topic)
	}
	return nil, fmt.Errorf("request %T is not known to the controller", req)
}

// segmentEvent judges an event and puts it in flight where it changes anything.
func (c *Controller) segmentEvent(tp cluster.TopicPartition, ev catalog.Event) (catalog.Summary, error) {
	ctx := catalog.Context{NowMs: c.now.UnixMilli()}
	if _, p, ok := c.img.Partition(tp); ok {
		ctx.LeaderEpoch = p.LeaderEpoch
	} else {
		_, deleted, err := c.cfg.Catalog.Deleted(tp.Topic)
		if err != nil {
			return catalog.Summary{}, err
		}
		if !deleted {
			return catalog.Summary{}, request.Refuse(request.ErrUnknownTopicID, "partition %s is not known", tp)
		}
		ctx.Deleted = true
	}
	o, known := c.partitions[tp]
	if !known {
		sum, r, err := c.cfg.Catalog.Partition(tp)
		if err != nil {
			return catalog.Summary{}, err
		}
		o = &overlay{summary: sum, reader: catalog.NewOverlay(r)}
	}
	edit, err := catalog.Apply(ctx, o.summary, o.reader, ev)
	if err != nil || !edit.Changed {
		return edit.Summary, err
	}
	if err := c.propose([]command.Record{command.SegmentChanged{Partition: tp, Event: ev}}); err != nil {
		return catalog.Summary{}, err
	}
	o.summary, o.sequence = edit.Summary, c.sequence
	o.reader.Add(edit)
	c.partitions[tp] = o
	return edit.Summary, nil
}

func (c *Controller) removeDeletedTopic(id cluster.TopicID) error {
	if _, ok := c.img.TopicByID(id); ok {
		return request.Refuse(request.ErrInvalidRequest, "topic %s is not deleted", id)
	}
	if _, ok, err := c.cfg.Catalog.Deleted(id); err != nil || !ok {
		return err
	}
	return c.propose([]command.Record{command.DeletedTopicForgotten{Topic: id}})
}
