package partition

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"strandline/broker/leaderepoch"
	"strandline/broker/locallog"
	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
)

// movable is the replica's log, which may be exchanged for one in another
// directory that has the same batches. What only looks at offsets takes no lock;
// what touches files holds moving for reading, so that no file is renamed under
// it. What writes is under Partition.writeMu, which an exchange holds as well.
type movable struct {
	*current
	moving sync.RWMutex
}

// current forwards what needs no lock.
type current struct {
	log atomic.Pointer[locallog.Log]
	// changes counts what a copy of the log does not follow: truncations, and
	// starts at another offset.
	changes atomic.Int64
}

func newMovable(log *locallog.Log) *movable {
	m := &movable{current: &current{}}
	m.log.Store(log)
	return m
}

func (c *current) ActiveBase() cluster.Offset        { return c.log.Load().ActiveBase() }
func (c *current) AssignEpoch(e cluster.LeaderEpoch) { c.log.Load().AssignEpoch(e) }
func (c *current) Bytes() int64                      { return c.log.Load().Bytes() }
func (c *current) EndOffset() cluster.Offset         { return c.log.Load().EndOffset() }
func (c *current) FlushedOffset() cluster.Offset     { return c.log.Load().FlushedOffset() }
func (c *current) StartOffset() cluster.Offset       { return c.log.Load().StartOffset() }
func (c *current) LocalStartOffset() cluster.Offset  { return c.log.Load().LocalStartOffset() }
func (c *current) Epochs() *leaderepoch.List         { return c.log.Load().Epochs() }
func (c *current) Err() error                        { return c.log.Load().Err() }
func (c *current) FlushDue(now time.Time) bool       { return c.log.Load().FlushDue(now) }
func (c *current) Segments() []locallog.SegmentInfo  { return c.log.Load().Segments() }
func (c *current) SetStartOffset(o cluster.Offset)   { c.log.Load().SetStartOffset(o) }
func (c *current) SetSettings(s locallog.Settings)   { c.log.Load().SetSettings(s) }

func (c *current) CompactedTombstonesBelow() cluster.Offset {
	return c.log.Load().CompactedTombstonesBelow()
}

func (c *current) EpochAt(o cluster.Offset) (cluster.LeaderEpoch, bool) {
	return c.log.Load().EpochAt(o)
}

func (c *current) EpochEnd(e cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset, bool) {
	return c.log.Load().EpochEnd(e)
}

func (c *current) LatestEpoch() (leaderepoch.Entry, bool) { return c.log.Load().LatestEpoch() }

// Producers and the methods up to Close are for the writer.
func (c *current) Producers() *producerstate.Manager { return c.log.Load().Producers() }

func (c *current) Append(batches []byte) (locallog.AppendInfo, error) {
	return c.log.Load().Append(batches)
}

func (c *current) Roll() (bool, error) { return c.log.Load().Roll() }

func (c *current) RollIfDue(now time.Time) (bool, error) { return c.log.Load().RollIfDue(now) }

func (c *current) DeleteSealedBelow(o cluster.Offset) (int, int64, error) {
	return c.log.Load().DeleteSealedBelow(o)
}

func (c *current) Reset(start cluster.Offset, epochs []leaderepoch.Entry, snapshot []byte) error {
	c.changes.Add(1)
	return c.log.Load().Reset(start, epochs, snapshot)
}

func (c *current) Close(clean bool) error { return c.log.Load().Close(clean) }

// Read and the methods below touch files beside the writer.
func (m *movable) Read(from, bound cluster.Offset, maxBytes int, minOne bool) (locallog.Slice, error) {
	m.moving.RLock()
	defer m.moving.RUnlock()
	return m.log.Load().Read(from, bound, maxBytes, minOne)
}

func (m *movable) AbortedTxns(from, to cluster.Offset) ([]producerstate.AbortedTxn, error) {
	m.moving.RLock()
	defer m.moving.RUnlock()
	return m.log.Load().AbortedTxns(from, to)
}

func (m *movable) CheckedAbortedTxns(from, to cluster.Offset) ([]producerstate.AbortedTxn, error) {
	m.moving.RLock()
	defer m.moving.RUnlock()
	return m.log.Load().CheckedAbortedTxns(from, to)
}

func (m *movable) FindBatch(o cluster.Offset) (locallog.BatchInfo, error) {
	m.moving.RLock()
	defer m.moving.RUnlock()
	return m.log.Load().FindBatch(o)
}

func (m *movable) Flush(ctx context.Context) error {
	m.moving.RLock()
	defer m.moving.RUnlock()
	return m.log.Load().Flush(ctx)
}

func (m *movable) MaxTimestamp(bound cluster.Offset) (locallog.Found, bool, error) {
	m.moving.RLock()
	defer m.moving.RUnlock()
	return m.log.Load().MaxTimestamp(bound)
}

func (m *movable) OffsetForTimestamp(ts int64, bound cluster.Offset) (locallog.Found, bool, error) {
	m.moving.RLock()
	defer m.moving.RUnlock()
	return m.log.Load().OffsetForTimestamp(ts, bound)
}

func (m *movable) RunDeferred(now time.Time) (time.Time, error) {
	m.moving.RLock()
	defer m.moving.RUnlock()
	return m.log.Load().RunDeferred(now)
}

func (m *movable) Sealed(base cluster.Offset) (*locallog.SealedView, error) {
	m.moving.RLock()
	defer m.moving.RUnlock()
	return m.log.Load().Sealed(base)
}

// Copying calls step with the log, for one step of a copy of it; changes counts
// what such a copy does not follow. The log's files keep their names during it.
func (p *Partition) Copying(step func(log *locallog.Log) error) (changes int64, err error) {
	p.log.moving.RLock()
	defer p.log.moving.RUnlock()
	if err := p.online(); err != nil {
		return 0, err
	}
	changes = p.log.changes.Load()
	return changes, step(p.log.log.Load())
}

// Exchange lets replace finish a copy of the log and put it in the log's place,
// and goes on with what it returns. Appends and reads wait meanwhile; none is
// lost, and none fails. changes is that of the first step of the copy: where the
// log has since been cut or begun anew, Exchange fails with locallog.ErrOvertaken.
// The former log is closed.
func (p *Partition) Exchange(changes int64, replace func(old *locallog.Log) (*locallog.Log, error)) error {
	if err := p.exchange(changes, replace); err != nil {
		return err
	}
	p.advance()
	return nil
}

func (p *Partition) exchange(changes int64, replace func(old *locallog.Log) (*locallog.Log, error)) error {
	p.structure.Lock()
	defer p.structure.Unlock()
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	p.log.moving.Lock()
	defer p.log.moving.Unlock()
	if err := p.online(); err != nil {
		return err
	}
	if p.log.changes.Load() != changes {
		return locallog.ErrOvertaken
	}
	old := p.log.log.Load()
	fresh, err := replace(old)
	if err != nil {
		return err
	}
	p.log.log.Store(fresh)
	return old.Close(false)
}
