package secret

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/sealed"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Store keeps secrets. Its exported fields are its options and may be changed until Open. Methods are safe for
// concurrent use.
type Store struct {
	// Box has the records.
	Box *sealed.Box
	// EarlierFile and EarlierKey are the files in which an earlier version of ramus kept secrets. Open moves their
	// secrets into Box and removes them. Empty means none.
	EarlierFile, EarlierKey string
	// Redact gets every value before it is used, and the keys of Box.
	Redact *redact.Secrets
	// References reads the values that are elsewhere. The zero value knows env:// and file://.
	References Resolver
	// Audit gets the first use of a secret by each run. Nil means that nobody does. See [Store.SetAudit].
	Audit Audit
	Now   func() time.Time

	mu   sync.Mutex // guards all below; held while records are written
	list []Secret   // sorted by owner and name
	uses map[string][]Use
}

// Open reads all records. Each value is added to Redact. A damaged record is listed with its problem, and does not
// stop Open.
func (s *Store) Open() error {
	if s.Now == nil {
		s.Now = time.Now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Box.Open(); err != nil {
		return err
	}
	s.learnKeys()
	if err := s.moveEarlier(); err != nil {
		return err
	}
	records, bad, err := s.Box.All()
	if err != nil {
		return err
	}
	s.uses = make(map[string][]Use)
	values := make(map[string]string)
	for _, r := range records {
		x, c, err := parse(r)
		if err != nil {
			bad = append(bad, sealed.Damage{Head: r.Head, Err: err})
			continue
		}
		s.list = append(s.list, x)
		if c.Value == "" {
			continue
		}
		if _, double := values[x.Name]; double { // another owner has one of this name
			s.learn(x.Name, c.Value)
			continue
		}
		values[x.Name] = c.Value
	}
	if s.Redact != nil {
		s.Redact.Add(values)
	}
	for _, d := range bad {
		s.list = append(s.list, Secret{ID: d.Head.ID, Owner: Owner(d.Head.Owner), Repo: Owner(d.Head.Owner).Repo(),
			Name: d.Head.Name,
			Type: Type(d.Head.Kind), Problem: problem(d.Err)})
	}
	s.sort()
	return nil
}

// problem describes the damage of a record for people.
func problem(err error) string {
	return err.Error() + "; store it again, or remove it"
}

// parse returns the secret of a record.
func parse(r sealed.Record) (Secret, content, error) {
	var c content
	if err := json.Unmarshal(r.Content, &c); err != nil {
		return Secret{}, c, fmt.Errorf("%w: its content is not that of a secret", sealed.ErrDamaged)
	}
	x := Secret{ID: r.ID, Name: r.Name, Owner: Owner(r.Owner), Type: Type(r.Kind), Kind: c.Kind, Agent: c.Agent,
		Active:    c.Active,
		Reference: c.Reference, Hosts: c.Hosts, Set: c.Set, By: c.By}
	return x.complete(c.Value), c, nil
}

func (s *Store) sort() {
	slices.SortFunc(s.list, func(a, b Secret) int {
		return cmp.Or(cmp.Compare(b2i(a.Owner != OfServer), b2i(b.Owner != OfServer)), cmp.Compare(a.Owner, b.Owner),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// learn has a value removed from all that the server keeps.
func (s *Store) learn(name, value string) {
	if s.Redact != nil {
		s.Redact.Add(map[string]string{name: value})
	}
}

func (s *Store) learnKeys() {
	for _, k := range s.Box.Keys() {
		s.learn("keys/seal.key", string(k[:]))
	}
}

// SetAudit sets Audit while the store is in use.
func (s *Store) SetAudit(a Audit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Audit = a
}

// Put stores secrets, in place of those with the same names and owners, and returns them with their ids. values are in
// the same order, and empty for those with a Reference. A mistake in one stores none. If the process is killed
// meanwhile, some may be stored. A credential that is Active becomes the only active one of its owner and model API.
func (s *Store) Put(list []Secret, values []string) ([]Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var put []Secret
	seen := make(map[Owner]int)
	for i, x := range list {
		x = x.complete(values[i])
		x.Set = s.Now().UTC()
		if err := check(x, values[i]); err != nil {
			return nil, err
		}
		x.ID = ""
		if j := s.index(x.Owner, x.Name); j >= 0 {
			x.ID = s.list[j].ID
		} else {
			seen[x.Owner]++
		}
		put = append(put, x)
	}
	for owner, more := range seen {
		if s.count(owner)+more > maxOfOwner || len(s.list)+more > sealed.MaxRecords {
			return nil, fmt.Errorf("cannot store secrets: %w: at most %d are possible for one owner, and %d for all",
				record.ErrInvalid, maxOfOwner, sealed.MaxRecords)
		}
	}
	for i, x := range put {
		stored, err := s.write(x, values[i])
		if err != nil {
			return nil, err
		}
		put[i] = stored
		if stored.Active {
			if err := s.retire(stored); err != nil {
				return nil, err
			}
		}
	}
	return put, nil
}

// Check returns why Put would refuse secrets. Their values are removed from what the server keeps from then on.
func (s *Store) Check(list []Secret, values []string) error {
	for i, x := range list {
		x = x.complete(values[i])
		if err := check(x, values[i]); err != nil {
			return err
		}
		s.learn(x.Name, values[i])
	}
	return nil
}

// write seals one secret, and then lists it. mu is held.
func (s *Store) write(x Secret, value string) (Secret, error) {
	if x.Reference == "" {
		s.learn(x.Name, value)
	}
	b, err := json.Marshal(content{x.Kind, x.Agent, x.Active, x.Reference, x.Hosts, x.Set, x.By, value})
	if err != nil {
		return x, err
	}
	r, err := s.Box.Put(sealed.Record{Head: sealed.Head{ID: x.ID, Owner: string(x.Owner), Kind: string(x.Type),
		Name: x.Name}, Content: b})
	if err != nil {
		return x, err
	}
	x.ID = r.ID
	if i := slices.IndexFunc(s.list, func(o Secret) bool { return o.ID == x.ID }); i >= 0 {
		s.list[i] = x
	} else {
		s.list = append(s.list, x)
	}
	s.sort()
	return x, nil
}

// retire makes the other credentials of the same owner and model API inactive. mu is held.
func (s *Store) retire(active Secret) error {
	for _, x := range slices.Clone(s.list) {
		if x.ID == active.ID || x.Owner != active.Owner || x.Type != active.Type || x.Provider() != active.Provider() ||
			!x.Active || x.Problem != "" {
			continue
		}
		if active.Type == TypeCloud && x.Agent != active.Agent {
			continue
		}
		if err := s.setActive(x, false); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) setActive(x Secret, active bool) error {
	_, c, err := s.read(x)
	if err != nil {
		return err
	}
	x.Active = active
	_, err = s.write(x, c.Value)
	return err
}

// SetActive switches a credential of an agent or a cloud on or off. Switched on, it becomes the only active one of its
// owner and model API.
func (s *Store) SetActive(id string, active bool) (Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, err := s.get(id)
	switch {
	case err != nil:
		return x, err
	case x.Type == TypeSecret && active:
		return x, fmt.Errorf("cannot switch %s on: %w: only credentials of agents and clouds are active or not", x.Name,
			record.ErrInvalid)
	case x.Problem != "":
		return x, fmt.Errorf("cannot change %s: %w: %s", x.Name, record.ErrConflict, x.Problem)
	}
	if err := s.setActive(x, active); err != nil {
		return x, err
	}
	x.Active = active
	if active {
		err = s.retire(x)
	}
	return x, err
}

// read opens the record of a listed secret, and checks that it is the same one. mu is held.
func (s *Store) read(x Secret) (Secret, content, error) {
	r, err := s.Box.Read(x.ID)
	if err == nil && (r.Owner != string(x.Owner) || r.Name != x.Name || r.Kind != string(x.Type)) {
		err = fmt.Errorf("%w: it is another secret", sealed.ErrDamaged)
	}
	if err != nil {
		return x, content{}, fmt.Errorf("cannot read the secret %s: %w", x.Name, err)
	}
	return parse(r)
}

// index returns the place of a secret in the list, or -1. mu is held.
func (s *Store) index(owner Owner, name string) int {
	return slices.IndexFunc(s.list, func(x Secret) bool { return x.Owner == owner && x.Name == name })
}

func (s *Store) count(owner Owner) (n int) {
	for _, x := range s.list {
		if x.Owner == owner {
			n++
		}
	}
	return n
}

// get returns a listed secret. mu is held.
func (s *Store) get(id string) (Secret, error) {
	i := slices.IndexFunc(s.list, func(x Secret) bool { return x.ID == id })
	if i < 0 {
		return Secret{}, fmt.Errorf("credential %.40s: %w", id, record.ErrNotFound)
	}
	x := s.list[i]
	x.Uses = slices.Clone(s.uses[id])
	return x, nil
}

// Get returns a secret by its id. The error is [record.ErrNotFound] if there is none.
func (s *Store) Get(id string) (Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(id)
}

// Find returns a secret by its owner and name. The error is [record.ErrNotFound] if there is none.
func (s *Store) Find(owner Owner, name string) (Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index(owner, name)
	if i < 0 {
		return Secret{}, fmt.Errorf("secret %.100s of %.100s: %w", name, owner, record.ErrNotFound)
	}
	return s.get(s.list[i].ID)
}

// Remove removes a secret by its id. The error is [record.ErrNotFound] if there is none. Its value is still removed
// from what the server keeps, until the server is started again.
func (s *Store) Remove(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.get(id); err != nil {
		return err
	}
	return s.remove(func(x Secret) bool { return x.ID == id })
}

// RemoveOf removes all secrets of an owner.
func (s *Store) RemoveOf(owner Owner) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(func(x Secret) bool { return x.Owner == owner })
}

// RemoveRuns removes the secrets of the runs that live does not report.
func (s *Store) RemoveRuns(live func(run string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(func(x Secret) bool { return x.Owner.Run() != "" && !live(x.Owner.Run()) })
}

func (s *Store) remove(gone func(Secret) bool) error {
	for _, x := range slices.Clone(s.list) {
		if !gone(x) {
			continue
		}
		if err := s.Box.Remove(x.ID); err != nil {
			return err
		}
		s.list = slices.DeleteFunc(s.list, func(o Secret) bool { return o.ID == x.ID })
		delete(s.uses, x.ID)
	}
	return nil
}

// Rename gives the secrets of a repository to its new name.
func (s *Store) Rename(repo, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, x := range slices.Clone(s.list) {
		if x.Owner != OfRepo(repo) || x.Problem != "" {
			continue
		}
		_, c, err := s.read(x)
		if err == nil {
			x.Owner, x.Repo = OfRepo(to), to
			_, err = s.write(x, c.Value)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Rotate replaces the key of the box, see [sealed.Box.Rotate]. It returns the number of records.
func (s *Store) Rotate() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.Box.Rotate()
	s.learnKeys()
	return n, err
}

// List returns the secrets that see reports. Nil means all.
func (s *Store) List(see func(Owner) bool) []Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Secret{}
	for _, x := range s.list {
		if see == nil || see(x.Owner) {
			x.Uses = slices.Clone(s.uses[x.ID])
			list = append(list, x)
		}
	}
	return list
}

// OfRepository reports whether an owner's secrets are those that a repository may use without a person.
func OfRepository(repo string) func(Owner) bool {
	return func(o Owner) bool {
		return o == OfServer || repo != "" && o == OfRepo(repo) || repo == "" && strings.HasPrefix(string(o), ofRepo)
	}
}
