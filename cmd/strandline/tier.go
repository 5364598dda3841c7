package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func newTier(c *clientFlags) *cobra.Command {
	cmd := parentOf(&cobra.Command{Use: "tier", Short: "Look at the object-storage tier"})
	c.add(cmd)
	cmd.AddCommand(
		&cobra.Command{
			Use: "status [TOPIC]", Short: "Show what is local, remote and waiting to be uploaded", Args: atMostOneTopic,
			RunE: func(cmd *cobra.Command, args []string) error { return tierStatus(cmd.Context(), c, args) },
		},
		&cobra.Command{
			Use: "ls [TOPIC]", Short: "List the remote segments of the catalog", Args: atMostOneTopic,
			RunE: func(cmd *cobra.Command, args []string) error { return tierList(cmd.Context(), c, args) },
		})
	return cmd
}

func atMostOneTopic(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("want one topic name or none, as in `%s`; got %s", cmd.UseLine(), counted(int64(len(args)), "argument"))
	}
	return nil
}

func topicQuery(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return "?topic=" + url.QueryEscape(args[0])
}

// tierPartition is one entry of tier status.
type tierPartition struct {
	Topic                string  `json:"topic"`
	Partition            int32   `json:"partition"`
	LogStartOffset       int64   `json:"logStartOffset"`
	LocalStartOffset     int64   `json:"localStartOffset"`
	RemoteEndOffset      int64   `json:"remoteEndOffset"`
	LogEndOffset         int64   `json:"logEndOffset"`
	LocalBytes           int64   `json:"localBytes"`
	RemoteBytes          int64   `json:"remoteBytes"`
	RemoteSegments       int64   `json:"remoteSegments"`
	PendingSegments      int64   `json:"pendingSegments"`
	PendingBytes         int64   `json:"pendingBytes"`
	OldestPendingSeconds float64 `json:"oldestPendingSeconds"`
	LastError            string  `json:"lastError"`
}

func tierStatus(ctx context.Context, c *clientFlags, args []string) error {
	var raw json.RawMessage
	if err := c.getJSON(ctx, "/tier/status"+topicQuery(args), &raw); err != nil {
		return err
	}
	if c.json() {
		_, err := fmt.Println(string(raw))
		return err
	}
	var status struct {
		Store struct {
			OK        bool   `json:"ok"`
			URL       string `json:"url"`
			LastError string `json:"lastError"`
		} `json:"store"`
		Cache struct {
			Bytes      int64 `json:"bytes"`
			LimitBytes int64 `json:"limitBytes"`
		} `json:"cache"`
		Partitions     []tierPartition `json:"partitions"`
		Deleting       []string        `json:"deleting"`
		DeletionErrors []string        `json:"deletionErrors"`
	}
	if err := json.Unmarshal(raw, &status); err != nil {
		return fmt.Errorf("tier status: %w", err)
	}
	state := "ok"
	if !status.Store.OK {
		state = "NOT OK: " + cmp.Or(status.Store.LastError, "it has not answered yet")
	}
	fmt.Printf("store %s: %s\ncache: %d of %d bytes\n\n", status.Store.URL, state, status.Cache.Bytes, status.Cache.LimitBytes)
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "topic\tpartition\tlog start\tlocal start\tremote end\tlog end\tlocal bytes\tremote bytes\tremote segments\tpending segments\tpending bytes\toldest pending\tlast error")
	for _, p := range status.Partitions {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f s\t%s\n", p.Topic, p.Partition, p.LogStartOffset, p.LocalStartOffset, p.RemoteEndOffset,
			p.LogEndOffset, p.LocalBytes, p.RemoteBytes, p.RemoteSegments, p.PendingSegments, p.PendingBytes, p.OldestPendingSeconds, p.LastError)
	}
	if len(status.Deleting) > 0 {
		fmt.Fprintf(w, "\ndeleting what is left of %s: %s\n", counted(int64(len(status.Deleting)), "deleted topic"), strings.Join(status.Deleting, ", "))
	}
	for _, e := range status.DeletionErrors {
		fmt.Fprintln(w, "cannot be deleted yet:", e)
	}
	return w.Flush()
}

// tierSegment is one line of tier ls.
type tierSegment struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	BaseOffset int64  `json:"baseOffset"`
	LastOffset int64  `json:"lastOffset"`
	Bytes      int64  `json:"bytes"`
	Key        string `json:"key"`
	State      string `json:"state"`
}

func tierList(ctx context.Context, c *clientFlags, args []string) error {
	var segments []tierSegment
	if err := c.getJSON(ctx, "/tier/segments"+topicQuery(args), &segments); err != nil {
		return err
	}
	if c.json() {
		out := json.NewEncoder(os.Stdout)
		for _, s := range segments {
			if err := out.Encode(s); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "topic\tpartition\tfirst\tlast\tbytes\tstate\tkey")
	for _, s := range segments {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\n", s.Topic, s.Partition, s.BaseOffset, s.LastOffset, s.Bytes, s.State, s.Key)
	}
	return w.Flush()
}
