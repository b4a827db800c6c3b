// Package oteltest is a stand-in of a collector of OpenTelemetry traces. It is an HTTP server with state that takes OTLP
// over HTTP with JSON. It refuses requests that a collector refuses, and spans with wrong ids or times, and it can be down.
package oteltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Collector is the stand-in. Its exported fields are its options and may change until Start. Methods are safe for
// concurrent use.
type Collector struct {
	// Token is the value that the header Authorization must have. If it is empty, none is asked for.
	Token string

	server *http.Server
	url    string

	mu      sync.Mutex // guards the fields below
	spans   []Span
	refused []string
	down    bool
	changed chan struct{}
}

// Span is a span as received. Its attributes have their values as text.
type Span struct {
	Trace, ID, Parent, Name string
	Start, End              int64 // in nanoseconds
	Failed                  bool
	Attributes              map[string]string
}

// Start serves on loopback.
func (c *Collector) Start() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.url, c.changed = "http://"+l.Addr().String(), make(chan struct{})
	c.server = &http.Server{Handler: c}
	go c.server.Serve(l)
	return nil
}

// Close stops the collector.
func (c *Collector) Close() error { return c.server.Close() }

// URL returns the address of the collector.
func (c *Collector) URL() string { return c.url }

// SetDown makes the collector answer with 503, or as usual.
func (c *Collector) SetDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

// Spans returns all accepted spans in the order of their start, and the reasons of all refusals.
func (c *Collector) Spans() (spans []Span, refused []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans = slices.Clone(c.spans)
	slices.SortStableFunc(spans, func(a, b Span) int { return int(max(-1, min(1, a.Start-b.Start))) })
	return spans, slices.Clone(c.refused)
}

// Changed returns a channel that is closed at the next request.
func (c *Collector) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// ServeHTTP takes a request.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		close(c.changed)
		c.changed = make(chan struct{})
	}()
	refuse := func(status int, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		c.refused = append(c.refused, text)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"code":3,"message":%q}`, text)
	}
	switch {
	case c.down:
		w.Header().Set("Retry-After", "0")
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	case r.URL.Path != "/v1/traces":
		refuse(http.StatusNotFound, "there is nothing at %s", r.URL.Path)
		return
	case r.Method != http.MethodPost:
		refuse(http.StatusMethodNotAllowed, "%s instead of POST", r.Method)
		return
	case c.Token != "" && r.Header.Get("Authorization") != c.Token:
		refuse(http.StatusUnauthorized, "no token")
		return
	case r.Header.Get("Content-Type") != "application/json":
		refuse(http.StatusUnsupportedMediaType, "media type %q", r.Header.Get("Content-Type"))
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	spans, perr := parse(body)
	if err != nil || perr != nil {
		refuse(http.StatusBadRequest, "%v %v", err, perr)
		return
	}
	c.spans = append(c.spans, spans...)
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"partialSuccess":{}}`)
}

var hexID = regexp.MustCompile(`^[0-9a-f]+$`)

// parse reads an ExportTraceServiceRequest. It is stricter than the protocol, so that mistakes are seen.
func parse(body []byte) ([]Span, error) {
	var in struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []attribute }
			ScopeSpans []struct {
				Scope struct{ Name, Version string }
				Spans []struct {
					TraceID, SpanID, ParentSpanID, Name string
					Kind                                int
					Start                               string `json:"startTimeUnixNano"`
					End                                 string `json:"endTimeUnixNano"`
					Attributes                          []attribute
					Status                              struct {
						Code    int
						Message string
					}
				}
			}
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	var spans []Span
	for _, r := range in.ResourceSpans {
		if !slices.ContainsFunc(r.Resource.Attributes, func(a attribute) bool { return a.Key == "service.name" }) {
			return nil, fmt.Errorf("the resource has no service.name")
		}
		for _, s := range r.ScopeSpans {
			for _, one := range s.Spans {
				start, err1 := strconv.ParseInt(one.Start, 10, 64)
				end, err2 := strconv.ParseInt(one.End, 10, 64)
				switch {
				case len(one.TraceID) != 32 || !hexID.MatchString(one.TraceID) || strings.Trim(one.TraceID, "0") == "":
					return nil, fmt.Errorf("trace id %q", one.TraceID)
				case len(one.SpanID) != 16 || !hexID.MatchString(one.SpanID):
					return nil, fmt.Errorf("span id %q", one.SpanID)
				case one.ParentSpanID != "" && len(one.ParentSpanID) != 16:
					return nil, fmt.Errorf("parent %q", one.ParentSpanID)
				case err1 != nil || err2 != nil || start <= 0 || end < start:
					return nil, fmt.Errorf("%s is from %q to %q", one.Name, one.Start, one.End)
				case one.Name == "" || one.Kind < 1 || one.Kind > 5:
					return nil, fmt.Errorf("name %q, kind %d", one.Name, one.Kind)
				}
				span := Span{one.TraceID, one.SpanID, one.ParentSpanID, one.Name, start, end, one.Status.Code == 2,
					make(map[string]string)}
				for _, a := range one.Attributes {
					span.Attributes[a.Key] = a.text()
				}
				spans = append(spans, span)
			}
		}
	}
	return spans, nil
}

type attribute struct {
	Key   string
	Value struct {
		StringValue *string
		IntValue    *string
		BoolValue   *bool
	}
}

func (a attribute) text() string {
	switch v := a.Value; {
	case v.StringValue != nil:
		return *v.StringValue
	case v.IntValue != nil:
		return *v.IntValue
	case v.BoolValue != nil:
		return strconv.FormatBool(*v.BoolValue)
	}
	return ""
}
