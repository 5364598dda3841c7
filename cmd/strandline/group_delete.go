package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newGroupDelete(c *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "delete GROUP...", Short: "Delete groups that have no members, with their offsets", Args: someGroups,
		RunE: func(cmd *cobra.Command, args []string) error { return deleteGroups(cmd.Context(), c, args) },
	}
}

// deletedGroup is one line of group delete.
type deletedGroup struct {
	Group   string `json:"group"`
	Deleted bool   `json:"deleted"`
}

func deleteGroups(ctx context.Context, c *clientFlags, names []string) error {
	slices.Sort(names)
	names = slices.Compact(names)
	var failed error
	var deleted []deletedGroup
	err := c.withGroups(ctx, names[0], func(ctx context.Context, adm *kadm.Client) error {
		resp, err := adm.DeleteGroups(ctx, names...)
		if err != nil && len(resp) == 0 {
			return groupError(strings.Join(names, ", "), err, "")
		}
		for _, name := range names {
			r, ok := resp[name]
			switch {
			case !ok:
				failed = errors.Join(failed, groupError(name, errors.Join(err, kerr.CoordinatorNotAvailable), ""))
			case r.Err != nil:
				failed = errors.Join(failed, groupError(name, r.Err, r.ErrMessage))
			default:
				deleted = append(deleted, deletedGroup{name, true})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.json() {
		return errors.Join(printJSON(deleted), failed)
	}
	for _, d := range deleted {
		if _, err := fmt.Println("deleted group " + shown(d.Group)); err != nil {
			return err
		}
	}
	return failed
}

type groupDeleteOffsetsFlags struct {
	*clientFlags
	topics []string
}

func newGroupDeleteOffsets(c *clientFlags) *cobra.Command {
	f := &groupDeleteOffsetsFlags{clientFlags: c}
	cmd := &cobra.Command{
		Use: "delete-offsets GROUP", Short: "Forget what a group has committed of topics that it does not read", Args: oneGroup,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringArrayVar(&f.topics, "topic", nil, "TOPIC, or TOPIC:0,1 for some partitions; may be given several times")
	return cmd
}

// deletedOffset is one line of group delete-offsets.
type deletedOffset struct {
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Old       known  `json:"oldOffset"`
	Deleted   bool   `json:"deleted"`
}

func (f *groupDeleteOffsetsFlags) run(ctx context.Context, group string) error {
	set, err := topicPartitions(f.topics)
	if err != nil {
		return err
	}
	if len(set) == 0 {
		return usagef("give --topic TOPIC, or --topic TOPIC:0,1 for some partitions")
	}
	var failed failures
	var deleted []deletedOffset
	err = f.withGroups(ctx, group, func(ctx context.Context, adm *kadm.Client) error {
		if err := allPartitions(ctx, adm, set); err != nil {
			return err
		}
		committed, err := adm.FetchOffsets(ctx, group)
		if err != nil {
			return groupError(group, err, "")
		}
		answers, err := adm.DeleteOffsets(ctx, group, set)
		if err != nil {
			return groupError(group, err, "")
		}
		for _, t := range set.Sorted() {
			for _, p := range t.Partitions {
				perr, ok := answers.Lookup(t.Topic, p)
				switch {
				case !ok:
					failed.add(t.Topic, p, errors.New("the broker said nothing of it"))
				case perr != nil:
					failed.add(t.Topic, p, groupError(group, perr, ""))
				default:
					d := deletedOffset{Group: group, Topic: t.Topic, Partition: p, Deleted: true}
					if c, ok := committed.Lookup(t.Topic, p); ok && c.Err == nil && c.At >= 0 {
						d.Old = knownTo(c.At)
					}
					deleted = append(deleted, d)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if f.json() {
		return errors.Join(printJSON(deleted), failed.err())
	}
	if len(deleted) == 0 {
		return failed.err()
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "topic\tpartition\tdeleted offset")
	for _, d := range deleted {
		fmt.Fprintf(w, "%s\t%d\t%s\n", d.Topic, d.Partition, d.Old)
	}
	return errors.Join(w.Flush(), failed.err())
}

// allPartitions fills in the partitions of topics that are named without.
func allPartitions(ctx context.Context, adm *kadm.Client, set kadm.TopicsSet) error {
	topics, err := adm.ListTopicsWithInternal(ctx, set.Topics()...)
	if err != nil {
		return err
	}
	for topic, partitions := range set {
		t, err := oneTopic(topics, topic)
		if err != nil {
			return err
		}
		if len(partitions) == 0 {
			set.Add(topic, t.Partitions.Numbers()...)
		}
		for p := range set[topic] {
			if _, ok := t.Partitions[p]; !ok {
				return unknownPartition(topic, p, len(t.Partitions))
			}
		}
	}
	return nil
}
