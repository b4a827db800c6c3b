package standby

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/backup"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
)

// Server is the connection of a follower to the server that it follows.
type Server interface {
	// Next returns the next round.
	Next(ctx context.Context, have Have) (Round, error)
	// File writes the bytes of a file of the last round to w, from an offset on.
	File(ctx context.Context, session, path string, from int64, w io.Writer) error
	// Upstream returns the address of a repository for git.
	Upstream(repo string) gitd.Upstream
}

// Source is the server that a data folder follows.
type Source struct {
	Of string `json:"of"` // its URL
	// TokenFile is the file with the token, or empty.
	TokenFile string `json:"token_file,omitempty"`
	// Epoch and EpochID are those of the last round. A server of a lower epoch is not followed any more.
	Epoch   uint64 `json:"epoch,omitempty"`
	EpochID string `json:"epoch_id,omitempty"`
}

// Follower keeps a data folder equal to that of a server. Its fields are its options.
type Follower struct {
	Data   string
	Source Source
	// Name names this follower for the people of the leader. URL is where it serves when it is promoted, or empty.
	Name, URL string
	Git       *gitd.Server // over the repositories of Data, used by nobody else
	From      Server
	// RetryEvery is the wait after a failure, 500 ms if zero. It doubles with each refusal of the server, up to 64 times.
	RetryEvery time.Duration
	Log        *slog.Logger
	Now        func() time.Time // nil means time.Now

	have Have // used by Run

	mu     sync.Mutex // guards status
	status Status
}

// Values of Status.Role.
const (
	RoleServer  = "server"
	RoleStandby = "standby"
	RoleFenced  = "fenced"
)

// Status is how far a server or a stand-by is.
type Status struct {
	// Role is server, standby, or fenced for a server whose place another one took.
	Role  string `json:"role"`
	Epoch uint64 `json:"epoch"`
	// Fence tells which server took the place of this one. Nil means none.
	Fence *Fence `json:"fence,omitempty"`
	// Of is the server that a stand-by follows.
	Of string `json:"of,omitempty"`
	// At is the moment whose state a stand-by has, by its own clock. Zero means that it has none yet.
	At time.Time `json:"at,omitzero"`
	// Lag is the time since At, in seconds.
	Lag float64 `json:"lag_seconds"`
	// Rounds counts the rounds since the start.
	Rounds uint64 `json:"rounds,omitempty"`
	// Keys reports whether a stand-by has the keys of its server. Without them tokens end when it is promoted.
	Keys bool `json:"keys,omitempty"`
	// Error is the error of the last attempt, or empty.
	Error string `json:"error,omitempty"`
	// Repos has the repositories of a stand-by, by name.
	Repos map[string]RepoStatus `json:"repos,omitempty"`
	// Sync reports whether a server waits for a stand-by before it acknowledges. Alone reports whether it goes on
	// without one.
	Sync  bool `json:"sync,omitempty"`
	Alone bool `json:"alone,omitempty"`
	// Standbys are the followers of a server.
	Standbys []FollowerStatus `json:"standbys,omitempty"`
}

// RepoStatus is how far a stand-by has a repository.
type RepoStatus struct {
	// Changed is when the last change of it arrived.
	Changed time.Time `json:"changed,omitzero"`
}

// FollowerStatus is a follower as its server sees it.
type FollowerStatus struct {
	Name      string    `json:"name"`
	Connected bool      `json:"connected"`
	At        time.Time `json:"at,omitzero"` // the moment whose state it has confirmed
	Lag       float64   `json:"lag_seconds"` // since At
	// Pending are the changes of refs that it has not confirmed.
	Pending uint64 `json:"pending,omitempty"`
}

// Best returns the connected stand-by that is behind the least, and how many are connected. It is the one to promote.
func (st Status) Best() (best FollowerStatus, connected int) {
	for _, s := range st.Standbys {
		if !s.Connected {
			continue
		}
		if connected++; connected == 1 || s.At.After(best.At) {
			best = s
		}
	}
	return best, connected
}

// Status returns how far the followers of the server are.
func (l *Leader) Status() Status {
	if l == nil {
		return Status{Role: RoleServer}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	st := Status{Role: RoleServer, Epoch: l.epoch.Number, Sync: l.Sync, Alone: l.Alone}
	if st.Fence = l.fenced.Load(); st.Fence != nil {
		st.Role = RoleFenced
	}
	now := l.Now()
	for _, s := range l.sessions {
		f := FollowerStatus{Name: s.name, At: s.at, Connected: s.asking > 0 || now.Sub(s.seen) < goneAfter,
			Pending: l.changes - s.confirmed}
		f.Lag = now.Sub(s.begun).Seconds()
		if !s.at.IsZero() {
			f.Lag = now.Sub(s.at).Seconds()
		}
		st.Standbys = append(st.Standbys, f)
	}
	return st
}

// Status returns how far the follower is.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.status
	st.Role, st.Of = RoleStandby, f.Source.Of
	st.Repos = make(map[string]RepoStatus, len(f.status.Repos))
	for name, r := range f.status.Repos {
		st.Repos[name] = r
	}
	if !st.At.IsZero() {
		st.Lag = f.now().Sub(st.At).Seconds()
	}
	return st
}

func (f *Follower) now() time.Time {
	if f.Now == nil {
		return time.Now()
	}
	return f.Now()
}

// Begin makes an empty data folder a follower's, or goes on with one, and returns its source.
func Begin(data string, s Source) (Source, error) {
	fence, err := ReadFence(data)
	if err != nil {
		return s, err
	}
	if fence != nil {
		return s, fence
	}
	var was Source
	err = readState(data, followName, &was)
	switch {
	case err == nil && s.Of == "":
		return was, nil
	case err == nil && s.Of != was.Of:
		return s, fmt.Errorf("%w: this data folder follows %s", record.ErrConflict, was.Of)
	case err == nil:
		s.Epoch, s.EpochID = was.Epoch, was.EpochID
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return s, err
	case err != nil:
		os.Remove(filepath.Join(data, Folder)) // only if an earlier call was killed
		if err := backup.CheckEmpty(data); err != nil {
			return s, err
		}
	}
	return s, writeState(data, followName, s)
}

// Run follows until ctx ends. It returns an error only if following cannot go on.
func (f *Follower) Run(ctx context.Context) error {
	if f.RetryEvery == 0 {
		f.RetryEvery = 500 * time.Millisecond
	}
	if err := Applied(ctx, f.Data, f.Git); err != nil {
		return err
	}
	f.have = Have{Name: f.Name, URL: f.URL, Epoch: f.Source.Epoch, EpochID: f.Source.EpochID}
	wait, said := f.RetryEvery, ""
	for ctx.Err() == nil {
		err := f.step(ctx)
		if ctx.Err() != nil {
			break
		}
		f.mu.Lock()
		f.status.Error = ""
		if err != nil {
			f.status.Error = err.Error()
		}
		f.mu.Unlock()
		if err == nil {
			wait, said = f.RetryEvery, ""
			continue
		}
		if errors.Is(err, errAhead) {
			return err
		}
		if said == "" || errors.Is(err, ErrRefused) && err.Error() != said {
			f.Log.Warn("cannot follow", "of", f.Source.Of, "err", err)
			said = err.Error()
		}
		f.have.Session, f.have.Round = "", 0 // everything again
		retry := time.NewTimer(wait)
		select {
		case <-retry.C:
		case <-ctx.Done():
		}
		retry.Stop()
		wait = f.nextWait(wait, err)
	}
	return nil
}

// nextWait returns the wait after the next failure.
func (f *Follower) nextWait(wait time.Duration, err error) time.Duration {
	if !errors.Is(err, ErrRefused) {
		return f.RetryEvery
	}
	return min(2*wait, 64*f.RetryEvery)
}

// ErrRefused means that the server refuses this stand-by, for example because standby.allow is not set there. Only a person
// can change that.
var ErrRefused = errors.New("the server refuses this stand-by")

// errAhead means that the follower has a higher epoch than the server.
var errAhead = fmt.Errorf("%w: the server has a lower epoch than this folder", record.ErrConflict)

// step takes one round.
func (f *Follower) step(ctx context.Context) error {
	at := f.now()
	r, err := f.From.Next(ctx, f.have)
	if err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	if (Epoch{Number: f.have.Epoch, ID: f.have.EpochID}).Over(Epoch{Number: r.Epoch, ID: r.EpochID}) && f.have.Epoch > 0 {
		return errAhead
	}
	if !r.empty() {
		if err := f.takeRound(ctx, &r); err != nil {
			return err
		}
	}
	if s := f.Source; s.Epoch != r.Epoch || s.EpochID != r.EpochID {
		s.Epoch, s.EpochID = r.Epoch, r.EpochID
		if err := writeState(f.Data, followName, s); err != nil {
			return err
		}
		f.Source.Epoch, f.Source.EpochID = r.Epoch, r.EpochID
	}
	f.have = Have{Name: f.Name, URL: f.URL, Session: r.Session, Round: r.Round, Epoch: r.Epoch, EpochID: r.EpochID}
	f.note(&r, at.Add(r.Waited))
	return nil
}

// note shows a round in the status.
func (f *Follower) note(r *Round, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := &f.status
	if r.Full || st.Repos == nil {
		st.Repos = make(map[string]RepoStatus)
	}
	for _, repo := range r.Repos {
		st.Repos[repo.Name] = RepoStatus{Changed: at.UTC()}
	}
	for _, name := range r.GoneRepos {
		delete(st.Repos, name)
	}
	st.At, st.Epoch, st.Keys = at, r.Epoch, r.Keys
	st.Rounds++
}

// takeRound brings a round to the disk. Its prerequisites come first, then the round itself.
func (f *Follower) takeRound(ctx context.Context, r *Round) error {
	if err := f.noteMissing(r); err != nil {
		return err
	}
	for _, repo := range r.Repos {
		if err := f.fetch(ctx, repo); err != nil {
			return err
		}
	}
	stage := filepath.Join(f.Data, Folder, "files")
	if err := os.RemoveAll(stage); err != nil {
		return err
	}
	p := &applied{Full: r.Full, Repos: r.Repos, GoneRepos: r.GoneRepos, GoneFiles: r.GoneFiles}
	var err error
	if p.Files, err = f.stage(ctx, r, stage); err != nil {
		return err
	}
	if r.Full {
		if err := p.findGone(ctx, f.Data, f.Git, r); err != nil {
			return err
		}
	}
	if err := writeState(f.Data, roundName, p); err != nil {
		return err
	}
	return Applied(ctx, f.Data, f.Git)
}

// noteMissing records the repositories that are made for a round. Those of a round that did not arrive stay, because they
// have objects. The next round is a full one, which removes them if the server has them no longer.
func (f *Follower) noteMissing(r *Round) error {
	var names []string
	if err := readState(f.Data, makingName, &names); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	noted := len(names)
	for _, repo := range r.Repos {
		if _, err := f.Git.Repo(repo.Name); errors.Is(err, gitd.ErrNotFound) && !slices.Contains(names, repo.Name) {
			names = append(names, repo.Name)
		}
	}
	if len(names) == noted {
		return nil
	}
	return writeState(f.Data, makingName, names)
}

// fetch brings the objects of a repository.
func (f *Follower) fetch(ctx context.Context, c Repo) error {
	repo, err := f.Git.Repo(c.Name)
	if errors.Is(err, gitd.ErrNotFound) {
		repo, err = f.Git.Create(ctx, c.Name)
	}
	if err != nil {
		return err
	}
	var want []gitd.Hash
	for _, ref := range c.Refs {
		if gitd.CheckRef(ref.Name) != nil {
			return fmt.Errorf("%w answer of the leader: the ref %.200q is wrong", record.ErrInvalid, ref.Name)
		}
		if ref.Hash != "" {
			want = append(want, ref.Hash)
		}
	}
	return repo.FetchObjects(ctx, f.From.Upstream(c.Name), want)
}

// stage brings the files that are not here yet to a folder.
func (f *Follower) stage(ctx context.Context, r *Round, dir string) ([]File, error) {
	var files []File
	var open []*os.File
	defer func() {
		for _, o := range open {
			o.Close()
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for _, file := range r.Files {
		place := filepath.Join(f.Data, filepath.FromSlash(file.Path))
		if info, err := os.Lstat(place); err == nil && info.Size() == file.Size && isContent(file.Path) {
			continue // its name is the hash of its content
		} else if file.From > 0 && (err != nil || info.Size() < file.From) {
			file.From = 0
		}
		o, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(len(files))), os.O_WRONLY|os.O_CREATE|os.O_EXCL, file.Mode|0o600)
		if err != nil {
			return nil, err
		}
		err = f.From.File(ctx, r.Session, file.Path, file.From, &exactly{w: o, left: file.Size - file.From})
		if errors.Is(err, record.ErrNotFound) { // an artifact that was removed
			if err := errors.Join(o.Close(), os.Remove(o.Name())); err != nil {
				return nil, err
			}
			continue
		}
		if err == nil {
			err = checkWhole(o, file.Size-file.From)
		}
		files = append(files, file)
		if open = append(open, o); err != nil {
			return nil, fmt.Errorf("cannot bring the file %s: %w", file.Path, err)
		}
		if len(open) == 256 {
			if err := durable.Files(open...); err != nil {
				return nil, err
			}
			for _, o := range open {
				o.Close()
			}
			open = nil
		}
	}
	if err := durable.Files(open...); err != nil {
		return nil, err
	}
	return files, durable.Folder(dir)
}

// isContent reports whether a file is named by the hash of its content.
func isContent(path string) bool { return strings.HasPrefix(path, "artifacts/sha256/") }

func checkWhole(f *os.File, size int64) error {
	info, err := f.Stat()
	if err == nil && info.Size() != size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// exactly passes on a number of bytes, and no more.
type exactly struct {
	w    io.Writer
	left int64
}

func (e *exactly) Write(b []byte) (int, error) {
	if int64(len(b)) > e.left {
		return 0, fmt.Errorf("%w: the leader sends more than it has announced", record.ErrInvalid)
	}
	n, err := e.w.Write(b)
	e.left -= int64(n)
	return n, err
}
