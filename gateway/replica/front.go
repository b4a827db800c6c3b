package replica

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Front passes requests on to the replicas that own their repositories. Its exported fields are its options, which may be
// changed until [Front.Open]. All methods are safe for concurrent use.
type Front struct {
	// Group knows the owners. Executor and Git are those of this replica. All are required.
	Group    *ownership.Cluster
	Executor *executor.Executor
	Git      *gitd.Server
	// Home is the name of the replica with all that belongs to no repository. Required.
	Home string
	// Keys is the folder of keys, which the home gives to new replicas.
	Keys string
	// Sessions finds people at the home. Nil means that nobody can sign in.
	Sessions *Sessions
	// Desk answers the questions of other replicas. Nil means that it answers none.
	Desk *gather.Desk
	// Tournament returns the repository of a tournament of this replica, and Link that of a shared link. Both return "" for one that is not
	// here. Nil means that there are none.
	Tournament func(ctx context.Context, name string) string
	Link       func(id string) string
	// Keepers have records of work that go along with its repository, by names that all replicas share.
	Keepers map[string]Keeper
	// Losses are the losses of this replica with its volume.
	Losses []Loss
	// Order orders a machine for a container that waits, at the home, and returns what is done. Nil means that there are none.
	Order func() string
	// Secret is known to all replicas of the installation. It has [SecretMin] bytes at least.
	Secret []byte
	// Patience is how long a request waits for an owner that cannot be reached. The default is 25 s.
	Patience time.Duration
	// Most bounds the requests that are passed on at once. The default is 1024.
	Most int
	// Log gets a line for each request that is passed on, at Debug. Nil discards it.
	Log *slog.Logger

	identity *identity
	base     *http.Transport
	proxy    *httputil.ReverseProxy
	places   places
	tokens   answers[verdict]
	visitors answers[visitor]
	slots    chan struct{}
	stats    counters
	room     room
	closing  context.Context // ends with Close
	close    context.CancelFunc
	work     sync.WaitGroup
	taking   sync.Mutex // held while a copy is taken into use

	staging  sync.Mutex        // guards complete
	complete map[string]string // the ids of complete copies that wait for the assignment, by repository

	gating sync.Mutex // guards gates
	gates  map[string]*gate
}

// counters count since [Front.Open].
type counters struct{ passed, failed, refused, waiting atomic.Int64 }

// Stats counts requests since [Front.Open].
type Stats struct {
	Passed  int64 // passed on to other replicas
	Failed  int64 // of these, those that no replica answered
	Refused int64 // from other replicas, for repositories that are not here
	Waiting int64 // being passed on now
}

// Stats returns the numbers of requests.
func (f *Front) Stats() Stats {
	return Stats{f.stats.passed.Load(), f.stats.failed.Load(), f.stats.refused.Load(), f.stats.waiting.Load()}
}

// Headers between replicas.
const (
	headerFrom   = "Ramus-Replica-From"   // the replica that passes the request on
	headerTo     = "Ramus-Replica-To"     // the replica that it is for
	headerRepo   = "Ramus-Replica-Repo"   // the repository that it is for
	headerClient = "Ramus-Replica-Client" // the address of the client
	headerLocal  = "Ramus-Replica-Local"  // it came by the unix socket
	headerSecure = "Ramus-Replica-Secure" // the client speaks TLS
)

var headers = []string{headerFrom, headerTo, headerRepo, headerClient, headerLocal, headerSecure}

// Open makes the certificates. It opens no connection.
func (f *Front) Open() (err error) {
	if f.identity, err = newIdentity(f.Secret); err != nil {
		return err
	}
	f.Patience, f.Most = cmp.Or(f.Patience, 25*time.Second), cmp.Or(f.Most, 1024)
	if f.Log == nil {
		f.Log = slog.New(slog.DiscardHandler)
	}
	f.slots = make(chan struct{}, f.Most)
	config := f.identity.config()
	f.base = &http.Transport{TLSClientConfig: config, DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second, MaxIdleConnsPerHost: 32, IdleConnTimeout: 30 * time.Second,
		// A body is sent when the other side begins to read it. Until then the request may go elsewhere.
		ExpectContinueTimeout: time.Minute, DisableCompression: true}
	f.places.init()
	f.gates, f.complete = map[string]*gate{}, map[string]string{}
	f.closing, f.close = context.WithCancel(context.Background())
	f.proxy = &httputil.ReverseProxy{Rewrite: f.rewrite, Transport: roundTripper{f}, FlushInterval: -1,
		ErrorHandler: f.answerError, ErrorLog: slog.NewLogLogger(f.Log.Handler(), slog.LevelDebug)}
	return nil
}

// Close ends background work, and closes idle connections.
func (f *Front) Close() {
	if f == nil || f.base == nil {
		return
	}
	f.close()
	f.work.Wait()
	f.base.CloseIdleConnections()
}

// TLS returns the configuration of the listener at the inner address.
func (f *Front) TLS() *tls.Config { return f.identity.config() }

// passing is a request on its way to another replica.
type passing struct {
	repo    string // "" if it is for a replica
	replica string // "" if the owner of repo is meant
	local   bool
}

type passingKey struct{}

// pass returns a handler that passes a request on.
func (f *Front) pass(p passing) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case f.slots <- struct{}{}:
			defer func() { <-f.slots }()
		default:
			f.stats.failed.Add(1)
			f.answerError(w, r, errCrowded)
			return
		}
		f.stats.passed.Add(1)
		f.stats.waiting.Add(1)
		defer f.stats.waiting.Add(-1)
		begun := time.Now()
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always is
		f.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passingKey{}, p)))
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			f.places.forgetMissed()
		}
		f.Log.LogAttrs(r.Context(), slog.LevelDebug, "passed on", slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.String("repo", p.repo), slog.String("replica", p.replica), slog.String("client", r.RemoteAddr),
			slog.Duration("took", time.Since(begun)))
	})
}

var errCrowded = errors.New("too many requests are on their way to other replicas")

// rewrite makes the request for the other replica. Its address is chosen later.
func (f *Front) rewrite(r *httputil.ProxyRequest) {
	p, _ := r.In.Context().Value(passingKey{}).(passing)
	out := r.Out
	out.Host = r.In.Host
	out.URL.Scheme, out.URL.Host = "https", "replica"
	for _, name := range headers {
		out.Header.Del(name)
	}
	// ReverseProxy removes what a client may claim about its address, unless it came by a proxy of the operator.
	if via := r.In.Header.Values("X-Forwarded-For"); len(via) > 0 {
		out.Header["X-Forwarded-For"] = via
	}
	out.Header.Set(headerFrom, f.Group.Name)
	out.Header.Set(headerRepo, p.repo)
	out.Header.Set(headerClient, r.In.RemoteAddr)
	if p.local {
		out.Header.Set(headerLocal, "1")
	}
	if r.In.TLS != nil {
		out.Header.Set(headerSecure, "1")
	}
	if out.Body != nil && out.ContentLength != 0 {
		out.Header.Set("Expect", "100-continue")
	}
}

// answerError answers a request that no replica answered.
func (f *Front) answerError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has gone
	}
	f.Log.Info("cannot pass a request on", "path", r.URL.Path, "err", err)
	w.Header().Set("Retry-After", "2")
	writeUnavailable(w, r, fmt.Sprintf("the replica that owns this does not answer: %v; try again in a moment", err))
}

// writeUnavailable answers git with a text, and others with a problem.
func writeUnavailable(w http.ResponseWriter, r *http.Request, text string) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if gitd.Serves(r.URL.Path) {
		http.Error(w, text, http.StatusServiceUnavailable)
		return
	}
	p := route.AsProblem(route.NewProblem(route.KindUnavailable, "%s", text), route.Who{})
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may be gone
}

// errMisdirected is the error of a replica that does nothing, because the request is for another one.
var errMisdirected = errors.New("the request came to another replica")

// errNoOwner is the error of a request for a replica that nobody is at the moment.
var errNoOwner = errors.New("no process is that replica now")

// target returns the replica that a request is for.
func (f *Front) target(ctx context.Context, p passing, again bool) (ownership.Replica, error) {
	r, ok := ownership.Replica{}, false
	switch {
	case p.replica != "":
		r, ok = f.Group.Named(p.replica)
	case again:
		r, ok = f.Group.Look(ctx, p.repo)
	default:
		r, ok = f.Group.Find(p.repo)
	}
	if !ok || r.URL == "" {
		return r, errNoOwner
	}
	return r, nil
}

// roundTripper sends a request to its owner, and finds the owner again while nothing of the body was read.
type roundTripper struct{ *Front }

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	p, _ := r.Context().Value(passingKey{}).(passing)
	body := &unread{ReadCloser: r.Body}
	late := time.Now().Add(f.Patience)
	for try := 0; ; try++ {
		resp, err := f.attempt(r, p, body, try > 0)
		if err == nil && resp.StatusCode != http.StatusMisdirectedRequest {
			return resp, nil
		}
		if err == nil {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
			resp.Body.Close()
			err = fmt.Errorf("%w: %s", errMisdirected, bytes.TrimSpace(text))
		}
		if !body.isUntouched() || !mayRepeat(r, err) || time.Now().After(late) {
			f.stats.failed.Add(1)
			return nil, err
		}
		wait := time.NewTimer(min(time.Duration(try+1)*50*time.Millisecond, 500*time.Millisecond))
		select {
		case <-wait.C:
		case <-r.Context().Done():
			wait.Stop()
			return nil, context.Cause(r.Context())
		}
	}
}

func (f roundTripper) attempt(r *http.Request, p passing, body *unread, again bool) (*http.Response, error) {
	to, err := f.target(r.Context(), p, again)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(to.URL)
	if err != nil {
		return nil, fmt.Errorf("cannot use the address of the replica %s: %w", to.Name, err)
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = at.Scheme, at.Host
	out.Header.Set(headerTo, to.Name)
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = body.attempt()
	}
	return f.base.RoundTrip(out)
}

// mayRepeat reports whether a request that failed had no effect. Its body was not read.
func mayRepeat(r *http.Request, err error) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.ContentLength != 0 {
		return true
	}
	var op *net.OpError
	return errors.Is(err, errNoOwner) || errors.Is(err, errMisdirected) || errors.As(err, &op) && op.Op == "dial"
}

// unread is a body that is given to several attempts as long as none has read it.
type unread struct {
	io.ReadCloser
	touched atomic.Bool
}

func (u *unread) isUntouched() bool { return !u.touched.Load() }

// attempt returns the body for one attempt, whose end does not close the body of the client.
func (u *unread) attempt() io.ReadCloser { return untouched{u} }

type untouched struct{ of *unread }

func (u untouched) Read(p []byte) (int, error) {
	u.of.touched.Store(true)
	return u.of.ReadCloser.Read(p)
}

func (u untouched) Close() error { return nil } // the server of the client's request closes it
