package classic

import (
	"fmt"
	"time"

	"strandline/broker/group"
)

// Record is the record of the group as it is, for a Stable or Empty one.
func (g *Group) Record() group.Record {
	m := group.Metadata{
		ProtocolType: g.protocolType, Generation: g.generation,
		Protocol: g.protocol, Leader: g.leader, StateTime: g.stateTime,
	}
	for _, o := range g.members {
		m.Members = append(m.Members, group.MemberMetadata{
			MemberID: o.id, InstanceID: o.instance, Client: o.client,
			RebalanceTimeout: o.rebalanceTimeout, SessionTimeout: o.sessionTimeout,
			Subscription: o.metadata(g.protocol), Assignment: o.assignment,
		})
	}
	return group.MetadataRecord(g.id, m)
}

// Load is the group that the records of it make: of those, the last one about the
// group itself; a simple group where there is none. Members have a whole session
// before them, and where they are more than the group may have, they are to join
// again. Errors: group.ErrMalformedRecord, group.ErrUnknownRecord.
func Load(cfg Config, id string, now time.Time, records []group.Record) (*Group, error) {
	g := New(cfg, id, now)
	var value []byte
	for _, r := range records {
		if k, err := group.ParseRecordKey(r.Key); err == nil && k == group.MetadataKey(id) {
			value = r.Value
		}
	}
	if value == nil {
		return g, nil
	}
	metadata, err := group.ParseMetadata(value)
	if err != nil {
		return nil, fmt.Errorf("group %q: %w", id, err)
	}
	g.restore(now, metadata)
	return g, nil
}

func (g *Group) restore(now time.Time, metadata group.Metadata) {
	g.recorded, g.stateTime = true, metadata.StateTime
	g.generation, g.protocolType, g.protocol = metadata.Generation, metadata.ProtocolType, metadata.Protocol
	for _, o := range metadata.Members {
		if g.byID[o.MemberID] != nil || g.static[o.InstanceID] != nil {
			continue
		}
		m := &member{
			id: o.MemberID, instance: o.InstanceID, client: o.Client,
			rebalanceTimeout: o.RebalanceTimeout, sessionTimeout: o.SessionTimeout,
			protocols:  []group.Protocol{{Name: metadata.Protocol, Metadata: o.Subscription}},
			assignment: o.Assignment,
		}
		g.add(m, metadata.ProtocolType)
		g.heard(now, m, m.sessionTimeout)
	}
	if g.byID[metadata.Leader] != nil {
		g.leader = metadata.Leader
	}
	if len(g.members) > 0 {
		g.state = group.Stable
	}
	g.learnTopics()
	if len(g.members) > g.cfg.MaxSize {
		g.prepare(&event{now: now}, "loaded with more members than there may be")
	}
}
