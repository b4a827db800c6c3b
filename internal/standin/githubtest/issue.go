package githubtest

import (
	"fmt"
	"strconv"
	"time"
)

// issue is an issue that is no pull request. The stand-in has no API for it. The App learns of it by webhooks.
type issue struct {
	id          int64
	number      int
	title, body string
	author      *user
	labels      []string
	created     time.Time
	updated     time.Time
}

// Issue opens an issue, as anybody who may read the repository can.
func (r *Repo) Issue(login, title, body string) (number int, err error) {
	err = r.act(login, "read", false, func(by *user) error {
		r.r.numbers++
		i := &issue{id: r.s.id(), number: r.r.numbers, title: title, body: body, author: by, created: r.s.Now(),
			updated: r.s.Now()}
		r.r.issues = append(r.r.issues, i)
		number = i.number
		r.s.emitIssue(r.r, i, "opened", by, nil)
		return nil
	})
	return number, err
}

// LabelIssue adds a label to an issue, as those with the role triage can.
func (r *Repo) LabelIssue(login string, number int, name string) error {
	return r.act(login, "triage", false, func(by *user) error {
		for _, i := range r.r.issues {
			if i.number == number {
				i.labels, i.updated = append(i.labels, name), r.s.Now()
				r.s.emitIssue(r.r, i, "labeled", by, object{"label": labelObject(r.s, r.r, name)})
				return nil
			}
		}
		return fmt.Errorf("there is no issue %d", number)
	})
}

func labelObject(s *Server, r *repository, name string) object {
	return object{"id": 4711, "node_id": node("LA", 4711), "url": s.repoURL(r) + "/labels/" + name, "name": name,
		"color": "ededed", "default": false, "description": nil}
}

// emitIssue emits an issues event. s.mu is held.
func (s *Server) emitIssue(r *repository, i *issue, action string, by *user, more object) {
	api := s.repoURL(r) + "/issues/" + strconv.Itoa(i.number)
	labels := []any{}
	for _, name := range i.labels {
		labels = append(labels, labelObject(s, r, name))
	}
	var body any
	if i.body != "" {
		body = i.body
	}
	o := object{"action": action, "repository": s.repoObject(r),
		"issue": object{"url": api, "repository_url": s.repoURL(r), "labels_url": api + "/labels{/name}",
			"comments_url": api + "/comments", "events_url": api + "/events",
			"html_url": fmt.Sprintf("%s/%s/%s/issues/%d", s.URL(), s.Account, r.name, i.number),
			"id":       i.id, "node_id": node("I", i.id), "number": i.number, "title": i.title,
			"user":   s.userObject(i.author),
			"labels": labels, "state": "open", "locked": false,
			"assignee": nil, "assignees": []any{}, "milestone": nil, "comments": 0, "created_at": stamp(i.created),
			"updated_at": stamp(i.updated), "closed_at": nil,
			"author_association": s.association(r, i.author), "active_lock_reason": nil, "body": body, "state_reason": nil,
			"timeline_url":             api + "/timeline",
			"performed_via_github_app": nil}}
	for name, v := range more {
		o[name] = v
	}
	s.change(Change{Repo: r.name, Kind: "issue", User: by.login, Ref: strconv.Itoa(i.number), Text: action + " " + i.title})
	s.emit(r, by, "issues", action, o)
}
