package chat

import (
	"context"
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// deedOf returns the deed of a command. Returns false if the command only reads.
func deedOf(verb string) (gate.Deed, bool) {
	switch verb {
	case "help", "status", "log", "diff", "why", "connect", "disconnect":
		return "", false
	case "merge":
		return gate.DeedMerge, true
	}
	return gate.DeedRun, true
}

// starterOf returns the person who counts as the starter of a thread. It returns "" for a thread that only the
// explicit prefix of a requester opened, because such a thread belongs to nobody else. ramus began the thread of a
// task, so there every user that the gate admits counts as the starter.
func (c *Chat) starterOf(d catalog.Decision, user, channel string) string {
	switch {
	case d.Reason == gate.ReasonExplicitPrefix:
		return ""
	case d.Reason == gate.ReasonGrant &&
		c.gate().Resolve(gate.Asked{ThreadStarter: user, Channel: channel}).Runner == gate.RunnerContainer:
		return user
	}
	return d.Starter
}

// refusal returns the text that tells a person why d is not permitted. Returns "" if d is permitted.
func (c *Chat) refusal(d gate.Doing) string {
	if c.gate().Permits(d) {
		return ""
	}
	what := map[gate.Deed]string{gate.DeedRun: "run something", gate.DeedMerge: "merge",
		gate.DeedApprove: "answer that question"}[d.Deed]
	where := "in this thread"
	if d.Repo != "" {
		where = fmt.Sprintf("in this thread, on the repository `%s`", render.NoTicks(d.Repo))
	}
	return fmt.Sprintf("You may not %s %s. Those may whom the server's configuration allows (`gate.people`); without an entry there, the person who began the thread, in its own repository. "+
		"`status`, `diff`, `log` and `why` are for everybody.", what, where)
}

// usableRepos returns the repositories that the author of m may use in the thread.
func (s *worker) usableRepos(ctx context.Context, d catalog.Decision, m slack.Mention) []string {
	return slices.DeleteFunc(s.chat.listRepos(ctx), func(repo string) bool {
		return !s.chat.gate().Permits(gate.Doing{Deed: gate.DeedRun, Person: m.User,
			Starter: s.chat.starterOf(d, m.User, m.Channel), Repo: repo})
	})
}

// permitRun returns the permission check of a planned run of a thread. A run that merges by itself needs a person who
// may merge.
func (s *worker) permitRun(d catalog.Decision, m slack.Mention, own bool) func(record.Run, string) error {
	return func(r record.Run, into string) error {
		for _, deed := range []gate.Deed{gate.DeedRun, gate.DeedMerge} {
			if deed == gate.DeedMerge && into == "" {
				continue
			}
			for _, repo := range r.Repos() {
				if why := s.chat.refusal(gate.Doing{Deed: deed, Person: m.User,
					Starter: s.chat.starterOf(d, m.User, m.Channel), Repo: repo, Own: own && repo == r.Repo}); why != "" {
					return route.NewProblem(route.KindDenied, "%s", why)
				}
			}
		}
		return nil
	}
}

// isOwnTeam reports whether a signed event comes from a workspace that ramus serves. Such a workspace is one of Teams
// or, if Teams is empty, the workspace of the app's token. The check is needed because Slack signs with the same
// secret for every workspace that an app is installed in. Returns an error if Slack does not return the workspace of
// the token now.
func (c *Chat) isOwnTeam(ctx context.Context, team string) (bool, error) {
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

// isForeign reports whether an event is known to come from another workspace, and logs such an event. It does not ask
// Slack. An event whose workspace cannot be checked yet is decided on later.
func (c *Chat) isForeign(team string) bool {
	if len(c.Teams) == 0 && c.me.Load() == nil {
		return false
	}
	ok, err := c.isOwnTeam(c.ctx, team)
	if ok || err != nil {
		return false
	}
	c.Log.Warn("an event of a workspace that is not configured is ignored", "team", team)
	return true
}
