package privacy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

const (
	refs      = "refs/ramus/privacy"
	file      = "privacy.json"
	maxRecord = 16 << 10
	// maxRecords bounds the callers that have a record.
	maxRecords = 20_000
)

// Store keeps records in git. Its exported fields are options, which may be changed until [Store.Open]. All methods are
// safe for concurrent use.
type Store struct {
	people.Options
	// OwnersOnly locks the branch of each caller for everybody but the person who began it, and administrators. Began
	// returns the id of that person, or "" if it is not known.
	OwnersOnly bool
	Began      func(record.Caller) string
	// With returns the additional repositories of a caller, in which it is private, too. Nil means that callers have none.
	With func(record.Caller) []string

	changing sync.Mutex   // held by Set
	mu       sync.RWMutex // guards all below
	closed   error        // why nothing is known; everything is hidden then
	byCaller map[record.Caller]Record
	tips     map[record.Caller]gitd.Hash
	private  map[string]map[string]Record // by repository and slug, those that are private
	changed  chan struct{}                // closed at the next change
}

// Open reads all records. A record that cannot be read fails it, because its caller would be shown to everybody.
func (s *Store) Open(ctx context.Context) error {
	s.SetDefaults()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byCaller, s.tips = map[record.Caller]Record{}, map[record.Caller]gitd.Hash{}
	s.private, s.changed = map[string]map[string]Record{}, make(chan struct{})
	s.closed = s.readAll(ctx)
	return s.closed
}

// readAll reads the records. mu is held.
func (s *Store) readAll(ctx context.Context) error {
	list, err := s.records().Read(ctx)
	if err != nil {
		return fmt.Errorf("cannot read which workspaces are private: %w", err)
	}
	for _, k := range list {
		if k.Err != nil {
			return fmt.Errorf("cannot read which workspaces are private: %s: %w", k.Ref, k.Err)
		}
		s.put(k.Record, k.Tip)
	}
	return nil
}

// records returns the records in git.
func (s *Store) records() people.Records[Record] {
	return people.Records[Record]{Options: s.Options, Refs: refs, File: file, Max: maxRecord, Check: Record.check}
}

// put takes a record into the lists. mu is held.
func (s *Store) put(r Record, tip gitd.Hash) {
	s.byCaller[r.Caller], s.tips[r.Caller] = r, tip
	delete(s.private[r.Repo], r.Caller.Slug())
	if !r.Private {
		return
	}
	if s.private[r.Repo] == nil {
		s.private[r.Repo] = map[string]Record{}
	}
	s.private[r.Repo][r.Caller.Slug()] = r
}

// Get returns the record of a caller. Returns false if it has none, so that it is not private.
func (s *Store) Get(c record.Caller) (Record, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.byCaller[c]
	return r, ok
}

// IsPrivate reports whether a caller is private.
func (s *Store) IsPrivate(c record.Caller) bool {
	r, _ := s.Get(c)
	return r.Private
}

// Changed returns a channel that is closed at the next change of the privacy of a caller.
func (s *Store) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// SetPrivate is [Store.Set] in the name of the owner.
func (s *Store) SetPrivate(ctx context.Context, c record.Caller, repo string, private bool, owner gitd.Person) error {
	return s.Set(ctx, Record{Caller: c, Repo: repo, Private: private, Owner: owner}, owner)
}

// Set makes a caller private for its owner, or shows it to everybody who sees its repository. It counts when it is on
// disk. A private caller keeps its owner. The error is a problem if the name is that of another person's private caller.
func (s *Store) Set(ctx context.Context, r Record, by gitd.Person) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.RLock()
	old, known := s.byCaller[r.Caller]
	tip, count := s.tips[r.Caller], len(s.byCaller)
	s.mu.RUnlock()
	owner := r.Owner.ID
	if known && old.Private {
		r.Owner, r.Repo = old.Owner, old.Repo
	}
	r.Since = s.Now().UTC().Truncate(time.Second)
	switch {
	case known && old.Private && r.Private && r.Owner.ID != owner:
		return route.NewProblem(route.KindExists, "the name %s is taken", r.Caller.ID()).WithHint("choose another name")
	case known && old.Private == r.Private:
		return nil
	case !known && !r.Private:
		return nil
	case !known && count >= maxRecords:
		return route.NewProblem(route.KindTooLarge, "there are %d private workspaces, which is the most", maxRecords)
	}
	if err := r.check(r.ref()); err != nil {
		return route.NewProblem(route.KindInvalid, "only a person can have a private workspace").
			WithHint("sign in, or use a token of a person")
	}
	message := "Make " + r.Caller.String() + " private"
	if !r.Private {
		message = "Show " + r.Caller.String() + " to everybody"
	}
	hash, err := s.records().Write(ctx, r.ref(), r, tip, people.Change{By: by, When: s.Now(), Message: message})
	if err != nil {
		return fmt.Errorf("cannot keep whether %s is private: %w", r.Caller, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(r, hash)
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}
