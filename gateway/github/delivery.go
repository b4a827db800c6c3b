package github

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/ramus-dev/ramus/internal/text"
)

// MaxDelivery bounds a delivery, in bytes. GitHub sends no more.
const MaxDelivery = 25 << 20

// Delivery has the relevant parts of a webhook: that an event happened, and to which object. The [Client] reads the
// current state.
type Delivery struct {
	ID     string `json:"id"`    // X-GitHub-Delivery; the same for a repeated delivery
	Event  string `json:"event"` // X-GitHub-Event
	Action string `json:"action,omitempty"`
	// Digest is the hash of the content. A delivery with another ID and the same Digest is the same event, such as one
	// that both a repository's webhook and the App's send.
	Digest string `json:"digest"`
	Repo   Name   `json:"repo"`
	Number int    `json:"number,omitempty"` // of the pull request or issue
	Check  *Check `json:"check,omitempty"`
	Push   *Push  `json:"push,omitempty"`
}

// Push is a push to a repository.
type Push struct {
	Ref     string `json:"ref"` // refs/heads/main
	Deleted bool   `json:"deleted,omitempty"`
}

// Reasons for which a delivery is rejected.
var (
	// ErrSignature means that the delivery was not signed with the webhook's secret.
	ErrSignature = errors.New("not signed by GitHub")
	// ErrDelivery means that a signed delivery cannot be read.
	ErrDelivery = errors.New("no delivery of GitHub's")
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

func (r *checked) check() *Check {
	c := &Check{ID: r.ID, Name: r.Name, Commit: r.HeadSHA, Status: r.Status, Conclusion: r.Conclusion, URL: r.HTMLURL}
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
	Output struct {
		Title   string `json:"title"`
		Summary string `json:"summary"`
		Text    string `json:"text"`
	} `json:"output"`
}

func (r *checkRun) check() *Check {
	c := r.checked.check()
	c.Branch = r.CheckSuite.HeadBranch
	c.Title, c.Summary, c.Text = bounded(r.Output.Title), bounded(r.Output.Summary), bounded(r.Output.Text)
	return c
}

type workflowRun struct {
	checked
	HeadBranch   string `json:"head_branch"`
	DisplayTitle string `json:"display_title"`
}

func (r *workflowRun) check() *Check {
	c := r.checked.check()
	c.Workflow, c.Branch, c.Title = true, r.HeadBranch, bounded(r.DisplayTitle)
	return c
}

// ParseDelivery checks the signature (X-Hub-Signature-256, HMAC-SHA256 over the raw body, compared in constant time)
// and reads the delivery. For events and actions that ramus does not use, the Delivery has only its head. The errors
// are [ErrSignature] and [ErrDelivery].
//
// See https://docs.github.com/en/webhooks/webhook-events-and-payloads.
func ParseDelivery(h http.Header, body []byte, secret string) (Delivery, error) {
	if err := verify(h, body, secret); err != nil {
		return Delivery{}, err
	}
	d := Delivery{ID: h.Get("X-GitHub-Delivery"), Event: h.Get("X-GitHub-Event")}
	if d.ID == "" || len(d.ID) > 100 || d.Event == "" || len(d.Event) > 100 {
		return Delivery{}, fmt.Errorf("%w: X-GitHub-Delivery or X-GitHub-Event is missing or too long", ErrDelivery)
	}
	if kind, _, _ := strings.Cut(h.Get("Content-Type"), ";"); kind != "application/json" {
		return Delivery{}, fmt.Errorf("%w: its content type is %.100q; set the webhook's to application/json", ErrDelivery, kind)
	}
	var p head
	err := json.Unmarshal(body, &p)
	if err != nil {
		return Delivery{}, fmt.Errorf("%w: %w", ErrDelivery, err)
	}
	if d.Digest, err = digest(d.Event, body); err != nil {
		return Delivery{}, fmt.Errorf("%w: %w", ErrDelivery, err)
	}
	d.Action = text.Clip(p.Action, 100)
	if p.Repository != nil {
		if d.Repo = (Name{p.Repository.Owner.Login, p.Repository.Name}); !d.Repo.valid() {
			return Delivery{}, fmt.Errorf("%w: %.200q is no name of a repository", ErrDelivery, d.Repo)
		}
	}
	if err := d.read(body); err != nil {
		return Delivery{}, fmt.Errorf("%w: event %s: %w", ErrDelivery, d.Event, err)
	}
	return d, nil
}

// verify checks a signature.
func verify(h http.Header, body []byte, secret string) error {
	if secret == "" {
		return fmt.Errorf("%w: no secret is configured", ErrSignature)
	}
	if len(body) > MaxDelivery {
		return fmt.Errorf("%w: the body has more than %d bytes", ErrSignature, MaxDelivery)
	}
	text, ok := strings.CutPrefix(h.Get("X-Hub-Signature-256"), "sha256=")
	given, err := hex.DecodeString(text)
	if !ok || err != nil {
		return fmt.Errorf("%w: X-Hub-Signature-256 is missing or no SHA-256: does the webhook have a secret?", ErrSignature)
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	if !hmac.Equal(mac.Sum(nil), given) {
		return fmt.Errorf("%w: it does not fit: is the secret the webhook's?", ErrSignature)
	}
	return nil
}

// read reads the objects of known events. It reads nothing else of the body.
func (d *Delivery) read(body []byte) error {
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
		var p Push
		if err = json.Unmarshal(body, &p); p.Ref != "" {
			d.Push = &p
		} else {
			missing = "ref"
		}
	case "pull_request", "pull_request_review", "pull_request_review_comment":
		var p struct {
			PullRequest *numbered `json:"pull_request"`
		}
		if err = json.Unmarshal(body, &p); p.PullRequest != nil {
			d.Number = p.PullRequest.Number
		} else {
			missing = "pull_request"
		}
	}
	if err != nil {
		return err
	}
	if missing == "" && d.Repo == (Name{}) {
		missing = "repository"
	}
	if missing != "" {
		return fmt.Errorf("it has no %s", missing)
	}
	return nil
}

// digest returns the hash of the content of a body, independent of the order and spelling of its JSON, and of the
// recipient, which is the only difference between a repository's webhook and an App's.
func digest(event string, body []byte) (string, error) {
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	for _, audience := range [...]string{"installation", "organization", "enterprise", "hook", "hook_id"} {
		delete(fields, audience)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n", event)
	if err := json.NewEncoder(sum).Encode(fields); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
