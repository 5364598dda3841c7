package consumer

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
	"strandline/broker/group/classic"
)

var zeroTime time.Time

// A script is a group among topics, and members that speak to it.
//
//	config [max=N] [session=D] [heartbeat=D] [interval=D] [refresh=D] [assignors=(a,b)] [migration=P] [classic-max=N]
//	topic NAME N [racks=(a/b,b/c)]   creates a topic, or changes it
//	delete-topic NAME
//	hide NAME                        nobody may describe it
//	pass D                           lets time go by
//	heartbeat MEMBER [epoch=N] [instance=I] [rack=R] [rebalance=D] [topics=(a,b)] [regex=E] [assignor=A] [owned=(a:0-3,b:1)]
//	                                 the epoch is the one that the member was told, unless it is said
//	join MEMBER ...                  heartbeat with epoch 0, a rebalance timeout of a minute and no partitions
//	leave MEMBER [instance=I] [static]
//	show                             the group as it is described
//	records                          from now on, what is appended is shown
//	load                             the group is loaded from its records
//	commit MEMBER epoch=N (partition ...)  [transactional]
//	fetch MEMBER epoch=N
//	delete                           deletes the group
//
// Of the classic protocol:
//
//	classic                          from now on, the group is an empty classic one
//	join-classic MEMBER topics=(a,b) [id=MEMBER] [instance=I] [rack=R] [owned=(a:0)] [version=N] [protocols=(p,q)] [type=T] [session=D] [rebalance=D] [require-id]
//	sync MEMBER generation=N [instance=I] [protocol=P] [assign=(MEMBER=a:0-2,...)]
//	beat MEMBER generation=N [instance=I]
//	leave-classic (MEMBER or MEMBER/INSTANCE ...)
//
// The member none has no id; in join-classic, id is the one it is given.
//
// Every command holds the group against its invariants and against what its
// records say.
type script struct {
	t       *testing.T
	now     time.Time
	env     Env
	topics  *world
	group   *Group
	view    view
	records bool
	token   group.Token
	// epochs are those that members were told last.
	epochs map[string]int32
	// classic is the group while it is a classic one; group is then nil.
	classic *classic.Group
}

func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		w := newWorld()
		c := DefaultConfig()
		c.AssignmentInterval = 0
		s := &script{t: t, now: time.UnixMilli(1_000_000), topics: w, env: Env{Config: c, Topics: w}, group: New("g"), view: view{}, epochs: map[string]int32{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(d)
			if s.group != nil {
				checkGroup(t, s.group, s.env.Config, s.view)
			}
			return out
		})
	})
}

func (s *script) run(d *datadriven.TestData) string {
	switch d.Cmd {
	case "config":
		s.configure(d)
		return ""
	case "topic":
		n, err := strconv.Atoi(d.CmdArgs[1].Key)
		require.NoError(s.t, err)
		var racks [][]string
		if a, ok := d.Arg("racks"); ok {
			for _, v := range a.Vals {
				racks = append(racks, strings.Split(v, "/"))
			}
		}
		s.topics.set(d.CmdArgs[0].Key, int32(n), racks)
		return ""
	case "delete-topic":
		s.topics.remove(d.CmdArgs[0].Key)
		return ""
	case "hide":
		s.topics.hidden[d.CmdArgs[0].Key] = true
		return ""
	case "pass":
		took, err := time.ParseDuration(d.CmdArgs[0].Key)
		require.NoError(s.t, err)
		return s.pass(took)
	case "heartbeat", "join", "leave":
		return s.heartbeat(d)
	case "show":
		return s.show()
	case "records":
		s.records = true
		return ""
	case "load":
		if s.group == nil {
			g, err := classic.Load(s.env.Config.Classic, "g", s.now, s.view.records())
			require.NoError(s.t, err)
			s.classic = g
			return ""
		}
		g, err := Load(s.now, s.env.Config, "g", s.view.records())
		require.NoError(s.t, err)
		s.group = g
		return ""
	case "commit", "fetch":
		return s.offsets(d)
	case "classic":
		s.group, s.classic = nil, classic.New(s.env.Config.Classic, "g", s.now)
		s.view, s.epochs = view{}, map[string]int32{}
		return ""
	case "join-classic":
		return s.join(d)
	case "sync":
		return s.sync(d)
	case "beat":
		return s.beat(d)
	case "leave-classic":
		return s.leave(d)
	case "delete":
		fx, err := s.group.Delete()
		if err != nil {
			return err.Error()
		}
		out := s.effects(fx)
		require.Empty(s.t, s.view)
		require.Equal(s.t, hard(New("g")), hard(s.group))
		s.group = New("g")
		return out
	}
	s.t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	return ""
}

func (s *script) configure(d *datadriven.TestData) {
	c := &s.env.Config
	for _, a := range d.CmdArgs {
		v := a.Vals[0]
		took, _ := time.ParseDuration(v)
		n, _ := strconv.Atoi(v)
		switch a.Key {
		case "max":
			c.MaxSize = n
		case "classic-max":
			c.Classic.MaxSize = n
		case "session":
			c.SessionTimeout = took
		case "heartbeat":
			c.HeartbeatInterval = took
		case "interval":
			c.AssignmentInterval = took
		case "refresh":
			c.RegexRefreshInterval = took
		case "assignors":
			c.Assignors = a.Vals
		case "migration":
			c.Migration = MigrationPolicy(v)
		default:
			s.t.Fatalf("%s: unknown word %s", d.Pos, a.Key)
		}
	}
}

// pass lets time go by, from one deadline to the next.
func (s *script) pass(took time.Duration) string {
	var out string
	for end := s.now.Add(took); ; {
		next := s.deadline()
		if next.IsZero() || next.After(end) {
			s.now = end
			return out
		}
		if next.After(s.now) {
			s.now = next
		}
		if s.group == nil {
			out += s.effects(s.classic.Tick(s.now))
			continue
		}
		g := s.group
		before := sortedKeys(g.members)
		fx := g.Tick(s.now, s.env)
		for _, id := range before {
			if g.members[id] == nil && g.Successor() == nil {
				out += fmt.Sprintf("%s is out\n", id)
			}
		}
		out += s.effects(fx)
	}
}

func (s *script) deadline() time.Time {
	if s.group == nil {
		return s.classic.Deadline()
	}
	return s.group.Deadline()
}

func (s *script) heartbeat(d *datadriven.TestData) string {
	s.token++
	req := group.ConsumerHeartbeatRequest{
		Token: s.token, MemberID: d.CmdArgs[0].Key, Client: group.Client{ID: "client", Host: "/127.0.0.1"}, RebalanceTimeout: -1,
	}
	if req.MemberID == "none" {
		req.MemberID = ""
	}
	switch d.Cmd {
	case "join":
		req.RebalanceTimeout, req.Owned = time.Minute, []group.TopicPartitions{}
	case "leave":
		req.MemberEpoch = group.LeaveEpoch
	case "heartbeat":
		req.MemberEpoch = s.epochs[req.MemberID]
	}
	for _, a := range d.CmdArgs[1:] {
		v := strings.Join(a.Vals, ",")
		switch a.Key {
		case "epoch":
			n, err := strconv.Atoi(v)
			require.NoError(s.t, err)
			req.MemberEpoch = int32(n)
		case "static":
			req.MemberEpoch = group.LeaveStaticEpoch
		case "instance":
			req.InstanceID = v
		case "rack":
			req.RackID = &v
		case "client":
			req.Client.ID = v
		case "rebalance":
			took, err := time.ParseDuration(v)
			require.NoError(s.t, err)
			req.RebalanceTimeout = took
		case "topics":
			req.SubscribedTopics = []string{}
			if v != "" {
				req.SubscribedTopics = a.Vals
			}
		case "regex":
			req.SubscribedRegex = &v
		case "assignor":
			req.Assignor = &v
		case "owned":
			req.Owned = s.partitions(a.Vals)
		case "owned-unknown":
			req.Owned = nil
		default:
			s.t.Fatalf("%s: unknown word %s", d.Pos, a.Key)
		}
	}
	if s.group == nil {
		g, fx := Upgrade(s.now, s.env, s.classic, req)
		if g != nil {
			s.group, s.classic = g, nil
		}
		return s.effects(fx)
	}
	return s.effects(s.group.Heartbeat(s.now, s.env, req))
}

// partitions reads a:0-3.
func (s *script) partitions(words []string) []group.TopicPartitions {
	list := []group.TopicPartitions{}
	for _, word := range words {
		if word == "" {
			continue
		}
		name, numbers, ok := strings.Cut(word, ":")
		require.True(s.t, ok, word)
		first, last, ok := strings.Cut(numbers, "-")
		if !ok {
			last = first
		}
		from, err := strconv.Atoi(first)
		require.NoError(s.t, err)
		end, err := strconv.Atoi(last)
		require.NoError(s.t, err)
		topic, ok := s.topics.Topic(name)
		if !ok {
			topic, ok = s.topics.former[name]
		}
		require.True(s.t, ok, name)
		list = append(list, group.TopicPartitions{Topic: topic.ID, Partitions: sequence(int32(from), int32(end)+1)})
	}
	return list
}

// effects keeps the records, and tells of the replies.
func (s *script) effects(fx group.Effects) string {
	s.view.add(s.t, fx.Records)
	if s.group != nil && s.group.Successor() != nil {
		s.group, s.classic = nil, s.group.Successor()
	}
	var out strings.Builder
	for _, r := range fx.Replies {
		require.LessOrEqual(s.t, r.Token, s.token)
		if r.Token != s.token {
			fmt.Fprintf(&out, "an earlier request: ")
		}
		switch {
		case r.Err != nil:
			fmt.Fprintf(&out, "%v\n", r.Err)
		case r.ConsumerHeartbeat != nil:
			h := r.ConsumerHeartbeat
			s.epochs[h.MemberID] = h.MemberEpoch
			fmt.Fprintf(&out, "%s: epoch %d", h.MemberID, h.MemberEpoch)
			if h.HasAssignment {
				fmt.Fprintf(&out, " %s", shown(h.Assignment))
			}
			if h.HeartbeatInterval != 0 && h.HeartbeatInterval != 5*time.Second {
				fmt.Fprintf(&out, " every %v", h.HeartbeatInterval)
			}
			out.WriteByte('\n')
		default:
			s.other(&out, r)
		}
	}
	if s.records {
		for _, r := range fx.Records {
			out.WriteString(recordText(s.t, r))
		}
	}
	return out.String()
}

func (s *script) other(out *strings.Builder, r group.Reply) {
	switch {
	case r.Commit != nil:
		fmt.Fprintf(out, "committed\n")
	case r.Join != nil:
		fmt.Fprintf(out, "%s: generation %d of %s, %s", r.Join.MemberID, r.Join.Generation, r.Join.ProtocolType, r.Join.Protocol)
		if r.Join.Leader != "" {
			fmt.Fprintf(out, ", %s leads %d", r.Join.Leader, len(r.Join.Members))
		}
		out.WriteByte('\n')
	case r.Sync != nil:
		fmt.Fprintf(out, "%s %s\n", r.Sync.Protocol, s.assigned(r.Sync.Assignment))
	case r.Leave != nil:
		for _, m := range r.Leave.Members {
			fmt.Fprintf(out, "%s %s: %v\n", m.MemberID, m.InstanceID, m.Err)
		}
	default:
		out.WriteString("ok\n")
	}
}

func (s *script) assigned(b []byte) string {
	a, err := readAssigned(s.topics, b)
	if err != nil {
		return err.Error()
	}
	return shown(a.list())
}

func (s *script) join(d *datadriven.TestData) string {
	s.token++
	req := group.JoinRequest{
		Token: s.token, MemberID: d.CmdArgs[0].Key, Client: group.Client{ID: "old", Host: "/127.0.0.1"}, ProtocolType: group.ConsumerProtocol,
		SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute, RequireMemberID: d.HasArg("require-id"),
	}
	if req.MemberID == "none" {
		req.MemberID = ""
	}
	d.MaybeScanArgs(s.t, "id", &req.NewMemberID)
	d.MaybeScanArgs(s.t, "instance", &req.InstanceID)
	d.MaybeScanArgs(s.t, "type", &req.ProtocolType)
	said := kmsg.NewConsumerMemberMetadata()
	said.Version = 1
	if a, ok := d.Arg("version"); ok {
		v, err := strconv.Atoi(a.Vals[0])
		require.NoError(s.t, err)
		said.Version = int16(v)
	}
	if a, ok := d.Arg("topics"); ok {
		said.Topics = a.Vals
	}
	if a, ok := d.Arg("rack"); ok {
		said.Rack = &a.Vals[0]
	}
	if a, ok := d.Arg("owned"); ok {
		for _, t := range s.partitions(a.Vals) {
			said.OwnedPartitions = append(said.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: nameOf(t.Topic), Partitions: t.Partitions})
		}
	}
	for name, to := range map[string]*time.Duration{"session": &req.SessionTimeout, "rebalance": &req.RebalanceTimeout} {
		if a, ok := d.Arg(name); ok {
			took, err := time.ParseDuration(a.Vals[0])
			require.NoError(s.t, err)
			*to = took
		}
	}
	names := []string{"range"}
	if a, ok := d.Arg("protocols"); ok {
		names = a.Vals
	}
	for _, name := range names {
		req.Protocols = append(req.Protocols, group.Protocol{Name: name, Metadata: said.AppendTo(nil)})
	}
	if d.HasArg("malformed") {
		req.Protocols[0].Metadata = []byte{0}
	}
	if s.group == nil {
		return s.effects(s.classic.Join(s.now, req))
	}
	return s.effects(s.group.Join(s.now, s.env, req))
}

func (s *script) sync(d *datadriven.TestData) string {
	s.token++
	req := group.SyncRequest{Token: s.token, MemberID: d.CmdArgs[0].Key, ProtocolType: group.ConsumerProtocol, Protocol: "range"}
	d.ScanArgs(s.t, "generation", &req.Generation)
	d.MaybeScanArgs(s.t, "instance", &req.InstanceID)
	d.MaybeScanArgs(s.t, "protocol", &req.Protocol)
	if a, ok := d.Arg("assign"); ok {
		for _, v := range a.Vals {
			id, what, _ := strings.Cut(v, "=")
			assigned := assignment{}
			for _, t := range s.partitions([]string{what}) {
				assigned[t.Topic] = t.Partitions
			}
			b := appendAssigned(s.topics, 1, assigned)
			if d.HasArg("user-data") {
				b = (&kmsg.ConsumerMemberAssignment{UserData: []byte("x")}).AppendTo(nil)
			}
			req.Assignments = append(req.Assignments, group.Assignment{MemberID: id, Assignment: b})
		}
	}
	if s.group == nil {
		return s.effects(s.classic.Sync(s.now, req))
	}
	return s.effects(s.group.Sync(s.now, s.env, req))
}

func (s *script) beat(d *datadriven.TestData) string {
	s.token++
	req := group.HeartbeatRequest{Token: s.token, MemberID: d.CmdArgs[0].Key}
	if req.MemberID == "none" {
		req.MemberID = ""
	}
	d.ScanArgs(s.t, "generation", &req.Generation)
	d.MaybeScanArgs(s.t, "instance", &req.InstanceID)
	if s.group == nil {
		return s.effects(s.classic.Heartbeat(s.now, req))
	}
	return s.effects(s.group.HeartbeatClassic(s.now, s.env, req))
}

func (s *script) leave(d *datadriven.TestData) string {
	s.token++
	req := group.LeaveRequest{Token: s.token}
	for _, a := range d.CmdArgs {
		id, instance, _ := strings.Cut(a.Key, "/")
		if id == "none" {
			id = ""
		}
		req.Members = append(req.Members, group.LeavingMember{MemberID: id, InstanceID: instance})
	}
	if s.group == nil {
		return s.effects(s.classic.Leave(s.now, req))
	}
	return s.effects(s.group.Leave(s.now, s.env, req))
}

// recordText is a record of a group.
func recordText(t testing.TB, r group.Record) string {
	k, err := group.ParseRecordKey(r.Key)
	require.NoError(t, err)
	names := map[kind]string{
		kindGroup: "group", kindPartitions: "partitions", kindMember: "member", kindTarget: "target",
		kindTargetMember: "target of", kindCurrent: "current", kindRegex: "regex", group.GroupMetadataRecord: "classic group",
		group.OffsetCommitRecord: "offset",
	}
	out := "  + " + names[k.Type]
	if k.Member != "" {
		out += " " + k.Member
	}
	if r.Value == nil {
		return out + ": deleted\n"
	}
	v, err := decodeValue(k.Type, r.Value)
	if err != nil {
		return out + "\n"
	}
	switch v := v.(type) {
	case groupValue:
		out += fmt.Sprintf(": epoch %d", v.epoch)
	case memberValue:
		out += ": " + strings.Join(v.topics, ",")
		for i, p := range []*string{v.instance, v.rack, v.assignor} {
			if p != nil {
				out += " " + []string{"instance", "rack", "assignor"}[i] + "=" + *p
			}
		}
		if text(v.regex) != "" {
			out += " regex=" + *v.regex
		}
		if v.classic != nil {
			out += " classic"
		}
	case targetValue:
		out += fmt.Sprintf(": epoch %d", v.epoch)
	case targetMemberValue:
		out += ": " + shown(v.partitions.list())
	case currentValue:
		out += fmt.Sprintf(": %s", showCurrent(v))
	case regexValue:
		out += ": " + strings.Join(v.topics, ",")
	}
	return out + "\n"
}

func showCurrent(v currentValue) string {
	states := map[memberState]string{stable: "stable", unrevoked: "unrevoked", unreleased: "unreleased", unknown: "unknown"}
	out := fmt.Sprintf("epoch %d after %d, %s, has %s", v.epoch, v.previous, states[v.state], showHolding(v.assigned))
	if len(v.revoking) > 0 {
		out += " gives up " + showHolding(v.revoking)
	}
	return out
}

func (s *script) show() string {
	if s.group == nil {
		d := s.classic.Describe()
		out := fmt.Sprintf("classic, %s, generation %d, %s\n", d.State, s.classic.Generation(), s.classic.Protocol())
		for _, m := range d.Members {
			out += fmt.Sprintf("%s: %s\n", m.MemberID, s.assigned(m.Assignment))
		}
		return out
	}
	d := s.group.Describe(s.env)
	out := fmt.Sprintf("%s, epoch %d, assignment epoch %d, %s\n", d.State, d.Epoch, d.AssignmentEpoch, d.Assignor)
	names := func(list []NamedPartitions) string {
		var words []string
		for _, n := range list {
			words = append(words, n.Topic.Name+":"+ranges(n.Partitions))
		}
		sort.Strings(words)
		return "[" + strings.Join(words, " ") + "]"
	}
	for _, m := range d.Members {
		out += fmt.Sprintf("%s: epoch %d has %s target %s", m.MemberID, m.Epoch, names(m.Assigned), names(m.Target))
		if m.InstanceID != "" {
			out += " instance=" + m.InstanceID
		}
		if m.RackID != "" {
			out += " rack=" + m.RackID
		}
		if len(m.SubscribedTopics) > 0 {
			out += " topics=" + strings.Join(m.SubscribedTopics, ",")
		}
		if m.SubscribedRegex != "" {
			out += " regex=" + m.SubscribedRegex
		}
		if m.Classic {
			out += " classic"
		}
		out += "\n"
	}
	return out
}

func (s *script) offsets(d *datadriven.TestData) string {
	var epoch int
	d.ScanArgs(s.t, "epoch", &epoch)
	member := d.CmdArgs[0].Key
	if member == "none" {
		member = ""
	}
	if d.Cmd == "fetch" {
		if err := s.group.CheckFetch(member, int32(epoch)); err != nil {
			return err.Error()
		}
		return "fetched"
	}
	s.token++
	req := group.CommitRequest{Token: s.token, MemberID: member, Generation: int32(epoch), Transactional: d.HasArg("transactional"), NoMemberEpochs: d.HasArg("old-version")}
	d.MaybeScanArgs(s.t, "instance", &req.InstanceID)
	if a, ok := d.Arg("partitions"); ok {
		for _, t := range s.partitions(a.Vals) {
			for _, p := range t.Partitions {
				req.Partitions = append(req.Partitions, group.CommitPartition{Topic: nameOf(t.Topic), TopicID: t.Topic, Partition: p, Offset: 7})
			}
		}
	}
	fx := s.group.Commit(s.now, s.env, req)
	fx.Records = nil // they are no part of the group
	return s.effects(fx)
}
