package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"strandline/broker/wire"
	"strandline/cmd/serve"
	"strandline/metadata/config"
)

// docsPage is a reference page that is generated from the code.
type docsPage struct {
	name, file string
	text       func() (string, error)
}

// docsPages are all of them; make docs writes them, and a test compares.
func docsPages() []docsPage {
	return []docsPage{
		{"apis", "docs/apis.md", func() (string, error) { return wire.Reference(), nil }},
		{"config", "docs/configuration.md", func() (string, error) { return config.Reference(), nil }},
		{"metrics", "docs/metrics.md", serve.MetricsReference},
	}
}

func newDocs() *cobra.Command {
	cmd := &cobra.Command{Use: "docs", Short: "Print generated reference pages", Hidden: true}
	for _, p := range docsPages() {
		cmd.AddCommand(&cobra.Command{Use: p.name, Short: p.file, Args: exactArgs(0, "no argument"), RunE: func(*cobra.Command, []string) error {
			text, err := p.text()
			if err == nil {
				_, err = fmt.Print(text)
			}
			return err
		}})
	}
	return cmd
}
