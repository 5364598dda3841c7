package controller

import (
	"maps"
	"slices"
	"strings"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/config"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

const (
	// partitionsMax bounds the new partitions of one request, as in Kafka.
	partitionsMax = 10000
	// partitionsInRecord bounds one PartitionsAdded record.
	partitionsInRecord = 500
	// configValueMax bounds one config value, as in Kafka.
	configValueMax = 32767
)

func (c *Controller) createTopics(r request.CreateTopics) (request.Result, error) {
	result := request.CreateTopicsResult{Topics: make([]request.CreatedTopic, len(r.Topics))}
	counts := map[string]int{}
	var total int64
	for _, nt := range r.Topics {
		counts[nt.Name]++
		total += int64(c.partitionCount(nt))
	}
	var records []command.Record
	load := c.newDirLoad()
	unified := map[string]string{} // names of this request, '.' as '_'
	for n, nt := range r.Topics {
		out := &result.Topics[n]
		out.Name = nt.Name
		var rs []command.Record
		switch {
		case counts[nt.Name] > 1:
			out.Err = request.Refuse(request.ErrInvalidRequest, "Duplicate topic name.")
		case total > partitionsMax:
			out.Err = request.Refuse(request.ErrPolicyViolation, "Excessively large number of partitions per request.")
		default:
			rs = c.createTopic(nt, out, load, unified)
		}
		if out.Err == nil && r.ValidateOnly {
			out.ID = cluster.TopicID{}
		}
		records = append(records, rs...)
	}
	if r.ValidateOnly {
		return result, nil
	}
	if err := c.propose(records); err != nil {
		return nil, err
	}
	for n, nt := range r.Topics {
		if result.Topics[n].Err == nil {
			c.warn(nt.Name, nt.Configs)
		}
	}
	return result, nil
}

// warn says once which overrides of a topic have no effect here.
func (c *Controller) warn(topic string, overrides map[string]string) {
	for _, w := range config.TopicWarnings(overrides) {
		c.log.Warn("topic config without effect", "topic", topic, "key", w.Key, "reason", w.Text)
	}
}

func (c *Controller) partitionCount(nt request.NewTopic) int32 {
	switch {
	case len(nt.Assignment) > 0:
		return int32(len(nt.Assignment))
	case nt.Partitions == -1:
		return max(1, c.cfg.Broker.NumPartitions)
	}
	return max(0, nt.Partitions)
}

// createTopic checks one topic, in Kafka's order, and gives its records.
func (c *Controller) createTopic(
	nt request.NewTopic, out *request.CreatedTopic, load *dirLoad, unified map[string]string,
) []command.Record {
	if out.Err = c.checkNewName(nt.Name, unified); out.Err != nil {
		return nil
	}
	internal := nt.Internal || cluster.InternalTopic(nt.Name)
	layers := c.layers(nt.Configs, false)
	layers.TieredByDefault = !internal && config.TierOf(layers, c.cfg.Broker.TierByDefault)
	if out.Err = c.checkTopicConfigs(nt.Configs, layers, false); out.Err != nil {
		return nil
	}
	parts, err := c.newPartitions(nt, load)
	if err != nil {
		out.Err = err
		return nil
	}
	created := command.TopicCreated{
		ID: c.cfg.NewID(), Name: nt.Name, Partitions: int32(len(parts)), Configs: maps.Clone(nt.Configs),
		TieredByDefault: layers.TieredByDefault, Internal: internal, CreatedMs: c.now.UnixMilli(),
	}
	if command.Size(created) > command.RecordsMaxBytes {
		out.Err = request.Refuse(request.ErrInvalidConfig, "The configs of topic %s are too large together.", nt.Name)
		return nil
	}
	unified[unify(nt.Name)] = nt.Name
	out.ID, out.Partitions, out.Replication = created.ID, int32(len(parts)), int16(len(parts[0].Replicas))
	return append([]command.Record{created}, partitionRecords(created.ID, 0, parts)...)
}

// partitionRecords adds partitions from first on, in records that fit commands.
func partitionRecords(id cluster.TopicID, first int32, parts []command.NewPartition) []command.Record {
	var records []command.Record
	total := first + int32(len(parts))
	for chunk := range slices.Chunk(parts, partitionsInRecord) {
		records = append(records, command.PartitionsAdded{Topic: id, First: first, Total: total, Partitions: chunk})
		first += int32(len(chunk))
	}
	return records
}

func unify(name string) string { return strings.ReplaceAll(name, ".", "_") }

func (c *Controller) checkNewName(name string, unified map[string]string) error {
	if _, exists := c.img.Topic(name); exists {
		return request.Refuse(request.ErrTopicExists, "Topic '%s' already exists.", name)
	}
	if err := ValidateTopicName(name); err != nil {
		return err
	}
	if name == clusterMetadataTopic {
		return request.Refuse(request.ErrInvalidRequest, "Creation of internal topic %s is prohibited.", name)
	}
	other, hit := collides(c.img, name)
	if !hit {
		other, hit = unified[unify(name)]
	}
	if hit {
		return request.Refuse(request.ErrInvalidTopicName, "Topic '%s' collides with existing topic: %s", name, other)
	}
	return nil
}

// newPartitions places the partitions of a new topic.
func (c *Controller) newPartitions(nt request.NewTopic, load *dirLoad) ([]command.NewPartition, error) {
	if len(nt.Assignment) > 0 {
		if nt.Replication != -1 {
			return nil, request.Refuse(request.ErrInvalidRequest,
				"A manual partition assignment was specified, but replication factor was not set to -1.")
		}
		if nt.Partitions != -1 {
			return nil, request.Refuse(request.ErrInvalidRequest,
				"A manual partition assignment was specified, but numPartitions was not set to -1.")
		}
		return c.assigned(nt.Assignment, 0, -1, load)
	}
	if nt.Replication < -1 || nt.Replication == 0 {
		return nil, request.Refuse(request.ErrInvalidReplicas,
			"Replication factor must be larger than 0, or -1 to use the default value.")
	}
	if nt.Partitions < -1 || nt.Partitions == 0 {
		return nil, request.Refuse(request.ErrInvalidPartitions,
			"Number of partitions was set to an invalid non-positive value.")
	}
	replication := int(nt.Replication)
	if nt.Replication == -1 {
		replication = max(1, int(c.cfg.Broker.DefaultReplication))
	}
	parts, err := c.placed(int(c.partitionCount(nt)), replication, load)
	if err != nil {
		return nil, request.Refuse(request.ErrInvalidReplicas, "Unable to replicate the partition %d time(s): %v", replication, err)
	}
	return parts, nil
}

func (c *Controller) deleteTopics(r request.DeleteTopics) (request.Result, error) {
	result := request.Outcomes{Errs: make([]error, len(r.Topics))}
	var records []command.Record
	seen := map[cluster.TopicID]int{}
	for n, ref := range r.Topics {
		t, err := c.findTopic(ref)
		if err != nil {
			result.Errs[n] = err
			continue
		}
		seen[t.ID]++
	}
	for n, ref := range r.Topics {
		t, err := c.findTopic(ref)
		switch {
		case err != nil:
		case !c.cfg.Broker.DeleteTopicEnable:
			result.Errs[n] = request.Refuse(request.ErrTopicDeletionDisabled, "Topic deletion is disabled.")
		case seen[t.ID] > 1 && ref.Name != "":
			result.Errs[n] = request.Refuse(request.ErrInvalidRequest, "Duplicate topic name.")
		case seen[t.ID] > 1:
			result.Errs[n] = request.Refuse(request.ErrInvalidRequest, "Duplicate topic id.")
		default:
			records = append(records, command.TopicDeleted{Topic: t.ID})
		}
	}
	if err := c.propose(records); err != nil {
		return nil, err
	}
	return result, nil
}

func (c *Controller) findTopic(ref request.TopicRef) (*image.Topic, error) {
	if ref.Name != "" {
		if t, ok := c.img.Topic(ref.Name); ok {
			return t, nil
		}
		return nil, request.Refuse(request.ErrUnknownTopic, "This server does not host this topic-partition.")
	}
	if t, ok := c.img.TopicByID(ref.ID); ok {
		return t, nil
	}
	return nil, request.Refuse(request.ErrUnknownTopicID, "This server does not host this topic ID.")
}

func (c *Controller) createPartitions(r request.CreatePartitions) (request.Result, error) {
	result := request.Outcomes{Errs: make([]error, len(r.Topics))}
	counts := map[string]int{}
	var total int64
	for _, mp := range r.Topics {
		counts[mp.Name]++
		if t, ok := c.img.Topic(mp.Name); ok {
			total += max(0, int64(mp.Total)-int64(len(t.Partitions)))
		}
	}
	var records []command.Record
	load := c.newDirLoad()
	for n, mp := range r.Topics {
		switch {
		case counts[mp.Name] > 1:
			result.Errs[n] = request.Refuse(request.ErrInvalidRequest, "Duplicate topic name.")
		case total > partitionsMax:
			result.Errs[n] = request.Refuse(request.ErrPolicyViolation, "Excessively large number of additional partitions per request.")
		default:
			rs, err := c.morePartitions(mp, load)
			result.Errs[n] = err
			records = append(records, rs...)
		}
	}
	if r.ValidateOnly {
		return result, nil
	}
	if err := c.propose(records); err != nil {
		return nil, err
	}
	return result, nil
}

func (c *Controller) morePartitions(mp request.MorePartitions, load *dirLoad) ([]command.Record, error) {
	t, err := c.findTopic(request.TopicRef{Name: mp.Name})
	if err != nil || mp.Name == "" {
		return nil, request.Refuse(request.ErrUnknownTopic, "This server does not host this topic-partition.")
	}
	have := int32(len(t.Partitions))
	if mp.Total == have {
		return nil, request.Refuse(request.ErrInvalidPartitions, "Topic already has %d partition(s).", have)
	}
	if mp.Total < have {
		return nil, request.Refuse(request.ErrInvalidPartitions,
			"The topic %s currently has %d partition(s); %d would not be an increase.", t.Name, have, mp.Total)
	}
	additional := int(mp.Total - have)
	replication := len(t.Partitions[0].Replicas)
	var parts []command.NewPartition
	if mp.Assignment != nil {
		if len(mp.Assignment) != additional {
			return nil, request.Refuse(request.ErrInvalidAssignment,
				"Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", additional, len(mp.Assignment))
		}
		parts, err = c.assigned(mp.Assignment, have, replication, load)
	} else if parts, err = c.placed(additional, replication, load); err != nil {
		err = request.Refuse(request.ErrInvalidReplicas, "%v", err)
	}
	if err != nil {
		return nil, err
	}
	return partitionRecords(t.ID, have, parts), nil
}
