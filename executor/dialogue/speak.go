package dialogue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/internal/text"
)

// spoken is the data of the EventAgent of kind "session". It is the session of a run's turns.
type spoken struct {
	ID      string `json:"id"`
	Agent   string `json:"agent,omitempty"` // as it calls itself
	Version string `json:"version,omitempty"`
	Resumed bool   `json:"resumed,omitempty"`
}

// acpReason has the stop reasons of failed turns, for people.
var acpReason = map[string]string{
	"max_tokens":        "the model may not write more",
	"max_turn_requests": "it may not ask its model more often",
	"refusal":           "the model refused to go on",
	"cancelled":         "it says that the turn was cancelled",
}

// speak is a turn with an agent of agent.ProtocolACP. It sends the prompt to the session. The turn is over when the
// agent reports its end. The process stays for the next turn if there is another prompt by then.
//
// After a restart of the server the agent is ended, and the words that it said meanwhile are recorded. If it had not ended its turn,
// another process in the same container loads the session, and its prompt notes that the turn was interrupted. Its earlier work is in
// the work tree.
func (t *turn) speak(ctx context.Context, w *step.Work) (step.Outcome, error) {
	began := t.d.all.Now()
	stop, said, err := t.overMeanwhile(w)
	if err != nil {
		return step.Outcome{}, err
	}
	if said {
		t.remember(ctx, w)
		return t.spokenOutcome(w, containers.Exit{Duration: t.d.all.Now().Sub(began)}, stop, nil), w.Out.Flush()
	}
	tctx, end, done := t.open(ctx, w)
	defer done()
	t.clock = agent.NewClock(t.a.Timeout, func() { end(errTurnTimeout) })
	defer t.clock.Pause()
	left := new(atomic.Int64)
	left.Store(t.a.Output)
	stop, err = t.sayTo(tctx, w, func(n int) {
		if left.Add(-int64(n)) < 0 {
			end(errBabble)
		}
	})
	var cause error
	if err != nil { // otherwise the turn was over before anything else happened
		cause = context.Cause(tctx)
	}
	switch {
	case errors.Is(cause, record.ErrClosed):
		t.endProcess()
		return step.Outcome{}, cause
	case err != nil && step.LostHost(w.Host):
		t.endProcess()
		return step.Outcome{}, fmt.Errorf("cannot speak to the agent in %s: %w", w.Info.ID, containers.ErrGone)
	}
	exit := containers.Exit{Duration: t.d.all.Now().Sub(began)}
	// An agent that ended the turn on request can have the next one.
	interrupted := errors.Is(cause, errInterrupted)
	graceful := interrupted && stop != "" && t.process != nil && t.process.Ready(w.Host)
	exit.Code, exit.Reason = exitOf(cause, err)
	if err != nil && !graceful || t.planning || !t.d.unheard() || !t.process.Lasts() {
		// End the process before its memory is read, which it may still be writing.
		left := t.endProcess()
		if left != nil && err != nil && exit.Reason == "" && left.Reason != containers.ReasonKilled { // by hangUp
			exit.Code, exit.Reason, exit.Message = max(left.Code, 1), left.Reason, left.Message
		}
	} else {
		t.process.SetTurn(nil, nil)
	}
	if err := w.Out.Flush(); err != nil {
		return step.Outcome{}, err
	}
	if interrupted {
		stop, err = cmp.Or(stop, "cancelled"), nil
	}
	if err == nil {
		if err := t.noteStop(w, stop); err != nil {
			return step.Outcome{}, err
		}
	}
	t.remember(ctx, w)
	if errors.Is(cause, errBabble) {
		err = cause
	}
	return t.spokenOutcome(w, exit, stop, err), nil
}

// exitOf returns the exit code and the reason of a turn, as those of a command. cause is that of the end of its context, and err that of the
// agent's answer. Both may be nil.
func exitOf(cause, err error) (code int, reason string) {
	switch {
	case errors.Is(cause, errInterrupted):
	case errors.Is(cause, errTurnTimeout):
		return 124, containers.ReasonTimeout
	case cause != nil:
		return 143, containers.ReasonKilled
	case err != nil:
		return 1, ""
	}
	return 0, ""
}

// errTurnTimeout is the cause of the end of a turn that took longer than it may.
var errTurnTimeout = errors.New("the turn took too long")

// stopped reports whether the turn was over when the server stopped, and for what reason.
func (t *turn) stopped(w *step.Work) (reason string, ok bool) {
	if !w.Again {
		return "", false
	}
	for _, e := range slices.Backward(t.run.Journalled()) {
		switch {
		case e.Step != w.Info.ID:
		case e.Type == record.EventStepStarted:
			return "", false
		case e.Type == record.EventAgent && e.Kind == agent.KindStop:
			return e.Message, true
		}
	}
	return "", false
}

func (t *turn) spokenOutcome(w *step.Work, exit containers.Exit, stop string, err error) step.Outcome {
	o := step.OutcomeOf(exit, w.Out)
	o.Subject = t.about()
	o.Result.Output["stop_reason"] = stop
	said, short := acpReason[stop]
	switch {
	case stop == "cancelled" && t.d.interrupted(w.Info.ID):
		markStopped(&o)
	case errors.Is(err, errBabble):
		o.Result.Error = fmt.Sprintf("the agent printed more than %d MiB and was ended", t.a.Output>>20)
	case exit.Reason == containers.ReasonTimeout:
		o.Result.Error = fmt.Sprintf("the agent took longer than %s and was ended", t.a.Timeout)
	case exit.Reason != "":
	case err != nil:
		o.Result.OK, o.Result.Error = false, text.Clip(err.Error(), 4<<10)
		if end := tailOf(w.Out.Stderr); end != "" {
			o.Result.Error += "; it printed last: " + end
		}
	case short:
		o.Result.OK, o.Result.Error = false, "the agent ended its turn before it was done: "+said
	}
	return o
}

// tailOf returns the end of an agent's output that is not of the protocol.
func tailOf(c *live.Capture) string {
	short := text.Tail{Limit: 500}
	_, _ = short.Write([]byte(c.Tail()))
	return strings.TrimSpace(short.String())
}

// sayTo sends the turn's prompt to the agent's process, or to a new one.
func (t *turn) sayTo(ctx context.Context, w *step.Work, meter func(int)) (stop string, err error) {
	files, err := w.Host.Files(ctx)
	if err != nil {
		return "", err
	}
	defer files.Close()
	if t.process != nil && !t.process.Ready(w.Host) {
		t.endProcess()
	}
	fresh := t.process == nil
	lost := false
	if fresh {
		if lost, err = t.call(ctx, w, files, meter); err != nil {
			return "", fmt.Errorf("cannot speak to %s: %w", t.a.Name, err)
		}
	}
	blocks, err := t.words(ctx, w, files, lost)
	if err != nil {
		return "", err
	}
	t.process.SetTurn(agentTurn{w, t.d}, meter)
	t.steerable()
	return t.process.Say(ctx, t.clock, blocks)
}

// call starts the agent and opens the session. lost reports whether the agent could not continue an earlier session.
func (t *turn) call(ctx context.Context, w *step.Work, files *sftp.Client, meter func(int)) (lost bool, err error) {
	run := t.run
	if _, err := t.memory(w).Restore(ctx, w.Host.Container().ID, files); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.d.all.Waits.Start,
		fmt.Errorf("the agent was not ready after %s", t.d.all.Waits.Start))
	defer cancel()
	browser := t.openBrowser(ctx, w)
	k, err := agent.Start(ctx, w.Host, t.agentOptions(browser), agentTurn{w, t.d}, meter)
	t.process = k // also one that did not come up has to be ended
	if err != nil {
		return false, err
	}
	open := acp.Session{Dir: containers.WorkDir, Mode: t.a.Mode, Auth: t.a.Auth, MCP: t.servers(ctx, w, browser),
		ID: t.formerSession()}
	if open.ID != "" {
		k.Session, err = k.Conn.Open(ctx, open)
		if errors.Is(err, acp.ErrRefused) {
			note := record.Event{Type: record.EventNote, Step: w.Info.ID,
				Message: text.Clip("the agent's session could not be continued, and a new one begins: "+err.Error(), 4<<10)}
			if err := run.Emit(note, false); err != nil {
				return false, err
			}
			lost, open.ID, err = true, "", nil
		}
	}
	if open.ID == "" && err == nil {
		k.Session, err = k.Conn.Open(ctx, open)
	}
	if err != nil {
		return false, err
	}
	data := spoken{ID: k.Session, Agent: k.Conn.Agent.Name, Version: k.Conn.Agent.Version, Resumed: open.ID != ""}
	return lost, run.Emit(record.Event{Type: record.EventAgent, Kind: agent.KindSession, Step: w.Info.ID, Message: k.Session,
		Data: record.Marshal(data)}, true)
}

// formerSession returns the session that the run's prompts belong to. That is the run's own, or that of the caller's
// last run with the same agent and label, or the one that the caller was forked with. The runs' refs hold it, so it
// outlives containers and the index.
func (t *turn) formerSession() string {
	if id := t.run.Snapshot().Session; id != "" {
		return id
	}
	own := *t.run.Initial.Agent
	for c, depth := t.run.Initial.Caller, 0; depth <= record.MaxForks; depth++ {
		runs := t.d.all.History.OfCaller(c)
		for _, s := range record.Sessions(runs) {
			if s.Agent == own.Name && s.Label == own.Session && s.ID != "" {
				return s.ID
			}
		}
		at := slices.IndexFunc(runs, func(r record.Run) bool { return r.Fork != nil })
		if at < 0 {
			break
		}
		of, err := record.ParseCaller(runs[at].Fork.Of)
		if err != nil {
			break
		}
		c = of
	}
	return ""
}

// servers returns the MCP servers that an agent in a container gets. The server at its door is reached by HTTP, or by
// ramus's own binary if the agent does not support HTTP and the binary can run there. Its browser is reached by HTTP
// alone.
func (t *turn) servers(ctx context.Context, w *step.Work, browser bool) []sdk.McpServer {
	byHTTP := func(name, url string) sdk.McpServer {
		return sdk.McpServer{Http: &sdk.McpServerHttpInline{Type: "http", Name: name, Url: url, Headers: []sdk.HttpHeader{}}}
	}
	var list []sdk.McpServer
	if t.process.Conn.Agent.Capabilities.McpCapabilities.Http {
		if browser {
			list = append(list, byHTTP("browser", browse.InteractiveURL))
		}
		if t.d.all.MCP {
			list = append(list, byHTTP("ramus", "http://"+containers.DoorAddr+mcpPath))
		}
		return list
	}
	if !t.d.all.MCP {
		return nil
	}
	id := t.process.ID + "-mcp"
	exit, err := w.Attend(ctx, id, &containers.Command{ID: id, Args: []string{"test", "-x", containers.Program}},
		io.Discard, io.Discard)
	if err != nil || exit.Code != 0 {
		return nil // without them an agent can still work
	}
	return []sdk.McpServer{{Stdio: &sdk.McpServerStdio{Name: "ramus", Command: containers.Program,
		Args: []string{"mcp"}, Env: []sdk.EnvVariable{{Name: "RAMUS", Value: "1"}}}}}
}

// mcpPath is where containers reach the server of MCP at the door.
const mcpPath = "/mcp"

// words returns the prompt of the turn.
func (t *turn) words(ctx context.Context, w *step.Work, files *sftp.Client, lost bool) ([]sdk.ContentBlock, error) {
	run := t.run
	names, err := t.d.all.Attachments(run.Initial).Offer(ctx, files, t.all)
	if err != nil {
		return nil, fmt.Errorf("cannot give the agent its files: %w", err)
	}
	prompts := t.now
	text := t.withNote(Join(prompts))
	switch {
	case lost && !t.first:
		prompts = t.all
		text = "The session in which you were told this was lost; your work until then is in the work tree. You were told:\n\n" + Join(prompts)
	case w.Again:
		text = "The connection to you was interrupted in the middle of this turn. What you did until then is in the work tree and may be half done: look first, then go on. You were told:\n\n" + text
	}
	blocks := []sdk.ContentBlock{sdk.TextBlock(text)}
	added := slices.Concat(names[len(t.all)-len(prompts):]...)
	if len(added) > agent.MaxFiles {
		blocks[0].Text.Text += "\n\nFiles that were given along are in " + attachment.FolderOf(run.Initial)
		return blocks, nil
	}
	for _, name := range added {
		link := &sdk.ContentBlockResourceLink{Type: "resource_link", Name: path.Base(name), Uri: "file://" + name}
		if kind := mime.TypeByExtension(path.Ext(name)); kind != "" {
			link.MimeType = &kind
		}
		blocks = append(blocks, sdk.ContentBlock{ResourceLink: link})
	}
	if !t.process.Conn.Agent.Capabilities.PromptCapabilities.Image {
		return blocks, nil
	}
	pictures, err := t.d.all.Attachments(run.Initial).Pictures(ctx, prompts)
	if err != nil {
		return nil, err
	}
	return append(blocks, pictures...), nil
}

// endProcess ends the agent's process, if there is one, and returns how it ended if that is known.
func (c *conversation) endProcess() *containers.Exit {
	defer c.closeBrowser() // after the process that uses it
	k := c.process
	if k == nil {
		return nil
	}
	c.process = nil
	return k.End(c.ctx)
}

// agentTurn is the [agent.Turn] of a step.
type agentTurn struct {
	w *step.Work
	d *Dialogue
}

func (t agentTurn) Step() string { return t.w.Info.ID }

func (t agentTurn) Emit(e record.Event) error { return t.w.Run.Emit(e, false) }

func (t agentTurn) Output() (stdout, stderr io.Writer) {
	if t.w.Out == nil {
		return io.Discard, io.Discard
	}
	return t.w.Out.Stdout, t.w.Out.Stderr
}

func (t agentTurn) AskPermission(ctx context.Context, q acp.Question) (option string, err error) {
	return t.d.askPermission(ctx, t.w.Info.ID, q)
}

func (t agentTurn) Judge(c record.Command) bool {
	ask, deny := t.w.Target.Settings().Rules.JudgeAll(step.CommandsOf(c))
	return len(ask) > 0 || deny != nil
}

func (t agentTurn) Permit(ctx context.Context, c record.Command) error {
	return t.w.PermitCommand(ctx, c)
}

// agentOptions returns the options of a process of the run's agent.
func (c *conversation) agentOptions(browser bool) agent.Options {
	bounds := c.d.all.Bounds()
	return agent.Options{
		Agent:      c.a,
		Env:        c.env(browser),
		Prefix:     c.run.ProcessPrefix(),
		Timeout:    bounds.Timeout,
		RunTimeout: bounds.RunTimeout,
		Output:     bounds.Output,
		Guard:      c.run.Target.Settings().Rules.Programs(),
		Waits:      c.d.all.Waits,
	}
}

// env returns the environment of the agent.
func (c *conversation) env(browser bool) []string {
	env := slices.Concat(c.run.Target.Env(c.run.Initial.Asker), c.a.Env,
		[]string{"RAMUS_FILES=" + attachment.FolderOf(c.run.Initial)})
	if browser {
		env = append(env, browse.InteractiveEnv+"="+browse.InteractiveURL)
	}
	return env
}
