// Command strandline is the whole product in one binary: the server, and the
// client commands that talk to it or to any Kafka-protocol broker.
//
// It holds wiring only: subcommands, one file each, flags and exit codes. What
// a node is made of is put together in cmd/serve.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"strandline/cmd/serve"
)

// Set by the linker.
var (
	version = "dev"
	commit  = "unknown"
)

// The process's first thread is main's: what gives its thread a lower priority for
// good (metadata/background) never has that one, whose priority tools show.
func init() { runtime.LockOSThread() }

// Exit codes of every command (the server adds 3 and 4).
const (
	exitFailed = 1
	exitUsage  = 2
)

// exitError carries the exit code of a failure.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usagef reports a command line that cannot be understood.
func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

func main() {
	root := newRoot()
	err := root.ExecuteContext(untilSignal())
	if err == nil {
		return
	}
	code := exitFailed
	var e *exitError
	if errors.As(err, &e) {
		code = e.code
	}
	if err.Error() != "" {
		fmt.Fprintln(os.Stderr, "strandline:", explain(err))
	}
	os.Exit(code)
}

// untilSignal returns a context that ends with the first signal to stop. A second
// one ends the process at once. Nothing else listens for signals, so that none is
// lost between two listeners, however early it comes.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(serve.ExitSignal)
	}()
	return ctx
}

func newRoot() *cobra.Command {
	root := parentOf(&cobra.Command{
		Use:           "strandline",
		Short:         "A Kafka-protocol log service with a tier on object storage",
		SilenceUsage:  true,
		SilenceErrors: true,
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		hint := ""
		if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
			hint = unknownFlag(cmd, unknown.GetSpecifiedName())
		}
		return usagef("%w%s; `%s --help` lists the flags", sentence(err), hint, cmd.CommandPath())
	})
	c := &clientFlags{}
	root.AddCommand(newServer(), newVersion(), newTopic(c), newProduce(c), newConsume(c), newGroup(c), newTier(c), newSegment(), newDocs())
	return root
}

// sentence says what a flag wants in place of how its value failed to be parsed.
func sentence(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	flag := bad.GetFlag()
	want := ""
	switch kind := flag.Value.Type(); kind {
	case "duration":
		want = "a time with its unit, as in 30s"
	case "bool":
		want = "true or false"
	case "int16", "int32", "int64", "int":
		want = "a whole number"
		if errors.Is(err, strconv.ErrRange) {
			bits := map[string]int{"int16": 16, "int32": 32}[kind]
			if bits == 0 {
				bits = 64
			}
			want = fmt.Sprintf("%s of at most %d", want, int64(1)<<(bits-1)-1)
		}
	default:
		return err
	}
	return fmt.Errorf("--%s %s: want %s", flag.Name, bad.GetValue(), want)
}

// exactArgs is cobra.ExactArgs with our exit code and a sentence.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("want %s, as in `%s`; got %s", what, cmd.UseLine(), counted(int64(len(args)), "argument"))
		}
		return nil
	}
}
