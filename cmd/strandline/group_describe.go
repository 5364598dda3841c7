package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

type groupDescribeFlags struct {
	*clientFlags
	members, offsets bool
}

func newGroupDescribe(c *clientFlags) *cobra.Command {
	f := &groupDescribeFlags{clientFlags: c}
	cmd := &cobra.Command{
		Use: "describe GROUP...", Short: "Show a group's state, members, committed offsets and lag", Args: someGroups,
		Long: "Show a group's state and, for each partition that it has committed or reads, the\n" +
			"committed offset, the end of the log, the lag and the member that reads it.\n" +
			"-o json has the members as well, one object a group.",
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args) },
	}
	cmd.Flags().BoolVar(&f.members, "members", false, "show the members and what is assigned to them")
	cmd.Flags().BoolVar(&f.offsets, "offsets", false, "show the offsets (what is shown anyway, unless --members is given)")
	return cmd
}

// describedGroup is one line of group describe. Epoch, AssignmentEpoch and what
// members have of them are there in groups of the consumer protocol (KIP-848).
type describedGroup struct {
	Group           string           `json:"group"`
	Type            string           `json:"type"`
	State           string           `json:"state"`
	ProtocolType    string           `json:"protocolType"`
	Assignor        string           `json:"assignor"`
	Epoch           *int32           `json:"epoch,omitempty"`
	AssignmentEpoch *int32           `json:"assignmentEpoch,omitempty"`
	Coordinator     groupCoordinator `json:"coordinator"`
	Members         []groupMember    `json:"members"`
	Offsets         []groupOffset    `json:"offsets"`
	TotalLag        int64            `json:"totalLag"` // of the partitions whose lag is known
}

type groupCoordinator struct {
	ID   int32  `json:"id"`
	Host string `json:"host"`
	Port int32  `json:"port"`
}

type groupMember struct {
	MemberID         string            `json:"memberId"`
	InstanceID       *string           `json:"instanceId"`
	ClientID         string            `json:"clientId"`
	Host             string            `json:"host"`
	Epoch            *int32            `json:"epoch,omitempty"`
	Assignment       []topicAssignment `json:"assignment"`
	TargetAssignment []topicAssignment `json:"targetAssignment,omitempty"`
}

type topicAssignment struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

// groupOffset is what a group has of one partition. Committed and Lag are not
// known where nothing is committed, LogEnd and Lag where the end of the log is
// not known; Error says why.
type groupOffset struct {
	Topic       string  `json:"topic"`
	Partition   int32   `json:"partition"`
	Committed   known   `json:"committedOffset"`
	LeaderEpoch known   `json:"leaderEpoch"`
	Metadata    string  `json:"metadata"`
	LogEnd      known   `json:"logEndOffset"`
	Lag         known   `json:"lag"`
	MemberID    *string `json:"memberId"`
	InstanceID  *string `json:"instanceId"`
	ClientID    *string `json:"clientId"`
	Host        *string `json:"host"`
	Error       string  `json:"error,omitempty"`
}

func (f *groupDescribeFlags) run(ctx context.Context, names []string) error {
	slices.Sort(names)
	names = slices.Compact(names)
	var groups []describedGroup
	var failed error
	err := f.withGroups(ctx, names[0], func(ctx context.Context, adm *kadm.Client) (err error) {
		if groups, failed, err = describeGroups(ctx, adm, names); err != nil {
			return err
		}
		if f.members && !f.offsets && !f.json() {
			return nil
		}
		return addOffsets(ctx, adm, groups)
	})
	if err != nil {
		return err
	}
	if f.json() {
		err = printJSON(groups)
	} else {
		err = f.printText(groups)
	}
	return errors.Join(err, failed)
}

// describeGroups describes groups of both protocols, by name. failed joins why
// some could not be.
func describeGroups(ctx context.Context, adm *kadm.Client, names []string) (groups []describedGroup, failed, err error) {
	// A broker without KIP-848 refuses the request: its groups are classic.
	consumers, err := adm.DescribeConsumerGroups(ctx, names...)
	if err != nil && ctx.Err() != nil {
		return nil, nil, err
	}
	var rest []string
	for _, name := range names {
		g, ok := consumers[name]
		switch {
		case !ok || errors.Is(g.Err, kerr.GroupIDNotFound) || errors.Is(g.Err, kerr.UnsupportedVersion):
			rest = append(rest, name)
		case g.Err != nil:
			failed = errors.Join(failed, groupError(name, g.Err, ""))
		default:
			groups = append(groups, consumerGroup(g))
		}
	}
	if len(rest) == 0 {
		return groups, failed, nil
	}
	classics, err := adm.DescribeGroups(ctx, rest...)
	if err != nil && len(classics) == 0 {
		return nil, nil, groupError(strings.Join(rest, ", "), err, "")
	}
	var missing []string
	for _, name := range rest {
		g, ok := classics[name]
		switch {
		case !ok:
			failed = errors.Join(failed, groupError(name, cmp.Or(err, error(kerr.CoordinatorNotAvailable)), ""))
		case errors.Is(g.Err, kerr.GroupIDNotFound) || g.Err == nil && g.State == "Dead":
			missing = append(missing, name)
		case g.Err != nil:
			failed = errors.Join(failed, groupError(name, g.Err, g.ErrMessage))
		default:
			groups = append(groups, classicGroup(g))
		}
	}
	slices.SortFunc(groups, func(a, b describedGroup) int { return cmp.Compare(a.Group, b.Group) })
	return groups, errors.Join(failed, missingGroups(ctx, adm, missing)), nil
}

// missingGroups says of groups that cannot be described whether there are none
// of that name, or ones of a type that has commands of its own.
func missingGroups(ctx context.Context, adm *kadm.Client, names []string) (failed error) {
	if len(names) == 0 {
		return nil
	}
	listed, _ := adm.ListGroups(ctx)
	for _, name := range names {
		err := groupError(name, kerr.GroupIDNotFound, "")
		if g, ok := listed[name]; ok && (g.GroupType == "share" || g.GroupType == "streams") {
			err = &kafkaError{kafka: kerr.GroupIDNotFound, sentence: fmt.Sprintf("%s is a %s group, and this command is for consumer groups", shown(name), g.GroupType), otherType: true}
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

func classicGroup(g kadm.DescribedGroup) describedGroup {
	d := describedGroup{
		Group: g.Group, Type: "classic", State: g.State, ProtocolType: g.ProtocolType, Assignor: g.Protocol,
		Coordinator: groupCoordinator{g.Coordinator.NodeID, g.Coordinator.Host, g.Coordinator.Port}, Members: []groupMember{}, Offsets: []groupOffset{},
	}
	for _, m := range g.Members {
		set := kadm.TopicsSet{}
		if assigned, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range assigned.Topics {
				set.Add(t.Topic, t.Partitions...)
			}
		}
		d.Members = append(d.Members, groupMember{m.MemberID, m.InstanceID, m.ClientID, m.ClientHost, nil, assignment(set), nil})
	}
	return d
}

func consumerGroup(g kadm.DescribedConsumerGroup) describedGroup {
	d := describedGroup{
		Group: g.Group, Type: "consumer", State: g.State, ProtocolType: "consumer", Assignor: g.AssignorName,
		Epoch: &g.Epoch, AssignmentEpoch: &g.AssignmentEpoch,
		Coordinator: groupCoordinator{g.Coordinator.NodeID, g.Coordinator.Host, g.Coordinator.Port}, Members: []groupMember{}, Offsets: []groupOffset{},
	}
	for _, m := range g.Members {
		d.Members = append(d.Members, groupMember{m.MemberID, m.InstanceID, m.ClientID, m.ClientHost, &m.MemberEpoch, assignment(m.Assignment), assignment(m.TargetAssignment)})
	}
	return d
}

func assignment(set kadm.TopicsSet) []topicAssignment {
	all := []topicAssignment{}
	for _, t := range set.Sorted() {
		all = append(all, topicAssignment{t.Topic, t.Partitions})
	}
	return all
}

// addOffsets fills in what groups have committed, and their lag.
func addOffsets(ctx context.Context, adm *kadm.Client, groups []describedGroup) error {
	commits := map[string]kadm.OffsetResponses{}
	topics := kadm.TopicsSet{}
	for _, g := range groups {
		committed, err := adm.FetchOffsets(ctx, g.Group)
		if err != nil {
			return groupError(g.Group, err, "")
		}
		commits[g.Group] = committed
		topics.Merge(committed.Partitions())
		for _, m := range g.Members {
			for _, t := range m.Assignment {
				topics.Add(t.Topic)
			}
		}
	}
	if len(topics) == 0 {
		return nil
	}
	ends, err := adm.ListEndOffsets(ctx, topics.Topics()...)
	if err != nil && len(ends) == 0 {
		return fmt.Errorf("listing the ends of logs: %w", err)
	}
	for i := range groups {
		groups[i].addOffsets(commits[groups[i].Group], ends)
	}
	return nil
}

func (d *describedGroup) addOffsets(commits kadm.OffsetResponses, ends kadm.ListedOffsets) {
	readers := map[string]map[int32]*groupMember{}
	partitions := commits.Partitions()
	for i := range d.Members {
		for _, t := range d.Members[i].Assignment {
			partitions.Add(t.Topic, t.Partitions...)
			for _, p := range t.Partitions {
				if readers[t.Topic] == nil {
					readers[t.Topic] = map[int32]*groupMember{}
				}
				readers[t.Topic][p] = &d.Members[i]
			}
		}
	}
	for _, t := range partitions.Sorted() {
		for _, p := range t.Partitions {
			o := groupOffset{Topic: t.Topic, Partition: p}
			o.setCommit(commits.Lookup(t.Topic, p))
			o.setEnd(ends.Lookup(t.Topic, p))
			if m := readers[t.Topic][p]; m != nil {
				o.MemberID, o.InstanceID, o.ClientID, o.Host = &m.MemberID, m.InstanceID, &m.ClientID, &m.Host
			}
			if !o.Committed.ok && o.MemberID == nil && o.Error == "" {
				continue // nothing to say of it
			}
			d.TotalLag += o.Lag.n
			d.Offsets = append(d.Offsets, o)
		}
	}
}

func (o *groupOffset) setCommit(c kadm.OffsetResponse, ok bool) {
	switch {
	case !ok || c.Err == nil && c.At < 0:
	case c.Err != nil:
		o.Error = explain(c.Err)
	default:
		o.Committed, o.Metadata = knownTo(c.At), c.Metadata
		if c.LeaderEpoch >= 0 {
			o.LeaderEpoch = knownTo(int64(c.LeaderEpoch))
		}
	}
}

func (o *groupOffset) setEnd(e kadm.ListedOffset, ok bool) {
	switch {
	case !ok:
		o.Error = cmp.Or(o.Error, explain(kerr.UnknownTopicOrPartition))
	case e.Err != nil:
		o.Error = cmp.Or(o.Error, explain(e.Err))
	default:
		o.LogEnd = knownTo(e.Offset)
		if o.Committed.ok {
			o.Lag = knownTo(e.Offset - o.Committed.n)
		}
	}
}

func (f *groupDescribeFlags) printText(groups []describedGroup) error {
	for i, g := range groups {
		if i > 0 {
			fmt.Println()
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
		fmt.Fprintf(w, "group\t%s\ntype\t%s\nstate\t%s\n", shown(g.Group), g.Type, g.State)
		if g.Epoch != nil {
			fmt.Fprintf(w, "epoch\t%d, assignment %d\n", *g.Epoch, *g.AssignmentEpoch)
		}
		fmt.Fprintf(w, "assignor\t%s\ncoordinator\t%d (%s:%d)\nmembers\t%d\n", orDash(shown(g.Assignor)), g.Coordinator.ID, g.Coordinator.Host, g.Coordinator.Port, len(g.Members))
		if f.offsets || !f.members {
			g.printOffsets(w)
		}
		if f.members {
			g.printMembers(w)
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("writing standard output: %w", err)
		}
	}
	return nil
}

func (d *describedGroup) printOffsets(w *tabwriter.Writer) {
	fmt.Fprintf(w, "total lag\t%s\n", d.lagText())
	if len(d.Offsets) == 0 {
		fmt.Fprintln(w, "\nno offset is committed, and nothing is assigned")
		return
	}
	fmt.Fprintln(w, "\ntopic\tpartition\tcommitted\tlog end\tlag\tmember\tclient\thost")
	for _, o := range d.Offsets {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", shown(o.Topic), o.Partition, o.Committed, o.LogEnd, o.Lag, textOf(o.MemberID), textOf(o.ClientID), textOf(o.Host))
		if o.Error != "" {
			fmt.Fprintf(w, "\t\t%s\n", o.Error)
		}
	}
}

// lagText is the total lag, and of how many partitions there is none to add.
func (d *describedGroup) lagText() string {
	unknown := int64(0)
	for _, o := range d.Offsets {
		if !o.Lag.ok {
			unknown++
		}
	}
	switch {
	case unknown == 0:
		return strconv.FormatInt(d.TotalLag, 10)
	case unknown == int64(len(d.Offsets)):
		return "-"
	}
	return fmt.Sprintf("%d, without %s whose lag is not known", d.TotalLag, counted(unknown, "partition"))
}

func (d *describedGroup) printMembers(w *tabwriter.Writer) {
	if len(d.Members) == 0 {
		fmt.Fprintln(w, "\nno members")
		return
	}
	fmt.Fprintln(w, "\nmember\tinstance\tclient\thost\tepoch\tassignment\ttarget")
	for _, m := range d.Members {
		epoch, target := "-", "-"
		if m.Epoch != nil {
			epoch, target = strconv.Itoa(int(*m.Epoch)), assignmentText(m.TargetAssignment)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", shown(m.MemberID), textOf(m.InstanceID), orDash(shown(m.ClientID)), m.Host, epoch, assignmentText(m.Assignment), target)
	}
}

func textOf(s *string) string {
	if s == nil {
		return "-"
	}
	return orDash(shown(*s))
}

// assignmentText is an assignment as Apache Kafka's tools write it: a:0,1;b:2.
func assignmentText(all []topicAssignment) string {
	var topics []string
	for _, t := range all {
		var partitions []string
		for _, p := range t.Partitions {
			partitions = append(partitions, strconv.Itoa(int(p)))
		}
		topics = append(topics, shown(t.Topic)+":"+strings.Join(partitions, ","))
	}
	return orDash(strings.Join(topics, ";"))
}
