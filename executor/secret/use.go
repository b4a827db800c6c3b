package secret

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/sealed"
	"github.com/ramus-dev/ramus/internal/redact"
)

// User is the run that uses a secret. Empty fields have no secrets.
type User struct {
	Repo   string
	Person string // stable id of the person that the work is for now
	Run    string // CALLER/RUN
}

// owners returns the owners whose secrets the user has. The first one that has a secret counts.
func (u User) owners() []Owner {
	var list []Owner
	if u.Run != "" {
		list = append(list, OfRun(u.Run))
	}
	if u.Person != "" {
		list = append(list, OfPerson(u.Person))
	}
	if u.Repo != "" {
		list = append(list, OfRepo(u.Repo))
	}
	return append(list, OfServer)
}

// Use is the use of a secret by a run.
type Use struct {
	Time time.Time `json:"time"`
	Run  string    `json:"run,omitempty"` // CALLER/RUN
	By   string    `json:"by,omitempty"`  // id of the person that the run works for
	To   string    `json:"to"`            // the host or the model API that got the value
}

// Audit keeps a record of uses. An error refuses the use.
type Audit interface {
	Used(ctx context.Context, x Secret, u Use) error
}

// usesKept is the number of uses that are remembered for each secret.
const usesKept = 20

// note remembers a use, and passes the first one of each run and destination to Audit. mu is not held.
func (s *Store) note(ctx context.Context, x Secret, u User, to string) error {
	now := Use{Time: s.Now().UTC(), Run: u.Run, By: u.Person, To: to}
	s.mu.Lock()
	list := s.uses[x.ID]
	i := slices.IndexFunc(list, func(o Use) bool { return o.Run == now.Run && o.By == now.By && o.To == now.To })
	audit := s.Audit
	s.mu.Unlock()
	if i < 0 && audit != nil {
		x.Uses = nil
		if err := audit.Used(ctx, x, now); err != nil {
			return fmt.Errorf("cannot use the secret %s: its use cannot be recorded: %w", x.Name, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list = slices.DeleteFunc(s.uses[x.ID], func(o Use) bool { return o.Run == now.Run && o.By == now.By && o.To == now.To })
	s.uses[x.ID] = slices.Insert(list, 0, now)[:min(len(list)+1, usesKept)]
	return nil
}

// find returns the secret that a user has by a name.
func (s *Store) find(name string, u User) (Secret, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, owner := range u.owners() {
		if i := s.index(owner, name); i >= 0 && s.list[i].Type == TypeSecret {
			return s.list[i], true
		}
	}
	return Secret{}, false
}

// Describe returns the secret that a user has by a name. Returns false if it has none.
func (s *Store) Describe(name string, u User) (Secret, bool) { return s.find(name, u) }

// Value returns the value of a secret for a user, to be sent to a host (NAME, or NAME:PORT if the port is not 443). An
// empty host means that the server's own configuration names the secret, which needs no host. The value is removed
// from all that the server keeps from then on. The error is [record.ErrNotFound] if the user has no such secret,
// [record.ErrInvalid] if it is not for the host, and [record.ErrDamaged] if its file was changed.
func (s *Store) Value(ctx context.Context, name string, u User, host string) (string, error) {
	if host == "" {
		u.Person, u.Run = "", "" // their secrets go to no host that they do not name
	}
	x, ok := s.find(name, u)
	if !ok {
		return "", fmt.Errorf("secret %.100s: %w; `ramus secret set` stores it", name, record.ErrNotFound)
	}
	if host != "" && x.Problem == "" && !slices.Contains(x.Hosts, host) {
		return "", fmt.Errorf("secret %s: %w: it is not for %s; `ramus secret set --host` names its hosts", name,
			record.ErrInvalid, host)
	}
	value, err := s.open(ctx, x)
	if err != nil {
		return "", err
	}
	to := host
	if to == "" {
		to = "a host of the server's configuration"
	}
	return value, s.note(ctx, x, u, to)
}

// open returns the value of a secret.
func (s *Store) open(ctx context.Context, x Secret) (string, error) {
	if x.Problem != "" {
		return "", fmt.Errorf("cannot use the secret %s: %w: %s", x.Name, record.ErrDamaged, x.Problem)
	}
	s.mu.Lock()
	_, c, err := s.read(x)
	s.mu.Unlock()
	switch {
	case errors.Is(err, sealed.ErrDamaged):
		return "", fmt.Errorf("%w: %w", record.ErrDamaged, err)
	case err != nil:
		return "", err
	case c.Reference == "":
		return c.Value, nil
	}
	value, err := s.References.Read(ctx, c.Reference)
	if err == nil && len(value) < redact.MinLength {
		err = fmt.Errorf("its value has fewer than %d characters", redact.MinLength)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the secret %s: %w", x.Name, err)
	}
	s.learn(x.Name, value)
	return value, nil
}

// Personal returns the value of a person's token of a forge, for the server's own use. to is the purpose. The error is
// [record.ErrNotFound] if the person has none of the name.
func (s *Store) Personal(ctx context.Context, name, person, to string) (string, error) {
	x, err := s.Find(OfPerson(person), name)
	if err == nil && x.Type != TypeForge || person == "" {
		err = fmt.Errorf("secret %.100s of %.100s: %w", name, person, record.ErrNotFound)
	}
	if err != nil {
		return "", err
	}
	value, err := s.open(ctx, x)
	if err != nil {
		return "", err
	}
	return value, s.note(ctx, x, User{Person: person}, to)
}

// Cloud returns the value of a person's token of a cloud, for the server's own use. The error is [record.ErrNotFound] if
// the person has none. Of several the active one counts, and then the first by name.
func (s *Store) Cloud(ctx context.Context, cloud, person, to string) (string, error) {
	var found *Secret
	for _, x := range s.List(func(o Owner) bool { return person != "" && o == OfPerson(person) }) {
		if x.Type == TypeCloud && x.Agent == cloud && (found == nil || x.Active && !found.Active) {
			found = &x
		}
	}
	if found == nil {
		return "", fmt.Errorf("%.100s has no credential of the type %s for %s: %w", person, TypeCloud, cloud, record.ErrNotFound)
	}
	value, err := s.open(ctx, *found)
	if err != nil {
		return "", err
	}
	return value, s.note(ctx, *found, User{Person: person}, to)
}

// RemovePersonal removes a person's token of a forge. The error is [record.ErrNotFound] if there is none.
func (s *Store) RemovePersonal(name, person string) error {
	x, err := s.Find(OfPerson(person), name)
	if err == nil && x.Type != TypeForge || person == "" {
		err = fmt.Errorf("secret %.100s of %.100s: %w", name, person, record.ErrNotFound)
	}
	if err != nil {
		return err
	}
	return s.Remove(x.ID)
}

// Verify opens a secret and returns an error if its value cannot be used.
func (s *Store) Verify(ctx context.Context, id string) (Secret, string, error) {
	x, err := s.Get(id)
	if err != nil {
		return x, "", err
	}
	value, err := s.open(ctx, x)
	return x, value, err
}

// AgentKey is an opened credential for a model API.
type AgentKey struct {
	Secret
	Value string
}

// AgentKey returns the active credential that a user has for a model API ("anthropic", "openai", "gemini"): the
// person's own, or else the repository's, or else the server's. ok is false if the user has none.
func (s *Store) AgentKey(ctx context.Context, provider string, u User) (key AgentKey, ok bool, err error) {
	x, ok := s.findAgentKey(provider, u)
	if !ok {
		return key, false, nil
	}
	key.Secret = x
	if key.Value, err = s.open(ctx, x); err != nil {
		return key, true, err
	}
	return key, true, s.note(ctx, x, u, provider)
}

// findAgentKey returns the active credential of the first owner that has one. A damaged one of an owner counts for every
// model API, because its agent cannot be read, unless the owner has another one.
func (s *Store) findAgentKey(provider string, u User) (best Secret, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, owner := range u.owners() {
		for _, x := range s.list {
			// A process that was killed between two writes may leave two active ones. The newer one counts.
			if x.Owner == owner && x.Active && x.Provider() == provider && (!ok || x.Set.After(best.Set)) {
				best, ok = x, true
			}
		}
		if ok {
			return best, true
		}
		damaged := slices.IndexFunc(s.list,
			func(x Secret) bool { return x.Owner == owner && x.Type == TypeAgentKey && x.Problem != "" })
		if damaged >= 0 {
			return s.list[damaged], true
		}
	}
	return best, false
}
