package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// values reads the canonical values of a node's keys.
type values map[string]string

func (v values) get(name string) any {
	k := brokerTable.byName[name]
	raw, ok := v[name]
	if !ok {
		if !k.HasDefault {
			return nil
		}
		raw = k.Default
	}
	_, parsed, _ := k.parse(raw)
	return parsed
}

func (v values) int64(name string) int64 {
	n, _ := v.get(name).(int64)
	return n
}

func (v values) int32(name string) int32 { return int32(v.int64(name)) }

func (v values) bool(name string) bool {
	b, _ := v.get(name).(bool)
	return b
}

func (v values) text(name string) string {
	s, _ := v.get(name).(string)
	return s
}

func (v values) list(name string) []string {
	l, _ := v.get(name).([]string)
	return slices.DeleteFunc(slices.Clone(l), func(s string) bool { return s == "" })
}

func (v values) ms(name string) time.Duration { return duration(v.int64(name)) }

// ParseBroker reads the merged properties of a node. It touches nothing but
// its argument, the working directory's name apart. The error joins one
// *KeyError for each wrong key; warnings name keys that have no effect here.
func ParseBroker(props map[string]string) (Broker, []Warning, error) {
	set, warnings, errs := checkKeys(props)
	if len(errs) > 0 {
		return Broker{}, warnings, errors.Join(errs...)
	}
	b := scalars(set)
	for _, step := range []func(*Broker, values) error{node, directories, listeners, voters, store, apart, cleaner, groups, offsetsTopic, defaultsAgree} {
		if err := step(&b, set); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return Broker{}, warnings, errors.Join(errs...)
	}
	return b, warnings, nil
}

// checkKeys gives the canonical values of all keys that have an effect.
func checkKeys(props map[string]string) (values, []Warning, []error) {
	set, warnings, errs := values{}, []Warning(nil), []error(nil)
	for _, name := range slices.Sorted(maps.Keys(props)) {
		k, ok := brokerTable.byName[name]
		switch {
		case ok:
		case strings.HasPrefix(name, "listener.name."):
			errs = append(errs, keyErr(name, "%s: settings of one listener are about its security, which is not implemented yet", name))
			continue
		case strings.HasPrefix(name, "rsm.config.") || strings.HasPrefix(name, "rlmm.config."):
			warnings = append(warnings, Warning{name, name + " has no effect: the tier is built in, see remote.store.url"})
			continue
		default:
			errs = append(errs, unknownKey(name))
			continue
		}
		text, _, err := k.parse(props[name])
		switch {
		case err != nil:
			errs = append(errs, err)
		case k.Effect == Unsafe && text != k.Default:
			errs = append(errs, keyErr(name, "%s: %s, and ignoring this setting would be unsafe; remove the line", name, k.Reason))
		case k.Effect == Ignored:
			set[name] = text
			warnings = append(warnings, Warning{name, name + " has no effect: " + k.Reason})
		case text == "" && !k.HasDefault:
			// An empty value of a key without a default means not set.
		default:
			set[name] = text
		}
	}
	return set, warnings, errs
}

// scalars are the values that need no second look.
func scalars(v values) Broker {
	b := Broker{
		Static: v,
		Roles:  v.list("process.roles"), Rack: v.text("broker.rack"),
		LogFormat: v.text("log.format"), LogLevel: v.text("log.level"), ReadyFile: v.text("ready.file"),

		AutoCreateTopics:     v.bool("auto.create.topics.enable"),
		DeleteTopicEnable:    v.bool("delete.topic.enable"),
		NumPartitions:        v.int32("num.partitions"),
		DefaultReplication:   int16(v.int64("default.replication.factor")),
		MaxRequestPartitions: v.int32("max.request.partition.size.limit"),
		ControlledShutdown:   v.bool("controlled.shutdown.enable"),
		HeartbeatInterval:    v.ms("broker.heartbeat.interval.ms"),
		SessionTimeout:       v.ms("broker.session.timeout.ms"),
		RegistrationTimeout:  v.ms("initial.broker.registration.timeout.ms"),
		RequestTimeout:       v.ms("request.timeout.ms"),
		PartitionSeriesMax:   v.int32("metrics.partition.series.max"),

		ProducerIDExpiration: v.ms("producer.id.expiration.ms"),
		RetentionCheckEvery:  v.ms("log.retention.check.interval.ms"),
		InitialTaskDelay:     v.ms("log.initial.task.delay.ms"),
		RecoveryThreads:      v.int32("num.recovery.threads.per.data.dir"),

		RecoveryCheckpointEvery:      v.ms("log.flush.offset.checkpoint.interval.ms"),
		LogStartCheckpointEvery:      v.ms("log.flush.start.offset.checkpoint.interval.ms"),
		HighWatermarkCheckpointEvery: v.ms("replica.high.watermark.checkpoint.interval.ms"),
		DiskReservedBytes:            v.int64("disk.reserved.bytes"),

		SocketReceiveBytes:    v.int32("socket.receive.buffer.bytes"),
		SocketSendBytes:       v.int32("socket.send.buffer.bytes"),
		SocketRequestMaxBytes: v.int32("socket.request.max.bytes"),
		ConnectionsMaxIdle:    v.ms("connections.max.idle.ms"),
		MaxConnections:        v.int32("max.connections"),
		MaxConnectionsPerIP:   v.int32("max.connections.per.ip"),
		FetchMaxBytes:         v.int32("fetch.max.bytes"),
		LegacyClients:         v.bool("compat.legacy.clients"),
		FetchSessionSlots:     v.int32("max.incremental.fetch.session.cache.slots"),

		TierTaskEvery:      v.ms("remote.log.manager.task.interval.ms"),
		TierCopiers:        v.int32("remote.log.manager.copier.thread.pool.size"),
		TierReaders:        v.int32("remote.log.reader.threads"),
		RemoteListTimeout:  v.ms("remote.list.offsets.request.timeout.ms"),
		TierUploadDeadline: v.ms("remote.upload.deadline.ms"),
		TierManifestEvery:  v.ms("remote.manifest.interval.ms"),
		TierDeleteDelay:    v.ms("remote.object.delete.delay.ms"),
		TierRecoveryWindow: v.ms("remote.recovery.window.ms"),
	}
	return b
}

func node(b *Broker, v values) error {
	b.NodeID = v.int32("node.id")
	if old, ok := v["broker.id"]; ok && old != "-1" {
		if id, both := v["node.id"]; both && id != old {
			return keyErr("broker.id", "broker.id=%s is the old name of node.id=%s: they must be equal; remove broker.id", old, id)
		}
		b.NodeID = v.int32("broker.id")
	}
	if len(b.Roles) == 0 {
		return keyErr("process.roles", "process.roles is empty: want broker, controller or both")
	}
	if !slices.Contains(b.Roles, "broker") {
		return keyErr("process.roles", "process.roles=controller: a controller without a broker is not implemented yet; use broker,controller")
	}
	if b.HeartbeatInterval >= b.SessionTimeout {
		return keyErr("broker.heartbeat.interval.ms",
			"broker.heartbeat.interval.ms=%d must be less than broker.session.timeout.ms=%d",
			b.HeartbeatInterval.Milliseconds(), b.SessionTimeout.Milliseconds())
	}
	return nil
}

func directories(b *Broker, v values) error {
	b.LogDirs, b.MetadataLogDir = v.list("log.dirs"), v.text("metadata.log.dir")
	if _, ok := v["log.dirs"]; !ok && len(v.list("log.dir")) > 0 {
		b.LogDirs = v.list("log.dir")
	}
	seen := map[string]string{}
	for _, d := range append([]string{b.MetadataLogDir, v.text("remote.cache.dir")}, b.LogDirs...) {
		clean := filepath.Clean(d)
		if other, ok := seen[clean]; ok {
			return keyErr("log.dirs", "directory %s is named twice (%s): log, metadata and cache directories must differ", d, other)
		}
		seen[clean] = d
	}
	return nil
}

func voters(b *Broker, v values) error {
	for _, s := range v.list("controller.quorum.voters") {
		id, at, ok := strings.Cut(s, "@")
		var voter Voter
		if _, err := fmt.Sscanf(id, "%d", &voter.ID); err != nil || !ok || voter.ID < 0 {
			return keyErr("controller.quorum.voters", "controller.quorum.voters: %q is not of the form id@host:port", s)
		}
		host, port, err := splitHostPort(at)
		if err != nil || host == "" || port == 0 {
			return keyErr("controller.quorum.voters", "controller.quorum.voters: %q is not of the form id@host:port", s)
		}
		voter.Host, voter.Port = host, port
		for _, other := range b.Voters {
			if other.ID == voter.ID {
				return keyErr("controller.quorum.voters", "controller.quorum.voters: node %d is named twice", voter.ID)
			}
		}
		b.Voters = append(b.Voters, voter)
	}
	isVoter := len(b.Voters) == 0 || slices.ContainsFunc(b.Voters, func(v Voter) bool { return v.ID == b.NodeID })
	switch controller := slices.Contains(b.Roles, "controller"); {
	case controller && !isVoter:
		return keyErr("controller.quorum.voters", "process.roles has controller, but node.id=%d is not in controller.quorum.voters", b.NodeID)
	case !controller && isVoter && len(b.Voters) > 0:
		return keyErr("controller.quorum.voters", "node.id=%d is in controller.quorum.voters, but process.roles lacks controller", b.NodeID)
	case !controller && len(b.Voters) == 0:
		return keyErr("controller.quorum.voters", "process.roles lacks controller: controller.quorum.voters must name the nodes that have it")
	}
	return nil
}

func store(b *Broker, v values) error {
	s := &b.Store
	s.URL, s.Driver, s.Endpoint = v.text("remote.store.url"), v.text("remote.store.driver"), v.text("remote.store.endpoint")
	s.Region, s.PathStyle = v.text("remote.store.region"), v.bool("remote.store.path.style")
	s.AccessKeyID, s.SecretAccessKey = v.text("remote.store.access.key.id"), v.text("remote.store.secret.access.key")
	s.Checksum, s.StorageClass = v.text("remote.store.checksum"), v.text("remote.store.storage.class")
	s.PartBytes, s.RequestTimeout = v.int64("remote.store.part.size.bytes"), v.ms("remote.store.request.timeout.ms")
	b.Cache = Cache{
		Dir: v.text("remote.cache.dir"), LimitBytes: v.int64("remote.cache.size.bytes"), ChunkBytes: v.int64("remote.chunk.size.bytes"),
	}
	s.Explicit = s.URL != ""
	b.TierByDefault = s.Explicit
	if set, ok := v.get("log.remote.storage.enable").(bool); ok {
		b.TierByDefault = set
	}
	if !s.Explicit {
		dir, err := filepath.Abs("data/tier")
		if err != nil {
			return keyErr("remote.store.url", "remote.store.url is not set and the working directory has no name: %v", err)
		}
		s.URL = "file://" + filepath.ToSlash(dir)
	}
	const unit = 1 << 20 // which chunks are rounded up to
	if (b.Cache.ChunkBytes+unit-1)/unit*unit > b.Cache.LimitBytes/4 {
		return keyErr("remote.chunk.size.bytes", "remote.chunk.size.bytes=%d is too large: at least 4 chunks must fit remote.cache.size.bytes=%d",
			b.Cache.ChunkBytes, b.Cache.LimitBytes)
	}
	if (s.AccessKeyID == "") != (s.SecretAccessKey == "") {
		return keyErr("remote.store.access.key.id", "remote.store.access.key.id and remote.store.secret.access.key go together: one of them is missing")
	}
	if s.Explicit {
		return checkURL(s.URL)
	}
	return nil
}

func checkURL(url string) error {
	rest, isS3 := strings.CutPrefix(url, "s3://")
	path, isFile := strings.CutPrefix(url, "file://")
	switch {
	case url == "mem:":
	case isS3 && rest != "" && rest[0] != '/':
	case isFile && strings.HasPrefix(path, "/"):
	case isFile:
		return keyErr("remote.store.url", "remote.store.url=%s: a directory is written file:///DIR, with an absolute path", url)
	default:
		return keyErr("remote.store.url", "remote.store.url=%s: want file:///DIR, s3://BUCKET/PREFIX or mem:", url)
	}
	return nil
}

// defaultsAgree checks the broker's defaults of topic keys against each other.
func defaultsAgree(b *Broker, v values) error {
	for _, name := range []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"} {
		if _, ok := v[name]; ok && v.int64(name) == 0 {
			return keyErr(name, "%s must be at least 1, or -1 for ever", name)
		}
	}
	err := ValidateTopic(TopicCheck{Layers: Layers{Static: v}, TierAvailable: true})
	if err == nil && b.TierByDefault && !cleanup(Layers{Static: v}).Compact() {
		err = ValidateTopic(TopicCheck{Layers: Layers{Static: v, TieredByDefault: true}, TierAvailable: true})
	}
	var ke *KeyError
	if errors.As(err, &ke) {
		name := ke.Key
		if k, ok := topicTable.byName[name]; ok && len(k.Synonyms) > 0 {
			name = k.Synonyms[0]
		}
		return keyErr(name, "%s, the broker's default for topics: %s", name, ke.Message)
	}
	return err
}
