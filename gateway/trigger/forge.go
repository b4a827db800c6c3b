package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/ramus-dev/ramus/gateway/forge"
)

// trusted are the associations of the authors whose new issues count, unless a trigger names others.
var trusted = []string{"OWNER", "MEMBER", "COLLABORATOR"}

// Deliver starts the work that a webhook of a forge causes. All of it is claimed when Deliver returns nil. The sender of
// d was checked before.
func (t *Triggers) Deliver(ctx context.Context, from forge.Forge, d forge.Delivery) error {
	var errs []error
	for _, name := range t.order {
		e := t.entries[name]
		if e.Issues == nil && e.Checks == nil || !t.isAbout(e, from, d) {
			continue
		}
		ev, f, ok := e.read(d)
		if !ok || !f.fits(e.When) {
			continue
		}
		ev.Time = t.Now().UTC()
		if _, _, err := t.claimRun(ctx, e, ev.fill(&e.Trigger, f)); err != nil && !isRefused(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// isAbout reports whether a delivery is about the repository of a trigger.
func (t *Triggers) isAbout(e *entry, from forge.Forge, d forge.Delivery) bool {
	if t.Upstream == nil {
		return false
	}
	at, ok := t.Upstream(e.Repo)
	return ok && at.Forge == from && at.Name.Is(d.Repo)
}

// read returns the event that a delivery is for the trigger. Returns false if it is none.
func (t *Trigger) read(d forge.Delivery) (Event, fields, bool) {
	switch {
	case t.Issues != nil && d.Issue != nil:
		return t.Issues.read(d)
	case t.Checks != nil && d.Check != nil:
		return t.Checks.read(d)
	}
	return Event{}, nil, false
}

func (is *Issues) read(d forge.Delivery) (Event, fields, bool) {
	i := d.Issue
	from := is.From
	if len(from) == 0 {
		from = trusted
	}
	switch {
	case is.Label != "" && (!i.Labeled || i.Label != is.Label):
		return Event{}, nil, false
	case is.Label == "" && (!i.Opened || !slices.Contains(from, i.Association)):
		return Event{}, nil, false
	}
	labels := make([]any, len(i.Labels))
	for n, label := range i.Labels {
		labels[n] = label
	}
	f := fields{"action": d.Action, "repo": d.Repo.String(), "number": json.Number(strconv.Itoa(d.Number)),
		"title": i.Title, "body": i.Body,
		"url": i.URL, "author": i.Author, "association": i.Association, "labels": labels, "label": i.Label,
		"sender": i.Sender}
	// The digest is the same if two webhooks send the event, and another if the label is added again later.
	return Event{Kind: KindIssue, Key: "issue " + d.Digest,
		Title: fmt.Sprintf("issue #%d of %s: %s", d.Number, d.Repo, i.Title)}, f, true
}

func (ck *Checks) read(d forge.Delivery) (Event, fields, bool) {
	c := d.Check
	// The delivery of a workflow run is enough for all its jobs.
	if !c.Failed() || c.Job || !matches(ck.Branches, c.Branch) || len(ck.Names) > 0 && !slices.Contains(ck.Names, c.Name) {
		return Event{}, nil, false
	}
	f := fields{"repo": d.Repo.String(), "name": c.Name, "branch": c.Branch, "commit": c.Commit,
		"conclusion": c.Conclusion, "url": c.URL,
		"title": c.Title, "summary": c.Summary, "text": c.Text, "attempt": json.Number(strconv.Itoa(c.Attempt))}
	return Event{Kind: KindCheck, Key: fmt.Sprintf("check %t %d %d", c.Workflow, c.ID, c.Attempt),
		Title: fmt.Sprintf("%s failed on %s at %.10s", c.Name, c.Branch, c.Commit)}, f, true
}
