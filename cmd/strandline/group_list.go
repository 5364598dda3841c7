package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// groupStates and groupTypes are those of Apache Kafka 4.4, as its tools write
// them.
var (
	groupStates = []string{"PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling", "NotReady"}
	groupTypes  = []string{"classic", "consumer", "share", "streams"}
)

type groupListFlags struct {
	*clientFlags
	states, types []string
}

func newGroupList(c *clientFlags) *cobra.Command {
	f := &groupListFlags{clientFlags: c}
	cmd := &cobra.Command{
		Use: "list", Short: "List the groups with their type and state", Args: exactArgs(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	cmd.Flags().StringSliceVar(&f.states, "state", nil, "groups in this state only ("+strings.Join(groupStates, ", ")+"); several with commas or again")
	cmd.Flags().StringSliceVar(&f.types, "type", nil, "groups of this type only ("+strings.Join(groupTypes, ", ")+"); several with commas or again")
	return cmd
}

// listedGroup is one line of group list.
type listedGroup struct {
	Group        string `json:"group"`
	Type         string `json:"type"`
	ProtocolType string `json:"protocolType"`
	State        string `json:"state"`
	Coordinator  int32  `json:"coordinator"`
}

func (f *groupListFlags) run(ctx context.Context) error {
	states, err := oneOf("--state", f.states, groupStates)
	if err != nil {
		return err
	}
	types, err := oneOf("--type", f.types, groupTypes)
	if err != nil {
		return err
	}
	return f.withGroups(ctx, "", func(ctx context.Context, adm *kadm.Client) error {
		listed, err := adm.ListGroupsByType(ctx, types, states...)
		if err != nil {
			return fmt.Errorf("listing groups: %w", ofOneBroker(err))
		}
		groups := []listedGroup{}
		for _, g := range listed.Sorted() {
			// A broker that is too old to filter names them all.
			if len(states) == 0 || slices.Contains(states, g.State) {
				groups = append(groups, listedGroup{g.Group, g.GroupType, g.ProtocolType, g.State, g.Coordinator})
			}
		}
		if f.json() {
			return printJSON(groups)
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "group\ttype\tprotocol\tstate\tcoordinator")
		for _, g := range groups {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\n", shown(g.Group), orDash(g.Type), orDash(shown(g.ProtocolType)), orDash(g.State), g.Coordinator)
		}
		return w.Flush()
	})
}

// oneOf returns the words of a list that the values are, whatever their case.
func oneOf(flag string, values, words []string) (found []string, err error) {
	for _, v := range values {
		i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, strings.TrimSpace(v)) })
		if i < 0 {
			return nil, usagef("%s %s: want one of %s", flag, v, strings.Join(words, ", "))
		}
		found = append(found, words[i])
	}
	return found, nil
}
