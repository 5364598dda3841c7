package coordinator

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// seedsOr is how many seeds a random test runs.
func seedsOr(n int) int {
	if s, err := strconv.Atoi(os.Getenv("STRANDLINE_SEEDS")); err == nil && s > 0 {
		return s
	}
	return n
}

// TestRandomEvents drives a runtime with random events, crashes and losses, and
// compares every view with what its log says.
func TestRandomEvents(t *testing.T) {
	for seed := range seedsOr(60) {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, fs *disk.Crash) { newSim(t, uint64(seed)).run(120) })
		})
	}
}

// sim is one random run over two partitions.
type sim struct {
	t    *testing.T
	rng  *rand.Rand
	fs   *disk.Crash
	k    *kit
	logs []*simLog
	step string
	what string // the event
	// destroyed says that decided data was cut off or moved away below a view, or
	// a view lost: rebuilding is expected then, and only then.
	destroyed int64
	rebuilt   int64 // by runtimes that are gone
}

// simLog is a log with what the model knows of it.
type simLog struct {
	*fakeLog
	all   []recordbatch.Batch // every batch below the end, also below the log start
	open  map[cluster.ProducerID]bool
	acks  []*outcome
	epoch cluster.LeaderEpoch
	// decided is where the whole batches end that were ever below the high
	// watermark, which a restart forgets.
	decided     cluster.Offset
	compactedTo cluster.Offset
}

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{t: t, rng: rand.New(rand.NewPCG(seed, 7)), fs: disk.NewCrash(seed)}
	for n := range int32(2) {
		s.logs = append(s.logs, &simLog{fakeLog: newFakeLog(n), open: map[cluster.ProducerID]bool{}})
	}
	return s
}

func (s *sim) start() {
	s.k = newKit(s.t, s.fs, func(c *Config) {
		c.Limits = Limits{QueueMax: 8 + s.rng.IntN(20), BatchRecords: 1 + s.rng.IntN(6), InFlightBytes: 200 + s.rng.IntN(2000), Appliers: 1, ApplyBytes: 1 + s.rng.IntN(600)}
	})
	for _, l := range s.logs {
		s.k.r.Host(l.fakeLog)
	}
	synctest.Wait()
}

func (s *sim) stop() {
	require.NoError(s.t, s.k.r.Close())
	s.rebuilt += s.k.r.Status().Rebuilt
	require.NoError(s.t, s.k.views.Close())
	synctest.Wait()
	for _, l := range s.logs {
		for _, o := range l.acks {
			require.Len(s.t, o.all(), o.ran, "every function given to Then runs once")
		}
		l.acks = nil
	}
}

func (s *sim) run(steps int) {
	s.start()
	for n := range steps {
		l := s.logs[s.rng.IntN(len(s.logs))]
		s.step = fmt.Sprintf("step %d of %d", n, l.tp.Partition)
		s.event(l)
		synctest.Wait()
		st := l.LogState()
		s.t.Logf("%s: %s: epoch %d leading %v log [%d,%d,%d)", s.step, s.what, st.LeaderEpoch, st.Leading, st.LogStartOffset, st.HighWatermark, st.LogEndOffset)
		s.check()
	}
	for _, l := range s.logs {
		l.set(func() { l.refuse = nil })
		l.commit(-1)
	}
	s.settle()
	s.check()
	s.stop()
	if s.destroyed == 0 {
		require.Zero(s.t, s.rebuilt, "nothing gave a reason to build a view again")
	}
}

// settle lets everything that waits for a retry be tried again.
func (s *sim) settle() {
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

func (s *sim) leads(l *simLog) bool {
	st := l.LogState()
	return st.Leading
}

func (s *sim) event(l *simLog) {
	p := s.rng.IntN(100)
	s.what = fmt.Sprint(p)
	switch {
	case p < 40:
		s.put(l)
	case p < 58:
		l.commit(l.LogState().HighWatermark + cluster.Offset(s.rng.IntN(12)))
	case p < 62:
		l.set(func() { l.auto = !l.auto })
	case p < 66:
		l.set(func() {
			if l.refuse = nil; s.rng.IntN(2) == 0 {
				l.refuse = errRefused
			}
		})
	case p < 74:
		l.epoch++
		l.lead(l.epoch)
	case p < 80:
		s.follow(l)
	case p < 86:
		s.replicate(l)
	case p < 88:
		s.truncateDecided(l)
	case p < 90:
		s.trim(l)
	case p < 91:
		s.compact(l)
	case p < 93:
		time.Sleep(time.Duration(s.rng.IntN(6000)) * time.Millisecond)
	case p < 95:
		s.k.failLoads(map[bool]error{true: errRefused}[s.rng.IntN(2) == 0])
	default:
		s.crash()
	}
}

func (s *sim) put(l *simLog) {
	for range 1 + s.rng.IntN(8) {
		key, value := fmt.Sprintf("k%d", s.rng.IntN(6)), fmt.Sprint(s.rng.IntN(1000))
		if s.rng.IntN(4) == 0 {
			value = "-"
		}
		o := &outcome{}
		err := s.k.r.Do(l.tp.Partition, func(_ time.Time, m Machine, tx *Tx) {
			o.ran++
			m.(*ledger).put(tx, key, value, o.then)
		})
		if err == nil {
			l.acks = append(l.acks, o)
		} else {
			require.Contains(s.t, []error{ErrBusy, ErrLoading, ErrNotCoordinator}, err)
		}
		if s.rng.IntN(2) == 0 {
			synctest.Wait()
		}
	}
}

// follow gives the leadership up; another leader may cut what is not decided.
func (s *sim) follow(l *simLog) {
	l.epoch++
	l.follow(l.epoch)
	if s.rng.IntN(2) == 0 {
		synctest.Wait()
		st := l.LogState()
		decided := max(l.wholeBelow(st.HighWatermark), l.decided)
		l.truncate(decided + cluster.Offset(s.rng.Int64N(int64(st.LogEndOffset-decided)+1)))
	}
}

// replicate appends, as a follower does, what another leader wrote.
func (s *sim) replicate(l *simLog) {
	if s.leads(l) {
		return
	}
	l.set(func() { l.epochs = append(l.epochs, epochStart{l.fakeLog.epoch, l.end}) })
	for range 1 + s.rng.IntN(5) {
		producer := cluster.ProducerID(1 + s.rng.IntN(3))
		var pairs []string
		for range 1 + s.rng.IntN(3) {
			pairs = append(pairs, fmt.Sprintf("k%d", s.rng.IntN(6)), map[bool]string{true: "-", false: fmt.Sprint(s.rng.IntN(1000))}[s.rng.IntN(4) == 0])
		}
		switch s.rng.IntN(3) {
		case 0:
			l.foreign(plainBatch(pairs...))
		case 1:
			l.foreign(openBatch(producer, pairs...))
		default:
			l.foreign(markerBatch(producer, s.rng.IntN(2) == 0))
		}
	}
}

// truncateDecided is an unclean election, or a disk that lost what it had
// acknowledged: the log is cut below the high watermark.
func (s *sim) truncateDecided(l *simLog) {
	st := l.LogState()
	low := max(st.LogStartOffset, l.compactedTo) // cut off below that, nobody knows what compaction had taken for it
	if st.HighWatermark <= low {
		return
	}
	s.destroyed++
	l.epoch++
	l.follow(l.epoch)
	synctest.Wait()
	l.truncate(low + cluster.Offset(s.rng.Int64N(int64(st.HighWatermark-low))))
	l.decided = l.wholeBelow(l.LogState().HighWatermark)
	s.replicate(l)
}

func (s *sim) trim(l *simLog) {
	st := l.LogState()
	s.destroyed++ // a view that lags is built again
	l.trim(st.LogStartOffset + cluster.Offset(s.rng.Int64N(int64(st.HighWatermark-st.LogStartOffset)+1)))
}

// compact removes deletions that a view which lags has not seen; its map stays.
func (s *sim) compact(l *simLog) {
	s.destroyed++
	s.remember(l)
	l.compact(l.decided)
	l.compactedTo = l.decided
}

// crash ends the process, in one of several ways, and starts it again.
func (s *sim) crash() {
	var next *disk.Crash
	kind := s.rng.IntN(4)
	s.what += fmt.Sprint(" kind ", kind)
	switch kind {
	case 0:
		next = s.fs.Clone(s.rng) // power loss: what was not synced may be lost or torn
	case 1:
		next = s.fs.Kill() // the process alone
	case 2: // in order
	case 3: // the views are lost
		s.destroyed++
	}
	s.stop()
	if next != nil {
		s.fs = next
	}
	if kind == 3 {
		require.NoError(s.t, s.fs.RemoveAll("/m/views"))
	}
	for i, l := range s.logs {
		st := l.LogState()
		mark := st.LogStartOffset + cluster.Offset(s.rng.Int64N(int64(st.HighWatermark-st.LogStartOffset)+1))
		s.logs[i].fakeLog = l.reopened(mark)
	}
	s.start()
	for _, l := range s.logs {
		if s.rng.IntN(3) > 0 {
			l.epoch++
			l.lead(l.epoch)
		}
	}
}

// check compares views, readers and machines with the logs.
func (s *sim) check() {
	for _, l := range s.logs {
		s.remember(l)
		l.decided = max(l.decided, l.wholeBelow(l.LogState().HighWatermark))
		pairs, err := s.k.tryRead(l.tp.Partition)
		if err != nil {
			require.Contains(s.t, []error{ErrLoading, ErrNotCoordinator}, err, s.step)
			continue
		}
		// What was decided once is, though the log may have forgotten that it was.
		at := s.k.applied(l.tp)
		if at < l.LogState().HighWatermark {
			require.Empty(s.t, l.between(at), "%s: all that is decided is in the view", s.step)
		}
		s.agree(l, at, pairs, "committed")
		if st := s.k.r.Status(); st.Loading > 0 {
			continue
		}
		reader, machine := map[string]string{}, map[string]string(nil)
		err = s.k.r.Do(l.tp.Partition, func(_ time.Time, m Machine, tx *Tx) {
			machine = map[string]string{}
			for e, err := range tx.Reader().Scan(nil) {
				require.NoError(s.t, err)
				reader[string(e.Key)] = string(e.Value)
			}
			for key, value := range m.(*ledger).pairs {
				e, ok, err := tx.Reader().Get([]byte(key))
				require.NoError(s.t, err)
				require.True(s.t, ok)
				require.Equal(s.t, value, string(e.Value))
				machine[key] = value
			}
		})
		synctest.Wait()
		if err == nil && machine != nil { // else as much is in flight as may be
			require.Equal(s.t, reader, machine, s.step)
			s.agree(l, l.LogState().LogEndOffset, reader, "appended")
		}
	}
}

// remember keeps every batch below the end, also those below the log start.
func (s *sim) remember(l *simLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.all[:0]
	for _, b := range l.all {
		if b.NextOffset() <= l.start {
			kept = append(kept, b)
		}
	}
	for _, b := range l.batches {
		if at := slices.IndexFunc(l.all, func(a recordbatch.Batch) bool {
			return a.BaseOffset() == b.BaseOffset() && a.PartitionLeaderEpoch() == b.PartitionLeaderEpoch()
		}); at >= 0 {
			b = l.all[at] // as it was before it was compacted
		}
		if len(kept) == 0 || b.BaseOffset() >= kept[len(kept)-1].NextOffset() {
			kept = append(kept, b)
		}
	}
	l.all = append([]recordbatch.Batch(nil), kept...)
}

// agree compares pairs with what the log says below an offset. What the log says
// only below its start may be there or not.
func (s *sim) agree(l *simLog, below cluster.Offset, pairs map[string]string, what string) {
	l.mu.Lock()
	start := l.start
	l.mu.Unlock()
	whole := foldBatches(l.all, below)
	touched := keysFrom(l.all, start, below)
	for key := range union(whole, pairs) {
		want, wanted := whole[key]
		got, found := pairs[key]
		if !found && wanted && !touched[key] {
			continue
		}
		require.Equal(s.t, wanted, found, "%s: %s key %s of %v in %v", s.step, what, key, whole, pairs)
		require.Equal(s.t, want, got, "%s: %s key %s", s.step, what, key)
	}
}

// keysFrom are the keys that have a record that counts at or above an offset.
func keysFrom(batches []recordbatch.Batch, from, below cluster.Offset) map[string]bool {
	out := map[string]bool{}
	for _, r := range counted(batches, below) {
		if r.offset >= from {
			out[r.key] = true
		}
	}
	return out
}

func union(a, b map[string]string) map[string]bool {
	out := map[string]bool{}
	for k := range a {
		out[k] = true
	}
	for k := range b {
		out[k] = true
	}
	return out
}
