// Package index is the cache of all runs, a file that can be deleted at any time and is rebuilt from the refs.
package index

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
	bolt "go.etcd.io/bbolt"
)

// The buckets of the file. runs holds every run. claims holds the keys of runs whose ref is about to be made. After a crash the
// executor looks for their refs. meta holds wholeKey, with the id of the machine's boot, once the refs were read into the file. An
// index without it is new, or was emptied, or was last written before the machine's last boot.
var (
	runsBucket, claimsBucket, metaBucket = []byte("runs"), []byte("claims"), []byte("meta")
	wholeKey                             = []byte("whole")
)

// ErrDamaged means that an entry of the file does not have its checksum, or that the file cannot be read.
var ErrDamaged = errors.New("index is damaged")

// Index is a cache of all runs. It holds nothing that the refs do not. Each value is the run.json of a run's ref after a checksum,
// since bbolt checks only its own meta pages and would return damaged values. The file is read once. Lists are answered from memory.
// Methods may be called concurrently.
//
// The file is not synced, which would cost each claim four waits for the disk. A process that is killed loses nothing. After a boot
// of the machine, Open reports the index as fresh, and it is rebuilt from the refs, which are on disk.
type Index struct {
	path string

	file sync.Mutex // held from a change of db until memory has it; locked before mu
	db   *bolt.DB

	mu    sync.RWMutex // guards all below
	runs  map[string]record.Run
	keys  []string                   // of runs, sorted
	named map[string]string          // the latest key of each Run.Name
	of    map[record.Caller][]string // the keys of a caller's runs, in the order of Put
}

// Open opens the index at path, or makes it. fresh means that it must be rebuilt. The error is an [ErrDamaged] or one of bbolt's if
// the file is damaged. Load or Rebuild must be called next.
func Open(path string) (ix *Index, fresh bool, err error) {
	ix = &Index{path: path}
	if err := ix.open(); err != nil {
		return nil, false, err
	}
	err = guard(func() error {
		return ix.db.View(func(tx *bolt.Tx) error {
			fresh = !bytes.Equal(tx.Bucket(metaBucket).Get(wholeKey), durable.BootID())
			return nil
		})
	})
	return ix, fresh, err
}

func (ix *Index) open() error {
	err := guard(func() (err error) {
		ix.db, err = bolt.Open(ix.path, 0o600, &bolt.Options{Timeout: 5 * time.Second, NoSync: true})
		if err != nil {
			return err
		}
		return ix.db.Update(func(tx *bolt.Tx) error {
			for _, name := range [][]byte{runsBucket, claimsBucket, metaBucket} {
				if _, err := tx.CreateBucketIfNotExists(name); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("cannot open index %s: %w", ix.path, err)
	}
	return nil
}

// guard turns a panic of bbolt, which a damaged file can cause, into an ErrDamaged.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return f()
}

func runKey(repo string, c record.Caller, run string) []byte {
	return []byte(repo + "\x00" + c.Slug() + "\x00" + run)
}

func seal32(v []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(v)), v...)
}

func unseal32(v []byte) ([]byte, error) {
	if len(v) < 4 || binary.BigEndian.Uint32(v) != crc32.ChecksumIEEE(v[4:]) {
		return nil, ErrDamaged
	}
	return v[4:], nil
}

// update changes the file, and then memory by remember, unless remember is nil. It holds ix.file for both, because bbolt starts the
// next writer before Update returns, and memory would change in another order than the file.
func (ix *Index) update(change func(*bolt.Tx) error, remember func()) error {
	ix.file.Lock()
	defer ix.file.Unlock()
	if err := guard(func() error { return ix.db.Update(change) }); err != nil {
		return fmt.Errorf("cannot write index: %w", err)
	}
	if remember != nil {
		ix.mu.Lock()
		defer ix.mu.Unlock()
		remember()
	}
	return nil
}

// Put adds or replaces runs, and forgets their claims.
func (ix *Index) Put(runs ...record.Run) error {
	return ix.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(runsBucket)
		for _, r := range runs {
			v, err := json.Marshal(r)
			if err != nil {
				return err
			}
			key := runKey(r.Repo, r.Caller, r.ID)
			if err := errors.Join(b.Put(key, seal32(v)), tx.Bucket(claimsBucket).Delete(key)); err != nil {
				return err
			}
		}
		return nil
	}, func() { ix.remember(runs) })
}

// Remove removes runs whose refs are gone.
func (ix *Index) Remove(runs ...record.Run) error {
	if len(runs) == 0 {
		return nil
	}
	return ix.update(func(tx *bolt.Tx) error {
		for _, r := range runs {
			if err := tx.Bucket(runsBucket).Delete(runKey(r.Repo, r.Caller, r.ID)); err != nil {
				return err
			}
		}
		return nil
	}, func() { ix.forget(runs) })
}

// forget is the opposite of remember. The caller holds mu.
func (ix *Index) forget(runs []record.Run) {
	for _, r := range runs {
		key := string(runKey(r.Repo, r.Caller, r.ID))
		if _, known := ix.runs[key]; !known {
			continue
		}
		delete(ix.runs, key)
		if at, found := slices.BinarySearch(ix.keys, key); found {
			ix.keys = slices.Delete(ix.keys, at, at+1)
		}
		ix.of[r.Caller] = slices.DeleteFunc(ix.of[r.Caller], func(k string) bool { return k == key })
		if len(ix.of[r.Caller]) == 0 {
			delete(ix.of, r.Caller)
		}
		if ix.named[r.Name()] != key {
			continue
		}
		delete(ix.named, r.Name())
		for _, k := range ix.of[r.Caller] { // the same name in another repository
			if ix.runs[k].ID == r.ID {
				ix.named[r.Name()] = k
			}
		}
	}
}

// Claim notes that a run's ref is about to be made.
func (ix *Index) Claim(r record.Run) error {
	return ix.update(func(tx *bolt.Tx) error {
		return tx.Bucket(claimsBucket).Put(runKey(r.Repo, r.Caller, r.ID), nil)
	}, nil)
}

// Claimed returns repository and ref of each claim without a run, and forgets the claims.
func (ix *Index) Claimed() (refs [][2]string, err error) {
	err = ix.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(claimsBucket)
		err := b.ForEach(func(k, _ []byte) error {
			if parts := strings.Split(string(k), "\x00"); len(parts) == 3 {
				refs = append(refs, [2]string{parts[0], record.RunsPrefix + "/" + parts[1] + "/" + parts[2]})
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := tx.DeleteBucket(claimsBucket); err != nil {
			return err
		}
		_, err = tx.CreateBucket(claimsBucket)
		return err
	}, nil)
	return refs, err
}

// Load reads every run of the file into memory. The error is an [ErrDamaged] if one is damaged.
func (ix *Index) Load() error {
	var found []record.Run
	err := guard(func() error {
		return ix.db.View(func(tx *bolt.Tx) error {
			return tx.Bucket(runsBucket).ForEach(func(_, v []byte) error {
				v, err := unseal32(v)
				if err != nil {
					return err
				}
				var r record.Run
				if err := json.Unmarshal(v, &r); err != nil {
					return fmt.Errorf("%w: %w", ErrDamaged, err)
				}
				found = append(found, r)
				return nil
			})
		})
	})
	if err != nil {
		return err
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.runs, ix.keys, ix.named, ix.of = nil, nil, nil, nil
	ix.remember(found)
	return nil
}

// remember takes runs into memory. The caller holds mu.
func (ix *Index) remember(runs []record.Run) {
	if ix.runs == nil {
		ix.runs, ix.named, ix.of = make(map[string]record.Run), make(map[string]string), make(map[record.Caller][]string)
	}
	for _, r := range runs {
		key := string(runKey(r.Repo, r.Caller, r.ID))
		if _, known := ix.runs[key]; !known {
			at, _ := slices.BinarySearch(ix.keys, key)
			ix.keys = slices.Insert(ix.keys, at, key)
			ix.of[r.Caller] = append(ix.of[r.Caller], key)
		}
		ix.runs[key] = r
		ix.named[r.Name()] = key
	}
}

// All returns all runs in the order of repository, caller and id.
func (ix *Index) All() []record.Run {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	runs := make([]record.Run, len(ix.keys))
	for i, key := range ix.keys {
		runs[i] = ix.runs[key]
	}
	return runs
}

// Get returns the run of a caller by its id, in any repository. ok is false if there is none.
func (ix *Index) Get(c record.Caller, id string) (r record.Run, ok bool) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	r, ok = ix.runs[ix.named[c.String()+"/"+id]]
	return r, ok
}

// OfCaller returns the runs of a caller in the order in which they were put.
func (ix *Index) OfCaller(c record.Caller) []record.Run {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	runs := make([]record.Run, len(ix.of[c]))
	for i, key := range ix.of[c] {
		runs[i] = ix.runs[key]
	}
	return runs
}

// Rebuild replaces the file by a new one with the runs that there returns, and returns their number. It holds ix.file, since a run
// that is claimed before its ref is read would otherwise be in neither file.
func (ix *Index) Rebuild(there func() ([]record.Run, error)) (int, error) {
	ix.file.Lock()
	defer ix.file.Unlock()
	runs, err := there()
	if err != nil {
		return 0, err
	}
	next := &Index{path: ix.path + ".new"}
	if err := os.Remove(next.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("cannot rebuild index: %w", err)
	}
	if err := next.open(); err != nil {
		return 0, err
	}
	if err := next.Put(runs...); err != nil {
		return 0, err
	}
	whole := func(tx *bolt.Tx) error {
		return errors.Join(tx.Bucket(metaBucket).Put(wholeKey, durable.BootID()), ix.copyClaims(tx.Bucket(claimsBucket)))
	}
	if err := errors.Join(next.db.Update(whole), next.db.Close(), guard(ix.db.Close)); err != nil {
		return 0, fmt.Errorf("cannot rebuild index: %w", err)
	}
	if err := os.Rename(next.path, ix.path); err != nil {
		return 0, fmt.Errorf("cannot rebuild index: %w", err)
	}
	if err := ix.open(); err != nil {
		return 0, err
	}
	return len(runs), ix.Load()
}

// copyClaims copies the claims, whose refs may be made at this moment. A damaged file has no claims that matter, since its process
// has ended and all refs were read.
func (ix *Index) copyClaims(to *bolt.Bucket) error {
	err := guard(func() error {
		return ix.db.View(func(tx *bolt.Tx) error {
			return tx.Bucket(claimsBucket).ForEach(func(k, _ []byte) error { return to.Put(k, nil) })
		})
	})
	if errors.Is(err, ErrDamaged) {
		return nil
	}
	return err
}

// Close closes the file.
func (ix *Index) Close() error {
	ix.file.Lock()
	defer ix.file.Unlock()
	return guard(ix.db.Close)
}

// ReadRuns reads all runs of all repositories from their refs.
func ReadRuns(ctx context.Context, git *gitd.Server) ([]record.Run, error) {
	repos, err := git.Repos(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read runs: %w", err)
	}
	var runs []record.Run
	for _, repo := range repos {
		some, err := RunsOf(ctx, repo)
		if err != nil {
			return nil, err
		}
		runs = append(runs, some...)
	}
	return runs, nil
}

// RunsOf reads all runs of one repository from their refs.
func RunsOf(ctx context.Context, repo *gitd.Repo) ([]record.Run, error) {
	refs, err := repo.Refs(ctx, record.RunsPrefix)
	if err != nil {
		return nil, fmt.Errorf("cannot read runs of %s: %w", repo.Name(), err)
	}
	var runs []record.Run
	for _, ref := range refs {
		r, err := ReadRun(ctx, repo, ref)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// ReadRun reads the run of a ref.
func ReadRun(ctx context.Context, repo *gitd.Repo, ref gitd.Ref) (record.Run, error) {
	text, err := repo.ReadFile(ctx, string(ref.Hash), "run.json", 4<<20)
	if err != nil {
		return record.Run{}, fmt.Errorf("cannot read run %s of %s: %w", ref.Name, repo.Name(), err)
	}
	var r record.Run
	if err := json.Unmarshal(text, &r); err != nil {
		return record.Run{}, fmt.Errorf("cannot read run %s of %s: %w", ref.Name, repo.Name(), err)
	}
	if r.Repo != repo.Name() {
		r.Repo, r.Record = repo.Name(), renamed(r.Record, repo.Name())
	}
	return r, nil
}

// renamed returns the record of a conversation in a repository that got another name. Other records stay as they are.
func renamed(rec json.RawMessage, name string) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(rec, &fields) != nil || fields["repo"] == nil {
		return rec
	}
	text, err := json.Marshal(name)
	if err != nil {
		return rec
	}
	fields["repo"] = text
	if text, err = json.Marshal(fields); err != nil {
		return rec
	}
	return text
}
