package terminal

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/shell"
	"github.com/ramus-dev/ramus/executor/terminal"
	"github.com/ramus-dev/ramus/gateway/route"
)

const (
	helloTime  = 10 * time.Second
	writeTime  = 10 * time.Second
	pingEvery  = 20 * time.Second
	deadAfter  = 45 * time.Second
	inputRate  = 1 << 20 // bytes a second
	perSubject = 32      // sockets of one caller of requests
	socketsMax = 1024
)

// sockets counts open sockets. Its zero value is ready.
type sockets struct {
	mu    sync.Mutex // guards all below
	total int
	of    map[string]int
}

// acquire counts one more socket of a caller of requests.
func (s *sockets) acquire(who route.Who) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= socketsMax {
		return nil, route.NewProblem(route.KindUnavailable, "the server has no free socket: all %d are in use", socketsMax)
	}
	if s.of[who.Subject] >= perSubject && !who.Local {
		return nil, route.NewProblem(route.KindStreams, "%s has %d terminals open already, which is the most",
			who.Subject, perSubject)
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.total++
	s.of[who.Subject]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.total--
		if s.of[who.Subject]--; s.of[who.Subject] == 0 {
			delete(s.of, who.Subject)
		}
	}), nil
}

// socket is one viewer's connection.
type socket struct {
	api    *API
	call   *route.Call
	who    route.Who
	caller executor.CallerStatus
	conn   *websocket.Conn
	viewer *terminal.Viewer
	term   *shell.Shell
	watch  bool      // it may not type
	took   time.Time // when it last became the owner by a frame
	typing typing

	writing sync.Mutex // held while a message is written
}

// shell upgrades a request to a socket, and serves it.
func (api *API) shell(c *route.Call) error {
	st, err := api.caller(c, c.R.PathValue("caller"))
	if err != nil {
		return err
	}
	if !slices.Contains(websocket.Subprotocols(c.R), Subprotocol) {
		return route.NewProblem(route.KindInvalid, "this is a WebSocket of the protocol %s", Subprotocol)
	}
	release, err := api.sockets.acquire(c.Who)
	if err != nil {
		return err
	}
	defer release()
	api.open.Add(1)
	defer api.open.Done()
	up := websocket.Upgrader{HandshakeTimeout: helloTime, Subprotocols: []string{Subprotocol},
		CheckOrigin: func(r *http.Request) bool {
			origin := r.Header.Get("Origin") // programs send none
			return origin == "" || origin == c.Origin()
		},
		Error: func(http.ResponseWriter, *http.Request, int, error) {}}
	conn, err := up.Upgrade(c.W, c.R, nil)
	if err != nil {
		return route.NewProblem(route.KindInvalid, "cannot open the WebSocket: %v", err)
	}
	s := &socket{api: api, call: c, who: c.Who, caller: st, conn: conn, watch: c.Who.CheckChangeCaller(st) != nil,
		typing: typing{ready: make(chan struct{}, 1)}}
	s.serve()
	return nil
}

// serve serves the socket to its end.
func (s *socket) serve() {
	ctx, cancel := context.WithCancel(s.call.R.Context())
	defer cancel()
	defer s.conn.Close()
	// Both ends below unblock a Read and a Write.
	defer context.AfterFunc(s.call.Draining(),
		func() { s.sendProblem(Problem{Kind: "restart", Detail: "the server is restarting"}); cancel() })()
	defer context.AfterFunc(ctx, func() { s.conn.Close() })()
	s.conn.SetReadLimit(MaxFrame + 1)
	if err := s.beginTerminal(ctx); err != nil {
		s.sendProblem(s.problem(err))
		return
	}
	defer s.viewer.Close()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { defer cancel(); s.send(ctx) })
	work.Go(func() { defer cancel(); s.enter(ctx) })
	work.Go(func() { s.ping(ctx) })
	if err := s.receive(ctx); err != nil {
		s.sendProblem(s.problem(err))
	}
}

// sendProblem sends a problem. The client may be gone.
func (s *socket) sendProblem(p Problem) { _ = s.write(Frame{Type: FrameProblem, Fault: p}) }

// problem returns an error for the client.
func (s *socket) problem(err error) Problem {
	var own *Problem
	if errors.As(err, &own) {
		return *own
	}
	p := route.AsProblem(err, s.who)
	if p.Kind == route.KindInternal {
		s.api.Log.Error("a terminal's socket failed", "caller", s.caller.Caller, "err", err)
	}
	return Problem{Kind: string(p.Kind), Detail: p.Detail, Hint: p.Hint, Final: p.Status >= 400 && p.Status < 500 &&
		p.Kind != route.KindStreams && p.Kind != route.KindLimited}
}

func (s *socket) write(f Frame) error {
	b, err := f.Encode()
	if err != nil {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	return s.conn.WriteMessage(websocket.BinaryMessage, b)
}

// read reads the next frame.
func (s *socket) read() (Frame, error) {
	kind, message, err := s.conn.ReadMessage()
	if err != nil {
		return Frame{}, err
	}
	f, err := Decode(message)
	if err == nil && (kind != websocket.BinaryMessage || f.Type >= FrameState) {
		err = errFrame
	}
	if err != nil {
		return f, &Problem{Kind: string(route.KindInvalid), Detail: "cannot read the message: " + err.Error(), Final: true}
	}
	return f, nil
}

// beginTerminal reads the first frame, and finds or opens the terminal.
func (s *socket) beginTerminal(ctx context.Context) error {
	if err := s.conn.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	f, err := s.read()
	if err != nil {
		return err
	}
	if f.Type != FrameHello {
		return &Problem{Kind: string(route.KindInvalid), Detail: "the first frame must be a hello", Final: true}
	}
	h := f.Hello
	h.Watch = h.Watch || s.watch
	if h.Ticket == "" && s.who.Account != nil {
		return route.NewProblem(route.KindDenied, "a page needs a ticket for a terminal")
	}
	if h.Ticket != "" {
		k, ok := s.api.tickets.redeem(h.Ticket, s.api.Now())
		if !ok || k.caller != s.caller.Caller || !same(k.who, s.who) || k.terminal != "" && h.Terminal != "" && k.terminal != h.Terminal {
			return route.NewProblem(route.KindDenied, "the ticket does not open this terminal, or was used already")
		}
		if h.Terminal == "" {
			h.Terminal = k.terminal
		}
	}
	if s.term, err = s.find(ctx, h); err != nil {
		return err
	}
	o := terminal.ViewOptions{Person: s.who.Person(h.Asker), Have: h.Have,
		Size: terminal.Size{Rows: h.Rows, Cols: h.Cols}, Watch: h.Watch}
	s.viewer, err = s.term.View(o)
	if errors.Is(err, terminal.ErrFull) {
		return route.NewProblem(route.KindStreams, "%v", err)
	}
	if err != nil {
		return err
	}
	alive := func(string) error { return s.conn.SetReadDeadline(time.Now().Add(deadAfter)) }
	s.conn.SetPongHandler(alive)
	return alive("")
}

// same reports whether two requests are of one caller and, if they came from pages, of one session.
func same(a, b route.Who) bool {
	if a.Subject != b.Subject || (a.Account == nil) != (b.Account == nil) {
		return false
	}
	return a.Account == nil || a.Account.Session == b.Account.Session
}

// find returns the terminal of a hello.
func (s *socket) find(ctx context.Context, h Hello) (*shell.Shell, error) {
	call := record.TerminalCall{Rows: min(max(h.Rows, 0), 1000), Cols: min(max(h.Cols, 0), 1000)}
	switch h.Terminal {
	case "":
		if all := s.api.Executor.Shells.All(s.caller.Caller); len(all) > 0 {
			return all[0], nil
		}
	case "new":
	default:
		t, err := s.api.Executor.Shells.Named(s.caller.Caller, h.Terminal)
		if err == nil || !errors.Is(err, record.ErrNotFound) {
			return t, err
		}
		return t, route.NotFound("terminal", h.Terminal)
	}
	if h.Watch {
		return nil, route.NotFound("terminal", h.Terminal)
	}
	return s.api.findOrOpen(ctx, s.call,
		record.Request{Caller: s.caller.Caller, Repo: s.caller.Repo, Terminal: &call, Asker: h.Asker})
}

// send sends the items of the viewer.
func (s *socket) send(ctx context.Context) {
	for {
		item, err := s.viewer.Next(ctx)
		if err != nil {
			return
		}
		f := Frame{Offset: item.Offset, Data: item.Data}
		switch item.Kind {
		case terminal.ItemState:
			f.Type, f.State = FrameState, item.State
		case terminal.ItemReset:
			f.Type, f.Reason = FrameReset, item.Reason
		case terminal.ItemOutput:
			f.Type = FrameOutput
		case terminal.ItemDone:
			f.Type, f.Done = FrameMark, item.Done
		}
		if s.write(f) != nil {
			return
		}
	}
}

// ping asks for signs of life.
func (s *socket) ping(ctx context.Context) {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if s.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTime)) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// receive handles the client's frames until the socket ends.
func (s *socket) receive(ctx context.Context) error {
	for ctx.Err() == nil {
		f, err := s.read()
		if err != nil {
			var p *Problem
			if errors.As(err, &p) {
				return err
			}
			return nil // it is closed
		}
		if err := s.conn.SetReadDeadline(time.Now().Add(deadAfter)); err != nil {
			return nil
		}
		switch f.Type {
		case FrameInput, FrameSize, FrameTake:
			if _, first := s.typing.add(f); first {
				s.sendProblem(Problem{Kind: "dropped", Detail: "the program takes its input too slowly, so that the rest of it is dropped"})
			}
		case FrameAck:
			s.viewer.Ack(f.Offset)
		case FramePing:
			if err := s.write(Frame{Type: FramePong, Data: f.Data}); err != nil {
				return nil
			}
		case FrameHello:
			return &Problem{Kind: string(route.KindInvalid), Detail: "a second hello", Final: true}
		}
	}
	return nil
}

// enter passes the client's input to the program, in its order with the sizes that belong to it.
func (s *socket) enter(ctx context.Context) {
	rate := bucket{now: s.api.Now, left: inputRate}
	for {
		f, err := s.typing.next(ctx)
		if err != nil || rate.takeBytes(ctx, len(f.Data)) != nil {
			return
		}
		switch f.Type {
		case FrameInput:
			err = s.viewer.Input(ctx, f.Data)
		case FrameSize:
			s.viewer.Resize(f.Size)
		case FrameTake:
			err = s.takeOwnership()
		}
		s.typing.done(f)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			// Input that the program cannot have is dropped, and the viewer stays.
			s.sendProblem(Problem{Kind: "dropped", Detail: err.Error()})
		}
	}
}

// takeOwnership makes the viewer the owner. Takes that follow each other within a second are one in the log of actions, so that a
// client cannot fill it.
func (s *socket) takeOwnership() error {
	if err := s.viewer.Take(); err != nil {
		return err
	}
	now := s.api.Now()
	if !s.took.IsZero() && now.Sub(s.took) < time.Second {
		return nil
	}
	s.took = now
	return audit(s.call, "take", s.caller.Caller, s.term.Name)
}

// bucket bounds a rate of bytes.
type bucket struct {
	now  func() time.Time
	last time.Time
	left float64
}

// takeBytes waits until n bytes are within the rate.
func (b *bucket) takeBytes(ctx context.Context, n int) error {
	now := b.now()
	if !b.last.IsZero() {
		b.left = min(inputRate, b.left+now.Sub(b.last).Seconds()*inputRate)
	}
	b.last = now
	if b.left -= float64(n); b.left >= 0 {
		return nil
	}
	wait := time.NewTimer(time.Duration(-b.left / inputRate * float64(time.Second)))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
