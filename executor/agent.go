package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/library"
)

// Agent is a coding agent that runs as a command in the caller's container:
// one invocation a turn, the prompt in, its output streamed, what it changed
// committed. It is configured by whoever runs the server, never by a repository.
type Agent struct {
	Name string // lower-case letters, digits and hyphens; empty: its key in Executor.Agents
	// Image to run in, where the engine has images; empty: Executor.Image, or
	// whatever the caller's container is made of already.
	Image string
	// Command is an argument vector for the first turn. Resume, when set, is the one
	// for every later turn of the caller, in this container or a new one.
	Command, Resume []string
	// Argument gives the prompt as the last argument; otherwise it is on standard input.
	Argument bool
	Env      []string // "K=V", added to Executor.Env
	// State lists files and folders below the home folder that are the agent's own
	// memory. They are committed to refs/ramus/state/CALLER when a turn ends, and put
	// back before the first turn in a new container.
	State []string
	// Timeout of one turn; default Executor.Timeout.
	Timeout time.Duration
	// Protocol is how it is spoken to: [ProtocolText], the default, is one invocation
	// a turn with the prompt going in. With [ProtocolACP] Command starts an agent of
	// the Agent Client Protocol on standard input and output, and Resume is not used:
	// a session goes on by its id.
	Protocol string
	// Permission answers what an agent of ProtocolACP asks leave for, unless Allow
	// lists the kind of tool call ("read", "edit", "execute" …): [PermissionAllow], the default,
	// [PermissionAsk] a person, [PermissionDeny].
	Permission string
	Allow      []string
	// Mode is the session mode to set, where the agent has modes ("plan"); empty: its own.
	Mode string
	// Auth is the id of the way to sign in ("gemini-api-key") when an agent of
	// ProtocolACP asks for one; its credentials are in Env, and no secret: the door adds those.
	Auth string
	// Browser is [BrowserInteractive] for an agent that gets a browser to drive while it works: Playwright's MCP
	// server in a sidecar, as the MCP server "browser" of an agent of ProtocolACP that speaks
	// HTTP, and otherwise at the address in RAMUS_BROWSER_MCP. Empty: none.
	Browser string
	// Output is how many bytes a turn may print before it is taken for a loop
	// and ended; default 256 MiB.
	Output int64
	// Checks are the library tasks that are run after the last turn: "lib_run_tests".
	// A check that finds nothing to run is journalled as skipped.
	Checks []string
}

// How agents are spoken to.
const (
	ProtocolText = "text"
	ProtocolACP  = "acp" // https://agentclientprotocol.com
)

// What is said to an agent that asks for leave.
const (
	PermissionAllow = "allow"
	PermissionAsk   = "ask" // the run's Gate is the question, [Executor.Decide] answers it
	PermissionDeny  = "deny"
)

// Bounds of what is said to agents.
const (
	maxPrompt = 256 << 10
	// Linux takes no single argument of 128 KiB or more; the names of files are added.
	maxArgument = 112 << 10
	// Prompts that wait are given together, as far as they fit into one turn.
	maxTurnText = 1 << 20
	maxUnheard  = 100
	maxTitle    = 500
	maxLabel    = 200
	agentOutput = 256 << 20
)

var agentName = regexp.MustCompile(`^[a-z0-9]+(?:-[a-z0-9]+)*$`)

// checkAgents refuses agents that could not run, and fills in what was left out.
func checkAgents(given map[string]Agent) (map[string]Agent, error) {
	agents := make(map[string]Agent, len(given))
	for name, a := range given {
		if a.Name == "" {
			a.Name = name
		}
		fault := func(format string, args ...any) (map[string]Agent, error) {
			return nil, fmt.Errorf("cannot use agent %q: %w: %s", name, record.ErrInvalid, fmt.Sprintf(format, args...))
		}
		switch {
		case a.Name != name:
			return fault("it calls itself %q", a.Name)
		case !agentName.MatchString(name) || len(name) > 40:
			return fault("a name is lower-case letters, digits and single hyphens, at most 40")
		case len(a.Command) == 0:
			return fault("it has no command")
		}
		for i, p := range a.State {
			p = filepath.Clean(strings.TrimPrefix(p, "~/"))
			if !filepath.IsLocal(p) || p == "." || !gitCanHold(p) {
				return fault("state %q: want a file or folder below the home folder", a.State[i])
			}
			a.State = slices.Clone(a.State)
			a.State[i] = p
		}
		for _, check := range a.Checks {
			if _, ok := library.Lookup(check); !ok {
				return fault("there is no task %q to check with; `ramus tasks` lists them", check)
			}
		}
		for _, kv := range a.Env {
			if k, _, ok := strings.Cut(kv, "="); !ok || k == "" {
				return fault("environment %q is not NAME=VALUE", kv)
			}
		}
		switch a.Protocol {
		case "", ProtocolText:
			a.Protocol = ProtocolText
		case ProtocolACP:
			if a.Argument || len(a.Resume) > 0 {
				return fault("over ACP the prompt is no argument, and a session goes on by its id: leave prompt and resume out")
			}
		default:
			return fault("protocol %q: want %s or %s", a.Protocol, ProtocolText, ProtocolACP)
		}
		if a.Browser != "" && a.Browser != BrowserInteractive {
			return fault("browser %q: want %s, or nothing", a.Browser, BrowserInteractive)
		}
		switch a.Permission {
		case "":
			a.Permission = PermissionAllow
		case PermissionAllow, PermissionAsk, PermissionDeny:
		default:
			return fault("permission %q: want %s, %s or %s", a.Permission, PermissionAllow, PermissionAsk, PermissionDeny)
		}
		if a.Output <= 0 {
			a.Output = agentOutput
		}
		agents[name] = a
	}
	return agents, nil
}

// agent finds an agent by its name; the only one has no need of it.
func (x *Executor) agent(name string) (Agent, error) {
	names := slices.Sorted(maps.Keys(x.Agents))
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	if a, ok := x.Agents[name]; ok {
		return a, nil
	}
	switch {
	case len(names) == 0:
		return Agent{}, fmt.Errorf("%w agent %q: none is configured; see `agents` in the configuration", record.ErrInvalid, name)
	case name == "":
		return Agent{}, fmt.Errorf("%w request: it names no agent; known are %s", record.ErrInvalid, strings.Join(names, ", "))
	}
	return Agent{}, fmt.Errorf("%w agent %q; known are %s", record.ErrInvalid, name, strings.Join(names, ", "))
}

// accepts tells whether a prompt can be given to the agent.
func (a Agent) accepts(text string, files []record.Attachment) error {
	most := a.maxPrompt()
	switch {
	case strings.TrimSpace(text) == "":
		return fmt.Errorf("%w prompt: it is empty", record.ErrInvalid)
	case len(text) > most:
		return fmt.Errorf("%w prompt: it has %d bytes, at most %d can be given to %s; attach the rest as a file", record.ErrInvalid, len(text), most, a.Name)
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("%w prompt: it contains a NUL byte", record.ErrInvalid)
	}
	return acceptFiles(files)
}

// maxPrompt is how long one prompt may be, in bytes.
func (a Agent) maxPrompt() int {
	if a.Argument {
		return maxArgument
	}
	return maxPrompt
}

// planAgent fills in a plan for an agent.
func (x *Executor) planAgent(call record.AgentCall, p *plan) error {
	a, err := x.agent(call.Name)
	if err != nil {
		return err
	}
	if err := a.accepts(call.Prompt, call.Files); err != nil {
		return err
	}
	switch {
	case len(call.Title) > maxTitle:
		return fmt.Errorf("%w title: it has more than %d bytes", record.ErrInvalid, maxTitle)
	case len(call.Session) > maxLabel || !utf8.ValidString(call.Session):
		return fmt.Errorf("%w session label: at most %d bytes of text", record.ErrInvalid, maxLabel)
	case call.Session != "" && a.Protocol != ProtocolACP:
		return fmt.Errorf("%w session label %q: %s goes on with what it was told last and cannot keep several sessions apart; that takes an agent of kind acp",
			record.ErrInvalid, call.Session, a.Name)
	}
	call.Name = a.Name
	p.given = named(call.Files)
	call.Files = withoutContent(p.given)
	p.run.Kind, p.run.Agent, p.run.Command = record.KindAgent, &call, a.Name+": "+cmp.Or(firstLine(call.Title), firstLine(call.Prompt))
	return nil
}

// image is the image that the run's container has to be made of; empty: any.
func (l *liveRun) image() string {
	if l.claim.Agent == nil {
		return ""
	}
	return l.x.Agents[l.claim.Agent.Name].Image
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
}

// Say hands text to a run's agent at its next turn. It is durable when Say
// returns. A run that is not an agent's, or has had its last turn, is ErrConflict:
// then it takes a new run. A key that was said before to this run is no error,
// also when the run has ended meanwhile.
func (x *Executor) Say(ctx context.Context, run string, p record.Prompt) error {
	if err := x.say(ctx, run, p); err != nil {
		return fmt.Errorf("cannot speak to %s: %w", run, err)
	}
	return nil
}

// errOver: the run takes nothing more.
var errOver = fmt.Errorf("%w: its agent has had its last turn; start a new run", record.ErrConflict)

func (x *Executor) say(ctx context.Context, run string, p record.Prompt) error {
	r, err := x.Run(ctx, run)
	if err != nil {
		return err
	}
	if r.Kind != record.KindAgent || r.Agent == nil {
		return fmt.Errorf("%w: it is no agent's run", record.ErrConflict)
	}
	if err := x.Agents[r.Agent.Name].accepts(p.Text, p.Files); err != nil {
		return err
	}
	if p.Key == "" {
		p.Key = record.NewToken() + record.NewToken()
	}
	if len(p.Key) > 200 {
		return fmt.Errorf("%w key: it has more than 200 bytes", record.ErrInvalid)
	}
	files := x.cleanFiles(p.Files)
	// Its key, too: it is compared with what was journalled.
	p = redact.Clean(x.Secrets, p)
	p.Files = files
	l := x.alive(r.Caller, r.ID)
	if l != nil {
		if err = l.say(p); !errors.Is(err, errOver) {
			return err
		}
	}
	if err := x.isOpen(); err != nil {
		return err // the next process goes on with the run
	}
	// It may have been said before the run ended, and only the answer was lost.
	for e, err := range x.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return err
		}
		if said, ok := e.Prompt(); ok && said.Key == p.Key {
			return nil
		}
	}
	return errOver
}

// say journals a prompt. That there is another turn for it is decided under the
// same lock under which the run's owner decides that there is none.
func (l *liveRun) say(p record.Prompt) error {
	given := named(p.Files)
	p.Files = withoutContent(given)
	dir, discard, err := l.x.keepFiles(l.claim, given)
	defer discard()
	l.mu.Lock()
	defer l.mu.Unlock()
	said, heard := 0, 0
	for _, e := range l.events {
		if before, ok := e.Prompt(); ok {
			if before.Key == p.Key {
				return nil
			}
			said++
		}
		if n := promptsHeard(e); n > 0 {
			heard = n - 1 // the first is the request's own
		}
	}
	switch {
	case l.over || l.deaf:
		return errOver // and its folder may be gone already
	case err != nil:
		return err
	case said-heard >= maxUnheard:
		return fmt.Errorf("%w: %d prompts wait for its agent already", record.ErrConflict, maxUnheard)
	}
	if dir != "" {
		if err := l.x.placeFiles(l.claim, dir, p.Key); err != nil {
			return err
		}
	}
	return l.emitLocked(record.Event{Type: record.EventPrompt, Message: text.Clip(p.Text, 4<<10), Data: record.Marshal(p)}, true)
}

// promptsHeard returns how many prompts an agent has heard with the turn that e begins, and 0 if e begins none.
func promptsHeard(e record.Event) int {
	var s started
	if e.Type != record.EventStepStarted || e.Kind != string(record.KindAgent) || json.Unmarshal(e.Data, &s) != nil {
		return 0
	}
	return s.Prompts
}

// unheard tells whether more was said than a number of prompts.
func (l *liveRun) unheard(than int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unheardLocked(than)
}

func (l *liveRun) unheardLocked(than int) bool {
	said := 1
	for _, e := range l.events {
		if e.Type == record.EventPrompt {
			said++
		}
	}
	return said > than
}

// lastTurn ends the conversation when nothing more was said; from then on Say refuses.
func (l *liveRun) lastTurn(heard int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = !l.unheardLocked(heard)
	return l.deaf
}

// deafen ends the conversation whatever was said.
func (l *liveRun) deafen() {
	l.mu.Lock()
	l.deaf = true
	l.mu.Unlock()
}

// saidTo is all that was said to a run's agent, as one call.
func (x *Executor) saidTo(ctx context.Context, r record.Run) (*record.AgentCall, error) {
	a, err := x.agent(r.Agent.Name)
	if err != nil {
		return nil, err
	}
	var events []record.Event
	for e, err := range x.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	prompts := r.Prompts(events)
	call := &record.AgentCall{Name: a.Name, Prompt: joinPrompts(prompts), Title: r.Agent.Title, Session: r.Agent.Session}
	if len(call.Prompt) > a.maxPrompt() {
		// Each was short enough, all of them are not: they become a file.
		call.Files = []record.Attachment{{Name: "prompts.txt", Type: "text/plain", Content: []byte(call.Prompt)}}
		call.Prompt = prompts[0].Text
	}
	for _, p := range prompts {
		files, err := x.givenFiles(ctx, r, p)
		if err != nil {
			return nil, err
		}
		call.Files = append(call.Files, files...)
	}
	return call, nil
}

// joinPrompts is the text of several prompts for one turn.
func joinPrompts(prompts []record.Prompt) string {
	texts := make([]string, len(prompts))
	for i, p := range prompts {
		texts[i] = strings.TrimSpace(p.Text)
	}
	return strings.Join(texts, "\n\n")
}
