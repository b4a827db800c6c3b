// Package ticket has the types of issue trackers whose issues become tasks. Packages jira and linear implement them.
//
// An [Event] is a webhook about an issue. If it starts a task, the [Tracker] gets the results of the task as comments on
// the issue. The texts of issues are hostile.
package ticket

import "context"

// Limits of the texts of an issue, in bytes.
const (
	MaxTitle = 500
	MaxText  = 16 << 10
	MaxBody  = 2 << 20 // of a webhook
)

// Event is a webhook about an issue.
type Event struct {
	Name    string // of the event at the tracker
	Key     string // of the issue, "APP-12"; empty if the event is about no issue
	Project string // "APP"
	URL     string // for people
	Title   string
	Text    string
	// Starts means that the issue has the label or the assignee that names ramus.
	Starts bool
}

// Tracker is an issue tracker. Its methods are safe for concurrent use. The errors are those of package forge.
type Tracker interface {
	// Title returns the name of the tracker for people, such as "Jira".
	Title() string
	// Comment posts a comment on an issue, once for each mark. detail is shown literally below the text.
	Comment(ctx context.Context, key, text, detail, mark string) error
}

// Names selects the issues that start tasks.
type Names struct {
	Label    string // no issue with it starts a task if it is empty
	Assignee string // the id of the user of ramus at the tracker; none if it is empty
}
