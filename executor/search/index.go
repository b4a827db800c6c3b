package search

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/durable"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// MaxText bounds the text of all runs that is indexed, in bytes. The runs that were created first are left out.
const MaxText = 8 << 30

// searchTime is the time after which a search returns its hits, and the place where the next one goes on.
const searchTime = 2 * time.Second

// ErrDamaged means that the file is damaged. [Open] makes a new one.
var ErrDamaged = errors.New("search index is damaged")

// The buckets of the file. runs holds an entry for each run by its name. order holds the names by the keys of the runs, which begin with the
// time of their creation. signatures and chunks hold those of chunks by chunkKey. meta holds bootKey, the id of the machine's boot.
var (
	runsBucket, orderBucket, signaturesBucket, chunksBucket, metaBucket = []byte("runs"), []byte("order"), []byte("signatures"),
		[]byte("chunks"), []byte("meta")
	bootKey = []byte("boot")
)

// entry is the state of a run in the index.
type entry struct {
	Version string `json:"version"`
	Key     []byte `json:"key"` // begins the keys of its chunks
	Bytes   int64  `json:"bytes"`
	Cut     bool   `json:"cut,omitempty"`
}

// Source has the runs that are indexed.
type Source interface {
	// Version returns a text that differs if the passages of a run do.
	Version(ctx context.Context, r record.Run) (string, error)
	// Read gives the passages of a run to a builder.
	Read(ctx context.Context, r record.Run, b *Builder) error
}

// Index is a cache of the texts of runs. Methods may be called concurrently. The file is not synced. It is made again after a boot of the
// machine.
type Index struct {
	path string

	refresh sync.Mutex   // held by Refresh
	mu      sync.RWMutex // guards db; read-locked while it is used
	db      *bolt.DB
}

// Open opens the index at path, or makes it. A damaged file is replaced.
func Open(path string) (*Index, error) {
	ix := &Index{path: path}
	err := ix.open()
	if errors.Is(err, ErrDamaged) {
		err = ix.replace()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the search index: %w", err)
	}
	return ix, nil
}

func (ix *Index) open() error {
	db, err := bolt.Open(ix.path, 0o600, &bolt.Options{Timeout: 5 * time.Second, NoSync: true, NoFreelistSync: true})
	if err != nil {
		if errors.Is(err, bolterrors.ErrTimeout) || errors.Is(err, os.ErrPermission) {
			return err
		}
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	err = guard(func() error {
		return db.Update(func(tx *bolt.Tx) error {
			for _, name := range [][]byte{runsBucket, orderBucket, signaturesBucket, chunksBucket, metaBucket} {
				if _, err := tx.CreateBucketIfNotExists(name); err != nil {
					return err
				}
			}
			boot := tx.Bucket(metaBucket).Get(bootKey)
			if boot != nil && !bytes.Equal(boot, durable.BootID()) {
				return fmt.Errorf("%w: it was written before the machine's last boot", ErrDamaged)
			}
			return tx.Bucket(metaBucket).Put(bootKey, durable.BootID())
		})
	})
	if err != nil {
		return errors.Join(err, db.Close())
	}
	ix.db = db
	return nil
}

// replace makes the index again, empty. mu is held, or nobody else has the index.
func (ix *Index) replace() error {
	if ix.db != nil {
		_ = guard(ix.db.Close) // what it says about a damaged file is of no use
		ix.db = nil
	}
	if err := os.Remove(ix.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return ix.open()
}

// Close closes the index. No other method may be called after it.
func (ix *Index) Close() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.db == nil {
		return nil
	}
	db := ix.db
	ix.db = nil
	return guard(db.Close)
}

// use calls f with the file. A damaged file is replaced after it.
func (ix *Index) use(f func(db *bolt.DB) error) error {
	ix.mu.RLock()
	db := ix.db
	if db == nil {
		ix.mu.RUnlock()
		return record.ErrClosed
	}
	err := guard(func() error { return f(db) })
	ix.mu.RUnlock()
	if errors.Is(err, ErrDamaged) {
		ix.mu.Lock()
		defer ix.mu.Unlock()
		if ix.db == db {
			err = errors.Join(err, ix.replace())
		}
	}
	return err
}

// Refresh brings the index up to date with the runs, the newest first, and removes runs that are not among them. It calls behind, which may
// be nil, with the number of runs that are left. One call works at a time. Others wait for it. A run that cannot be read is left as it is;
// the error names it.
func (ix *Index) Refresh(ctx context.Context, runs []record.Run, from Source, behind func(n int)) error {
	ix.refresh.Lock()
	defer ix.refresh.Unlock()
	if behind == nil {
		behind = func(int) {}
	}
	have := map[string]entry{}
	err := ix.use(func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error {
			return tx.Bucket(runsBucket).ForEach(func(name, value []byte) error {
				e, err := parseEntry(value)
				have[string(name)] = e
				return err
			})
		})
	})
	if err != nil {
		return fmt.Errorf("cannot read the search index: %w", err)
	}
	runs = slices.Clone(runs)
	slices.SortFunc(runs, func(a, b record.Run) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Name(), b.Name()))
	})
	type work struct {
		run     record.Run
		version string
	}
	var (
		list  []work
		errs  []error
		total int64
	)
	for _, r := range runs {
		version, err := from.Version(ctx, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Name(), err))
		} else if e, ok := have[r.Name()]; !ok || e.Version != version {
			list = append(list, work{r, version})
		}
		total += have[r.Name()].Bytes
		delete(have, r.Name())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	behind(len(list))
	for name := range have {
		if err := ix.remove(name); err != nil {
			return err
		}
	}
	for i, w := range list {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if total >= MaxText {
			behind(0)
			break
		}
		n, err := ix.add(ctx, w.run, w.version, from)
		if total += n; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", w.run.Name(), err))
		}
		behind(len(list) - i - 1)
	}
	if len(errs) > 0 {
		return fmt.Errorf("cannot index %d runs: %w", len(errs), errs[0])
	}
	return nil
}

func parseEntry(value []byte) (e entry, err error) {
	if err := json.Unmarshal(value, &e); err != nil || len(e.Key) != runKeyBytes {
		return e, fmt.Errorf("%w: a run has no entry", ErrDamaged)
	}
	return e, nil
}

// runKeyBytes is the length of the key of a run: its time in nanoseconds, and a number that no other run has.
const runKeyBytes = 16

// batch bounds the chunks that are written at once, in bytes.
const batch = 4 << 20

// add replaces the text of a run, and returns the bytes of its text. Until it is complete, the run has an entry without a version.
func (ix *Index) add(ctx context.Context, r record.Run, version string, from Source) (int64, error) {
	if err := ix.remove(r.Name()); err != nil {
		return 0, err
	}
	e := entry{}
	put := func(tx *bolt.Tx) error {
		value, err := json.Marshal(e)
		if err != nil {
			return err
		}
		return errors.Join(tx.Bucket(orderBucket).Put(e.Key, []byte(r.Name())), tx.Bucket(runsBucket).Put([]byte(r.Name()), value))
	}
	err := ix.update(func(tx *bolt.Tx) error {
		n, err := tx.Bucket(orderBucket).NextSequence()
		if err != nil {
			return err
		}
		at := uint64(max(0, r.CreatedAt.UnixNano()))
		e.Key = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, at), n)
		return put(tx)
	})
	if err != nil {
		return 0, err
	}

	type row struct{ signature, encoded []byte }
	var (
		rows    []row
		size    int
		written uint32
	)
	write := func(then func(tx *bolt.Tx) error) error {
		list, first := rows, written
		rows, size, written = nil, 0, written+uint32(len(rows))
		return ix.update(func(tx *bolt.Tx) error {
			for i, x := range list {
				key := chunkKey(e.Key, first+uint32(i))
				if err := errors.Join(tx.Bucket(signaturesBucket).Put(key, x.signature), tx.Bucket(chunksBucket).Put(key, x.encoded)); err != nil {
					return err
				}
			}
			return then(tx)
		})
	}
	b := newBuilder(func(signature, encoded []byte) error {
		rows = append(rows, row{signature, encoded})
		if size += len(signature) + len(encoded); size < batch {
			return ctx.Err()
		}
		return write(func(*bolt.Tx) error { return nil })
	})
	if err := errors.Join(from.Read(ctx, r, b), b.flush()); err != nil {
		return 0, err
	}
	e.Version, e.Bytes, e.Cut = version, b.bytes, b.cut
	return b.bytes, write(put)
}

// remove removes a run.
func (ix *Index) remove(name string) error {
	return ix.update(func(tx *bolt.Tx) error {
		value := tx.Bucket(runsBucket).Get([]byte(name))
		if value == nil {
			return nil
		}
		e, err := parseEntry(value)
		if err != nil {
			return err
		}
		for _, bucket := range [][]byte{signaturesBucket, chunksBucket} {
			c := tx.Bucket(bucket).Cursor()
			for k, _ := c.Seek(e.Key); bytes.HasPrefix(k, e.Key); k, _ = c.Next() {
				if err := c.Delete(); err != nil {
					return err
				}
			}
		}
		return errors.Join(tx.Bucket(orderBucket).Delete(e.Key), tx.Bucket(runsBucket).Delete([]byte(name)))
	})
}

func (ix *Index) update(change func(tx *bolt.Tx) error) error {
	err := ix.use(func(db *bolt.DB) error { return db.Update(change) })
	if err != nil {
		return fmt.Errorf("cannot write the search index: %w", err)
	}
	return nil
}

// Find returns the lines that have the words of a query. find returns the record of a run by its name, and false if it is not there any more.
// The error is an [ErrQuery] if the query cannot be answered. A search that takes longer than two seconds ends with the hits that it has.
func (ix *Index) Find(ctx context.Context, q Query, find func(name string) (record.Run, bool)) (Answer, error) {
	p, err := q.plan()
	if err != nil {
		return Answer{}, err
	}
	from, err := hex.DecodeString(q.After)
	if err != nil || len(from) != 0 && len(from) != runKeyBytes {
		return Answer{}, fmt.Errorf("%w: %.80q is not the place of an earlier answer", ErrQuery, q.After)
	}
	a := Answer{Hits: []Hit{}}
	err = ix.use(func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error {
			s := scan{tx: tx, plan: p, query: q, answer: &a, most: cmp.Or(q.Max, DefaultHits), until: time.Now().Add(searchTime)}
			return s.runs(ctx, from, find)
		})
	})
	if err != nil {
		return Answer{}, fmt.Errorf("cannot search: %w", err)
	}
	return a, nil
}

// PlaceOf returns an [Answer.Next] for the runs that were created at a time or before it. It is good at each replica.
func PlaceOf(t time.Time) string {
	return hex.EncodeToString(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(max(0, t.UnixNano()))), math.MaxUint64))
}

// TimeOf returns the time of an [Answer.Next]. It returns false if there is none.
func TimeOf(place string) (time.Time, bool) {
	key, err := hex.DecodeString(place)
	if err != nil || len(key) != runKeyBytes {
		return time.Time{}, false
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(key))).UTC(), true
}

// scan answers one query in one transaction.
type scan struct {
	tx     *bolt.Tx
	plan   plan
	query  Query
	answer *Answer
	most   int
	until  time.Time
}

// runs searches the runs from one on, the newest first.
func (s *scan) runs(ctx context.Context, from []byte, find func(name string) (record.Run, bool)) error {
	c := s.tx.Bucket(orderBucket).Cursor()
	key, name := c.Last()
	if len(from) > 0 {
		if key, name = c.Seek(from); key == nil {
			key, name = c.Last()
		} else if !bytes.Equal(key, from) {
			key, name = c.Prev()
		}
	}
	for ; key != nil; key, name = c.Prev() {
		r, ok := find(string(name))
		if !ok || !s.wants(r) {
			continue
		}
		if len(s.answer.Hits) >= s.most || time.Now().After(s.until) {
			s.answer.Next = hex.EncodeToString(key)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e, err := parseEntry(s.tx.Bucket(runsBucket).Get(name))
		if err != nil {
			return err
		}
		if e.Cut {
			s.answer.Cut++
		}
		if err := s.run(r, key); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) wants(r record.Run) bool {
	q := s.query
	return (q.Repo == "" || r.Repo == q.Repo) && (q.Caller == "" || r.Caller.Is(q.Caller)) && (q.Run == "" || r.Name() == q.Run) &&
		(q.Sees == nil || q.Sees(r))
}

// run searches the chunks of one run.
func (s *scan) run(r record.Run, key []byte) error {
	left := hitsEachRun
	if s.query.Run != "" {
		left = s.most
	}
	chunks := s.tx.Bucket(chunksBucket)
	c := s.tx.Bucket(signaturesBucket).Cursor()
	for k, signature := c.Seek(key); bytes.HasPrefix(k, key); k, signature = c.Next() {
		if !mayHave(signature, s.plan.grams) {
			continue
		}
		one, err := decodeChunk(chunks.Get(k))
		if err != nil {
			return err
		}
		s.plan.find(one, func(p Passage, line int64, text string) bool {
			if left--; left < 0 {
				return false
			}
			s.answer.Hits = append(s.answer.Hits, Hit{Run: r.Name(), Caller: r.Caller.String(), Repo: r.Repo, Passage: p, Line: line, Text: text})
			return true
		})
		if left < 0 || time.Now().After(s.until) {
			s.answer.More = append(s.answer.More, r.Name())
			return nil
		}
	}
	return nil
}

// guard turns a panic of bbolt, which a damaged file can cause, into an [ErrDamaged].
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return f()
}
