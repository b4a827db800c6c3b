package github

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/internal/text"
)

// head has the common fields of all events.
type head struct {
	Action     string `json:"action"`
	Repository *struct {
		Name  string `json:"name"`
		Owner struct {
			Login string `json:"login"`
		} `json:"owner"`
	} `json:"repository"`
}

// issueEvent is the event "issues".
type issueEvent struct {
	Issue *struct {
		numbered
		Title       string `json:"title"`
		Body        string `json:"body"`
		HTMLURL     string `json:"html_url"`
		Association string `json:"author_association"`
		User        login  `json:"user"`
		Labels      []struct {
			Name string `json:"name"`
		} `json:"labels"`
	} `json:"issue"`
	Label struct {
		Name string `json:"name"`
	} `json:"label"`
	Sender login `json:"sender"`
}

type login struct {
	Login string `json:"login"`
}

// maxLabels bounds the labels of an issue. GitHub allows 100.
const maxLabels = 100

func (p *issueEvent) issue(action string) *forge.Issue {
	i := &forge.Issue{Opened: action == "opened", Labeled: action == "labeled", Title: forge.Bounded(p.Issue.Title),
		Body: forge.Bounded(p.Issue.Body),
		URL:  text.Clip(p.Issue.HTMLURL, 1000), Label: text.Clip(p.Label.Name, 200),
		Author:      text.Clip(p.Issue.User.Login, 100),
		Association: text.Clip(p.Issue.Association, 100), Sender: text.Clip(p.Sender.Login, 100)}
	for _, l := range p.Issue.Labels[:min(len(p.Issue.Labels), maxLabels)] {
		i.Labels = append(i.Labels, text.Clip(l.Name, 200))
	}
	return i
}

// actionsApp is the slug of GitHub's own App, whose check runs are the jobs of workflow runs.
const actionsApp = "github-actions"

// numbered is a pull request or an issue. Only its number is used.
type numbered struct {
	Number int `json:"number"`
}

// checked has the common fields of check runs and workflow runs. Other fields, above all dates, have several forms and
// are not read.
type checked struct {
	ID           int64       `json:"id"`
	Name         string      `json:"name"`
	HeadSHA      string      `json:"head_sha"`
	Status       string      `json:"status"`
	Conclusion   string      `json:"conclusion"`
	HTMLURL      string      `json:"html_url"`
	PullRequests []*numbered `json:"pull_requests"`
}

func (r *checked) check() *forge.Check {
	c := &forge.Check{ID: r.ID, Name: r.Name, Commit: r.HeadSHA, Status: r.Status, Conclusion: r.Conclusion, URL: r.HTMLURL}
	for _, p := range r.PullRequests {
		if p != nil {
			c.Pulls = append(c.Pulls, p.Number)
		}
	}
	return c
}

type checkRun struct {
	checked
	CheckSuite struct {
		HeadBranch string `json:"head_branch"`
	} `json:"check_suite"`
	App struct {
		Slug string `json:"slug"`
	} `json:"app"`
	Output struct {
		Title   string `json:"title"`
		Summary string `json:"summary"`
		Text    string `json:"text"`
	} `json:"output"`
}

func (r *checkRun) check() *forge.Check {
	c := r.checked.check()
	c.Branch, c.Job = r.CheckSuite.HeadBranch, r.App.Slug == actionsApp
	c.Title, c.Summary, c.Text = forge.Bounded(r.Output.Title), forge.Bounded(r.Output.Summary), forge.Bounded(r.Output.Text)
	return c
}

type workflowRun struct {
	checked
	HeadBranch   string `json:"head_branch"`
	DisplayTitle string `json:"display_title"`
	RunAttempt   int    `json:"run_attempt"`
}

func (r *workflowRun) check() *forge.Check {
	c := r.checked.check()
	c.Workflow, c.Branch, c.Title, c.Attempt = true, r.HeadBranch, forge.Bounded(r.DisplayTitle), r.RunAttempt
	return c
}

// audience are the members that differ between a repository's webhook and an App's.
var audience = []string{"installation", "organization", "enterprise", "hook", "hook_id"}

// ParseDelivery checks the signature (X-Hub-Signature-256, HMAC-SHA256 over the raw body, compared in constant time)
// and reads the delivery. For events and actions that ramus does not use, the Delivery has only its head. The errors
// are [forge.ErrSignature] and [forge.ErrDelivery].
//
// See https://docs.github.com/en/webhooks/webhook-events-and-payloads.
func ParseDelivery(h http.Header, body []byte, secret string) (forge.Delivery, error) {
	if err := verify(h, body, secret); err != nil {
		return forge.Delivery{}, err
	}
	d := forge.Delivery{ID: h.Get("X-GitHub-Delivery"), Event: h.Get("X-GitHub-Event")}
	if err := d.CheckJSON(h.Get("Content-Type")); err != nil {
		return forge.Delivery{}, err
	}
	var p head
	err := json.Unmarshal(body, &p)
	if err != nil {
		return forge.Delivery{}, fmt.Errorf("%w: %w", forge.ErrDelivery, err)
	}
	if d.Digest, err = forge.Digest(d.Event, body, audience...); err != nil {
		return forge.Delivery{}, fmt.Errorf("%w: %w", forge.ErrDelivery, err)
	}
	d.Action = text.Clip(p.Action, 100)
	if p.Repository != nil {
		if d.Repo = (forge.Name{Owner: p.Repository.Owner.Login, Repo: p.Repository.Name}); !isName(d.Repo) {
			return forge.Delivery{}, fmt.Errorf("%w: %.200q is no name of a repository", forge.ErrDelivery, d.Repo)
		}
	}
	if err := readEvent(&d, body); err != nil {
		return forge.Delivery{}, fmt.Errorf("%w: event %s: %w", forge.ErrDelivery, d.Event, err)
	}
	return d, nil
}

// verify checks a signature.
func verify(h http.Header, body []byte, secret string) error {
	const header = "X-Hub-Signature-256"
	signature, ok := strings.CutPrefix(h.Get(header), "sha256=")
	if !ok {
		signature = ""
	}
	return forge.CheckSignature(secret, signature, header, body)
}

// readEvent reads the objects of known events. It reads nothing else of the body.
func readEvent(d *forge.Delivery, body []byte) error {
	var err error
	missing := ""
	switch d.Event {
	default:
		return nil
	case "issue_comment":
		var p struct {
			Issue *numbered `json:"issue"`
		}
		if err = json.Unmarshal(body, &p); p.Issue != nil {
			d.Number = p.Issue.Number
		} else {
			missing = "issue"
		}
	case "issues":
		var p issueEvent
		if err = json.Unmarshal(body, &p); p.Issue != nil {
			d.Number, d.Issue = p.Issue.Number, p.issue(d.Action)
		} else {
			missing = "issue"
		}
	case "check_run":
		var p struct {
			CheckRun *checkRun `json:"check_run"`
		}
		if err = json.Unmarshal(body, &p); p.CheckRun != nil {
			d.Check = p.CheckRun.check()
		} else {
			missing = "check_run"
		}
	case "workflow_run":
		var p struct {
			WorkflowRun *workflowRun `json:"workflow_run"`
		}
		if err = json.Unmarshal(body, &p); p.WorkflowRun != nil {
			d.Check = p.WorkflowRun.check()
		} else {
			missing = "workflow_run"
		}
	case "push":
		var p forge.Push
		if err = json.Unmarshal(body, &p); p.Ref != "" {
			d.Pushes = []forge.Push{p}
		} else {
			missing = "ref"
		}
	case "pull_request", "pull_request_review", "pull_request_review_comment", "pull_request_review_thread":
		var p struct {
			PullRequest *numbered `json:"pull_request"`
		}
		if err = json.Unmarshal(body, &p); p.PullRequest != nil {
			d.Number = p.PullRequest.Number
			d.Turned = d.Event == "pull_request" && (d.Action == "closed" || d.Action == "reopened")
		} else {
			missing = "pull_request"
		}
	}
	if err != nil {
		return err
	}
	if missing == "" && d.Repo == (forge.Name{}) {
		missing = "repository"
	}
	if missing != "" {
		return fmt.Errorf("it has no %s", missing)
	}
	return nil
}
