package chat

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
)

// showHome publishes a person's Home tab in the background, after those that were asked for before. mistake tells why the last choice was not
// accepted.
func (c *Chat) showHome(team, user, mistake string) {
	turn := c.homes.next(team + "/" + user)
	c.background(func(ctx context.Context) {
		turn.publish(func() { c.publishHome(ctx, team, user, mistake) })
	})
}

func (c *Chat) publishHome(ctx context.Context, team, user, mistake string) {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	p := c.preferences(ctx, team, user)
	home := render.Home{Repos: c.reposOf(ctx, user), Agents: c.Executor.AgentNames(), Repo: p.Repo, Base: p.Base,
		Agent: p.Agent, Notice: string(p.Notify), Mistake: mistake,
		Notify: []render.HomeOption{{Value: string(NotifyNeeded), Text: "for questions and failures"},
			{Value: string(NotifyAlways), Text: "always"}, {Value: string(NotifyNever), Text: "never"}}}
	if err := c.Slack.PublishHome(ctx, user, home.Blocks()); err != nil && c.ctx.Err() == nil {
		c.Log.Warn("cannot show a Home tab", "user", user, "err", err)
	}
}

// reposOf returns the repositories in which a person may run something in a thread of their own.
func (c *Chat) reposOf(ctx context.Context, user string) []string {
	return slices.DeleteFunc(c.listRepos(ctx), func(repo string) bool {
		return !c.gate().Permits(gate.Doing{Deed: gate.DeedRun, Person: user, Starter: user, Repo: repo})
	})
}

// changeHome keeps a choice in the Home tab. It is durable when changeHome returns.
func (c *Chat) changeHome(ctx context.Context, a slack.Action) error {
	value := strings.TrimSpace(a.Value)
	if value == render.HomeDefault {
		value = ""
	}
	mistake := c.checkChoice(ctx, a, value)
	if mistake == "" {
		_, err := c.changePreferences(ctx, a.Team, a.User, func(p *Preferences) {
			switch a.ID {
			case render.ActionHomeRepo:
				if p.Repo != value {
					p.Repo, p.Base = value, ""
				}
			case render.ActionHomeBase:
				p.Base = value
			case render.ActionHomeAgent:
				p.Agent = value
			case render.ActionHomeNotify:
				p.Notify = Notify(value)
			}
		})
		if err != nil {
			return err
		}
	}
	c.showHome(a.Team, a.User, mistake)
	return nil
}

// checkChoice returns the reason why a choice is not accepted. Returns "" if it is.
func (c *Chat) checkChoice(ctx context.Context, a slack.Action, value string) string {
	switch a.ID {
	case render.ActionHomeRepo:
		if value != "" && !slices.Contains(c.reposOf(ctx, a.User), value) {
			return "You may not use that repository."
		}
	case render.ActionHomeBase:
		switch {
		case value == "":
		case gitd.CheckRef("refs/heads/"+value) != nil || utf8.RuneCountInString(value) > render.HomeBaseMax:
			return fmt.Sprintf("%q cannot be a branch.", value)
		case lookup.IsCallerBranch(value):
			return fmt.Sprintf("%s is a branch that callers work on, and no base.", value)
		}
	case render.ActionHomeAgent:
		if value != "" && !slices.Contains(c.Executor.AgentNames(), value) {
			return "There is no such agent."
		}
	case render.ActionHomeNotify:
		if !slices.Contains([]Notify{"", NotifyNeeded, NotifyAlways, NotifyNever}, Notify(value)) {
			return "There is no such choice."
		}
	default:
		return "There is no such setting."
	}
	return ""
}
