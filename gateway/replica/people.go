package replica

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/object"
)

// The home has the list of tokens and the sessions of browsers. The other replicas ask it.

const (
	// freshFor is how long an answer of the home is used. A token that is revoked, and a session that ends, is refused
	// everywhere after this time.
	freshFor = 5 * time.Second
	// staleFor is how long an answer is used while the home cannot be reached.
	staleFor = 10 * time.Minute
	// answersMax bounds the answers that are remembered.
	answersMax = 10_000
)

// errHomeAway is the error of a question that the home does not answer.
var errHomeAway = object.Refuse(gitd.ErrElsewhere, "the replica that keeps people and tokens does not answer: try again in a moment")

// answers remembers answers of the home.
type answers[T any] struct {
	mu sync.Mutex // guards is
	is map[string]remembered[T]
}

type remembered[T any] struct {
	value T
	at    time.Time
}

// get returns an answer that is younger than age.
func (a *answers[T]) get(key string, age time.Duration) (T, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.is[key]
	return r.value, ok && time.Since(r.at) < age
}

func (a *answers[T]) put(key string, value T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.is == nil || len(a.is) >= answersMax {
		a.is = map[string]remembered[T]{}
	}
	a.is[key] = remembered[T]{value, time.Now()}
}

// isHome reports whether this replica is the home.
func (f *Front) isHome() bool { return f.Home == f.Group.Name }

// askHome sends a question to the home.
func (f *Front) askHome(ctx context.Context, path string, question, answer any) error {
	home, ok := f.Group.Named(f.Home)
	if !ok || home.URL == "" {
		return errHomeAway
	}
	b, err := json.Marshal(question)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, findWait)
	defer cancel()
	if err := f.ask(ctx, home, http.MethodPost, path, bytes.NewReader(b), answer); err != nil {
		f.Log.Info("the home does not answer", "home", f.Home, "err", err)
		return errHomeAway
	}
	return nil
}

// verdict is the home's answer about a token.
type verdict struct {
	Grant  gitd.Grant `json:"grant"`
	Denied string     `json:"denied,omitempty"` // why the token is refused
}

// Known returns the grant of a token whose signature is valid, as the home knows it. It is [gitd.Server.Known]. A token that is
// not in the list of tokens, as those of runs, is known everywhere.
func (f *Front) Known(token string, g gitd.Grant) (gitd.Grant, error) {
	if g.ID == "" || f.isHome() {
		return f.Git.Listed(g)
	}
	v, ok := f.tokens.get(token, freshFor)
	if !ok {
		err := f.askHome(context.Background(), "/replica/token", token, &v)
		if err == nil {
			f.tokens.put(token, v)
		} else if v, ok = f.tokens.get(token, staleFor); !ok {
			return g, err
		}
	}
	if v.Denied != "" {
		return g, object.Refuse(gitd.ErrDenied, "%s", v.Denied)
	}
	return v.Grant, nil
}

func (f *Front) serveToken(w http.ResponseWriter, r *http.Request) {
	var token string
	if json.NewDecoder(io.LimitReader(r.Body, peekMax)).Decode(&token) != nil {
		http.Error(w, "no token", http.StatusBadRequest)
		return
	}
	g, err := f.Git.Verify(token)
	v := verdict{Grant: g}
	if err != nil {
		v.Denied = err.Error()
	}
	answer(w, v)
}

// question asks for the person of a session.
type question struct {
	Host, Client, URI, Method string
	Access                    route.Access
	Header                    http.Header
	Secure                    bool // the client speaks TLS
}

// visitor is the answer. Account is nil for nobody.
type visitor struct {
	Account *route.Account
	Cookies []string // to be set
}

// visitHeaders are the headers that name a session and its place.
var visitHeaders = []string{"Cookie", "User-Agent", "X-Forwarded-For", "Origin", "Sec-Fetch-Site", "Accept-Language"}

// Account returns the person of the session that a cookie of a call names. It is [route.Mux.Account] of a replica that is not the
// home.
func (f *Front) Account(c *route.Call) (route.Who, error) {
	if !route.HasSession(c.R) {
		return route.Who{}, nil
	}
	q := question{Host: c.R.Host, Client: c.R.RemoteAddr, URI: c.R.URL.RequestURI(), Method: c.R.Method, Access: c.Access,
		Header: http.Header{}, Secure: c.R.TLS != nil}
	for _, name := range visitHeaders {
		if v := c.R.Header.Values(name); len(v) > 0 {
			q.Header[name] = v
		}
	}
	key := q.Header.Get("Cookie")
	v, ok := f.visitors.get(key, freshFor)
	if !ok {
		err := f.askHome(c.R.Context(), "/replica/session", q, &v)
		if err == nil {
			for _, cookie := range v.Cookies {
				c.W.Header().Add("Set-Cookie", cookie)
			}
			if v.Cookies = nil; v.Account != nil {
				f.visitors.put(key, v)
			}
		} else if v, ok = f.visitors.get(key, staleFor); !ok {
			return route.Who{}, err
		}
	}
	if v.Account == nil {
		return route.Who{}, nil
	}
	return route.NewWho(*v.Account), nil
}

func (f *Front) serveSession(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(io.LimitReader(r.Body, peekMax)).Decode(&q); err != nil || f.Sessions == nil {
		http.Error(w, "nobody can sign in here", http.StatusBadRequest)
		return
	}
	asked, err := http.NewRequestWithContext(r.Context(), q.Method, q.URI, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	asked.Host, asked.RemoteAddr, asked.Header = q.Host, q.Client, q.Header
	if q.Secure {
		asked.TLS = new(tls.ConnectionState)
	}
	out := httptest.NewRecorder()
	who, err := f.Sessions.Account(f.Sessions.NewCall(out, asked, q.Access))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, visitor{Account: who.Account, Cookies: out.Header().Values("Set-Cookie")})
}

// Sessions finds people at the home.
type Sessions struct {
	// NewCall makes a call of a request that another replica got.
	NewCall func(w http.ResponseWriter, r *http.Request, access route.Access) *route.Call
	Account func(c *route.Call) (route.Who, error)
	Again   func(ctx context.Context, who route.Who) (route.Who, error)
}

// Again returns the person of a session as it is now. It is [route.Mux.Again] of a replica that is not the home.
func (f *Front) Again(ctx context.Context, who route.Who) (route.Who, error) {
	var v visitor
	if err := f.askHome(ctx, "/replica/again", who.Account, &v); err != nil {
		return who, err
	}
	if v.Account == nil {
		return route.Who{}, route.ErrSessionEnded
	}
	return route.NewWho(*v.Account), nil
}

func (f *Front) serveAgain(w http.ResponseWriter, r *http.Request) {
	var a route.Account
	if err := json.NewDecoder(io.LimitReader(r.Body, peekMax)).Decode(&a); err != nil || f.Sessions == nil {
		http.Error(w, "nobody can sign in here", http.StatusBadRequest)
		return
	}
	who, err := f.Sessions.Again(r.Context(), route.NewWho(a))
	if err != nil && !errors.Is(err, route.ErrSessionEnded) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, visitor{Account: who.Account})
}

// Ended returns a channel that is closed when the session or the token of who has ended. The home is asked every
// five seconds. It is [route.Mux.Ended] of a replica that is not the home.
func (f *Front) Ended(who route.Who) (<-chan struct{}, func()) {
	ended, ctx := make(chan struct{}), context.Background()
	ctx, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(freshFor)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if f.hasEnded(ctx, who) {
				close(ended)
				return
			}
		}
	})
	return ended, func() { stop(); work.Wait() }
}

func (f *Front) hasEnded(ctx context.Context, who route.Who) bool {
	if who.Account != nil {
		now, err := f.Again(ctx, who)
		return errors.Is(err, route.ErrSessionEnded) || err == nil && now.Account.Best() != who.Account.Best()
	}
	var gone bool
	return f.askHome(ctx, "/replica/revoked", who.Token, &gone) == nil && gone
}

func (f *Front) serveRevoked(w http.ResponseWriter, r *http.Request) {
	var id string
	if json.NewDecoder(io.LimitReader(r.Body, peekMax)).Decode(&id) != nil {
		http.Error(w, "no id", http.StatusBadRequest)
		return
	}
	ended, stop := f.Git.WatchToken(id)
	defer stop()
	select {
	case <-ended:
		answer(w, true)
	default:
		answer(w, false)
	}
}

// homeOf returns the home when it can be asked, until ctx ends.
func (f *Front) homeOf(ctx context.Context) (ownership.Replica, error) {
	for {
		if home, ok := f.Group.Named(f.Home); ok && home.URL != "" {
			return home, nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ownership.Replica{}, fmt.Errorf("the home %s is not there: %w", f.Home, context.Cause(ctx))
		}
	}
}
