package forge

// Check is the result of a program for a commit, such as a check run or a workflow run of GitHub, a commit status or a
// job.
type Check struct {
	ID         int64  `json:"id"`
	Workflow   bool   `json:"workflow,omitempty"` // a workflow run, not a check run
	Name       string `json:"name"`
	Commit     string `json:"commit"`
	Branch     string `json:"branch,omitempty"`
	Status     string `json:"status"`               // queued, in_progress, completed
	Conclusion string `json:"conclusion,omitempty"` // success, failure, timed_out …
	URL        string `json:"url,omitempty"`
	Title      string `json:"title,omitempty"`
	Summary    string `json:"summary,omitempty"`
	Text       string `json:"text,omitempty"`
	Pulls      []int  `json:"pulls,omitempty"` // numbers of its pull requests
	// Job is set for a job of a workflow run, which has a delivery of its own. Attempt counts the attempts at a workflow
	// run, from 1. Only deliveries have them.
	Job     bool `json:"job,omitempty"`
	Attempt int  `json:"attempt,omitempty"`
}

// Failed reports whether a check has ended with a failure. The status of ramus itself is none that anybody repairs.
func (c Check) Failed() bool {
	if c.Name == StatusName {
		return false
	}
	switch c.Conclusion {
	case "failure", "timed_out", "startup_failure":
		return c.Status == "completed"
	}
	return false // cancelled, stale and action_required are for people
}
