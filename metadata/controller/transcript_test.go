package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"strandline/metadata/cluster"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// TestTranscripts runs the scripts of testdata; -rewrite writes their outcome.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var w *world
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			a := args{d}
			if d.Cmd == "new" {
				w = newWorld(t, a.configs())
				w.small = a.has("small")
				return ""
			}
			out := w.run(t, a)
			if out == "" {
				return "ok\n"
			}
			return out
		})
	})
}

func (w *world) run(t *testing.T, a args) string {
	switch a.d.Cmd {
	case "start":
		w.term = uint64(a.num("term", int64(w.term+1)))
		w.controller()
		return w.take(w.c.Start(w.img, cluster.ControllerEpoch(w.term), w.now))
	case "hold":
		w.hold = true
		return ""
	case "commit":
		n := int(a.num("n", int64(len(w.held))))
		s := w.commit(n)
		if a.has("release") {
			w.hold = false
		}
		return s
	case "lose":
		w.held, w.waiting = w.held[int(a.num("n", 1)):], nil
		return ""
	case "reset":
		w.held, w.waiting, w.hold = nil, nil, false
		w.c.Reset(w.img, w.now)
		return w.take(w.c.Tick(w.now))
	case "quiet":
		w.quiet = !w.quiet
		return ""
	case "show":
		return w.show()
	case "tick":
		d, err := time.ParseDuration(a.text("after", "0s"))
		if err != nil {
			return err.Error()
		}
		step := TickInterval
		if a.has("once") {
			step = d
		}
		var b strings.Builder
		for end := w.now.Add(d); ; {
			if left := end.Sub(w.now); left < step {
				step = left
			}
			w.now = w.now.Add(step)
			b.WriteString(w.take(w.c.Tick(w.now)))
			if !w.now.Before(end) {
				return b.String()
			}
		}
	case "suspect":
		id := cluster.BrokerID(a.num("id", 0))
		b, _ := w.img.Broker(id)
		return w.take(w.c.Suspect(id, b.Epoch, w.now))
	}
	if req := w.request(a); req != nil {
		return w.take(w.c.Handle(req, w.now))
	}
	t.Fatalf("unknown command %s", a.d.Cmd)
	return ""
}

func (w *world) request(a args) request.Request {
	switch a.d.Cmd {
	case "unregister":
		return request.UnregisterBroker{Broker: cluster.BrokerID(a.num("id", 0))}
	case "feature":
		return request.UpdateFeatures{ValidateOnly: a.has("validate"), Updates: []request.FeatureUpdate{{
			Name: a.text("name", ""), Level: cluster.FeatureLevel(a.num("level", 1)), Type: request.FeatureUpdateType(a.num("type", 1)),
		}}}
	case "register", "heartbeat", "isr", "producerids":
		return w.brokerRequest(a)
	case "create", "delete", "grow", "alter":
		return w.topicRequest(a)
	}
	return w.segmentRequest(a)
}

func (w *world) brokerRequest(a args) request.Request {
	id := cluster.BrokerID(a.num("id", 0))
	epoch := cluster.NoBrokerEpoch
	if b, ok := w.img.Broker(id); ok {
		epoch = b.Epoch
	}
	epoch = cluster.BrokerEpoch(a.num("epoch", int64(epoch)))
	switch a.d.Cmd {
	case "register":
		r := request.RegisterBroker{
			Broker: id, Rack: a.text("rack", ""), LogDirs: a.dirs("dirs"), PreviousEpoch: cluster.BrokerEpoch(a.num("previous", -1)),
			Listeners: []request.Listener{{Name: "PLAINTEXT", Host: "h", Port: 9092, Security: "PLAINTEXT"}},
			Features:  image.SupportedFeatures(),
		}
		copy(r.Incarnation[:], a.text("incarnation", "a"))
		if a.has("old") {
			r.Features = map[string]request.FeatureRange{}
		}
		return r
	case "heartbeat":
		return request.Heartbeat{
			Broker: id, Epoch: epoch, CaughtUpTo: uint64(a.num("caught", int64(epoch))), WantFence: a.has("fence"),
			WantShutdown: a.has("shutdown"), OfflineDirs: a.dirs("offline"),
		}
	case "producerids":
		return request.AllocateProducerIDs{Broker: id, Epoch: epoch}
	}
	tp, p := w.partition(a)
	r := request.ChangeISR{Partition: tp, Broker: id, BrokerEpoch: epoch, ISR: a.brokers("isr")}
	if p != nil {
		r.LeaderEpoch = cluster.LeaderEpoch(a.num("leaderEpoch", int64(p.LeaderEpoch)))
		r.PartitionEpoch = cluster.PartitionEpoch(a.num("partitionEpoch", int64(p.PartitionEpoch)))
	}
	return r
}

// partition finds topic=NAME partition=N.
func (w *world) partition(a args) (cluster.TopicPartition, *image.Partition) {
	tp := cluster.TopicPartition{Partition: int32(a.num("partition", 0))}
	name := a.text("topic", "")
	if strings.HasPrefix(name, "#") {
		tp.Topic[15] = name[1] - '0'
		return tp, nil
	}
	t, ok := w.img.Topic(name)
	if !ok {
		return tp, nil
	}
	tp.Topic = t.ID
	_, p, _ := w.img.Partition(tp)
	return tp, p
}

func (w *world) topicRequest(a args) request.Request {
	names := a.list("name")
	switch a.d.Cmd {
	case "create":
		r := request.CreateTopics{ValidateOnly: a.has("validate")}
		for _, name := range names {
			nt := request.NewTopic{
				Name: name, Partitions: int32(a.num("partitions", -1)), Replication: int16(a.num("rf", -1)),
				Configs: a.configs(), Assignment: assignment(a),
			}
			if a.has("length") {
				nt.Name = strings.Repeat("x", int(a.num("length", 0)))
			}
			r.Topics = append(r.Topics, nt)
		}
		return r
	case "delete":
		r := request.DeleteTopics{}
		for _, name := range names {
			ref := request.TopicRef{Name: name}
			if strings.HasPrefix(name, "#") {
				ref.Name = ""
				ref.ID[15] = name[1] - '0'
			}
			r.Topics = append(r.Topics, ref)
		}
		return r
	case "grow":
		return request.CreatePartitions{ValidateOnly: a.has("validate"), Topics: []request.MorePartitions{
			{Name: a.text("name", ""), Total: int32(a.num("total", 0)), Assignment: assignment(a)},
		}}
	}
	r := request.AlterConfig{Kind: request.TopicResource, Name: a.text("name", ""), Replace: a.has("replace")}
	if a.has("broker") {
		r.Kind = request.BrokerResource
	}
	if a.has("group") {
		r.Kind = request.GroupResource
	}
	for line := range strings.Lines(a.d.Input) {
		word, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		key, value, _ := strings.Cut(rest, "=")
		kinds := map[string]request.ConfigOpKind{
			"set": request.ConfigSet, "delete": request.ConfigDelete, "append": request.ConfigAppend, "subtract": request.ConfigSubtract,
		}
		r.Ops = append(r.Ops, request.ConfigOp{Key: key, Op: kinds[word], Value: value})
	}
	rs := []request.AlterConfig{r}
	if a.has("twice") {
		rs = append(rs, r)
	}
	return request.AlterConfigs{Resources: rs, ValidateOnly: a.has("validate")}
}

// assignment reads assign=(1:2,2:3).
func assignment(a args) [][]cluster.BrokerID {
	var out [][]cluster.BrokerID
	for _, list := range a.list("assign") {
		var ids []cluster.BrokerID
		for s := range strings.SplitSeq(list, ":") {
			if s != "-" {
				ids = append(ids, cluster.BrokerID(s[0]-'0'))
			}
		}
		out = append(out, ids)
	}
	return out
}

func (w *world) segmentRequest(a args) request.Request {
	tp, p := w.partition(a)
	epoch := cluster.NoLeaderEpoch
	if p != nil {
		epoch = p.LeaderEpoch
	}
	epoch = cluster.LeaderEpoch(a.num("leaderEpoch", int64(epoch)))
	id := segmentID(a.text("seg", ""))
	switch a.d.Cmd {
	case "startseg":
		return request.StartSegment{Partition: tp, LeaderEpoch: epoch, Deadline: w.now.Add(time.Minute), Span: request.SegmentSpan{
			ID: id, Base: cluster.Offset(a.num("base", 0)), End: cluster.Offset(a.num("end", 0)), LeaderEpoch: epoch,
			Location: "loc", Key: "key-" + a.text("seg", ""),
		}}
	case "publish":
		return request.PublishSegment{Partition: tp, LeaderEpoch: epoch, ID: id, Object: request.ObjectSummary{
			ObjectBytes: 120, SegmentBytes: 100, IndexPosition: 100, IndexBytes: 10, FooterBytes: 10, MaxTimestamp: 5, RecordCount: 1,
		}}
	case "abandon":
		return request.AbandonSegment{Partition: tp, LeaderEpoch: epoch, ID: id}
	case "logstart":
		return request.AdvanceLogStart{
			Partition: tp, LeaderEpoch: epoch, Offset: cluster.Offset(a.num("offset", 0)), BatchBase: cluster.Offset(a.num("batch", 0)),
		}
	case "remove":
		return request.RemoveSegments{Partition: tp, LeaderEpoch: epoch, IDs: []cluster.SegmentID{id}}
	case "forget":
		return request.RemoveDeletedTopic{Topic: tp.Topic}
	}
	return nil
}
