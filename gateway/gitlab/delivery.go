package gitlab

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/internal/text"
)

// payload has the used members of all events.
type payload struct {
	Project *struct {
		Path string `json:"path_with_namespace"`
	} `json:"project"`
	Attributes struct {
		IID    int    `json:"iid"`
		Action string `json:"action"`
		ID     int64  `json:"id"`
		Ref    string `json:"ref"`
		SHA    string `json:"sha"`
		Status string `json:"status"`
	} `json:"object_attributes"`
	MergeRequest *struct {
		IID int `json:"iid"`
	} `json:"merge_request"`
	Ref   string `json:"ref"`
	After string `json:"after"`
}

// The events that ramus uses, as X-Gitlab-Event names them.
const (
	eventMergeRequest = "Merge Request Hook"
	eventNote         = "Note Hook"
	eventPush         = "Push Hook"
	eventPipeline     = "Pipeline Hook"
)

// ParseDelivery checks the secret token (X-Gitlab-Token, compared in constant time) and reads the delivery. For events
// that ramus does not use, the Delivery has only its head. The errors are [forge.ErrSignature] and [forge.ErrDelivery].
//
// See https://docs.gitlab.com/user/project/integrations/webhook_events/.
func ParseDelivery(h http.Header, body []byte, secret string) (forge.Delivery, error) {
	const header = "X-Gitlab-Token"
	if err := forge.CheckToken(secret, h.Get(header), header, body); err != nil {
		return forge.Delivery{}, err
	}
	// Only the first is the same when GitLab repeats a delivery. Old versions have neither.
	d := forge.Delivery{Event: h.Get("X-Gitlab-Event"), ID: cmp.Or(h.Get("Idempotency-Key"), h.Get("X-Gitlab-Event-UUID"))}
	var p payload
	err := json.Unmarshal(body, &p)
	if err == nil {
		d.Digest, err = forge.Digest(d.Event, body)
	}
	if err != nil {
		return forge.Delivery{}, fmt.Errorf("%w: %w", forge.ErrDelivery, err)
	}
	d.ID = cmp.Or(d.ID, d.Digest)
	if err := d.CheckJSON(h.Get("Content-Type")); err != nil {
		return forge.Delivery{}, err
	}
	d.Action = text.Clip(p.Attributes.Action, 100)
	if p.Project == nil {
		return d, nil
	}
	var ok bool
	if d.Repo, ok = forge.ParseName(p.Project.Path, maxGroups); !ok {
		return forge.Delivery{}, fmt.Errorf("%w: %.200q is no name of a repository", forge.ErrDelivery, p.Project.Path)
	}
	switch d.Event {
	case eventMergeRequest:
		d.Number = p.Attributes.IID
		d.Turned = d.Action == "close" || d.Action == "merge" || d.Action == "reopen"
	case eventNote:
		if p.MergeRequest != nil {
			d.Number = p.MergeRequest.IID
		}
	case eventPush:
		d.Pushes = []forge.Push{{Ref: p.Ref, Deleted: strings.Trim(p.After, "0") == ""}}
	case eventPipeline:
		check := forge.Check{ID: p.Attributes.ID, Workflow: true, Name: "pipeline", Commit: p.Attributes.SHA,
			Branch: p.Attributes.Ref}
		check.Status, check.Conclusion = conclusion(p.Attributes.Status, false)
		if p.MergeRequest != nil {
			check.Pulls = []int{p.MergeRequest.IID}
		}
		d.Check = &check
	}
	return d, nil
}
