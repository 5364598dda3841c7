package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"strandline/broker/locallog"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/tiering/manifest"
	"strandline/tiering/objstore"
	"strandline/tiering/segmentobject"
)

// submitTimeout bounds the wait for one command.
const submitTimeout = 30 * time.Second

// uploadMinTime is how much of an intent's time must be left to try it again.
const uploadMinTime = 50 * time.Millisecond

// intent is an upload that the catalog knows of.
type intent struct {
	span    request.SegmentSpan
	epoch   cluster.LeaderEpoch
	created time.Time
	giveUp  time.Time // when the upload is cancelled
}

// fits tells whether the intent can be carried out for a segment.
func (i *intent) fits(base, end cluster.Offset, epoch cluster.LeaderEpoch, location string, now time.Time) bool {
	return i != nil && i.span.Base == base && i.span.End == end && i.epoch == epoch &&
		i.span.Location == location && i.giveUp.Sub(now) > uploadMinTime
}

// step takes a partition one segment further; more tells that there may be
// another one.
func (a *Archiver) step(ctx context.Context, t *task) (more bool, err error) {
	r, ok := a.cfg.Replica(t.tp)
	if !ok {
		return false, nil
	}
	s := situation{now: a.cfg.Now(), settings: r.Settings(), logStart: r.LogStartOffset()}
	s.summary, _ = a.cfg.Catalog.Summary(t.tp)
	var epoch cluster.LeaderEpoch
	s.offered, epoch = r.Archivable(s.summary.RemoteEnd)
	if len(s.offered) > 0 {
		s.tailBytes = tailBytes(r, s.offered[len(s.offered)-1].Next)
	}
	do, err := decide(s)
	switch {
	case err != nil:
		return false, err
	case do == align:
		return true, a.align(ctx, r, epoch, s.logStart)
	case do == upload:
		if err := a.health.Err(); err != nil {
			return false, err
		}
		err := a.copy(ctx, t, r, s.offered[0], s.summary.RemoteEnd, epoch)
		if err != nil && a.overtaken(t.tp, s.summary.RemoteEnd) {
			a.cfg.Logger.Debug("a segment need not be copied any more", "partition", t.tp, "why", err)
			return true, nil
		}
		return true, err
	}
	return false, nil
}

// overtaken tells that what was to be uploaded from an offset on need not be any
// more: it was deleted since that was decided, as records or with the replica, or
// was published though the answer was lost.
func (a *Archiver) overtaken(tp cluster.TopicPartition, from cluster.Offset) bool {
	if _, hosted := a.cfg.Replica(tp); !hosted {
		return true
	}
	summary, _ := a.cfg.Catalog.Summary(tp)
	return summary.RemoteEnd > from
}

func tailBytes(r Replica, from cluster.Offset) int64 {
	n := int64(0)
	for _, segment := range r.Status().Segments {
		if segment.Base >= from {
			n += segment.Bytes
		}
	}
	return n
}

// submit sends a command and waits for its outcome.
func (a *Archiver) submit(ctx context.Context, req request.Request) error {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	_, err := a.cfg.Submitter.Submit(ctx, req)
	return err
}

// align tells the catalog the log start offset of a partition that had one
// before it became tiered; where nothing is remote, uploads begin there.
func (a *Archiver) align(ctx context.Context, r Replica, epoch cluster.LeaderEpoch, start cluster.Offset) error {
	base, err := r.BatchBase(start)
	if err != nil {
		return err
	}
	err = a.submit(ctx, request.AdvanceLogStart{Partition: r.TopicPartition(), LeaderEpoch: epoch, Offset: start, BatchBase: base})
	if err != nil {
		return fmt.Errorf("tell the catalog the log start offset %d: %w", start, err)
	}
	return nil
}

// copy uploads and publishes [from, segment.Next).
func (a *Archiver) copy(ctx context.Context, t *task, r Replica, segment locallog.SegmentInfo, from cluster.Offset, epoch cluster.LeaderEpoch) error {
	layout, err := a.cfg.Ownership.Check(ctx)
	if err != nil {
		a.health.failed(err)
		return err
	}
	if !t.intent.fits(from, segment.Next, epoch, layout.Location, a.cfg.Now()) {
		if t.intent != nil && t.intent.span.Base < from {
			t.intent = nil // published, though the answer was lost; or the log start passed it
		}
		a.abandon(ctx, t)
		if t.intent, err = a.announce(ctx, r, layout, from, segment.Next, epoch); err != nil {
			return err
		}
	}
	in := t.intent
	began := time.Now()
	uploadCtx, cancel := context.WithDeadline(ctx, in.giveUp)
	defer cancel()
	view, err := r.OpenSealed(segment.Base)
	if err != nil {
		return err
	}
	defer view.Release() // the object reads its batches from the file
	object, err := a.build(uploadCtx, r, view, in)
	if err == nil {
		err = a.put(uploadCtx, in.span.Key, object)
	}
	if err != nil {
		if uploadCtx.Err() != nil || errors.Is(err, objstore.ErrExists) || errors.Is(err, segmentobject.ErrCorrupt) {
			a.abandon(ctx, t)
		}
		return fmt.Errorf("upload %q: %w", in.span.Key, err)
	}
	a.health.uploaded()
	a.cfg.Hook(StepUpload)
	err = a.submit(ctx, request.PublishSegment{
		Partition: r.TopicPartition(), LeaderEpoch: epoch, ID: in.span.ID, Object: object.Summary(),
	})
	if err != nil {
		if !retriableOutcome(err) {
			a.abandon(ctx, t)
		}
		return fmt.Errorf("publish %q: %w", in.span.Key, err)
	}
	t.intent = nil
	a.cfg.Hook(StepPublish)
	a.counts.segments.Add(1)
	a.counts.bytes.Add(object.Size())
	a.cfg.Logger.Debug("segment copied to the store", "topic", r.Topic(), "partition", r.TopicPartition().Partition,
		"base_offset", in.span.Base, "end_offset", in.span.End, "bytes", object.Size(), "took", time.Since(began))
	return nil
}

// retriableOutcome tells whether the same command may be sent again.
func retriableOutcome(err error) bool {
	return errors.Is(err, request.ErrOutcomeUnknown) || errors.Is(err, request.ErrNotController) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// announce puts an intent into the catalog (A1).
func (a *Archiver) announce(ctx context.Context, r Replica, layout manifest.Layout, base, end cluster.Offset, epoch cluster.LeaderEpoch) (*intent, error) {
	now, tp := a.cfg.Now(), r.TopicPartition()
	in := &intent{epoch: epoch, created: now, giveUp: now.Add(a.cfg.UploadDeadline)}
	in.span = request.SegmentSpan{
		ID: cluster.NewSegmentID(), Base: base, End: end, LeaderEpoch: epoch, Location: layout.Location,
	}
	in.span.Key = layout.SegmentKey(tp, base, in.span.ID)
	err := a.submit(ctx, request.StartSegment{
		Partition: tp, LeaderEpoch: epoch, Span: in.span,
		// A request that was cancelled may still reach the store for a while.
		Deadline: in.giveUp.Add(max(time.Second, a.cfg.UploadDeadline/10)),
	})
	if err != nil {
		return nil, fmt.Errorf("announce the upload of offsets %d to %d: %w", base, end-1, err)
	}
	return in, nil
}

// abandon gives up the intent of a task. Where the catalog cannot be told, the
// sweeper finds it by its deadline.
func (a *Archiver) abandon(ctx context.Context, t *task) {
	if t.intent == nil {
		return
	}
	err := a.submit(ctx, request.AbandonSegment{Partition: t.tp, LeaderEpoch: t.intent.epoch, ID: t.intent.span.ID})
	if err != nil {
		a.cfg.Logger.Debug("an upload could not be given up in the catalog and will be by its deadline",
			"key", t.intent.span.Key, "error", err)
	}
	t.intent = nil
}

func (a *Archiver) build(ctx context.Context, r Replica, view *locallog.SealedView, in *intent) (*segmentobject.Object, error) {
	file := view.Handle.File()
	position, err := positionOf(file, view.Bytes, in.span.Base)
	if err != nil {
		return nil, err
	}
	aborted, err := r.AbortedTxns(in.span.Base, in.span.End)
	if err != nil {
		return nil, err
	}
	tp := r.TopicPartition()
	return segmentobject.Build(ctx, segmentobject.Source{
		TopicName: r.Topic(), Topic: tp.Topic, Partition: tp.Partition, Segment: in.span.ID,
		Base: in.span.Base, End: in.span.End, LeaderEpoch: in.epoch,
		Batches: file, Position: position, Bytes: view.Bytes - position,
		Aborted: aborted, ProducerSnapshot: view.ProducerSnapshot, Epochs: view.Epochs,
		Created: in.created,
	})
}

// positionOf finds where the batch begins that starts at an offset (A2).
func positionOf(file io.ReaderAt, size int64, base cluster.Offset) (int64, error) {
	var header [recordbatch.HeaderBytes]byte
	for position := int64(0); position+recordbatch.HeaderBytes <= size; {
		if n, err := file.ReadAt(header[:], position); n < len(header) {
			return 0, err
		}
		b := recordbatch.Batch(header[:])
		if b.BaseOffset() >= base {
			if b.BaseOffset() > base {
				break
			}
			return position, nil
		}
		if b.Bytes() < recordbatch.HeaderBytes {
			break
		}
		position += int64(b.Bytes())
	}
	return 0, fmt.Errorf("%w: no batch starts at the remote end offset %d", ErrGap, base)
}

// put uploads an object. An object of the same key is this one, of an attempt
// whose answer was lost, or it is not ours.
func (a *Archiver) put(ctx context.Context, key string, object *segmentobject.Object) error {
	_, err := a.cfg.Store.Put(ctx, key, object, object.PutOptions())
	if errors.Is(err, objstore.ErrExists) {
		same, serr := objstore.SameObject(ctx, a.cfg.Store, key, object.Size(), object.Summary().CRC32C)
		switch {
		case serr != nil:
			err = serr
		case same:
			return nil
		}
	}
	if err != nil && ctx.Err() == nil {
		a.health.putFailed(err)
	}
	return err
}
