package controller

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/config"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

const (
	minISRKey         = "min.insync.replicas"
	uncleanElectedKey = "unclean.leader.election.enable"

	groupIDMax = 1<<15 - 1 // as much as its records can hold
)

func (c *Controller) alterConfigs(r request.AlterConfigs) (request.Result, error) {
	type resource struct {
		kind request.ConfigResourceKind
		name string
	}
	result := request.Outcomes{Errs: make([]error, len(r.Resources))}
	counts := map[resource]int{}
	for _, a := range r.Resources {
		counts[resource{a.Kind, a.Name}]++
	}
	var records []command.Record
	for n, a := range r.Resources {
		if counts[resource{a.Kind, a.Name}] > 1 {
			result.Errs[n] = request.Refuse(request.ErrInvalidRequest, "Each resource must appear at most once.")
			continue
		}
		rs, err := c.alterConfig(a)
		result.Errs[n] = err
		records = append(records, rs...)
	}
	if r.ValidateOnly {
		return result, nil
	}
	if err := c.propose(records); err != nil {
		return nil, err
	}
	for _, rec := range records {
		cc, ok := rec.(command.ConfigsChanged)
		if !ok {
			continue
		}
		if changes(cc, uncleanElectedKey) {
			c.dirty = true
		}
		if t, ok := c.img.TopicByID(cc.Topic); ok && cc.Kind == request.TopicResource {
			set := map[string]string{}
			for _, x := range cc.Changes {
				if !x.Delete {
					set[x.Key] = x.Value
				}
			}
			c.warn(t.Name, set)
		}
	}
	c.reconcile()
	return result, nil
}

func changes(cc command.ConfigsChanged, key string) bool {
	return slices.ContainsFunc(cc.Changes, func(x command.ConfigChange) bool { return x.Key == key })
}

func (c *Controller) alterConfig(a request.AlterConfig) ([]command.Record, error) {
	keys := map[string]bool{}
	for _, op := range a.Ops {
		if keys[op.Key] {
			return nil, request.Refuse(request.ErrInvalidRequest, "Error due to duplicate config keys")
		}
		keys[op.Key] = true
		if len(op.Value) > configValueMax {
			return nil, request.Refuse(request.ErrInvalidConfig,
				"The configuration value cannot be added because it exceeds the maximum value size of %d bytes.", configValueMax)
		}
	}
	switch a.Kind {
	case request.TopicResource:
		return c.alterTopic(a)
	case request.BrokerResource:
		return c.alterBroker(a)
	case request.GroupResource:
		return c.alterGroup(a)
	}
	return nil, request.Refuse(request.ErrInvalidRequest, "Unknown resource type %d", a.Kind)
}

func (c *Controller) alterTopic(a request.AlterConfig) ([]command.Record, error) {
	if a.Name == "" {
		return nil, request.Refuse(request.ErrInvalidRequest, "Default topic resources are not allowed.")
	}
	if err := ValidateTopicName(a.Name); err != nil {
		return nil, err
	}
	t, exists := c.img.Topic(a.Name)
	if !exists {
		t = &image.Topic{}
	}
	after, diff, err := apply(t.Configs, a, config.TopicKey)
	if err != nil {
		return nil, err
	}
	if err := c.checkTopicConfigs(after, c.layers(after, t.TieredByDefault), t.Tiered); err != nil {
		return nil, err
	}
	if !exists {
		return nil, request.Refuse(request.ErrUnknownTopic, "The topic '%s' does not exist.", a.Name)
	}
	rec := command.ConfigsChanged{Kind: a.Kind, Topic: t.ID, Broker: cluster.NoBroker, Changes: diff}
	switch {
	case len(diff) == 0:
		return nil, nil
	case command.Size(rec) > command.RecordsMaxBytes:
		return nil, request.Refuse(request.ErrInvalidConfig, "The changes of topic %s are too large together.", a.Name)
	case changes(rec, minISRKey):
		return append([]command.Record{rec}, c.clearELR(t)...), nil
	}
	return []command.Record{rec}, nil
}

func (c *Controller) checkTopicConfigs(overrides map[string]string, l config.Layers, wasTiered bool) error {
	for _, v := range overrides {
		if len(v) > configValueMax {
			return request.Refuse(request.ErrInvalidConfig,
				"The configuration value cannot be added because it exceeds the maximum value size of %d bytes.", configValueMax)
		}
	}
	return refused(request.ErrInvalidConfig, config.ValidateTopic(config.TopicCheck{
		Layers: l, WasTiered: wasTiered, TierAvailable: true,
	}))
}

// refused gives an error of config its outcome.
func refused(kind error, err error) error {
	if err == nil {
		return nil
	}
	var ke *config.KeyError
	if errors.As(err, &ke) {
		return request.Refuse(kind, "%s", ke.Message)
	}
	return request.Refuse(kind, "%v", err)
}

// clearELR forgets who else has everything: what that means changes with
// min.insync.replicas.
func (c *Controller) clearELR(t *image.Topic) []command.Record {
	pack := packer{limits: c.limits}
	for n, p := range t.Partitions {
		if len(p.ELR) > 0 {
			pack.add(t.ID, command.PartitionChange{
				Partition: int32(n), PartitionEpoch: p.PartitionEpoch + 1, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
				ISR: p.ISR, LastKnownELR: p.LastKnownELR,
			})
		}
	}
	return pack.records()
}

func (c *Controller) alterBroker(a request.AlterConfig) ([]command.Record, error) {
	id := cluster.NoBroker
	if a.Name != "" {
		n, err := strconv.ParseInt(a.Name, 10, 32)
		if err != nil {
			return nil, request.Refuse(request.ErrInvalidRequest, "Unable to parse broker name as a base 10 number.")
		}
		if n < 0 {
			return nil, request.Refuse(request.ErrInvalidRequest, "Invalid negative broker ID.")
		}
		id = cluster.BrokerID(n)
	}
	after, diff, err := apply(c.img.BrokerConfig(id), a, config.BrokerKey)
	if err != nil {
		return nil, err
	}
	changed := make([]string, 0, len(diff))
	for _, d := range diff {
		changed = append(changed, d.Key)
	}
	for _, op := range a.Ops {
		if !slices.Contains(changed, op.Key) {
			changed = append(changed, op.Key)
		}
	}
	slices.Sort(changed)
	if err := refused(request.ErrInvalidRequest, config.ValidateDynamicBroker(after, changed, id == cluster.NoBroker)); err != nil {
		return nil, err
	}
	if id != cluster.NoBroker {
		if slices.Contains(changed, minISRKey) {
			return nil, request.Refuse(request.ErrInvalidConfig, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
		}
		if _, ok := c.img.Broker(id); !ok {
			return nil, request.Refuse(request.ErrUnknownBroker, "No broker with id %d found.", id)
		}
	}
	if len(diff) == 0 {
		return nil, nil
	}
	rec := command.ConfigsChanged{Kind: a.Kind, Broker: id, Changes: diff}
	if command.Size(rec) > command.RecordsMaxBytes {
		return nil, request.Refuse(request.ErrInvalidConfig, "The changes are too large together.")
	}
	records := []command.Record{rec}
	if changes(rec, minISRKey) {
		for t := range c.img.Topics() {
			if _, own := t.Configs[minISRKey]; !own {
				records = append(records, c.clearELR(t)...)
			}
		}
	}
	return records, nil
}

// alterGroup changes what holds for a consumer group, which need not be there.
func (c *Controller) alterGroup(a request.AlterConfig) ([]command.Record, error) {
	switch {
	case a.Name == "":
		return nil, request.Refuse(request.ErrInvalidRequest, "Default group resources are not allowed.")
	case len(a.Name) > groupIDMax:
		return nil, request.Refuse(request.ErrInvalidRequest, "The group id is longer than %d bytes.", groupIDMax)
	}
	after, diff, err := apply(c.img.GroupConfig(a.Name), a, config.GroupKey)
	if err != nil {
		return nil, err
	}
	if err := refused(request.ErrInvalidConfig, config.ValidateGroup(after, c.cfg.Broker.Groups)); err != nil {
		return nil, err
	}
	rec := command.GroupConfigsChanged{Group: a.Name, Changes: diff}
	switch {
	case len(diff) == 0:
		return nil, nil
	case command.Size(rec) > command.RecordsMaxBytes:
		return nil, request.Refuse(request.ErrInvalidConfig, "The changes of group %s are too large together.", a.Name)
	}
	return []command.Record{rec}, nil
}

// apply carries out the operations on a copy of the overrides, and gives the
// outcome with what differs, by key.
func apply(
	before map[string]string, a request.AlterConfig, find func(string) (config.Key, bool),
) (after map[string]string, diff []command.ConfigChange, err error) {
	after = maps.Clone(before)
	if after == nil || a.Replace {
		after = map[string]string{}
	}
	for _, op := range a.Ops {
		switch op.Op {
		case request.ConfigSet:
			after[op.Key] = op.Value
		case request.ConfigDelete:
			delete(after, op.Key)
		case request.ConfigAppend, request.ConfigSubtract:
			k, ok := find(op.Key)
			if !ok || k.Type != config.List {
				word := map[request.ConfigOpKind]string{request.ConfigAppend: "APPEND", request.ConfigSubtract: "SUBTRACT"}[op.Op]
				return nil, nil, request.Refuse(request.ErrInvalidConfig,
					"Can't %s to key %s because its type is not LIST.", word, op.Key)
			}
			current, set := after[op.Key]
			if !set {
				current = k.Default
			}
			after[op.Key] = edit(current, op)
		default:
			return nil, nil, request.Refuse(request.ErrInvalidRequest, "Unknown operations type %d", op.Op)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(merged(before, after))) {
		was, had := before[key]
		now, has := after[key]
		switch {
		case has && (!had || was != now):
			diff = append(diff, command.ConfigChange{Key: key, Value: now})
		case had && !has:
			diff = append(diff, command.ConfigChange{Key: key, Delete: true})
		}
	}
	return after, diff, nil
}

func merged(a, b map[string]string) map[string]string {
	m := maps.Clone(b)
	maps.Copy(m, a)
	return m
}

// edit appends words to a list, or takes them out.
func edit(current string, op request.ConfigOp) string {
	var list []string
	for w := range strings.SplitSeq(current, ",") {
		if w = strings.TrimSpace(w); w != "" {
			list = append(list, w)
		}
	}
	for w := range strings.SplitSeq(op.Value, ",") {
		w = strings.TrimSpace(w)
		at := slices.Index(list, w)
		switch {
		case op.Op == request.ConfigAppend && at < 0 && w != "":
			list = append(list, w)
		case op.Op == request.ConfigSubtract && at >= 0:
			list = slices.Delete(list, at, at+1)
		}
	}
	return strings.Join(list, ",")
}
