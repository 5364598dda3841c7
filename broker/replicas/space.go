package replicas

import (
	"cmp"
	"errors"
	"log/slog"
	"path"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"strandline/broker/cleaner"
	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

const (
	// spaceSaidEvery is how often a full directory is named in the log.
	spaceSaidEvery = time.Minute
	// relieveEvery is how often what may leave a full directory is looked for.
	relieveEvery = time.Second
	// nearBytes above the reserve a write looks at the free space itself, where nobody
	// did for nearEvery: between two looks of the housekeeping a fast disk takes more
	// than the reserve may have.
	nearBytes = 1 << 30
	nearEvery = 5 * time.Millisecond
	// sealBytesMin is how large an active segment is sealed, so that it can leave
	// for the tier, where a directory is full.
	sealBytesMin = 1 << 20
	// refusedFloorMax bounds the free space that has to be there before clients
	// write again after the disk itself had no room.
	refusedFloorMax = 128 << 20
	// ballastMaxBytes bounds the room that a log directory keeps for its own
	// files: two of its largest, as one is written while the other is there.
	ballastMaxBytes = 4 << 20
	ballastName     = "ballast"
)

// noSpace says that an error means a full disk.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// headroom compares the free space of one file system with the reserve. Below
// the reserve, or once a write found no room, clients are refused until there is
// an eighth more than the reserve; below one and a half times the reserve what is
// in the tier leaves.
type headroom struct {
	full    atomic.Bool  // clients are refused
	refused atomic.Bool  // the disk itself had no room since it was last not full
	looked  atomic.Int64 // when a write looked last, in Unix nanoseconds
	// Of the housekeeping goroutine alone.
	pressed       bool
	said, relieve time.Time
}

// resumeAt is the free space from which on clients write again.
func (h *headroom) resumeAt(u disk.Usage, reserve int64) int64 {
	at := reserve + reserve/8
	if h.refused.Load() {
		at = max(at, min(u.TotalBytes/8, refusedFloorMax))
	}
	return at
}

// comfortable is the free space from which on nothing leaves early.
func (h *headroom) comfortable(u disk.Usage, reserve int64) int64 {
	return max(reserve+reserve/2, h.resumeAt(u, reserve)+reserve/8)
}

// look takes in a measurement.
func (h *headroom) look(u disk.Usage, reserve int64) (began, ended bool) {
	switch {
	case u.FreeBytes < reserve || h.refused.Load() && u.FreeBytes < h.resumeAt(u, reserve):
		began = !h.full.Swap(true)
	case h.full.Load() && u.FreeBytes >= h.resumeAt(u, reserve):
		h.refused.Store(false)
		ended = h.full.Swap(false)
	}
	h.pressed = h.full.Load() || u.FreeBytes < h.comfortable(u, reserve)
	return began || h.full.Load() && h.said.IsZero(), ended
}

// hadNoSpace notes that a write in the directory found no room.
func (d *dir) hadNoSpace() {
	d.room.refused.Store(true)
	d.room.full.Store(true)
}

// diskFull says whether clients are refused.
func (m *Manager) diskFull(d *dir) bool {
	reserve := m.cfg.Broker.DiskReservedBytes
	if d.room.full.Load() {
		return true
	}
	if d.freeBytes.Load()-reserve >= nearBytes || d.totalBytes.Load() == 0 {
		return false
	}
	looked, now := d.room.looked.Load(), m.cfg.Now().UnixNano()
	if now-looked < int64(nearEvery) || !d.room.looked.CompareAndSwap(looked, now) {
		return false
	}
	usage, err := m.fs.Usage(d.path)
	if err != nil || usage.FreeBytes >= reserve {
		return false // the housekeeping meets the error too
	}
	d.room.full.Store(true) // the housekeeping says so, and makes room
	return true
}

// newBallast keeps room for a directory's checkpoints: the start of a log has to
// rise on a full disk too, where that is what makes room.
func (m *Manager) newBallast(d *dir) *disk.Ballast {
	return disk.NewBallast(m.fs, disk.BallastConfig{
		Name: path.Join(d.path, ballastName), MaxBytes: ballastMaxBytes, Logger: m.cfg.Logger, OnRelease: d.hadNoSpace,
		Of: "a log directory", Effect: "clients are refused until there is room again",
	})
}

// tend makes the directory's ballast, and again after it was used.
func (m *Manager) tend(d *dir) {
	if !m.cfg.Ballast || d.room.pressed {
		return
	}
	if err := d.ballast.Tend(m.cfg.Broker.DiskReservedBytes); err != nil && !noSpace(err) {
		m.dirTrouble(d, err)
	}
}

// measureSpace compares every directory's free space with disk.reserved.bytes
// and frees some where there is too little.
func (m *Manager) measureSpace(now time.Time) {
	reserve := m.cfg.Broker.DiskReservedBytes
	for _, d := range m.cfg.Dirs.dirs {
		if d.offlineErr() != nil {
			continue
		}
		usage, err := m.measure(d)
		if err != nil {
			continue
		}
		began, ended := d.room.look(usage, reserve)
		switch {
		case began, d.room.full.Load() && now.Sub(d.room.said) >= spaceSaidEvery:
			d.room.said = now
			m.sayFull(d, usage, reserve)
		case ended:
			d.room.said = time.Time{}
			m.cfg.Logger.Info("log directory has room again: clients write", "dir", d.path, "free_bytes", usage.FreeBytes, "reserved_bytes", reserve)
		}
		if d.room.pressed && (began || now.Sub(d.room.relieve) >= relieveEvery) {
			d.room.relieve = now
			m.relieve(d)
		}
		m.tend(d)
	}
}

func (m *Manager) measure(d *dir) (disk.Usage, error) {
	usage, err := m.fs.Usage(d.path)
	if err != nil {
		m.dirTrouble(d, err)
		return usage, err
	}
	d.freeBytes.Store(usage.FreeBytes)
	d.totalBytes.Store(usage.TotalBytes)
	return usage, nil
}

// sayFull tells a person what to do.
func (m *Manager) sayFull(d *dir, u disk.Usage, reserve int64) {
	name, bytes := m.largestTopic(d)
	attrs := []any{
		"dir", d.path, "free_bytes", u.FreeBytes, "total_bytes", u.TotalBytes, "disk.reserved.bytes", reserve,
		"resumes_at_bytes", d.room.resumeAt(u, reserve),
		"remedy", "free space on this file system: delete topics or records, lower retention.bytes, local.retention.bytes or, of a compacted topic, min.cleanable.dirty.ratio, move replicas to another log directory, or lower disk.reserved.bytes",
	}
	if name != "" {
		attrs = append(attrs, slog.Group("largest_topic", "name", name, "local_bytes", bytes))
	}
	m.cfg.Logger.Error("log directory is full: produce requests are refused (KAFKA_STORAGE_ERROR) until there is room; reads and deletions go on", attrs...)
}

func (m *Manager) largestTopic(d *dir) (string, int64) {
	sizes := map[string]int64{}
	for _, r := range m.replicas() {
		if r.dir == d && r.p != nil {
			sizes[r.key.topic] += r.p.LocalBytes()
		}
	}
	name, most := "", int64(0)
	for topic, bytes := range sizes {
		if bytes > most || bytes == most && topic < name {
			name, most = topic, bytes
		}
	}
	return name, most
}

// relieve frees space in a directory that has too little, in the order of what
// is lost by it: files that only wait for their delay; what retention removes
// anyway; and then, oldest first and no more than needed, local segments that
// are in the tier. Where that is not enough active segments are sealed, so that
// they can follow.
func (m *Manager) relieve(d *dir) {
	m.hasten(d)
	var here []*replica
	for _, r := range m.replicas() {
		if r.dir == d && r.p != nil {
			here = append(here, r)
		}
	}
	for _, r := range here {
		if m.ctx.Err() != nil {
			return
		}
		if _, err := m.retain(r); err != nil {
			m.cfg.Logger.Debug("retention under disk pressure failed", "partition", r.key.String(), "err", err)
		}
		_ = r.p.RemoveNow()
	}
	for _, l := range m.leaving(here) {
		if m.ctx.Err() != nil || m.comfortable(d) {
			return
		}
		m.leave(l)
	}
	if m.comfortable(d) || !d.room.full.Load() {
		return
	}
	for _, r := range here {
		s := r.p.Status()
		if n := len(s.Segments); s.Tiered && s.Leading && n > 0 && s.Segments[n-1].Bytes >= sealBytesMin {
			_ = r.p.Roll()
		}
	}
}

func (m *Manager) comfortable(d *dir) bool {
	usage, err := m.measure(d)
	return err != nil || usage.FreeBytes >= d.room.comfortable(usage, m.cfg.Broker.DiskReservedBytes)
}

// leaver is a local segment that the tier has.
type leaver struct {
	r       *replica
	removal cleaner.Removal
	age     time.Time
}

// leaving lists what may leave, the oldest first; of one replica in its order.
func (m *Manager) leaving(here []*replica) []leaver {
	var all []leaver
	for _, r := range here {
		var age time.Time
		plan, _ := m.plan(r, true)
		for _, removal := range plan.Removals {
			if removal.Reason != cleaner.ReasonDiskPressure {
				continue
			}
			if removal.Segment.Written.After(age) {
				age = removal.Segment.Written
			}
			all = append(all, leaver{r, removal, age})
		}
	}
	slices.SortStableFunc(all, func(a, b leaver) int {
		return cmp.Or(a.age.Compare(b.age), cmp.Compare(a.removal.Segment.Base, b.removal.Segment.Base))
	})
	return all
}

func (m *Manager) leave(l leaver) {
	removed, bytes, err := l.r.p.TrimLocal(l.removal.Segment.Next)
	if err == nil {
		err = l.r.p.RemoveNow()
	}
	m.countRemoved(l.r, removed, bytes, l.removal.Reason)
	if err != nil && !errors.Is(err, partition.ErrStorage) && !errors.Is(err, partition.ErrClosed) {
		m.cfg.Logger.Warn("a segment that the tier has cannot leave a full directory", "partition", l.r.key.String(), "err", err)
	}
}

// hasten lets the folders of deleted replicas go at once.
func (m *Manager) hasten(d *dir) {
	m.applying.Lock()
	for i := range m.removals {
		if m.removals[i].dir == d {
			m.removals[i].due = time.Time{}
		}
	}
	m.applying.Unlock()
	m.removeDue(m.cfg.Now())
}

// revive opens the replicas again that went offline for want of room, once there
// is some, or of a file descriptor, after a pause, and of nothing else. It
// returns those that have a log again.
func (m *Manager) revive() []cluster.TopicPartition {
	var back []cluster.TopicPartition
	now := m.cfg.Now()
	for tp, at := range m.starved {
		r := m.lookup(tp)
		if r == nil || r.dir.offlineErr() != nil {
			delete(m.starved, tp)
			continue
		}
		topic, ok := m.cfg.Watch.Image().TopicByID(tp.Topic)
		if !ok || r.dir.room.full.Load() || now.Before(at) {
			continue
		}
		delete(m.starved, tp) // a new failure enters it again
		from := openAgain
		if r.p != nil {
			_ = r.p.Close(false)
			from.flushed, from.start, from.mark = r.p.FlushedOffset(), r.p.LogStartOffset(), r.p.HighWatermark()
		}
		if m.openReplica(m.settings(m.cfg.Watch.Image(), topic), r.folder, from).p != nil {
			m.cfg.Logger.Info("replica is online again", "partition", r.key.String(), "dir", r.dir.path)
			back = append(back, tp)
		}
	}
	return back
}
