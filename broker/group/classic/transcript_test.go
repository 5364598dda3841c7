package classic

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"strandline/broker/group"
	"strandline/metadata/cluster"
)

// A script is one group under a clock, the log of its records, and clients that
// ask. Each command says what was recorded and answered.
//
//	group [delay=3s] [min=6s] [longest=30m] [max=N] [metadata=N] [retention=24h]   a new one
//	config ...                                  the same arguments, from now on
//	join REQ [id=M] [instance=I] [requireid] [skip] [session=10s] [rebalance=60s] [type=consumer] protocols=(NAME:TOPIC+TOPIC,...) [reason=WORD]
//	sync REQ id=M [instance=I] gen=N [type=T] [protocol=P]      lines: member assignment
//	heartbeat REQ id=M [instance=I] gen=N
//	leave REQ                                                   lines: id=M instance=I
//	commit REQ [id=M] [instance=I] gen=N [keep=TIME] [txn]      lines: topic-partition offset [metadata]
//	offset-delete REQ                                           lines: topic-partition
//	pass TIME       with a tick at each deadline
//	expire          what cleaning up does, every now and then
//	topic-deleted TOPIC
//	delete REQ
//	load            a new group of the records so far
//	upgrade max=N, downgrade gen=N, rebalance
//	describe, offsets, parked
//
// New members are named m1, m2 ... A protocol's metadata are a consumer's
// subscription, or what follows ! as it is.
type script struct {
	t       *testing.T
	cfg     Config
	now     time.Time
	g       *Group
	ids     int
	tokens  []string // by token
	open    map[group.Token]bool
	records []group.Record
	view    map[string]group.Record
}

var start = time.UnixMilli(1_000_000_000_000)

func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		s := &script{t: t, now: start}
		datadriven.RunTest(t, path, s.run)
	})
}

func duration(t *testing.T, d *datadriven.TestData, name string, to *time.Duration) {
	var text string
	if d.MaybeScanArgs(t, name, &text) {
		var err error
		*to, err = time.ParseDuration(text)
		require.NoError(t, err, d.Pos)
	}
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	var out string
	switch d.Cmd {
	case "group":
		s.start(d)
		return ""
	case "config":
		s.config(d)
		s.g.SetConfig(s.cfg)
		return ""
	case "pass":
		took, err := time.ParseDuration(d.CmdArgs[0].Key)
		require.NoError(t, err)
		out = s.pass(took)
	case "load":
		for token := range s.open {
			out += s.tokens[token] + " is lost\n"
		}
		g, err := Load(s.cfg, "g", s.now, s.records)
		require.NoError(t, err)
		s.g, s.open = g, map[group.Token]bool{}
		out += s.describe()
	case "describe":
		out = s.describe()
	case "parked":
		for _, token := range s.g.Parked() {
			out += s.tokens[token] + "\n"
		}
	case "offsets":
		for o, err := range s.offsets() {
			require.NoError(t, err)
			out += fmt.Sprintf("%s-%d: %d %q\n", o.Topic, o.Partition, o.Offset, o.Metadata)
		}
	default:
		fx := s.event(d)
		out = s.say(fx)
	}
	check(t, s.g, s.open)
	if out == "" {
		return "nothing"
	}
	return out
}

func (s *script) start(d *datadriven.TestData) {
	s.cfg = Config{
		InitialRebalanceDelay: 3 * time.Second, MinSessionTimeout: 6 * time.Second, MaxSessionTimeout: 30 * time.Minute,
		MaxSize: 1<<31 - 1, Offsets: group.OffsetConfig{MetadataMax: 4096, Retention: 24 * time.Hour},
	}
	s.config(d)
	s.ids, s.tokens, s.records = 0, nil, nil
	s.open, s.view = map[group.Token]bool{}, map[string]group.Record{}
	s.g = New(s.cfg, "g", s.now)
}

func (s *script) config(d *datadriven.TestData) {
	duration(s.t, d, "delay", &s.cfg.InitialRebalanceDelay)
	duration(s.t, d, "min", &s.cfg.MinSessionTimeout)
	duration(s.t, d, "longest", &s.cfg.MaxSessionTimeout)
	duration(s.t, d, "retention", &s.cfg.Offsets.Retention)
	d.MaybeScanArgs(s.t, "max", &s.cfg.MaxSize)
	d.MaybeScanArgs(s.t, "metadata", &s.cfg.Offsets.MetadataMax)
}

func (s *script) event(d *datadriven.TestData) group.Effects {
	ids := func(member, instance *string, generation *int32) {
		d.MaybeScanArgs(s.t, "id", member)
		d.MaybeScanArgs(s.t, "instance", instance)
		if generation != nil {
			d.ScanArgs(s.t, "gen", generation)
		}
	}
	switch d.Cmd {
	case "join":
		return s.join(d)
	case "sync":
		req := group.SyncRequest{Token: s.token(d)}
		ids(&req.MemberID, &req.InstanceID, &req.Generation)
		d.MaybeScanArgs(s.t, "type", &req.ProtocolType)
		d.MaybeScanArgs(s.t, "protocol", &req.Protocol)
		for line := range strings.Lines(d.Input) {
			id, assignment, _ := strings.Cut(strings.TrimSpace(line), " ")
			req.Assignments = append(req.Assignments, group.Assignment{MemberID: id, Assignment: []byte(assignment)})
		}
		return s.g.Sync(s.now, req)
	case "heartbeat":
		req := group.HeartbeatRequest{Token: s.token(d)}
		ids(&req.MemberID, &req.InstanceID, &req.Generation)
		return s.g.Heartbeat(s.now, req)
	case "leave":
		req := group.LeaveRequest{Token: s.token(d)}
		for line := range strings.Lines(d.Input) {
			l := group.LeavingMember{}
			for f := range strings.FieldsSeq(line) {
				if v, ok := strings.CutPrefix(f, "id="); ok {
					l.MemberID = v
				} else {
					l.InstanceID = strings.TrimPrefix(f, "instance=")
				}
			}
			req.Members = append(req.Members, l)
		}
		return s.g.Leave(s.now, req)
	case "commit":
		req := group.CommitRequest{Token: s.token(d), Retention: -1, Transactional: d.HasArg("txn")}
		ids(&req.MemberID, &req.InstanceID, &req.Generation)
		duration(s.t, d, "keep", &req.Retention)
		for line := range strings.Lines(d.Input) {
			f := strings.Fields(line)
			p := partition(f[0])
			offset, err := strconv.ParseInt(f[1], 10, 64)
			require.NoError(s.t, err)
			c := group.CommitPartition{Topic: p.Topic, Partition: p.Partition, Offset: cluster.Offset(offset), LeaderEpoch: cluster.NoLeaderEpoch}
			if len(f) > 2 {
				c.Metadata = f[2]
			}
			req.Partitions = append(req.Partitions, c)
		}
		return s.g.Commit(s.now, req)
	}
	return s.command(d)
}

func (s *script) command(d *datadriven.TestData) group.Effects {
	switch d.Cmd {
	case "offset-delete":
		req := group.OffsetDeleteRequest{Token: s.token(d)}
		for line := range strings.Lines(d.Input) {
			req.Partitions = append(req.Partitions, partition(strings.TrimSpace(line)))
		}
		fx, err := group.DeleteOffsets("g", s.g, req, func(p group.PartitionName) (bool, error) {
			_, ok := s.view[string(group.OffsetKey("g", p.Topic, p.Partition).ViewKey())]
			return ok, nil
		})
		require.NoError(s.t, err)
		return fx
	case "expire":
		records, none, err := group.ExpireOffsets(s.now, s.cfg.Offsets, "g", s.g, s.offsets())
		require.NoError(s.t, err)
		fx := group.Effects{Records: records}
		if none {
			fx.Append(s.g.DeleteIdle(s.now))
		}
		return fx
	case "topic-deleted":
		records, err := group.DropOffsets("g", s.offsets(), func(o group.StoredOffset) bool { return o.Topic == d.CmdArgs[0].Key })
		require.NoError(s.t, err)
		return group.Effects{Records: records}
	case "delete":
		token := s.token(d)
		fx := group.Effects{Replies: []group.Reply{{Token: token, Err: s.g.CheckDelete()}}}
		if fx.Replies[0].Err == nil {
			records, err := group.DropOffsets("g", s.offsets(), func(group.StoredOffset) bool { return true })
			require.NoError(s.t, err)
			fx.Records = records
			more, err := s.g.Delete(s.now)
			require.NoError(s.t, err)
			fx.Append(more)
		}
		return fx
	case "rebalance":
		return s.g.Rebalance(s.now, "asked to")
	case "upgrade":
		var most int
		d.ScanArgs(s.t, "max", &most)
		if err := s.g.CheckUpgrade(most); err != nil {
			return group.Effects{Replies: []group.Reply{{Token: s.token(d), Err: err}}}
		}
		return s.g.Upgrade(s.now)
	case "downgrade":
		var generation int32
		d.ScanArgs(s.t, "gen", &generation)
		g, err := Downgrade(s.cfg, "g", s.now, generation, s.g.Members(), func(m Member, protocol string) ([]byte, error) {
			return []byte("was " + m.MemberID + "'s, " + subscription(m.Metadata(protocol))), nil
		})
		require.NoError(s.t, err)
		s.g = g
		return group.Effects{Records: []group.Record{g.Record()}}
	}
	s.t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	return group.Effects{}
}

func (s *script) join(d *datadriven.TestData) group.Effects {
	req := group.JoinRequest{
		Token: s.token(d), RequireMemberID: d.HasArg("requireid"), CanSkipAssignment: d.HasArg("skip"),
		Client: group.Client{ID: "client", Host: "/10.0.0.1"}, ProtocolType: group.ConsumerProtocol,
		SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute,
	}
	d.MaybeScanArgs(s.t, "id", &req.MemberID)
	d.MaybeScanArgs(s.t, "instance", &req.InstanceID)
	if d.HasArg("type") {
		req.ProtocolType = ""
		if v := d.CmdArgs[slices.IndexFunc(d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == "type" })].Vals; len(v) > 0 {
			req.ProtocolType = v[0]
		}
	}
	d.MaybeScanArgs(s.t, "reason", &req.Reason)
	duration(s.t, d, "session", &req.SessionTimeout)
	duration(s.t, d, "rebalance", &req.RebalanceTimeout)
	for _, a := range d.CmdArgs {
		if a.Key == "protocols" {
			for _, v := range a.Vals {
				name, topics, _ := strings.Cut(v, ":")
				req.Protocols = append(req.Protocols, group.Protocol{Name: name, Metadata: metadata(topics)})
			}
		}
	}
	if req.MemberID == "" {
		s.ids++
		req.NewMemberID = fmt.Sprintf("m%d", s.ids)
	}
	return s.g.Join(s.now, req)
}

func (s *script) token(d *datadriven.TestData) group.Token {
	name := d.Cmd
	if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
		name = d.CmdArgs[0].Key
	}
	s.tokens = append(s.tokens, name)
	s.open[group.Token(len(s.tokens)-1)] = true
	return group.Token(len(s.tokens) - 1)
}

// pass lets time go by, with a tick when each deadline comes.
func (s *script) pass(took time.Duration) string {
	var out string
	until := s.now.Add(took)
	for range 2000 {
		at := s.g.Deadline()
		if at.IsZero() || at.After(until) {
			s.now = until
			return out
		}
		from := s.now
		s.now = at
		said := s.say(s.g.Tick(s.now))
		check(s.t, s.g, s.open)
		if said != "" {
			out += fmt.Sprintf("after %s:\n", s.now.Sub(from)) + said
		}
	}
	s.t.Fatal("ticks without an end")
	return ""
}

func (s *script) say(fx group.Effects) string {
	var out strings.Builder
	for _, r := range fx.Records {
		fmt.Fprintf(&out, "record %s\n", show(s.t, r))
		s.apply(r)
	}
	for _, r := range fx.Replies {
		require.True(s.t, s.open[r.Token], "answered twice, or never asked: %s", s.tokens[r.Token])
		delete(s.open, r.Token)
		fmt.Fprintf(&out, "%s: %s\n", s.tokens[r.Token], answer(r))
	}
	return out.String()
}

func (s *script) apply(r group.Record) {
	s.records = append(s.records, r)
	key, err := group.ViewKey(r.Key)
	require.NoError(s.t, err)
	if s.view[string(key)] = r; r.Value == nil {
		delete(s.view, string(key))
	}
}

// offsets are those of the view.
func (s *script) offsets() iter.Seq2[group.StoredOffset, error] {
	return func(yield func(group.StoredOffset, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(s.view)) {
			if !strings.HasPrefix(key, string(group.ViewPrefix(group.OffsetKind, "g"))) {
				continue
			}
			k, err := group.ParseRecordKey(s.view[key].Key)
			require.NoError(s.t, err)
			o, err := group.ParseOffset(s.view[key].Value)
			if !yield(group.StoredOffset{PartitionName: group.PartitionName{Topic: k.Topic, Partition: k.Partition}, CommittedOffset: o}, err) {
				return
			}
		}
	}
}

func (s *script) describe() string {
	d := s.g.Describe()
	out := fmt.Sprintf("%s type=%q protocol=%q gen=%d leader=%q members=%d", d.State, d.ProtocolType, d.Protocol, s.g.Generation(), s.g.Leader(), s.g.NumMembers())
	if s.g.IsSimple() {
		out += " simple"
	}
	if s.g.Idle() {
		out += " idle"
	}
	if at := s.g.Deadline(); !at.IsZero() {
		out += " due=" + at.Sub(s.now).String()
	}
	if s.g.Reason() != "" {
		out += "\nreason: " + s.g.Reason()
	}
	for _, m := range d.Members {
		out += fmt.Sprintf("\n%s of %s%s", m.MemberID, m.Client.ID, m.Client.Host)
		if m.InstanceID != "" {
			out += " instance=" + m.InstanceID
		}
		out += fmt.Sprintf(" metadata=%s assignment=%q", subscription(m.Metadata), m.Assignment)
	}
	return out + "\n"
}

func answer(r group.Reply) string {
	switch {
	case r.Err != nil && r.Join != nil && r.Join.MemberID != "":
		return fmt.Sprintf("%v (%s)", r.Err, r.Join.MemberID)
	case r.Err != nil:
		return r.Err.Error()
	case r.Join != nil:
		out := fmt.Sprintf("%s in gen=%d of %s/%s led by %s", r.Join.MemberID, r.Join.Generation, r.Join.ProtocolType, r.Join.Protocol, r.Join.Leader)
		if r.Join.SkipAssignment {
			out += ", skip the assignment"
		}
		for _, m := range r.Join.Members {
			out += fmt.Sprintf("\n  %s %s%s", m.MemberID, m.InstanceID, subscription(m.Metadata))
		}
		return out
	case r.Sync != nil:
		return fmt.Sprintf("%s/%s %q", r.Sync.ProtocolType, r.Sync.Protocol, r.Sync.Assignment)
	case r.Leave != nil:
		var out []string
		for _, m := range r.Leave.Members {
			out = append(out, fmt.Sprintf("%s%s: %v", m.MemberID, m.InstanceID, or(m.Err)))
		}
		return strings.Join(out, ", ")
	case r.Commit != nil:
		return errorsOf(r.Commit.Partitions)
	case r.Delete != nil:
		return errorsOf(r.Delete.Partitions)
	}
	return "ok"
}

func or(err error) error {
	if err == nil {
		return errors.New("ok")
	}
	return err
}

func errorsOf(errs []error) string {
	var out []string
	for _, err := range errs {
		out = append(out, or(err).Error())
	}
	return strings.Join(out, ", ")
}

func show(t *testing.T, r group.Record) string {
	k, err := group.ParseRecordKey(r.Key)
	require.NoError(t, err)
	if k.Type == group.OffsetCommitRecord {
		if r.Value == nil {
			return fmt.Sprintf("%s-%d: none", k.Topic, k.Partition)
		}
		o, err := group.ParseOffset(r.Value)
		require.NoError(t, err)
		out := fmt.Sprintf("%s-%d: %d %q", k.Topic, k.Partition, o.Offset, o.Metadata)
		if !o.ExpireTime.IsZero() {
			out += fmt.Sprintf(" until %s after", o.ExpireTime.Sub(o.CommitTime))
		}
		return out
	}
	if r.Value == nil {
		return "no group"
	}
	m, err := group.ParseMetadata(r.Value)
	require.NoError(t, err)
	out := fmt.Sprintf("type=%q protocol=%q gen=%d leader=%q", m.ProtocolType, m.Protocol, m.Generation, m.Leader)
	for _, o := range m.Members {
		out += fmt.Sprintf("\n  %s %s%s %q %s %s", o.MemberID, o.InstanceID, subscription(o.Subscription), o.Assignment, o.SessionTimeout, o.RebalanceTimeout)
	}
	return out
}

func partition(name string) group.PartitionName {
	topic, number, _ := strings.Cut(name, "-")
	n, _ := strconv.Atoi(number)
	return group.PartitionName{Topic: topic, Partition: int32(n)}
}
