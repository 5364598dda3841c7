package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sort"
	"strings"
	"time"

	"strandline/metadata/config"
	"strandline/metadata/node"
)

// closeMax is how long an orderly stop may take before what is left is cut. The
// contract allows 10 s in all.
const closeMax = 8 * time.Second

// Process is what a server has of its process.
type Process struct {
	Command         string // how it was called, for what the banner suggests
	Version, Commit string
	Stdout, Stderr  io.Writer
	Stop            <-chan struct{} // closed by the first signal
}

// Run is the server command: it starts a node, serves until p.Stop is closed or
// the node fails, and stops it.
func Run(src Sources, p Process) error {
	broker, warnings, _, err := Parse(src)
	if err != nil {
		return err
	}
	if broker.ReadyFile != "" {
		made := append([]string{broker.MetadataLogDir, broker.Cache.Dir}, broker.LogDirs...)
		if err := checkReadyFile(broker.ReadyFile, made); err != nil {
			return err
		}
	}
	logger := newLogger(broker, p.Stderr)
	for _, w := range warnings {
		logger.Warn("a key has no effect", "key", w.Key, "reason", w.Text)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case <-p.Stop:
			cancel(errStopped)
		case <-ctx.Done():
		}
	}()
	n, err := Start(ctx, Config{Broker: broker, Version: p.Version, Commit: p.Commit, Logger: logger, Hook: stepHook(), Failed: func(err error) { cancel(err) }})
	if err != nil {
		switch cause := context.Cause(ctx); cause {
		case nil:
			return err
		case errStopped:
			return nil
		default:
			return cause // what made the start end: err only says that it did
		}
	}
	if err := announce(p, broker.ReadyFile, n.line); err != nil {
		cancel(err)
	}
	<-ctx.Done()
	cause := context.Cause(ctx)
	if cause == errStopped {
		logger.Info("stopping")
	} else {
		logger.Error("stopping because the node cannot go on", "err", cause)
	}
	if cause != errStopped {
		closeFailed(logger, n)
		return cause
	}
	stop, stopped := context.WithTimeout(context.Background(), closeMax)
	defer stopped()
	if err := n.Close(stop); err != nil {
		logger.Error("the stop was not orderly; the next start scans the logs", "err", err)
	}
	logger.Info("stopped")
	return nil
}

const (
	// handOverMax is how long a node that failed tries to tell the others that it
	// goes.
	handOverMax = time.Second
	// failedCloseMax is how long its parts are waited for in all.
	failedCloseMax = 5 * time.Second
)

// closeFailed closes what still can be of a node that cannot go on. A part that
// waits for the one that failed never ends: whoever starts the process again must
// not wait for it.
func closeFailed(logger *slog.Logger, n *Node) {
	stop, stopped := context.WithTimeout(context.Background(), handOverMax)
	defer stopped()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = n.Close(stop) // why it failed is told
	}()
	select {
	case <-ended:
	case <-time.After(failedCloseMax):
		logger.Warn("some parts have not ended; the process does")
	}
}

// announce tells scripts and people that the broker serves: the ready file
// first, so that who has read the banner finds it.
func announce(p Process, readyFile string, line readyLine) error {
	if readyFile != "" {
		if err := writeReadyFile(readyFile, line); err != nil {
			return err
		}
	}
	banner(p.Stdout, p.Command, p.Version, line)
	return nil
}

type stopError struct{}

func (stopError) Error() string { return "stopped by a signal" }

// errStopped is the cause of an orderly stop.
var errStopped error = stopError{}

func newLogger(b config.Broker, out io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(b.LogLevel)); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: errorText}
	if b.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(out, opts))
	}
	return slog.New(slog.NewTextHandler(out, opts))
}

// errorText makes an error its text: the handler of text would print the stack
// traces that some libraries' errors carry.
func errorText(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok && a.Value.Kind() == slog.KindAny && err != nil {
		a.Value = slog.StringValue(err.Error())
	}
	return a
}

// oldNames are the keys that speak for another one where it is not set.
var oldNames = map[string]string{"log.dirs": "log.dir", "node.id": "broker.id"}

// EffectiveKey is one line of --check-config.
type EffectiveKey struct{ Key, Value, Source string }

// Effective lists every key with the value that it has and where that comes
// from. It touches nothing but the files that src names.
func Effective(src Sources) ([]EffectiveKey, []config.Warning, error) {
	broker, warnings, set, err := Parse(src)
	if err != nil {
		return nil, warnings, err
	}
	if err := node.Supported(broker); err != nil {
		return nil, warnings, &ExitError{Code: ExitConfig, Err: err}
	}
	var keys []EffectiveKey
	for _, v := range config.DescribeBroker(config.Layers{Static: broker.Static}) {
		e := EffectiveKey{Key: v.Name, Value: v.Value, Source: "default"}
		if p, ok := set[v.Name]; ok {
			e.Source = p.Source
		} else if p, ok := set[oldNames[v.Name]]; ok && p.Value != "-1" { // broker.id=-1 is none
			e.Value, e.Source = p.Value, p.Source+", as "+oldNames[v.Name]
		}
		switch {
		case v.Sensitive:
			e.Value = "[hidden]"
		case v.Null:
			e.Value = "(none)"
		}
		keys = append(keys, e)
	}
	return keys, warnings, nil
}

// Formats are the versions of everything on disk and in the store that this
// binary reads and writes.
func Formats() map[string]string {
	f := map[string]string{}
	for name, v := range formatVersions() {
		f[name] = fmt.Sprint(v)
	}
	return f
}

// MetricsReference is docs/metrics.md.
func MetricsReference() (string, error) {
	descs, err := describeMetrics()
	if err != nil {
		return "", err
	}
	sort.Slice(descs, func(i, j int) bool { return descs[i].name < descs[j].name })
	var b strings.Builder
	b.WriteString("# Metrics\n\nGenerated by `make docs`. All are served on `/metrics` of the admin listener, with those of the Go runtime and of the process.\n\n| name | labels | meaning |\n|---|---|---|\n")
	for _, d := range descs {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", d.name, d.labels, d.help)
	}
	return b.String(), nil
}
