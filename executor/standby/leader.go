package standby

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/executor/backup"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"golang.org/x/sys/unix"
)

// Leader lets stand-bys follow a data folder. Its exported fields are its options, and must not change after Open. All
// methods are safe for concurrent use. Those of a nil Leader do nothing.
type Leader struct {
	Data string
	Git  *gitd.Server
	// Allow lets stand-bys follow.
	Allow bool
	// Keys sends the keys of the server, too.
	Keys bool
	// Elsewhere means that new artifacts are not in the folder artifacts of Data.
	Elsewhere bool
	// Sync has changes acknowledged only when a stand-by has confirmed them. Wait bounds the wait for it, 10 s if zero.
	Sync bool
	Wait time.Duration
	// Alone goes on without confirmation while no stand-by is connected. Otherwise changes are refused then.
	Alone bool
	// Ended is called when another server took the place of this one, once. Nil means nobody.
	Ended func(error)
	Log   *slog.Logger
	Now   func() time.Time // nil means time.Now

	epoch  Epoch
	fenced atomic.Pointer[Fence]
	begun  atomic.Bool
	once   sync.Once

	fencing sync.Mutex // held while the fence or the peers are written

	mu       sync.Mutex // guards the fields below
	changes  uint64     // counts the changes of refs
	wake     chan struct{}
	sessions map[string]*session
	round    uint64
}

// session is one follower.
type session struct {
	id, name string
	begun    time.Time
	turn     chan struct{} // holds a token; taken for a round

	// Guarded by Leader.mu.
	seen      time.Time // the last request
	asking    int       // requests that wait or are answered
	at        time.Time // of the last confirmed round
	confirmed uint64    // the changes of refs that the follower has
	following bool      // a round was confirmed

	// Used by the holder of the turn.
	has  *state // the state that the follower has confirmed, nil for nothing
	sent *state // the state after the round that was sent last
}

// sessionsMax bounds the followers of a server.
const sessionsMax = 8

// state is the state of a data folder at one moment.
type state struct {
	round, changes uint64
	at             time.Time
	repos          map[string]repoState
	files          map[string]fileState
	open           map[string]*os.File // files that changed, at that moment
}

type repoState struct {
	refs  []gitd.Ref
	files map[string][]byte
}

// fileState distinguishes the contents of a file.
type fileState struct {
	size  int64
	mode  fs.FileMode
	ino   uint64
	mtime time.Time
	racy  bool // it was so young that another change need not show
	// tail is the hash of the last bytes of a file that grows.
	tail [sha256.Size]byte
}

// grows reports whether bytes are only added to a file, until it is replaced. These are journals and outputs.
func grows(path string) bool {
	ext := filepath.Ext(path)
	return strings.HasPrefix(path, "live/") && (ext == ".jsonl" || ext == ".stdout" || ext == ".stderr")
}

// tailOf returns the hash of the last bytes of the first size bytes of a file, which show that it was not replaced.
func tailOf(f *os.File, size int64) (sum [sha256.Size]byte, err error) {
	b := make([]byte, min(size, 4<<10))
	if len(b) > 0 {
		_, err = f.ReadAt(b, size-int64(len(b)))
	}
	return sha256.Sum256(b), err
}

func (s *state) close() {
	if s == nil {
		return
	}
	for _, f := range s.open {
		f.Close()
	}
	s.open = nil
}

// Open reads the epoch, and returns [gitd.ErrFenced] if another server took the place of this one.
func (l *Leader) Open(ctx context.Context) (err error) {
	l.Wait = cmp.Or(l.Wait, 10*time.Second)
	if l.Now == nil {
		l.Now = time.Now
	}
	l.wake, l.sessions = make(chan struct{}), make(map[string]*session)
	if err := CheckPlace(l.Data); err != nil {
		return err
	}
	l.epoch, err = ReadEpoch(ctx, l.Git)
	return err
}

// Close forgets all followers.
func (l *Leader) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range l.sessions {
		select {
		case s.turn <- struct{}{}: // nobody reads its files
			s.sent.close()
		default:
		}
		delete(l.sessions, id)
	}
}

// Epoch returns the epoch of this server.
func (l *Leader) Epoch() Epoch {
	if l == nil {
		return Epoch{}
	}
	return l.epoch
}

// Begin has changes wait for a stand-by, if Sync is set. Before that nobody is there to whom a change is acknowledged.
func (l *Leader) Begin() {
	if l != nil {
		l.begun.Store(true)
	}
}

// Duty returns an error if the server may not change anything. It waits for a stand-by that is not connected. It is
// [gitd.Server.Duty].
func (l *Leader) Duty(ctx context.Context, _ string) error {
	if l == nil {
		return nil
	}
	if f := l.fenced.Load(); f != nil {
		return f
	}
	if !l.Sync || l.Alone || !l.begun.Load() {
		return nil
	}
	return l.until(ctx, l.connected,
		"no stand-by is connected, and standby.sync is set: nothing was changed")
}

// until returns when ready returns true, which is called with l.mu. After Wait it returns an error with a text.
func (l *Leader) until(ctx context.Context, ready func() bool, text string) error {
	late := time.NewTimer(l.Wait)
	defer late.Stop()
	for {
		l.mu.Lock()
		wake, done := l.wake, ready()
		l.mu.Unlock()
		if done {
			return nil
		}
		if f := l.fenced.Load(); f != nil {
			return f
		}
		select {
		case <-wake:
		case <-late.C:
			return unconfirmed(text)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// connected reports whether a follower is here that has confirmed a round. l.mu is held.
func (l *Leader) connected() bool {
	now := l.Now()
	for _, s := range l.sessions {
		if s.following && (s.asking > 0 || now.Sub(s.seen) < goneAfter) {
			return true
		}
	}
	return false
}

// Settle returns when a change that is on disk may be acknowledged. It is [gitd.Server.Settle].
func (l *Leader) Settle(ctx context.Context, _ string) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	l.changes++
	change := l.changes
	l.wakeAll()
	l.mu.Unlock()
	if f := l.fenced.Load(); f != nil {
		return f
	}
	if !l.Sync || !l.begun.Load() {
		return nil
	}
	return l.until(ctx, func() bool {
		for _, s := range l.sessions {
			if s.following && s.confirmed >= change {
				return true
			}
		}
		return l.Alone && !l.connected()
	}, "no stand-by has confirmed the change: it is on this server's disk alone, and may be lost with it")
}

// wakeAll wakes everybody who waits. l.mu is held.
func (l *Leader) wakeAll() {
	close(l.wake)
	l.wake = make(chan struct{})
}

// Next answers a follower with its next round. It waits up to [Tick] for a change.
func (l *Leader) Next(ctx context.Context, have Have) (Round, error) {
	r, err := l.next(ctx, have)
	if err != nil {
		return r, fmt.Errorf("cannot be followed: %w", err)
	}
	return r, nil
}

func (l *Leader) next(ctx context.Context, have Have) (Round, error) {
	if l == nil || !l.Allow {
		return Round{}, fmt.Errorf("%w: standby.allow is not set in the configuration of this server", record.ErrConflict)
	}
	if f := (Fence{Epoch: have.Epoch, ID: have.EpochID, By: cmp.Or(have.URL, have.Name), At: l.Now().UTC()}); have.Epoch > 0 &&
		f.epoch().Over(l.epoch) {
		return Round{}, l.fence(f)
	}
	began := l.Now()
	s, err := l.session(have)
	if err != nil {
		return Round{}, err
	}
	defer l.left(s)
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return Round{}, context.Cause(ctx)
	}
	l.confirm(s, have.Round)
	if s.has != nil {
		if err := l.awaitChange(ctx, s.has.changes); err != nil {
			return Round{}, err
		}
	}
	waited := l.Now().Sub(began)
	r, err := l.makeRound(ctx, s)
	r.Waited = waited
	return r, err
}

// session returns the session that a follower names, or a new one.
func (l *Leader) session(have Have) (*session, error) {
	if len(have.Name) > 200 || len(have.URL) > urlMax {
		return nil, fmt.Errorf("%w stand-by: its name is longer than 200 bytes, or its URL than %d", record.ErrInvalid, urlMax)
	}
	if have.Session == "" && have.URL != "" {
		if err := l.addPeer(have.URL); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Now()
	s := l.sessions[have.Session]
	if s == nil {
		for id, old := range l.sessions {
			if old.asking == 0 && (old.name == have.Name || now.Sub(old.seen) > time.Minute) {
				old.sent.close() // nobody holds its turn
				delete(l.sessions, id)
			}
		}
		if len(l.sessions) >= sessionsMax {
			return nil, fmt.Errorf("%w: %d stand-bys follow already", record.ErrConflict, len(l.sessions))
		}
		s = &session{id: rand.Text(), name: have.Name, begun: now, turn: make(chan struct{}, 1)}
		l.sessions[s.id] = s
		if l.Log != nil {
			l.Log.Info("a stand-by follows", "name", have.Name)
		}
	}
	s.asking++
	s.seen = now
	return s, nil
}

// addPeer records the URL of a follower, which may be promoted one day.
func (l *Leader) addPeer(url string) error {
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		return fmt.Errorf("%w URL of a stand-by: %.100q", record.ErrInvalid, url)
	}
	l.fencing.Lock()
	defer l.fencing.Unlock()
	return addPeer(l.Data, url)
}

// left records that a request of a follower ended.
func (l *Leader) left(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.asking--
	s.seen = l.Now()
}

// confirm takes the round that a follower has. If that is not the last one, the next has everything.
func (l *Leader) confirm(s *session, round uint64) {
	s.sent.close()
	switch {
	case s.sent != nil && s.sent.round == round:
		s.has = s.sent
	case s.has != nil && s.has.round == round:
	default:
		s.has = nil
	}
	s.sent = nil
	if s.has == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.following, s.at = true, s.has.at
	if s.has.changes > s.confirmed {
		s.confirmed = s.has.changes
	}
	l.wakeAll()
}

// awaitChange returns when refs have changed since a number of changes, or after Tick.
func (l *Leader) awaitChange(ctx context.Context, since uint64) error {
	tick := time.NewTimer(Tick)
	defer tick.Stop()
	for {
		l.mu.Lock()
		wake, changed := l.wake, l.changes > since
		l.mu.Unlock()
		if changed {
			return nil
		}
		select {
		case <-wake:
		case <-tick.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// makeRound reads the state of the data folder, and returns its difference from the follower's.
func (l *Leader) makeRound(ctx context.Context, s *session) (Round, error) {
	l.mu.Lock()
	l.round++
	now := &state{round: l.round, changes: l.changes, at: l.Now()}
	l.mu.Unlock()
	before := s.has
	if before == nil {
		before = &state{}
	}
	repos, err := l.Git.Freeze(ctx, func() error {
		now.close()
		return l.readFiles(now, before)
	})
	if err == nil { // an artifact is on disk before a ref or a file names it
		err = l.readArtifacts(now)
	}
	if err != nil {
		now.close()
		return Round{}, err
	}
	r := Round{Session: s.id, Round: now.round, Epoch: l.epoch.Number, EpochID: l.epoch.ID, Full: s.has == nil, Keys: l.Keys,
		Elsewhere: l.Elsewhere}
	now.repos = make(map[string]repoState, len(repos))
	for _, st := range repos {
		is := repoState{st.Refs, st.PlainFiles()}
		was, had := before.repos[st.Repo.Name()]
		now.repos[st.Repo.Name()] = is
		if c := changeOf(st.Repo.Name(), was, is, !had); c != nil {
			r.Repos = append(r.Repos, *c)
		}
	}
	for name := range before.repos {
		if _, ok := now.repos[name]; !ok {
			r.GoneRepos = append(r.GoneRepos, name)
		}
	}
	for path, is := range now.files {
		was, had := before.files[path]
		if had && was.same(is) {
			continue
		}
		file := File{Path: path, Size: is.size, Mode: is.mode}
		if had && grows(path) && was.ino == is.ino && was.size <= is.size {
			if tail, err := tailOf(now.open[path], was.size); err == nil && tail == was.tail {
				file.From = was.size
			}
		}
		if file.From == 0 || file.From < file.Size {
			r.Files = append(r.Files, file)
		}
	}
	for path := range before.files {
		if _, ok := now.files[path]; !ok {
			r.GoneFiles = append(r.GoneFiles, path)
		}
	}
	slices.SortFunc(r.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	s.sent = now
	return r, nil
}

// changeOf returns the changes of a repository, or nil.
func changeOf(name string, was, is repoState, full bool) *Repo {
	c := &Repo{Name: name, Full: full}
	if full || !maps.EqualFunc(was.files, is.files, func(a, b []byte) bool { return string(a) == string(b) }) {
		c.Files = is.files
	}
	old := was.refs
	for _, ref := range is.refs { // both are sorted by name
		for len(old) > 0 && old[0].Name < ref.Name {
			c.Refs = append(c.Refs, gitd.Ref{Name: old[0].Name})
			old = old[1:]
		}
		if len(old) > 0 && old[0].Name == ref.Name {
			same := old[0].Hash == ref.Hash
			if old = old[1:]; same {
				continue
			}
		}
		c.Refs = append(c.Refs, ref)
	}
	for _, ref := range old {
		c.Refs = append(c.Refs, gitd.Ref{Name: ref.Name})
	}
	if !full && len(c.Refs) == 0 && c.Files == nil {
		return nil
	}
	return c
}

// racyFor is how long a file's time may stay the same although it changes.
const racyFor = 100 * time.Millisecond

func (a fileState) same(b fileState) bool {
	return !a.racy && a.size == b.size && a.mode == b.mode && a.ino == b.ino && a.mtime.Equal(b.mtime)
}

// smallMax bounds the files that are open for one round.
const smallMax = 100_000

// readFiles lists the small files of the data folder, and opens those that have changed.
func (l *Leader) readFiles(now, before *state) error {
	now.files, now.open = make(map[string]fileState), make(map[string]*os.File)
	began := time.Now()
	return backup.EachSmall(l.Data, l.Keys, func(path string) error {
		name, info, err := l.look(path)
		if info == nil || err != nil {
			return err
		}
		is := stateOf(info, began)
		if was, had := before.files[name]; !had || !was.same(is) {
			f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			} else if err != nil {
				return err
			}
			now.open[name] = f
			if info, err = f.Stat(); err != nil {
				return err
			}
			if is = stateOf(info, began); len(now.open) > smallMax {
				return fmt.Errorf("%w: more than %d files have changed", record.ErrConflict, smallMax)
			}
			if grows(name) {
				if is.tail, err = tailOf(f, is.size); err != nil {
					return err
				}
			}
		} else {
			is.tail = was.tail
		}
		now.files[name] = is
		return nil
	})
}

// readArtifacts lists the artifacts, which never change.
func (l *Leader) readArtifacts(now *state) error {
	return backup.EachArtifact(l.Data, func(path string) error {
		name, info, err := l.look(path)
		if info != nil {
			now.files[name] = stateOf(info, info.ModTime().Add(racyFor))
		}
		return err
	})
}

// look returns the name of a file for followers. info is nil if they may not have it, or if it is gone.
func (l *Leader) look(path string) (name string, info fs.FileInfo, err error) {
	if name, err = filepath.Rel(l.Data, path); err != nil {
		return "", nil, err
	}
	if name = filepath.ToSlash(name); !isPlace(name) {
		return name, nil, nil
	}
	info, err = os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return name, nil, nil
	}
	return name, info, err
}

func stateOf(info fs.FileInfo, now time.Time) fileState {
	s := fileState{size: info.Size(), mode: info.Mode().Perm(), mtime: info.ModTime(),
		racy: now.Sub(info.ModTime()) < racyFor}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.ino = st.Ino
	}
	return s
}

// Read writes the bytes of a file of the last round of a session to w, from an offset on. Returns [record.ErrNotFound]
// if the file is gone, which the next round tells.
func (l *Leader) Read(ctx context.Context, id, path string, from int64, w io.Writer) error {
	if l == nil {
		return fmt.Errorf("cannot read a file for a stand-by: %w", record.ErrConflict)
	}
	l.mu.Lock()
	s := l.sessions[id]
	if s != nil {
		s.asking++
		s.seen = l.Now()
	}
	l.mu.Unlock()
	if s == nil {
		return fmt.Errorf("cannot read a file for a stand-by: %w: the session ended", record.ErrConflict)
	}
	defer l.left(s)
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if s.sent == nil || from < 0 {
		return fmt.Errorf("cannot read a file for a stand-by: %w", record.ErrNotFound)
	}
	is, ok := s.sent.files[path]
	f := s.sent.open[path]
	if ok && f == nil {
		var err error
		if f, err = os.OpenFile(filepath.Join(l.Data, filepath.FromSlash(path)), os.O_RDONLY|unix.O_NOFOLLOW, 0); err != nil {
			return fmt.Errorf("cannot read a file for a stand-by: %w: %w", record.ErrNotFound, err)
		}
		defer f.Close()
	}
	if !ok || from > is.size {
		return fmt.Errorf("cannot read a file for a stand-by: %w", record.ErrNotFound)
	}
	_, err := io.Copy(w, io.NewSectionReader(f, from, is.size-from))
	return err
}
