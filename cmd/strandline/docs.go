package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"strandline/cmd/serve"
	"strandline/metadata/config"
)

// newDocs prints the reference pages that are generated from the code; make
// docs writes them, and a test compares.
func newDocs() *cobra.Command {
	cmd := &cobra.Command{Use: "docs", Short: "Print generated reference pages", Hidden: true}
	cmd.AddCommand(
		&cobra.Command{Use: "config", Short: "docs/configuration.md", Args: exactArgs(0, "no argument"), RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Print(config.Reference())
			return err
		}},
		&cobra.Command{Use: "metrics", Short: "docs/metrics.md", Args: exactArgs(0, "no argument"), RunE: func(*cobra.Command, []string) error {
			page, err := serve.MetricsReference()
			if err == nil {
				_, err = fmt.Print(page)
			}
			return err
		}})
	return cmd
}
