package redact

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
)

// Handler removes secrets from the records of a log before next gets them. It covers messages, keys and values of any
// type. Without secrets it returns next itself.
func (s *Secrets) Handler(next slog.Handler) slog.Handler {
	if s.Empty() {
		return next
	}
	return &handler{s, next}
}

type handler struct {
	s    *Secrets
	next slog.Handler
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, h.s.String(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.attr(a))
		return true
	})
	return h.next.Handle(ctx, clean)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.s, h.next.WithAttrs(h.attrs(attrs))}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.s, h.next.WithGroup(h.s.String(name))}
}

func (h *handler) attrs(attrs []slog.Attr) []slog.Attr {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.attr(a)
	}
	return clean
}

func (h *handler) attr(a slog.Attr) slog.Attr {
	a.Key = h.s.String(a.Key)
	switch a.Value = a.Value.Resolve(); a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(h.s.String(a.Value.String()))
	case slog.KindGroup:
		a.Value = slog.GroupValue(h.attrs(a.Value.Group())...)
	case slog.KindAny:
		// The format of next is not known. A value that shows a secret in any of the usual formats is replaced by its
		// redacted text.
		v := a.Value.Any()
		for _, verb := range []string{"%v", "%+v", "%s"} {
			text := fmt.Sprintf(verb, v)
			if clean := h.s.String(text); clean != text {
				a.Value = slog.StringValue(clean)
				return a
			}
		}
		// JSON has the values of nested pointers, too.
		if text, err := json.Marshal(v); err == nil {
			if clean := h.s.JSON(text); !bytes.Equal(clean, text) {
				a.Value = slog.StringValue(string(clean))
			}
		}
	}
	return a
}
