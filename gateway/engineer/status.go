package engineer

import (
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
)

// setStatus sets the status of a commit that was published, with the verdict of the last work that has one. A refusal of the forge
// keeps nothing else from being posted.
func (j *job) setStatus(ctx context.Context, t record.Task, at forge.Repo, m message) (where string, err error) {
	able, ok := at.Forge.(forge.Statuser)
	if !ok {
		return "", fmt.Errorf("%w: %s has no statuses", forge.ErrRefused, at.Forge.Title())
	}
	list, err := j.manifests(ctx, t)
	if err != nil {
		return "", err
	}
	last := -1
	for i, w := range list {
		if w.Verdict != record.VerdictNone {
			last = i
		}
	}
	if last < 0 {
		return "", fmt.Errorf("%w: no work has a verdict", forge.ErrRefused)
	}
	s := statusOf(list[last])
	s.Commit = m.Item
	if j.engineer.Links != nil {
		s.URL = j.engineer.Links.Named(list[last].Run)
	}
	err = able.SetStatus(ctx, at.Name, s)
	var refused *forge.RefusedError
	if errors.As(err, &refused) {
		// Not even a refusal of the token is waited for.
		return "", fmt.Errorf("%w: %s", forge.ErrRefused, refused.Error())
	}
	return s.State, err
}

// statusOf returns the status of a piece of work.
func statusOf(m record.Manifest) forge.Status {
	switch m.Verdict {
	case record.VerdictVerified:
		return forge.Status{State: forge.StatusSuccess, Text: "verified: the checks passed on these files"}
	case record.VerdictFailed:
		text := "failed"
		for _, c := range m.Checks {
			if c.Result == record.CheckFailed && c.Current {
				text = c.Check + " failed"
			}
		}
		return forge.Status{State: forge.StatusFailure, Text: text}
	}
	text := "not verified"
	if len(m.Unverified) > 0 {
		text += ": " + m.Unverified[0]
	}
	return forge.Status{State: forge.StatusPending, Text: text}
}
