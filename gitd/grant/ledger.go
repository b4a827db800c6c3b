package grant

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/durable"
)

// Bounds of a ledger.
const (
	maxIssued = 20_000
	maxLine   = 64 << 10
	// usedEvery is the least time between two records of the use of a token.
	usedEvery = 10 * time.Minute
)

// Issued describes a token that was made, without the token.
type Issued struct {
	ID      string   `json:"id"`
	Subject string   `json:"subject"`
	Repo    string   `json:"repo"`
	Scopes  []string `json:"scopes"`
	Read    []string `json:"read,omitempty"`
	Write   []string `json:"write,omitempty"`
	By      string   `json:"by,omitempty"` // who made it
	// Person is the id of the person who bears it, such as "github:583231". Empty means that it is not known.
	Person  string    `json:"person,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	// Used is the time of the last use, which may be recorded ten minutes late. Zero means that it was never used.
	Used time.Time `json:"used,omitzero"`
	// Revoked is the time from which it is refused. Zero means that it is not revoked.
	Revoked   time.Time `json:"revoked,omitzero"`
	RevokedBy string    `json:"revoked_by,omitempty"`
}

// entry is a line of the file. One field is set.
type entry struct {
	Made    *Issued `json:"made,omitempty"`
	Revoked *Issued `json:"revoked,omitempty"`
	Used    *Issued `json:"used,omitempty"`
}

// Ledger lists the tokens that were made, and those that were revoked. Tokens of runs are not in it. Its exported fields
// are its options. Methods are safe for concurrent use.
type Ledger struct {
	// File keeps the list, one line for each change. Empty keeps it in memory only.
	File string
	Now  func() time.Time

	mu       sync.Mutex // guards all below
	f        *os.File
	tokens   map[string]*Issued
	recorded map[string]time.Time           // the uses that File has
	watches  map[string]map[*watch]struct{} // by the id of the token
}

// Open reads the file. It forgets tokens that have ended.
func (l *Ledger) Open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens, l.recorded = make(map[string]*Issued), make(map[string]time.Time)
	if l.File == "" {
		return nil
	}
	if err := l.read(); err != nil {
		return fmt.Errorf("cannot read the list of tokens in %s: %w", l.File, err)
	}
	if err := l.rewrite(); err != nil {
		return fmt.Errorf("cannot write the list of tokens: %w", err)
	}
	return nil
}

func (l *Ledger) read() error {
	f, err := os.Open(l.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, maxLine)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil // a line that is not whole was never acknowledged
		case err != nil:
			return fmt.Errorf("line %d: %w", n, err)
		}
		var e entry
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return fmt.Errorf("line %d is damaged: %w; restore the file from a backup, or remove %s, which ends all tokens, together with it",
				n, err, "keys/grants.pem")
		}
		l.apply(e)
	}
}

// apply changes the list by a line. mu is held.
func (l *Ledger) apply(e entry) {
	switch {
	case e.Made != nil:
		l.tokens[e.Made.ID] = e.Made
		l.recorded[e.Made.ID] = e.Made.Used
	case e.Revoked != nil:
		t := l.tokens[e.Revoked.ID]
		if t == nil {
			t = &Issued{ID: e.Revoked.ID}
			l.tokens[t.ID] = t
		}
		t.Revoked, t.RevokedBy = e.Revoked.Revoked, e.Revoked.RevokedBy
	case e.Used != nil:
		if t := l.tokens[e.Used.ID]; t != nil {
			t.Used = e.Used.Used
			l.recorded[t.ID] = t.Used
		}
	}
}

// rewrite replaces the file by one without tokens that have ended, and opens it for appending. mu is held.
func (l *Ledger) rewrite() error {
	var b bytes.Buffer
	for _, t := range l.sorted() {
		if !t.Expires.IsZero() && !l.Now().Before(t.Expires) {
			delete(l.tokens, t.ID)
			delete(l.recorded, t.ID)
			continue
		}
		line, err := json.Marshal(entry{Made: t})
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	if err := os.MkdirAll(filepath.Dir(l.File), 0o700); err != nil {
		return err
	}
	if err := durable.Replace(l.File, b.Bytes(), true); err != nil {
		return err
	}
	f, err := os.OpenFile(l.File, os.O_WRONLY|os.O_APPEND, 0o600)
	l.f = f
	return err
}

// sorted returns the tokens, the oldest first. mu is held.
func (l *Ledger) sorted() []*Issued {
	var list []*Issued
	for _, t := range l.tokens {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *Issued) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return list
}

// append writes a line. With sync it is on disk when append returns. mu is held.
func (l *Ledger) append(e entry, sync bool) error {
	if l.f == nil {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	info, err := l.f.Stat()
	if err != nil {
		return err
	}
	_, err = l.f.Write(append(line, '\n'))
	if err == nil && sync {
		err = l.f.Sync()
	}
	if err != nil {
		_ = l.f.Truncate(info.Size()) // a half line would hide the next one
	}
	return err
}

// Made records a new token and returns its grant with an id.
func (l *Ledger) Made(g Grant, by string) (Grant, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tokens) >= maxIssued {
		return g, fmt.Errorf("cannot make a token: there are %d that have not ended: %w", maxIssued, object.ErrTooLarge)
	}
	g.ID = strings.ToLower(rand.Text())
	t := &Issued{ID: g.ID, Subject: g.Subject, Repo: g.Repo, Scopes: g.Scopes, Read: g.Read, Write: g.Write, By: by,
		Person: g.Person.ID, Created: l.Now().UTC().Truncate(time.Second),
		Expires: g.Expires.UTC()}
	if err := l.append(entry{Made: t}, true); err != nil {
		return g, fmt.Errorf("cannot make a token: %w", err)
	}
	l.tokens[t.ID] = t
	return g, nil
}

// Revoke refuses a token from now on. An id that is not in the list may be that of a token of an earlier version, see
// [IDOf].
func (l *Ledger) Revoke(id, by string) error {
	if id == "" || len(id) > 200 {
		return fmt.Errorf("cannot revoke a token without an id: %w", object.ErrInvalid)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tokens[id]
	switch {
	case t == nil && !strings.HasPrefix(id, hashed):
		return fmt.Errorf("token %.60s: %w", id, object.ErrNotFound)
	case t != nil && !t.Revoked.IsZero():
		return nil
	}
	e := entry{Revoked: &Issued{ID: id, Revoked: l.Now().UTC().Truncate(time.Second), RevokedBy: by}}
	if err := l.append(e, true); err != nil {
		return fmt.Errorf("cannot revoke the token %s: %w", id, err)
	}
	l.apply(e)
	l.wake(id)
	return nil
}

// Use returns [object.ErrDenied] if a token is revoked, and records its use otherwise.
func (l *Ledger) Use(id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tokens[id]
	if t == nil {
		return nil
	}
	if !t.Revoked.IsZero() {
		return fmt.Errorf("cannot accept the token: it was revoked at %s: %w", t.Revoked.Format(time.RFC3339),
			object.ErrDenied)
	}
	t.Used = l.Now().UTC().Truncate(time.Second)
	if t.Used.Sub(l.recorded[id]) >= usedEvery {
		l.record(t)
	}
	return nil
}

// PersonOf returns the id of the person who bears a token, or "".
func (l *Ledger) PersonOf(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tokens[id]; t != nil {
		return t.Person
	}
	return ""
}

// record writes the last use of a token. A use that cannot be written is not worth an error.
func (l *Ledger) record(t *Issued) {
	if l.append(entry{Used: &Issued{ID: t.ID, Used: t.Used}}, false) == nil {
		l.recorded[t.ID] = t.Used
	}
}

// List returns the tokens that have not ended, the oldest first, and those that were revoked.
func (l *Ledger) List() []Issued {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []Issued{}
	for _, t := range l.sorted() {
		if t.Expires.IsZero() || l.Now().Before(t.Expires) {
			list = append(list, *t)
		}
	}
	return list
}

// Close records the last uses and closes the file.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	for _, t := range l.tokens {
		if t.Used.After(l.recorded[t.ID]) {
			l.record(t)
		}
	}
	err := l.f.Close()
	l.f = nil
	return err
}

// hashed is the beginning of the ids of tokens that have none.
const hashed = "sha256-"

// IDOf returns the id of a token, which it does not verify. A token of an earlier version has none, and gets one that
// follows from its hash.
func IDOf(token string) string {
	var c struct {
		ID string `json:"jti"`
	}
	if parts := strings.Split(token, "."); len(parts) == 3 && len(token) <= tokenMax {
		if b, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil && json.Unmarshal(b, &c) == nil && c.ID != "" {
			return c.ID
		}
	}
	sum := sha256.Sum256([]byte(token))
	return hashed + hex.EncodeToString(sum[:16])
}
