package gateway

import (
	"context"
	"log/slog"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
)

// Engineer takes software tasks and brings them to merged pull requests. Its
// exported fields are its options and may be changed until Open. Methods are safe
// for concurrent use.
//
// A task is a conversation, and one standing run of it is its record: what was
// asked, heard and posted, event by event. What is to be done next follows from that
// journal and from how things stand at GitHub, never from what a delivery
// claims; so deliveries may be lost, doubled and late, and the server killed at any moment.
type Engineer struct {
	Executor *executor.Executor
	Git      *gitd.Server
	// GitHub opens pull requests and answers reviews; nil: tasks end when their work
	// does, on their branch.
	GitHub *github.Client
	// Upstream says where a repository of ours is at GitHub, and lets git in to write.
	Upstream func(repo string) (gitd.Upstream, github.Name, bool)
	// Slack and Channel: where each task gets a thread; nil or empty: nowhere.
	Slack   *slack.Client
	Channel string
	// Repo and Agent are for tasks that name none.
	Repo, Agent string
	Links       *Links
	// Branch is the pull request's branch, with {task_id} and {caller}; default
	// "ramus/conv-{task_id}".
	Branch string
	Draft  bool
	Labels []string
	// Prompt is the template of an agent's first prompt; empty: [DefaultPrompt].
	Prompt string
	// Mention is the word that speaks to ramus in a comment; default "@ramus".
	Mention string
	// Repairs is how often failed checks are repaired before a person has to look;
	// default 3. Below 0: never.
	Repairs int
	// DeleteBranch deletes the branch at GitHub when its pull request was merged.
	DeleteBranch bool
	// Gather is how long comments may go on arriving before they are worked on together;
	// default 2 s.
	Gather time.Duration
	// Every is how often a pull request is looked at when nothing was heard of it; default 10 min.
	Every time.Duration
	Log   *slog.Logger
	Now   func() time.Time
}

// Submission asks for a task.
type Submission struct {
	Description string `json:"description"`       // what to build or fix
	Context     string `json:"context,omitempty"` // current and wanted behaviour, affected files
	Repo        string `json:"repo,omitempty"`
	Base        string `json:"base,omitempty"`
	Agent       string `json:"agent,omitempty"`
	// Key makes it idempotent: a second submission by the same person with the
	// same key is the first one.
	Key   string      `json:"key,omitempty"`
	Asker gitd.Person `json:"asker,omitzero"`
	// Parent is the task that asks for this one; see MaxChildren.
	Parent string `json:"parent,omitempty"`
}

// Task is the record of a task. The states are those of runs.
type Task struct {
	ID            string         `json:"id"` // of its conversation: conv:ID
	Description   string         `json:"description"`
	Context       string         `json:"context,omitempty"`
	Status        executor.State `json:"status"`
	SessionID     string         `json:"session_id,omitempty"`    // of the agent's, for resuming
	AgentID       string         `json:"agent_id,omitempty"`      // the agent's name
	WorktreePath  string         `json:"worktree_path,omitempty"` // in the container
	Branch        string         `json:"branch"`
	PRURL         string         `json:"pr_url,omitempty"`
	PRNumber      int            `json:"pr_number,omitempty"`
	SlackThreadTS string         `json:"slack_thread_ts,omitempty"`
	Error         string         `json:"error,omitempty"`
	CreatedAt     time.Time      `json:"created_at"`
	UpdatedAt     time.Time      `json:"updated_at"`

	Repo     string      `json:"repo"`
	Base     string      `json:"base"`
	Asker    gitd.Person `json:"asker,omitzero"`
	Parent   string      `json:"parent,omitempty"`
	Run      string      `json:"run"`            // the record's own run
	Work     []string    `json:"work,omitempty"` // the runs that worked for it, in order
	Approved bool        `json:"approved,omitempty"`
}

// TaskFilter narrows a listing; zero fields do not.
type TaskFilter struct {
	Repo   string
	Status executor.State
	Active bool // only what is neither complete nor failed
	Max    int  // default 100
}

// Open takes up what an earlier process left.
func (e *Engineer) Open(ctx context.Context) error { panic("not built") }

// Close stops working for tasks and waits; the next Open goes on.
func (e *Engineer) Close() error { panic("not built") }

// Submit accepts a task. It is durable when Submit returns.
func (e *Engineer) Submit(ctx context.Context, s Submission) (Task, error) { panic("not built") }

// Task finds a task by its id. There is none: [executor.ErrNotFound].
func (e *Engineer) Task(ctx context.Context, id string) (Task, error) { panic("not built") }

// Tasks lists tasks, newest first.
func (e *Engineer) Tasks(ctx context.Context, f TaskFilter) ([]Task, error) { panic("not built") }

// Retry takes a failed task up again where it stands.
func (e *Engineer) Retry(ctx context.Context, id string, by gitd.Person) (Task, error) {
	panic("not built")
}

// Cancel ends a task: what runs is stopped and the container removed. Its branch
// here is kept unless drop is set; the pull request stays as it is.
func (e *Engineer) Cancel(ctx context.Context, id string, drop bool, by gitd.Person) (Task, error) {
	panic("not built")
}

// Say gives a task something more to do, as a comment on its pull request would.
// A key that was said before is said once.
func (e *Engineer) Say(ctx context.Context, id, key, text string, by gitd.Person) (Task, error) {
	panic("not built")
}

// Deliver takes what a webhook said. It is durable when it returns.
func (e *Engineer) Deliver(ctx context.Context, d github.Delivery) error { panic("not built") }
