package githubtest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// issueComment is a comment in a pull request's conversation.
type issueComment struct {
	p       *pullRequest
	id      int64
	user    *user
	body    string
	created time.Time
	updated time.Time
}

// addComment adds a comment to the conversation. s.mu is held.
func (s *Server) addComment(p *pullRequest, by *user, body string) (*issueComment, error) {
	if strings.TrimSpace(body) == "" {
		return nil, invalid(object{"resource": "IssueComment", "code": "unprocessable", "field": "data",
			"message": "Body cannot be blank"})
	}
	if err := tooLong("IssueComment", body); err != nil {
		return nil, err
	}
	c := &issueComment{p: p, id: s.id(), user: by, body: body, created: s.Now(), updated: s.Now()}
	p.comments = append(p.comments, c)
	s.touch(p)
	s.change(p.change("comment", by, body))
	s.emitComment(c, "created", by, nil)
	return c, nil
}

func (s *Server) emitComment(c *issueComment, action string, by *user, more object) {
	o := object{"action": action, "issue": s.issueObject(c.p), "comment": s.commentObject(c),
		"repository": s.repoObject(c.p.r)}
	for name, v := range more {
		o[name] = v
	}
	s.emit(c.p.r, by, "issue_comment", action, o)
}

// commentObject returns the JSON of a comment. s.mu is held.
func (s *Server) commentObject(c *issueComment) object {
	api := fmt.Sprintf("%s/issues/comments/%d", s.repoURL(c.p.r), c.id)
	return object{"url": api, "html_url": fmt.Sprintf("%s#issuecomment-%d", s.pullPage(c.p), c.id),
		"issue_url": s.issueURL(c.p), "id": c.id,
		"node_id": node("IC", c.id), "user": s.userObject(c.user), "created_at": stamp(c.created),
		"updated_at":         stamp(c.updated),
		"author_association": s.association(c.p.r, c.user), "body": c.body,
		"reactions":                object{"url": api + "/reactions", "total_count": 0},
		"performed_via_github_app": nil}
}

func (s *Server) issueURL(p *pullRequest) string {
	return s.repoURL(p.r) + "/issues/" + strconv.Itoa(p.number)
}

// issueObject returns the JSON of a pull request as an issue. s.mu is held.
func (s *Server) issueObject(p *pullRequest) object {
	api := s.issueURL(p)
	var body any
	if p.body != "" {
		body = p.body
	}
	html := s.pullPage(p)
	return object{"url": api, "repository_url": s.repoURL(p.r), "labels_url": api + "/labels{/name}",
		"comments_url": api + "/comments",
		"events_url":   api + "/events", "html_url": html, "id": p.id, "node_id": node("PR", p.id), "number": p.number,
		"title": p.title,
		"user":  s.userObject(p.author), "labels": s.labelsObject(p), "state": p.state, "locked": false, "assignee": nil,
		"assignees": []any{},
		"milestone": nil, "comments": len(p.comments), "created_at": stamp(p.created), "updated_at": stamp(p.updated),
		"closed_at":          stamp(p.closed),
		"author_association": s.association(p.r, p.author), "active_lock_reason": nil, "draft": p.draft, "body": body,
		"state_reason": nil,
		"timeline_url": api + "/timeline", "performed_via_github_app": nil,
		"pull_request": object{"url": s.pullURL(p), "html_url": html, "diff_url": html + ".diff",
			"patch_url": html + ".patch", "merged_at": stamp(p.mergedAt())}}
}

func (c *call) getIssue() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	return ok(c.s.issueObject(p))
}

func (c *call) comments() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	since, a := c.newer()
	if a != nil {
		return *a
	}
	var list []any
	for _, m := range p.comments {
		if !m.updated.Before(since) {
			list = append(list, c.s.commentObject(m))
		}
	}
	return c.page(list)
}

func (c *call) createComment() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	var ask struct {
		Body string `json:"body"`
	}
	if a := c.read(&ask); a != nil {
		return *a
	}
	m, err := c.s.addComment(p, c.who.user, ask.Body)
	if err != nil {
		return failed(err)
	}
	c.set("Location", fmt.Sprintf("%s/issues/comments/%d", c.repoURL(), m.id))
	return created(c.s.commentObject(m))
}

// theComment returns the comment of the path.
func (c *call) theComment() (*issueComment, *answer) {
	for _, p := range c.repo.pulls {
		for _, m := range p.comments {
			if m.id == c.number("comment_id") {
				return m, nil
			}
		}
	}
	a := notFound.answer()
	return nil, &a
}

func (c *call) getComment() answer {
	m, a := c.theComment()
	if a != nil {
		return *a
	}
	return ok(c.s.commentObject(m))
}

func (c *call) editComment() answer {
	m, a := c.theComment()
	if a != nil {
		return *a
	}
	var ask struct {
		Body string `json:"body"`
	}
	if a := c.read(&ask); a != nil {
		return *a
	}
	if !c.mayEdit(m.user) {
		return refused(http.StatusForbidden, "Must have push access to repository")
	}
	if err := tooLong("IssueComment", ask.Body); err != nil {
		return failed(err)
	}
	before := m.body
	m.body, m.updated = ask.Body, c.s.Now()
	c.s.emitComment(m, "edited", c.who.user, object{"changes": object{"body": object{"from": before}}})
	return ok(c.s.commentObject(m))
}

func (c *call) deleteComment() answer {
	m, a := c.theComment()
	if a != nil {
		return *a
	}
	if !c.mayEdit(m.user) {
		return refused(http.StatusForbidden, "Must have push access to repository")
	}
	m.p.comments = slices.DeleteFunc(m.p.comments, func(other *issueComment) bool { return other == m })
	c.s.emitComment(m, "deleted", c.who.user, nil)
	return nothing()
}

func (c *call) labels() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	return c.page(c.s.labelsObject(p))
}

// maxLabels is GitHub's limit for one issue.
const maxLabels = 100

func (c *call) addLabels() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	var ask struct {
		Labels []string `json:"labels"`
	}
	into := any(&ask)
	if strings.HasPrefix(strings.TrimSpace(string(c.body)), "[") {
		into = &ask.Labels
	}
	if a := c.read(into); a != nil {
		return *a
	}
	for _, name := range ask.Labels {
		if name == "" || len(name) > 50 || len(p.labels) >= maxLabels {
			return failed(invalid(object{"resource": "Label", "code": "invalid", "field": "name", "value": name}))
		}
	}
	c.s.label(p, c.who.user, ask.Labels)
	return ok(c.s.labelsObject(p))
}

func (c *call) removeLabel() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	at := slices.Index(p.labels, c.value("name"))
	if at < 0 {
		return refused(http.StatusNotFound, "Label does not exist")
	}
	p.labels = slices.Delete(p.labels, at, at+1)
	c.s.emitPull(p, "unlabeled", c.who.user, nil)
	return ok(c.s.labelsObject(p))
}

// label adds labels to the existing ones. s.mu is held.
func (s *Server) label(p *pullRequest, by *user, names []string) {
	for _, name := range names {
		if slices.Contains(p.labels, name) {
			continue
		}
		p.labels = append(p.labels, name)
		s.touch(p)
		s.change(p.change("label", by, name))
		all := s.labelsObject(p)
		s.emitPull(p, "labeled", by, object{"label": all[len(all)-1]})
	}
}
