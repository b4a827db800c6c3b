package comment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ramus-dev/ramus/executor/anchor"
)

// Bounds of drafts.
const (
	MaxDrafts = 100 // of one person in one place
	maxPlaces = 5000
	draftsFor = 180 * 24 * time.Hour // after the last change
)

// Draft is a comment that only its author sees.
type Draft struct {
	ID string `json:"id"`
	// Thread is the thread that the draft is an answer in. Empty means that it begins one, at Anchor.
	Thread string         `json:"thread,omitempty"`
	Anchor *anchor.Anchor `json:"anchor,omitempty"`
	Text   string         `json:"text"`
	Time   time.Time      `json:"time"`
}

// errDrafts is the error for too many drafts.
var errDrafts = errors.New("there are too many drafts")

var bucket = []byte("drafts")

// Drafts keeps drafts in a file. All methods are safe for concurrent use.
type Drafts struct {
	// DB is the file, which must be open. The drafts have one bucket in it.
	DB *bolt.DB
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// drafted is the value of one person and place.
type drafted struct {
	Changed time.Time `json:"changed"`
	Drafts  []Draft   `json:"drafts"`
}

func (d *Drafts) now() time.Time {
	if d.Now == nil {
		return time.Now()
	}
	return d.Now()
}

func draftKey(person, place string) []byte { return fmt.Appendf(nil, "%q %s", person, place) }

// Of returns the drafts of a person in a place, the oldest first.
func (d *Drafts) Of(person, place string) (list []Draft, err error) {
	err = d.DB.View(func(tx *bolt.Tx) error {
		if b := tx.Bucket(bucket); b != nil {
			list = parseDrafts(b.Get(draftKey(person, place))).Drafts
		}
		return nil
	})
	return list, err
}

func parseDrafts(value []byte) (x drafted) {
	if json.Unmarshal(value, &x) != nil {
		return drafted{}
	}
	return x
}

// Change changes the drafts of a person in a place. They are on disk when it returns.
func (d *Drafts) Change(person, place string, change func([]Draft) ([]Draft, error)) error {
	return d.DB.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		key := draftKey(person, place)
		value := b.Get(key)
		if value == nil {
			if err := d.sweep(b); err != nil {
				return err
			}
		}
		list, err := change(slices.Clone(parseDrafts(value).Drafts))
		switch {
		case err != nil:
			return err
		case len(list) > MaxDrafts:
			return errDrafts
		case len(list) == 0:
			return b.Delete(key)
		}
		if value, err = json.Marshal(drafted{d.now(), list}); err != nil {
			return err
		}
		return b.Put(key, value)
	})
}

// sweep removes the drafts that nobody has changed for long. Returns an error if there are too many places.
func (d *Drafts) sweep(b *bolt.Bucket) error {
	var old [][]byte
	count := 0
	err := b.ForEach(func(key, value []byte) error {
		if count++; d.now().Sub(parseDrafts(value).Changed) > draftsFor {
			old = append(old, bytes.Clone(key))
		}
		return nil
	})
	for _, key := range old {
		if err == nil {
			err = b.Delete(key)
		}
	}
	if err == nil && count-len(old) >= maxPlaces {
		err = errDrafts
	}
	return err
}
