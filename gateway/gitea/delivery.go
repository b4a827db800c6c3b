package gitea

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/internal/text"
)

// payload has the used members of all events.
type payload struct {
	Action     string `json:"action"`
	Number     int    `json:"number"`
	Repository *struct {
		FullName string `json:"full_name"`
	} `json:"repository"`
	Issue *struct {
		Number int `json:"number"`
	} `json:"issue"`
	Pull *struct {
		Number int `json:"number"`
	} `json:"pull_request"`
	Ref         string `json:"ref"`
	After       string `json:"after"`
	SHA         string `json:"sha"`
	Context     string `json:"context"`
	State       string `json:"state"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url"`
}

// ParseDelivery checks the signature (X-Gitea-Signature, HMAC-SHA256 over the raw body, compared in constant time) and
// reads the delivery. Forgejo sends the same headers. For events that ramus does not use, the Delivery has only its
// head. The errors are [forge.ErrSignature] and [forge.ErrDelivery].
func ParseDelivery(h http.Header, body []byte, secret string) (forge.Delivery, error) {
	const header = "X-Gitea-Signature"
	if err := forge.CheckSignature(secret, h.Get(header), header, body); err != nil {
		return forge.Delivery{}, err
	}
	d := forge.Delivery{ID: h.Get("X-Gitea-Delivery"), Event: h.Get("X-Gitea-Event")}
	if err := d.CheckJSON(h.Get("Content-Type")); err != nil {
		return forge.Delivery{}, err
	}
	var p payload
	err := json.Unmarshal(body, &p)
	if err == nil {
		d.Digest, err = forge.Digest(d.Event, body)
	}
	if err != nil {
		return forge.Delivery{}, fmt.Errorf("%w: %w", forge.ErrDelivery, err)
	}
	d.Action = text.Clip(p.Action, 100)
	if p.Repository == nil {
		return d, nil // of no repository, such as a test
	}
	var ok bool
	if d.Repo, ok = forge.ParseName(p.Repository.FullName, 1); !ok {
		return forge.Delivery{},
			fmt.Errorf("%w: %.200q is no name of a repository", forge.ErrDelivery, p.Repository.FullName)
	}
	switch {
	case d.Event == "push":
		d.Pushes = []forge.Push{{Ref: p.Ref, Deleted: strings.Trim(p.After, "0") == ""}}
	case d.Event == "status":
		check := status{State: p.State, Context: p.Context, Description: p.Description, TargetURL: p.TargetURL}.check(p.SHA)
		d.Check = &check
	case d.Event == "issue_comment" && p.Issue != nil:
		d.Number = p.Issue.Number
	case strings.HasPrefix(d.Event, "pull_request") && p.Pull != nil:
		d.Number = p.Pull.Number
		d.Turned = d.Event == "pull_request" && (d.Action == "closed" || d.Action == "reopened")
	}
	return d, nil
}
