package controller

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// assigned takes the replicas that a client named. replication is how many
// there must be; -1: as many as in the first partition.
func (c *Controller) assigned(
	lists [][]cluster.BrokerID, first int32, replication int, load *dirLoad,
) ([]command.NewPartition, error) {
	bad := func(format string, args ...any) error {
		return request.Refuse(request.ErrInvalidAssignment, format, args...)
	}
	parts := make([]command.NewPartition, 0, len(lists))
	for n, replicas := range lists {
		if len(replicas) == 0 {
			return nil, bad("The manual partition assignment includes an empty replica list.")
		}
		sorted := slices.Sorted(slices.Values(replicas))
		for i, id := range sorted {
			if _, ok := c.img.Broker(id); !ok {
				return nil, bad("The manual partition assignment includes broker %d, but no such broker is registered.", id)
			}
			if i > 0 && id == sorted[i-1] {
				return nil, bad("The manual partition assignment includes the broker %d more than once.", id)
			}
		}
		if replication >= 0 && len(replicas) != replication {
			return nil, bad("The manual partition assignment includes a partition with %d replica(s), but this is not "+
				"consistent with previous partitions, which have %d replica(s).", len(replicas), replication)
		}
		replication = len(replicas)
		p, ok := c.newPartition(slices.Clone(replicas), load)
		if !ok {
			return nil, bad("All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.",
				int(first)+n)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// newPartition starts a partition with its active replicas in sync. False where
// none is active.
func (c *Controller) newPartition(replicas []cluster.BrokerID, load *dirLoad) (command.NewPartition, bool) {
	p := command.NewPartition{Replicas: replicas}
	for _, id := range replicas {
		b, _ := c.img.Broker(id)
		if b.Active() {
			p.ISR = append(p.ISR, id)
		}
		p.Dirs = append(p.Dirs, load.pick(b))
	}
	if len(p.ISR) == 0 {
		return p, false
	}
	p.Leader = p.ISR[0]
	return p, true
}

//lint:ignore ST1005 Kafka's sentence
var errAllFenced = errors.New("All brokers are currently fenced.")

// placed chooses replicas: leaders go round the unfenced brokers, replicas of a
// partition spread over racks, and the starting points are random.
func (c *Controller) placed(partitions, replication int, load *dirLoad) ([]command.NewPartition, error) {
	racks := c.racks()
	usable, unfenced := 0, 0
	for _, r := range racks {
		usable, unfenced = usable+len(r.unfenced)+len(r.fenced), unfenced+len(r.unfenced)
	}
	if unfenced == 0 {
		return nil, errAllFenced
	}
	if replication > usable {
		//lint:ignore ST1005 Kafka's sentence
		return nil, fmt.Errorf("The target replication factor of %d cannot be reached because only %d broker(s) are registered.",
			replication, usable)
	}
	parts := make([]command.NewPartition, 0, partitions)
	s := newStripes(racks, c.cfg.Rand)
	for range partitions {
		p, ok := c.newPartition(s.next(replication), load)
		if !ok {
			return nil, errAllFenced
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// rack is the usable brokers of one rack, by id.
type rack struct {
	name             string
	unfenced, fenced []cluster.BrokerID
}

func (c *Controller) racks() []*rack {
	byName := map[string]*rack{}
	var racks []*rack
	for _, b := range c.img.Brokers() {
		if b.ShuttingDown {
			continue
		}
		r := byName[b.Rack]
		if r == nil {
			r = &rack{name: b.Rack}
			byName[b.Rack] = r
			racks = append(racks, r)
		}
		if b.Fenced {
			r.fenced = append(r.fenced, b.ID)
		} else {
			r.unfenced = append(r.unfenced, b.ID)
		}
	}
	slices.SortFunc(racks, func(a, b *rack) int { return strings.Compare(a.name, b.name) })
	return racks
}

// stripes deals replicas: the leader's rack and the broker within each rack
// move on by one with each partition, and once every broker has led, the order
// is shuffled, so that the followers of a broker are not always the same.
type stripes struct {
	racks  []*rack
	rand   *rand.Rand
	round  int
	start  int
	shifts []int
	leads  int // unfenced brokers
}

func newStripes(racks []*rack, r *rand.Rand) *stripes {
	s := &stripes{racks: racks, rand: r, start: r.IntN(len(racks)), shifts: make([]int, len(racks))}
	for n, k := range racks {
		s.leads += len(k.unfenced)
		s.shifts[n] = r.IntN(max(1, len(k.unfenced)+len(k.fenced)))
	}
	return s
}

// order is the rack's brokers as this partition takes them: unfenced ones
// first.
func (s *stripes) order(n int) []cluster.BrokerID {
	return append(rotated(s.racks[n].unfenced, s.shifts[n]+s.round), rotated(s.racks[n].fenced, s.shifts[n]+s.round)...)
}

func rotated(ids []cluster.BrokerID, by int) []cluster.BrokerID {
	if len(ids) == 0 {
		return nil
	}
	by %= len(ids)
	return slices.Concat(ids[by:], ids[:by])
}

func (s *stripes) next(replication int) []cluster.BrokerID {
	if s.round == s.leads && s.leads > 1 {
		s.shuffle()
	}
	rest := make([][]cluster.BrokerID, len(s.racks))
	for n := range s.racks {
		at := (s.start + n) % len(s.racks)
		rest[n] = s.order(at)
	}
	// The first rack with an unfenced broker leads.
	leader := slices.IndexFunc(rest, func(ids []cluster.BrokerID) bool {
		return len(ids) > 0 && s.isUnfenced(ids[0])
	})
	replicas := []cluster.BrokerID{rest[leader][0]}
	rest[leader] = rest[leader][1:]
	for n := (leader + 1) % len(rest); len(replicas) < replication; n = (n + 1) % len(rest) {
		if len(rest[n]) > 0 {
			replicas = append(replicas, rest[n][0])
			rest[n] = rest[n][1:]
		}
	}
	s.round++
	s.start = (s.start + 1) % len(s.racks)
	return replicas
}

func (s *stripes) isUnfenced(id cluster.BrokerID) bool {
	return slices.ContainsFunc(s.racks, func(r *rack) bool { return slices.Contains(r.unfenced, id) })
}

func (s *stripes) shuffle() {
	s.round = 0
	for n := range s.racks {
		k := *s.racks[n]
		k.unfenced, k.fenced = slices.Clone(k.unfenced), slices.Clone(k.fenced)
		for _, ids := range [][]cluster.BrokerID{k.unfenced, k.fenced} {
			s.rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		}
		s.racks[n] = &k
	}
	s.rand.Shuffle(len(s.racks), func(i, j int) { s.racks[i], s.racks[j] = s.racks[j], s.racks[i] })
}

// dirLoad chooses log directories: of a broker's, the one with fewest replicas.
type dirLoad struct {
	img    *image.Image
	counts map[cluster.DirectoryID]int // nil until a broker with several is met
}

func (c *Controller) newDirLoad() *dirLoad { return &dirLoad{img: c.img} }

func (l *dirLoad) pick(b *image.Broker) cluster.DirectoryID {
	usable := slices.DeleteFunc(slices.Clone(b.LogDirs), func(d cluster.DirectoryID) bool {
		return slices.Contains(b.OfflineDirs, d)
	})
	switch len(usable) {
	case 0:
		return cluster.DirectoryID{}
	case 1:
		return usable[0]
	}
	if l.counts == nil {
		l.counts = map[cluster.DirectoryID]int{}
		for t := range l.img.Topics() {
			for _, p := range t.Partitions {
				for _, d := range p.Dirs {
					l.counts[d]++
				}
			}
		}
	}
	best := usable[0]
	for _, d := range usable[1:] {
		if l.counts[d] < l.counts[best] {
			best = d
		}
	}
	l.counts[best]++
	return best
}
