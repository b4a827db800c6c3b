package chat

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// ForgeKeys keeps the tokens of people at forges. A person is an identity as [identity] returns it.
type ForgeKeys interface {
	// Invite returns a link to a page that takes a token of the person. An empty site is the only one.
	Invite(person, name, site string) (link string, err error)
	// Forget removes the person's tokens, and returns the names of their sites.
	Forget(person string) (sites []string, err error)
}

// identity returns the identity of a user, which the signature of Slack proves.
func identity(team, user string) string {
	if team == "" || user == "" {
		return ""
	}
	return "slack:" + team + ":" + user
}

// connect answers "/ramus connect" and "/ramus disconnect", which only their user sees.
func (c *Chat) connect(d slack.Command, words Words) string {
	person := identity(d.Team, d.User)
	if c.Keys == nil || person == "" {
		return "Nobody can store tokens of forges here."
	}
	if words.Verb == "disconnect" {
		sites, err := c.Keys.Forget(person)
		switch {
		case err != nil:
			c.Log.Error("cannot remove the tokens of a person", "person", person, "err", err)
			return "Your tokens cannot be removed at the moment; try again in a minute."
		case len(sites) == 0:
			return "There is no token of yours here."
		}
		return fmt.Sprintf("Your tokens of %s are removed. ramus opens your pull requests itself from now on.",
			strings.Join(sites, ", "))
	}
	site := ""
	if len(words.Args) > 0 {
		site = words.Args[0]
	}
	link, err := c.Keys.Invite(person, cmp.Or(c.People[d.User].Name, d.UserName, d.User), site)
	if err != nil {
		return render.InlineText(route.AsProblem(err, route.Who{}).Error(), 500)
	}
	return fmt.Sprintf("Store a token of your own, and ramus opens the pull requests that you ask for in your name: %s\n"+
		"The link is for you alone. It opens once, for ten minutes. `/ramus disconnect` removes the token.", link)
}
