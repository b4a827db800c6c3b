package bitbucket

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
	Repository *struct {
		FullName string `json:"full_name"`
	} `json:"repository"`
	Pull *struct {
		ID int `json:"id"`
	} `json:"pullrequest"`
	Push *struct {
		Changes []struct {
			New, Old *struct {
				Type string `json:"type"`
				Name string `json:"name"`
			}
		} `json:"changes"`
	} `json:"push"`
	Status *struct {
		status
		Commit struct {
			Hash string `json:"hash"`
		} `json:"commit"`
	} `json:"commit_status"`
}

// maxChanges bounds the changes of a push. Bitbucket sends at most five.
const maxChanges = 100

// ParseDelivery checks the signature (X-Hub-Signature, HMAC-SHA256 over the raw body, compared in constant time) and
// reads the delivery. For events that ramus does not use, the Delivery has only its head. The errors are
// [forge.ErrSignature] and [forge.ErrDelivery].
//
// See https://support.atlassian.com/bitbucket-cloud/docs/event-payloads/.
func ParseDelivery(h http.Header, body []byte, secret string) (forge.Delivery, error) {
	const header = "X-Hub-Signature"
	signature, ok := strings.CutPrefix(h.Get(header), "sha256=")
	if !ok {
		signature = ""
	}
	if err := forge.CheckSignature(secret, signature, header, body); err != nil {
		return forge.Delivery{}, err
	}
	event := h.Get("X-Event-Key")
	d := forge.Delivery{ID: h.Get("X-Request-UUID"), Event: event}
	if err := d.CheckJSON(h.Get("Content-Type")); err != nil {
		return forge.Delivery{}, err
	}
	var p payload
	err := json.Unmarshal(body, &p)
	if err == nil {
		d.Digest, err = forge.Digest(event, body)
	}
	if err != nil {
		return forge.Delivery{}, fmt.Errorf("%w: %w", forge.ErrDelivery, err)
	}
	if _, action, ok := strings.Cut(event, ":"); ok {
		d.Action = text.Clip(action, 100)
	}
	if p.Repository == nil {
		return d, nil
	}
	if d.Repo, ok = forge.ParseName(p.Repository.FullName, 1); !ok {
		return forge.Delivery{},
			fmt.Errorf("%w: %.200q is no name of a repository", forge.ErrDelivery, p.Repository.FullName)
	}
	switch {
	case strings.HasPrefix(event, "pullrequest:") && p.Pull != nil:
		d.Number = p.Pull.ID
		d.Turned = d.Action == "fulfilled" || d.Action == "rejected"
	case event == "repo:push" && p.Push != nil:
		for _, change := range p.Push.Changes[:min(len(p.Push.Changes), maxChanges)] {
			at, deleted := change.New, false
			if at == nil {
				at, deleted = change.Old, true
			}
			if at != nil && at.Type == "branch" {
				d.Pushes = append(d.Pushes, forge.Push{Ref: "refs/heads/" + at.Name, Deleted: deleted})
			}
		}
	case strings.HasPrefix(event, "repo:commit_status_") && p.Status != nil:
		check := p.Status.check(p.Status.Commit.Hash)
		d.Check = &check
	}
	return d, nil
}
