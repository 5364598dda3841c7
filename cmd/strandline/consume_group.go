package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupPollInterval is how often --exit-at-end asks what the other members of
// the group have committed.
const groupPollInterval = 500 * time.Millisecond

// leaveTimeout bounds how long a member waits for the answer to its leaving.
const leaveTimeout = 5 * time.Second

// groupReader is one run of consume --group. Rebalances wait between the poll of
// records and their commit: what is printed is committed by the member that
// printed it, or not at all.
type groupReader struct {
	*consumeFlags
	topic   string
	cl      *kgo.Client
	out     *bufio.Writer
	printed int64
	// open has the ends of the partitions that the group has not read up to yet,
	// with --exit-at-end.
	open map[int32]int64
	// owned has the partitions that are assigned here, since the last time that
	// something was: a rebalance ended, or records came. The client's goroutines
	// write it, too.
	mu    sync.Mutex
	owned map[int32]bool
	since time.Time
	// next is what to commit: the offset after what is printed of each partition.
	next map[int32]kgo.EpochOffset
}

// runGroup reads as a member of --group.
func (f *consumeFlags) runGroup(ctx context.Context, topic string) error {
	if f.partition >= 0 {
		return usagef("--partition %d: a group shares out partitions by itself; leave --partition or --group out", f.partition)
	}
	open, err := f.groupEnds(ctx, topic)
	if err != nil || f.exitAtEnd && len(open) == 0 {
		return err
	}
	begin, err := f.beginning()
	if err != nil {
		return err
	}
	g := &groupReader{
		consumeFlags: f, topic: topic, out: bufio.NewWriterSize(os.Stdout, 64<<10), open: open,
		next: map[int32]kgo.EpochOffset{}, owned: map[int32]bool{}, since: time.Now(),
	}
	assigned := func(_ context.Context, _ *kgo.Client, topics map[string][]int32) { g.assign(topics, true) }
	taken := func(_ context.Context, _ *kgo.Client, topics map[string][]int32) { g.assign(topics, false) }
	g.cl, err = f.client(
		kgo.ConsumerGroup(f.group), kgo.ConsumeTopics(topic), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.ConsumeStartOffset(begin), kgo.ConsumeResetOffset(begin), kgo.FetchMaxBytes(16<<20), kgo.KeepControlRecords(),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(assigned), kgo.OnPartitionsRevoked(taken), kgo.OnPartitionsLost(taken))
	if err != nil {
		return err
	}
	err = g.read(ctx)
	g.leave(ctx)
	return err
}

// beginning is --offset for a partition of which nothing is committed.
func (f *consumeFlags) beginning() (kgo.Offset, error) {
	ms, isTime := strings.CutPrefix(f.offset, "@")
	n, err := strconv.ParseInt(ms, 10, 64)
	switch {
	case f.offset == "earliest":
		return kgo.NewOffset().AtStart(), nil
	case f.offset == "latest":
		return kgo.NewOffset().AtEnd(), nil
	case err != nil || n < 0:
		return kgo.Offset{}, usagef("--offset %s: want earliest, latest, an offset, or @unix-ms", f.offset)
	case isTime:
		return kgo.NewOffset().AfterMilli(n), nil
	}
	return kgo.NewOffset().At(n), nil
}

// groupEnds returns the end of each partition of which the group has records to
// read.
func (f *consumeFlags) groupEnds(ctx context.Context, topic string) (open map[int32]int64, err error) {
	err = f.withGroups(ctx, f.group, func(ctx context.Context, adm *kadm.Client) error {
		begins, err := f.starts(ctx, adm, topic)
		if err != nil {
			return err
		}
		logStarts, err := adm.ListStartOffsets(ctx, topic)
		if err != nil {
			return err
		}
		committed, err := adm.FetchOffsets(ctx, f.group)
		if err != nil {
			return groupError(f.group, err, "")
		}
		open = map[int32]int64{}
		for p, s := range begins {
			logStart, err := listedOffset(logStarts, topic, p)
			if err != nil {
				return err
			}
			c, ok := committed.Lookup(topic, p)
			if ok && c.Err != nil {
				return groupError(f.group, c.Err, "")
			}
			switch {
			case ok && c.At >= logStart.Offset && c.At <= s.end:
				s.from = c.At
			case s.from < logStart.Offset || s.from > s.end:
				return fmt.Errorf("%w: %s partition %d does not have the offset that was asked for; `--offset earliest` and `--offset latest` read from its ends", kerr.OffsetOutOfRange, topic, p)
			}
			if s.from < s.end {
				open[p] = s.end
			}
		}
		return nil
	})
	return open, err
}

func (g *groupReader) read(ctx context.Context) error {
	for {
		fetches := g.poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := g.check(fetches); err != nil {
			return err
		}
		if err := g.print(fetches); err != nil {
			return err
		}
		committed, err := g.commit(ctx)
		if err != nil || g.allPrinted() {
			return err
		}
		if g.exitAtEnd && committed {
			if done, err := g.atEnd(ctx, fetches); err != nil || done {
				return err
			}
			if waiting := g.waiting(fetches); len(waiting) > 0 {
				return g.stuck(waiting)
			}
		}
		g.cl.AllowRebalance()
	}
}

// assign notes which partitions are here.
func (g *groupReader) assign(topics map[string][]int32, here bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range topics[g.topic] {
		g.owned[p] = here
	}
	g.since = time.Now()
}

// waiting returns the partitions that are assigned here and not read to their
// ends, if no record has come for --timeout.
func (g *groupReader) waiting(fetches kgo.Fetches) map[int32]int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if fetches.NumRecords() > 0 {
		g.since = time.Now()
	}
	if time.Since(g.since) < g.timeout {
		return nil
	}
	open := maps.Clone(g.open)
	maps.DeleteFunc(open, func(p int32, _ int64) bool { return !g.owned[p] })
	return open
}

// allPrinted reports whether --count records are printed.
func (g *groupReader) allPrinted() bool { return g.count > 0 && g.printed >= g.count }

// leave leaves the group; where the coordinator does not answer, it finds out by
// the session's timeout.
func (g *groupReader) leave(ctx context.Context) {
	g.cl.AllowRebalance()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(g.timeout, leaveTimeout))
	defer cancel()
	_ = g.cl.LeaveGroupContext(ctx)
	g.cl.Close()
}

// poll waits for records; with --exit-at-end not for long, since it may be that
// others read the last of them.
func (g *groupReader) poll(ctx context.Context) kgo.Fetches {
	if g.exitAtEnd {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, groupPollInterval)
		defer cancel()
	}
	return g.cl.PollFetches(ctx)
}

// check returns the error that ends reading, if there is one. The client mends
// the others by itself: it finds the coordinator, and joins again.
func (g *groupReader) check(fetches kgo.Fetches) error {
	for _, e := range fetches.Errors() {
		var k *kerr.Error
		isKafka := errors.As(e.Err, &k)
		switch session := (*kgo.ErrGroupSession)(nil); {
		case errors.Is(e.Err, context.DeadlineExceeded) && !isKafka: // nothing to read for now
		case errors.As(e.Err, new(*kgo.ErrDataLoss)):
			fmt.Fprintf(os.Stderr, "strandline: %s partition %d: %v\n", e.Topic, e.Partition, e.Err)
		case !errors.As(e.Err, &session):
			return fmt.Errorf("reading %s partition %d: %w", e.Topic, e.Partition, e.Err)
		case isKafka && !k.Retriable && !movedOn(k):
			return groupError(g.group, e.Err, "")
		}
	}
	return nil
}

// movedOn reports whether a member has to join again, because the group has gone
// on without it.
func movedOn(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.RebalanceInProgress)
}

// print prints what was polled, up to --count and to the ends, and notes what to
// commit.
func (g *groupReader) print(fetches kgo.Fetches) error {
	for it := fetches.RecordIter(); !it.Done() && !g.allPrinted(); {
		r := it.Next()
		if end, isOpen := g.open[r.Partition]; g.exitAtEnd && (!isOpen || r.Offset >= end) {
			if isOpen && g.next[r.Partition].Offset != end { // compaction has left nothing before the end
				g.next[r.Partition] = kgo.EpochOffset{Epoch: -1, Offset: end}
			}
			continue
		}
		if !r.Attrs.IsControl() {
			if err := g.printRecord(g.out, r); err != nil {
				return fmt.Errorf("writing standard output: %w", err)
			}
			g.printed++
		}
		g.next[r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
	}
	if err := g.out.Flush(); err != nil {
		return fmt.Errorf("writing standard output: %w", err)
	}
	return nil
}

// commit commits what is printed; a signal does not cut it short. It reports
// whether that is done: where the group has gone on without this member, another
// one may print the same records again.
func (g *groupReader) commit(ctx context.Context) (bool, error) {
	if len(g.next) == 0 {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.timeout)
	defer cancel()
	var failed error
	offsets := map[string]map[int32]kgo.EpochOffset{g.topic: maps.Clone(g.next)}
	g.cl.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if failed = err; err != nil {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				failed = errors.Join(failed, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	})
	// As a member of a later generation, to commit this again would take back what
	// others have committed since.
	clear(g.next)
	switch {
	case failed == nil:
		return true, nil
	case !movedOn(failed):
		return false, fmt.Errorf("what was printed last is not committed: %w", groupError(g.group, failed, ""))
	case g.allPrinted():
		return false, fmt.Errorf("what was printed last is not committed, since group %s has gone on without this member: %w", shown(g.group), failed)
	}
	fmt.Fprintf(os.Stderr, "strandline: group %s has gone on without this member, which was busy for too long; what it printed last may be printed again\n", shown(g.group))
	return false, nil
}

// atEnd reports whether the group has read each partition up to the end that it
// had at the start.
func (g *groupReader) atEnd(ctx context.Context, fetches kgo.Fetches) (bool, error) {
	if g.allAtEnd(fetches, g.open) {
		return true, nil
	}
	if len(fetches.Records()) > 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	committed, err := kadm.NewClient(g.cl).FetchOffsets(ctx, g.group)
	if err != nil { // unless it is final, the next poll asks again
		if k := (*kerr.Error)(nil); errors.As(err, &k) && !k.Retriable {
			return false, groupError(g.group, err, "")
		}
		return false, nil
	}
	for p, end := range g.open {
		if c, ok := committed.Lookup(g.topic, p); ok && c.Err == nil && c.At >= end {
			delete(g.open, p)
		}
	}
	return len(g.open) == 0, nil
}
