package groups

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"strandline/broker/group"
)

// counts is what is counted of all groups. Its methods may be called from several
// goroutines at once.
type counts struct {
	commits             atomic.Int64
	expired             atomic.Int64
	classicRebalances   atomic.Int64
	consumerAssignments atomic.Int64

	mu      sync.Mutex
	members map[counted]int64 // groups in memory
	tallies map[*shard]tally  // of the last whole pass
}

// Stats describes the groups of the partitions that this broker leads.
type Stats struct {
	// Groups by type and state. Those without members are as many as the last
	// pass over them found.
	Groups []GroupCount
	// Offsets is how many committed offsets the last pass found.
	Offsets int64
	// Since the start: offsets committed, offsets dropped because they had
	// expired or their topic was deleted, rebalances of classic groups, and
	// assignments that were computed for consumer groups.
	Commits, Expired, ClassicRebalances, ConsumerAssignments int64
}

// GroupCount is how many groups there are of a kind.
type GroupCount struct {
	Type  group.Type
	State group.State
	Count int64
}

// Stats returns the present figures.
func (g *Groups) Stats() Stats {
	c := &g.counts
	st := Stats{
		Commits: c.commits.Load(), Expired: c.expired.Load(),
		ClassicRebalances: c.classicRebalances.Load(), ConsumerAssignments: c.consumerAssignments.Load(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := maps.Clone(c.members)
	if all == nil {
		all = map[counted]int64{}
	}
	for _, t := range c.tallies {
		st.Offsets += t.offsets
		all[counted{group.Classic, group.Empty}] += t.classic + t.simple
		all[counted{group.Consumer, group.Empty}] += t.consumers
	}
	for kind, n := range all {
		st.Groups = append(st.Groups, GroupCount{kind.typ, kind.state, n})
	}
	slices.SortFunc(st.Groups, func(a, b GroupCount) int {
		return strings.Compare(string(a.Type)+string(a.State), string(b.Type)+string(b.State))
	})
	return st
}

// count moves a group from how it was counted to how it is now; the zero value is
// not at all.
func (c *counts) count(at *counted, now counted) {
	if *at == now {
		return
	}
	if now.state == group.PreparingRebalance {
		c.classicRebalances.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members == nil {
		c.members = map[counted]int64{}
	}
	if *at != (counted{}) {
		if c.members[*at]--; c.members[*at] == 0 {
			delete(c.members, *at)
		}
	}
	if now != (counted{}) {
		c.members[now]++
	}
	*at = now
}

// appended counts what records that are appended tell of.
func (c *counts) appended(records []group.Record) {
	for _, r := range records {
		if r.Value != nil && len(r.Key) > 1 && group.RecordType(binary.BigEndian.Uint16(r.Key)) == group.ConsumerTargetAssignmentMetadataRecord {
			c.consumerAssignments.Add(1)
		}
	}
}

// answered counts what an answer tells of.
func (c *counts) answered(r group.Reply) {
	if r.Commit == nil || r.Err != nil {
		return
	}
	for _, err := range r.Commit.Partitions {
		if err == nil {
			c.commits.Add(1)
		}
	}
}

// swept takes what a pass of a shard has counted.
func (c *counts) swept(s *shard, t tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tallies == nil {
		c.tallies = map[*shard]tally{}
	}
	c.tallies[s] = t
}

// left forgets a shard.
func (c *counts) left(s *shard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tallies, s)
}
