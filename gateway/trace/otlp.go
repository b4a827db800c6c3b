package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/ramus-dev/ramus/internal/text"
)

// The types below are the JSON of OTLP (opentelemetry-proto, ExportTraceServiceRequest). Numbers of 64 bits are strings
// there, and ids are hexadecimal.

type request struct {
	ResourceSpans []resourceSpans `json:"resourceSpans"`
}

type resourceSpans struct {
	Resource   resource     `json:"resource"`
	ScopeSpans []scopeSpans `json:"scopeSpans"`
}

type resource struct {
	Attributes []attribute `json:"attributes"`
}

type scopeSpans struct {
	Scope scope  `json:"scope"`
	Spans []span `json:"spans"`
}

type scope struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

type span struct {
	TraceID    string      `json:"traceId"`
	SpanID     string      `json:"spanId"`
	Parent     string      `json:"parentSpanId,omitempty"`
	Name       string      `json:"name"`
	Kind       int         `json:"kind"`
	Start      string      `json:"startTimeUnixNano"`
	End        string      `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes,omitempty"`
	Status     *status     `json:"status,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message,omitempty"`
}

type attribute struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

type value struct {
	String *string `json:"stringValue,omitempty"`
	Int    *string `json:"intValue,omitempty"`
	Bool   *bool   `json:"boolValue,omitempty"`
}

// Kinds of spans and codes of status that are used.
const (
	kindInternal = 1
	kindServer   = 2
	kindClient   = 3
	statusError  = 2
)

// maxText bounds a text in an attribute, in bytes.
const maxText = 500

func str(key, v string) attribute {
	v = text.Clip(v, maxText)
	return attribute{key, value{String: &v}}
}

func num(key string, v int64) attribute {
	s := strconv.FormatInt(v, 10)
	return attribute{key, value{Int: &s}}
}

// nanos returns a time as OTLP has it.
func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// traceID returns the id of a run's trace.
func traceID(run string) string {
	sum := sha256.Sum256([]byte("ramus trace\x00" + run))
	return hex.EncodeToString(sum[:16])
}

// spanID returns the id of a span of a run. part is "" for the run's own span.
func spanID(run, part string) string {
	sum := sha256.Sum256([]byte("ramus span\x00" + run + "\x00" + part))
	return hex.EncodeToString(sum[:8])
}
