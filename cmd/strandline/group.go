package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

const groupHelp = `Look at consumer groups and change what they have committed.

A group is a set of consumers that share the partitions of their topics; each
partition is read by one of them. What the group has read of a partition is its
committed offset, the offset of the record that it wants next. Lag is how many
offsets lie between that and the end of the log.

Offsets can be changed only while nobody reads: stop the group's consumers
first. reset-offsets shows what it would do, and does it with --execute.

  strandline group list --state stable
  strandline group describe billing --members
  strandline group reset-offsets billing --topic orders:0,1 --to earliest
  strandline group reset-offsets billing --all-topics --by-duration 2h --execute
  strandline group delete-offsets billing --topic orders`

func newGroup(c *clientFlags) *cobra.Command {
	cmd := parentOf(&cobra.Command{Use: "group", Short: "List, describe, reset and delete consumer groups", Long: groupHelp})
	c.add(cmd)
	cmd.AddCommand(newGroupList(c), newGroupDescribe(c), newGroupReset(c), newGroupDelete(c), newGroupDeleteOffsets(c))
	return cmd
}

// someGroups wants one group name or several.
func someGroups(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("want the name of a group, or several, as in `%s`", cmd.UseLine())
	}
	return checkGroups(args)
}

// oneGroup wants one group name.
func oneGroup(cmd *cobra.Command, args []string) error {
	if err := exactArgs(1, "one group name")(cmd, args); err != nil {
		return err
	}
	return checkGroups(args)
}

func checkGroups(args []string) error {
	if slices.Contains(args, "") {
		return usagef("the name of a group is not empty")
	}
	return nil
}

// kafkaError is a Kafka error with a sentence of ours in place of its own.
type kafkaError struct {
	kafka    *kerr.Error
	sentence string
	// otherType is set where a group is there, but of a type that has commands of
	// its own.
	otherType bool
}

func (e *kafkaError) Error() string { return e.kafka.Message + ": " + e.sentence }
func (e *kafkaError) Unwrap() error { return e.kafka }

// remedies say what to do about a Kafka error that a group was answered with:
// {group} is its name, {members} a command that names who is in it.
var remedies = map[*kerr.Error]string{
	kerr.GroupIDNotFound:           "there is no group {group}; `strandline group list` names those there are",
	kerr.NonEmptyGroup:             "group {group} has members; stop its consumers first, {members} names them",
	kerr.UnknownMemberID:           "group {group} has members, and its offsets can be set from outside only while it has none; stop its consumers first, {members} names them",
	kerr.GroupSubscribedToTopic:    "members of group {group} read this topic; stop them first, {members} names them",
	kerr.CoordinatorNotAvailable:   "the coordinator of group {group} cannot be reached now; try again in a moment, and if that does not help see the broker's log",
	kerr.CoordinatorLoadInProgress: "the coordinator of group {group} is still loading it; try again in a moment",
	kerr.NotCoordinator:            "group {group} is moving to another coordinator; try again in a moment",
	kerr.RebalanceInProgress:       "group {group} is rebalancing; try again in a moment",
	kerr.InvalidGroupID:            "{group} cannot be the name of a group",
	kerr.InconsistentGroupProtocol: "the members of group {group} share its partitions in another way than cooperative-sticky, which is the one of this command; stop them first, or read with another --group",
	kerr.GroupMaxSizeReached:       "group {group} has as many members as group.max.size allows",
}

// groupError adds what to do to an error of a group. message is the broker's own
// sentence, if it sent one.
func groupError(group string, err error, message string) error {
	var k *kerr.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &k):
		return fmt.Errorf("group %s: %w", shown(group), ofOneBroker(err))
	case remedies[k] != "":
		return &kafkaError{kafka: k, sentence: strings.NewReplacer("{group}", shown(group), "{members}", describeMembers(group)).Replace(remedies[k])}
	case message != "":
		return &kafkaError{kafka: k, sentence: fmt.Sprintf("group %s: %s", shown(group), message)}
	}
	return &kafkaError{kafka: k, sentence: fmt.Sprintf("group %s: %s", shown(group), k.Description)}
}

// describeMembers is the command that names the members of a group.
func describeMembers(group string) string {
	return "`strandline group describe " + shellWord(group) + " --members`"
}

// ofOneBroker takes what the first broker that failed said out of the errors of
// several.
func ofOneBroker(err error) error {
	if several := (*kadm.ShardErrors)(nil); errors.As(err, &several) && len(several.Errs) > 0 {
		return several.Errs[0].Err
	}
	return err
}

// withGroups is withAdmin for what the coordinator of a group answers; "" is all
// of them. do is called again where one is not there yet: __consumer_offsets is
// made by the first use, and read by a broker that becomes its leader.
func (c *clientFlags) withGroups(ctx context.Context, group string, do func(context.Context, *kadm.Client) error) error {
	return c.withAdmin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			err := do(ctx, adm)
			if group != "" && err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return lateAnswer(ctx, adm, group, err)
			}
			if !errors.Is(err, kerr.CoordinatorNotAvailable) && !errors.Is(err, kerr.CoordinatorLoadInProgress) && !errors.Is(err, kerr.NotCoordinator) {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return err
			}
		}
	})
}

// lateAnswer is why there was no answer in time. The client asks for a coordinator
// until it has one, and then says only that it waited.
func lateAnswer(ctx context.Context, adm *kadm.Client, group string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if why := adm.FindGroupCoordinators(ctx, group)[group].Err; errors.As(why, new(*kerr.Error)) {
		return groupError(group, why, "")
	}
	return err
}

// unknownPartition says which partitions a topic has.
func unknownPartition(topic string, partition int32, have int) error {
	return &kafkaError{kafka: kerr.UnknownTopicOrPartition, sentence: fmt.Sprintf("topic %s has %s, and so no partition %d", topic, counted(int64(have), "partition"), partition)}
}

// topicPartitions reads values of --topic, T or T:p,... A topic that is named
// without partitions is in the set with none.
func topicPartitions(values []string) (kadm.TopicsSet, error) {
	set := kadm.TopicsSet{}
	for _, v := range values {
		topic, list, some := strings.Cut(v, ":")
		if topic == "" {
			return nil, usagef("--topic %s: want TOPIC, or TOPIC:0,1", v)
		}
		if !some {
			if len(set[topic]) > 0 {
				return nil, usagef("--topic %s: named before with some of its partitions", v)
			}
			set.Add(topic)
			continue
		}
		if partitions, before := set[topic]; before && len(partitions) == 0 {
			return nil, usagef("--topic %s: named before with all of its partitions", v)
		}
		for _, p := range strings.Split(list, ",") {
			n, err := strconv.ParseInt(strings.TrimSpace(p), 10, 32)
			if err != nil || n < 0 {
				return nil, usagef("--topic %s: want TOPIC, or TOPIC:0,1", v)
			}
			set.Add(topic, int32(n))
		}
	}
	return set, nil
}

// failures collects why partitions failed, and says it once for those of a topic
// that failed in the same way.
type failures struct {
	topics []topicFailure
}

type topicFailure struct {
	topic      string
	partitions []string
	err        error
}

func (f *failures) add(topic string, partition int32, err error) {
	p := strconv.Itoa(int(partition))
	for i, t := range f.topics {
		if t.topic == topic && t.err.Error() == err.Error() {
			f.topics[i].partitions = append(t.partitions, p)
			return
		}
	}
	f.topics = append(f.topics, topicFailure{topic, []string{p}, err})
}

// err joins what was added, or is nil.
func (f *failures) err() (joined error) {
	for _, t := range f.topics {
		joined = errors.Join(joined, fmt.Errorf("topic %s partition %s: %w", t.topic, strings.Join(t.partitions, ", "), t.err))
	}
	return joined
}

// known is a number that may be missing, as - or as JSON's null.
type known struct {
	n  int64
	ok bool
}

func knownTo(n int64) known { return known{n, true} }

func (k known) String() string {
	if !k.ok {
		return "-"
	}
	return strconv.FormatInt(k.n, 10)
}

// MarshalJSON implements json.Marshaler.
func (k known) MarshalJSON() ([]byte, error) {
	if !k.ok {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, k.n, 10), nil
}

// printJSON writes one JSON object a line.
func printJSON[T any](values []T) error {
	out := json.NewEncoder(os.Stdout)
	for _, v := range values {
		if err := out.Encode(v); err != nil {
			return fmt.Errorf("writing standard output: %w", err)
		}
	}
	return nil
}

// orDash is s, or - where there is none.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
