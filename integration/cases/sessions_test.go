package cases

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// FE-05: clients that ask for a new session with every fetch do not keep those that
// read in a session from their records, and what is kept for them is bounded.
func TestSessionForEveryFetch(t *testing.T) {
	const slots, greedy, partitions = 20, 4, 3
	s := own(t, map[string]string{"max.incremental.fetch.session.cache.slots": strconv.Itoa(slots)})
	c := kit.Dial(t, s.Addr)
	topic, id := create(t, c, partitions)
	fetches := 5000 / greedy
	if kit.Long() {
		fetches = 5000
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	from := map[int32]kgo.Offset{}
	for p := range int32(partitions) {
		from[p] = kgo.NewOffset().At(0)
	}
	franz := client(t, s.Addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchMaxWait(50*time.Millisecond))
	java := kit.JavaProgram(t, "testdata/Client.java", s.Addr, topic, strconv.Itoa(partitions))
	written := 0
	step := func() {
		partition, offset, value := int32(written%partitions), int64(written/partitions), fmt.Sprint("steady-", written)
		written++
		same(t, nil, send(c, 9, topic, id, partition, records(value)).ErrorCode)
		for read := false; !read; {
			got := franz.PollFetches(ctx)
			require.NoError(t, ctx.Err())
			require.Empty(t, got.Errors())
			got.EachRecord(func(r *kgo.Record) {
				require.Equal(t, fmt.Sprint(partition, offset, value), fmt.Sprint(r.Partition, r.Offset, string(r.Value)))
				read = true
			})
		}
		require.Equal(t, fmt.Sprintf("record %d %d %s", partition, offset, value), java.Hear(time.Minute))
	}
	for range 30 { // both have their sessions before the others come
		step()
	}
	before := kit.ProcessOf(t, s.Pid()).ResidentBytes
	conns := make([]*kit.Raw, greedy)
	for i := range conns {
		conns[i] = kit.Dial(t, s.Addr)
	}
	var group sync.WaitGroup
	for _, g := range conns {
		group.Go(func() {
			for range fetches {
				req := waiting(12, topic, id, 0, 0, 0, 1)
				req.SessionID, req.SessionEpoch = 0, 0
				g.Send(req)
				resp, err := g.Receive(req)
				if err != nil || resp.(*kmsg.FetchResponse).ErrorCode != 0 {
					t.Errorf("%+v %v", resp, err)
					return
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { group.Wait(); close(over) }()
	during := 0
	for running := true; running; during++ {
		step()
		select {
		case <-over:
			running = false
		default:
		}
	}
	require.Greater(t, during, 20, "they read while the others ask")
	step()
	require.LessOrEqual(t, s.Metric("strandline_fetch_sessions"), float64(slots))
	grown := kit.ProcessOf(t, s.Pid()).ResidentBytes - before
	t.Logf("%d fetches of new sessions; %d records read meanwhile; resident memory rose by %d KiB", greedy*fetches, during, grown>>10)
	require.Less(t, grown, int64(48<<20))
	// Epochs that no session has.
	for _, epoch := range []int32{1, 5, -2, -5} {
		req := waiting(12, topic, id, 0, 0, 0, 1)
		req.SessionID, req.SessionEpoch = 0, epoch
		resp := ask[*kmsg.FetchResponse](c, req)
		same(t, kerr.FetchSessionIDNotFound, resp.ErrorCode, "session 0 at epoch %d", epoch)
		require.Empty(t, resp.Topics)
	}
}

// OP-09: a topic is deleted and made again under clients that stay. Each notices
// or fails loudly, nothing old is read from the new topic, and the broker names
// the new one by a new id at once.
func TestTopicMadeAgainUnderItsClients(t *testing.T) {
	addr := broker(t)
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 2)
	rounds := 5
	if kit.Long() {
		rounds = 20
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	session := kit.Dial(t, addr)
	for round := range rounds {
		writer := client(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(20*time.Millisecond),
			kgo.UnknownTopicRetries(2), kgo.RecordDeliveryTimeout(3*time.Second))
		reader := client(t, addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}),
			kgo.MetadataMinAge(20*time.Millisecond), kgo.FetchMaxWait(50*time.Millisecond))
		for n := range 3 {
			require.NoError(t, writer.ProduceSync(ctx, &kgo.Record{Value: fmt.Append(nil, "round ", round, " record ", n)}).FirstErr())
		}
		for read := 0; read < 3; {
			got := reader.PollFetches(ctx)
			require.Empty(t, got.Errors())
			read += got.NumRecords()
		}
		// A session that names the topic by its id.
		open := waiting(13, "", id, 0, 3, 0, 1)
		open.SessionEpoch = 0
		opened := ask[*kmsg.FetchResponse](session, open)
		same(t, nil, opened.ErrorCode)

		same(t, nil, deleteTopics(c, 6, named(topic))[0].ErrorCode)
		out := createTopics(c, 7, false, newTopic(topic, 2))[0]
		same(t, nil, out.ErrorCode)
		require.NotEqual(t, id, out.TopicID)
		kit.Eventually(t, 10*time.Second, "it can be written", func() bool { return listOffset(c, 7, topic, 0, -1).ErrorCode == 0 })
		require.Zero(t, end(t, c, topic, 0))

		same(t, kerr.UnknownTopicID, ask[*kmsg.FetchResponse](c, waiting(13, "", id, 0, 3, 0, 1)).Topics[0].Partitions[0].ErrorCode, "the old id in a full fetch")
		if opened.SessionID != 0 {
			again := kmsg.NewPtrFetchRequest()
			again.Version, again.ReplicaID, again.MaxBytes, again.SessionID, again.SessionEpoch = 13, -1, 1<<20, opened.SessionID, 1
			resp := ask[*kmsg.FetchResponse](session, again)
			same(t, nil, resp.ErrorCode)
			require.Len(t, resp.Topics, 1, "the session is told")
			require.Contains(t, []int16{kerr.InconsistentTopicID.Code, kerr.UnknownTopicID.Code}, resp.Topics[0].Partitions[0].ErrorCode)
			require.Empty(t, resp.Topics[0].Partitions[0].RecordBatches)
		}
		same(t, kerr.UnknownTopicID, send(c, 13, "", id, 0, records("late")).ErrorCode)
		same(t, nil, send(c, 9, topic, [16]byte{}, 0, records("new")).ErrorCode)

		// The clients of before: an error or the new topic's record, never silence.
		if err := writer.ProduceSync(ctx, &kgo.Record{Value: []byte("after")}).FirstErr(); err == nil {
			require.EqualValues(t, 2, end(t, c, topic, 0))
		}
		for heard := false; !heard; {
			got := reader.PollFetches(ctx)
			require.NoError(t, ctx.Err(), "the reader hears of it")
			heard = len(got.Errors()) > 0
			got.EachRecord(func(r *kgo.Record) {
				require.Contains(t, []string{"new", "after"}, string(r.Value))
				heard = true
			})
		}
		writer.Close()
		reader.Close()
		id = out.TopicID
	}
}

// AD-07: a tool that describes a topic, compares it with what it has asked for,
// and changes one key, sees what it asked for and nothing else.
func TestNothingElseIsSetOnATopic(t *testing.T) {
	addr := broker(t)
	c := kit.Dial(t, addr)
	admin := kadm.NewClient(client(t, addr))
	overrides := func(topic string) map[string]string {
		got, err := admin.DescribeTopicConfigs(t.Context(), topic)
		require.NoError(t, err)
		set := map[string]string{}
		for _, cfg := range got[0].Configs {
			if cfg.Source == kmsg.ConfigSourceDynamicTopicConfig {
				set[cfg.Key] = cfg.MaybeValue()
			}
		}
		return set
	}
	for _, version := range []int16{2, 4, 5, 7} {
		for _, asked := range []map[string]string{{}, {"retention.ms": "3600000"}, {"retention.ms": "604800000", "cleanup.policy": "delete"}} {
			topic := fresh("planned")
			rt := newTopic(topic, 1)
			for k, v := range asked {
				rt.Configs = append(rt.Configs, newTopic("", 0, k+"="+v).Configs...)
			}
			same(t, nil, createTopics(c, version, false, rt)[0].ErrorCode)
			settled(t, c, topic)
			require.Equal(t, asked, overrides(topic))
			require.Equal(t, asked, overrides(topic), "a second look finds the same")
			same(t, nil, alter(c, topic, set("retention.ms", "7200000")).ErrorCode)
			kit.Eventually(t, 10*time.Second, "the change is seen", func() bool { return overrides(topic)["retention.ms"] == "7200000" })
			want := map[string]string{"retention.ms": "7200000"}
			if v, ok := asked["cleanup.policy"]; ok {
				want["cleanup.policy"] = v
			}
			require.Equal(t, want, overrides(topic))
			old := describe(c, 1, ofTopic, topic, nil)
			for _, cfg := range old.Configs {
				_, override := want[cfg.Name]
				require.Equal(t, override, cfg.Source == topicOverride, cfg.Name)
			}
		}
	}
}

// WI-07: what is advertised is meant: a version whose rules need a feature is
// served by the old rules as long as the feature is not finalised.
func TestVersionsAndFeaturesAgree(t *testing.T) {
	addr := broker(t)
	c := kit.Dial(t, addr)
	av := apiVersions(c, 4)
	finalized := map[string]int16{}
	for _, f := range av.FinalizedFeatures {
		finalized[f.Name] = f.MaxVersionLevel
		supported := false
		for _, s := range av.SupportedFeatures {
			supported = supported || s.Name == f.Name && s.MinVersion <= f.MinVersionLevel && f.MaxVersionLevel <= s.MaxVersion
		}
		require.True(t, supported, "%+v is finalised beyond what is supported", f)
	}
	topic, id := create(t, c, 1)
	for _, key := range av.ApiKeys {
		if key.ApiKey != 0 {
			continue
		}
		for version := max(key.MinVersion, 3); version <= key.MaxVersion; version++ {
			same(t, nil, send(c, version, topic, id, 0, records("x")).ErrorCode, "version %d, transaction.version %d", version, finalized["transaction.version"])
		}
	}
}
