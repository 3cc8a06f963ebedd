package devstack

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
)

// natsLog is the nats-server's logger. The server's own one ends the process at
// a fatal error, such as a port that is taken; this one keeps what was said.
type natsLog struct {
	log   *slog.Logger
	fatal atomic.Pointer[string] // the first fatal error
}

func (l *natsLog) Noticef(format string, v ...any) { l.say(slog.LevelInfo, format, v) }
func (l *natsLog) Warnf(format string, v ...any)   { l.say(slog.LevelWarn, format, v) }
func (l *natsLog) Errorf(format string, v ...any)  { l.say(slog.LevelError, format, v) }
func (l *natsLog) Debugf(format string, v ...any)  { l.say(slog.LevelDebug, format, v) }
func (l *natsLog) Tracef(format string, v ...any)  { l.say(slog.LevelDebug, format, v) }

func (l *natsLog) Fatalf(format string, v ...any) {
	msg := fmt.Sprintf(format, v...)
	l.fatal.CompareAndSwap(nil, &msg)
	l.say(slog.LevelError, "%s", []any{msg})
}

func (l *natsLog) say(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "nats-server", "says", fmt.Sprintf(format, v...))
	}
}
