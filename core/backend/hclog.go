package backend

import (
	"context"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// go-plugin speaks hclog and Kale speaks slog; this file is the only one that knows both.

// levelTrace is hclog's trace as a slog level.
const levelTrace = slog.LevelDebug - 4

func levelToSlog(l hclog.Level) slog.Level {
	switch l {
	case hclog.Trace:
		return levelTrace
	case hclog.Debug:
		return slog.LevelDebug
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	}
	return slog.LevelInfo
}

func levelToHclog(l slog.Level) hclog.Level {
	switch {
	case l < slog.LevelDebug:
		return hclog.Trace
	case l < slog.LevelInfo:
		return hclog.Debug
	case l < slog.LevelWarn:
		return hclog.Info
	case l < slog.LevelError:
		return hclog.Warn
	}
	return hclog.Error
}

// pluginLogger gives the loggers of a plugin: lines of JSON on w that the host's go-plugin client takes apart.
func pluginLogger(w io.Writer) (hclog.Logger, *slog.Logger) {
	hl := hclog.New(&hclog.LoggerOptions{Output: w, Level: hclog.Debug, JSONFormat: true})
	return hl, slog.New(&hclogHandler{to: hl})
}

// hclogHandler is a slog.Handler that writes to an hclog.Logger.
type hclogHandler struct {
	to     hclog.Logger
	prefix string // of open groups, each with its dot
}

func (h *hclogHandler) Enabled(_ context.Context, l slog.Level) bool {
	return levelToHclog(l) >= h.to.GetLevel()
}

func (h *hclogHandler) Handle(_ context.Context, r slog.Record) error {
	var args []any
	r.Attrs(func(a slog.Attr) bool {
		args = appendAttr(args, h.prefix, a)
		return true
	})
	h.to.Log(levelToHclog(r.Level), r.Message, args...)
	return nil
}

func (h *hclogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var args []any
	for _, a := range attrs {
		args = appendAttr(args, h.prefix, a)
	}
	return &hclogHandler{to: h.to.With(args...), prefix: h.prefix}
}

func (h *hclogHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &hclogHandler{to: h.to, prefix: h.prefix + name + "."}
}

// appendAttr adds a as hclog's alternating keys and values, with groups flattened into dotted keys.
func appendAttr(args []any, prefix string, a slog.Attr) []any {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, inner := range v.Group() {
			args = appendAttr(args, prefix, inner)
		}
		return args
	}
	if a.Key == "" {
		return args
	}
	if v.Kind() == slog.KindAny {
		return append(args, prefix+a.Key, v.Any())
	}
	return append(args, prefix+a.Key, v.String())
}

// hostLogger is an hclog.Logger that writes to a slog.Logger. What go-plugin itself says about normal life is kept
// at debug level; what the plugin logged keeps its level.
type hostLogger struct {
	to   *slog.Logger
	name string
	args []any
	// unwanted says that what go-plugin does is not wanted any more, so that its complaints are none.
	unwanted func() bool
}

func newHostLogger(lg *slog.Logger, unwanted func() bool) hclog.Logger {
	return &hostLogger{to: lg, unwanted: unwanted}
}

func (h *hostLogger) Log(level hclog.Level, msg string, args ...any) {
	l := levelToSlog(level)
	if h.name == "" && (l == slog.LevelInfo || l > slog.LevelInfo && h.unwanted()) {
		l = slog.LevelDebug // go-plugin's own voice: the plugin's lines come through a named logger
	}
	var kept []any
	for i := 0; i+1 < len(args); i += 2 {
		if args[i] == "timestamp" || h.name == "" && args[i] == "plugin" { // ours has both already: the time, and which plugin it is
			continue
		}
		kept = append(kept, args[i], args[i+1])
	}
	h.to.Log(context.Background(), l, msg, kept...)
}

func (h *hostLogger) Trace(msg string, args ...any) { h.Log(hclog.Trace, msg, args...) }
func (h *hostLogger) Debug(msg string, args ...any) { h.Log(hclog.Debug, msg, args...) }
func (h *hostLogger) Info(msg string, args ...any)  { h.Log(hclog.Info, msg, args...) }
func (h *hostLogger) Warn(msg string, args ...any)  { h.Log(hclog.Warn, msg, args...) }
func (h *hostLogger) Error(msg string, args ...any) { h.Log(hclog.Error, msg, args...) }

func (h *hostLogger) enabled(l hclog.Level) bool {
	return h.to.Enabled(context.Background(), levelToSlog(l))
}
func (h *hostLogger) IsTrace() bool { return h.enabled(hclog.Trace) }
func (h *hostLogger) IsDebug() bool { return h.enabled(hclog.Debug) }
func (h *hostLogger) IsInfo() bool  { return h.enabled(hclog.Info) }
func (h *hostLogger) IsWarn() bool  { return h.enabled(hclog.Warn) }
func (h *hostLogger) IsError() bool { return h.enabled(hclog.Error) }

func (h *hostLogger) ImpliedArgs() []any { return h.args }

func (h *hostLogger) With(args ...any) hclog.Logger {
	return &hostLogger{to: h.to.With(args...), name: h.name, args: append(append([]any(nil), h.args...), args...), unwanted: h.unwanted}
}

func (h *hostLogger) Name() string { return h.name }

func (h *hostLogger) Named(name string) hclog.Logger {
	if h.name != "" {
		name = h.name + "." + name
	}
	return h.ResetNamed(name)
}

func (h *hostLogger) ResetNamed(name string) hclog.Logger {
	return &hostLogger{to: h.to, name: name, args: h.args, unwanted: h.unwanted}
}

func (h *hostLogger) SetLevel(hclog.Level) {} // the level belongs to the slog handler

func (h *hostLogger) GetLevel() hclog.Level {
	for _, l := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn} {
		if h.enabled(l) {
			return l
		}
	}
	return hclog.Error
}

func (h *hostLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(h.to.Handler(), slog.LevelInfo)
}

func (h *hostLogger) StandardWriter(opts *hclog.StandardLoggerOptions) io.Writer {
	return h.StandardLogger(opts).Writer()
}
