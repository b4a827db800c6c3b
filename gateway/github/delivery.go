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

	"github.com/google/go-github/v66/github"
)

// MaxDelivery is the most bytes that a delivery may have; GitHub sends no more.
const MaxDelivery = 25 << 20

// Delivery is what a webhook said, as far as ramus cares: that something happened,
// and to what. How things stand now is asked of the [Client].
type Delivery struct {
	ID     string `json:"id"`    // X-GitHub-Delivery; the same when it is delivered again
	Event  string `json:"event"` // X-GitHub-Event
	Action string `json:"action,omitempty"`
	// Digest is of the content: a delivery with another ID and the same Digest is
	// the same news, such as one that a repository's webhook sends beside the App's.
	Digest string `json:"digest"`
	Repo   Name   `json:"repo"`
	Number int    `json:"number,omitempty"` // of the pull request, or issue
	Check  *Check `json:"check,omitempty"`
	Push   *Push  `json:"push,omitempty"`
}

// Push is what was pushed.
type Push struct {
	Ref     string `json:"ref"` // refs/heads/main
	Deleted bool   `json:"deleted,omitempty"`
}

// Why a delivery is not taken.
var (
	// ErrSignature: it was not signed with the webhook's secret.
	ErrSignature = errors.New("not signed by GitHub")
	// ErrDelivery: it was, and cannot be read all the same.
	ErrDelivery = errors.New("no delivery of GitHub's")
)

// head is what the bodies of all events have.
type head struct {
	Action     string `json:"action"`
	Repository *struct {
		Name  string `json:"name"`
		Owner struct {
			Login string `json:"login"`
		} `json:"owner"`
	} `json:"repository"`
}

// numbered is a pull request or an issue, of which nothing else counts.
type numbered struct {
	Number int `json:"number"`
}

// payload is what is read of the bodies of those events that are known.
type payload struct {
	PullRequest *numbered           `json:"pull_request"`
	Issue       *numbered           `json:"issue"`
	CheckRun    *github.CheckRun    `json:"check_run"`
	WorkflowRun *github.WorkflowRun `json:"workflow_run"`
	Push
}

// ParseDelivery checks the signature (X-Hub-Signature-256, HMAC-SHA256 over the
// body as it came, compared in constant time) and reads the delivery. Events and actions
// that ramus does not know are a Delivery with nothing but its head. The errors are
// [ErrSignature] and [ErrDelivery].
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
	d.Action = clip(p.Action, 100)
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

// read fills in what the known events are about.
func (d *Delivery) read(body []byte) error {
	switch d.Event {
	case "pull_request", "pull_request_review", "pull_request_review_comment", "issue_comment", "check_run", "workflow_run", "push":
	default:
		return nil
	}
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		return err
	}
	missing := ""
	switch d.Event {
	case "issue_comment":
		if p.Issue != nil {
			d.Number = p.Issue.Number
		} else {
			missing = "issue"
		}
	case "check_run":
		if p.CheckRun != nil {
			one := checkOf(p.CheckRun)
			d.Check = &one
		} else {
			missing = "check_run"
		}
	case "workflow_run":
		if p.WorkflowRun != nil {
			one := workflowOf(p.WorkflowRun)
			d.Check = &one
		} else {
			missing = "workflow_run"
		}
	case "push":
		if p.Ref != "" {
			d.Push = &p.Push
		} else {
			missing = "ref"
		}
	default:
		if p.PullRequest != nil {
			d.Number = p.PullRequest.Number
		} else {
			missing = "pull_request"
		}
	}
	if missing == "" && d.Repo == (Name{}) {
		missing = "repository"
	}
	if missing != "" {
		return fmt.Errorf("it has no %s", missing)
	}
	return nil
}

// digest is of what a body says, in whatever order and spelling, but for whom
// it is told: a repository's webhook and an App's differ in that alone.
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
