package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"strandline/cmd/serve"
)

func newServer() *cobra.Command {
	var files, sets []string
	var checkConfig bool
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a broker",
		Long: "Run a broker in the foreground until SIGTERM or SIGINT.\n\n" +
			"Keys come from --set, else the environment (STRANDLINE_ and the key in upper case with _ for .),\n" +
			"else the last --config file that has them, else their default.",
		Args: exactArgs(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			src := serve.Sources{Files: files, Environ: os.Environ(), Sets: sets}
			if checkConfig {
				return asExit(printConfig(src))
			}
			return asExit(runServer(cmd.Context(), src))
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&files, "config", nil, "properties or YAML file; may be given several times, the last one wins")
	f.StringArrayVar(&sets, "set", nil, "key=value; may be given several times")
	f.BoolVar(&checkConfig, "check-config", false, "print every effective key with its value and source, touch nothing, and end")
	return cmd
}

// asExit keeps the exit code of a server's error.
func asExit(err error) error {
	var e *serve.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &e):
		return &serverError{err}
	case e.Code == serve.ExitListen:
		return &exitError{code: e.Code, err: &serverError{fmt.Errorf("%w; stop what holds the address, or name another (listeners, admin.listeners; port 0 is any free port)", e.Err)}}
	}
	return &exitError{code: e.Code, err: &serverError{e.Err}}
}

// runServer serves until ctx ends.
func runServer(ctx context.Context, src serve.Sources) error {
	return serve.Run(src, serve.Process{Command: os.Args[0], Version: version, Commit: commit, Stdout: os.Stdout, Stderr: os.Stderr, Stop: ctx.Done()})
}

func printConfig(src serve.Sources) error {
	effective, warnings, err := serve.Effective(src)
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		fmt.Fprintln(os.Stderr, "strandline: warning:", warning.Text)
	}
	sort.Slice(effective, func(i, j int) bool { return effective[i].Key < effective[j].Key })
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	for _, e := range effective {
		fmt.Fprintf(w, "%s\t= %s\t(%s)\n", e.Key, e.Value, e.Source)
	}
	return w.Flush()
}
