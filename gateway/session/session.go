package session

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Session is one browser of one account.
type Session struct {
	ID      string    `json:"id"` // names the session, and opens nothing
	Account string    `json:"account"`
	Browser string    `json:"browser"` // "Firefox on Linux", as the browser says
	Place   string    `json:"place"`   // the network of the last use, such as 203.0.113.0/24
	Began   time.Time `json:"began"`   // the time of the authentication
	Used    time.Time `json:"used"`
	Ends    time.Time `json:"ends"` // at the latest
}

// From describes the browser of a request.
type From struct{ Browser, Place string }

// Found is the session of a cookie.
type Found struct {
	Session
	// Cookie is the new value of the cookie, which the answer has to set. "" means that the old one stays.
	Cookie string
	// Note is the note of the session. It is nil if there is none, or if the id is not the newest.
	Note []byte
}

// Reasons for which a cookie opens nothing.
var (
	ErrNone     = errors.New("there is no such session")
	ErrExpired  = errors.New("the session has ended after a time without use, or at its latest end")
	ErrReplayed = errors.New("the session was ended, because an id that had been replaced was used again")
	ErrFull     = errors.New("there are too many sessions")
)

// The defaults of a Store.
const (
	DefaultIdle   = 12 * time.Hour
	DefaultLife   = 7 * 24 * time.Hour
	DefaultRotate = 30 * time.Minute
)

const (
	// Overlap is how long an id is good after the first use of the next one.
	Overlap = time.Minute
	// maxSessions and maxOwn bound the sessions of all accounts and of one. The oldest of an account ends for a new one.
	maxSessions, maxOwn = 20_000, 64
	// maxNext bounds the ids that were sent to a browser that uses none of them.
	maxNext = 8
	// keepUse is how often the time of the last use is written.
	keepUse = 5 * time.Minute
	// maxNote bounds a note, in bytes.
	maxNote = 4 << 10

	familyBytes, idBytes = 16, 32
)

// Store keeps sessions. Its exported fields are options, which may be changed until [Store.Open]. All methods are safe
// for concurrent use.
type Store struct {
	// DB is the file, which must be open. The store has one bucket in it.
	DB *bolt.DB
	// Idle is how long a session lives without use, Life how long at all. Rotate is the age at which an id is replaced.
	// The defaults are DefaultIdle, DefaultLife and DefaultRotate.
	Idle, Life, Rotate time.Duration
	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	mu      sync.Mutex // guards all below, and orders changes of the file
	all     map[string]*kept
	byID    map[string]*kept
	watches map[string]map[*watch]struct{} // by the ID of a session
}

// kept is a session as the file has it.
type kept struct {
	Session
	Family  []byte `json:"family"` // SHA-256
	Current id     `json:"current"`
	// Next are ids that were sent and not used yet.
	Next []id `json:"next,omitempty"`
	// Previous is the SHA-256 of the id before Current, which is good until Until.
	Previous []byte    `json:"previous,omitempty"`
	Until    time.Time `json:"until,omitzero"`
	// Renew asks for a new id at the next request.
	Renew bool `json:"renew,omitempty"`

	written time.Time // of Used, in the file
}

// id is the part of a cookie that changes.
type id struct {
	Hash  []byte    `json:"hash"` // SHA-256
	Since time.Time `json:"since"`
	Note  []byte    `json:"note,omitempty"` // encrypted with a key that follows from the id
}

// Open reads the sessions of the file.
func (s *Store) Open() error {
	s.Idle, s.Life, s.Rotate = cmp.Or(s.Idle, DefaultIdle), cmp.Or(s.Life, DefaultLife), cmp.Or(s.Rotate, DefaultRotate)
	if s.Now == nil {
		s.Now = time.Now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.byID, s.watches = map[string]*kept{}, map[string]*kept{}, map[string]map[*watch]struct{}{}
	list, err := s.readAll()
	if err != nil {
		return fmt.Errorf("cannot read the sessions: %w", err)
	}
	for _, k := range list {
		s.all[string(k.Family)], s.byID[k.ID] = k, k
	}
	return s.sweep()
}

// Begin begins a session of an account, and returns it with its cookie.
func (s *Store) Begin(account string, from From, note []byte) (Session, string, error) {
	if len(note) > maxNote {
		return Session{}, "", fmt.Errorf("cannot begin a session: its note has %d bytes, allowed are %d", len(note), maxNote)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sweep(); err != nil {
		return Session{}, "", err
	}
	own := s.list(account)
	if len(own) >= maxOwn {
		if err := s.end(own[len(own)-1].ID); err != nil { // the one that was not used for the longest time
			return Session{}, "", err
		}
	}
	if len(s.all) >= maxSessions {
		return Session{}, "", fmt.Errorf("cannot begin a session: %w", ErrFull)
	}
	now := s.Now()
	family := random(familyBytes)
	sum := sha256.Sum256(family)
	k := &kept{Session: Session{ID: rand.Text()[:16], Account: account, Browser: from.Browser, Place: from.Place,
		Began: now, Used: now,
		Ends: now.Add(s.Life)}, Family: sum[:], written: now}
	secret, current, err := newID(k.ID, now, note)
	if err != nil {
		return Session{}, "", err
	}
	k.Current = current
	if err := s.write(k); err != nil {
		return Session{}, "", fmt.Errorf("cannot begin a session: %w", err)
	}
	s.all[string(k.Family)], s.byID[k.ID] = k, k
	return k.Session, encode(family, secret), nil
}

// Find returns the session of a cookie and marks it as used. With renew the answer can set a cookie, and gets a new
// one when it is time.
func (s *Store) Find(cookie string, from From, renew bool) (Found, error) {
	family, secret, ok := decode(cookie)
	if !ok {
		return Found{}, ErrNone
	}
	sum, hash := sha256.Sum256(family), sha256.Sum256(secret)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.all[string(sum[:])]
	if k == nil {
		return Found{}, ErrNone
	}
	now := s.Now()
	if s.expired(k, now) {
		return Found{}, errors.Join(ErrExpired, s.end(k.ID))
	}
	newest, err := s.check(k, hash[:], now)
	if err != nil {
		return Found{}, err
	}

	f := Found{}
	if newest {
		if f.Note, err = openNote(k.ID, secret, k.Current.Note); err != nil {
			return Found{}, err
		}
		if renew && s.due(k, now) {
			if f.Cookie, err = s.renew(k, family, now, f.Note); err != nil {
				return Found{}, err
			}
		}
	}
	if err := s.use(k, from, now); err != nil {
		return Found{}, err
	}
	f.Session = k.Session
	return f, nil
}

// check finds out which id of a session was used. newest reports whether it is the newest. The use of an id that was
// replaced ends the session.
func (s *Store) check(k *kept, hash []byte, now time.Time) (newest bool, err error) {
	if same(k.Current.Hash, hash) {
		return true, nil
	}
	for _, next := range k.Next {
		if !same(next.Hash, hash) {
			continue
		}
		changed := *k
		changed.Previous, changed.Until, changed.Current, changed.Next, changed.Renew = k.Current.Hash,
			now.Add(Overlap), next, nil, false
		return true, s.put(k, changed)
	}
	if same(k.Previous, hash) && now.Before(k.Until) {
		return false, nil
	}
	return false, errors.Join(ErrReplayed, s.end(k.ID))
}

// due reports whether a session needs a new id, and none is on its way to the browser.
func (s *Store) due(k *kept, now time.Time) bool {
	if !k.Renew && now.Sub(k.Current.Since) < s.Rotate {
		return false
	}
	return len(k.Next) == 0 || now.Sub(k.Next[len(k.Next)-1].Since) > Overlap
}

// renew makes a new id for a session and returns its cookie.
func (s *Store) renew(k *kept, family []byte, now time.Time, note []byte) (string, error) {
	secret, next, err := newID(k.ID, now, note)
	if err != nil {
		return "", err
	}
	changed := *k
	changed.Next = append(slices.Clone(k.Next[max(0, len(k.Next)+1-maxNext):]), next)
	return encode(family, secret), s.put(k, changed)
}

// use notes that a session was used.
func (s *Store) use(k *kept, from From, now time.Time) error {
	k.Used = now
	if from.Place != "" {
		k.Place = from.Place
	}
	if now.Sub(k.written) < keepUse {
		return nil
	}
	return s.put(k, *k)
}

// expired reports whether a session has ended by itself. A session with an open socket is in use.
func (s *Store) expired(k *kept, now time.Time) bool {
	return !now.Before(k.Ends) || now.Sub(k.Used) >= s.Idle && len(s.watches[k.ID]) == 0
}

// Get returns a session by its ID, if it has not ended.
func (s *Store) Get(id string) (Session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byID[id]
	if k == nil || s.expired(k, s.Now()) {
		return Session{}, false
	}
	return k.Session, true
}

// List returns the sessions of an account, or of all if account is "", the last used first.
func (s *Store) List(account string) []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list(account)
}

func (s *Store) list(account string) []Session {
	list := []Session{}
	now := s.Now()
	for _, k := range s.all {
		if (account == "" || k.Account == account) && !s.expired(k, now) {
			list = append(list, k.Session)
		}
	}
	slices.SortFunc(list, func(a, b Session) int {
		return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// End ends a session. account is its account, or "" for any. Returns [ErrNone] if there is no such session.
func (s *Store) End(id, account string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byID[id]
	if k == nil || account != "" && k.Account != account {
		return ErrNone
	}
	return s.end(id)
}

// EndAll ends all sessions of an account except one, which may be "". It returns how many.
func (s *Store) EndAll(account, except string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, one := range s.list(account) {
		if one.ID == except {
			continue
		}
		if err := s.end(one.ID); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// Changed is called when the roles of an account have changed. Its sessions get new ids, and its sockets end, so that
// the next ones are opened with the new roles.
func (s *Store) Changed(account string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.list(account) {
		k := s.byID[one.ID]
		changed := *k
		changed.Renew = true
		if err := s.put(k, changed); err != nil {
			return err
		}
		s.wake(one.ID)
	}
	return nil
}

// end ends a session on disk, in memory, and for its observers.
func (s *Store) end(id string) error {
	k := s.byID[id]
	if k == nil {
		return nil
	}
	if err := s.remove(k); err != nil {
		return fmt.Errorf("cannot end a session: %w", err)
	}
	delete(s.all, string(k.Family))
	delete(s.byID, id)
	s.wake(id)
	return nil
}

// sweep ends the sessions that have ended by themselves.
func (s *Store) sweep() error {
	now := s.Now()
	for id, k := range s.byID {
		if s.expired(k, now) {
			if err := s.end(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// put writes a changed session and has it count.
func (s *Store) put(k *kept, changed kept) error {
	changed.written = changed.Used
	if err := s.write(&changed); err != nil {
		return fmt.Errorf("cannot change a session: %w", err)
	}
	*k = changed
	return nil
}

// newID returns a new id, and its record.
func newID(session string, now time.Time, note []byte) ([]byte, id, error) {
	secret := random(idBytes)
	sum := sha256.Sum256(secret)
	sealed, err := sealNote(session, secret, note)
	return secret, id{Hash: sum[:], Since: now, Note: sealed}, err
}

// encode returns the value of a cookie.
func encode(family, secret []byte) string {
	return base64.RawURLEncoding.EncodeToString(slices.Concat(family, secret))
}

// decode returns the parts of a cookie.
func decode(cookie string) (family, secret []byte, ok bool) {
	if len(cookie) != base64.RawURLEncoding.EncodedLen(familyBytes+idBytes) {
		return nil, nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cookie)
	if err != nil || len(b) != familyBytes+idBytes {
		return nil, nil, false
	}
	return b[:familyBytes], bytes.Clone(b[familyBytes:]), true
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // Read never fails
	return b
}

func same(a, b []byte) bool { return len(a) > 0 && subtle.ConstantTimeCompare(a, b) == 1 }
