package record

import (
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// Task is the record of a task, a conversation that ends with a pull request. Its states are those of runs.
type Task struct {
	ID            string    `json:"id"` // of its conversation, conv:ID
	Description   string    `json:"description"`
	Context       string    `json:"context,omitempty"`
	Status        State     `json:"status"`
	SessionID     string    `json:"session_id,omitempty"`    // of the agent, for resuming
	AgentID       string    `json:"agent_id,omitempty"`      // the agent's name
	WorktreePath  string    `json:"worktree_path,omitempty"` // in the container
	Branch        string    `json:"branch"`                  // of the pull request
	PRURL         string    `json:"pr_url,omitempty"`
	PRNumber      int       `json:"pr_number,omitempty"`
	SlackThreadTS string    `json:"slack_thread_ts,omitempty"`
	Error         string    `json:"error,omitempty"`
	CreatedAt     time.Time `json:"created_at"`
	UpdatedAt     time.Time `json:"updated_at"`

	// For is the caller whose branch was proposed. It is zero for a task that was submitted, which has a caller of its own.
	For Caller `json:"caller,omitzero"`
	// SlackChannel is the channel of the thread. Empty means that of all tasks.
	SlackChannel string `json:"slack_channel,omitempty"`

	Repo     string      `json:"repo"`
	Base     string      `json:"base"`
	Asker    gitd.Person `json:"asker,omitzero"`
	AskerID  string      `json:"asker_id,omitempty"` // see [Merge.ByID]
	Parent   string      `json:"parent,omitempty"`
	Ticket   Ticket      `json:"ticket,omitzero"` // the issue that started it
	Run      string      `json:"run"`             // the record's own run
	Work     []string    `json:"work,omitempty"`  // the runs for it, in order
	Approved bool        `json:"approved,omitempty"`
	// Unposted is the number of its messages that wait to be posted.
	Unposted int `json:"unposted,omitempty"`
}

// Ticket is an issue at a tracker. The results of its task are comments on it.
type Ticket struct {
	Tracker string `json:"tracker"` // "jira", "linear"
	Key     string `json:"key"`     // "APP-12"
	URL     string `json:"url,omitempty"`
}

// Ended reports whether the task is complete or failed.
func (t Task) Ended() bool {
	return t.Status == StateComplete || t.Status == StateFailed
}

// Caller returns the caller of the task's runs.
func (t Task) Caller() Caller {
	if !t.For.IsZero() {
		return t.For
	}
	c, err := ConvCaller(t.ID)
	if err != nil {
		panic(err) // only newTaskID makes ids
	}
	return c
}
