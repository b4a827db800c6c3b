package share

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Store keeps records in git, and counts how often links were opened. Its exported fields are options, which may be changed until
// [Store.Open]. All methods are safe for concurrent use.
type Store struct {
	people.Options

	changing sync.Mutex   // held by Make and Revoke
	mu       sync.RWMutex // guards all below
	byID     map[string]Record
	tips     map[string]gitd.Hash
	counts   map[string]Count
	db       *bolt.DB        // keeps the counts; nil keeps them in memory alone
	unkept   map[string]bool // the links whose counts db lacks
	keeping  *time.Timer     // writes them; nil if there are none

	writing sync.Mutex // held while counts are written
}

// keepAfter is the time until a count is on disk, unless somebody asks for it before. A process that is killed loses the openings of that
// time, which nobody was told.
const keepAfter = 5 * time.Second

// Count says how often a link was opened, and when last.
type Count struct {
	Opened int       `json:"opened"`
	Last   time.Time `json:"last,omitzero"`
}

var bucket = []byte("shares")

// Open reads all records. It leaves out a record that cannot be read, whose link does not open then.
func (s *Store) Open(ctx context.Context) error {
	s.SetDefaults()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID, s.tips = map[string]Record{}, map[string]gitd.Hash{}
	s.counts, s.unkept = map[string]Count{}, map[string]bool{}
	list, err := s.records().Read(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the records of links: %w", err)
	}
	for _, k := range list {
		if k.Err != nil {
			s.Log.Error("cannot read the record of a link", "ref", k.Ref, "err", k.Err)
			continue
		}
		s.byID[k.Record.ID], s.tips[k.Record.ID] = k.Record, k.Tip
	}
	return nil
}

// CountIn has the counts kept in a file, which must be open until [Store.Close]. Without it, they end with the process. It removes the
// counts of links that are gone.
func (s *Store) CountIn(db *bolt.DB) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db = db
	err := db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		var gone [][]byte
		err = b.ForEach(func(id, value []byte) error {
			if _, ok := s.byID[string(id)]; ok {
				s.counts[string(id)] = parseCount(value)
			} else {
				gone = append(gone, slices.Clone(id))
			}
			return nil
		})
		for _, id := range gone {
			err = errors.Join(err, b.Delete(id))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot read how often links were opened: %w", err)
	}
	return nil
}

// Close keeps the counts that are not on disk.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.keeping != nil {
		s.keeping.Stop()
	}
	s.mu.Unlock()
	err := s.KeepCounts()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db = nil
	return err
}

func (s *Store) records() people.Records[Record] {
	return people.Records[Record]{Options: s.Options, Refs: refs, File: file, Max: maxRecord, Check: Record.check}
}

// Get returns the record of a link.
func (s *Store) Get(id string) (Record, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.byID[id]
	return r, ok
}

// List returns all records, the newest first.
func (s *Store) List() []Record {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.byID), func(a, b Record) int {
		return cmp.Or(b.Made.Compare(a.Made), strings.Compare(a.ID, b.ID))
	})
}

// put keeps a record. changing is held.
func (s *Store) put(ctx context.Context, r Record, by gitd.Person, message string) error {
	s.mu.RLock()
	tip := s.tips[r.ID]
	s.mu.RUnlock()
	hash, err := s.records().Write(ctx, refOf(r.ID), r, tip, people.Change{By: by, When: s.Now(), Message: message})
	if err != nil {
		return fmt.Errorf("cannot keep the record of a link: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[r.ID], s.tips[r.ID] = r, hash
	return nil
}

// Make keeps the record of a new link.
func (s *Store) Make(ctx context.Context, r Record) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if err := s.checkMost(r.By); err != nil {
		return err
	}
	if err := s.makeRoom(ctx); err != nil {
		return err
	}
	return s.put(ctx, r, r.By, "Share "+r.Of())
}

// Pack returns the records of a repository with their counts, as JSON. Returns nil if there are none.
func (s *Store) Pack(repo string, _ []record.Caller) (json.RawMessage, error) {
	var list []packed
	for _, r := range s.List() {
		if r.Repo == repo {
			list = append(list, packed{r, s.Count(r.ID)})
		}
	}
	if list == nil {
		return nil, nil
	}
	return json.Marshal(list)
}

// packed is a record on its way to another replica.
type packed struct {
	Record
	Count
}

// Unpack keeps the records that another replica packed. It replaces those that are here.
func (s *Store) Unpack(ctx context.Context, list json.RawMessage) error {
	var all []packed
	if err := json.Unmarshal(list, &all); err != nil {
		return fmt.Errorf("cannot read the records of links: %w", err)
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	for _, p := range all {
		if err := p.check(refOf(p.ID)); err != nil {
			return err
		}
		if have, ok := s.Get(p.ID); !ok || !reflect.DeepEqual(have, p.Record) {
			if err := s.makeRoom(ctx); err != nil && !ok {
				return err
			}
			if err := s.put(ctx, p.Record, p.By, "Take over the link to "+p.Of()); err != nil {
				return err
			}
		}
		s.mu.Lock()
		if s.counts[p.ID].Opened < p.Opened {
			s.counts[p.ID] = p.Count
			s.keepSoon(p.ID)
		}
		s.mu.Unlock()
	}
	return nil
}

// checkMost returns a problem if a person has as many open links as one may have.
func (s *Store) checkMost(by gitd.Person) error {
	open := 0
	for _, r := range s.List() {
		if r.By.ID == by.ID && r.By.Email == by.Email && r.Open(s.Now()) {
			open++
		}
	}
	if open >= maxOpen {
		return route.NewProblem(route.KindTooLarge, "you have %d open links, which is the most of one person", open).
			WithHint("revoke some of them")
	}
	return nil
}

// makeRoom removes the records of links that have ended if there are too many. changing is held.
func (s *Store) makeRoom(ctx context.Context) error {
	list := s.List()
	if len(list) < maxRecords {
		return nil
	}
	left := len(list)
	for _, r := range list {
		if r.Open(s.Now()) {
			continue
		}
		s.mu.RLock()
		tip := s.tips[r.ID]
		s.mu.RUnlock()
		if err := s.records().Remove(ctx, refOf(r.ID), tip); err != nil {
			return fmt.Errorf("cannot remove the record of a link: %w", err)
		}
		s.mu.Lock()
		delete(s.byID, r.ID)
		delete(s.tips, r.ID)
		delete(s.counts, r.ID)
		s.keepSoon(r.ID)
		s.mu.Unlock()
		left--
	}
	if left >= maxRecords {
		return route.NewProblem(route.KindTooLarge, "there are %d links, which is the most", left).WithHint("revoke some of them")
	}
	return nil
}

// Revoke ends a link. The link opens no more when Revoke returns. A second call does nothing.
func (s *Store) Revoke(ctx context.Context, id string, by gitd.Person) (Record, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	r, ok := s.Get(id)
	if !ok {
		return r, route.NotFound("link", id)
	}
	if !r.Revoked.IsZero() {
		return r, nil
	}
	r.Revoked, r.RevokedBy = s.Now().UTC(), &by
	return r, s.put(ctx, r, by, "Revoke the link to "+r.Of())
}

// Count returns how often a link was opened.
func (s *Store) Count(id string) Count {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.counts[id]
}

func parseCount(value []byte) (n Count) {
	if json.Unmarshal(value, &n) != nil {
		return Count{}
	}
	return n
}

// countOpening counts that a link was opened.
func (s *Store) countOpening(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.byID[id]; ok {
		s.counts[id] = Count{s.counts[id].Opened + 1, s.Now().UTC()}
		s.keepSoon(id)
	}
}

// keepSoon has the count of a link written after a while. mu is held.
func (s *Store) keepSoon(id string) {
	if s.db == nil {
		return
	}
	s.unkept[id] = true
	if s.keeping == nil {
		s.keeping = time.AfterFunc(keepAfter, func() {
			if err := s.KeepCounts(); err != nil {
				s.Log.Error("cannot keep how often links were opened", "err", err)
			}
		})
	}
}

// KeepCounts writes the counts that the file lacks. It is called before a count is shown. People who open links do not wait for the disk.
func (s *Store) KeepCounts() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	db, counts := s.db, map[string]Count{}
	for id := range s.unkept {
		counts[id] = s.counts[id]
	}
	clear(s.unkept)
	s.keeping = nil
	s.mu.Unlock()
	if db == nil || len(counts) == 0 {
		return nil
	}
	err := db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucket)
		for id, n := range counts {
			if err != nil {
				return err
			}
			if n.Opened == 0 {
				err = b.Delete([]byte(id))
				continue
			}
			var value []byte
			if value, err = json.Marshal(n); err == nil {
				err = b.Put([]byte(id), value)
			}
		}
		return err
	})
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id := range counts {
			s.unkept[id] = true // the next opening tries it once more
		}
	}
	return err
}
