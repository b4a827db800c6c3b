package forgekey

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gateway/forge"
)

// Site is a forge at which people may have tokens of their own.
type Site struct {
	Name  string      // "gitea"
	URL   string      // for people
	Forge forge.Forge // with the access of ramus
	// With returns the forge with the access of a token.
	With func(token string) forge.Forge
	// Scopes are the least scopes of a token, as the forge names them.
	Scopes string
}

// secretName returns the name of the secret of a person's token.
func (s *Site) secretName() string { return strings.ToUpper(s.Name) + "_TOKEN" }

// Keys has the tokens of people. Its exported fields are its options and may be changed until the first call. Methods
// are safe for concurrent use.
type Keys struct {
	Store *secret.Store
	Sites []Site
	// URL is where people reach this server. Without it there are no invitations.
	URL string
	Log *slog.Logger
	Now func() time.Time

	asking chan struct{} // limits how many forges are asked at once
	once   sync.Once

	mu      sync.Mutex // guards the field below
	invited map[[sha256.Size]byte]invitation
}

// invitation is an open invitation of a person, by the hash of its ticket.
type invitation struct {
	person, name string
	site         *Site
	until        time.Time
	asked        bool // its token is being tried
}

const (
	invitationLife = 10 * time.Minute
	maxInvited     = 1000
	// askWithin bounds the wait for a forge.
	askWithin = 20 * time.Second
	maxAsking = 8
	maxToken  = 1000
)

func (k *Keys) setUp() {
	k.once.Do(func() {
		k.asking = make(chan struct{}, maxAsking)
		k.invited = make(map[[sha256.Size]byte]invitation)
		if k.Log == nil {
			k.Log = slog.New(slog.DiscardHandler)
		}
		if k.Now == nil {
			k.Now = time.Now
		}
	})
}

// Invite returns a link for a person to a page that takes a token. It is for that person alone. name is how other people
// know the person. An empty site is the only one. A person has one invitation at a time.
func (k *Keys) Invite(person, name, site string) (link string, err error) {
	k.setUp()
	at, err := k.site(site)
	if err != nil {
		return "", err
	}
	if k.URL == "" {
		return "", fmt.Errorf("%w: the server's configuration has no `url`, which links begin with", record.ErrInvalid)
	}
	ticket := rand.Text()
	now := k.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, i := range k.invited {
		if i.person == person && !i.asked || !now.Before(i.until) {
			delete(k.invited, key)
		}
	}
	if len(k.invited) >= maxInvited {
		return "", fmt.Errorf("%w: too many invitations are open; try again in %v", record.ErrConflict, invitationLife)
	}
	k.invited[hashed(ticket)] = invitation{person: person, name: name, site: at, until: now.Add(invitationLife)}
	return strings.TrimSuffix(k.URL, "/") + connectPath + "?" + url.Values{"ticket": {ticket}}.Encode(), nil
}

func hashed(ticket string) [sha256.Size]byte { return sha256.Sum256([]byte(ticket)) }

// site returns a site by its name.
func (k *Keys) site(name string) (*Site, error) {
	var names []string
	for i := range k.Sites {
		if k.Sites[i].Name == name || name == "" && len(k.Sites) == 1 {
			return &k.Sites[i], nil
		}
		names = append(names, k.Sites[i].Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: no forge is configured", record.ErrInvalid)
	}
	return nil, fmt.Errorf("%w: say which forge is meant: %s", record.ErrInvalid, strings.Join(names, ", "))
}

// find returns an open invitation. claim has it belong to the caller until [Keys.settle].
func (k *Keys) find(ticket string, claim bool) (invitation, bool) {
	k.setUp()
	k.mu.Lock()
	defer k.mu.Unlock()
	key := hashed(ticket)
	i, ok := k.invited[key]
	if !ok || i.asked || !k.Now().Before(i.until) {
		return invitation{}, false
	}
	if claim {
		i.asked = true
		k.invited[key] = i
	}
	return i, true
}

// settle ends an invitation, or opens it again if no token was stored.
func (k *Keys) settle(ticket string, stored bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := hashed(ticket)
	i, ok := k.invited[key]
	if !ok {
		return
	}
	if stored {
		delete(k.invited, key)
		return
	}
	i.asked = false
	k.invited[key] = i
}

// Forge returns a site with the access of a person's token. Returns false if the person has none there.
func (k *Keys) Forge(ctx context.Context, at forge.Forge, person string) (forge.Forge, bool) {
	k.setUp()
	n := slices.IndexFunc(k.Sites, func(s Site) bool { return s.Forge == at })
	if n < 0 || person == "" {
		return nil, false
	}
	s := &k.Sites[n]
	token, err := k.Store.Personal(ctx, s.secretName(), person, s.Name)
	if err != nil {
		if !errors.Is(err, record.ErrNotFound) {
			k.Log.Error("cannot read the token of a person", "person", person, "site", s.Name, "err", err)
		}
		return nil, false
	}
	return s.With(token), true
}

// Forget removes all tokens of a person, and returns the names of their sites.
func (k *Keys) Forget(person string) (sites []string, err error) {
	for _, s := range k.Sites {
		switch err := k.Store.RemovePersonal(s.secretName(), person); {
		case err == nil:
			sites = append(sites, s.Name)
		case !errors.Is(err, record.ErrNotFound):
			return sites, err
		}
	}
	return sites, nil
}

// keep tries a token at its site and stores it. It returns the login of its owner there.
func (k *Keys) keep(ctx context.Context, i invitation, token string) (login string, err error) {
	select {
	case k.asking <- struct{}{}:
		defer func() { <-k.asking }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	// Only a token that the forge accepts is removed from texts, because somebody could send usual words.
	if login, err = i.site.With(token).Me(ctx); err != nil {
		return "", err
	}
	x := secret.Secret{Name: i.site.secretName(), Owner: secret.OfPerson(i.person), Type: secret.TypeForge,
		Agent: i.site.Name, By: i.site.Name + ":" + login}
	if _, err := k.Store.Put([]secret.Secret{x}, []string{token}); err != nil {
		return "", err
	}
	k.Log.Info("a person stored a token of a forge", "person", i.person, "site", i.site.Name, "login", login)
	return login, nil
}
