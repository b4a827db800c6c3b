package slack

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/internal/pattern"
)

const (
	maxNames = 4096           // cached names; the least recently used one is dropped
	nameTime = 12 * time.Hour // lifetime of a cached name
	maxAsked = 100            // users of one thread that are asked for; others keep their ids
)

// names caches the names of users. The zero value is ready to use.
type names struct {
	mu    sync.Mutex // guards the fields below
	byID  map[string]*list.Element
	order list.List // keys of called, the most recently used first
}

type called struct {
	id, name string
	asked    time.Time
}

func (n *names) get(id string, now time.Time) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.byID[id]
	if e == nil || now.Sub(e.Value.(called).asked) > nameTime {
		return "", false
	}
	n.order.MoveToFront(e)
	return e.Value.(called).name, true
}

func (n *names) put(id, name string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byID == nil {
		n.byID = map[string]*list.Element{}
	}
	if e := n.byID[id]; e != nil {
		n.order.Remove(e)
	}
	n.byID[id] = n.order.PushFront(called{id, name, now})
	if n.order.Len() > maxNames {
		last := n.order.Back()
		n.order.Remove(last)
		delete(n.byID, last.Value.(called).id)
	}
}

// mentioned matches users in a text.
var mentioned = pattern.New(`<@([A-Za-z0-9]{1,64})[|>]`)

// resolve returns the names of the authors in a thread, and of the mentioned users. Users without a name keep their
// ids.
func (c *Client) resolve(ctx context.Context, parent *threadMessage, replies []*threadMessage) (map[string]string, error) {
	known := map[string]string{}
	asked := 0
	ask := func(id string) error {
		if _, done := known[id]; done || !isID(id) {
			return nil
		}
		name, ok := c.names.get(id, c.Now())
		if !ok {
			if asked == maxAsked {
				return nil
			}
			asked++
			var err error
			if name, err = c.name(ctx, id); err != nil {
				return err
			}
			c.names.put(id, name, c.Now())
		}
		known[id] = name
		return nil
	}
	// The bound leaves out the last users: first comes the starter of the thread, then the authors, the latest first,
	// then mentioned users.
	if err := ask(parent.User); err != nil {
		return nil, err
	}
	all := append([]*threadMessage{parent}, replies...)
	for _, m := range slices.Backward(all) {
		if err := ask(m.User); err != nil {
			return nil, err
		}
	}
	for _, said := range slices.Backward(all) {
		for _, m := range mentioned.FindAllStringSubmatch(said.Text, maxAsked) {
			if err := ask(m[1]); err != nil {
				return nil, err
			}
		}
	}
	return known, nil
}

// KnownName returns the name of a user if Slack returned it lately, or "". It sends no request.
func (c *Client) KnownName(id string) string {
	c.setup()
	if name, ok := c.names.get(id, c.Now()); ok && name != id {
		return name
	}
	return ""
}

// Name returns the name of a user. Returns "" if Slack does not return one, because the user is of another workspace or
// the token lacks the scope users:read.
func (c *Client) Name(ctx context.Context, id string) (string, error) {
	c.setup()
	if !isID(id) {
		return "", nil
	}
	name, ok := c.names.get(id, c.Now())
	if !ok {
		var err error
		if name, err = c.name(ctx, id); err != nil {
			return "", err
		}
		c.names.put(id, name, c.Now())
	}
	if name == id {
		return "", nil
	}
	return name, nil
}

// name returns the name in users.info. If there is none (a stranger of another workspace, no scope), it returns the id.
func (c *Client) name(ctx context.Context, id string) (string, error) {
	name := id
	err := c.call(ctx, "users.info", func(ctx context.Context) error {
		user, err := c.api.GetUserInfoContext(ctx, id)
		if err != nil {
			return err
		}
		name = cmp.Or(oneLine(user.Profile.DisplayName), oneLine(user.Profile.RealName), oneLine(user.RealName),
			oneLine(user.Name), id)
		return nil
	}, nil)
	if err != nil && ctx.Err() != nil {
		return "", err
	}
	return name, nil
}

// Email returns the address in the profile of a user. Returns "" if Slack does not return one, because the user has
// none, is of another workspace, or the token lacks the scope users:read.email. An address that no commit can have is
// none.
func (c *Client) Email(ctx context.Context, id string) (string, error) {
	c.setup()
	if !isID(id) {
		return "", nil
	}
	if mail, ok := c.mails.get(id, c.Now()); ok {
		return mail, nil
	}
	mail := ""
	err := c.call(ctx, "users.info", func(ctx context.Context) error {
		user, err := c.api.GetUserInfoContext(ctx, id)
		if err == nil && isEmail(user.Profile.Email) && !user.IsBot {
			mail = user.Profile.Email
		}
		return err
	}, nil)
	if err != nil && ctx.Err() != nil {
		return "", err
	}
	c.mails.put(id, mail, c.Now())
	return mail, nil
}

// maxEmail limits an address, in bytes.
const maxEmail = 254

// isEmail reports whether a text can be the address of a person in a commit.
func isEmail(s string) bool {
	name, host, ok := strings.Cut(s, "@")
	return ok && name != "" && strings.Contains(host, ".") && !strings.Contains(host, "@") && len(s) <= maxEmail &&
		utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(c rune) bool {
			return unicode.IsSpace(c) || unicode.IsControl(c) || strings.ContainsRune("<>,;:\"()[]", c)
		})
}

// oneLine returns a name that a person chose in a form that cannot look like another part of a transcript.
func oneLine(name string) string {
	words := strings.Fields(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, name))
	short := []rune(strings.Join(words, " "))
	return string(short[:min(len(short), 80)])
}
