package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// commandsAPI runs commands and serves the background processes that they leave.
type commandsAPI struct {
	Executor *executor.Executor
	find     *lookup.Lookup
	privacy  workspace.Privacy // nil means that nothing is private
	// Heartbeat is how often an empty line is sent while the command prints nothing, to keep the connection alive.
	Heartbeat time.Duration
}

// Routes returns the routes of commands and background processes.
func (api *commandsAPI) Routes() []route.Route {
	return []route.Route{
		{Method: "POST", Pattern: "/api/callers/{caller}/exec", Access: route.AccessWrite,
			Summary: "Run a command and stream its output; hanging up stops it, unless detach=1. CALLER may be \"new\", or an id that is free, with a repo",
			Query:   execQuery{}, Request: ExecRequest{}, Response: ExecLine{}, Media: route.MediaLines, Body: -1,
			Handle: api.exec},
		{Method: "GET", Pattern: "/api/callers/{caller}/processes", Access: route.AccessRead,
			Summary: "A caller's background processes", Response: []executor.Process{}, Handle: api.processes},
		{Method: "GET", Pattern: "/api/callers/{caller}/processes/{process}/output", Access: route.AccessRead,
			Summary: "What a background process has printed; follow=1 goes on until it ends", Query: processQuery{},
			Response: ExecLine{}, Media: route.MediaLines, Handle: api.processOutput},
		{Method: "DELETE", Pattern: "/api/callers/{caller}/processes/{process}", Access: route.AccessWrite,
			Summary: "End a background process", Response: struct{}{}, Handle: api.stopProcess},
	}
}

// ExecRequest is a request to run a command.
type ExecRequest struct {
	Repo    string         `json:"repo,omitempty" jsonschema:"required for a caller that is new"`
	Base    string         `json:"base,omitempty" jsonschema:"branch to start from; the repository's base if empty"`
	With    []string       `json:"with,omitempty" jsonschema:"additional repositories that the caller works in"`
	Key     string         `json:"key,omitempty" jsonschema:"makes the request idempotent"`
	Group   string         `json:"group,omitempty" jsonschema:"of the runs of this group in the repository, one works at a time"`
	Fork    *record.Fork   `json:"fork,omitempty" jsonschema:"begin a new caller at a commit of another one"`
	Command record.Command `json:"command"`
	Asker   gitd.Person    `json:"asker,omitzero"`
	// Secrets are for this command alone. No container gets their values.
	Secrets []record.HandedSecret `json:"secrets,omitempty"`
	// CancelPrevious stops the earlier runs of the group, or without a group those of the caller.
	CancelPrevious bool `json:"cancel_previous,omitempty"`
	Fresh          bool `json:"fresh,omitempty" jsonschema:"run a pure command although its result is known"`
	// Stdin is set if the rest of the body after this object is the standard input of the command.
	Stdin bool `json:"stdin,omitempty"`
}

// ExecLine is one line of the answer. It is a piece of output, the result of the command, or a problem. Empty lines
// keep the connection alive.
type ExecLine struct {
	Caller  string         `json:"caller,omitempty"` // the caller of the command
	Stream  string         `json:"stream,omitempty"` // stdout, stderr
	Data    []byte         `json:"data,omitempty"`   // base64, because output need not be text
	Result  *record.Result `json:"result,omitempty"`
	End     bool           `json:"end,omitempty"` // the end of a background process's output
	Problem *route.Problem `json:"problem,omitempty"`
}

type execQuery struct {
	Detach bool `json:"detach,omitempty" jsonschema:"the command goes on when the connection breaks"`
}

func (api *commandsAPI) exec(c *route.Call) error {
	var q execQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	x, stdin, err := api.execRequest(c)
	if err != nil {
		return err
	}
	caller, repo, err := api.find.CallerOrNew(c.Who, c.R.PathValue("caller"), x.Repo, x.Fork != nil)
	if err != nil {
		return err
	}
	request := record.Request{Key: x.Key, Caller: caller, Repo: repo, Base: x.Base, With: x.With, Fork: x.Fork, Command: &x.Command,
		Asker: x.Asker, Group: x.Group, CancelPrevious: x.CancelPrevious, Fresh: x.Fresh,
		Secrets: x.Secrets}
	if err := api.find.Bind(c.R.Context(), c.Who, &request); err != nil {
		return err
	}
	if len(x.Command.Args) == 0 && x.Command.Shell == "" {
		return route.NewProblem(route.KindInvalid, "there is no command: want args or shell")
	}
	if stdin != nil {
		request.Command.Stdin = stdin
	}
	settle, err := workspace.Hide(c.R.Context(), api.Executor, api.privacy, &request)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(c.R.Context())
	if q.Detach {
		ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	defer cancel()
	out := &execLines{call: c, hangUp: cancel}
	if q.Detach {
		out.hangUp = func() {}
	}
	stop := out.keepAlive(api.Heartbeat)
	result, err := api.Executor.Exec(ctx, request, out.to("stdout"), out.to("stderr"))
	stop()
	if err := settle(err); err != nil {
		return out.fail(err)
	}
	return out.send(ExecLine{Result: &result})
}

// execRequest reads the JSON object at the beginning of the body. The rest of the body is standard input if Stdin is
// set. Otherwise it must be empty.
func (api *commandsAPI) execRequest(c *route.Call) (ExecRequest, io.Reader, error) {
	const limit = 1 << 20
	var x ExecRequest
	defer c.LimitReading()()
	// A command may answer before it has read all of its input.
	rc := http.NewResponseController(c.W)
	if err := rc.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return x, nil, err
	}
	head := &io.LimitedReader{R: c.R.Body, N: limit}
	d := json.NewDecoder(head)
	d.DisallowUnknownFields()
	if err := d.Decode(&x); err != nil {
		if head.N == 0 {
			return x, nil, route.NewProblem(route.KindTooLarge, "the request is larger than %d bytes", limit)
		}
		return x, nil, route.BadJSON(err)
	}
	rest := io.MultiReader(d.Buffered(), c.R.Body)
	if x.Stdin {
		return x, &afterNewline{r: rest}, nil
	}
	// The server notices a closed connection only after the body was read to its end.
	tail, err := io.ReadAll(io.LimitReader(rest, 64))
	if err != nil {
		return x, nil, err
	}
	if strings.TrimSpace(string(tail)) != "" {
		return x, nil, route.NewProblem(route.KindInvalid,
			"the request's body goes on after its JSON object; standard input needs \"stdin\": true")
	}
	return x, nil, nil
}

// afterNewline skips one newline at the beginning, because it belongs to the line of the request.
type afterNewline struct {
	r     io.Reader
	begun bool
}

func (a *afterNewline) Read(p []byte) (int, error) {
	if a.begun || len(p) == 0 {
		return a.r.Read(p)
	}
	a.begun = true
	n, err := a.r.Read(p)
	if n > 0 && p[0] == '\n' {
		n = copy(p, p[1:n])
	}
	return n, err
}

// execLines writes the lines of the answer. Methods are safe for concurrent use by both streams and the heartbeat.
type execLines struct {
	call   *route.Call
	hangUp context.CancelFunc

	mu    sync.Mutex // guards all fields below
	begun bool
	gone  error // the error of the first failed write
	out   route.StreamWriter
}

func (l *execLines) send(v ExecLine) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone != nil {
		return l.gone
	}
	if !l.begun {
		l.begun, l.out = true, l.call.BeginStream(route.MediaLines)
	}
	if l.gone = l.out.WriteLine(v); l.gone != nil {
		l.hangUp()
	}
	return l.gone
}

// fail sends the problem of a command without a result. If the answer has not begun, fail only returns err, which
// becomes the answer.
func (l *execLines) fail(err error) error {
	l.mu.Lock()
	begun := l.begun
	l.mu.Unlock()
	if !begun || l.call.R.Context().Err() != nil {
		return err
	}
	p := route.AsProblem(err, l.call.Who)
	p.Request = l.call.ID
	if werr := l.send(ExecLine{Problem: p}); werr != nil {
		return werr
	}
	return err
}

// keepAlive writes empty lines, so that a closed connection is noticed even while the command prints nothing. stop
// ends keepAlive.
func (l *execLines) keepAlive(every time.Duration) (stop func()) {
	done := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				_ = l.send(ExecLine{}) // send hangs up on an error
			}
		}
	})
	return func() { close(done); beats.Wait() }
}

// to returns a writer to one of the two streams. The writer never fails, because a command does not end when its
// reader disconnects. Hanging up ends the command, unless the caller asked for detach.
func (l *execLines) to(stream string) io.Writer { return execStream{l, stream} }

type execStream struct {
	lines *execLines
	name  string
}

func (s execStream) Write(p []byte) (int, error) {
	_ = s.lines.send(ExecLine{Stream: s.name, Data: p})
	return len(p), nil
}
