package api

import (
	"time"

	"strandline/broker/fetchsession"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// fetchSession is the session of one fetch (KIP-227).
type fetchSession struct {
	head        fetchsession.Head
	turn        fetchsession.Turn
	incremental bool // the turn is this fetch's
}

// openSession finds the session of an incremental request and tells it what has
// changed; the code is that of the whole request.
func (f *fetching) openSession(replica cluster.BrokerID) int16 {
	req, s := &f.req, &f.session
	_, isBroker := f.img.Broker(replica)
	s.head = fetchsession.Head{ID: req.SessionID, Epoch: req.SessionEpoch, ByID: req.Version >= 13, Follower: isBroker}
	var asks []fetchsession.Ask
	var forget []fetchsession.Key
	if !s.head.IsFull() {
		if n := requested(req); n > 0 {
			asks = make([]fetchsession.Ask, 0, n)
		}
		for i := range req.Topics {
			for j := range req.Topics[i].Partitions {
				asks = append(asks, f.ask(&req.Topics[i], &req.Topics[i].Partitions[j]))
			}
		}
		for i := range req.ForgottenTopics {
			t := &req.ForgottenTopics[i]
			for _, p := range t.Partitions {
				if s.head.ByID {
					forget = append(forget, fetchsession.Key{ID: cluster.TopicID(t.TopicID), Partition: p})
				} else {
					forget = append(forget, fetchsession.Key{Name: t.Topic, Partition: p})
				}
			}
		}
	}
	var err error
	s.turn, s.incremental, err = f.h.fetches.Begin(time.Now(), s.head, asks, forget)
	return codeOf(err)
}

// addCached adds a partition of the session. A topic that was there once and is
// gone is unknown by its name; where another has its name, the id is the wrong
// one, so that the client asks for metadata.
func (f *fetching) addCached(p *fetchsession.Part, replica cluster.BrokerID) {
	var topic *image.Topic
	var code int16
	if !f.session.head.ByID {
		topic, code = topicFor(f.img, false, p.Name, p.ID)
	} else if topic, code = topicFor(f.img, true, "", p.ID); code == codeNone {
		p.Topic = topic.Name
	} else if p.Topic != "" {
		if _, code = topicFor(f.img, false, p.Topic, p.ID); code == codeNone {
			code = codeInconsistentTopicID
		}
	}
	f.add(&p.Ask, replica, topic, code)
	f.parts[len(f.parts)-1].cached = p
}

// answerSession marks what the client knows already, or makes the session that
// the client asks for, and returns the session's id.
func (f *fetching) answerSession() int32 {
	s := &f.session
	switch {
	case f.code != codeNone:
	case s.incremental:
		f.code = codeOf(s.turn.Answer(func(say func(*fetchsession.Part, fetchsession.Answer) bool) {
			for i := range f.parts {
				p := &f.parts[i]
				p.left = !say(p.cached, p.answer())
			}
		}))
		return s.turn.ID()
	case f.req.Version >= 7 && s.head.Epoch == fetchsession.Initial:
		return f.h.fetches.Create(time.Now(), s.head, len(f.parts), f.fillSession)
	}
	return fetchsession.NoSession
}

func (f *fetching) fillSession(add func(fetchsession.Ask, string, fetchsession.Answer)) {
	for i := range f.parts {
		p := &f.parts[i]
		topic := ""
		if t, ok := f.img.TopicByID(p.key.ID); ok {
			topic = t.Name
		}
		add(fetchsession.Ask{
			Key: p.key, Offset: p.read.Offset, MaxBytes: int32(p.maxBytes),
			CurrentLeaderEpoch: p.read.CurrentLeaderEpoch, LastFetchedEpoch: p.read.LastFetchedEpoch,
		}, topic, p.answer())
	}
}

// answer is what the response says of a partition.
func (p *fetchPart) answer() fetchsession.Answer {
	r := &p.result
	return fetchsession.Answer{
		HighWatermark: r.HighWatermark, LastStableOffset: r.LastStableOffset, LogStartOffset: r.LogStartOffset,
		Data: r.Bytes > 0, Failed: p.code != codeNone || !p.known, Diverging: r.Diverging != nil,
	}
}
