package metric

import (
	"context"
	"io"
	"log/slog"

	"github.com/inorder-im/inorder/shared/env"
)

// Options say what is written.
type Options struct {
	Level slog.Level // the least of a line without metrics
	Stack string     // whose metrics they are; "" publishes none
}

// OptionsFromEnv reads LOG_LEVEL (debug, info, warn or error), METRICS (on or
// off) and STACK_NAME, which template.yaml sets. Without them the level is info
// and metrics are off.
func OptionsFromEnv(getenv func(string) string) (Options, error) {
	e := env.From(getenv)
	var o Options
	if level := getenv("LOG_LEVEL"); level != "" && o.Level.UnmarshalText([]byte(level)) != nil {
		e.Wrong("LOG_LEVEL", "debug, info, warn or error")
	}
	if e.OneOf("METRICS", "off", "on") == "on" {
		o.Stack = e.Text("STACK_NAME", "the stack's name where METRICS is on")
	}
	if err := e.Err(); err != nil {
		return Options{}, err
	}
	return o, nil
}

// handler writes JSON lines and completes those that have metrics.
type handler struct {
	slog.Handler
	options Options
}

// NewHandler makes a handler that writes JSON lines. Where metrics are published,
// a line that has any is written whatever its level, for it is the only place
// they are in.
func NewHandler(w io.Writer, o Options) slog.Handler {
	return &handler{slog.NewJSONHandler(w, nil), o}
}

// Enabled lets every line through to Handle where one of its metrics might count.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.options.Level || h.options.Stack != ""
}

// Handle writes a line. Only the record's own fields are looked at: metrics in
// Logger.With would be published with every line.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	var metrics []definition
	if h.options.Stack != "" {
		r.Attrs(func(a slog.Attr) bool {
			if q, ok := quantityOf(a); ok {
				metrics = append(metrics, definition{Name: a.Key, Unit: q.unit})
			}
			return true
		})
	}
	switch {
	case len(metrics) > 0:
		r = r.Clone()
		r.AddAttrs(slog.String(Dimension, h.options.Stack), slog.Any("_aws", metadata{
			Timestamp: r.Time.UnixMilli(),
			CloudWatchMetrics: []directive{{
				Namespace: Namespace, Dimensions: [][]string{{Dimension}}, Metrics: metrics,
			}},
		}))
	case r.Level < h.options.Level:
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the wrapping.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.options}
}

// WithGroup keeps the wrapping. No metric may be in a group: CloudWatch looks at
// the line's own members only.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.options}
}

// metadata is the _aws member of a line (CloudWatch User Guide, "Specification:
// Embedded metric format").
type metadata struct {
	Timestamp         int64 // ms
	CloudWatchMetrics []directive
}

type directive struct {
	Namespace  string
	Dimensions [][]string
	Metrics    []definition
}

type definition struct {
	Name string
	Unit unit
}
