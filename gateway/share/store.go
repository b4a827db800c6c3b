package share

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

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
	db       *bolt.DB     // nil means that counts are in memory
	byID     map[string]Record
	tips     map[string]gitd.Hash
	counts   map[string]Count // while there is no db
}

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
	s.byID, s.tips, s.counts = map[string]Record{}, map[string]gitd.Hash{}, map[string]Count{}
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

// CountIn has the counts kept in a file, which must be open. Without it, they end with the process.
func (s *Store) CountIn(db *bolt.DB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db = db
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
	if err := s.makeRoom(ctx); err != nil {
		return err
	}
	return s.put(ctx, r, r.By, "Share "+r.Of())
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
func (s *Store) Count(id string) (n Count, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return s.counts[id], nil
	}
	err = s.db.View(func(tx *bolt.Tx) error {
		if b := tx.Bucket(bucket); b != nil {
			n = parseCount(b.Get([]byte(id)))
		}
		return nil
	})
	return n, err
}

func parseCount(value []byte) (n Count) {
	if json.Unmarshal(value, &n) != nil {
		return Count{}
	}
	return n
}

// countOpening counts that a link was opened.
func (s *Store) countOpening(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now().UTC()
	if s.db == nil {
		s.counts[id] = Count{s.counts[id].Opened + 1, now}
		return nil
	}
	err := s.db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		value, err := json.Marshal(Count{parseCount(b.Get([]byte(id))).Opened + 1, now})
		if err != nil {
			return err
		}
		return b.Put([]byte(id), value)
	})
	return err
}
