package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

const resetHelp = `Set what a group has committed. Nothing is changed until --execute is given;
before, the old and the new offsets are shown.

Which partitions: --topic (all of a topic's, or some), --all-topics (those that
the group has committed), or the ones of --from-file.

Where to, one of:
  --to earliest|latest|OFFSET|@unix-ms  @: the first record of that time or later
  --shift-by N                          N offsets on, or back where N is negative
  --by-duration D                       the first record of that age or younger:
                                        90m, 36h, 7d, or ISO 8601 as in P1DT12H
  --to-current                          what is committed, the end where nothing is
  --from-file F                         lines of TOPIC,PARTITION,OFFSET, or of
                                        GROUP,TOPIC,PARTITION,OFFSET, or what this
                                        command prints with -o json; - is standard
                                        input

An offset outside of the log becomes the log's nearest end, and a note says so.
The group must have no members; a group that is not there yet is made.`

type groupResetFlags struct {
	*clientFlags
	topics     []string
	allTopics  bool
	to         string
	shiftBy    int64
	byDuration string
	toCurrent  bool
	fromFile   string
	execute    bool
	dryRun     bool
}

func newGroupReset(c *clientFlags) *cobra.Command {
	f := &groupResetFlags{clientFlags: c}
	cmd := &cobra.Command{
		Use: "reset-offsets GROUP", Short: "Set what a group has committed; shows what it would do unless --execute is given",
		Long: resetHelp, Args: oneGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := 0
			for _, name := range []string{"to", "shift-by", "by-duration", "to-current", "from-file"} {
				if cmd.Flags().Changed(name) {
					given++
				}
			}
			if given != 1 {
				return usagef("give one of --to, --shift-by, --by-duration, --to-current and --from-file")
			}
			return f.run(cmd.Context(), args[0], cmd.Flags().Changed("shift-by"))
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.topics, "topic", nil, "TOPIC, or TOPIC:0,1 for some partitions; may be given several times")
	fl.BoolVar(&f.allTopics, "all-topics", false, "all partitions that the group has committed")
	fl.StringVar(&f.to, "to", "", "earliest, latest, an offset, or @unix-ms")
	fl.Int64Var(&f.shiftBy, "shift-by", 0, "move by this many offsets, back where negative")
	fl.StringVar(&f.byDuration, "by-duration", "", "the first record of that age or younger, as in 90m, 7d or PT36H")
	fl.BoolVar(&f.toCurrent, "to-current", false, "what is committed now, the end of the log where nothing is")
	fl.StringVar(&f.fromFile, "from-file", "", "read the offsets from this file (-: standard input)")
	fl.BoolVar(&f.execute, "execute", false, "do it")
	fl.BoolVar(&f.dryRun, "dry-run", false, "show only (the default)")
	return cmd
}

// partitionBounds is what is known of a partition that is to be reset: Start and
// End bound its log, End exclusive; ByTime is the first offset of the time asked
// for, if a record is that new.
type partitionBounds struct {
	topic      string
	partition  int32
	start, end int64
	committed  known
	byTime     known
}

// resetRule says which partitions are reset, where the flags do not, and what to.
type resetRule struct {
	partitions kadm.TopicsSet
	millis     known // records of this time or later are asked for
	offset     func(b partitionBounds) (offset int64, note string, err error)
}

// rule reads the flags that say what to reset to.
func (f *groupResetFlags) rule(group string, shift bool) (r resetRule, err error) {
	switch {
	case f.fromFile != "":
		return f.fileRule(group)
	case f.toCurrent:
		r.offset = func(b partitionBounds) (int64, string, error) {
			if !b.committed.ok {
				return b.end, "nothing is committed: the end of the log", nil
			}
			return b.committed.n, "", nil
		}
	case shift:
		r.offset = func(b partitionBounds) (int64, string, error) {
			if !b.committed.ok {
				return 0, "", fmt.Errorf("group %s has committed nothing of topic %s partition %d that could be shifted; --to sets an offset", group, b.topic, b.partition)
			}
			return b.clamp(addOffset(b.committed.n, f.shiftBy))
		}
	case f.byDuration != "":
		age, err := parseAge(f.byDuration)
		if err != nil {
			return r, err
		}
		r.toTime(max(time.Now().Add(-age).UnixMilli(), 0))
	case f.to == "earliest":
		r.offset = func(b partitionBounds) (int64, string, error) { return b.start, "", nil }
	case f.to == "latest":
		r.offset = func(b partitionBounds) (int64, string, error) { return b.end, "", nil }
	case strings.HasPrefix(f.to, "@"):
		ms, err := strconv.ParseInt(f.to[1:], 10, 64)
		if err != nil || ms < 0 {
			return r, usagef("--to %s: want @ and milliseconds since 1970", f.to)
		}
		r.toTime(ms)
	default:
		n, err := strconv.ParseInt(f.to, 10, 64)
		if err != nil || n < 0 {
			return r, usagef("--to %s: want earliest, latest, an offset, or @unix-ms", f.to)
		}
		r.offset = func(b partitionBounds) (int64, string, error) { return b.clamp(n) }
	}
	return r, nil
}

func (r *resetRule) toTime(ms int64) {
	r.millis = knownTo(ms)
	r.offset = func(b partitionBounds) (int64, string, error) {
		if !b.byTime.ok {
			return b.end, "no record is that new: the end of the log", nil
		}
		return b.byTime.n, "", nil
	}
}

// clamp keeps an offset within the log.
func (b partitionBounds) clamp(n int64) (int64, string, error) {
	switch {
	case n < b.start:
		return b.start, fmt.Sprintf("%d is below the start of the log", n), nil
	case n > b.end:
		return b.end, fmt.Sprintf("%d is above the end of the log", n), nil
	}
	return n, "", nil
}

// addOffset is n+by, at most the largest offset there can be.
func addOffset(n, by int64) int64 {
	if by > 0 && n > math.MaxInt64-by {
		return math.MaxInt64
	}
	return n + by
}

var isoDuration = regexp.MustCompile(`^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$`)

// parseAge reads a duration as Go writes it, in days, or as ISO 8601 has it.
func parseAge(s string) (time.Duration, error) {
	bad := usagef("--by-duration %s: want an age such as 90m, 36h, 7d or P1DT12H", s)
	if m := isoDuration.FindStringSubmatch(strings.ToUpper(s)); m != nil {
		total, some := time.Duration(0), false
		for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
			if m[i+1] == "" {
				continue
			}
			n, err := strconv.ParseInt(m[i+1], 10, 64)
			if err != nil || n > int64((math.MaxInt64-total)/unit) {
				return 0, bad
			}
			total, some = total+time.Duration(n)*unit, true
		}
		if !some || strings.HasSuffix(strings.ToUpper(s), "T") {
			return 0, bad
		}
		return total, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil || n < 0 || n > int64(math.MaxInt64/(24*time.Hour)) {
			return 0, bad
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, bad
	}
	return d, nil
}

// fileRule reads --from-file.
func (f *groupResetFlags) fileRule(group string) (r resetRule, err error) {
	var data []byte
	if f.fromFile == "-" {
		data, err = io.ReadAll(io.LimitReader(os.Stdin, 64<<20))
	} else {
		data, err = os.ReadFile(f.fromFile)
	}
	if err != nil {
		return r, usagef("--from-file: %w", err)
	}
	plan, others, err := readPlan(bytes.NewReader(data), group)
	switch {
	case err != nil:
		return r, usagef("--from-file %s: %w", f.fromFile, err)
	case len(plan) == 0 && others > 0:
		return r, usagef("--from-file %s: it has other groups' offsets, and none of group %s", f.fromFile, group)
	case len(plan) == 0:
		return r, usagef("--from-file %s: it has no offsets", f.fromFile)
	}
	for topic, partitions := range plan {
		for p := range partitions {
			r.partitions.Add(topic, p)
		}
	}
	r.offset = func(b partitionBounds) (int64, string, error) { return b.clamp(plan[b.topic][b.partition]) }
	return r, nil
}

// resetPlan has the new offset of each partition.
type resetPlan map[string]map[int32]int64

// readPlan reads lines of CSV, as Apache Kafka's kafka-consumer-groups exports
// them, or of this command's JSON. others counts the lines of other groups.
func readPlan(in io.Reader, group string) (plan resetPlan, others int, err error) {
	plan = resetPlan{}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		l, err := readPlanLine(text)
		switch {
		case err != nil:
			return nil, 0, fmt.Errorf("line %d: %w", n, err)
		case l.Group != "" && l.Group != group:
			others++
			continue
		}
		if plan[l.Topic] == nil {
			plan[l.Topic] = map[int32]int64{}
		}
		if _, twice := plan[l.Topic][l.Partition]; twice {
			return nil, 0, fmt.Errorf("line %d: topic %s partition %d is there twice", n, l.Topic, l.Partition)
		}
		plan[l.Topic][l.Partition] = l.NewOffset
	}
	return plan, others, lines.Err()
}

// planLine is a line of --from-file; Group is empty where a line names none.
type planLine struct {
	Group     string
	Topic     string
	Partition int32
	NewOffset int64
}

func readPlanLine(text string) (l planLine, err error) {
	if text[0] == '{' {
		l.Partition, l.NewOffset = -1, -1
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return l, fmt.Errorf("not a JSON object as -o json prints it: %w", err)
		}
	} else {
		fields, err := csv.NewReader(strings.NewReader(text)).Read()
		if err != nil {
			return l, err
		}
		if len(fields) == 4 {
			l.Group, fields = fields[0], fields[1:]
		}
		if len(fields) != 3 {
			return l, errors.New("want TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET")
		}
		l.Topic = fields[0]
		p, perr := strconv.ParseInt(strings.TrimSpace(fields[1]), 10, 32)
		o, oerr := strconv.ParseInt(strings.TrimSpace(fields[2]), 10, 64)
		if perr != nil || oerr != nil {
			return l, fmt.Errorf("%s,%s: want a partition and an offset", fields[1], fields[2])
		}
		l.Partition, l.NewOffset = int32(p), o
	}
	if l.Topic == "" || l.Partition < 0 || l.NewOffset < 0 {
		return l, errors.New("want a topic, a partition of 0 or more and an offset of 0 or more")
	}
	return l, nil
}

// resetOffset is one line of group reset-offsets.
type resetOffset struct {
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Old       known  `json:"oldOffset"`
	New       int64  `json:"newOffset"`
	Executed  bool   `json:"executed"`
	Note      string `json:"note,omitempty"`
}

func (f *groupResetFlags) run(ctx context.Context, group string, shift bool) error {
	if f.execute && f.dryRun {
		return usagef("give --execute or --dry-run, not both")
	}
	rule, err := f.rule(group, shift)
	if err != nil {
		return err
	}
	set, err := topicPartitions(f.topics)
	switch {
	case err != nil:
		return err
	case len(set) > 0 && f.allTopics:
		return usagef("give --topic or --all-topics, not both")
	case rule.partitions != nil && (len(set) > 0 || f.allTopics):
		return usagef("--from-file says which partitions; leave --topic and --all-topics out")
	case rule.partitions != nil:
		set = rule.partitions
	case len(set) == 0 && !f.allTopics:
		return usagef("give --topic or --all-topics")
	}
	var resets []resetOffset
	var failed error
	var isNew bool
	err = f.withGroups(ctx, group, func(ctx context.Context, adm *kadm.Client) error {
		var err error
		if isNew, err = resettable(ctx, adm, group); err != nil {
			return err
		}
		committed, err := adm.FetchOffsets(ctx, group)
		if err != nil {
			return groupError(group, err, "")
		}
		if f.allTopics {
			committed.Each(func(o kadm.OffsetResponse) {
				if o.Err == nil && o.At >= 0 {
					set.Add(o.Topic, o.Partition)
				}
			})
			if len(set) == 0 {
				return fmt.Errorf("group %s has committed nothing that could be reset; --topic names topics", shown(group))
			}
		}
		if resets, err = rule.plan(ctx, adm, group, set, committed); err != nil || !f.execute {
			return err
		}
		resets, failed, err = execute(ctx, adm, group, resets)
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(f.print(group, isNew, resets), failed)
}

// resettable refuses a group that has members, or is not one of consumers. isNew
// is set where there is none yet.
func resettable(ctx context.Context, adm *kadm.Client, group string) (isNew bool, err error) {
	described, failed, err := describeGroups(ctx, adm, []string{group})
	own := (*kafkaError)(nil)
	switch {
	case err != nil:
		return false, err
	case len(described) == 0 && errors.Is(failed, kerr.GroupIDNotFound) && errors.As(failed, &own) && !own.otherType:
		return true, nil
	case len(described) == 0:
		return false, failed
	}
	if g := described[0]; g.State != "Empty" {
		return false, &kafkaError{kafka: kerr.NonEmptyGroup, sentence: fmt.Sprintf(
			"group %s is %s with %s, and its offsets can be reset only while it has none; stop its consumers first, %s names them",
			shown(group), g.State, counted(int64(len(g.Members)), "member"), describeMembers(group))}
	}
	return false, nil
}

// plan finds the new offset of each partition.
func (r *resetRule) plan(ctx context.Context, adm *kadm.Client, group string, set kadm.TopicsSet, committed kadm.OffsetResponses) (resets []resetOffset, err error) {
	if err := allPartitions(ctx, adm, set); err != nil {
		return nil, err
	}
	topics := set.Topics()
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("listing the starts of logs: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("listing the ends of logs: %w", err)
	}
	byTime := kadm.ListedOffsets{}
	if r.millis.ok {
		if byTime, err = adm.ListOffsetsAfterMilli(ctx, r.millis.n, topics...); err != nil {
			return nil, fmt.Errorf("listing offsets by time: %w", err)
		}
	}
	for _, t := range set.Sorted() {
		for _, p := range t.Partitions {
			b := partitionBounds{topic: t.Topic, partition: p}
			start, err1 := listedOffset(starts, t.Topic, p)
			end, err2 := listedOffset(ends, t.Topic, p)
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
			b.start, b.end = start.Offset, end.Offset
			if c, ok := committed.Lookup(t.Topic, p); ok && c.Err == nil && c.At >= 0 {
				b.committed = knownTo(c.At)
			}
			if r.millis.ok {
				at, err := listedOffset(byTime, t.Topic, p)
				if err != nil {
					return nil, err
				}
				if at.Timestamp >= 0 { // else it is the end of the log
					b.byTime = knownTo(at.Offset)
				}
			}
			offset, note, err := r.offset(b)
			if err != nil {
				return nil, err
			}
			resets = append(resets, resetOffset{Group: group, Topic: t.Topic, Partition: p, Old: b.committed, New: offset, Note: note})
		}
	}
	return resets, nil
}

func listedOffset(listed kadm.ListedOffsets, topic string, partition int32) (kadm.ListedOffset, error) {
	l, ok := listed.Lookup(topic, partition)
	if !ok {
		return l, fmt.Errorf("topic %s partition %d: %w", topic, partition, kerr.UnknownTopicOrPartition)
	}
	if l.Err != nil {
		return l, fmt.Errorf("topic %s partition %d: %w", topic, partition, l.Err)
	}
	return l, nil
}

// execute commits. It returns what is committed; failed says why others are not.
func execute(ctx context.Context, adm *kadm.Client, group string, resets []resetOffset) (done []resetOffset, failed, err error) {
	offsets := kadm.Offsets{}
	for _, r := range resets {
		offsets.AddOffset(r.Topic, r.Partition, r.New, -1)
	}
	answers, err := adm.CommitOffsets(ctx, group, offsets)
	if err != nil {
		return nil, nil, groupError(group, err, "")
	}
	var why failures
	for _, r := range resets {
		a, ok := answers.Lookup(r.Topic, r.Partition)
		switch {
		case !ok:
			why.add(r.Topic, r.Partition, errors.New("the broker said nothing of it"))
		case a.Err != nil:
			why.add(r.Topic, r.Partition, groupError(group, a.Err, ""))
		default:
			r.Executed = true
			done = append(done, r)
		}
	}
	return done, why.err(), nil
}

func (f *groupResetFlags) print(group string, isNew bool, resets []resetOffset) error {
	if f.json() {
		return printJSON(resets)
	}
	if len(resets) == 0 {
		return nil
	}
	switch {
	case f.execute:
		fmt.Printf("group %s is reset:\n\n", shown(group))
	case isNew:
		fmt.Printf("there is no group %s yet; it is made, and its offsets set, once --execute is given:\n\n", shown(group))
	default:
		fmt.Printf("group %s; nothing is changed until --execute is given:\n\n", shown(group))
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "topic\tpartition\told offset\tnew offset")
	for _, r := range resets {
		fmt.Fprintf(w, "%s\t%d\t%s\t%d", r.Topic, r.Partition, r.Old, r.New)
		if r.Note != "" {
			fmt.Fprintf(w, "\t%s", r.Note)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
