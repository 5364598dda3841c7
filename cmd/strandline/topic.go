package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"strandline/metadata/cluster"
	"strandline/metadata/config"
)

type topicFlags struct {
	*clientFlags
	partitions  int32
	replication int16
	configs     []string
	delete      []string
	wait        bool
	forever     bool // nobody asked for a timeout
}

func newTopic(c *clientFlags) *cobra.Command {
	f := &topicFlags{clientFlags: c}
	cmd := parentOf(&cobra.Command{Use: "topic", Short: "Create, list, describe, alter and delete topics"})
	c.add(cmd)
	create := &cobra.Command{
		Use: "create NAME", Short: "Create a topic", Args: exactArgs(1, "one topic name"),
		RunE: func(cmd *cobra.Command, args []string) error { return f.create(cmd.Context(), args[0]) },
	}
	create.Flags().Int32Var(&f.partitions, "partitions", -1, "number of partitions (-1: the broker's default)")
	create.Flags().Int16Var(&f.replication, "replication-factor", -1, "number of replicas (-1: the broker's default)")
	create.Flags().StringArrayVar(&f.configs, "config", nil, "k=v, may be given several times")
	list := &cobra.Command{
		Use: "list", Short: "List the topics", Args: exactArgs(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.list(cmd.Context()) },
	}
	describe := &cobra.Command{
		Use: "describe NAME", Short: "Show where a topic's bytes are and what happens to them next", Args: exactArgs(1, "one topic name"),
		RunE: func(cmd *cobra.Command, args []string) error { return f.describe(cmd.Context(), args[0]) },
	}
	alter := &cobra.Command{
		Use: "alter NAME", Short: "Raise the partition count or change configs", Args: exactArgs(1, "one topic name"),
		RunE: func(cmd *cobra.Command, args []string) error { return f.alter(cmd.Context(), args[0]) },
	}
	alter.Flags().Int32Var(&f.partitions, "partitions", -1, "new number of partitions, more than now")
	alter.Flags().StringArrayVar(&f.configs, "config", nil, "k=v to set, may be given several times")
	alter.Flags().StringArrayVar(&f.delete, "delete-config", nil, "key to set back to its default")
	del := &cobra.Command{
		Use: "delete NAME", Short: "Delete a topic and its part of the tier", Args: exactArgs(1, "one topic name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.forever = !cmd.Flags().Changed("timeout")
			return f.remove(cmd.Context(), args[0])
		},
	}
	del.Flags().BoolVar(&f.wait, "wait", false, "return only when its objects are gone from the tier too, however long that takes unless --timeout is given")
	cmd.AddCommand(create, list, describe, alter, del)
	return cmd
}

// keyValues reads k=v pairs.
func keyValues(pairs []string) (map[string]*string, error) {
	m := map[string]*string{}
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usagef("--config %s: want k=v", p)
		}
		m[k] = &v
	}
	return m, nil
}

// withMessage adds the broker's sentence to a Kafka error of a topic.
func withMessage(name string, err error, message string) error {
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return topicError(name, err)
	case err == nil || message == "":
		return err
	}
	return fmt.Errorf("%w: %s", err, message)
}

// refusedConfig is withMessage for a request that sets configurations, with what
// to do where that is known. The broker's sentences are Apache Kafka's.
func refusedConfig(topic string, err error, message string) error {
	const unknown = "Unknown topic config name: "
	if name, ok := strings.CutPrefix(message, unknown); ok {
		if near := config.Nearest(name, config.TopicScope); near != "" {
			message += " (did you mean " + near + "?)"
		}
	}
	if strings.HasPrefix(message, "Remote log storage only supports topics with cleanup.policy=delete") {
		message += " A compacted topic is not tiered: give --config remote.storage.enable=false with it, and for a topic that is tiered" +
			" --config remote.log.delete.on.disable=true, which deletes what it has in the tier."
	}
	return withMessage(topic, err, message)
}

func (f *topicFlags) create(ctx context.Context, name string) error {
	configs, err := keyValues(f.configs)
	if err != nil {
		return err
	}
	return f.withAdmin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		resp, err := adm.CreateTopics(ctx, f.partitions, f.replication, configs, name)
		if err != nil {
			return err
		}
		r, err := resp.On(name, nil)
		if err == nil {
			err = r.Err
		}
		if err != nil {
			return refusedConfig(name, err, r.ErrMessage)
		}
		return f.print(map[string]any{"topic": name, "id": idText(r.ID), "partitions": r.NumPartitions, "replicationFactor": r.ReplicationFactor},
			fmt.Sprintf("created topic %s with %s", name, counted(int64(r.NumPartitions), "partition")))
	})
}

// idText is a topic id as Kafka writes it.
func idText(id kadm.TopicID) string { return cluster.TopicID(id).String() }

func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (f *topicFlags) print(v any, line string) error {
	if f.json() {
		return json.NewEncoder(os.Stdout).Encode(v)
	}
	_, err := fmt.Println(line)
	return err
}

func (f *topicFlags) list(ctx context.Context) error {
	return f.withAdmin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		topics, err := adm.ListTopicsWithInternal(ctx)
		if err != nil {
			return err
		}
		for _, t := range topics.Sorted() {
			if f.json() {
				err = json.NewEncoder(os.Stdout).Encode(map[string]any{"topic": t.Topic, "id": idText(t.ID), "partitions": len(t.Partitions), "internal": t.IsInternal})
			} else {
				_, err = fmt.Println(t.Topic)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *topicFlags) alter(ctx context.Context, name string) error {
	set, err := keyValues(f.configs)
	if err != nil {
		return err
	}
	if f.partitions < 0 && len(set) == 0 && len(f.delete) == 0 {
		return usagef("nothing to change: give --partitions, --config or --delete-config")
	}
	var ops []kadm.AlterConfig
	for k, v := range set {
		ops = append(ops, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: v})
	}
	for _, k := range f.delete {
		ops = append(ops, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
	}
	return f.withAdmin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		if err := f.checkDeleted(ctx, adm, name); err != nil {
			return err
		}
		if len(ops) > 0 {
			resp, err := adm.AlterTopicConfigs(ctx, ops, name)
			if err != nil {
				return err
			}
			r, err := resp.On(name, nil)
			if err == nil {
				err = r.Err
			}
			if err != nil {
				return refusedConfig(name, err, r.ErrMessage)
			}
		}
		if f.partitions >= 0 {
			resp, err := adm.UpdatePartitions(ctx, int(f.partitions), name)
			if err != nil {
				return err
			}
			r, err := resp.On(name, nil)
			if err == nil {
				err = r.Err
			}
			if err != nil {
				return withMessage(name, err, r.ErrMessage)
			}
		}
		return f.print(map[string]any{"topic": name}, "altered topic "+name)
	})
}

// checkDeleted refuses a --delete-config of a key that topics do not have: the
// broker takes it, as Apache Kafka does, and a mistyped key would stay set.
func (f *topicFlags) checkDeleted(ctx context.Context, adm *kadm.Client, name string) error {
	if len(f.delete) == 0 {
		return nil
	}
	described, err := adm.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return err
	}
	r, err := described.On(name, nil)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		return withMessage(name, err, r.ErrMessage)
	}
	for _, key := range f.delete {
		if !slices.ContainsFunc(r.Configs, func(c kadm.Config) bool { return c.Key == key }) {
			hint := ""
			if near := config.Nearest(key, config.TopicScope); near != "" {
				hint = " (did you mean " + near + "?)"
			}
			return fmt.Errorf("%w: --delete-config %s: topics have no such key%s", kerr.InvalidConfig, key, hint)
		}
	}
	return nil
}

func (f *topicFlags) remove(ctx context.Context, name string) error {
	whole := ctx
	return f.withAdmin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		if f.wait { // ask whom to wait for before anything is deleted
			topics, err := adm.ListTopicsWithInternal(ctx, name)
			if err != nil {
				return err
			}
			t, err := oneTopic(topics, name)
			if err == nil {
				_, err = f.status(ctx, name, t.ID)
			}
			if err != nil {
				return err
			}
		}
		resp, err := adm.DeleteTopics(ctx, name)
		if err != nil {
			return err
		}
		r, err := resp.On(name, nil)
		if err == nil {
			err = r.Err
		}
		if err != nil {
			return withMessage(name, err, r.ErrMessage)
		}
		if f.wait {
			if f.forever { // the broker waits for its grace time first
				ctx = whole
			}
			if err := f.awaitGone(ctx, idText(r.ID)); err != nil {
				return err
			}
		}
		return f.print(map[string]any{"topic": name, "deleted": true}, "deleted topic "+name)
	})
}

// awaitGone polls until the tier holds nothing of a deleted topic.
func (f *topicFlags) awaitGone(ctx context.Context, id string) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var status struct {
			Deleting []string `json:"deleting"`
		}
		if err := f.getJSON(ctx, "/tier/status", &status); err != nil {
			return err
		}
		waiting := false
		for _, d := range status.Deleting {
			waiting = waiting || d == id
		}
		if !waiting {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return &serverError{fmt.Errorf("the topic is deleted, its objects in the tier not yet (remote.object.delete.delay.ms is the grace time): %w", ctx.Err())}
		}
	}
}

// partitionStatus is what the admin listener says of one partition.
type partitionStatus struct {
	Partition        int32  `json:"partition"`
	Leader           int32  `json:"leader"`
	LeaderEpoch      int32  `json:"leaderEpoch"`
	LogStartOffset   int64  `json:"logStartOffset"`
	LocalStartOffset int64  `json:"localStartOffset"`
	RemoteEndOffset  int64  `json:"remoteEndOffset"`
	HighWatermark    int64  `json:"highWatermark"`
	LogEndOffset     int64  `json:"logEndOffset"`
	LocalBytes       int64  `json:"localBytes"`
	RemoteBytes      int64  `json:"remoteBytes"`
	Seals            string `json:"activeSegmentSeals"`
	NextRetention    string `json:"nextRetention"`
	// Compaction and DirtyRatio are there for compacted topics.
	Compaction string   `json:"compaction,omitempty"`
	DirtyRatio *float64 `json:"dirtyRatio,omitempty"`
	Offline    string   `json:"offline,omitempty"` // why, where it is
}

type topicStatus struct {
	Topic      string            `json:"topic"`
	ID         string            `json:"id"`
	Tiered     bool              `json:"tiered"`
	Retention  []configSource    `json:"retention"`
	Partitions []partitionStatus `json:"partitions"`
}

type configSource struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

func (f *topicFlags) describe(ctx context.Context, name string) error {
	return f.withAdmin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		topics, err := adm.ListTopicsWithInternal(ctx, name)
		if err != nil {
			return err
		}
		t, err := oneTopic(topics, name)
		if err != nil {
			return err
		}
		status, err := f.status(ctx, name, t.ID)
		if err != nil {
			return err
		}
		if f.json() {
			return json.NewEncoder(os.Stdout).Encode(status)
		}
		return printTopic(status)
	})
}

// oneTopic is the topic that was asked for, or why it is not there.
func oneTopic(topics kadm.TopicDetails, name string) (kadm.TopicDetail, error) {
	t, ok := topics[name]
	if !ok {
		return t, topicError(name, kerr.UnknownTopicOrPartition)
	}
	return t, topicError(name, t.Err)
}

// topicError is an error that a topic was answered with, with its name.
func topicError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return &kafkaError{kafka: kerr.UnknownTopicOrPartition, sentence: fmt.Sprintf("there is no topic %s; `strandline topic list` names those there are", shown(name))}
	}
	return fmt.Errorf("topic %s: %w", shown(name), err)
}

// status asks the admin listener, which must be that of the cluster that -b
// names: a topic's id is in one cluster only.
func (f *topicFlags) status(ctx context.Context, name string, id kadm.TopicID) (s topicStatus, err error) {
	err = f.getJSON(ctx, "/topics/status?topic="+url.QueryEscape(name), &s)
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return s, err
	}
	if err != nil || s.ID != idText(id) {
		return s, &serverError{fmt.Errorf("the admin listener %s does not know the topic %s of %s: --admin must name a broker of the same cluster, as its ready line does", f.admin, name, f.bootstrap)}
	}
	return s, nil
}

func printTopic(s topicStatus) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "topic\t%s\nid\t%s\ntiered\t%t\n", s.Topic, s.ID, s.Tiered)
	for _, r := range s.Retention {
		fmt.Fprintf(w, "%s\t%s\t(%s)\n", r.Key, r.Value, r.Source)
	}
	fmt.Fprintln(w, "\npartition\tleader\tlog start\tlocal start\tremote end\thigh watermark\tlocal bytes\tremote bytes")
	sort.Slice(s.Partitions, func(i, j int) bool { return s.Partitions[i].Partition < s.Partitions[j].Partition })
	for _, p := range s.Partitions {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", p.Partition, p.Leader, p.LogStartOffset, p.LocalStartOffset, p.RemoteEndOffset, p.HighWatermark, p.LocalBytes, p.RemoteBytes)
	}
	fmt.Fprintln(w)
	for _, p := range s.Partitions {
		if p.Offline != "" {
			fmt.Fprintf(w, "partition %d\toffline: %s\n", p.Partition, p.Offline)
			continue
		}
		fmt.Fprintf(w, "partition %d\tactive segment seals: %s\n\tnext retention pass: %s\n", p.Partition, p.Seals, p.NextRetention)
		if p.Compaction != "" {
			fmt.Fprintf(w, "\tcompaction: %s\n", p.Compaction)
		}
	}
	return w.Flush()
}
