package githubtest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pullReview is one review. A single comment on a line belongs to a review of its own.
type pullReview struct {
	id        int64
	user      *user
	state     string // in the API's form, APPROVED …
	body      string
	commit    string
	submitted time.Time
}

// lineComment is a comment on a line, or on a whole file.
type lineComment struct {
	p        *pullRequest
	id       int64
	review   int64
	reply    int64 // the first comment of the thread
	user     *user
	body     string
	path     string
	side     string // RIGHT, LEFT
	line     int    // 0 for the whole file
	start    int    // first line of a comment on several lines; 0 for one line
	commit   string // the head when the comment was made
	hunk     string
	position int
	created  time.Time
	updated  time.Time
	resolved *user // the one who resolved the thread that it begins, or nil
}

// draftComment is a comment in a request.
type draftComment struct {
	Path      string `json:"path"`
	Body      string `json:"body"`
	Position  *int   `json:"position"`
	Line      int    `json:"line"`
	Side      string `json:"side"`
	StartLine int    `json:"start_line"`
	StartSide string `json:"start_side"`
}

// newLine checks a comment against the diff. s.mu is held.
func (s *Server) newLine(p *pullRequest, by *user, d draftComment, wholeFile bool) (*lineComment, error) {
	c := &lineComment{p: p, user: by, body: d.Body, path: d.Path, side: strings.ToUpper(cmp.Or(d.Side, "RIGHT")),
		line: d.Line, start: d.StartLine,
		commit: p.headSHA, created: s.Now(), updated: s.Now()}
	if strings.TrimSpace(d.Body) == "" {
		return nil, invalid(object{"resource": "PullRequestReviewComment", "code": "missing_field", "field": "body"})
	}
	if err := tooLong("PullRequestReviewComment", d.Body); err != nil {
		return nil, err
	}
	if !s.inDiff(p, d.Path) {
		return nil, notInDiff("path")
	}
	if wholeFile {
		c.line, c.hunk = 0, ""
		return c, nil
	}
	if c.side != "RIGHT" && c.side != "LEFT" || c.start < 0 || c.start > 0 && c.start >= c.line {
		return nil, invalid(object{"resource": "PullRequestReviewComment", "code": "invalid", "field": "line"})
	}
	var found bool
	if c.hunk, c.position, found = s.place(p, c.path, c.line, c.side); !found {
		return nil, notInDiff("line")
	}
	return c, nil
}

// addReview submits a review with its comments. s.mu is held.
func (s *Server) addReview(p *pullRequest, by *user, state, body, commit string, comments []*lineComment) *pullReview {
	v := &pullReview{id: s.id(), user: by, state: state, body: body, commit: cmp.Or(commit, p.headSHA), submitted: s.Now()}
	p.reviews = append(p.reviews, v)
	for _, c := range comments {
		c.id, c.review = s.id(), v.id
		p.lines = append(p.lines, c)
	}
	s.touch(p)
	if at := slices.Index(p.requested, by); at >= 0 && by != p.author {
		p.requested = slices.Delete(p.requested, at, at+1)
	}
	if body != "" || len(comments) == 0 {
		ch := p.change("review", by, body)
		ch.Ref = strings.ToLower(state)
		s.change(ch)
	}
	// Only events have the state in lower case.
	o := s.reviewObject(p, v)
	o["state"] = strings.ToLower(state)
	s.emit(p.r, by, "pull_request_review", "submitted",
		object{"action": "submitted", "review": o, "pull_request": s.pullObject(p), "repository": s.repoObject(p.r)})
	for _, c := range comments {
		kind := "line"
		if c.reply != 0 {
			kind = "reply"
		}
		ch := p.change(kind, by, c.body)
		ch.Path, ch.Line = c.path, c.line
		s.change(ch)
		s.emit(p.r, by, "pull_request_review_comment", "created", object{"action": "created", "comment": s.lineObject(c),
			"pull_request": s.pullObject(p), "repository": s.repoObject(p.r)})
	}
	return v
}

// addReply replies in a comment's thread. s.mu is held.
func (s *Server) addReply(p *pullRequest, by *user, to int64, body string) (*lineComment, error) {
	at := slices.IndexFunc(p.lines, func(c *lineComment) bool { return c.id == to })
	if at < 0 {
		return nil, notFound
	}
	top := p.lines[at]
	switch {
	case top.reply != 0:
		s.complain("an answer to the comment %d, which is an answer itself", to)
		return nil, invalid(object{"resource": "PullRequestReviewComment", "code": "invalid", "field": "in_reply_to"})
	case strings.TrimSpace(body) == "":
		return nil, invalid(object{"resource": "PullRequestReviewComment", "code": "missing_field", "field": "body"})
	}
	if err := tooLong("PullRequestReviewComment", body); err != nil {
		return nil, err
	}
	c := *top
	c.reply, c.user, c.body, c.created, c.updated = top.id, by, body, s.Now(), s.Now()
	s.addReview(p, by, "COMMENTED", "", "", []*lineComment{&c})
	return &c, nil
}

// resolveThread resolves the thread that a comment begins, or opens it again. s.mu is held.
func (s *Server) resolveThread(top *lineComment, by *user, resolved bool) {
	if resolved == (top.resolved != nil) {
		return
	}
	action := "unresolved"
	if top.resolved = nil; resolved {
		top.resolved, action = by, "resolved"
	}
	var comments []object
	for _, c := range top.p.lines {
		if c == top || c.reply == top.id {
			comments = append(comments, s.lineObject(c))
		}
	}
	s.emit(top.p.r, by, "pull_request_review_thread", action, object{"action": action, "pull_request": s.pullObject(top.p),
		"repository": s.repoObject(top.p.r), "thread": object{"node_id": node("PRRT", top.id), "comments": comments}})
}

// threadNode returns the thread that a comment begins by GraphQL. s.mu is held.
func (s *Server) threadNode(top *lineComment) object {
	var comments []object
	for _, c := range top.p.lines {
		if c == top || c.reply == top.id {
			comments = append(comments, object{"id": node("PRRC", c.id), "databaseId": c.id, "body": c.body, "author": s.ownerNode(c.user)})
		}
	}
	return object{"id": node("PRRT", top.id), "isResolved": top.resolved != nil, "resolvedBy": s.ownerNode(top.resolved),
		"isOutdated": false, "path": top.path, "line": top.line, "comments": connection(comments)}
}

// reviewObject returns the JSON of a review. s.mu is held.
func (s *Server) reviewObject(p *pullRequest, v *pullReview) object {
	html := fmt.Sprintf("%s#pullrequestreview-%d", s.pullPage(p), v.id)
	return object{"id": v.id, "node_id": node("PRR", v.id), "user": s.userObject(v.user), "body": v.body,
		"state": v.state, "html_url": html,
		"pull_request_url": s.pullURL(p), "author_association": s.association(p.r, v.user),
		"submitted_at": stamp(v.submitted), "commit_id": v.commit,
		"_links": object{"html": object{"href": html}, "pull_request": object{"href": s.pullURL(p)}}}
}

// lineObject returns the JSON of a comment on a line. It has no line if the line was changed since. s.mu is held.
func (s *Server) lineObject(c *lineComment) object {
	p := c.p
	api := fmt.Sprintf("%s/pulls/comments/%d", s.repoURL(p.r), c.id)
	html := fmt.Sprintf("%s#discussion_r%d", s.pullPage(p), c.id)
	o := object{"url": api, "pull_request_review_id": c.review, "id": c.id, "node_id": node("PRRC", c.id),
		"diff_hunk": c.hunk, "path": c.path,
		"commit_id": p.headSHA, "original_commit_id": c.commit, "user": s.userObject(c.user), "body": c.body,
		"created_at": stamp(c.created),
		"updated_at": stamp(c.updated), "html_url": html, "pull_request_url": s.pullURL(p),
		"author_association": s.association(p.r, c.user),
		"_links": object{"self": object{"href": api}, "html": object{"href": html},
			"pull_request": object{"href": s.pullURL(p)}},
		"reactions": object{"url": api + "/reactions", "total_count": 0}, "side": c.side, "start_line": nil,
		"original_start_line": nil, "start_side": nil}
	if c.reply != 0 {
		o["in_reply_to_id"] = c.reply
	}
	if c.line == 0 {
		o["subject_type"], o["position"], o["original_position"], o["line"], o["original_line"] = "file", 1, 1, nil, nil
		return o
	}
	o["subject_type"], o["original_line"], o["original_position"] = "line", c.line, c.position
	if c.start > 0 {
		o["original_start_line"], o["start_side"] = c.start, c.side
	}
	now := c.line
	if c.side == "RIGHT" {
		now = s.carried(p.r, c.commit, p.headSHA, c.path, c.line)
	}
	_, position, found := s.place(p, c.path, now, c.side)
	if now == 0 || !found {
		o["line"], o["position"], o["commit_id"] = nil, nil, c.commit
		return o
	}
	o["line"], o["position"] = now, position
	if c.start > 0 {
		o["start_line"] = now - (c.line - c.start)
	}
	return o
}

func (c *call) reviews() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	var list []any
	for _, v := range p.reviews {
		list = append(list, c.s.reviewObject(p, v))
	}
	return c.page(list)
}

// theReview returns the review of the path.
func (c *call) theReview() (*pullRequest, *pullReview, *answer) {
	p, a := c.thePull()
	if a != nil {
		return nil, nil, a
	}
	for _, v := range p.reviews {
		if v.id == c.number("review_id") {
			return p, v, nil
		}
	}
	none := notFound.answer()
	return nil, nil, &none
}

func (c *call) getReview() answer {
	p, v, a := c.theReview()
	if a != nil {
		return *a
	}
	return ok(c.s.reviewObject(p, v))
}

func (c *call) reviewComments() answer {
	p, v, a := c.theReview()
	if a != nil {
		return *a
	}
	var list []any
	for _, l := range p.lines {
		if l.review == v.id {
			list = append(list, c.s.lineObject(l))
		}
	}
	return c.page(list)
}

// states maps the event of a request to the state of the review.
var states = map[string]string{"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}

// judge refuses an invalid review.
func judge(p *pullRequest, by *user, state, body string, comments int) error {
	switch {
	case by == p.author && state == "APPROVED":
		return unprocessable("Can not approve your own pull request")
	case by == p.author && state == "CHANGES_REQUESTED":
		return unprocessable("Can not request changes on your own pull request")
	case state == "CHANGES_REQUESTED" && body == "", state == "COMMENTED" && body == "" && comments == 0:
		return unprocessable("Body can't be blank")
	}
	return tooLong("PullRequestReview", body)
}

func (c *call) createReview() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	var ask struct {
		Commit   string         `json:"commit_id"`
		Body     string         `json:"body"`
		Event    string         `json:"event"`
		Comments []draftComment `json:"comments"`
	}
	if a := c.read(&ask); a != nil {
		return *a
	}
	state, known := states[ask.Event]
	if !known {
		// Without an event the review would be pending, which only its author sees.
		c.s.complain("a review with the event %q", ask.Event)
		return failed(invalid(object{"resource": "PullRequestReview", "field": "event", "code": "invalid"}))
	}
	if err := judge(p, c.who.user, state, ask.Body, len(ask.Comments)); err != nil {
		return failed(err)
	}
	var comments []*lineComment
	for _, d := range ask.Comments {
		l, err := c.s.newLine(p, c.who.user, d, false)
		if err != nil {
			return failed(err)
		}
		comments = append(comments, l)
	}
	return ok(c.s.reviewObject(p, c.s.addReview(p, c.who.user, state, ask.Body, ask.Commit, comments)))
}

func (c *call) dismiss() answer {
	p, v, a := c.theReview()
	if a != nil {
		return *a
	}
	var ask struct {
		Message string `json:"message"`
		Event   string `json:"event"`
	}
	if a := c.read(&ask); a != nil {
		return *a
	}
	if ask.Message == "" {
		return refused(http.StatusUnprocessableEntity, "Invalid request.\n\n\"message\" wasn't supplied.")
	}
	if err := c.s.dismissReview(p, v, c.who.user, ask.Message); err != nil {
		return failed(err)
	}
	return ok(c.s.reviewObject(p, v))
}

// dismissReview dismisses a review. s.mu is held.
func (s *Server) dismissReview(p *pullRequest, v *pullReview, by *user, message string) error {
	if v.state != "APPROVED" && v.state != "CHANGES_REQUESTED" {
		return unprocessable("Can not dismiss a " + strings.ToLower(v.state) + " pull request review")
	}
	v.state = "DISMISSED"
	s.touch(p)
	s.change(p.change("dismiss", by, message))
	o := s.reviewObject(p, v)
	o["state"] = "dismissed"
	s.emit(p.r, by, "pull_request_review", "dismissed",
		object{"action": "dismissed", "review": o, "pull_request": s.pullObject(p), "repository": s.repoObject(p.r)})
	return nil
}

// listLines responds with comments, sorted and cut as the query requires.
func (c *call) listLines(of []*pullRequest) answer {
	since, a := c.newer()
	if a != nil {
		return *a
	}
	var all []*lineComment
	for _, p := range of {
		for _, l := range p.lines {
			if !l.updated.Before(since) {
				all = append(all, l)
			}
		}
	}
	query := c.r.URL.Query()
	slices.SortStableFunc(all, func(a, b *lineComment) int {
		if query.Get("sort") == "updated" {
			return a.updated.Compare(b.updated)
		}
		return cmp.Compare(a.id, b.id)
	})
	if query.Get("sort") != "" && query.Get("direction") == "desc" {
		slices.Reverse(all)
	}
	var list []any
	for _, l := range all {
		list = append(list, c.s.lineObject(l))
	}
	return c.page(list)
}

func (c *call) lineComments() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	return c.listLines([]*pullRequest{p})
}

func (c *call) allLineComments() answer { return c.listLines(c.repo.pulls) }

// theLine returns the comment of the path.
func (c *call) theLine() (*lineComment, *answer) {
	for _, p := range c.repo.pulls {
		for _, l := range p.lines {
			if l.id == c.number("comment_id") {
				return l, nil
			}
		}
	}
	a := notFound.answer()
	return nil, &a
}

func (c *call) getLineComment() answer {
	l, a := c.theLine()
	if a != nil {
		return *a
	}
	return ok(c.s.lineObject(l))
}

func (c *call) createLineComment() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	var ask struct {
		draftComment
		Commit  string `json:"commit_id"`
		Subject string `json:"subject_type"`
		ReplyTo int64  `json:"in_reply_to"`
	}
	if a := c.read(&ask); a != nil {
		return *a
	}
	var l *lineComment
	var err error
	switch {
	case ask.ReplyTo != 0:
		l, err = c.s.addReply(p, c.who.user, ask.ReplyTo, ask.Body)
	case ask.Commit == "":
		return refused(http.StatusUnprocessableEntity,
			"Invalid request.\n\nNo subschema in \"oneOf\" matched.\n\"commit_id\" wasn't supplied.")
	case !slices.Contains(c.s.commitsOf(p), ask.Commit):
		return failed(invalid(object{"resource": "PullRequestReviewComment", "field": "commit_id", "code": "custom",
			"message": "commit_id is not part of the pull request"}))
	default:
		if l, err = c.s.newLine(p, c.who.user, ask.draftComment, ask.Subject == "file"); err == nil {
			c.s.addReview(p, c.who.user, "COMMENTED", "", "", []*lineComment{l})
		}
	}
	if err != nil {
		return failed(err)
	}
	return created(c.s.lineObject(l))
}

func (c *call) createReply() answer {
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
	l, err := c.s.addReply(p, c.who.user, c.number("comment_id"), ask.Body)
	if err != nil {
		return failed(err)
	}
	c.set("Location", c.repoURL()+"/pulls/comments/"+strconv.FormatInt(l.id, 10))
	return created(c.s.lineObject(l))
}

// mayEdit reports whether the requester may edit an author's text.
func (c *call) mayEdit(author *user) bool {
	return c.who.user == author || c.who.app || rank(c.repo.role(c.who.user)) >= rank("write")
}

func (c *call) editLineComment() answer {
	l, a := c.theLine()
	if a != nil {
		return *a
	}
	var ask struct {
		Body string `json:"body"`
	}
	if a := c.read(&ask); a != nil {
		return *a
	}
	if !c.mayEdit(l.user) {
		return refused(http.StatusForbidden, "Must have push access to repository")
	}
	before := l.body
	l.body, l.updated = ask.Body, c.s.Now()
	c.s.emit(c.repo, c.who.user, "pull_request_review_comment", "edited",
		object{"action": "edited", "comment": c.s.lineObject(l),
			"changes": object{"body": object{"from": before}}, "pull_request": c.s.pullObject(l.p),
			"repository": c.s.repoObject(c.repo)})
	return ok(c.s.lineObject(l))
}

func (c *call) deleteLineComment() answer {
	l, a := c.theLine()
	if a != nil {
		return *a
	}
	if !c.mayEdit(l.user) {
		return refused(http.StatusForbidden, "Must have push access to repository")
	}
	o := c.s.lineObject(l)
	l.p.lines = slices.DeleteFunc(l.p.lines, func(other *lineComment) bool { return other == l })
	c.s.emit(c.repo, c.who.user, "pull_request_review_comment", "deleted", object{"action": "deleted", "comment": o,
		"pull_request": c.s.pullObject(l.p), "repository": c.s.repoObject(c.repo)})
	return nothing()
}
