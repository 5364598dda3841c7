package partition

import (
	"strandline/broker/locallog"
	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
)

// LastOfProducers describes what every producer that the log remembers has
// written last, whoever leads: compaction must keep that of it.
func (p *Partition) LastOfProducers() (map[cluster.ProducerID]producerstate.Entry, error) {
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	if err := p.online(); err != nil {
		return nil, err
	}
	entries := p.log.Producers().Entries()
	out := make(map[cluster.ProducerID]producerstate.Entry, len(entries))
	for _, e := range entries {
		out[e.ProducerID] = e
	}
	return out, nil
}

// CommitRewrite puts a rewrite of sealed segments in the place of what it was made
// from. Only the exchange itself makes appends wait, not the disk. Where it fails
// and the log is as it was, the rewrite can be aborted; else the replica is
// offline.
func (p *Partition) CommitRewrite(rw *locallog.Rewrite, removedBelow cluster.Offset) error {
	p.structure.Lock()
	defer p.structure.Unlock()
	p.log.moving.RLock()
	defer p.log.moving.RUnlock()
	if err := p.online(); err != nil {
		return err
	}
	if err := rw.Prepare(removedBelow); err != nil {
		return p.rewriteError(err)
	}
	p.writeMu.Lock()
	err := rw.Publish()
	p.writeMu.Unlock()
	if err == nil {
		err = rw.Finish()
	}
	return p.rewriteError(err)
}

// rewriteError takes the replica offline where the log is.
func (p *Partition) rewriteError(err error) error {
	if err == nil || p.log.Err() == nil {
		return err
	}
	return p.storage(err)
}

// ActiveBase is the base offset of the segment that is being written.
func (p *Partition) ActiveBase() cluster.Offset { return p.log.ActiveBase() }

// CompactedTombstonesBelow is one past the highest offset of a tombstone or
// transaction marker that compaction may have removed, 0 where none was; see
// locallog.Log.
func (p *Partition) CompactedTombstonesBelow() cluster.Offset {
	return p.log.CompactedTombstonesBelow()
}
