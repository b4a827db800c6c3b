package review

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/anchor"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of reviews.
const (
	MaxThreads = 1000
	MaxRemarks = 200      // of one thread
	MaxText    = 20 << 10 // bytes of one remark
	maxLine    = 500      // bytes of a line of an excerpt
	maxExcerpt = 8 << 10  // bytes
)

// Kind is the kind of the author of a remark.
type Kind string

const (
	ByPerson Kind = "person"
	ByAgent  Kind = "agent"
	ByForge  Kind = "forge" // a person or a program at a forge
)

// Remark is a text about the lines of a thread.
type Remark struct {
	ID   string      `json:"id"`
	Kind Kind        `json:"kind"`
	By   gitd.Person `json:"by"`
	Time time.Time   `json:"time"`
	Text string      `json:"text"`
	// Batch is the batch with which a person sent the remark. Run is the run whose agent made it.
	Batch string `json:"batch,omitempty"`
	Run   string `json:"run,omitempty"`
	// Outside is the comment at the forge that has the same text. It is 0 if there is none.
	Outside int64 `json:"outside,omitempty"`
	// Taken is the commit that a suggestion of the remark became.
	Taken gitd.Hash `json:"taken,omitempty"`
}

// Thread has the remarks about some lines.
type Thread struct {
	ID     string        `json:"id"`
	Anchor anchor.Anchor `json:"anchor"`
	// Excerpt has the lines of the anchor with those around them, cut to a length. First is the number of the first one.
	First   int      `json:"first"`
	Excerpt []string `json:"excerpt"`
	Remarks []Remark `json:"remarks"`
	// Resolved says who closed the thread. Nil means that it is open.
	Resolved *Resolution `json:"resolved,omitempty"`
	// Finding is the fingerprint of the finding of an automatic review. It is empty for other threads.
	Finding string `json:"finding,omitempty"`
	// SettledOutside is set if the thread was resolved at the forge when it was last looked at there. A difference from the state there is a
	// change there, and one from Resolved is a change here.
	SettledOutside bool `json:"settled_outside,omitempty"`
	// Pull is the pull request whose comments are the same.
	Pull int `json:"pull,omitempty"`
}

// Resolution is the end of a thread.
type Resolution struct {
	By   gitd.Person `json:"by"`
	Time time.Time   `json:"time"`
	// Unworthy is set if the finding is not worth saying again in the repository.
	Unworthy bool `json:"unworthy,omitempty"`
}

// State is the state of a thread for people.
type State string

const (
	Draft    State = "draft"    // only its author sees it
	Sent     State = "sent"     // nothing has happened since
	Touched  State = "touched"  // the lines, or those around them, have changed
	Answered State = "answered" // the last remark is not that of the thread's author
	Outdated State = "outdated" // the lines are not there any more
	Resolved State = "resolved"
)

// StateAt returns the state of a thread whose lines are at a place.
func (t Thread) StateAt(p anchor.Place) State {
	last, first := t.Remarks[len(t.Remarks)-1], t.Remarks[0]
	switch {
	case t.Resolved != nil:
		return Resolved
	case last.Kind == ByAgent && first.Kind != ByAgent:
		return Answered
	case p.State == anchor.Gone:
		return Outdated
	case p.State == anchor.Changed:
		return Touched
	}
	return Sent
}

// Remark returns a remark by its id, or nil.
func (t *Thread) Remark(id string) *Remark {
	i := slices.IndexFunc(t.Remarks, func(r Remark) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &t.Remarks[i]
}

// SetExcerpt takes the lines of the anchor of lines of its file.
func (t *Thread) SetExcerpt(lines []string) {
	first, list := anchor.Excerpt(lines, t.Anchor.From, t.Anchor.To)
	t.First, t.Excerpt = first, []string{}
	size := 0
	for _, l := range list {
		l = strings.ToValidUTF8(l[:min(len(l), maxLine)], "\uFFFD")
		if size += len(l); size > maxExcerpt {
			break
		}
		t.Excerpt = append(t.Excerpt, l)
	}
}

// Via is the way by which the sender of a batch came.
type Via string

const (
	ViaSocket  Via = "socket"  // the unix socket of the server
	ViaAccount Via = "account" // the session of an account
	ViaToken   Via = "token"
)

// Batch has remarks that were sent together.
type Batch struct {
	ID  string      `json:"id"`
	By  gitd.Person `json:"by"`
	Who string      `json:"who"` // the subject of the sender
	// Via is how the sender came, whose rights are asked for again if another process says the prompt. Empty means that it is not known.
	Via Via `json:"via,omitempty"`
	// Token is the id of the sender's token, if it came with one.
	Token string    `json:"token,omitempty"`
	Time  time.Time `json:"time"`
	// Remarks are the ids of the remarks, in their order.
	Remarks []string `json:"remarks"`
	// Agent and Session are those that get the prompt. An empty Agent means that none does.
	Agent   string `json:"agent,omitempty"`
	Session string `json:"session,omitempty"`
	Note    string `json:"note,omitempty"` // words before the remarks
	// Run is the run that has the prompt, with the batch's id as its key. It is empty until the prompt was said.
	Run string `json:"run,omitempty"`
	// Refused is why the prompt cannot be said.
	Refused string `json:"refused,omitempty"`
}

// Waits reports whether the prompt of the batch must still be said.
func (b Batch) Waits() bool { return b.Agent != "" && b.Run == "" && b.Refused == "" }

// Review has everything that was said about the work of a caller in one repository.
type Review struct {
	Threads []Thread `json:"threads"` // the oldest first
	Batches []Batch  `json:"batches"` // the oldest first
}

// Thread returns a thread by its id, or nil. The pointer is into r.
func (r *Review) Thread(id string) *Thread {
	i := slices.IndexFunc(r.Threads, func(t Thread) bool { return t.ID == id })
	if i < 0 {
		return nil
	}
	return &r.Threads[i]
}

// Batch returns a batch by its id, or nil. The pointer is into r.
func (r *Review) Batch(id string) *Batch {
	i := slices.IndexFunc(r.Batches, func(b Batch) bool { return b.ID == id })
	if i < 0 {
		return nil
	}
	return &r.Batches[i]
}

// Of returns the thread that has a remark, or nil.
func (r *Review) Of(remark string) *Thread {
	i := slices.IndexFunc(r.Threads, func(t Thread) bool { return t.Remark(remark) != nil })
	if i < 0 {
		return nil
	}
	return &r.Threads[i]
}

// NewID returns an id that follows from parts.
func NewID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}
