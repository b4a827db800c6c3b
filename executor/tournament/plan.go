package tournament

import (
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of a plan.
const (
	MaxEntries = 12
	maxTask    = 256 << 10 // bytes
	maxChecks  = 10
	maxName    = 60 // bytes
)

// RunID is the id of the run with which each entry begins.
const RunID = "entry"

// Plan describes a tournament.
type Plan struct {
	Name string `json:"name"` // unique in the server
	Repo string `json:"repo"`
	Base string `json:"base"`
	// Of is the caller that the entries are forked from. Empty means that they begin at the base.
	Of   string    `json:"of,omitempty"`
	At   gitd.Hash `json:"at"` // the commit at which all entries begin
	Task string    `json:"task"`
	// Checks are tasks of the library that run after each entry, in addition to the checks of the repository.
	Checks  []string    `json:"checks,omitempty"`
	Entries []Entry     `json:"entries"`
	By      gitd.Person `json:"by"`
	Time    time.Time   `json:"time"`
}

// Entry is a caller of a tournament.
type Entry struct {
	Caller record.Caller `json:"caller"`
	Agent  string        `json:"agent"`
	// Refused is why the entry did not begin. Empty means that it began, or will.
	Refused string `json:"refused,omitempty"`
}

// SetEntries sets the entries: each of the agents n times, in turns. Returns [record.ErrInvalid] if the plan is out of
// bounds.
func (p *Plan) SetEntries(agents []string, n int) error {
	switch total := len(agents) * n; {
	case strings.TrimSpace(p.Task) == "":
		return fmt.Errorf("%w tournament: it has no task", record.ErrInvalid)
	case len(p.Task) > maxTask:
		return fmt.Errorf("%w tournament: its task has more than %d bytes", record.ErrInvalid, maxTask)
	case len(p.Checks) > maxChecks:
		return fmt.Errorf("%w tournament: it has more than %d checks", record.ErrInvalid, maxChecks)
	case len(p.Name) > maxName:
		return fmt.Errorf("%w tournament: its name has more than %d bytes", record.ErrInvalid, maxName)
	case n < 1 || len(agents) > MaxEntries || n > MaxEntries || total < 2 || total > MaxEntries:
		return fmt.Errorf("%w tournament: %d agents, %d times each; want 2 to %d entries", record.ErrInvalid, len(agents), n,
			MaxEntries)
	}
	p.Entries = nil
	for range n {
		for _, agent := range agents {
			c, err := record.RunCaller(fmt.Sprintf("%s-%d", p.Name, len(p.Entries)+1))
			if err != nil {
				return fmt.Errorf("%w tournament %.100q: a name has lower-case letters, digits and single hyphens",
					record.ErrInvalid, p.Name)
			}
			p.Entries = append(p.Entries, Entry{Caller: c, Agent: agent})
		}
	}
	return nil
}

// Entry returns the entry with a name: its number, its caller, or any other name of the caller.
func (p Plan) Entry(name string) (Entry, bool) {
	for i, e := range p.Entries {
		if e.Caller.Is(name) || name == fmt.Sprint(i+1) {
			return e, true
		}
	}
	return Entry{}, false
}

// Same reports whether two plans ask for the same work.
func (p Plan) Same(q Plan) bool {
	if p.Repo != q.Repo || p.Base != q.Base || p.Of != q.Of || p.Task != q.Task || len(p.Entries) != len(q.Entries) ||
		strings.Join(p.Checks, " ") != strings.Join(q.Checks, " ") {
		return false
	}
	for i, e := range p.Entries {
		if e.Caller != q.Entries[i].Caller || e.Agent != q.Entries[i].Agent {
			return false
		}
	}
	return true
}

// request returns the request of an entry's run.
func (p Plan) request(e Entry) record.Request {
	r := record.Request{Key: RunID, Caller: e.Caller, Repo: p.Repo, Base: p.Base, Asker: p.By,
		Agent: &record.AgentCall{Name: e.Agent, Prompt: p.Task, Checks: p.Checks}}
	if p.Of != "" {
		r.Fork = &record.Fork{Of: p.Of, Commit: p.At}
	} else {
		r.At = p.At
	}
	return r
}
