package api_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/config"
	"strandline/metadata/request"
)

// incremental is a fetch in a session that asks for nothing else than before.
func incremental(session, epoch int32) *kmsg.FetchRequest {
	req := fetchRequest("", [16]byte{})
	req.SessionID, req.SessionEpoch, req.MaxWaitMillis, req.Topics = session, epoch, 0, nil
	return req
}

// inAnswer lists the partitions of an answer with their codes and bytes.
func inAnswer(resp *kmsg.FetchResponse) string {
	out := fmt.Sprintf("%d:", resp.ErrorCode)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out += fmt.Sprintf(" %d", p.Partition)
			if p.ErrorCode != 0 {
				out += fmt.Sprintf("(error %d)", p.ErrorCode)
			}
			if len(p.RecordBatches) > 0 {
				out += "(data)"
			}
		}
	}
	return out
}

func TestFetchSession(t *testing.T) {
	for _, version := range []int16{7, 12, 13, 18} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			k := newKit(t, nil)
			id := k.topic("t", 4)
			c := k.dial()
			fetch := fetchRequest("t", id, 0, 0)
			fetch.SessionEpoch, fetch.MaxWaitMillis = 0, 0
			full := ask[*kmsg.FetchResponse](c, fetch, version)
			require.Equal(t, "0: 0 1", inAnswer(full))
			s := full.SessionID
			require.Positive(t, s)
			get := func(epoch int32, change func(*kmsg.FetchRequest)) string {
				req := incremental(s, epoch)
				if change != nil {
					change(req)
				}
				return inAnswer(ask[*kmsg.FetchResponse](c, req, version))
			}
			put := func(partition int32) {
				ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", id, map[int32][]byte{partition: batch(now(), "v")}), 13)
			}
			require.Equal(t, "0:", get(1, nil))
			put(1)
			require.Equal(t, "0: 1(data)", get(2, nil))
			put(0)
			require.Equal(t, "0: 0(data) 1(data)", get(3, nil), "until the client asks for what comes after it")
			require.Equal(t, "0:", get(4, func(r *kmsg.FetchRequest) { r.Topics = fetchRequest("t", id, 1, 1).Topics }))
			require.Equal(t, "0: 2", get(5, func(r *kmsg.FetchRequest) {
				r.Topics = fetchRequest("t", id, 0, 0, 0).Topics
				r.Topics[0].Partitions = r.Topics[0].Partitions[2:]
			}))
			require.Equal(t, "71:", get(5, nil), "a request that comes twice")
			other := version - 6
			if version < 13 {
				other = 13
			}
			require.Equal(t, int16(106), ask[*kmsg.FetchResponse](c, incremental(s, 6), max(other, 7)).ErrorCode)
			require.Equal(t, "0:", get(6, func(r *kmsg.FetchRequest) {
				r.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "t", TopicID: id, Partitions: []int32{0}}}
			}))
			put(0)
			require.Equal(t, "0:", get(7, nil), "forgotten")
			require.Equal(t, "0: 1", get(-1, func(r *kmsg.FetchRequest) {
				r.Topics = fetchRequest("t", id, 1, 1).Topics
				r.Topics[0].Partitions = r.Topics[0].Partitions[1:]
			}), "a full fetch")
			require.Equal(t, "70:", get(8, nil), "which has ended the session")
			require.Zero(t, k.handler.FetchSessions().Sessions)
		})
	}
}

// A topic that was deleted, and one that took its name.
func TestFetchSessionOfATopicThatIsGone(t *testing.T) {
	for version, again := range map[int16]string{12: "0: 0", 18: "0: 0(error 103)"} {
		k := newKit(t, nil)
		id := k.topic("t", 1)
		c := k.dial()
		fetch := fetchRequest("t", id, 0)
		fetch.SessionEpoch, fetch.MaxWaitMillis = 0, 0
		s := ask[*kmsg.FetchResponse](c, fetch, version).SessionID
		_, err := k.Submit(t.Context(), request.DeleteTopics{Topics: []request.TopicRef{{Name: "t"}}})
		require.NoError(t, err)
		require.Equal(t, "0: 0(error 3)", inAnswer(ask[*kmsg.FetchResponse](c, incremental(s, 1), version)))
		k.dir += "/again"
		k.topic("t", 1)
		require.Equal(t, again, inAnswer(ask[*kmsg.FetchResponse](c, incremental(s, 2), version)))
		fetch.SessionEpoch = 0
		fetch.Topics[0].TopicID = [16]byte{9}
		unknown := ask[*kmsg.FetchResponse](c, fetch, version)
		if version >= 13 {
			require.Equal(t, "0: 0(error 100)", inAnswer(unknown))
			require.Equal(t, "0: 0(error 100)", inAnswer(ask[*kmsg.FetchResponse](c, incremental(unknown.SessionID, 1), version)))
		}
	}
}

// Where an answer has no room for all partitions, each has its turn.
func TestFetchSessionIsFair(t *testing.T) {
	k := newKit(t, nil)
	id := k.topic("t", 3)
	c := k.dial()
	for p := range int32(3) {
		ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", id, map[int32][]byte{p: batch(now(), "v")}), 13)
	}
	fetch := fetchRequest("t", id, 0, 0, 0)
	fetch.SessionEpoch, fetch.MaxBytes = 0, 1
	full := ask[*kmsg.FetchResponse](c, fetch, 18)
	require.Equal(t, "0: 0(data) 1 2", inAnswer(full))
	for epoch, want := range []string{"0: 0(data)", "0: 1(data)", "0: 2(data)", "0: 0(data)"} {
		req := incremental(full.SessionID, int32(epoch+1))
		req.MaxBytes = 1
		require.Equal(t, want, inAnswer(ask[*kmsg.FetchResponse](c, req, 18)))
	}
}

// FE-05: a client that asks for a session with every fetch.
func TestFetchSessionsAreBounded(t *testing.T) {
	k := newKit(t, func(b *config.Broker) { b.FetchSessionSlots = 3 })
	id := k.topic("t", 1)
	steady, c := k.dial(), k.dial()
	fetch := fetchRequest("t", id, 0)
	fetch.SessionEpoch, fetch.MaxWaitMillis = 0, 0
	s := ask[*kmsg.FetchResponse](steady, fetch, 18).SessionID
	require.Positive(t, s)
	for i := range int32(500) {
		ask[*kmsg.FetchResponse](c, fetch, 18)
		require.Equal(t, "0:", inAnswer(ask[*kmsg.FetchResponse](steady, incremental(s, i+1), 18)))
	}
	require.Equal(t, 3, k.handler.FetchSessions().Sessions)
	require.Zero(t, k.handler.FetchSessions().Evicted)
}
