package signin

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/session"
)

const (
	// askEvery is how often GitHub is asked again whether somebody is a member of an organization, askSoon after GitHub
	// did not answer.
	askEvery, askSoon = 15 * time.Minute, time.Minute
	// askWithin is how long a page waits for the answer.
	askWithin = 5 * time.Second
	// unasked is how long a session goes on while GitHub does not answer.
	unasked = time.Hour
	// maxMemberships bounds the sessions that are kept in memory.
	maxMemberships = 20_000
)

// memberships are the sessions that depend on an organization, with the tokens that GitHub answers to. They are only
// in memory. After a restart, the session's own note has the token.
type memberships struct {
	mu  sync.Mutex // guards all and the fields of its elements
	all map[string]*membership
}

type membership struct {
	token    []byte
	answered time.Time // GitHub's last answer
	next     time.Time // when to ask again
}

// asked notes a token and that GitHub has answered just now. A nil token is none.
func (m *memberships) asked(session string, token []byte, now time.Time) {
	if token == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[string]*membership{}
	}
	if len(m.all) >= maxMemberships { // sessions that ended by themselves; the others bring their tokens again
		clear(m.all)
	}
	m.all[session] = &membership{token: token, answered: now, next: now.Add(askEvery)}
}

// due returns the token to ask with if it is time to. Only one caller gets it.
func (m *memberships) due(session string, note []byte, now time.Time) (token string, answered time.Time, due bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.all[session]
	if one == nil {
		if note == nil {
			return "", now, false
		}
		if m.all == nil {
			m.all = map[string]*membership{}
		}
		one = &membership{token: note, answered: now} // nobody knows since when GitHub was not asked
		m.all[session] = one
	}
	if now.Before(one.next) {
		return "", one.answered, false
	}
	one.next = now.Add(askSoon)
	return string(one.token), one.answered, true
}

// forget drops the session and returns its token, which is "" if there is none.
func (m *memberships) forget(session string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.all[session]
	delete(m.all, session)
	if one == nil {
		return ""
	}
	return string(one.token)
}

// askAgain asks GitHub about the organizations of the person of a session, when it is time to. The session ends if the
// person is no longer let in, if GitHub no longer takes the token, or if GitHub has not answered for an hour.
func (p *People) askAgain(ctx context.Context, s session.Session, note []byte) error {
	token, answered, due := p.checks.due(s.ID, note, p.Now())
	if !due || p.github == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askWithin)
	defer cancel()
	u, err := p.github.Client.Ask(ctx, token)
	if err == nil {
		if identify(u).ID() != s.Account {
			err = forge.ErrRefused
		} else if _, err = p.Accounts.SignIn(ctx, identify(u)); err == nil {
			p.checks.asked(s.ID, []byte(token), p.Now())
			return nil
		}
	}
	lasting := errors.Is(err, forge.ErrRefused) || errors.Is(err, forge.ErrNotFound) ||
		errors.Is(err, account.ErrNoRole) || errors.Is(err, account.ErrTaken)
	if !lasting && p.Now().Sub(answered) < unasked {
		p.Log.Warn("cannot ask GitHub again about a person", "account", s.Account, "err", err)
		return nil
	}
	p.Log.Info("a session ends, because GitHub does not confirm the person", "account", s.Account, "err", err)
	p.checks.forget(s.ID)
	if errors.Is(err, account.ErrNoRole) { // the person left the organization, so every session ends
		_, err := p.Sessions.EndAll(s.Account, "")
		return err
	}
	if err := p.Sessions.End(s.ID, ""); !errors.Is(err, session.ErrNone) {
		return err
	}
	return nil
}

// forgetSession drops the checks of a session that a person ended, and revokes its token at GitHub.
func (p *People) forgetSession(ctx context.Context, id string) {
	if token := p.checks.forget(id); token != "" && p.github != nil {
		p.github.Client.Revoke(ctx, token)
	}
}
