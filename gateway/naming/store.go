package naming

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

const (
	refs = "refs/ramus/names"
	file = "names.json"
)

// Store keeps records in git. Its exported fields are options, which may be changed until [Store.Open]. All methods are
// safe for concurrent use.
type Store struct {
	Git *gitd.Server
	// Signer signs the commits. Nil means the Git server's.
	Signer *gitd.CommitSigner
	// Committer is the committer of changes; their author is who makes them.
	Committer gitd.Person
	Now       func() time.Time // nil means time.Now
	Log       *slog.Logger     // nil discards

	changing sync.Mutex   // held by SetName
	mu       sync.RWMutex // guards all below
	records  map[record.Caller]Record
	tips     map[record.Caller]gitd.Hash
}

// Open reads all records. It leaves out a record that cannot be read, whose sessions have their labels then.
func (s *Store) Open(ctx context.Context) error {
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records, s.tips = map[record.Caller]Record{}, map[record.Caller]gitd.Hash{}
	list, err := s.kept().Read(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the names of sessions: %w", err)
	}
	for _, k := range list {
		if k.Err != nil {
			s.Log.Error("cannot read the names of sessions", "ref", k.Ref, "err", k.Err)
			continue
		}
		s.records[k.Record.Caller], s.tips[k.Record.Caller] = k.Record, k.Tip
	}
	return nil
}

// kept returns the records as git has them.
func (s *Store) kept() people.Records[Record] {
	return people.Records[Record]{Git: s.Git, Signer: s.Signer, Committer: s.Committer,
		Refs: refs, File: file, Max: maxRecord, Check: Record.check}
}

// Name returns the name of a session of a caller, or "" if it has none.
func (s *Store) Name(c record.Caller, session string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.records[c].Sessions[session].Text
}

// SetName names a session of a caller, without the values of secrets. It counts when it is on disk. An empty name has
// the session shown by its label again. Two sessions may have one name.
func (s *Store) SetName(ctx context.Context, c record.Caller, session, words string, by gitd.Person) error {
	words = clean(s.Git.Secrets.String(words)) // a commit keeps it
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.RLock()
	old, known := s.records[c]
	tip, count := s.tips[c], len(s.records)
	s.mu.RUnlock()
	if old.Sessions[session].Text == words {
		return nil
	}
	r := Record{Caller: c, Sessions: maps.Clone(old.Sessions)}
	if r.Sessions == nil {
		r.Sessions = map[string]Name{}
	}
	if words == "" {
		delete(r.Sessions, session)
	} else {
		r.Sessions[session] = Name{Text: words, By: by, Since: s.Now().UTC().Truncate(time.Second)}
	}
	switch {
	case len(r.Sessions) > maxNames:
		return route.NewProblem(route.KindTooLarge, "%d sessions of %s have a name, which is the most", maxNames, c)
	case !known && count >= maxRecords:
		return route.NewProblem(route.KindTooLarge, "the sessions of %d workspaces have names, which is the most", maxRecords)
	}
	hash, err := s.kept().Write(ctx, r.ref(), r, tip, people.Change{By: by, When: s.Now(),
		Message: "Name the session " + clean(session) + " of " + c.String()})
	if err != nil {
		return fmt.Errorf("cannot keep the name of a session of %s: %w", c, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[c], s.tips[c] = r, hash
	return nil
}
