package configs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/broker/replicas"
	"strandline/cmd/serve"
	"strandline/integration/kit"
	"strandline/metadata/config"
)

// nodeRows show the effect of every broker key that gives no topic key its
// default while the broker runs; those are in TestTopicKeys.
var nodeRows = map[string]func(t *testing.T){
	"admin.listeners": func(t *testing.T) {
		n := kit.New(t, t.TempDir(), map[string]string{"admin.listeners": ""})
		n.MustStart()
		require.Empty(t, n.Ready.Admin)
		require.NotEmpty(t, kit.Start(t, nil).Admin)
	},
	"advertised.listeners": func(t *testing.T) {
		require.Equal(t, "localhost", brokers(t, with(t, "advertised.listeners=PLAINTEXT://localhost:0"))[0].Host)
	},
	"auto.create.topics.enable": func(t *testing.T) {
		require.ErrorIs(t, kerr.ErrorForCode(autoCreate(with(t, "auto.create.topics.enable=false"))), kerr.UnknownTopicOrPartition)
		n := with(t, "auto.create.topics.enable=true")
		n.eventually("the topic is created", func() bool { return autoCreate(n) == 0 })
	},
	"broker.heartbeat.interval.ms": heartbeats,
	"broker.id":                    func(t *testing.T) { require.Equal(t, 7, with(t, "broker.id=7").Ready.NodeID) },
	"broker.rack":                  func(t *testing.T) { require.Equal(t, "r1", *brokers(t, with(t, "broker.rack=r1"))[0].Rack) },
	"broker.session.timeout.ms":    sessionTimeout,
	"compat.legacy.clients": func(t *testing.T) {
		lowest := func(n *running) int16 {
			for _, k := range ask[*kmsg.ApiVersionsResponse](n, kmsg.NewPtrApiVersionsRequest()).ApiKeys {
				if k.ApiKey == 1 {
					return k.MinVersion
				}
			}
			return -1
		}
		require.EqualValues(t, 0, lowest(with(t, "compat.legacy.clients=true")))
		require.EqualValues(t, 4, lowest(with(t)))
	},
	"connections.max.idle.ms": func(t *testing.T) {
		require.True(t, kit.Dial(t, with(t, "connections.max.idle.ms=100").Addr).Closed())
	},
	"controlled.shutdown.enable": func(t *testing.T) {
		for _, on := range []bool{true, false} {
			n := with(t, fmt.Sprint("controlled.shutdown.enable=", on))
			require.Zero(t, n.Stop())
			require.Equal(t, on, strings.Contains(n.Log(), "broker stopping"))
		}
	},
	"controller.listener.names": func(t *testing.T) {
		n := with(t, "listeners=PLAINTEXT://127.0.0.1:0,CTRL://127.0.0.1:0", "controller.listener.names=CTRL",
			"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CTRL:PLAINTEXT")
		require.Len(t, n.Ready.Listeners, 1)
	},
	"controller.quorum.voters": func(t *testing.T) {
		refused(t, "more than one voter", "controller.quorum.voters=1@localhost:1,2@localhost:2")
		with(t, "controller.quorum.voters=1@localhost:1")
	},
	"default.replication.factor": func(t *testing.T) {
		n := with(t, "default.replication.factor=2")
		require.ErrorIs(t, kerr.ErrorForCode(n.tryCreate("t", 1, -1).ErrorCode), kerr.InvalidReplicationFactor)
	},
	"delete.topic.enable": func(t *testing.T) {
		n := with(t, "delete.topic.enable=false")
		require.ErrorIs(t, kerr.ErrorForCode(n.remove(n.create(1))), kerr.TopicDeletionDisabled)
	},
	"disk.reserved.bytes": func(t *testing.T) {
		n := with(t, fmt.Sprint("disk.reserved.bytes=", int64(1)<<60))
		topic := n.create(1)
		n.eventually("produce is refused", func() bool { return n.put(topic, 0, batch(1, time.Now())).ErrorCode == kerr.KafkaStorageError.Code })
	},
	"fetch.max.bytes": func(t *testing.T) {
		n := with(t, "fetch.max.bytes=2500")
		topic := n.create(1)
		n.write(topic, 5, 1000, time.Now())
		require.Less(t, len(n.fetch(topic, 0, 1<<20)), 3500)
	},
	"initial.broker.registration.timeout.ms": registration,
	"listener.security.protocol.map": func(t *testing.T) {
		with(t, "listeners=INNER://127.0.0.1:0", "listener.security.protocol.map=INNER:PLAINTEXT").create(1)
		refused(t, "INNER", "listeners=INNER://127.0.0.1:0")
		refused(t, "not implemented", "listeners=INNER://127.0.0.1:0", "listener.security.protocol.map=INNER:SSL")
	},
	"listeners": func(t *testing.T) {
		n := with(t, "listeners=PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT")
		require.Len(t, n.Ready.Listeners, 2)
		for _, l := range n.Ready.Listeners {
			_, n.Addr, _ = strings.Cut(l, "://")
			n.create(1)
		}
	},
	"log.cleaner.enable": cleanerEnabled,
	"log.dir": func(t *testing.T) {
		dir := t.TempDir()
		n := with(t, "log.dirs=-", "log.dir="+dir)
		require.DirExists(t, filepath.Join(dir, n.create(1)+"-0"))
	},
	"log.dirs": func(t *testing.T) {
		one, two := t.TempDir(), t.TempDir()
		with(t, "log.dirs="+one+","+two).create(4)
		for _, dir := range []string{one, two} {
			found, err := filepath.Glob(filepath.Join(dir, "t-*"))
			require.NoError(t, err)
			require.NotEmpty(t, found)
		}
	},
	"log.flush.offset.checkpoint.interval.ms":       checkpoints("recovery-point-offset-checkpoint"),
	"log.flush.start.offset.checkpoint.interval.ms": logStarts,
	"log.format": func(t *testing.T) {
		first, _, _ := strings.Cut(with(t, "log.format=json").Log(), "\n")
		require.NoError(t, json.Unmarshal([]byte(first), &map[string]any{}), first)
	},
	// The default is half a minute: nothing would be retained or archived in time.
	"log.initial.task.delay.ms": func(t *testing.T) { with(t).passed() },
	"log.level": func(t *testing.T) {
		require.NotContains(t, with(t, "log.level=error").Log(), "level=INFO")
		require.Contains(t, with(t).Log(), "level=INFO")
	},
	"log.remote.storage.enable": func(t *testing.T) {
		for _, on := range []string{"true", "false"} {
			n := with(t, "log.remote.storage.enable="+on)
			c := n.describe(ofTopic, n.create(1))["remote.storage.enable"]
			require.Equal(t, on, *c.Value)
			require.Equal(t, kmsg.ConfigSourceDefaultConfig, c.Source)
		}
	},
	// The default is five minutes.
	"log.retention.check.interval.ms": func(t *testing.T) { with(t).passed() },
	"log.retention.hours":             oldGoes("log.retention.hours=1"),
	"log.retention.minutes":           oldGoes("log.retention.minutes=5"),
	"log.roll.hours": func(t *testing.T) {
		n := with(t, "log.roll.hours=1")
		topic := n.create(1)
		n.write(topic, 1, 100, old())
		n.write(topic, 1, 100, time.Now())
		require.Equal(t, 2, n.segments(topic, 0))
	},
	"log.roll.jitter.hours": func(t *testing.T) {
		n := with(t, "log.roll.hours=2", "log.roll.jitter.hours=2")
		const partitions = 32
		topic := n.create(partitions)
		early := 0
		for p := range partitions {
			for _, ago := range []time.Duration{4 * time.Hour, time.Hour, 0} {
				require.Zero(t, n.put(topic, int32(p), batch(100, time.Now().Add(-ago))).ErrorCode)
			}
			early += n.segments(topic, p) - 2
		}
		require.NotZero(t, early)
	},
	"max.connections":        connectionLimit("max.connections"),
	"max.connections.per.ip": connectionLimit("max.connections.per.ip"),
	"max.incremental.fetch.session.cache.slots": func(t *testing.T) {
		session := func(n *running) int32 {
			req := kit.Fetch(12, n.create(1), 0, 0, 1<<20)
			req.SessionEpoch, req.MaxWaitMillis = 0, 1
			return ask[*kmsg.FetchResponse](n, req).SessionID
		}
		require.Zero(t, session(with(t, "max.incremental.fetch.session.cache.slots=0")))
		require.NotZero(t, session(with(t)))
	},
	"max.request.partition.size.limit": func(t *testing.T) {
		n := with(t, "max.request.partition.size.limit=2")
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
		rt.Topic = n.create(5)
		req.Topics, req.ResponsePartitionLimit = append(req.Topics, rt), 100
		resp := ask[*kmsg.DescribeTopicPartitionsResponse](n, req)
		require.Len(t, resp.Topics[0].Partitions, 2)
		require.NotNil(t, resp.NextCursor)
	},
	"metadata.log.dir": func(t *testing.T) {
		dir := t.TempDir()
		with(t, "metadata.log.dir="+dir)
		require.NotEmpty(t, tree(dir))
	},
	"node.id": func(t *testing.T) { require.Equal(t, 7, with(t, "node.id=7").Ready.NodeID) },
	"num.partitions": func(t *testing.T) {
		require.EqualValues(t, 3, with(t, "num.partitions=3").tryCreate("t", -1, 1).NumPartitions)
	},
	"num.recovery.threads.per.data.dir": recoveryThreads,
	"process.roles": func(t *testing.T) {
		refused(t, "process.roles", "process.roles=controller")
		refused(t, "controller.quorum.voters", "process.roles=broker")
	},
	"producer.id.expiration.ms": producerExpiration,
	"ready.file": func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "r.json")
		with(t, "ready.file="+file)
		require.FileExists(t, file)
	},
	"replica.high.watermark.checkpoint.interval.ms": checkpoints("replication-offset-checkpoint"),
	"request.timeout.ms": func(t *testing.T) {
		n := with(t, "request.timeout.ms=1")
		many := make([]string, 0, 100)
		n.eventually("a change takes longer", func() bool {
			for i := range 100 {
				many = append(many[:i], fmt.Sprintf("t-many-%d", i))
			}
			return n.alter(ofBroker, "", fmt.Sprint("log.retention.ms=", time.Now().UnixNano())).ErrorCode == kerr.RequestTimedOut.Code
		})
	},
	"socket.receive.buffer.bytes": func(t *testing.T) { socketBuffer(t, "socket.receive.buffer.bytes", 1) },
	"socket.send.buffer.bytes":    func(t *testing.T) { socketBuffer(t, "socket.send.buffer.bytes", 3) },
	"socket.request.max.bytes": func(t *testing.T) {
		n := with(t, "socket.request.max.bytes=10000")
		topic := n.create(1)
		c := kit.Dial(t, n.Addr)
		c.Send(kit.Produce(9, topic, 0, batch(20000, time.Now())))
		require.True(t, c.Closed())
		require.Zero(t, n.put(topic, 0, batch(5000, time.Now())).ErrorCode)
	},
}

// with starts a server with settings, key=value.
func with(t *testing.T, settings ...string) *running {
	t.Helper()
	set := map[string]string{}
	for _, kv := range settings {
		k, v, _ := strings.Cut(kv, "=")
		set[k] = v
	}
	return start(t, set)
}

// refused starts a server that must not start, and say why.
func refused(t *testing.T, why string, settings ...string) {
	t.Helper()
	set := map[string]string{}
	for _, kv := range settings {
		k, v, _ := strings.Cut(kv, "=")
		set[k] = v
	}
	s := kit.New(t, t.TempDir(), set)
	s.Spawn()
	require.Equal(t, 2, s.Wait(patience), s.Log())
	require.Contains(t, s.Log(), why)
}

// TestNodeKeys shows the effect of every key of a node.
func TestNodeKeys(t *testing.T) {
	rows := map[string]func(*testing.T){}
	for _, m := range []map[string]func(*testing.T){nodeRows, storeRows, tierRows, offsetsRows, groupRows} {
		for k, row := range m {
			require.NotContains(t, rows, k)
			rows[k] = row
		}
	}
	for _, k := range config.BrokerKeys() {
		switch {
		case k.Effect != config.Effective:
			require.NotContains(t, rows, k.Name, "%s", k.Reason)
		case k.Dynamic != config.ClusterWide:
			require.Contains(t, rows, k.Name, "a broker key without a row: show its effect, or say with ignored(...) why it has none")
		}
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row(t)
		})
	}
}

func brokers(t *testing.T, n *running) []kmsg.MetadataResponseBroker {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	return ask[*kmsg.MetadataResponse](n, req).Brokers
}

func autoCreate(n *running) int16 {
	n.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = 12, true
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr("auto")
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.MetadataResponse](n, req).Topics[0].ErrorCode
}

func oldGoes(setting string) func(t *testing.T) {
	return func(t *testing.T) {
		n := with(t, setting)
		topic := n.create(1, "internal.segment.bytes=200")
		n.write(topic, 3, 100, old())
		n.eventually("old segments go", func() bool { return n.start(topic) > 0 })
	}
}

// checkpoints looks for a partition in a checkpoint file, which is written soon
// or not at all.
func checkpoints(file string) func(t *testing.T) {
	return func(t *testing.T) {
		key := strings.TrimPrefix(t.Name(), "TestNodeKeys/")
		has := func(n *running) (topic string, written func() bool) {
			topic = n.create(1, "flush.messages=1")
			n.write(topic, 2, 100, time.Now())
			req := kmsg.NewPtrDeleteRecordsRequest()
			req.Version, req.TimeoutMillis = 2, 10000
			rt := kmsg.NewDeleteRecordsRequestTopic()
			rt.Topic = topic
			rt.Partitions = append(rt.Partitions, kmsg.DeleteRecordsRequestTopicPartition{Offset: 1})
			req.Topics = append(req.Topics, rt)
			ask[*kmsg.DeleteRecordsResponse](n, req)
			return topic, func() bool {
				b, _ := os.ReadFile(filepath.Join(n.Dir, "logs", file))
				return strings.Contains(string(b), topic+" 0 ")
			}
		}
		often := with(t, key+"=50")
		_, written := has(often)
		often.eventually("the file is written", written)
		never := with(t, key+"=3600000")
		_, written = has(never)
		never.passed()
		require.False(t, written())
	}
}

// logStarts has retention move the log start of a tiered partition, which is in
// the checkpoint file soon or not at all. Without a tier it is written at once.
func logStarts(t *testing.T) {
	for _, often := range []bool{true, false} {
		n := with(t, "log.flush.start.offset.checkpoint.interval.ms="+map[bool]string{true: "50", false: "3600000"}[often])
		topic := n.create(1, "retention.ms=60000", "internal.segment.bytes=200", "remote.storage.enable=true")
		n.write(topic, 3, 100, old())
		n.eventually("old segments go", func() bool { return n.start(topic) > 0 })
		written := func() bool {
			b, _ := os.ReadFile(filepath.Join(n.Dir, "logs", "log-start-offset-checkpoint"))
			return strings.Contains(string(b), fmt.Sprintf("%s 0 %d\n", topic, n.start(topic)))
		}
		if often {
			n.eventually("the file is written", written)
			continue
		}
		n.passed()
		require.False(t, written())
	}
}

func connectionLimit(key string) func(t *testing.T) {
	return func(t *testing.T) {
		n := with(t, key+"=2")
		for range 5 {
			kit.Dial(t, n.Addr)
		}
		n.eventually("the limit is hit", func() bool { return n.Metric("strandline_limit_hits_total") > 0 })
	}
}

func producerExpiration(t *testing.T) {
	n := with(t, "producer.id.expiration.ms=500")
	topic := n.create(1)
	b := recordbatch.NewBuilder(recordbatch.Options{Producer: &recordbatch.Producer{ID: 5000}})
	b.Add(time.Now().UnixMilli(), nil, []byte("v"))
	require.Zero(t, n.put(topic, 0, b.Build()).ErrorCode)
	known := func() int {
		req := kmsg.NewPtrDescribeProducersRequest()
		rt := kmsg.NewDescribeProducersRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		req.Topics = append(req.Topics, rt)
		return len(ask[*kmsg.DescribeProducersResponse](n, req).Topics[0].Partitions[0].ActiveProducers)
	}
	n.eventually("the producer is forgotten", func() bool { return known() == 0 })
}

// recoveryThreads counts how many logs are opened at once, on a node of this
// process, which can be told to wait at the step.
func recoveryThreads(t *testing.T) {
	dir := t.TempDir()
	props := map[string]string{
		"log.dirs": filepath.Join(dir, "logs"), "metadata.log.dir": filepath.Join(dir, "metadata"), "remote.cache.dir": filepath.Join(dir, "cache"),
		"listeners": "PLAINTEXT://127.0.0.1:0", "admin.listeners": "", "remote.store.url": "mem:",
	}
	run := func(threads string, hook func(string)) *serve.Node {
		props["num.recovery.threads.per.data.dir"] = threads
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		n, err := serve.Start(ctx, serve.Config{Broker: parsed(t, props), Hook: hook})
		require.NoError(t, err)
		return n
	}
	stop := func(n *serve.Node) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, n.Close(ctx))
	}
	n := run("2", nil)
	_, addr, _ := strings.Cut(n.Listeners()[0], "://")
	(&running{Server: &kit.Server{Addr: addr}, t: t}).create(6)
	stop(n)
	most := func(threads string, want int32, wait time.Duration) int32 {
		var at, peak atomic.Int32
		together := make(chan struct{})
		stop(run(threads, func(step string) {
			if step != replicas.StepStartupRecovery {
				return
			}
			now := at.Add(1)
			defer at.Add(-1)
			if peak.Store(max(peak.Load(), now)); now == want {
				close(together)
			}
			select {
			case <-together:
			case <-time.After(wait):
			}
		}))
		return peak.Load()
	}
	require.EqualValues(t, 6, most("6", 6, patience/2))
	require.EqualValues(t, 1, most("1", 2, 100*time.Millisecond))
}
