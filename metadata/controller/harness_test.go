package controller

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/config"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// world is a node without Raft: the committed image and catalog, and one
// controller. Commands are encoded, decoded and applied as on a real node.
type world struct {
	t       testing.TB
	cfg     Config
	c       *Controller
	img     *image.Image
	tables  map[cluster.TopicPartition]*catalog.Table
	deleted map[cluster.TopicID]catalog.DeletedTopic
	now     time.Time
	index   uint64
	term    uint64
	ids     uint64
	held    []command.Command
	waiting []waiting
	hold    bool
	quiet   bool // print no records
	small   bool // commands and calls hold little
}

// controller makes a new controller on this node.
func (w *world) controller() {
	w.c = New(w.cfg)
	if w.small {
		w.c.limits = limits{recordsBytes: 60, changesBytes: 30, reconcileBytes: 120}
	}
	w.held, w.waiting = nil, nil
}

// waiting is a reply that waits for its last command.
type waiting struct {
	sequence uint64
	reply    func(*image.Image) (request.Result, error)
}

func newWorld(t testing.TB, props map[string]string) *world {
	b, _, err := config.ParseBroker(props)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, img: image.Empty(), now: time.UnixMilli(1_000_000),
		tables: map[cluster.TopicPartition]*catalog.Table{}, deleted: map[cluster.TopicID]catalog.DeletedTopic{},
	}
	w.cfg = Config{
		Node: 1, Broker: b, ClusterID: "cluster", Catalog: w, Rand: rand.New(rand.NewPCG(1, 2)),
		NewID: func() (id cluster.TopicID) {
			w.ids++
			binary.BigEndian.PutUint64(id[8:], w.ids)
			return id
		},
	}
	w.c = New(w.cfg)
	return w
}

func (w *world) Partition(tp cluster.TopicPartition) (catalog.Summary, catalog.Reader, error) {
	if t, ok := w.tables[tp]; ok {
		return t.Summary, t, nil
	}
	return catalog.NewSummary(), catalog.NewTable(), nil
}

func (w *world) Deleted(id cluster.TopicID) (catalog.DeletedTopic, bool, error) {
	d, ok := w.deleted[id]
	return d, ok, nil
}

// apply does what the state does with one command.
func (w *world) apply(cmd command.Command) error {
	b, err := command.Encode(cmd)
	if err != nil {
		return err
	}
	if cmd, err = command.Decode(b); err != nil {
		return err
	}
	w.index++
	img, d, err := w.img.Apply(image.Position{Index: w.index, Term: w.term}, cmd)
	if err != nil {
		w.img = w.img.Skip(w.index)
		return err
	}
	for _, c := range d.Topics {
		if c.New == nil && c.Old.Tiered {
			w.deleted[c.Old.ID] = catalog.DeletedTopic{
				Topic: c.Old.ID, Name: c.Old.Name, Partitions: int32(len(c.Old.Partitions)), DeletedMs: cmd.TimeMs,
			}
		}
	}
	for _, r := range cmd.Records {
		if err := w.applyCatalog(img, cmd.TimeMs, r); err != nil {
			return err
		}
	}
	w.img = img
	return nil
}

func (w *world) applyCatalog(img *image.Image, now int64, r command.Record) error {
	if f, ok := r.(command.DeletedTopicForgotten); ok {
		delete(w.deleted, f.Topic)
		for tp := range w.tables {
			if tp.Topic == f.Topic {
				delete(w.tables, tp)
			}
		}
	}
	sc, ok := r.(command.SegmentChanged)
	if !ok {
		return nil
	}
	ctx := catalog.Context{NowMs: now}
	if _, p, ok := img.Partition(sc.Partition); ok {
		ctx.LeaderEpoch = p.LeaderEpoch
	} else if _, ok := w.deleted[sc.Partition.Topic]; ok {
		ctx.Deleted = true
	}
	t, ok := w.tables[sc.Partition]
	if !ok {
		t = catalog.NewTable()
		w.tables[sc.Partition] = t
	}
	e, err := catalog.Apply(ctx, t.Summary, t, sc.Event)
	if err != nil {
		return err
	}
	t.Commit(e)
	return nil
}

// take handles an output: prints its records and, unless held, commits them.
func (w *world) take(out Output) string {
	var b strings.Builder
	for _, cmd := range out.Commands {
		if !w.quiet {
			fmt.Fprintf(&b, "command %d\n", cmd.Sequence)
			for _, r := range cmd.Records {
				fmt.Fprintf(&b, "  %s\n", w.record(r))
			}
		}
		w.held = append(w.held, cmd)
	}
	if out.Reply != nil {
		if len(out.Commands) == 0 {
			b.WriteString(w.answer(out.Reply(w.img)))
		} else {
			w.waiting = append(w.waiting, waiting{out.Commands[len(out.Commands)-1].Sequence, out.Reply})
		}
	}
	if !w.hold {
		b.WriteString(w.commit(len(w.held)))
	}
	return b.String()
}

// commit applies the first n held commands.
func (w *world) commit(n int) string {
	var b strings.Builder
	for _, cmd := range w.held[:n] {
		if err := w.apply(cmd); err != nil {
			fmt.Fprintf(&b, "refused %d: %v\n", cmd.Sequence, err)
		}
	}
	w.held = w.held[n:]
	if n == 0 {
		return ""
	}
	b.WriteString(w.take(w.c.Committed(w.img, w.now)))
	for len(w.waiting) > 0 && w.waiting[0].sequence <= w.img.Meta().Sequence {
		b.WriteString(w.answer(w.waiting[0].reply(w.img)))
		w.waiting = w.waiting[1:]
	}
	return b.String()
}

func (w *world) answer(r request.Result, err error) string {
	if err != nil {
		return "error: " + errText(err) + "\n"
	}
	switch r := r.(type) {
	case nil:
		return "ok\n"
	case request.Outcomes:
		var b strings.Builder
		for _, e := range r.Errs {
			b.WriteString(w.answer(nil, e))
		}
		return b.String()
	case request.CreateTopicsResult:
		var b strings.Builder
		for _, t := range r.Topics {
			if t.Err != nil {
				fmt.Fprintf(&b, "%s: error: %s\n", t.Name, errText(t.Err))
			} else {
				fmt.Fprintf(&b, "%s: id=%s partitions=%d replication=%d\n", t.Name, idText(t.ID), t.Partitions, t.Replication)
			}
		}
		return b.String()
	}
	return fmt.Sprintf("ok: %+v\n", r)
}

// errText is the sentinel's text and, where it says more, the sentence.
func errText(err error) string {
	var e *request.Error
	if errors.As(err, &e) {
		return fmt.Sprintf("(%v) %s", e.Kind, e.Message)
	}
	return err.Error()
}

func idText(id cluster.TopicID) string {
	if id.IsZero() {
		return "-"
	}
	return "T" + strconv.FormatUint(binary.BigEndian.Uint64(id[8:]), 10)
}

func dirID(name string) (d cluster.DirectoryID) {
	copy(d[:], name)
	return d
}

func segmentID(name string) (s cluster.SegmentID) {
	copy(s[:], name)
	return s
}

func dirNames(ds []cluster.DirectoryID) string {
	names := make([]string, len(ds))
	for i, d := range ds {
		names[i] = strings.TrimRight(string(d[:]), "\x00")
	}
	return "[" + strings.Join(names, " ") + "]"
}

func (w *world) record(r command.Record) string {
	switch r := r.(type) {
	case command.BrokerRegistered:
		return fmt.Sprintf("BrokerRegistered %d dirs=%s rack=%q unclean=%t", r.ID, dirNames(r.LogDirs), r.Rack, r.Unclean)
	case command.BrokerState:
		return fmt.Sprintf("BrokerState %d epoch=%d fenced=%t shuttingDown=%t offline=%s",
			r.ID, r.Epoch, r.Fenced, r.ShuttingDown, dirNames(r.OfflineDirs))
	case command.TopicCreated:
		return fmt.Sprintf("TopicCreated %s %s partitions=%d configs=%v tiered=%t internal=%t",
			idText(r.ID), r.Name, r.Partitions, r.Configs, r.TieredByDefault, r.Internal)
	case command.PartitionsAdded:
		s := fmt.Sprintf("PartitionsAdded %s first=%d total=%d n=%d", idText(r.Topic), r.First, r.Total, len(r.Partitions))
		if len(r.Partitions) <= 8 {
			for _, p := range r.Partitions {
				s += fmt.Sprintf("\n    leader=%d replicas=%v isr=%v dirs=%s", p.Leader, p.Replicas, p.ISR, dirNames(p.Dirs))
			}
		}
		return s
	case command.PartitionsChanged:
		s := fmt.Sprintf("PartitionsChanged %s n=%d", idText(r.Topic), len(r.Changes))
		if len(r.Changes) <= 8 {
			for _, c := range r.Changes {
				s += fmt.Sprintf("\n    %d: leader=%d leaderEpoch=%d partitionEpoch=%d isr=%v elr=%v lastKnown=%v",
					c.Partition, c.Leader, c.LeaderEpoch, c.PartitionEpoch, c.ISR, c.ELR, c.LastKnownELR)
			}
		}
		return s
	case command.TopicDeleted:
		return "TopicDeleted " + idText(r.Topic)
	case command.DeletedTopicForgotten:
		return "DeletedTopicForgotten " + idText(r.Topic)
	case command.ConfigsChanged:
		return fmt.Sprintf("ConfigsChanged kind=%d topic=%s broker=%d %+v", r.Kind, idText(r.Topic), r.Broker, r.Changes)
	case command.SegmentChanged:
		return fmt.Sprintf("SegmentChanged %s-%d %T", idText(r.Partition.Topic), r.Partition.Partition, r.Event)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T%+v", r, r), "command.")
}

// show prints the committed image.
func (w *world) show() string {
	var b strings.Builder
	m := w.img.Meta()
	fmt.Fprintf(&b, "epoch=%d sequence=%d producer=%d\n", m.ControllerEpoch, m.Sequence, m.NextProducerID)
	for _, k := range w.img.Brokers() {
		fmt.Fprintf(&b, "broker %d epoch=%d fenced=%t shuttingDown=%t unclean=%t offline=%s\n",
			k.ID, k.Epoch, k.Fenced, k.ShuttingDown, k.Unclean, dirNames(k.OfflineDirs))
	}
	for _, id := range []cluster.BrokerID{-1, 1, 2, 3} {
		if c := w.img.BrokerConfig(id); c != nil {
			fmt.Fprintf(&b, "config %d %v\n", id, c)
		}
	}
	for id := range w.img.ConfiguredGroups() {
		fmt.Fprintf(&b, "group config %s %v\n", id, w.img.GroupConfig(id))
	}
	for t := range w.img.Topics() {
		fmt.Fprintf(&b, "%s %s configs=%v tiered=%t\n", idText(t.ID), t.Name, t.Configs, t.Tiered)
		for n, p := range t.Partitions {
			if n == 6 {
				fmt.Fprintf(&b, "  ... %d\n", len(t.Partitions))
				break
			}
			fmt.Fprintf(&b, "  %d: leader=%d/%d epoch=%d replicas=%v isr=%v elr=%v lastKnown=%v\n",
				n, p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.Replicas, p.ISR, p.ELR, p.LastKnownELR)
		}
	}
	for _, tp := range slices.SortedFunc(maps.Keys(w.tables), func(a, b cluster.TopicPartition) int {
		return strings.Compare(idText(a.Topic), idText(b.Topic))*100 + int(a.Partition-b.Partition)
	}) {
		t := w.tables[tp]
		fmt.Fprintf(&b, "catalog %s-%d logStart=%d remoteEnd=%d live=%d started=%d dead=%d\n",
			idText(tp.Topic), tp.Partition, t.Summary.LogStart, t.Summary.RemoteEnd, t.Summary.LiveCount, t.Summary.StartedCount, t.Summary.DeadCount)
	}
	return b.String()
}

// args reads the arguments of one line of a test file.
type args struct{ d *datadriven.TestData }

func (a args) has(name string) bool { return a.d.HasArg(name) }

func (a args) list(name string) []string {
	for _, c := range a.d.CmdArgs {
		if c.Key == name {
			return c.Vals
		}
	}
	return nil
}

func (a args) text(name, dflt string) string {
	if l := a.list(name); len(l) > 0 {
		return l[0]
	}
	return dflt
}

func (a args) num(name string, dflt int64) int64 {
	n, err := strconv.ParseInt(a.text(name, strconv.FormatInt(dflt, 10)), 10, 64)
	if err != nil {
		a.d.Fatalf(nil, "%s: %v", name, err)
	}
	return n
}

func (a args) brokers(name string) []cluster.BrokerID {
	var ids []cluster.BrokerID
	for _, s := range a.list(name) {
		n, _ := strconv.Atoi(s)
		ids = append(ids, cluster.BrokerID(n))
	}
	return ids
}

func (a args) dirs(name string) []cluster.DirectoryID {
	var ids []cluster.DirectoryID
	for _, s := range a.list(name) {
		ids = append(ids, dirID(s))
	}
	return ids
}

// configs reads lines of key=value from the input.
func (a args) configs() map[string]string {
	var m map[string]string
	for line := range strings.Lines(a.d.Input) {
		if k, v, ok := strings.Cut(strings.TrimRight(line, "\n"), "="); ok {
			if m == nil {
				m = map[string]string{}
			}
			m[k] = v
		}
	}
	return m
}
