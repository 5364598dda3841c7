package quorum

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// raftLogger passes Raft's log lines on to slog, one level lower each: what
// Raft takes for a warning, such as the start of an election, is its daily
// business; two levels lower while quiet. Errors stay errors.
type raftLogger struct {
	hclog.Logger // the null logger, for what is not overridden
	log          *slog.Logger
	quiet        *atomic.Bool
}

func newRaftLogger(log *slog.Logger, quiet *atomic.Bool) hclog.Logger {
	return &raftLogger{Logger: hclog.NewNullLogger(), log: log, quiet: quiet}
}

func (l *raftLogger) write(level slog.Level, msg string, args []any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	l.log.Log(context.Background(), level, "raft: "+msg, args...)
}

func (l *raftLogger) level(level hclog.Level) slog.Level {
	switch {
	case level == hclog.Error:
		return slog.LevelError
	case level == hclog.Warn && !l.quiet.Load():
		return slog.LevelInfo
	case level == hclog.Warn || level == hclog.Info:
		return slog.LevelDebug
	}
	return slog.LevelDebug - 4
}

func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	l.write(l.level(level), msg, args)
}
func (l *raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *raftLogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *raftLogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *raftLogger) With(args ...any) hclog.Logger {
	return &raftLogger{Logger: l.Logger, log: l.log.With(args...), quiet: l.quiet}
}
func (l *raftLogger) Named(string) hclog.Logger      { return l }
func (l *raftLogger) ResetNamed(string) hclog.Logger { return l }
