package gateway

import (
	"context"
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// Deed is what a person does in a thread, apart from reading.
type Deed string

// The deeds. Reading (status, diff, log, why, help) is none: everybody in the thread may.
const (
	DeedRun     Deed = "run"     // begin, retry and stop runs, and speak to agents
	DeedMerge   Deed = "merge"   // merge the thread's branch
	DeedApprove Deed = "approve" // approve and reject what a workflow asks
)

// Deeds lists all deeds.
func Deeds() []Deed { return []Deed{DeedRun, DeedMerge, DeedApprove} }

// Permission is what a person may do.
type Permission struct {
	May   []Deed
	Repos []string // empty: in every repository
}

// The names of people in [Gate.People] that are no ids.
const (
	PersonStarter = "starter" // who began the thread
	PersonAnybody = "*"
)

// Doing is what [Gate.Permits] decides about.
type Doing struct {
	Deed    Deed
	Person  string // the user's id
	Starter string // who began the thread; empty: nobody who counts
	Repo    string
	// Own: the repository is the thread's own, not one that a text names.
	Own bool
}

// Permits decides whether a person may do something in a thread that the gate lets
// through. It is a pure function. Without Gate.People the people of ThreadStarters and
// Requesters may do everything, and whoever began the thread may do everything in
// the thread's own repository, and in those of Gate.Repos. With Gate.People its entries alone decide.
func (g Gate) Permits(d Doing) bool {
	if d.Person == "" {
		return false
	}
	starter := d.Person == d.Starter
	if len(g.People) == 0 {
		return listed(g.ThreadStarters, d.Person) || listed(g.Requesters, d.Person) ||
			starter && (d.Own || listed(g.Repos, d.Repo))
	}
	for name, p := range g.People {
		is := name == d.Person || name == PersonAnybody || name == PersonStarter && starter
		if is && slices.Contains(p.May, d.Deed) && (len(p.Repos) == 0 || slices.Contains(p.Repos, d.Repo)) {
			return true
		}
	}
	return false
}

// deedOf is what the words of a mention do; false: they only read.
func deedOf(verb string) (Deed, bool) {
	switch verb {
	case "help", "status", "log", "diff", "why":
		return "", false
	case "merge":
		return DeedMerge, true
	}
	return DeedRun, true
}

// starterOf is the person who counts as a thread's starter. A thread that is open by the
// prefix of a requester alone is nobody else's. The thread of a task was begun by ramus:
// there whoever the gate would let through counts.
func (c *Chat) starterOf(d decided, user, channel string) string {
	switch {
	case d.Reason == ReasonExplicitPrefix:
		return ""
	case d.Reason == ReasonGrant && c.Gate.Resolve(Asked{ThreadStarter: user, Channel: channel}).Runner == RunnerContainer:
		return user
	}
	return d.Starter
}

// refuse says why a person may not do something, for the person to read; "" if the person may.
func (c *Chat) refuse(d Doing) string {
	if c.Gate.Permits(d) {
		return ""
	}
	what := map[Deed]string{DeedRun: "run something", DeedMerge: "merge", DeedApprove: "answer that question"}[d.Deed]
	where := "in this thread"
	if d.Repo != "" {
		where = fmt.Sprintf("in this thread, on the repository `%s`", noTicks(d.Repo))
	}
	return fmt.Sprintf("You may not %s %s. Those may whom the server's configuration allows (`gate.people`); without an entry there, the person who began the thread, in its own repository. "+
		"`status`, `diff`, `log` and `why` are for everybody.", what, where)
}

// usable lists the repositories that a person may use in a thread.
func (s *session) usable(ctx context.Context, d decided, m slack.Mention) []string {
	return slices.DeleteFunc(s.repos(ctx), func(repo string) bool {
		return !s.Gate.Permits(Doing{Deed: DeedRun, Person: m.User, Starter: s.starterOf(d, m.User, m.Channel), Repo: repo})
	})
}

// permit is asked before a run of a thread begins: one that merges by itself needs a person who may merge.
func (s *session) permit(d decided, m slack.Mention, own bool) func(record.Run, string) error {
	return func(r record.Run, into string) error {
		for _, deed := range []Deed{DeedRun, DeedMerge} {
			if deed == DeedMerge && into == "" {
				continue
			}
			if why := s.refuse(Doing{Deed: deed, Person: m.User, Starter: s.starterOf(d, m.User, m.Channel), Repo: r.Repo, Own: own}); why != "" {
				return problem(KindDenied, "%s", why)
			}
		}
		return nil
	}
}

// ours tells whether something that Slack signed is of a workspace that ramus works for:
// one of Teams or, without any, the workspace of the app's token. Slack signs with the same
// secret for every workspace that an app is installed in. The error means that Slack
// does not say at the moment to which workspace the token belongs.
func (c *Chat) ours(ctx context.Context, team string) (bool, error) {
	if len(c.Teams) > 0 {
		return slices.Contains(c.Teams, team), nil
	}
	me := c.me.Load()
	if me == nil {
		asked, err := c.Slack.Me(ctx)
		if err != nil {
			return false, err
		}
		me = &asked
	}
	return team == me.Team, nil
}

// foreign tells whether something is known to be of a workspace that ramus does not work
// for, and logs it. It asks nobody: what cannot be told yet is decided on later.
func (c *Chat) foreign(team string) bool {
	if len(c.Teams) == 0 && c.me.Load() == nil {
		return false
	}
	ok, err := c.ours(c.ctx, team)
	if ok || err != nil {
		return false
	}
	c.Log.Warn("an event of a workspace that is not configured is ignored", "team", team)
	return true
}
