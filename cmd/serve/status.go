package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"strandline/broker/cleaner"
	"strandline/broker/partition"
	"strandline/broker/replicas"
	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/image"
	"strandline/tiering/archive"
)

// The answers of the admin listener; field names are part of the contract.
type (
	tierStatus struct {
		Store      storeStatus     `json:"store"`
		Cache      cacheStatus     `json:"cache"`
		Partitions []tierPartition `json:"partitions"`
		Deleting   []string        `json:"deleting"` // ids of deleted topics that still have objects
		// DeletionErrors say, with the topic's name, what keeps them.
		DeletionErrors []string `json:"deletionErrors,omitempty"`
	}
	storeStatus struct {
		OK        bool   `json:"ok"`
		URL       string `json:"url"`
		LastError string `json:"lastError"`
	}
	cacheStatus struct {
		Bytes      int64 `json:"bytes"`
		LimitBytes int64 `json:"limitBytes"`
	}
	tierPartition struct {
		Topic                string         `json:"topic"`
		Partition            int32          `json:"partition"`
		LogStartOffset       cluster.Offset `json:"logStartOffset"`
		LocalStartOffset     cluster.Offset `json:"localStartOffset"`
		RemoteEndOffset      cluster.Offset `json:"remoteEndOffset"`
		LogEndOffset         cluster.Offset `json:"logEndOffset"`
		LocalBytes           int64          `json:"localBytes"`
		RemoteBytes          int64          `json:"remoteBytes"`
		RemoteSegments       int64          `json:"remoteSegments"`
		PendingSegments      int            `json:"pendingSegments"`
		PendingBytes         int64          `json:"pendingBytes"`
		OldestPendingSeconds float64        `json:"oldestPendingSeconds"`
		LastError            string         `json:"lastError"`
	}
	tierSegment struct {
		Topic      string         `json:"topic"`
		Partition  int32          `json:"partition"`
		BaseOffset cluster.Offset `json:"baseOffset"`
		LastOffset cluster.Offset `json:"lastOffset"`
		Bytes      int64          `json:"bytes"`
		Key        string         `json:"key"`
		State      string         `json:"state"`
	}
	topicStatus struct {
		Topic      string           `json:"topic"`
		ID         string           `json:"id"`
		Tiered     bool             `json:"tiered"`
		Retention  []configSource   `json:"retention"`
		Partitions []partitionState `json:"partitions"`
	}
	configSource struct {
		Key    string `json:"key"`
		Value  string `json:"value"`
		Source string `json:"source"`
	}
	partitionState struct {
		Partition        int32               `json:"partition"`
		Leader           cluster.BrokerID    `json:"leader"`
		LeaderEpoch      cluster.LeaderEpoch `json:"leaderEpoch"`
		LogStartOffset   cluster.Offset      `json:"logStartOffset"`
		LocalStartOffset cluster.Offset      `json:"localStartOffset"`
		RemoteEndOffset  cluster.Offset      `json:"remoteEndOffset"`
		HighWatermark    cluster.Offset      `json:"highWatermark"`
		LogEndOffset     cluster.Offset      `json:"logEndOffset"`
		LocalBytes       int64               `json:"localBytes"`
		RemoteBytes      int64               `json:"remoteBytes"`
		Seals            string              `json:"activeSegmentSeals"`
		NextRetention    string              `json:"nextRetention"`
		Compaction       string              `json:"compaction,omitempty"`
		DirtyRatio       *float64            `json:"dirtyRatio,omitempty"`
		Offline          string              `json:"offline,omitempty"`
	}
)

// known answers 404 and false where a request is about a topic that there is
// not.
func (n *Node) known(w http.ResponseWriter, r *http.Request) bool {
	name := r.URL.Query().Get("topic")
	if _, ok := n.meta.Image().Topic(name); ok || name == "" {
		return true
	}
	http.Error(w, fmt.Sprintf("there is no topic %q", name), http.StatusNotFound)
	return false
}

func (n *Node) serveTierStatus(w http.ResponseWriter, r *http.Request) {
	if !n.known(w, r) {
		return
	}
	status := tierStatus{Partitions: []tierPartition{}, Deleting: []string{}}
	store := n.archiver.Store()
	status.Store = storeStatus{OK: store.OK, URL: n.cfg.Broker.Store.URL, LastError: store.LastError}
	cache := n.cache.Stats()
	status.Cache = cacheStatus{Bytes: cache.Bytes, LimitBytes: cache.LimitBytes}
	sweeping := n.sweeper.Status().LastErrors
	uploads := map[cluster.TopicPartition]archive.PartitionStatus{}
	for _, u := range n.archiver.Status() {
		uploads[u.Partition] = u
	}
	now := n.cfg.Now()
	bad := n.badObjects()
	for p := range n.replicas.All() {
		s := p.Status()
		if !s.Tiered || !wanted(r, s.Topic) {
			continue
		}
		summary, _ := n.meta.Catalog().Summary(s.Partition)
		t := tierPartition{
			Topic: s.Topic, Partition: s.Partition.Partition, LogStartOffset: s.LogStartOffset, LocalStartOffset: s.LocalLogStartOffset,
			RemoteEndOffset: s.RemoteEndOffset, LogEndOffset: s.LogEndOffset, LocalBytes: s.LocalBytes,
			RemoteBytes: summary.LiveBytes, RemoteSegments: summary.LiveCount, PendingSegments: s.PendingSegments, PendingBytes: s.PendingBytes,
		}
		if u, ok := uploads[s.Partition]; ok {
			t.LastError = u.LastError
			if !u.OldestPending.IsZero() && u.PendingSegments > 0 {
				t.OldestPendingSeconds = max(0, now.Sub(u.OldestPending).Seconds())
			}
		}
		t.LastError = join(join(t.LastError, sweeping[s.Partition]), bad[s.Partition])
		status.Partitions = append(status.Partitions, t)
	}
	slices.SortFunc(status.Partitions, func(a, b tierPartition) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition - b.Partition)
	})
	for _, d := range n.meta.Catalog().DeletedTopics() {
		status.Deleting = append(status.Deleting, d.Topic.String())
		deletion := cluster.TopicPartition{Topic: d.Topic, Partition: -1}
		if why := sweeping[deletion]; why != "" {
			status.DeletionErrors = append(status.DeletionErrors, d.Name+": "+why)
		}
	}
	answer(w, status)
}

// badObjects says, for each partition that has any, which remote object cannot be
// read and how many more.
func (n *Node) badObjects() map[cluster.TopicPartition]string {
	counts, texts := map[cluster.TopicPartition]int{}, map[cluster.TopicPartition]string{}
	for _, o := range n.remote.BadObjects() {
		if counts[o.Partition]++; counts[o.Partition] == 1 {
			texts[o.Partition] = o.Err.Error() + "; " + o.Remedy()
		}
	}
	for tp, count := range counts {
		if count > 1 {
			texts[tp] += fmt.Sprintf(" (and %d more objects)", count-1)
		}
	}
	return texts
}

// join is both messages, or the one that there is.
func join(a, b string) string {
	if a == "" || b == "" || a == b {
		return a + strings.TrimPrefix(b, a)
	}
	return a + "; " + b
}

// wanted tells whether a request is about a topic; without ?topic= it is about
// all.
func wanted(r *http.Request, topic string) bool {
	name := r.URL.Query().Get("topic")
	return name == "" || name == topic
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (n *Node) serveTierSegments(w http.ResponseWriter, r *http.Request) {
	if !n.known(w, r) {
		return
	}
	segments := []tierSegment{}
	for t := range n.meta.Image().Topics() {
		if !wanted(r, t.Name) {
			continue
		}
		for p := range t.Partitions {
			tp := cluster.TopicPartition{Topic: t.ID, Partition: int32(p)}
			for s, err := range n.meta.Catalog().Segments(tp, 0) {
				if err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
				segments = append(segments, describeSegment(t.Name, tp, s))
			}
		}
	}
	answer(w, segments)
}

func describeSegment(topic string, tp cluster.TopicPartition, s catalog.Segment) tierSegment {
	return tierSegment{
		Topic: topic, Partition: tp.Partition, BaseOffset: s.Base, LastOffset: s.End - 1,
		Bytes: s.Object.ObjectBytes, Key: s.Key, State: strings.ToLower(s.State.String()),
	}
}

func (n *Node) serveTopicStatus(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("topic")
	t, ok := n.meta.Image().Topic(name)
	if !ok {
		http.Error(w, fmt.Sprintf("no topic %q", name), http.StatusNotFound)
		return
	}
	status := topicStatus{Topic: t.Name, ID: t.ID.String(), Tiered: n.topicConfig(t).Tiered, Retention: n.retention(t), Partitions: []partitionState{}}
	for i := range t.Partitions {
		status.Partitions = append(status.Partitions, n.describePartition(t, int32(i)))
	}
	answer(w, status)
}

func (n *Node) layers(t *image.Topic) config.Layers {
	img := n.meta.Image()
	return config.Layers{
		Topic: t.Configs, Broker: img.BrokerConfig(cluster.BrokerID(n.cfg.Broker.NodeID)), Cluster: img.BrokerConfig(cluster.NoBroker),
		Static: n.cfg.Broker.Static, TieredByDefault: t.Tiered,
	}
}

func (n *Node) topicConfig(t *image.Topic) config.Topic { return config.EffectiveTopic(n.layers(t)) }

// retention lists what bounds a topic, with where each value comes from. What has
// no effect on a compacted topic is left out.
func (n *Node) retention(t *image.Topic) []configSource {
	var list []configSource
	settings := n.topicConfig(t)
	compacted, deletes := settings.CleanupPolicy.Compact(), settings.CleanupPolicy.Delete()
	for _, v := range config.DescribeTopic(n.layers(t)) {
		shown := false
		switch v.Name {
		case "segment.bytes", "segment.ms", "cleanup.policy":
			shown = true
		case "retention.ms", "retention.bytes":
			shown = deletes || !compacted
		case "local.retention.ms", "local.retention.bytes":
			shown = settings.Tiered || !compacted
		case "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "max.compaction.lag.ms", "delete.retention.ms":
			shown = compacted
		}
		if shown {
			list = append(list, configSource{Key: v.Name, Value: v.Value, Source: sourceName(v.Source)})
		}
	}
	return list
}

func sourceName(s config.Source) string {
	switch s {
	case config.SourceTopic:
		return "topic"
	case config.SourceDynamicBroker:
		return "this broker, dynamic"
	case config.SourceDynamicAll:
		return "all brokers, dynamic"
	case config.SourceStatic:
		return "server configuration"
	default:
		return "default"
	}
}

func (n *Node) describePartition(t *image.Topic, index int32) partitionState {
	tp := cluster.TopicPartition{Topic: t.ID, Partition: index}
	p := partitionState{Partition: index, Leader: t.Partitions[index].Leader, LeaderEpoch: t.Partitions[index].LeaderEpoch}
	o, err := n.replicas.Outlook(tp)
	if err != nil {
		p.Offline = err.Error()
		return p
	}
	s := o.Status
	summary, _ := n.meta.Catalog().Summary(tp)
	p.LogStartOffset, p.LocalStartOffset, p.RemoteEndOffset = s.LogStartOffset, s.LocalLogStartOffset, s.RemoteEndOffset
	p.HighWatermark, p.LogEndOffset, p.LocalBytes, p.RemoteBytes = s.HighWatermark, s.LogEndOffset, s.LocalBytes, summary.LiveBytes
	p.Seals, p.NextRetention = seals(o, n.cfg.Now()), nextRetention(o)
	if c := o.Compaction; c != nil {
		p.Compaction = compaction(c, o.Settings)
		if c.Seen {
			p.DirtyRatio = &c.Dirt.Ratio
		}
	}
	return p
}

// compaction says how far it has come, and what happens next.
func compaction(c *replicas.CompactionOutlook, settings config.Topic) string {
	bytes := c.Dirt.DirtyBytes + c.Dirt.CleanBytes
	switch {
	case c.Failed != nil:
		return "stopped until the topic's configuration changes or the broker starts again: " + c.Failed.Error()
	case c.Running:
		return "under way"
	case c.Threads == 0:
		return "off: log.cleaner.enable or log.cleaner.threads says so"
	case !c.Seen:
		return "not looked at yet"
	case bytes == 0:
		return "no segment is sealed yet"
	}
	what := fmt.Sprintf("%.0f%% of %d sealed bytes are dirty", 100*c.Dirt.Ratio, bytes)
	if c.Dirt.Due != "" {
		return what + "; due: " + string(c.Dirt.Due)
	}
	return what + fmt.Sprintf("; due above %.0f%% (min.cleanable.dirty.ratio)", 100*settings.MinCleanableDirtyRatio)
}

func seals(o replicas.Outlook, now time.Time) string {
	if o.SealsBy.IsZero() {
		return "it is empty"
	}
	return fmt.Sprintf("after %d more bytes, or in %s at the latest", o.SealBytes, max(0, o.SealsBy.Sub(now)).Round(time.Second))
}

func nextRetention(o replicas.Outlook) string {
	if len(o.Plan.Removals) == 0 {
		return "removes nothing"
	}
	reasons := map[cleaner.Reason]int{}
	bytes := int64(0)
	for _, r := range o.Plan.Removals {
		reasons[r.Reason]++
		bytes += r.Segment.Bytes
	}
	var why []string
	for r, c := range reasons {
		why = append(why, fmt.Sprintf("%d %s", c, r))
	}
	slices.Sort(why)
	return fmt.Sprintf("removes %d local segments with %d bytes: %s", len(o.Plan.Removals), bytes, strings.Join(why, ", "))
}

// PartitionStatus describes a replica of this node, by topic name.
func (n *Node) PartitionStatus(topic string, index int32) (partition.Status, error) {
	t, ok := n.meta.Image().Topic(topic)
	if !ok {
		return partition.Status{}, fmt.Errorf("no topic %q", topic)
	}
	p, err := n.replicas.Get(cluster.TopicPartition{Topic: t.ID, Partition: index})
	if err != nil {
		return partition.Status{}, err
	}
	return p.Status(), nil
}
