package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

var sessionsBucket = []byte("sessions")

// OpenFile opens the file of sessions, or makes it. A file that cannot be read is kept under another name, since its
// loss only has people sign in again. lost is then the reason.
func OpenFile(path string) (db *bolt.DB, lost, err error) {
	open := func() (db *bolt.DB, err error) {
		err = guard(func() (err error) {
			db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: 5 * time.Second})
			if err != nil {
				return err
			}
			return errors.Join(db.View(func(tx *bolt.Tx) error {
				for problem := range tx.Check() {
					err = errors.Join(err, problem)
				}
				return nil
			}), err)
		})
		if err != nil && db != nil {
			_ = db.Close() // the first error counts
		}
		return db, err
	}
	if db, err = open(); err == nil {
		return db, nil, nil
	}
	var access *fs.PathError
	if errors.Is(err, berrors.ErrTimeout) || errors.As(err, &access) {
		return nil, nil, fmt.Errorf("cannot open the file of sessions: %w", err)
	}
	lost = err
	if err := os.Rename(path, path+".damaged"); err != nil {
		return nil, nil, fmt.Errorf("cannot put aside the damaged file of sessions: %w", err)
	}
	if db, err = open(); err != nil {
		return nil, nil, fmt.Errorf("cannot make a file of sessions: %w", err)
	}
	return db, lost, nil
}

// guard returns a panic of bbolt, which reads damaged pages as they are, as an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the file is damaged: %v", v)
		}
	}()
	return f()
}

// readAll returns all sessions of the file. An entry that cannot be read is left out.
func (s *Store) readAll() (list []*kept, err error) {
	err = guard(func() error {
		return s.DB.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(sessionsBucket)
			if err != nil {
				return err
			}
			return b.ForEach(func(key, value []byte) error {
				k := new(kept)
				if json.Unmarshal(value, k) == nil && string(k.Family) == string(key) && k.ID != "" {
					k.written = k.Used
					list = append(list, k)
				}
				return nil
			})
		})
	})
	return list, err
}

func (s *Store) write(k *kept) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return guard(func() error {
		return s.DB.Update(func(tx *bolt.Tx) error { return tx.Bucket(sessionsBucket).Put(k.Family, text) })
	})
}

func (s *Store) remove(k *kept) error {
	return guard(func() error {
		return s.DB.Update(func(tx *bolt.Tx) error { return tx.Bucket(sessionsBucket).Delete(k.Family) })
	})
}
