package record

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// Request asks for a run. Exactly one of Workflow, File, Command, Task, Agent and Terminal is set. With Of and From none
// needs to be, which means the workflow of that run.
type Request struct {
	// Key makes the request idempotent. A second request with the same caller and key finds the first one's run. Without a
	// caller it is a second request of the same asker in the same repository. Key becomes the run's ID. If it is empty, the ID is random.
	Key string `json:"key,omitempty"`
	// Caller is the caller to work for. Zero means a new "run:" caller.
	Caller Caller `json:"caller,omitzero"`
	Repo   string `json:"repo,omitempty"` // required for a new caller
	Base   string `json:"base,omitempty"` // branch; default the repository's HEAD
	// With names additional repositories of the caller. They are added to those of its earlier runs.
	With     []string       `json:"with,omitempty"`
	Workflow string         `json:"workflow,omitempty"` // the text of a workflow file that a person named
	File     string         `json:"file,omitempty"`     // the path of a workflow file in the repository's base
	Command  *Command       `json:"command,omitempty"`
	Task     *TaskCall      `json:"task,omitempty"`
	Agent    *AgentCall     `json:"agent,omitempty"`
	Terminal *TerminalCall  `json:"terminal,omitempty"`
	Input    map[string]any `json:"input,omitempty"`
	Origin   *Origin        `json:"origin,omitempty"`
	// Sub holds, by id, the texts of sub-workflows that a person named together with Workflow. The others are read from
	// .ramus/workflows of the base.
	Sub map[string]string `json:"sub,omitempty"`
	// Of is the run ("CALLER/RUN") that is retried or resumed. Its results up to the node From are taken over.
	Of   string `json:"of,omitempty"`
	From string `json:"from,omitempty"`
	// Fork begins a new caller at a commit of another caller. Nil begins it at its base.
	Fork *Fork `json:"fork,omitempty"`
	// At begins a new caller at a commit in the history of its base. Empty begins it at the base's tip. It goes without Fork.
	At gitd.Hash `json:"at,omitempty"`
	// Anywhere lets At be any commit of the repository, for a person who has just pushed it.
	Anywhere bool        `json:"-"`
	Asker    gitd.Person `json:"asker,omitzero"`
	// Group names the runs of a repository of which at most one works at a time. The others wait in line. It replaces the
	// group of the workflow. Empty means no group.
	Group string `json:"group,omitempty"`
	// CancelPrevious stops the other runs of the same group that wait or work, as far as Permit allows. Without a group
	// these are the runs of the same workflow and repository, or otherwise the commands, tasks and agents of the caller.
	CancelPrevious bool `json:"cancel_previous,omitempty"`
	// Fresh runs checks also if their results are known.
	Fresh bool `json:"fresh,omitempty"`
	// Apart is Fresh, and no later check gets the results, as for a run that is compared with an earlier one.
	Apart bool `json:"apart,omitempty"`
	// Unasked asks nobody about a command that needs a person by a rule of the base. Such a command does not run. A run that
	// tries something many times has it.
	Unasked bool `json:"unasked,omitempty"`
	// Secrets are for this run alone. The door sends their values to their hosts while the run works, and no container and
	// no record gets them.
	Secrets []HandedSecret `json:"secrets,omitempty"`
	// Permit decides whether the request is permitted, once its meaning is known. r is the run before it is claimed. into is the
	// branch that the run merges into when it succeeds, or empty. An error of Permit becomes the request's. Nil permits
	// everything.
	Permit func(r Run, into string) error `json:"-"`
}

// HandedSecret is a secret that comes with a request.
type HandedSecret struct {
	Name  string   `json:"name"` // capital letters, digits and underscores; commands have NAME=secret:NAME
	Value string   `json:"value"`
	Hosts []string `json:"hosts,omitempty"` // the hosts that may get it, NAME with :PORT for a port other than 443
}

// Command is one command line of a caller. It has Args or Shell.
type Command struct {
	Args  []string `json:"args,omitempty"`  // run without a shell
	Shell string   `json:"shell,omitempty"` // run by sh -c if Args is empty
	Dir   string   `json:"dir,omitempty"`
	// Env has "K=V" elements. The values are kept in memory only. A run's record holds the names.
	Env     []string      `json:"env,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
	// Background starts a process that keeps running during later commands.
	Background bool `json:"background,omitempty"`
	// NoSetup runs the command in the container as it is, without the setup commands of the repository, so that a person
	// can look at the reason for which they fail.
	NoSetup bool `json:"no_setup,omitempty"`
	// Setup records the command as one that sets a container up, for a proposal of the repository's configuration.
	Setup bool `json:"setup,omitempty"`
	// Pure is set by a person who knows that the result follows from the files, the image and the dependencies. Then
	// the result of an earlier command may be the answer. It goes without Env, Stdin and Background.
	Pure  bool      `json:"pure,omitempty"`
	Stdin io.Reader `json:"-"`
}

// Line returns the command line as people read it.
func (c Command) Line() string {
	if len(c.Args) > 0 {
		return strings.Join(c.Args, " ")
	}
	return c.Shell
}

// TerminalCall asks for a terminal.
type TerminalCall struct {
	// Name is the terminal's name among those of its caller, of a-z, 0-9 and '-', at most 20. Empty means a number that
	// is free.
	Name string `json:"name,omitempty"`
	// Command runs in the terminal. Its Timeout, Background, Setup and Stdin are ignored. Nil means a shell.
	Command *Command `json:"command,omitempty"`
	// Rows and Cols are the size at first. 0 means 24 and 80.
	Rows int `json:"rows,omitempty"`
	Cols int `json:"cols,omitempty"`
}

// EnvNames returns the names that Env sets, separated by commas. Records of earlier versions hold values too, which are
// left out.
func (c Command) EnvNames() string {
	var names []string
	for _, kv := range c.Env {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// TaskCall is a call of a library task.
type TaskCall struct {
	Name   string         `json:"name"`
	Params map[string]any `json:"params,omitempty"`
	// NoSetup is like [Command.NoSetup].
	NoSetup bool `json:"no_setup,omitempty"`
}

// Result is the result of a command.
type Result struct {
	Run        string    `json:"run"`
	ExitCode   int       `json:"exit_code"`
	TimedOut   bool      `json:"timed_out,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Commit     gitd.Hash `json:"commit,omitempty"` // empty if nothing changed
	With       []Move    `json:"with,omitempty"`   // in additional repositories
	DurationMS int64     `json:"duration_ms"`
	Message    string    `json:"message,omitempty"` // notes of the executor
	Reused     *Reused   `json:"reused,omitempty"`  // nil if the command ran
	Stdout     Stream    `json:"stdout"`
	Stderr     Stream    `json:"stderr"`
}

// Filter narrows a listing. Zero fields do not narrow it.
type Filter struct {
	Repo, Caller string
	State        State
	Live         bool // only runs that have not ended
	Max          int  // default 100
	// Keep leaves out the runs for which it returns false. For a caller it is asked about the last run. Nil keeps all.
	Keep func(Run) bool
}

// Match reports whether the filter lists r. It does not count against Max.
func (f Filter) Match(r Run) bool {
	return (f.Repo == "" || r.Repo == f.Repo) &&
		(f.Caller == "" || r.Caller.String() == f.Caller || r.Caller.ID() == f.Caller) &&
		(f.State == "" || r.State == f.State) &&
		(!f.Live || !r.Ended()) &&
		(f.Keep == nil || f.Keep(r))
}

// Decision is a person's answer to a gate.
type Decision struct {
	Step     string `json:"step,omitempty"` // empty means the only open gate
	Approved bool   `json:"approved"`
	// Option is the id of one of [Gate.Options]. The kind of the option decides on Approved then. If it is empty, an agent
	// gets its option that allows or rejects once.
	Option string `json:"option,omitempty"`
	By     string `json:"by"`
	// Name is the name of the person, for people. It decides nothing, because people can choose their names.
	Name    string `json:"name,omitempty"`
	Comment string `json:"comment,omitempty"`
}

// NotAwaited is the comment of the decision on a question that nobody can answer any more.
const NotAwaited = "the agent does not wait for an answer any more"

// AnsweredError is the error of an answer to a question that was answered before. It is an [ErrConflict].
type AnsweredError struct {
	Decision Decision  // the answer that counts
	At       time.Time // when it was given
}

func (e *AnsweredError) Error() string {
	word := "rejected"
	if e.Decision.Approved {
		word = "approved"
	}
	if e.Decision.Option != "" {
		word += fmt.Sprintf(" (%.100q)", e.Decision.Option)
	}
	return fmt.Sprintf("%v: it was %s by %.200s at %s", ErrConflict, word, cmp.Or(e.Decision.By, "somebody"),
		e.At.UTC().Format(time.RFC3339))
}

// Unwrap returns [ErrConflict].
func (e *AnsweredError) Unwrap() error { return ErrConflict }

// Merge asks for a merge of a caller's branch into a branch of the same repository, by default the caller's base. The
// repository's policy says what that means if the repository has an upstream. [Landed] is the result.
type Merge struct {
	Into     string        `json:"into,omitempty"`
	Strategy gitd.Strategy `json:"strategy,omitempty"` // default rebase
	Message  string        `json:"message,omitempty"`
	// Delete deletes the caller's branch and container if the branch was merged.
	Delete bool `json:"delete,omitempty"`
	// Propose opens a pull request, or brings the open one up to date, with any policy. It merges nothing.
	Propose bool `json:"propose,omitempty"`
	// Here merges in this server alone, although the repository has an upstream. It is refused if the configuration
	// names another policy.
	Here bool        `json:"here,omitempty"`
	By   gitd.Person `json:"by,omitzero"`
	// ByID is the identity of By, such as slack:TEAM:USER. It is proven by the way in, and no client sends it. A pull
	// request is opened with the token that this person stored, if there is one. Empty is nobody.
	ByID string `json:"-"`
}

// AgentCall asks for a turn of a coding agent.
type AgentCall struct {
	Name   string `json:"name,omitempty"` // empty means the only agent
	Prompt string `json:"prompt"`
	// Title is the prompt's subject in one line, for lists and commits. Empty means the prompt's first line.
	Title string `json:"title,omitempty"`
	// Session labels the agent's memory. Calls of one caller and agent with the same label continue one session. Empty is a
	// label too, and the only one for agents of ProtocolText.
	Session string `json:"session,omitempty"`
	// Plan has the agent make a plan first. Its changes are thrown away then, and it works once a person has approved the
	// plan.
	Plan bool `json:"plan,omitempty"`
	// Files are given to the agent outside the work tree. The run's ref keeps them.
	Files []Attachment `json:"files,omitempty"`
	// Checks are tasks of the library that run after the last turn, in addition to the checks of the repository or of the
	// agent.
	Checks []string `json:"checks,omitempty"`
}

// Attachment is a file that comes with a prompt. The agent finds it in the folder that RAMUS_FILES names, outside the work
// tree.
type Attachment struct {
	Name    string `json:"name"` // a file name without folders
	Type    string `json:"type,omitempty"`
	Content []byte `json:"-"`
}

// Prompt is a further prompt to an agent at work.
type Prompt struct {
	Key   string       `json:"key"` // a second prompt with the same key is ignored
	Text  string       `json:"text"`
	By    gitd.Person  `json:"by"`
	Files []Attachment `json:"files,omitempty"`
	// Now puts the prompt before all that wait. The turn that works hears it or ends for it, and the next turn has no
	// other prompts.
	Now bool `json:"now,omitempty"`
	// From is the interface that the prompt came by ("web", "slack", "mcp", "cli", "api"). Empty means that it is not known.
	From string `json:"from,omitempty"`
}

// MaxForks is how many times a fork may be forked.
const MaxForks = 10

// Fork is the beginning of a new caller at a commit of another caller's branch, with the memory that the other's agents had
// then.
type Fork struct {
	Of string `json:"of"` // the other caller
	// Commit is where it begins. In a request it may be the name of a step, STEP or RUN/STEP, and means the commit from which the
	// step began. Empty means the branch's tip.
	Commit gitd.Hash `json:"commit,omitempty"`
	Depth  int       `json:"depth,omitempty"` // number of forks before this one; the executor sets it
}

// NoSetup reports whether the run uses its container without the setup commands of the repository.
func (r Run) NoSetup() bool {
	return r.Exec != nil && r.Exec.NoSetup || r.Task != nil && r.Task.NoSetup ||
		r.Terminal != nil && r.Terminal.Command != nil && r.Terminal.Command.NoSetup
}
