package naming

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

const (
	refs = "refs/ramus/names"
	file = "names.json"
)

// Store keeps records in git. Its exported fields are options, which may be changed until [Store.Open]. All methods are
// safe for concurrent use.
type Store struct {
	people.Options

	changing sync.Mutex   // held by SetName and Sweep
	mu       sync.RWMutex // guards all below
	byCaller map[record.Caller]Record
	tips     map[record.Caller]gitd.Hash // also of records that cannot be read
}

// Open reads all records. It leaves out a record that cannot be read, whose sessions have their labels then. The next
// name replaces it.
func (s *Store) Open(ctx context.Context) error {
	s.SetDefaults()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byCaller, s.tips = map[record.Caller]Record{}, map[record.Caller]gitd.Hash{}
	list, err := s.records().Read(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the names of sessions: %w", err)
	}
	for _, k := range list {
		c, ok := callerOf(k.Ref)
		if k.Err != nil {
			s.Log.Error("cannot read the names of sessions", "ref", k.Ref, "err", k.Err)
		}
		if ok {
			s.tips[c] = k.Tip
		}
		if ok && k.Err == nil {
			s.byCaller[c] = Record{Caller: c, Sessions: k.Record.usable()}
		}
	}
	return nil
}

// records returns the records in git.
func (s *Store) records() people.Records[Record] {
	return people.Records[Record]{Options: s.Options, Refs: refs, File: file, Max: maxRecord, Check: Record.check,
		NoHistory: true}
}

// Name returns the name of a session of a caller, or "" if it has none. began is the time at which the session began.
// An earlier session of the same id does not hand its name on.
func (s *Store) Name(c record.Caller, session string, began time.Time) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if n := s.byCaller[c].Sessions[session]; n.isOf(began) {
		return n.Text
	}
	return ""
}

// SetName names a session of a caller, without the values of secrets and without characters that nobody sees. It counts
// when it is on disk. An empty name has the session shown by its label again. began has the sessions of the caller,
// with the times at which they began; the names of all others are removed. The error is a problem if the name is too
// long, or that of another session of the caller.
func (s *Store) SetName(ctx context.Context, c record.Caller, session, words string, began map[string]time.Time,
	by gitd.Person) error {
	words, err := s.scrubbed(words)
	if err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.RLock()
	tip, names, count := s.tips[c], maps.Clone(s.byCaller[c].Sessions), len(s.tips)
	s.mu.RUnlock()
	maps.DeleteFunc(names, func(id string, n Name) bool { at, ok := began[id]; return !ok || !n.isOf(at) })
	if names[session].Text == words {
		return nil
	}
	if names == nil {
		names = map[string]Name{}
	}
	if delete(names, session); words != "" {
		for _, n := range names {
			if strings.EqualFold(n.Text, words) {
				return route.NewProblem(route.KindExists, "another session of %s has the name %q", c, n.Text).
					WithHint("choose another name")
			}
		}
		since := s.Now().UTC()
		if at := began[session]; since.Before(at) { // the clock was set back
			since = at
		}
		names[session] = Name{Text: words, By: short(by), Since: since}
	}
	switch {
	case len(names) > maxNames:
		return route.NewProblem(route.KindTooLarge, "%d sessions of %s have a name, which is the most", maxNames, c).
			WithHint("take the name of another session away")
	case tip == "" && count >= maxRecords:
		return route.NewProblem(route.KindTooLarge, "the sessions of %d workspaces have names, which is the most",
			maxRecords).
			WithHint("`ramus prune runs` removes those of workspaces without runs")
	}
	return s.write(ctx, Record{Caller: c, Sessions: names}, tip, people.Change{By: by, When: s.Now(),
		Message: "Name the session " + text.OneLine(session, 200) + " of " + c.String()})
}

// scrubbed returns a name as it is kept, without the values of secrets.
func (s *Store) scrubbed(words string) (string, error) {
	words, err := clean(s.Git.Secrets.String(words)) // a commit keeps it
	if err != nil {
		return "", err
	}
	// A value may have been in several lines, or have had invisible characters in it.
	return clean(s.Git.Secrets.String(words))
}

// short returns a person within the bounds of a record.
func short(p gitd.Person) gitd.Person {
	for _, field := range []*string{&p.Name, &p.Email, &p.ID} {
		*field = text.OneLine(*field, maxBy-len(text.Ellipsis))
	}
	return p
}

// write keeps a record, and removes one without names. changing is held.
func (s *Store) write(ctx context.Context, r Record, tip gitd.Hash, change people.Change) error {
	if len(r.Sessions) == 0 {
		return s.remove(ctx, r.Caller, tip)
	}
	hash, err := s.records().Write(ctx, refOf(r.Caller), r, tip, change)
	if err != nil {
		return fmt.Errorf("cannot keep the name of a session of %s: %w", r.Caller, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byCaller[r.Caller], s.tips[r.Caller] = r, hash
	return nil
}

// remove removes the record of a caller, if it has one. changing is held.
func (s *Store) remove(ctx context.Context, c record.Caller, tip gitd.Hash) error {
	if tip == "" {
		return nil
	}
	if err := s.records().Remove(ctx, refOf(c), tip); err != nil {
		return fmt.Errorf("cannot remove the names of the sessions of %s: %w", c, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byCaller, c)
	delete(s.tips, c)
	return nil
}

// Pack returns the records of callers, as JSON. Returns nil if there are none.
func (s *Store) Pack(_ string, callers []record.Caller) (json.RawMessage, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []Record
	for _, c := range callers {
		if r, ok := s.byCaller[c]; ok {
			list = append(list, r)
		}
	}
	if list == nil {
		return nil, nil
	}
	return json.Marshal(list)
}

// Unpack keeps the records that another server packed. It replaces those that are here.
func (s *Store) Unpack(ctx context.Context, list json.RawMessage) error {
	var all []Record
	if err := json.Unmarshal(list, &all); err != nil {
		return fmt.Errorf("cannot read the names of sessions: %w", err)
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	for _, r := range all {
		if err := r.check(refOf(r.Caller)); err != nil {
			return err
		}
		r.Sessions = r.usable()
		s.mu.RLock()
		have, tip := s.byCaller[r.Caller], s.tips[r.Caller]
		s.mu.RUnlock()
		if reflect.DeepEqual(have, r) {
			continue
		}
		err := s.write(ctx, r, tip, people.Change{By: s.Committer, When: s.Now(), Message: "Take over the names of the sessions of " + r.Caller.String()})
		if err != nil {
			return err
		}
	}
	return nil
}

// Sweep removes the records of callers that have no runs any more, since a session is a part of its runs. has reports
// whether a caller has runs.
func (s *Store) Sweep(ctx context.Context, has func(record.Caller) bool) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.RLock()
	tips := maps.Clone(s.tips)
	s.mu.RUnlock()
	var err error
	for c, tip := range tips {
		if !has(c) {
			err = errors.Join(err, s.remove(ctx, c, tip))
		}
	}
	return err
}
