package secret

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/durable"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// Bounds of a store.
const (
	maxSecrets = 1000
	maxValue   = 64 << 10
	maxHosts   = 20
	maxPerson  = 200
	maxFile    = 128 << 20
	// KeyBytes is the length of a store's key.
	KeyBytes = 32
)

// Secret describes a secret, without its value.
type Secret struct {
	Name string `json:"name"` // capital letters, digits and underscores
	// Repo is the repository that may use it. Empty means all.
	Repo string `json:"repo,omitempty"`
	// Person is the person whose secret it is, such as slack:TEAM:USER. It belongs to no repository then, and the server
	// alone uses it, for work that this person asked for.
	Person string `json:"person,omitempty"`
	// Reference is the place of the value, such as vault://PATH#FIELD. If it is empty, the store has the value.
	Reference string `json:"reference,omitempty"`
	// Hosts lists the hosts that may get the value, NAME with :PORT for a port other than 443.
	Hosts []string  `json:"hosts,omitempty"`
	Set   time.Time `json:"set"`
	By    string    `json:"by,omitempty"` // who set it
}

// entry is a secret in the file.
type entry struct {
	Secret
	Sealed []byte `json:"sealed,omitempty"` // nonce and encrypted value
}

// Store keeps secrets in one file. Its exported fields are its options and may be changed until Open. Methods are safe for
// concurrent use.
type Store struct {
	// File is the name of the file. A missing one is made.
	File string
	// Key encrypts the values, see KeyBytes.
	Key []byte
	// Redact gets every value before it is used.
	Redact *redact.Secrets
	// References reads the values that are elsewhere. The zero value knows env:// and file://.
	References Resolver
	Now        func() time.Time

	seal cipher.AEAD

	mu      sync.Mutex // guards all below
	entries []entry    // sorted by person, repository and name
}

// Open reads the file. Each value is added to Redact.
func (s *Store) Open() error {
	block, err := aes.NewCipher(s.Key)
	if err == nil {
		s.seal, err = cipher.NewGCM(block)
	}
	if err != nil {
		return fmt.Errorf("cannot open the secrets: %w", err)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	info, err := os.Stat(s.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", s.File, maxFile)
	}
	if err != nil {
		return fmt.Errorf("cannot open the secrets: %w", err)
	}
	text, err := os.ReadFile(s.File)
	if err == nil {
		err = json.Unmarshal(text, &s.entries)
	}
	if err != nil {
		return fmt.Errorf("cannot read the secrets in %s: %w", s.File, err)
	}
	for _, e := range s.entries {
		if e.Reference != "" {
			continue
		}
		value, err := s.open(e)
		if err != nil {
			return err
		}
		s.learn(e.Secret, value)
	}
	return nil
}

// learn has a value removed from all that the server keeps.
func (s *Store) learn(x Secret, value string) {
	if s.Redact != nil {
		s.Redact.Add(map[string]string{x.Name: value})
	}
}

// about binds an encrypted value to its secret, so that it cannot be moved to another one in the file.
func about(x Secret) []byte {
	if x.Person != "" {
		return []byte("\x00" + x.Person + "\x00" + x.Name)
	}
	return []byte(x.Repo + "\x00" + x.Name)
}

// is reports whether two secrets have the same name and owner.
func (x Secret) is(o Secret) bool {
	return x.Name == o.Name && x.Repo == o.Repo && x.Person == o.Person
}

func (s *Store) open(e entry) (string, error) {
	n := s.seal.NonceSize()
	if len(e.Sealed) < n {
		return "", fmt.Errorf("cannot read the secret %s: it is damaged", e.Name)
	}
	value, err := s.seal.Open(nil, e.Sealed[:n], e.Sealed[n:], about(e.Secret))
	if err != nil {
		return "", fmt.Errorf("cannot read the secret %s: it is damaged, or its key in the folder of keys is another one", e.Name)
	}
	return string(value), nil
}

// Put stores secrets, in place of those with the same names and owners. values are in the same order, and empty
// for those with a Reference. It stores all of them, or none.
func (s *Store) Put(list []Secret, values []string) error {
	var put []entry
	for i, x := range list {
		x.Set = s.Now().UTC()
		if err := check(x, values[i]); err != nil {
			return err
		}
		e := entry{Secret: x}
		if x.Reference == "" {
			nonce := make([]byte, s.seal.NonceSize())
			_, _ = rand.Read(nonce) // Read never fails
			e.Sealed = s.seal.Seal(nonce, nonce, []byte(values[i]), about(x))
			s.learn(x, values[i])
		}
		put = append(put, e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(s.entries), func(e entry) bool {
		return slices.ContainsFunc(put, func(p entry) bool { return p.is(e.Secret) })
	})
	return s.writeLocked(append(all, put...))
}

// check returns an error for a secret that cannot be stored.
func check(x Secret, value string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("cannot store the secret %.100s: %w: %s", x.Name, record.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case !environment.ValidSecret(x.Name):
		return bad("a name has capital letters, digits and underscores, and begins with a letter")
	case x.Person != "" && (x.Repo != "" || len(x.Hosts) > 0):
		return bad("the secret of a person is for no repository and no host")
	case len(x.Person) > maxPerson || strings.ContainsFunc(x.Person, unicode.IsControl):
		return bad("%.100q is no person", x.Person)
	case x.Reference != "":
		if err := CheckReference(x.Reference); err != nil {
			return bad("%v", err)
		}
	case len(strings.TrimSpace(value)) < redact.MinLength:
		return bad("a value has at least %d characters, because shorter ones cannot be removed from what is kept", redact.MinLength)
	case len(value) > maxValue:
		return bad("a value has at most %d bytes", maxValue)
	}
	if len(x.Hosts) > maxHosts {
		return bad("at most %d hosts are possible", maxHosts)
	}
	for _, h := range x.Hosts {
		if !environment.ValidHost(h) || strings.HasPrefix(h, "*") {
			return bad("%q is not the name of one host", h)
		}
	}
	return nil
}

// Remove removes a secret. The error is [record.ErrNotFound] if there is none. Its value is still removed from what the
// server keeps, until the server is started again.
func (s *Store) Remove(name, repo string) error { return s.remove(Secret{Name: name, Repo: repo}) }

// RemovePersonal removes a secret of a person. The error is [record.ErrNotFound] if there is none.
func (s *Store) RemovePersonal(name, person string) error {
	if person == "" {
		return fmt.Errorf("secret %.100s of nobody: %w", name, record.ErrNotFound)
	}
	return s.remove(Secret{Name: name, Person: person})
}

func (s *Store) remove(x Secret) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.entries, func(e entry) bool { return e.is(x) })
	if i < 0 {
		return fmt.Errorf("secret %.100s: %w", x.Name, record.ErrNotFound)
	}
	return s.writeLocked(slices.Delete(slices.Clone(s.entries), i, i+1))
}

// writeLocked replaces the file, durably, and then the entries. mu is held.
func (s *Store) writeLocked(entries []entry) error {
	if len(entries) > maxSecrets {
		return fmt.Errorf("cannot store secrets: %w: at most %d are possible", record.ErrInvalid, maxSecrets)
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Person, b.Person), cmp.Compare(a.Repo, b.Repo), cmp.Compare(a.Name, b.Name))
	})
	text, err := json.MarshalIndent(entries, "", "  ")
	if err == nil {
		err = durable.Replace(s.File, text, true)
	}
	if err != nil {
		return fmt.Errorf("cannot store secrets: %w", err)
	}
	s.entries = entries
	return nil
}

// List returns the secrets of a repository and those of all repositories. An empty repo lists everything, with the
// secrets of people.
func (s *Store) List(repo string) []Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Secret{}
	for _, e := range s.entries {
		if repo == "" || e.Person == "" && (e.Repo == "" || e.Repo == repo) {
			list = append(list, e.Secret)
		}
	}
	return list
}

// find returns the secret that a repository has by a name. Its own one is before that of all repositories.
func (s *Store) find(name, repo string) (entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found entry
	ok := false
	for _, e := range s.entries {
		if e.Name == name && e.Person == "" && (e.Repo == repo || e.Repo == "" && !ok) {
			found, ok = e, true
		}
	}
	return found, ok
}

// Describe returns the secret that a repository has by a name. Returns false if it has none.
func (s *Store) Describe(name, repo string) (Secret, bool) {
	e, ok := s.find(name, repo)
	return e.Secret, ok
}

// Value returns the value of a secret for a repository, to be sent to a host (NAME, or NAME:PORT if the port is not 443).
// An empty host means that the server's own configuration names the secret, which needs no host. The value is removed
// from all that the server keeps from then on. The error is [record.ErrNotFound] if the repository has no such secret,
// and [record.ErrInvalid] if it is not for the host.
func (s *Store) Value(ctx context.Context, name, repo, host string) (string, error) {
	e, ok := s.find(name, repo)
	if !ok {
		return "", fmt.Errorf("secret %.100s: %w; `ramus secret set` stores it", name, record.ErrNotFound)
	}
	if host != "" && !slices.Contains(e.Hosts, host) {
		return "", fmt.Errorf("secret %s: %w: it is not for %s; `ramus secret set --host` names its hosts", name, record.ErrInvalid, host)
	}
	return s.valueOf(ctx, e)
}

// Personal returns the value of a secret of a person, for the server's own use. The error is [record.ErrNotFound] if
// the person has no such secret.
func (s *Store) Personal(ctx context.Context, name, person string) (string, error) {
	s.mu.Lock()
	i := -1
	if person != "" {
		i = slices.IndexFunc(s.entries, func(e entry) bool { return e.is(Secret{Name: name, Person: person}) })
	}
	var e entry
	if i >= 0 {
		e = s.entries[i]
	}
	s.mu.Unlock()
	if i < 0 {
		return "", fmt.Errorf("secret %.100s of %.100s: %w", name, person, record.ErrNotFound)
	}
	return s.valueOf(ctx, e)
}

// valueOf returns the value of a secret, which is removed from all that the server keeps from then on.
func (s *Store) valueOf(ctx context.Context, e entry) (string, error) {
	if e.Reference == "" {
		return s.open(e)
	}
	value, err := s.References.Read(ctx, e.Reference)
	if err == nil && len(value) < redact.MinLength {
		err = fmt.Errorf("its value has fewer than %d characters", redact.MinLength)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the secret %s: %w", e.Name, err)
	}
	s.learn(e.Secret, value)
	return value, nil
}
