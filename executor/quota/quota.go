// Package quota bounds the work of one person and of one repository.
//
// # Nouns
//
// A [Rule] bounds callers and runs at once, runs that wait, and the cost of a day. [Rules] has the rules of everybody
// and of every repository, and exceptions by name. A [Use] is the work of one of them now. A [Book] admits new runs.
//
// # Invariants
//
// [Rules.Check] is a pure function. A Book counts a run from its admission on, so runs that begin at the same time cannot
// exceed a rule together. A run that was admitted is never ended for a rule.
package quota

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// ErrLimited means that a rule does not admit a run now.
var ErrLimited = errors.New("limit reached")

// Day is the time over which costs are added up.
const Day = 24 * time.Hour

// soon is the time after which a place may have become free.
const soon = 30 * time.Second

// Rule bounds the work of one person or repository. Fields that are zero bound nothing.
type Rule struct {
	Callers int `json:"callers,omitempty"` // with a run that has not ended
	Runs    int `json:"runs,omitempty"`    // that have not ended, and do not wait for a person
	Queue   int `json:"queue,omitempty"`   // of these, the runs that wait for a container
	Agents  int `json:"agents,omitempty"`  // of these, the turns of agents
	// Terminals are those whose program runs. They count for no other bound but Callers.
	Terminals int `json:"terminals,omitempty"`
	// CostMicros is the cost of models in the last 24 hours, in millionths of the prices' currency unit.
	CostMicros int64 `json:"cost_micros,omitempty"`
}

// IsZero reports whether the rule bounds nothing.
func (r Rule) IsZero() bool { return r == Rule{} }

// Rules are the rules of a server. The zero value bounds nothing.
type Rules struct {
	// Person and Repo bound every person and every repository. People and Repos replace them for some, by the address
	// of a person or the name of a repository.
	Person, Repo  Rule
	People, Repos map[string]Rule
}

// IsZero reports whether the rules bound nothing.
func (r Rules) IsZero() bool {
	return r.Person.IsZero() && r.Repo.IsZero() && len(r.People) == 0 && len(r.Repos) == 0
}

// OfPerson returns the rule of a person.
func (r Rules) OfPerson(name string) Rule { return ruleOf(r.People, r.Person, name) }

// OfRepo returns the rule of a repository.
func (r Rules) OfRepo(name string) Rule { return ruleOf(r.Repos, r.Repo, name) }

func ruleOf(exceptions map[string]Rule, usual Rule, name string) Rule {
	if rule, ok := exceptions[name]; ok {
		return rule
	}
	return usual
}

// Person returns the name under which a run counts for its asker. Runs that nobody asked for count for nobody.
func Person(r record.Run) string {
	if r.Asker.Email != "" {
		return r.Asker.Email
	}
	return r.Asker.Name
}

// Use is the work of one person or repository.
type Use struct {
	Kind string `json:"kind"` // KindPerson or KindRepo
	Name string `json:"name"`
	Rule Rule   `json:"rule"`
	// Callers, Runs, Queue, Agents, Terminals and CostMicros are the numbers that the rule bounds.
	Callers    int   `json:"callers"`
	Runs       int   `json:"runs"`
	Queue      int   `json:"queue"`
	Agents     int   `json:"agents"`
	Terminals  int   `json:"terminals"`
	CostMicros int64 `json:"cost_micros"`

	callers map[record.Caller]bool
	oldest  time.Time // the end of the oldest run of the last 24 hours with a cost
}

// The kinds of a Use.
const (
	KindPerson = "person"
	KindRepo   = "repository"
)

// Error is the refusal of a run.
type Error struct {
	Kind, Name string        // of the Use
	What       string        // that is used up, in words
	After      time.Duration // when to try again
}

func (e *Error) Error() string {
	who := "repository " + e.Name
	if e.Kind == KindPerson {
		who = e.Name
	}
	return fmt.Sprintf("%s has %s: try again in %v", who, e.What, e.After.Round(time.Second))
}

// Is makes errors.Is find ErrLimited.
func (e *Error) Is(target error) bool { return target == ErrLimited }

// add counts a run for a use. now is the present.
func (u *Use) add(r record.Run, now time.Time) {
	if cost := r.Usage; cost != nil && cost.CostMicros > 0 && (!r.Ended() || now.Sub(r.EndedAt) < Day) {
		u.CostMicros += cost.CostMicros
		if r.Ended() && (u.oldest.IsZero() || r.EndedAt.Before(u.oldest)) {
			u.oldest = r.EndedAt
		}
	}
	if r.Ended() || r.Aside() {
		return
	}
	if u.callers == nil {
		u.callers = make(map[record.Caller]bool)
	}
	if !u.callers[r.Caller] {
		u.callers[r.Caller] = true
		u.Callers++
	}
	if r.Kind == record.KindTerminal {
		u.Terminals++
		return
	}
	if r.State == record.StateAwaitingReview {
		return
	}
	u.Runs++
	if r.Kind == record.KindAgent {
		u.Agents++
	}
	if r.Place > 0 {
		u.Queue++
	}
}

// check returns why a run of a caller is not admitted. Returns nil if it is.
func (u *Use) check(r record.Run, now time.Time) error {
	refuse := func(after time.Duration, format string, args ...any) error {
		return &Error{u.Kind, u.Name, fmt.Sprintf(format, args...), after}
	}
	switch rule := u.Rule; {
	case rule.Callers > 0 && u.Callers >= rule.Callers && !u.callers[r.Caller]:
		return refuse(soon, "%d callers at work, and %d may be", u.Callers, rule.Callers)
	case r.Kind == record.KindTerminal:
		if rule.Terminals > 0 && u.Terminals >= rule.Terminals {
			return refuse(soon, "%d terminals open, and %d may be: close one", u.Terminals, rule.Terminals)
		}
	case rule.Agents > 0 && r.Kind == record.KindAgent && u.Agents >= rule.Agents:
		return refuse(soon, "%d agents at work, and %d may be", u.Agents, rule.Agents)
	case rule.Runs > 0 && u.Runs >= rule.Runs:
		return refuse(soon, "%d runs at work, and %d may be", u.Runs, rule.Runs)
	case rule.Queue > 0 && u.Queue >= rule.Queue:
		return refuse(soon, "%d runs that wait for a container, and %d may", u.Queue, rule.Queue)
	case rule.CostMicros > 0 && u.CostMicros >= rule.CostMicros:
		after := soon
		if !u.oldest.IsZero() {
			after = max(soon, u.oldest.Add(Day).Sub(now))
		}
		return refuse(after, "used models for %s in 24 hours, and %s may be used", units(u.CostMicros),
			units(rule.CostMicros))
	}
	return nil
}

// units returns an amount in the prices' currency unit.
func units(micros int64) string { return fmt.Sprintf("%.2f", float64(micros)/1e6) }

// Book admits runs. Its zero value is ready. Methods are safe for concurrent use.
type Book struct {
	mu       sync.Mutex
	admitted map[*record.Run]struct{} // runs that were admitted and are not known elsewhere yet
}

// Admit checks a new run against the rules. runs returns the runs of the last day and all that have not ended. The
// admitted run counts until release is called. By then runs must return it.
func (b *Book) Admit(rules Rules, r record.Run, now time.Time, runs func() []record.Run) (release func(), err error) {
	if rules.IsZero() || r.Aside() {
		return func() {}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []record.Run // those that were admitted first, because a claim has the same name as its run
	for other := range b.admitted {
		all = append(all, *other)
	}
	all = append(all, runs()...)
	person := Use{Kind: KindPerson, Name: Person(r), Rule: rules.OfPerson(Person(r))}
	repo := Use{Kind: KindRepo, Name: r.Repo, Rule: rules.OfRepo(r.Repo)}
	seen := make(map[string]bool, len(all))
	for _, other := range all {
		if seen[other.Name()] {
			continue
		}
		seen[other.Name()] = true
		if Person(other) == person.Name {
			person.add(other, now)
		}
		if other.Repo == r.Repo {
			repo.add(other, now)
		}
	}
	if person.Name != "" {
		if err := person.check(r, now); err != nil {
			return nil, err
		}
	}
	if err := repo.check(r, now); err != nil {
		return nil, err
	}
	if b.admitted == nil {
		b.admitted = make(map[*record.Run]struct{})
	}
	key := &r
	b.admitted[key] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.admitted, key)
	}, nil
}

// Uses returns the use of everybody and of every repository that work now or have a cost in the last day.
func Uses(rules Rules, runs []record.Run, now time.Time) []Use {
	type key struct{ kind, name string }
	at := make(map[key]*Use)
	var order []key
	add := func(k key, rule Rule, r record.Run) {
		u := at[k]
		if u == nil {
			u = &Use{Kind: k.kind, Name: k.name, Rule: rule}
			at[k] = u
			order = append(order, k)
		}
		u.add(r, now)
	}
	for _, r := range runs {
		if p := Person(r); p != "" {
			add(key{KindPerson, p}, rules.OfPerson(p), r)
		}
		add(key{KindRepo, r.Repo}, rules.OfRepo(r.Repo), r)
	}
	list := []Use{}
	for _, k := range order {
		if u := at[k]; u.Callers+u.Runs+u.Terminals > 0 || u.CostMicros > 0 {
			list = append(list, *u)
		}
	}
	return list
}
