package engineer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gitd"
)

// history is the state that follows from the journal of a task. It alone decides on the next step.
type history struct {
	last   int64           // number of the last event
	heard  []item          // feedback, in order
	known  map[string]bool // keys of heard
	left   map[string]bool // keys of the items that are not worked on
	works  []work
	outbox []message
	queued map[string]bool // keys of outbox
	posted map[string]bool // keys of the messages that are posted or given up
	pushed gitd.Hash       // the commit that ramus last saw on the branch at the forge
	people []string        // commits of people that were merged since the last work began
	merged bool
	closed bool // the pull request was closed without being merged
	fails  int
	reason record.Reason // reason of the last failure
	// retried is set if the task was retried after the last publication.
	retried bool
	// gaveUp is set if an item was left since the last work began, which was reported then.
	gaveUp bool
}

// item is one piece of feedback on the work of a task, from a person or a check.
type item struct {
	Key     string         `json:"key"` // "comment:12", "review:3", "check:4", "word:k"
	By      string         `json:"by,omitempty"`
	Comment *forge.Comment `json:"comment,omitempty"`
	Review  *forge.Review  `json:"review,omitempty"`
	Check   *forge.Check   `json:"check,omitempty"`
	Word    *render.Word   `json:"word,omitempty"`
}

// excerpt returns the text of an item, or a short description of it.
func (i item) excerpt() string {
	switch {
	case i.Comment != nil:
		return i.Comment.Body
	case i.Review != nil:
		return cmp.Or(i.Review.Body, "changes requested")
	case i.Check != nil:
		return i.Check.Name + " failed"
	case i.Word != nil:
		return i.Word.Text
	}
	return ""
}

// work is one run of an agent for a task. It addresses the items in Keys. If Keys is empty, it does the task itself.
type work struct {
	N         int       `json:"n"`
	Run       string    `json:"run,omitempty"`
	Keys      []string  `json:"keys,omitempty"`
	Commits   []string  `json:"commits,omitempty"` // commits of people since the work before
	Ended     bool      `json:"ended,omitempty"`
	OK        bool      `json:"ok,omitempty"`
	Error     string    `json:"error,omitempty"`
	Head      gitd.Hash `json:"head,omitempty"`
	Published gitd.Hash `json:"published,omitempty"` // the commit of the branch, after it was pushed
	// Evidence is the commit with the pictures of the work, after it was pushed to the forge too. See [EvidenceBranch].
	Evidence gitd.Hash `json:"evidence,omitempty"`
}

// id returns the id of the run of the work.
func (w work) id() string { return "work-" + strconv.Itoa(w.N) }

// message is a message of the outbox. It is posted once.
type message struct {
	Key  string `json:"key"`
	Lane lane   `json:"lane"`
	Kind string `json:"kind"`
	Work int    `json:"work,omitempty"` // number of the work that the message is about
	Item string `json:"item,omitempty"` // key of the item that the message answers
	Text string `json:"text,omitempty"`
}

// maxPause limits the pause before a failed attempt is repeated.
const maxPause = 5 * time.Minute

// lane is a destination of messages. The messages of a lane are posted one after another.
type lane string

const (
	laneSlack lane = "slack"
	laneForge lane = "github"
	// laneTicket is the issue that started the task.
	laneTicket lane = "ticket"
)

// The kinds of messages.
const (
	mailThread   = "thread"   // begins the thread in Slack
	mailPost     = "post"     // is posted in the thread
	mailAsk      = "ask"      // is posted in the thread, with buttons for the answer
	mailPull     = "pull"     // opens the pull request
	mailBody     = "body"     // updates the text of the pull request
	mailReply    = "reply"    // replies to an item
	mailReview   = "review"   // requests another review
	mailLine     = "line"     // comments on a line
	mailSay      = "say"      // comments on the pull request
	mailFailed   = "failed"   // comments on the pull request that the task failed
	mailUnbranch = "unbranch" // deletes the branch
	mailLabels   = "labels"   // adds the labels of the pull request
	mailStatus   = "status"   // sets the status of the commit that was pushed
)

// The kinds of EventHeard.
const (
	heardItem     = "said"
	heardLeft     = "left"     // the item is not worked on
	heardCommits  = "commits"  // commits of people; the event's commit is the tip of the branch with them
	heardMerged   = "merged"   // the pull request was merged
	heardClosed   = "closed"   // the pull request was closed without being merged
	heardReopened = "reopened" // the pull request was reopened
	heardAgain    = "again"    // the branch is proposed again, by another pull request
)

// The kinds of EventWork.
const (
	workBegun     = "begun"
	workEnded     = "ended"
	workPublished = "published"
	workFailed    = "failed"  // of the task
	workRetried   = "retried" // of the task; the event's step names work that is to be published again
)

func heard(i item) record.Event {
	return record.Event{Type: record.EventHeard, Kind: heardItem, Step: i.Key, Message: firstOf(i.excerpt()),
		Data: encode(i)}
}

// add applies one event to the history.
func (h *history) add(e record.Event) error {
	if h.known == nil {
		h.known, h.left, h.queued, h.posted = map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	}
	h.last = max(h.last, e.Seq)
	var err error
	switch e.Type {
	case record.EventHeard:
		err = h.addHeard(e)
	case record.EventWork:
		err = h.addWork(e)
	case record.EventOutbox:
		var m message
		if err = json.Unmarshal(e.Data, &m); err == nil && !h.queued[m.Key] {
			h.queued[m.Key] = true
			h.outbox = append(h.outbox, m)
		}
	case record.EventPosted:
		h.posted[e.Step] = true
	}
	if err != nil {
		return fmt.Errorf("cannot read event %d (%s): %w", e.Seq, e.Type, err)
	}
	return nil
}

// addHeard applies an event of new input.
func (h *history) addHeard(e record.Event) error {
	switch e.Kind {
	case heardItem:
		var i item
		if err := json.Unmarshal(e.Data, &i); err != nil {
			return err
		}
		if !h.known[i.Key] {
			h.known[i.Key] = true
			h.heard = append(h.heard, i)
		}
	case heardLeft:
		h.left[e.Step], h.gaveUp = true, true
	case heardCommits:
		var commits []string
		if err := json.Unmarshal(e.Data, &commits); err != nil {
			return err
		}
		h.people, h.pushed = append(h.people, commits...), e.Commit
	case heardMerged:
		h.merged = true
	case heardClosed:
		h.closed = true
	case heardReopened:
		h.closed = false
	case heardAgain:
		h.closed, h.merged = false, false
	}
	return nil
}

// addWork applies an event of the work on the branch.
func (h *history) addWork(e record.Event) error {
	switch e.Kind {
	case workBegun, workEnded:
		var w work
		if err := json.Unmarshal(e.Data, &w); err != nil {
			return err
		}
		if e.Kind == workBegun {
			h.works, h.people, h.gaveUp = append(h.works, w), nil, false
		} else if n := w.N - 1; n >= 0 && n < len(h.works) {
			own := &h.works[n]
			own.Ended, own.OK, own.Error, own.Head = true, w.OK, w.Error, w.Head
		}
	case workPublished:
		if n := len(h.works); n > 0 {
			h.works[n-1].Published = e.Commit
			var w work
			if len(e.Data) > 0 && json.Unmarshal(e.Data, &w) == nil {
				h.works[n-1].Evidence = w.Evidence
			}
		}
		h.pushed, h.retried = e.Commit, false
	case workRetried:
		h.retried = true
		if n := len(h.works); n > 0 && e.Step == h.works[n-1].id() {
			h.works[n-1].Published = ""
		}
	case workFailed:
		h.fails++
		h.reason = record.Reason(e.Reason)
	}
	return nil
}

func (h history) clone() history {
	h.heard, h.works, h.outbox, h.people = slices.Clone(h.heard), slices.Clone(h.works), slices.Clone(h.outbox),
		slices.Clone(h.people)
	h.known, h.left, h.queued, h.posted = maps.Clone(h.known), maps.Clone(h.left), maps.Clone(h.queued), maps.Clone(h.posted)
	return h
}

// latest returns the last work. Returns false if there is none.
func (h history) latest() (w work, any bool) {
	if n := len(h.works); n > 0 {
		return h.works[n-1], true
	}
	return w, false
}

// unposted returns the messages of a lane that are not posted yet. If l is "", it returns those of all lanes.
func (h history) unposted(l lane) (list []message) {
	for _, m := range h.outbox {
		if !h.posted[m.Key] && (l == "" || m.Lane == l) {
			list = append(list, m)
		}
	}
	return list
}

// waiting returns the items that no work was begun for and that are not left.
func (h history) waiting() (list []item) {
	begun := make(map[string]bool)
	for _, w := range h.works {
		for _, k := range w.Keys {
			begun[k] = true
		}
	}
	for _, i := range h.heard {
		if !begun[i.Key] && !h.left[i.Key] {
			list = append(list, i)
		}
	}
	return list
}

// said returns the items with the given keys.
func (h history) said(keys []string) (list []item) {
	for _, i := range h.heard {
		if slices.Contains(keys, i.Key) {
			list = append(list, i)
		}
	}
	return list
}

// evidence returns the last commit with pictures. Returns "" if there is none.
func (h history) evidence() gitd.Hash {
	for _, w := range slices.Backward(h.works) {
		if w.Evidence != "" {
			return w.Evidence
		}
	}
	return ""
}

// repairs returns how many of the last works in a row addressed only checks.
func (h history) repairs() (n int) {
	for _, w := range slices.Backward(h.works) {
		items := h.said(w.Keys)
		if len(items) == 0 || slices.ContainsFunc(items, func(i item) bool { return i.Check == nil }) {
			break
		}
		n++
	}
	return n
}

// excerpt returns the excerpt of the first item with one of the given keys and with a text.
func (h history) excerpt(keys []string) string {
	for _, i := range h.said(keys) {
		if text := strings.TrimSpace(i.excerpt()); text != "" {
			return text
		}
	}
	return ""
}

// feedback returns all feedback that a piece of work addresses.
func (h history) feedback(w work) (f render.Feedback) {
	for _, i := range h.said(w.Keys) {
		switch {
		case i.Comment != nil:
			f.Comments = append(f.Comments, *i.Comment)
		case i.Review != nil:
			f.Reviews = append(f.Reviews, *i.Review)
		case i.Check != nil:
			f.Checks = append(f.Checks, *i.Check)
		case i.Word != nil:
			f.Words = append(f.Words, *i.Word)
		}
	}
	f.Commits = w.Commits
	return f
}
