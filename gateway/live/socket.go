package live

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/gateway/route"
)

// Protocol is the name of the subprotocol.
const Protocol = "ramus.live.1"

// Limits of a socket.
const (
	maxMessage  = 256 << 10 // of a client, in bytes
	maxViews    = 8
	maxFragment = 4000 // a client can say it has
	maxOps      = 256  // in one message; above that the client loads the page again
	maxAhead    = 8    // messages that wait for the writer

	// fastest is the shortest time between two messages of a view. A view that takes long to make is made less often.
	fastest   = 100 * time.Millisecond
	restShare = 10 // of the time that a view takes, it rests before it is made again

	pingEvery  = 20 * time.Second
	deadAfter  = 45 * time.Second
	writeTime  = 10 * time.Second
	againEvery = time.Minute // the person is looked up

	// maxSockets is the most sockets of one person, maxAll of all together.
	maxSockets = 32
	maxAll     = 2000
)

// closeSignedOut is the code with which a socket ends when its person may no longer be here.
const closeSignedOut = 4401

// API serves the sockets of open pages. Its fields are its options.
type API struct {
	Hub *Hub
	// Render returns the view of the page at a path, as the call's person sees it.
	Render func(c *route.Call, at *url.URL) (View, error)
	// Watch has the events that wake views, while there is a socket.
	Watch Watcher
	// Others calls wake with the topics that change at other servers of the installation, and lost if some may have been missed, until
	// ctx ends. Nil means that there are none.
	Others func(ctx context.Context, wake func(topics ...string), lost func())
	// Access is the class of the route.
	Access route.Access
	Now    func() time.Time

	mu      sync.Mutex // guards all below
	sockets map[string]int
	all     int
	held    int    // sockets and taps, which need the events
	asleep  func() // ends the watching of events, and waits for it
	alone   func() // ends the watching of other servers, and waits for it
}

// Routes returns the route of the socket.
func (api *API) Routes() []route.Route {
	return []route.Route{{Method: "GET", Pattern: "/live", Access: api.Access,
		Summary: "The changes of open pages, for the pages of this server", Media: "text/plain", Handle: api.serve}}
}

// enter counts one more socket of a person.
func (api *API) enter(who route.Who) (leave func(), err error) {
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.sockets[who.Subject] >= maxSockets || api.all >= maxAll {
		return nil, route.NewProblem(route.KindStreams, "too many pages are open").WithHint("close some tabs")
	}
	if api.sockets == nil {
		api.sockets = map[string]int{}
	}
	api.sockets[who.Subject]++
	if api.all++; api.all == 1 {
		api.alone = api.follow()
	}
	api.holdTap()
	return func() {
		api.mu.Lock()
		defer api.mu.Unlock()
		api.release()
		if api.all--; api.all == 0 {
			api.alone()
		}
		if api.sockets[who.Subject]--; api.sockets[who.Subject] == 0 {
			delete(api.sockets, who.Subject)
		}
	}, nil
}

// sameOrigin reports whether a request comes from a page of this server.
func sameOrigin(r *http.Request) bool {
	u, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// buffers holds the write buffers of all sockets. An idle socket has none.
var buffers sync.Pool

func (api *API) serve(c *route.Call) error {
	if c.Access != route.AccessSocket && !sameOrigin(c.R) { // the table of routes has checked it otherwise
		return route.NewProblem(route.KindDenied, "a page of another origin cannot follow pages of this server")
	}
	leave, err := api.enter(c.Who)
	if err != nil {
		return err
	}
	defer leave()
	up := websocket.Upgrader{Subprotocols: []string{Protocol}, CheckOrigin: func(*http.Request) bool { return true },
		WriteBufferPool:  &buffers, // most sockets are idle
		HandshakeTimeout: writeTime, EnableCompression: true,
		Error: func(http.ResponseWriter, *http.Request, int, error) {}}
	conn, err := up.Upgrade(c.W, c.R, nil)
	if err != nil {
		var h websocket.HandshakeError
		if errors.As(err, &h) {
			return route.NewProblem(route.KindInvalid, "this needs a WebSocket: %v", err)
		}
		return err
	}
	ctx, cancel := context.WithCancelCause(c.R.Context())
	s := &socket{api: api, conn: conn, call: c, out: make(chan message, maxAhead), views: map[string]*followed{}, end: cancel}
	s.who.Store(&c.Who)
	s.run(ctx)
	return nil
}

// request is a message of a client.
type request struct {
	Sub   string `json:"sub"`
	Un    string `json:"un"`
	Title string `json:"title,omitempty"` // that the client shows; empty means that it shows none
	Have  shown  `json:"have"`
}

// message is a message of the server.
type message struct {
	At      string         `json:"at,omitempty"`
	T       string         `json:"t,omitempty"`
	N       int64          `json:"n,omitempty"`
	Ops     []Op           `json:"ops,omitempty"`
	Gap     bool           `json:"gap,omitempty"`
	Problem *route.Problem `json:"problem,omitempty"`
}

// socket is one connection. Its reader owns views.
type socket struct {
	api  *API
	conn *websocket.Conn
	call *route.Call
	who  atomic.Pointer[route.Who]
	out  chan message
	end  context.CancelCauseFunc

	views map[string]*followed
	work  sync.WaitGroup
}

// followed is a view that the client follows.
type followed struct {
	at     *url.URL
	title  string
	have   shown
	cancel context.CancelFunc
	done   chan struct{}
}

var (
	errClosed    = errors.New("the client has left")
	errSignedOut = errors.New("signed out")
)

// run serves the connection until one of its parts ends.
func (s *socket) run(ctx context.Context) {
	draining := context.AfterFunc(s.call.Draining(), func() { s.end(http.ErrServerClosed) })
	s.work.Go(func() { s.write(ctx) })
	s.read(ctx)
	s.end(errClosed)
	draining()
	s.work.Wait()
}

// read takes the messages of the client until the connection ends. The writer closes the connection when the context ends.
func (s *socket) read(ctx context.Context) {
	s.conn.SetReadLimit(maxMessage)
	alive := func(string) error { return s.conn.SetReadDeadline(time.Now().Add(deadAfter)) }
	s.conn.SetPongHandler(alive)
	_ = alive("")
	for {
		kind, in, err := s.conn.NextReader()
		if err != nil {
			return
		}
		// The connection bounds the bytes that are sent. They can be far more when they are decompressed.
		text, err := io.ReadAll(io.LimitReader(in, maxMessage+1))
		if err != nil {
			return
		}
		_ = alive("")
		var q request
		if kind != websocket.TextMessage || len(text) > maxMessage || json.Unmarshal(text, &q) != nil ||
			len(q.Have.keys) > maxFragment {
			s.end(errors.New("a message that is none"))
			return
		}
		if q.Un != "" {
			s.leave(q.Un)
		}
		if q.Sub != "" {
			s.follow(ctx, q)
		}
	}
}

// leave ends a view and waits for it.
func (s *socket) leave(at string) {
	if v := s.views[at]; v != nil {
		v.cancel()
		<-v.done
		delete(s.views, at)
	}
}

// follow begins a view, in place of an earlier one of the same path.
func (s *socket) follow(ctx context.Context, q request) {
	s.leave(q.Sub)
	at, err := url.Parse(q.Sub)
	if err != nil || !strings.HasPrefix(q.Sub, "/") || strings.HasPrefix(q.Sub, "//") || len(s.views) >= maxViews {
		s.send(ctx, message{At: q.Sub, Problem: route.AsProblem(route.NewProblem(route.KindInvalid,
			"this page cannot be followed"), *s.who.Load())})
		return
	}
	if q.Have.hashes == nil {
		q.Have.hashes = map[string]string{}
	}
	ctx, cancel := context.WithCancel(ctx)
	v := &followed{at: at, title: q.Title, have: q.Have, cancel: cancel, done: make(chan struct{})}
	s.views[q.Sub] = v
	s.work.Go(func() {
		defer close(v.done)
		defer cancel()
		s.keep(ctx, q.Sub, v)
	})
}

// keep sends the changes of a view until ctx ends, or the person may no longer see it.
func (s *socket) keep(ctx context.Context, at string, v *followed) {
	who := s.who.Load()
	sleeper := s.api.Hub.join(cmp.Or(who.Name, who.Subject))
	defer s.api.Hub.leave(sleeper)
	title, keys := v.title, v.have.keys
	for n := int64(1); ; n++ {
		began := time.Now()
		call := *s.call
		call.R, call.Who = s.call.R.WithContext(ctx), *s.who.Load()
		now, err := s.api.Render(&call, v.at)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p := route.AsProblem(err, call.Who)
			p.Request = call.ID
			s.send(ctx, message{At: at, Problem: p})
			return
		}
		s.api.Hub.listen(sleeper, now.Topics)
		ops := append(difference(v.have.hashes, now), reordered(keys, now)...)
		if len(ops) > maxOps {
			s.send(ctx, message{At: at, N: n, Gap: true})
		} else {
			if title != "" && title != now.Title {
				ops = append(ops, Op{Op: "title", HTML: now.Title})
			}
			if len(ops) > 0 {
				m := message{At: at, N: n, Ops: ops}
				if len(now.Topics) > 0 {
					m.T = now.Topics[0]
				}
				s.send(ctx, m)
			}
		}
		title, keys = now.Title, now.keys()
		if !sleeper.rest(ctx, max(fastest, restShare*time.Since(began)), now.Beat) {
			return
		}
	}
}

// rest waits at least the time least, and then for a change, or for the beat if it is not zero. It returns false if ctx ended.
func (s *sleeper) rest(ctx context.Context, least, beat time.Duration) bool {
	t := time.NewTimer(least)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	}
	var tick <-chan time.Time
	if beat > 0 {
		t.Reset(beat)
		tick = t.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-s.wake:
	case <-tick:
	}
	return true
}

// send hands a message to the writer.
func (s *socket) send(ctx context.Context, m message) {
	select {
	case s.out <- m:
	case <-ctx.Done():
	}
}

// write writes messages and pings, and looks the person up every minute, until ctx ends. Then it closes the connection,
// which ends the reader.
func (s *socket) write(ctx context.Context) {
	defer s.conn.Close()
	ping, again := time.NewTicker(pingEvery), time.NewTicker(againEvery)
	defer ping.Stop()
	defer again.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			code, why := websocket.CloseNormalClosure, ""
			switch cause := context.Cause(ctx); {
			case errors.Is(cause, route.ErrSessionEnded) && s.stillSignedIn():
				code, why = websocket.CloseServiceRestart, "the person has other roles now"
			case errors.Is(cause, errSignedOut), errors.Is(cause, route.ErrSessionEnded):
				code, why = closeSignedOut, "signed out"
			case errors.Is(cause, http.ErrServerClosed):
				code, why = websocket.CloseServiceRestart, "the server stops"
			}
			_ = s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, why),
				time.Now().Add(time.Second))
			return
		case m := <-s.out:
			if ctx.Err() != nil {
				continue // the person may be signed out
			}
			_ = s.conn.SetWriteDeadline(time.Now().Add(writeTime))
			err = s.conn.WriteJSON(m)
		case <-ping.C:
			err = s.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTime))
		case <-again.C:
			s.lookAgain()
		}
		if err != nil {
			s.end(errClosed)
			return
		}
	}
}

// stillSignedIn reports whether a socket whose session has changed may be opened again.
func (s *socket) stillSignedIn() bool {
	who, err := s.call.Again()
	return err == nil && !who.Nobody()
}

// lookAgain looks the person up, and ends the socket if the person may no longer be here.
func (s *socket) lookAgain() {
	who, err := s.call.Again()
	if err != nil || who.Subject != s.who.Load().Subject {
		s.end(errSignedOut)
		return
	}
	s.who.Store(&who)
}
