package conversation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of a socket.
const (
	maxPending  = 100 // requests that wait for the end of a turn
	maxFollowed = 16  // sessions
	defaultBeat = 20 * time.Second
)

// Codes of JSON-RPC.
const (
	codeParse    = -32700
	codeRequest  = -32600
	codeMethod   = -32601
	codeParams   = -32602
	codeInternal = -32603
)

// message is one message of JSON-RPC 2.0.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *fault          `json:"error,omitempty"`
}

type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (f *fault) Error() string { return f.Message }

type agentQuery struct {
	Agent string `json:"agent,omitempty" jsonschema:"the agent of new sessions; may be left out if there is one"`
}

// named is a session that a socket knows.
type named struct{ agent, label string }

// pending is a request that is answered when a turn ends.
type pending struct {
	id       json.RawMessage
	run, key string
}

// socket is the connection of one program, which is a client of the protocol.
type socket struct {
	api    *API
	who    route.Who
	caller record.Caller
	repo   string
	agent  string
	ctx    context.Context
	conn   *websocket.Conn

	writing sync.Mutex // held while a message is written

	mu        sync.Mutex // guards all below
	sessions  map[string]named
	followed  map[string]bool   // runs
	pending   []pending         // prompts
	questions map[string]string // the steps of questions by the ids of requests, with their runs
	asked     int
	followers sync.WaitGroup
}

// agent serves the Agent Client Protocol to a program, over a WebSocket with one message of JSON-RPC a text message.
func (api *API) agent(c *route.Call) error {
	var q agentQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	st, err := api.Find.PathCaller(c)
	if err != nil {
		return err
	}
	names := api.Talk.Executor.AgentNames()
	switch {
	case q.Agent == "" && len(names) == 1:
		q.Agent = names[0]
	case q.Agent != "" && !slices.Contains(names, q.Agent):
		return route.NewProblem(route.KindInvalid, "there is no agent %.100q; known are %s", q.Agent,
			strings.Join(names, ", "))
	}
	if !websocket.IsWebSocketUpgrade(c.R) {
		return route.NewProblem(route.KindInvalid, "%s is a WebSocket",
			c.R.URL.Path).WithHint("connect with ws:// or wss://, and the token in the header Authorization")
	}
	done, err := c.OpenStream()
	if err != nil {
		return err
	}
	defer done()
	up := websocket.Upgrader{HandshakeTimeout: route.SlowestRead,
		Error: func(http.ResponseWriter, *http.Request, int, error) {}}
	conn, err := up.Upgrade(c.W, c.R, nil)
	if err != nil {
		return route.NewProblem(route.KindInvalid, "cannot begin the WebSocket: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.R.Context()))
	s := &socket{api: api, who: c.Who, caller: st.Caller, repo: st.Repo, agent: q.Agent, ctx: ctx, conn: conn,
		sessions: map[string]named{}, followed: map[string]bool{},
		questions: map[string]string{}}
	defer s.followers.Wait()
	defer cancel()
	defer conn.Close()
	defer context.AfterFunc(c.Draining(), func() {
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseServiceRestart,
			"the server restarts; connect again"), time.Now().Add(time.Second))
		conn.Close()
	})()
	s.serve()
	return nil
}

// serve answers messages until the connection ends.
func (s *socket) serve() {
	beat := s.api.Beat
	if beat == 0 {
		beat = defaultBeat
	}
	s.conn.SetReadLimit(promptBody)
	alive := func(string) error { return s.conn.SetReadDeadline(time.Now().Add(2*beat + 5*time.Second)) }
	s.conn.SetPongHandler(alive)
	s.followers.Go(func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-s.ctx.Done():
				return
			case <-tick.C:
				if s.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(beat)) != nil {
					s.conn.Close()
					return
				}
			}
		}
	})
	s.followers.Go(s.watch)
	for {
		_ = alive("")
		kind, data, err := s.conn.ReadMessage()
		if err != nil {
			return
		}
		if kind != websocket.TextMessage {
			continue
		}
		var m message
		if json.Unmarshal(data, &m) != nil {
			s.send(message{ID: json.RawMessage("null"), Error: &fault{codeParse, "the message is no JSON"}})
			continue
		}
		s.takeMessage(m)
	}
}

// send writes one message. A reader that does not read loses the connection.
func (s *socket) send(m message) {
	m.Version = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		return
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = s.conn.SetWriteDeadline(time.Now().Add(route.SlowestRead))
	if s.conn.WriteMessage(websocket.TextMessage, b) != nil {
		s.conn.Close() // the reading goroutine ends
	}
}

func (s *socket) notify(method string, params any) {
	b, err := json.Marshal(params)
	if err == nil {
		s.send(message{Method: method, Params: b})
	}
}

// takeMessage handles one message.
func (s *socket) takeMessage(m message) {
	if m.Method == "" {
		s.answered(m)
		return
	}
	result, err := s.call(m)
	switch {
	case len(m.ID) == 0 || errors.Is(err, errLater):
		return
	case err != nil:
		var f *fault
		if !errors.As(err, &f) {
			p := route.AsProblem(err, s.who)
			f = &fault{codeInternal, p.Error()}
			if p.Status < 500 {
				f.Code = codeParams
			}
		}
		s.send(message{ID: m.ID, Error: f})
	default:
		b, err := json.Marshal(result)
		if err != nil {
			b = []byte("{}")
		}
		s.send(message{ID: m.ID, Result: b})
	}
}

// errLater is the error of a request that is answered later.
var errLater = errors.New("answered later")

// call carries out a request.
func (s *socket) call(m message) (any, error) {
	switch m.Method {
	case "initialize":
		return map[string]any{
			"protocolVersion": 1,
			"agentInfo":       map[string]any{"name": "ramus", "version": "1"},
			"agentCapabilities": map[string]any{"loadSession": true,
				"promptCapabilities": map[string]any{"image": true, "embeddedContext": true},
				"mcpCapabilities":    map[string]any{"http": false, "sse": false}},
			"authMethods": []any{},
			"_meta":       map[string]any{"steering": map[string]any{"supported": true}},
		}, nil
	case "session/new":
		return s.nameSession(m)
	case "session/load":
		return s.load(m)
	case "session/prompt", "_session/steering":
		return s.prompt(m)
	case "session/cancel":
		return s.cancel(m)
	}
	return nil, &fault{codeMethod, fmt.Sprintf("there is no method %.100q", m.Method)}
}

// read decodes parameters.
func read[T any](m message) (v T, err error) {
	if err := json.Unmarshal(m.Params, &v); err != nil {
		return v, &fault{codeParams, fmt.Sprintf("cannot read the parameters of %s: %v", m.Method, err)}
	}
	return v, nil
}

// nameSession names a new session. Its first prompt begins it.
func (s *socket) nameSession(m message) (any, error) {
	p, err := read[struct {
		Servers []json.RawMessage `json:"mcpServers"`
		Meta    struct {
			Ramus struct {
				Label string `json:"label"`
			} `json:"ramus"`
		} `json:"_meta"`
	}](m)
	switch {
	case err != nil:
		return nil, err
	case len(p.Servers) > 0:
		return nil, &fault{codeParams, "a container reaches no MCP servers of a client; leave mcpServers empty"}
	case s.agent == "":
		return nil, &fault{codeParams, "several agents are configured; name one with ?agent="}
	}
	n := named{s.agent, p.Meta.Ramus.Label}
	if n.label == "" {
		n.label = "acp-" + record.NewToken()
	}
	id := SessionID(n.agent, n.label)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) >= maxFollowed && s.sessions[id] == (named{}) {
		return nil, &fault{codeRequest, fmt.Sprintf("a connection has at most %d sessions", maxFollowed)}
	}
	s.sessions[id] = n
	return map[string]any{"sessionId": id}, nil
}

// find returns a session that the connection knows, or that the workspace has.
func (s *socket) find(id string) (named, error) {
	s.mu.Lock()
	n, ok := s.sessions[id]
	s.mu.Unlock()
	if ok {
		return n, nil
	}
	have, err := s.api.Talk.Session(s.ctx, s.caller, id)
	if err != nil {
		return n, err
	}
	n = named{have.Agent, have.Label}
	s.mu.Lock()
	s.sessions[id] = n
	s.mu.Unlock()
	return n, nil
}

// load sends the updates of a session from its beginning, or from a place, and follows the session.
func (s *socket) load(m message) (any, error) {
	p, err := read[struct {
		Session string `json:"sessionId"`
		Meta    struct {
			Ramus struct {
				From *Place `json:"from"`
			} `json:"ramus"`
		} `json:"_meta"`
	}](m)
	if err != nil {
		return nil, err
	}
	n, err := s.find(p.Session)
	if err != nil {
		return nil, err
	}
	from := p.Meta.Ramus.From
	runs := runsOf(s.api.Talk.Executor, s.caller, Window{Agent: n.agent, Session: n.label})
	if from != nil {
		at := slices.IndexFunc(runs, func(r record.Run) bool { return r.Name() == from.Run })
		if at < 0 {
			return nil, &fault{codeParams, fmt.Sprintf("there is no run %.200q in the session", from.Run)}
		}
		runs = runs[at:]
	}
	for i, r := range runs {
		var at Place
		if i == 0 && from != nil {
			at = *from
		}
		if r, err = s.api.Talk.Executor.Run(s.ctx, r.Name()); err != nil {
			return nil, err
		}
		v, err := newVoice(s.ctx, s.api.Talk.Executor, r, at)
		if err != nil {
			return nil, err
		}
		if !r.Ended() {
			s.follow(p.Session, v)
			break
		}
		for e, err := range s.api.Talk.Executor.Events(s.ctx, r.Name(), v.at.Seq, false) {
			if err != nil {
				return nil, err
			}
			if err := s.update(p.Session, v, e); err != nil {
				return nil, err
			}
		}
	}
	return map[string]any{}, nil
}

// update sends the updates of an event.
func (s *socket) update(session string, v *voice, e record.Event) error {
	list, err := v.hear(s.ctx, e)
	if err != nil {
		return err
	}
	for _, u := range list {
		s.notify("session/update", map[string]any{"sessionId": session, "update": u.raw})
	}
	return nil
}

// follow sends the updates of a run at work, once. ok is false if too many runs are followed.
func (s *socket) follow(session string, v *voice) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followed[v.at.Run] {
		return true
	}
	if len(s.followed) >= maxFollowed || s.ctx.Err() != nil {
		return false
	}
	s.followed[v.at.Run] = true
	s.followers.Go(func() {
		run := v.at.Run
		for e, err := range s.api.Talk.Executor.EventsFrom(s.ctx, run, v.at.Seq, v.at.Words) {
			if err == nil {
				err = s.update(session, v, e)
			}
			if err != nil {
				s.conn.Close()
				return
			}
			s.after(session, v, e)
		}
		s.mu.Lock()
		delete(s.followed, run)
		s.mu.Unlock()
		if s.ctx.Err() == nil {
			s.settle(run, func(pending) bool { return true }, "cancelled", nil)
		}
	})
	return true
}

// watch follows the runs of the sessions that the connection knows, also those that somebody else begins.
func (s *socket) watch() {
	for e, err := range s.api.Talk.Executor.Watch(s.ctx, s.caller.String()) {
		if err != nil || e.Type != record.EventRunCreated {
			continue
		}
		r, err := s.api.Talk.Executor.Run(s.ctx, e.Run)
		if err != nil || r.Agent == nil {
			continue
		}
		id := SessionID(r.Agent.Name, r.Agent.Session)
		s.mu.Lock()
		_, known := s.sessions[id]
		s.mu.Unlock()
		if v, err := newVoice(s.ctx, s.api.Talk.Executor, r, Place{}); known && err == nil {
			s.follow(id, v)
		}
	}
}

// after passes the agent's questions to the program, and answers the prompts of a turn that ended.
func (s *socket) after(session string, v *voice, e record.Event) {
	switch {
	case e.Type == record.EventGate:
		g := decode[record.Gate](e.Data)
		if r, err := s.api.Talk.Executor.Run(s.ctx, v.at.Run); err == nil && r.Gate != nil && r.Gate.Step == g.Step {
			s.ask(session, v.at.Run, g)
		}
	case e.Type == record.EventQueue && e.Kind == record.QueueUnsaid:
		key := decode[record.QueueChange](e.Data).Key
		s.settle(v.at.Run, func(p pending) bool { return p.key == key }, "cancelled", nil)
	case e.Type == record.EventStepFinished && e.Kind == string(record.KindAgent):
		s.turnOver(v.at.Run, v.queue, e)
	}
}

// turnOver answers the prompts that the agent had got when a turn ended.
func (s *socket) turnOver(run string, q record.Queue, e record.Event) {
	over := func(p pending) bool {
		return slices.ContainsFunc(q.Prompts[:q.Heard], func(q record.Prompt) bool { return q.Key == p.key })
	}
	stop, failed := "end_turn", error(nil)
	switch {
	case e.Reason == "stopped":
		stop = "cancelled"
	case e.OK != nil && !*e.OK:
		failed = &fault{codeInternal, "the turn failed: " + e.Message}
	}
	s.settle(run, over, stop, failed)
}

// settle answers the prompts to a run that are over.
func (s *socket) settle(run string, over func(pending) bool, stop string, failed error) {
	s.mu.Lock()
	var done []pending
	s.pending = slices.DeleteFunc(s.pending, func(p pending) bool {
		if p.run != run || !over(p) {
			return false
		}
		done = append(done, p)
		return true
	})
	s.mu.Unlock()
	for _, p := range done {
		var f *fault
		if errors.As(failed, &f) {
			s.send(message{ID: p.id, Error: f})
			continue
		}
		b, _ := json.Marshal(map[string]any{"stopReason": stop})
		s.send(message{ID: p.id, Result: b})
	}
}

// prompt says something in a session. The answer comes when the turn that heard it ends.
func (s *socket) prompt(m message) (any, error) {
	p, err := read[struct {
		Session string         `json:"sessionId"`
		Prompt  []contentBlock `json:"prompt"`
		Meta    struct {
			Ramus struct {
				Key string `json:"key"`
			} `json:"ramus"`
		} `json:"_meta"`
	}](m)
	if err != nil {
		return nil, err
	}
	n, err := s.find(p.Session)
	if err != nil {
		return nil, err
	}
	said, err := readBlocks(p.Prompt)
	if err != nil {
		return nil, err
	}
	said.Key, said.By, said.From, said.Now = p.Meta.Ramus.Key, s.who.Person(gitd.Person{}), "acp",
		m.Method == "_session/steering"
	// The place is taken before the words are said, because the turn may be over before this function is.
	s.mu.Lock()
	full := len(s.pending) >= maxPending
	s.mu.Unlock()
	if full {
		return nil, &fault{codeRequest, fmt.Sprintf("%d prompts wait for their turns already", maxPending)}
	}
	done, err := s.api.Talk.Say(s.ctx, s.who,
		Saying{Caller: s.caller, Repo: s.repo, Agent: n.agent, Session: n.label, Prompt: said})
	if err != nil {
		return nil, err
	}
	if said.Now {
		outcome := "injected"
		if done.How == "begun" {
			outcome = "startedNewTurn"
		}
		return map[string]any{"outcome": outcome, "_meta": map[string]any{"ramus": done}}, nil
	}
	key := done.Key
	if done.How == "begun" {
		key = record.FirstPrompt
	}
	s.mu.Lock()
	s.pending = append(s.pending, pending{id: m.ID, run: done.Run, key: key})
	s.mu.Unlock()
	return nil, s.attend(p.Session, done.Run)
}

// attend follows the run of a prompt. The error is errLater if its end will answer the prompt.
func (s *socket) attend(session, run string) error {
	r, err := s.api.Talk.Executor.Run(s.ctx, run)
	if err != nil {
		return err
	}
	v, err := newVoice(s.ctx, s.api.Talk.Executor, r, Place{})
	if err != nil {
		return err
	}
	if !s.follow(session, v) {
		s.settle(run, func(pending) bool { return true }, "",
			&fault{codeRequest, fmt.Sprintf("a connection follows at most %d runs", maxFollowed)})
		return errLater
	}
	// The turn may have ended before the prompt was among those that wait.
	q := r.Queue(nil)
	for e, err := range s.api.Talk.Executor.Events(s.ctx, run, 0, false) {
		if err != nil {
			return err
		}
		if q.Apply(e); e.Type == record.EventStepFinished && e.Kind == string(record.KindAgent) {
			s.turnOver(run, q, e)
		}
	}
	return errLater
}

// cancel ends the turn that works in a session.
func (s *socket) cancel(m message) (any, error) {
	p, err := read[struct {
		Session string `json:"sessionId"`
	}](m)
	if err != nil {
		return nil, err
	}
	have, err := s.api.Talk.Session(s.ctx, s.caller, p.Session)
	if err != nil {
		return nil, err
	}
	_, err = s.api.Talk.Prompts.StopTurn(s.ctx, have.Last, s.who.Person(gitd.Person{}))
	return map[string]any{}, err
}

// ask passes a question of the agent on to the program, with the agent's own options.
func (s *socket) ask(session, run string, g record.Gate) {
	if g.Step == "" || len(g.Options) == 0 {
		return
	}
	options := make([]acp.Option, len(g.Options))
	for i, o := range g.Options {
		options[i] = acp.Option{ID: o.ID, Name: o.Name, Kind: o.Kind}
	}
	s.mu.Lock()
	s.asked++
	id := fmt.Sprintf("ask-%d", s.asked)
	s.questions[id] = run + " " + g.Step
	s.mu.Unlock()
	params, err := json.Marshal(map[string]any{"sessionId": session, "options": options,
		"toolCall": acp.Tool{ID: g.Step, Title: g.Message, Status: "pending"},
		"_meta":    map[string]any{"ramus": map[string]any{"run": run, "step": g.Step}}})
	if err != nil {
		return
	}
	name, _ := json.Marshal(id)
	s.send(message{ID: name, Method: "session/request_permission", Params: params})
}

// answered takes the program's answer to a question. Somebody else may have answered it before, and then that answer counts.
func (s *socket) answered(m message) {
	var id string
	if json.Unmarshal(m.ID, &id) != nil {
		return
	}
	s.mu.Lock()
	question, ok := s.questions[id]
	delete(s.questions, id)
	s.mu.Unlock()
	if !ok || m.Error != nil {
		return
	}
	var r struct {
		Outcome struct {
			Outcome string `json:"outcome"`
			Option  string `json:"optionId"`
		} `json:"outcome"`
	}
	if json.Unmarshal(m.Result, &r) != nil || r.Outcome.Outcome != "selected" {
		return // the question stays open for others
	}
	run, step, _ := strings.Cut(question, " ")
	_, err := s.api.Talk.Executor.Decide(s.ctx, run,
		record.Decision{Step: step, Option: r.Outcome.Option, By: s.who.Subject,
			Name: s.who.Person(gitd.Person{}).Name})
	if err != nil {
		s.notify("_ramus/refused", map[string]any{"run": run, "step": step, "message": route.AsProblem(err, s.who).Error()})
	}
}

// contentBlock is a part of a prompt.
type contentBlock struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     []byte `json:"data"`
	MimeType string `json:"mimeType"`
	URI      string `json:"uri"`
	Name     string `json:"name"`
	Resource struct {
		URI  string `json:"uri"`
		Text string `json:"text"`
		Blob []byte `json:"blob"`
	} `json:"resource"`
}

// readBlocks returns the prompt of content blocks.
func readBlocks(blocks []contentBlock) (p record.Prompt, err error) {
	var words []string
	total := 0
	attach := func(name string, content []byte) error {
		if total += len(content); len(p.Files) >= MaxFiles || total > MaxUpload {
			return &fault{codeParams,
				fmt.Sprintf("a prompt has at most %d files with %d MiB together", MaxFiles, MaxUpload>>20)}
		}
		kept, err := Attach(content)
		if err != nil {
			return &fault{codeParams, fmt.Sprintf("cannot take the file %.100q: %v", name, err)}
		}
		p.Files = append(p.Files, record.Attachment{Name: name, Type: Picture(kept), Content: kept})
		return nil
	}
	for _, b := range blocks {
		switch b.Type {
		case "text":
			words = append(words, b.Text)
		case "resource_link":
			words = append(words, b.URI)
		case "image":
			err = attach("picture", b.Data)
		case "resource":
			content := b.Resource.Blob
			if len(content) == 0 {
				content = []byte(b.Resource.Text)
			}
			err = attach(b.Resource.URI, content)
		default:
			err = &fault{codeParams, fmt.Sprintf("a prompt cannot have a block of type %.100q", b.Type)}
		}
		if err != nil {
			return p, err
		}
	}
	p.Text = strings.Join(words, "\n")
	return p, nil
}

var (
	_ Executor = (*executor.Executor)(nil)
	_ Prompts  = (*dialogue.Prompts)(nil)
)
