package shell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/terminal"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Bounds of terminals.
const (
	// Max is the number of terminals of one caller.
	Max = 8
	// keptFor is how long a terminal that has ended can still be looked at.
	keptFor = 10 * time.Minute
	// maxIdle is how long a terminal without viewers, output and input stays open.
	maxIdle = 12 * time.Hour
	// promptWait is how long a shell waits for the commit of the command before its prompt.
	promptWait = 10 * time.Second
	// promptWaits is the number of such waits at a time.
	promptWaits = 16
)

// Shells are the terminals of all callers. The exported fields may be changed until the first call of a method. Methods
// are safe for concurrent use.
type Shells struct {
	// Context ends with the cause [record.ErrClosed] when the server stops. The programs of terminals go on.
	Context context.Context
	Fleet   *containers.Fleet
	// Stop ends a run.
	Stop func(ctx context.Context, run string, by gitd.Person) error
	// Quiet is how long a terminal must be quiet for its changes to be committed.
	Quiet time.Duration
	// Secrets are removed from messages. Nil means that there are none.
	Secrets *redact.Secrets
	Log     *slog.Logger
	Now     func() time.Time

	mu   sync.Mutex // guards all below
	list map[record.Caller][]*Shell
}

// Add adds the terminal of a run that begins or is resumed. done is closed when the goroutine of the run has ended.
func (g *Shells) Add(run *step.Run, done <-chan struct{}) *Shell {
	s := g.newShell(run, done)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.list == nil {
		g.list = make(map[record.Caller][]*Shell)
	}
	c := run.Initial.Caller
	g.list[c] = slices.DeleteFunc(g.list[c], func(o *Shell) bool { return o.isForgotten() || o.IsOver() && o.Name == s.Name })
	g.list[c] = append(g.list[c], s)
	return s
}

// All returns a caller's terminals in the order in which they were opened, also those that have ended.
func (g *Shells) All(c record.Caller) []*Shell {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := slices.DeleteFunc(g.list[c], (*Shell).isForgotten)
	if len(list) == 0 {
		delete(g.list, c)
		return nil
	}
	g.list[c] = list
	return slices.Clone(g.list[c])
}

// Open returns a caller's terminals that have not ended.
func (g *Shells) Open(c record.Caller) []*Shell {
	return slices.DeleteFunc(g.All(c), (*Shell).IsOver)
}

// Find returns a caller's terminal by its name, or nil.
func (g *Shells) Find(c record.Caller, name string) *Shell {
	for _, s := range g.All(c) {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Named returns a caller's terminal by its name. The error is [record.ErrNotFound].
func (g *Shells) Named(c record.Caller, name string) (*Shell, error) {
	if s := g.Find(c, name); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("terminal %q of %s: %w", name, c, record.ErrNotFound)
}

// Close ends a terminal's program, commits its changes, and forgets the terminal. It returns when that is done.
func (g *Shells) Close(ctx context.Context, c record.Caller, name string, by gitd.Person) error {
	s, err := g.Named(c, name)
	if err != nil {
		return err
	}
	if !s.IsOver() {
		if err := g.Stop(ctx, s.Run().Name(), by); err != nil && !errors.Is(err, record.ErrConflict) {
			return err
		}
		select { // it may be ending by itself
		case <-s.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	g.Remove(s)
	return nil
}

// FreeName returns a name that no terminal of a caller has.
func (g *Shells) FreeName(c record.Caller) string {
	for n := 1; ; n++ {
		if name := strconv.Itoa(n); g.Find(c, name) == nil {
			return name
		}
	}
}

// Remove removes a terminal that has ended.
func (g *Shells) Remove(s *Shell) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := s.run.Initial.Caller
	list := slices.DeleteFunc(g.list[c], func(o *Shell) bool { return o == s })
	if len(list) == 0 {
		delete(g.list, c)
		return
	}
	g.list[c] = list
}

// ServePrompt answers a shell that asks whether a command is committed, at the door of its container. It answers when
// that is so, or after 10 seconds. The answer changes no state, so a false question does no harm.
func (g *Shells) ServePrompt(c record.Caller, w http.ResponseWriter, r *http.Request) {
	name, number, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, terminal.PromptPath), "/")
	n, err := strconv.ParseInt(number, 10, 64)
	s := g.Find(c, name)
	if s == nil || err != nil {
		http.Error(w, "ramus: there is no such terminal", http.StatusNotFound)
		return
	}
	if s.asking.Add(1) <= promptWaits {
		s.awaitCommand(r.Context(), n)
	}
	s.asking.Add(-1)
	w.WriteHeader(http.StatusNoContent)
}

// Keep commits the changes of a caller's terminals if the work tree is about to be brought to another commit. The
// caller of Keep has the turn. but is left out.
func (g *Shells) Keep(ctx context.Context, t *step.Target, but *step.Run) error {
	for _, s := range g.Open(t.Caller) {
		if s.run == but {
			continue
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := s.keep(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Sync brings the work tree of a caller with terminals to the branch's tip. The caller of Sync has the turn.
func (g *Shells) Sync(ctx context.Context, t *step.Target) error {
	for _, s := range g.Open(t.Caller) {
		if s.connected() == nil {
			continue
		}
		lease, _, err := t.Ready(ctx, "", s.run.Initial.Asker, nil)
		if err != nil {
			return fmt.Errorf("cannot bring the work tree of a terminal to the branch: %w", err)
		}
		lease.Release()
		return nil
	}
	return nil
}

// TerminalStatus is a terminal of a caller, as clients see it.
type TerminalStatus struct {
	Name    string         `json:"id"`
	Run     string         `json:"run"` // CALLER/RUN
	Caller  record.Caller  `json:"caller"`
	Title   string         `json:"title,omitempty"`
	Command string         `json:"command,omitempty"` // empty for a shell
	By      gitd.Person    `json:"by"`                // the person that opened it
	Created time.Time      `json:"created"`
	State   terminal.State `json:"state"`
}

// Status describes the terminal.
func (s *Shell) Status() TerminalStatus {
	r := s.run.Initial
	st := TerminalStatus{Name: s.Name, Run: r.Name(), Caller: r.Caller, By: r.Asker, Created: r.CreatedAt, State: s.State()}
	st.Title = st.State.Title
	if r.Terminal.Command != nil {
		st.Command = r.Command
	}
	return st
}

// Run returns the record of the terminal's run as it began.
func (s *Shell) Run() record.Run { return s.run.Initial }

// Done returns a channel that is closed when the goroutine of the run has ended.
func (s *Shell) Done() <-chan struct{} { return s.done }

// process is a terminal's program in its container.
type process struct{ *containers.Process }

func (p process) Resize(s terminal.Size) error {
	return p.Process.Resize(containers.Window{Rows: s.Rows, Cols: s.Cols})
}
