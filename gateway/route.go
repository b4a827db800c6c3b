package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Route is one row of the table: everything about one way in, for the mux,
// for the authorisation test and for the OpenAPI document alike.
type Route struct {
	Method  string
	Pattern string // of http.ServeMux
	Access  Access
	Summary string
	// Query, Request and Response are zero values of the types of the query
	// parameters, the JSON body and the JSON answer; nil where there is none.
	Query, Request, Response any
	// Media is the answer's type where it is not application/json. For streams
	// Response is the type of one event or line.
	Media string
	// Body bounds the request's body in bytes; 0 means 1 MiB, below 0 that the handler does.
	Body   int64
	Handle func(c *call) error
}

// call is one request on its way through a handler.
type call struct {
	*Server
	W   http.ResponseWriter
	R   *http.Request
	Who Who
	ID  string // names the request in the log
	// access is the route's.
	access Access
	// Until is when the signed link ends by which the request came; zero: it came by a token.
	Until time.Time
}

// reply writes a success.
func (c *call) reply(v any) error { return c.replyStatus(http.StatusOK, v) }

func (c *call) replyStatus(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot encode the answer: %w", err)
	}
	b = c.Secrets.JSON(b) // also a number that is one
	c.W.Header().Set("Content-Type", "application/json")
	c.W.Header().Set("Cache-Control", "no-store")
	c.W.WriteHeader(status)
	_, err = c.W.Write(append(b, '\n'))
	return err
}

// body reads the request's JSON, strictly: a misspelt field that is ignored
// would be a command run other than asked for.
func (c *call) body(into any) error {
	defer c.hurry()()
	d := json.NewDecoder(c.R.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return problem(KindInvalid, "the request has no body; want a JSON object")
		}
		return badJSON(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return problem(KindInvalid, "the request's body goes on after its JSON object")
	}
	return nil
}

// optionalBody is body where none at all means all defaults.
func (c *call) optionalBody(into any) error {
	defer c.hurry()()
	b, err := io.ReadAll(c.R.Body)
	if err != nil {
		return badJSON(err)
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil
	}
	c.R.Body = io.NopCloser(bytes.NewReader(b))
	return c.body(into)
}

// slowestBody is how long a request may take to arrive.
const slowestBody = time.Minute

// hurry bounds the time to read a body. The function lifts the bound again: a
// deadline that passes later would look like a caller who hung up.
func (c *call) hurry() func() {
	rc := http.NewResponseController(c.W)
	_ = rc.SetReadDeadline(time.Now().Add(slowestBody)) // only a recorder in a test has none
	return func() { _ = rc.SetReadDeadline(time.Time{}) }
}

// badJSON keeps limits apart from mistakes; encoding/json has no type for an
// unknown field, so whatever is left is a mistake of the sender.
func badJSON(err error) error {
	var tooBig *http.MaxBytesError
	if errors.As(err, &tooBig) {
		return err
	}
	return problem(KindInvalid, "cannot read the request's body: %v", err)
}

// query fills a struct from the query, by the fields' JSON names. A parameter
// that does not exist is refused, for the same reason as in body.
func (c *call) query(into any) error {
	v := reflect.ValueOf(into).Elem()
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = v.Field(i)
	}
	for name, values := range c.R.URL.Query() {
		f, ok := fields[name]
		if !ok {
			return problem(KindInvalid, "unknown query parameter %q", name)
		}
		text := values[len(values)-1]
		switch f.Kind() {
		case reflect.String:
			f.SetString(text)
		case reflect.Bool:
			switch text {
			case "", "1", "true":
				f.SetBool(true)
			case "0", "false":
				f.SetBool(false)
			default:
				return problem(KindInvalid, "query parameter %s: %q is neither 1 nor 0", name, text)
			}
		case reflect.Int, reflect.Int64:
			n, err := strconv.ParseInt(text, 10, f.Type().Bits())
			if err != nil || n < 0 {
				return problem(KindInvalid, "query parameter %s: %q is no whole number", name, text)
			}
			f.SetInt(n)
		case reflect.Slice:
			f.Set(reflect.ValueOf(slices.Clone(values)))
		default:
			return fmt.Errorf("query parameter %s has a type that is not supported", name)
		}
	}
	return nil
}

// recorder notices whether and how an answer began, so that an error after
// that is not written into the middle of it.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
	clean  *redact.Writer // takes secrets out of the answer; nil where it goes out as it is
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Hijack gives the connection away: what is written there is no answer.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status, w.clean = http.StatusSwitchingProtocols, nil
	}
	return conn, buffered, err
}

// begin: an answer whose length was given is something stored, which was
// cleaned when it was, or a file of a repository, which git gives as it is, too.
func (w *recorder) begin(status int) {
	w.status = status
	if w.Header().Get("Content-Length") != "" {
		w.clean = nil
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	if w.clean != nil {
		return w.clean.Write(b)
	}
	return w.send(b)
}

func (w *recorder) send(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom lets the system send a file where nothing is to be taken out of it: the Git
// server's answers to clones.
func (w *recorder) ReadFrom(src io.Reader) (int64, error) {
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	if w.clean != nil {
		return io.Copy(w.clean, src)
	}
	n, err := io.Copy(w.ResponseWriter, src)
	w.bytes += n
	return n, err
}

// sender is a recorder behind its writer without secrets.
type sender struct{ *recorder }

func (w sender) Write(b []byte) (int, error) { return w.send(b) }

// end writes what may have been the beginning of a secret.
func (w *recorder) end() error {
	if w.clean == nil {
		return nil
	}
	return w.clean.Flush()
}

// Flush is there for the Git server, which streams packs.
func (w *recorder) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serve makes a handler of a row: access, limits, the log, and the one place
// where an error becomes an answer.
func (s *Server) serve(route Route, fixed *Who) http.Handler {
	limit := route.Body
	if limit == 0 {
		limit = 1 << 20
	}
	return http.HandlerFunc(func(hw http.ResponseWriter, r *http.Request) {
		start := s.Now()
		w := &recorder{ResponseWriter: hw}
		if route.Access != AccessGit && !s.Secrets.Empty() {
			w.clean = s.Secrets.Writer(sender{w})
		}
		c := &call{Server: s, W: w, R: r, ID: rand.Text()[:12], access: route.Access}
		w.Header().Set("X-Request-Id", c.ID)
		w.Header().Set("X-Content-Type-Options", "nosniff")

		err := func() (err error) {
			defer func() {
				if v := recover(); v != nil {
					if v == http.ErrAbortHandler {
						panic(v)
					}
					err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
				}
			}()
			if err := c.admit(route, fixed); err != nil {
				return err
			}
			if limit > 0 {
				r.Body = http.MaxBytesReader(w, r.Body, limit)
			}
			return route.Handle(c)
		}()

		var p *Problem
		if err != nil {
			p = asProblem(err, c.Who)
			p.Request = c.ID
			p.Detail = s.Secrets.String(p.Detail)
			if w.status == 0 {
				c.refuse(route, p)
			}
		}
		_ = w.end() // the caller may be gone, which is no fault of the answer
		took := s.Now().Sub(start)
		status := w.status
		if p != nil && p.Kind == kindGone {
			status = p.Status
		}
		s.metrics.request(route, status, took)
		s.logRequest(r.Context(), c, route, status, w.bytes, took, err, p)
	})
}

// admit finds out who is calling and whether they may.
func (c *call) admit(route Route, fixed *Who) error {
	if fixed != nil {
		c.Who = *fixed
		return nil
	}
	if route.Access == AccessGit || route.Access == AccessPreview {
		return nil
	}
	unsigned := links.ErrUnsigned
	if route.Access == AccessSigned && c.Links != nil {
		var until time.Time
		if until, unsigned = c.Links.Expires(c.R); unsigned == nil {
			c.Until = until
			return nil
		}
	}
	who, err := c.identify(c.R)
	if err == nil {
		c.Who = who
	}
	switch {
	case who.May(route.Access):
	case err != nil:
		return &Problem{Kind: KindUnauthorized, Detail: "the token is refused: " + err.Error(),
			Hint: "`ramus token create` makes a new one", cause: err}
	case !errors.Is(unsigned, links.ErrUnsigned):
		return linkProblem(unsigned)
	case who.Nobody():
		return problem(KindUnauthorized, "this needs a token").
			withHint("send `Authorization: Bearer TOKEN`; `ramus token create` makes one")
	default:
		return problem(KindDenied, "%s has not the scope %q", who.Subject, route.Access).
			withHint("a token with that scope, for every repository where the route is for administrators")
	}
	if repo := c.R.PathValue("repo"); repo != "" && !c.Who.Sees(repo) {
		return notFound("repository", repo)
	}
	return nil
}

func notFound(what, name string) *Problem {
	return problem(KindNotFound, "there is no %s %q", what, name)
}

// refuse writes a problem: as a page where people follow links.
func (c *call) refuse(route Route, p *Problem) {
	h := c.W.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Length")
	switch p.Kind {
	case KindUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="ramus"`)
	case KindUnavailable, KindStreams:
		h.Set("Retry-After", "2")
	}
	if (route.Access == AccessSigned || route.Media == mediaHTML) && c.wantsPage() {
		c.refusePage(p)
		return
	}
	b, err := json.Marshal(p)
	if err != nil {
		b = []byte(`{"type":"about:blank","status":500,"kind":"internal"}`)
	}
	c.W.WriteHeader(p.Status)
	_, _ = c.W.Write(append(b, '\n')) // the caller may be gone; the log has it all the same
}

func (s *Server) logRequest(ctx context.Context, c *call, route Route, status int, bytes int64, took time.Duration, err error, p *Problem) {
	level := slog.LevelDebug
	attrs := []slog.Attr{
		slog.String("request", c.ID), slog.String("method", c.R.Method), slog.String("path", c.R.URL.Path),
		slog.String("route", route.Pattern), slog.Int("status", status), slog.Int64("bytes", bytes),
		slog.Duration("took", took), slog.String("who", c.Who.Subject),
	}
	if err != nil {
		level = slog.LevelInfo
		if p.Kind == KindInternal {
			level = slog.LevelError
		}
		cause := error(p)
		if p.cause != nil {
			cause = p.cause
		}
		attrs = append(attrs, slog.String("kind", string(p.Kind)), slog.String("error", cause.Error()))
	}
	s.Log.LogAttrs(context.WithoutCancel(ctx), level, "request", attrs...)
}
