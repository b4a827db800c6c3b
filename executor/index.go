package executor

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
	bolt "go.etcd.io/bbolt"
)

// runsPrefix is where every run has its ref: refs/ramus/runs/CALLER/RUN.
const runsPrefix = "refs/ramus/runs"

// runs holds every run. claims holds the keys of runs whose ref is about to be
// made: what is left there after a crash is looked up in the refs.
// The meta bucket holds wholeKey once the refs were read into the file, with
// the id of the machine's boot: an index without it is new, or was emptied, or
// was last written before the machine went down.
var (
	runsBucket, claimsBucket, metaBucket = []byte("runs"), []byte("claims"), []byte("meta")
	wholeKey                             = []byte("whole")
)

// errDamaged: an index entry does not carry its own checksum.
var errDamaged = errors.New("index is damaged")

// index answers lists of runs. It holds nothing that the refs do not: each
// value is the run.json of a run's ref behind a checksum, because bbolt checks
// only its own meta pages and would hand out damaged values as good ones. The
// file is read once; questions are answered from memory.
//
// The file is not synced: that would be four waits for the disk in every claim.
// A process that is killed loses nothing by it, and after the machine itself
// went down the index is built anew from the refs, which are on disk.
type index struct {
	path string

	file sync.Mutex // guards db's changes, and is held until memory has them; before mu
	db   *bolt.DB

	mu    sync.RWMutex // guards all below
	runs  map[string]record.Run
	keys  []string                   // of runs, sorted
	named map[string]string          // the latest key of each Run.Name
	of    map[record.Caller][]string // the keys of a caller's runs, as they came
}

func openIndex(path string) (ix *index, fresh bool, err error) {
	ix = &index{path: path}
	if err := ix.open(); err != nil {
		return nil, false, err
	}
	err = guard(func() error {
		return ix.db.View(func(tx *bolt.Tx) error {
			fresh = !bytes.Equal(tx.Bucket(metaBucket).Get(wholeKey), bootID())
			return nil
		})
	})
	return ix, fresh, err
}

// bootID names the boot of the machine; where the kernel does not say, every
// start counts as one.
func bootID() []byte {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return []byte(newToken())
	}
	return bytes.TrimSpace(id)
}

func (ix *index) open() error {
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

// guard turns a panic of bbolt, which a damaged file can cause, into errDamaged.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
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
		return nil, errDamaged
	}
	return v[4:], nil
}

// update changes the file, and then what is in memory, by remember where there is one.
// bbolt lets the next writer begin before it tells that one has ended, and memory would then be
// changed in another order than the file.
func (ix *index) update(change func(*bolt.Tx) error, remember func()) error {
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

func (ix *index) put(runs ...record.Run) error {
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

// remove forgets runs whose refs are gone.
func (ix *index) remove(runs ...record.Run) error {
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

// forget is the opposite of remember. The caller holds the lock.
func (ix *index) forget(runs []record.Run) {
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

// claim notes that a run's ref is about to be made.
func (ix *index) claim(r record.Run) error {
	return ix.update(func(tx *bolt.Tx) error {
		return tx.Bucket(claimsBucket).Put(runKey(r.Repo, r.Caller, r.ID), nil)
	}, nil)
}

// claimed returns repository and ref of the claims that were never indexed, and forgets them.
func (ix *index) claimed() (refs [][2]string, err error) {
	err = ix.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(claimsBucket)
		err := b.ForEach(func(k, _ []byte) error {
			if parts := strings.Split(string(k), "\x00"); len(parts) == 3 {
				refs = append(refs, [2]string{parts[0], runsPrefix + "/" + parts[1] + "/" + parts[2]})
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

// load reads every run of the file; one that is damaged is errDamaged.
func (ix *index) load() error {
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
					return fmt.Errorf("%w: %w", errDamaged, err)
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

// remember takes runs into memory. The caller holds the lock.
func (ix *index) remember(runs []record.Run) {
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

// all returns every run, in the order of their keys.
func (ix *index) all() []record.Run {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	runs := make([]record.Run, len(ix.keys))
	for i, key := range ix.keys {
		runs[i] = ix.runs[key]
	}
	return runs
}

// get returns the run of a caller by its id, whatever repository it is in.
func (ix *index) get(c record.Caller, id string) (record.Run, bool) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	r, ok := ix.runs[ix.named[c.String()+"/"+id]]
	return r, ok
}

// ofCaller returns the runs of a caller, as they came.
func (ix *index) ofCaller(c record.Caller) []record.Run {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	runs := make([]record.Run, len(ix.of[c]))
	for i, key := range ix.of[c] {
		runs[i] = ix.runs[key]
	}
	return runs
}

// rebuild puts a new file with the runs that there are in the old one's place. Nobody writes
// meanwhile: a run that is claimed while its ref is not read yet would be in neither.
func (ix *index) rebuild(there func() ([]record.Run, error)) (int, error) {
	ix.file.Lock()
	defer ix.file.Unlock()
	runs, err := there()
	if err != nil {
		return 0, err
	}
	next := &index{path: ix.path + ".new"}
	if err := os.Remove(next.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("cannot rebuild index: %w", err)
	}
	if err := next.open(); err != nil {
		return 0, err
	}
	if err := next.put(runs...); err != nil {
		return 0, err
	}
	whole := func(tx *bolt.Tx) error {
		return errors.Join(tx.Bucket(metaBucket).Put(wholeKey, bootID()), ix.copyClaims(tx.Bucket(claimsBucket)))
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
	return len(runs), ix.load()
}

// copyClaims copies the claims whose refs may be made at this moment. Those of a file that
// is damaged are made of refs that were read.
func (ix *index) copyClaims(to *bolt.Bucket) error {
	err := guard(func() error {
		return ix.db.View(func(tx *bolt.Tx) error {
			return tx.Bucket(claimsBucket).ForEach(func(k, _ []byte) error { return to.Put(k, nil) })
		})
	})
	if errors.Is(err, errDamaged) {
		return nil
	}
	return err
}

func (ix *index) close() error {
	ix.file.Lock()
	defer ix.file.Unlock()
	return guard(ix.db.Close)
}

// runsInRefs reads every run of every repository from its ref.
func runsInRefs(ctx context.Context, git *gitd.Server) ([]record.Run, error) {
	repos, err := git.Repos(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read runs: %w", err)
	}
	var runs []record.Run
	for _, repo := range repos {
		refs, err := repo.Refs(ctx, runsPrefix)
		if err != nil {
			return nil, fmt.Errorf("cannot read runs of %s: %w", repo.Name(), err)
		}
		for _, ref := range refs {
			r, err := readRun(ctx, repo, ref)
			if err != nil {
				return nil, err
			}
			runs = append(runs, r)
		}
	}
	return runs, nil
}

func readRun(ctx context.Context, repo *gitd.Repo, ref gitd.Ref) (record.Run, error) {
	text, err := repo.ReadFile(ctx, string(ref.Hash), "run.json", 4<<20)
	if err != nil {
		return record.Run{}, fmt.Errorf("cannot read run %s of %s: %w", ref.Name, repo.Name(), err)
	}
	var r record.Run
	if err := json.Unmarshal(text, &r); err != nil {
		return record.Run{}, fmt.Errorf("cannot read run %s of %s: %w", ref.Name, repo.Name(), err)
	}
	return r, nil
}

// runRef is the ref of a run.
func runRef(c record.Caller, run string) string { return runsPrefix + "/" + c.Slug() + "/" + run }

// validRunID tells whether a caller may name a run so: it becomes a part of a ref and of file names.
func validRunID(id string) bool {
	if id == "" || len(id) > 100 || strings.HasPrefix(id, ".") || strings.HasPrefix(id, "-") ||
		strings.HasSuffix(id, ".lock") || strings.HasSuffix(id, ".") || strings.Contains(id, "..") {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	})
}
