package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"strandline/metadata/cluster"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// TestRandomClusters lets brokers die, return and fall silent, controllers
// change in the middle of their work and commands get lost, and checks the
// committed image after every command. In the end everybody is well, and every
// partition that can have a leader has one.
func TestRandomClusters(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, map[string]string{"default.replication.factor": "2"})
		w.quiet, w.small = true, rapid.Bool().Draw(rt, "small")
		r := &randomRun{t: rt, w: w, incarnations: map[cluster.BrokerID]int{}}
		r.start()
		for n := range rapid.IntRange(5, 60).Draw(rt, "steps") {
			r.step(n)
		}
		r.heal()
	})
}

type randomRun struct {
	t            *rapid.T
	w            *world
	incarnations map[cluster.BrokerID]int
	last         *image.Image
}

func (r *randomRun) start() {
	r.w.term++
	r.w.controller()
	r.put(r.w.c.Start(r.w.img, cluster.ControllerEpoch(r.w.term), r.w.now))
}

// put holds an output's commands and commits some of what is held.
func (r *randomRun) put(out Output) {
	r.w.held = append(r.w.held, out.Commands...)
	if out.Reply != nil && len(out.Commands) == 0 {
		_, _ = out.Reply(r.w.img)
	}
	r.commit(rapid.IntRange(0, len(r.w.held)).Draw(r.t, "commit"))
}

func (r *randomRun) commit(n int) {
	for range n {
		cmd := r.w.held[0]
		r.w.held = r.w.held[1:]
		if err := r.w.apply(cmd); err != nil {
			r.t.Fatalf("N1: command %d refused: %v", cmd.Sequence, err)
		}
		r.check()
		more := r.w.c.Committed(r.w.img, r.w.now)
		r.w.held = append(r.w.held, more.Commands...)
	}
}

func (r *randomRun) handle(req request.Request) { r.put(r.w.c.Handle(req, r.w.now)) }

func (r *randomRun) broker() cluster.BrokerID {
	return cluster.BrokerID(rapid.IntRange(1, 3).Draw(r.t, "broker"))
}

func (r *randomRun) register(id cluster.BrokerID, clean bool) {
	r.incarnations[id]++
	req := request.RegisterBroker{
		Broker: id, LogDirs: []cluster.DirectoryID{{byte(id)}, {byte(id), 1}}, PreviousEpoch: cluster.NoBrokerEpoch,
		Listeners: []request.Listener{{Name: "PLAINTEXT"}}, Features: image.SupportedFeatures(),
	}
	req.Incarnation[0], req.Incarnation[1] = byte(id), byte(r.incarnations[id])
	if b, ok := r.w.img.Broker(id); ok && clean {
		req.PreviousEpoch = b.Epoch
	}
	r.handle(req)
}

func (r *randomRun) heartbeat(id cluster.BrokerID, shutdown bool) {
	if b, ok := r.w.img.Broker(id); ok {
		r.handle(request.Heartbeat{Broker: id, Epoch: b.Epoch, CaughtUpTo: r.w.img.Index(), WantShutdown: shutdown})
	}
}

func (r *randomRun) step(n int) {
	switch rapid.IntRange(0, 13).Draw(r.t, "step") {
	case 0:
		r.register(r.broker(), rapid.Bool().Draw(r.t, "clean"))
	case 1, 2, 3:
		r.heartbeat(r.broker(), false)
	case 4:
		r.heartbeat(r.broker(), true)
	case 5, 6:
		r.handle(request.CreateTopics{Topics: []request.NewTopic{{
			Name: fmt.Sprintf("t%d", n), Partitions: rapid.Int32Range(1, 5).Draw(r.t, "partitions"), Replication: int16(rapid.IntRange(1, 3).Draw(r.t, "rf")),
			Configs: map[string]string{"min.insync.replicas": "2"},
		}}})
	case 7:
		for t := range r.w.img.Topics() {
			r.handle(request.DeleteTopics{Topics: []request.TopicRef{{ID: t.ID}}})
			return
		}
	case 8, 9:
		r.isr()
	case 10: // the controller changes; what is held is lost
		r.start()
	case 11: // a command is lost, and the node drops everything in flight
		if len(r.w.held) > 0 {
			r.w.held = nil
			if r.w.c.Reset(r.w.img, r.w.now); !r.w.c.Active() {
				r.start()
			}
		}
	default:
		d := time.Duration(rapid.IntRange(1, 100).Draw(r.t, "wait")) * TickInterval
		for range int(d/TickInterval) + 1 {
			r.w.now = r.w.now.Add(TickInterval)
			out := r.w.c.Tick(r.w.now)
			r.w.held = append(r.w.held, out.Commands...)
		}
	}
}

// isr shrinks or restores the ISR of some partition, as its leader would.
func (r *randomRun) isr() {
	for t := range r.w.img.Topics() {
		for n, p := range t.Partitions {
			b, ok := r.w.img.Broker(p.Leader)
			if !ok || rapid.IntRange(0, 3).Draw(r.t, "this") != 0 {
				continue
			}
			isr := []cluster.BrokerID{p.Leader}
			if len(p.ISR) == 1 {
				isr = p.Replicas
			}
			r.handle(request.ChangeISR{
				Partition: cluster.TopicPartition{Topic: t.ID, Partition: int32(n)}, Broker: p.Leader, BrokerEpoch: b.Epoch,
				LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, ISR: isr,
			})
			return
		}
	}
}

// check asserts what holds of every committed image, and of two in a row.
func (r *randomRun) check() {
	img := r.w.img
	for t := range img.Topics() {
		for n, p := range t.Partitions {
			bad := func(why string) { r.t.Fatalf("%s-%d %+v: %s", t.Name, n, p, why) }
			b, _ := img.Broker(p.Leader)
			switch {
			case p.Leader == cluster.NoBroker && len(p.ISR) > 0:
				bad("an ISR without a leader")
			case p.Leader == cluster.NoBroker && len(p.LastKnownELR) != 1:
				bad("leaderless, and its last leader is forgotten")
			case p.Leader != cluster.NoBroker && !slices.Contains(p.ISR, p.Leader):
				bad("the leader is not in the ISR")
			case p.Leader != cluster.NoBroker && len(p.LastKnownELR) > 0:
				bad("a leader and a last known one")
			}
			for _, id := range p.ELR {
				if slices.Contains(p.ISR, id) {
					bad("in ISR and ELR")
				}
			}
			r.checkAgainstLast(t, n, p, b, bad)
		}
	}
	r.last = img
}

func (r *randomRun) checkAgainstLast(t *image.Topic, n int, p *image.Partition, leader *image.Broker, bad func(string)) {
	if r.last == nil {
		return
	}
	if _, old, ok := r.last.Partition(cluster.TopicPartition{Topic: t.ID, Partition: int32(n)}); ok {
		switch {
		case p.LeaderEpoch < old.LeaderEpoch || p.PartitionEpoch < old.PartitionEpoch:
			bad("M3: an epoch went back")
		case p.Leader != old.Leader && p.LeaderEpoch == old.LeaderEpoch:
			bad("N4: another leader under the same leader epoch")
		}
		if p.Leader != cluster.NoBroker && p.Leader != old.Leader && !leader.Active() {
			bad("a leader that is not active was elected")
		}
	}
	for _, b := range r.w.img.Brokers() {
		old, _ := r.last.Broker(b.ID)
		if old != nil && old.Fenced && !b.Fenced && old.Epoch == b.Epoch {
			_, before, ok := r.last.Partition(cluster.TopicPartition{Topic: t.ID, Partition: int32(n)})
			if ok && (before.Leader == b.ID || slices.Contains(before.ISR, b.ID) || old.Unclean && slices.Contains(before.ELR, b.ID)) {
				bad(fmt.Sprintf("N3: broker %d was unfenced", b.ID))
			}
		}
	}
}

// heal brings everybody back and lets everything settle.
func (r *randomRun) heal() {
	r.w.held = nil
	r.start()
	r.commit(len(r.w.held))
	for range 30 {
		for id := cluster.BrokerID(1); id <= 3; id++ {
			if b, ok := r.w.img.Broker(id); !ok || b.ShuttingDown {
				r.register(id, true)
			} else {
				out := r.w.c.Handle(request.Heartbeat{Broker: id, Epoch: b.Epoch, CaughtUpTo: r.w.img.Index()}, r.w.now)
				r.w.held = append(r.w.held, out.Commands...)
			}
			for len(r.w.held) > 0 {
				r.commit(len(r.w.held))
			}
		}
		r.w.now = r.w.now.Add(TickInterval)
		r.w.held = append(r.w.held, r.w.c.Tick(r.w.now).Commands...)
		for len(r.w.held) > 0 {
			r.commit(len(r.w.held))
		}
	}
	for _, b := range r.w.img.Brokers() {
		if b.Fenced {
			r.t.Fatalf("broker %d stays fenced", b.ID)
		}
	}
	for t := range r.w.img.Topics() {
		for n, p := range t.Partitions {
			if p.Leader == cluster.NoBroker {
				r.t.Fatalf("%s-%d %+v has no leader though everybody is back", t.Name, n, p)
			}
		}
	}
}
