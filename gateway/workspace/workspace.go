package workspace

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Executor is the part of the executor that workspaces need.
type Executor interface {
	lookup.Executor
	Callers(ctx context.Context, f record.Filter) ([]executor.CallerStatus, error)
	Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error]
	Submit(ctx context.Context, r record.Request) (record.Run, error)
	Stop(ctx context.Context, name string, by gitd.Person) error
	Remove(ctx context.Context, caller string, by gitd.Person) (executor.Removed, error)
}

// Node is the name of the one machine that runs containers.
const Node = "local"

// Workspace is a caller as people see it.
type Workspace struct {
	ID     string        `json:"id"`   // the slug of the caller, such as "run-fancy-mallard"
	Name   string        `json:"name"` // the id of the caller, such as "fancy-mallard"
	Caller record.Caller `json:"caller"`
	Node   string        `json:"node_id"`
	Status State         `json:"status"`
	// Next are the states that can follow.
	Next       []State   `json:"next"`
	Repository string    `json:"repository"`
	Branch     string    `json:"branch"`
	Base       string    `json:"base"`
	Head       gitd.Hash `json:"head,omitempty"`
	// Owner is the person who began the workspace.
	Owner gitd.Person `json:"owner"`
	// Private workspaces exist for their owner and for administrators only.
	Private bool `json:"private,omitempty"`
	// Title describes the first work of the workspace in one line, and Last is its last run.
	Title string `json:"title"`
	Runs  int    `json:"runs"`
	Last  string `json:"last_run"`
	// Run is the state of the last run, and Error and Hint why it failed.
	Run       record.State  `json:"run_status"`
	Reason    record.Reason `json:"reason,omitempty"`
	Error     string        `json:"error,omitempty"`
	Hint      string        `json:"hint,omitempty"`
	Place     int           `json:"place,omitempty"` // position in the queue for a container, from 1
	SleepsAt  time.Time     `json:"sleeps_at,omitzero"`
	CreatedAt time.Time     `json:"created_at"`
	UpdatedAt time.Time     `json:"updated_at"`

	// LastRun is the last run as it is now.
	LastRun record.Run `json:"-"`
}

// Workspaces shows and changes workspaces. Its fields are its options. All methods are safe for concurrent use.
type Workspaces struct {
	Executor Executor
	Find     *lookup.Lookup
	Git      *gitd.Server
	// Privacy keeps which workspaces are private. Nil means that none can be.
	Privacy Privacy
}

// Of returns a caller as a workspace.
func (w *Workspaces) Of(ctx context.Context, st executor.CallerStatus) Workspace {
	first := st.Last
	if all := w.Executor.OfCaller(st.Caller); len(all) > 0 {
		first = all[0]
	}
	last := st.Last
	s := Workspace{
		ID: st.Caller.Slug(), Name: st.Caller.ID(), Caller: st.Caller, Node: Node, Repository: st.Repo, Branch: st.Branch,
		Base: last.Base, Head: st.Head, Owner: first.Asker, Title: title(first), Runs: st.Runs, Last: last.Name(),
		Run:    last.State,
		Reason: last.Reason, Error: last.Error, Hint: last.Hint, Place: last.Place, CreatedAt: first.CreatedAt,
		UpdatedAt: latest(last.CreatedAt, last.StartedAt, last.EndedAt), LastRun: last,
	}
	s.Status = StateOf(st, st.Container != nil && w.recovers(ctx, last))
	s.Next = s.Status.Next()
	if w.Privacy != nil {
		s.Private = w.Privacy.IsPrivate(st.Caller)
	}
	if st.Container != nil {
		s.SleepsAt = st.Container.SleepsAt
		if s.Place == 0 {
			s.Place = st.Container.Place
		}
	}
	return s
}

// BootCommand is the command of a workspace that begins without other work. It changes nothing.
const BootCommand = "true # open the workspace"

// title describes the first run of a workspace.
func title(r record.Run) string {
	if r.Command == BootCommand {
		return "Workspace of " + r.Repo
	}
	return r.Title()
}

func latest(times ...time.Time) (t time.Time) {
	for _, u := range times {
		if u.After(t) {
			t = u
		}
	}
	return t
}

// recovers reports whether the container of a run has the usual image in place of the repository's own.
func (w *Workspaces) recovers(ctx context.Context, r record.Run) bool {
	if r.Ended() && r.Reason == "" && r.Command != BootCommand {
		return false
	}
	for e, err := range w.Executor.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return false
		}
		if e.Type == record.EventNote && e.Reason == record.NoteRecovery {
			return true
		}
	}
	return false
}

// Filter narrows a list of workspaces. Zero fields do not narrow it.
type Filter struct {
	Repo  string
	State State
	// Mine is the e-mail address of the owner.
	Mine string
	// Text is looked for in names, titles and repositories, without regard to case.
	Text string
	// After is the id of the workspace that ends the page before.
	After string
	// Max is the size of a page. The default is 50.
	Max int
}

// maxListed bounds the number of callers that a list looks at.
const maxListed = 2000

// List returns the workspaces that who may see, the most recently active first, and the cursor of the next page, or "".
func (w *Workspaces) List(ctx context.Context, who route.Who, f Filter) ([]Workspace, string, error) {
	if f.Max <= 0 {
		f.Max = 50
	}
	all, err := w.Executor.Callers(ctx, record.Filter{Repo: f.Repo, Max: maxListed, Keep: func(r record.Run) bool {
		return !lookup.IsOwnRepo(r.Repo) && who.SeesRun(r)
	}})
	if err != nil {
		return nil, "", err
	}
	list := []Workspace{}
	begun := f.After == ""
	for _, st := range all {
		if !begun {
			begun = st.Caller.Slug() == f.After
			continue
		}
		if st.Head == "" && st.Container == nil && st.Last.Ended() {
			continue // it was deleted, or never had a branch
		}
		s := w.Of(ctx, st)
		if !f.matches(s) {
			continue
		}
		if len(list) == f.Max {
			return list, list[len(list)-1].ID, nil
		}
		list = append(list, s)
	}
	return list, "", nil
}

func (f Filter) matches(s Workspace) bool {
	if f.State != "" && s.Status != f.State || f.Mine != "" && s.Owner.Email != f.Mine {
		return false
	}
	if f.Text == "" {
		return true
	}
	want := strings.ToLower(f.Text)
	return slices.ContainsFunc([]string{s.Name, s.Title, s.Repository, s.Owner.Name}, func(in string) bool {
		return strings.Contains(strings.ToLower(in), want)
	})
}

// Named returns the workspace with an id. The id must be complete.
func (w *Workspaces) Named(ctx context.Context, who route.Who, id string) (Workspace, executor.CallerStatus, error) {
	c, ok := CallerOf(id)
	if !ok {
		return Workspace{}, executor.CallerStatus{}, route.NotFound("workspace", id)
	}
	st, err := w.Find.Caller(ctx, who, c.String())
	if err != nil {
		if route.AsProblem(err, who).Kind == route.KindNotFound {
			err = route.NotFound("workspace", id)
		}
		return Workspace{}, st, err
	}
	return w.Of(ctx, st), st, nil
}

// CallerOf returns the caller of a workspace's id.
func CallerOf(id string) (record.Caller, bool) {
	kind, rest, ok := strings.Cut(id, "-")
	if !ok {
		return record.Caller{}, false
	}
	c, err := record.ParseCaller(kind + ":" + rest)
	return c, err == nil && c.Slug() == id
}

// Changeable is [Workspaces.Named] for a change of the workspace.
func (w *Workspaces) Changeable(ctx context.Context, who route.Who, id string) (Workspace, error) {
	s, st, err := w.Named(ctx, who, id)
	if err != nil {
		return s, err
	}
	return s, who.CheckChangeCaller(st)
}

// Wish asks for a new workspace.
type Wish struct {
	// Key makes the request idempotent, as that of [record.Request] does.
	Key        string `json:"key,omitempty"`
	Repository string `json:"repository" jsonschema:"the repository; the one of the other workspace if from is set"`
	Base       string `json:"base,omitempty" jsonschema:"branch to start from; the repository's base if empty"`
	Name       string `json:"name,omitempty" jsonschema:"lower-case letters, digits and single hyphens; drawn if empty"`
	// From is another workspace, and Commit one of its commits. An empty Commit is the newest.
	From   string    `json:"from,omitempty" jsonschema:"another workspace whose files and agents it begins with"`
	Commit gitd.Hash `json:"commit,omitempty" jsonschema:"a commit of that workspace; its newest if empty"`
	// Agent and Prompt begin the workspace with a turn of an agent.
	Agent  string `json:"agent,omitempty" jsonschema:"the agent that works first; the only one if empty"`
	Prompt string `json:"prompt,omitempty" jsonschema:"what the agent is asked; without it the workspace only opens"`
	// Private hides the workspace from everybody but its owner and administrators, as does one that it begins from.
	Private bool `json:"private,omitempty" jsonschema:"only its owner and administrators see it"`
	// Files come with the prompt.
	Files []record.Attachment `json:"-"`
}

// longestPrompt bounds a prompt, in bytes.
const longestPrompt = 256 << 10

// Check returns the mistakes of a wish by field.
func (n Wish) Check() map[string]string {
	wrong := map[string]string{}
	if n.Repository == "" && n.From == "" {
		wrong["repository"] = "Choose a repository."
	}
	if n.Name != "" {
		if _, err := record.RunCaller(n.Name); err != nil {
			wrong["name"] = "A name has lower-case letters, digits and single hyphens."
		}
	}
	if n.From != "" {
		if _, ok := CallerOf(n.From); !ok {
			wrong["from"] = "This is not the name of a workspace."
		}
	}
	if n.Commit != "" && n.From == "" {
		wrong["commit"] = "A commit needs the workspace that has it."
	}
	if n.Agent != "" && strings.TrimSpace(n.Prompt) == "" {
		wrong["prompt"] = "Say what the agent should do."
	}
	if len(n.Prompt) > longestPrompt {
		wrong["prompt"] = fmt.Sprintf("The text is longer than %d KiB.", longestPrompt>>10)
	}
	return wrong
}

// Create begins a workspace. The workspace is durable when Create returns, and its container starts after that.
func (w *Workspaces) Create(ctx context.Context, who route.Who, n Wish) (record.Run, error) {
	for _, field := range []string{"repository", "name", "from", "commit", "prompt"} {
		if why := n.Check()[field]; why != "" {
			return record.Run{}, route.NewProblem(route.KindInvalid, "%s: %s", field, strings.TrimSuffix(why, "."))
		}
	}
	r := record.Request{Key: n.Key, Repo: n.Repository, Base: n.Base}
	if n.Name != "" {
		caller, err := record.RunCaller(n.Name)
		if err != nil {
			return record.Run{}, err
		}
		if len(w.Executor.OfCaller(caller)) > 0 && n.Key == "" {
			return record.Run{}, route.NewProblem(route.KindExists, "the name %q is in use",
				n.Name).WithHint("choose another name")
		}
		r.Caller = caller
	}
	if n.From != "" {
		of, _ := CallerOf(n.From)
		r.Fork = &record.Fork{Of: of.String(), Commit: n.Commit}
	}
	if text := strings.TrimSpace(n.Prompt); text != "" {
		r.Agent = &record.AgentCall{Name: n.Agent, Prompt: text, Files: n.Files}
	} else {
		r.Command = &record.Command{Shell: BootCommand}
	}
	if err := w.Find.Bind(ctx, who, &r); err != nil {
		return record.Run{}, err
	}
	if n.Private || w.fromPrivate(n) {
		return w.createPrivate(ctx, who, r)
	}
	return w.Executor.Submit(ctx, r)
}

// Stop commits the files of a workspace and removes its container. It returns when that is done.
func (w *Workspaces) Stop(ctx context.Context, who route.Who, id string) (Workspace, error) {
	s, err := w.Changeable(ctx, who, id)
	if err != nil {
		return s, err
	}
	if !s.Status.MayStop() {
		return s, inState(s, "stopped", "it has no container")
	}
	if err := w.Executor.Stop(ctx, s.Caller.String(), who.Person(s.Owner)); err != nil {
		return s, err
	}
	s, _, err = w.Named(ctx, who, id)
	return s, err
}

// Restart starts a new container for a workspace, with the files of its branch.
func (w *Workspaces) Restart(ctx context.Context, who route.Who, id string) (record.Run, error) {
	s, err := w.Changeable(ctx, who, id)
	if err != nil {
		return record.Run{}, err
	}
	if !s.Status.MayRestart() {
		return record.Run{}, inState(s, "started again", "only a workspace that is stopped or failed can be")
	}
	r := record.Request{Caller: s.Caller, Repo: s.Repository, Command: &record.Command{Shell: BootCommand}}
	if err := w.Find.Bind(ctx, who, &r); err != nil {
		return record.Run{}, err
	}
	return w.Executor.Submit(ctx, r)
}

// Delete removes the branch of a workspace and the work that was saved for it. Its runs stay.
func (w *Workspaces) Delete(ctx context.Context, who route.Who, id string) (executor.Removed, error) {
	s, err := w.Changeable(ctx, who, id)
	if err != nil {
		return executor.Removed{}, err
	}
	if !s.Status.MayDelete() {
		return executor.Removed{}, inState(s, "deleted", "stop it first")
	}
	return w.Executor.Remove(ctx, s.Caller.String(), who.Person(s.Owner))
}

func inState(s Workspace, done, why string) error {
	return route.NewProblem(route.KindConflict, "%s is %s and cannot be %s: %s", s.Name, s.Status, done, why)
}
