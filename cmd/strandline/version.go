package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"strandline/cmd/serve"
)

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and the formats that this binary reads and writes",
		Args:  exactArgs(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			switch output {
			case "text":
				_, err := fmt.Printf("strandline %s (commit %s, %s)\n", version, commit, runtime.Version())
				return err
			case "json":
				return json.NewEncoder(os.Stdout).Encode(map[string]any{
					"version": version, "commit": commit, "go": runtime.Version(), "formats": serve.Formats(),
				})
			}
			return usagef("-o %s: want text or json", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}
