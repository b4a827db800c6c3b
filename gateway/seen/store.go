package seen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ramus-dev/ramus/gitd"
)

// Kept is how long marks are kept after the last one of their person and place.
const Kept = 90 * 24 * time.Hour

// Bounds of marks.
const (
	maxKeys   = 6000 // files of one person and place; the oldest go first
	maxPlaces = 5000 // of all people; the oldest go first
	maxName   = 500  // bytes of a person, a place or a key
)

// ErrTooLong is the error for a person, a place or a key that is empty or too long.
var ErrTooLong = errors.New("a name is empty or too long")

var bucket = []byte("seen")

// Marks are the parts of one place that a person has looked at. The zero value is nothing.
type Marks struct {
	// Looked is the commit up to which the person has looked at all changes. It is empty if there is none. When is the time of that.
	Looked gitd.Hash `json:"looked,omitempty"`
	When   time.Time `json:"when,omitzero"`
	// Keys are those of the viewed files, the oldest first.
	Keys []string `json:"keys,omitempty"`
	// Changed is the time of the last mark.
	Changed time.Time `json:"changed"`
}

// Viewed returns the set of the keys.
func (m Marks) Viewed() map[string]bool {
	set := make(map[string]bool, len(m.Keys))
	for _, k := range m.Keys {
		set[k] = true
	}
	return set
}

// Store keeps marks in a file. Its fields are its options. All methods are safe for concurrent use.
type Store struct {
	// DB is the file, which must be open. The store has one bucket in it.
	DB *bolt.DB
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

func (s *Store) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

// name returns the name of a person and a place in the file.
func name(person, place string) ([]byte, error) {
	if len(person) > maxName || place == "" || len(place) > maxName {
		return nil, ErrTooLong
	}
	return fmt.Appendf(nil, "%q %s", person, place), nil
}

// Of returns the marks of a person in a place. An entry that cannot be read is none.
func (s *Store) Of(person, place string) (m Marks, err error) {
	id, err := name(person, place)
	if err != nil {
		return m, err
	}
	err = s.DB.View(func(tx *bolt.Tx) error {
		if b := tx.Bucket(bucket); b != nil {
			m = parse(b.Get(id))
		}
		return nil
	})
	return m, err
}

func parse(value []byte) (m Marks) {
	if json.Unmarshal(value, &m) != nil {
		return Marks{}
	}
	return m
}

// View marks a file as viewed by its key, or takes that mark away.
func (s *Store) View(person, place, key string, viewed bool) error {
	if key == "" || len(key) > maxName {
		return ErrTooLong
	}
	return s.change(person, place, func(m *Marks) {
		keys := m.Keys[:0]
		for _, k := range m.Keys {
			if k != key {
				keys = append(keys, k)
			}
		}
		if viewed {
			keys = append(keys, key)
		}
		m.Keys = keys[max(0, len(keys)-maxKeys):]
	})
}

// Look marks all changes up to a commit as seen.
func (s *Store) Look(person, place string, commit gitd.Hash) error {
	return s.change(person, place, func(m *Marks) { m.Looked, m.When = commit, s.now() })
}

func (s *Store) change(person, place string, change func(*Marks)) error {
	id, err := name(person, place)
	if err != nil {
		return err
	}
	return s.DB.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		value := b.Get(id)
		if value == nil {
			if err := sweep(b, s.now()); err != nil {
				return err
			}
		}
		m := parse(value)
		change(&m)
		m.Changed = s.now()
		if value, err = json.Marshal(m); err != nil {
			return err
		}
		return b.Put(id, value)
	})
}

// sweep removes the marks that are too old, and the oldest if there are too many for another one.
func sweep(b *bolt.Bucket, now time.Time) error {
	var old [][]byte
	var oldest []byte
	at, count := now, 0
	err := b.ForEach(func(id, value []byte) error {
		changed := parse(value).Changed
		if now.Sub(changed) > Kept {
			old = append(old, bytes.Clone(id))
			return nil
		}
		if count++; oldest == nil || changed.Before(at) {
			oldest, at = bytes.Clone(id), changed
		}
		return nil
	})
	if err != nil {
		return err
	}
	if count >= maxPlaces {
		old = append(old, oldest)
	}
	for _, id := range old {
		if err := b.Delete(id); err != nil {
			return err
		}
	}
	return nil
}
