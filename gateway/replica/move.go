package replica

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// A repository moves in five steps. Its owner copies it to the other replica while it is used. It holds new requests, waits
// for the pushes at work, and copies the rest. It changes the assignment, which is the moment of the move and names the
// copy. The other replica takes that copy into use, and the owner before passes the held requests on. Last, it discards its
// own copy. Each process may be killed at each step. Another call of Move repeats an unfinished move.

const (
	// drainWait bounds the wait for pushes at work. Those that take longer are refused when they end.
	drainWait = 20 * time.Second
	// giveWait bounds the time without an answer of the cluster whether the assignment has changed.
	giveWait = 2 * time.Minute
	// stagedFor is how long a complete copy waits for the assignment, which follows it within giveWait. unfinishedFor is the
	// time for the rest of a copy.
	stagedFor, unfinishedFor = 10 * time.Minute, 24 * time.Hour
	// takeIdle bounds the wait for the next bytes of a copy.
	takeIdle = time.Minute
	// incoming is the folder of copies in the data folder, and outgoing that of the owner before.
	incoming, outgoing = "incoming", "outgoing"
)

// gate holds the requests for a repository that moves, and counts its pushes.
type gate struct {
	pushes int
	shut   chan struct{} // closed when the gate opens; nil if it is open
	empty  chan struct{} // closed when there are no pushes; nil if nobody waits
}

// passGate waits until the gate of a repository is open. A push counts until the context of its request ends.
func (f *Front) passGate(ctx context.Context, repo string, push bool) error {
	for {
		f.gating.Lock()
		g := f.gates[repo]
		if g == nil {
			g = &gate{}
			f.gates[repo] = g
		}
		shut := g.shut
		if shut == nil {
			if push {
				g.pushes++
				context.AfterFunc(ctx, func() { f.leaveGate(repo, g) })
			} else if g.pushes == 0 {
				delete(f.gates, repo)
			}
			f.gating.Unlock()
			return nil
		}
		f.gating.Unlock()
		select {
		case <-shut:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *Front) leaveGate(repo string, g *gate) {
	f.gating.Lock()
	defer f.gating.Unlock()
	if g.pushes--; g.pushes > 0 {
		return
	}
	if g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
	if g.shut == nil && f.gates[repo] == g {
		delete(f.gates, repo)
	}
}

// shutGate holds new requests for a repository, and waits for its pushes. open may be called twice.
func (f *Front) shutGate(ctx context.Context, repo string) (open func(), err error) {
	f.gating.Lock()
	g := f.gates[repo]
	if g == nil {
		g = &gate{}
		f.gates[repo] = g
	}
	if g.shut != nil {
		f.gating.Unlock()
		return nil, fmt.Errorf("%w: %s is being moved already", record.ErrConflict, repo)
	}
	g.shut = make(chan struct{})
	var empty chan struct{}
	if g.pushes > 0 {
		g.empty = make(chan struct{})
		empty = g.empty
	}
	f.gating.Unlock()
	if empty != nil {
		late := time.NewTimer(drainWait)
		defer late.Stop()
		select {
		case <-empty:
		case <-late.C:
		case <-ctx.Done():
		}
	}
	return sync.OnceFunc(func() {
		f.gating.Lock()
		defer f.gating.Unlock()
		close(g.shut)
		if g.shut = nil; g.pushes == 0 {
			delete(f.gates, repo)
		}
	}), nil
}

// Moved is the answer to a move.
type Moved struct {
	Repo string `json:"repo"`
	From string `json:"from"`
	To   string `json:"to"`
	// Held is how long requests for it waited, in milliseconds.
	Held int64 `json:"held_ms"`
}

// Move moves a repository of this replica to another one. It returns when the other one serves it.
func (f *Front) Move(ctx context.Context, repo, to string, by gitd.Person) (Moved, error) {
	m, err := f.move(ctx, repo, to, by)
	if err != nil {
		return m, fmt.Errorf("cannot move %s to %s: %w", repo, to, err)
	}
	f.Log.Info("a repository was moved", "repo", repo, "to", to, "held", time.Duration(m.Held)*time.Millisecond)
	return m, nil
}

func (f *Front) move(ctx context.Context, name, to string, by gitd.Person) (m Moved, err error) {
	m = Moved{Repo: name, From: f.Group.Name, To: to}
	target, ok := f.Group.Named(to)
	repo, err := f.Git.Repo(name)
	switch {
	case !ok:
		return m, route.NotFound("replica", to)
	case err != nil:
		return m, err
	case target.Self:
		return m, fmt.Errorf("%w: it is there", record.ErrConflict)
	case target.URL == "":
		return m, fmt.Errorf("%w: no process is that replica now", record.ErrConflict)
	case f.isOwn(name):
		return m, fmt.Errorf("%w: every replica has its own", record.ErrConflict)
	}
	if err := f.Executor.Repos.HandOver(ctx, name, by); err != nil {
		return m, err
	}
	id := rand.Text()
	dir := filepath.Join(f.Executor.Data, outgoing, fileName(name)+"-"+id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	sent := map[string]bool{}
	refs, err := repo.Copy(ctx, dir, nil)
	if err == nil {
		err = f.send(ctx, target, copying{name, dir, id, true, false}, sent)
	}
	if err == nil {
		err = f.sendArtifacts(ctx, target, name, sent)
	}
	if err != nil {
		return m, err
	}

	begun := time.Now()
	open, err := f.shutGate(ctx, name)
	if err != nil {
		return m, err
	}
	defer open()
	// The second hand-over has the work since the first copy.
	if err := f.Executor.Repos.HandOver(ctx, name, by); err != nil {
		return m, err
	}
	thaw, err := f.Group.Freeze(ctx, name)
	if err != nil {
		return m, err
	}
	defer thaw()
	if err := f.Executor.Repos.CheckIdle(name); err != nil {
		return m, err
	}
	if err := f.sendArtifacts(ctx, target, name, sent); err != nil {
		return m, err
	}
	if err := f.sendRecords(ctx, target, name); err != nil {
		return m, err
	}
	// The assignment follows the last part at once.
	if _, err = repo.Copy(ctx, dir, refs); err == nil {
		err = f.send(ctx, target, copying{name, dir, id, false, true}, sent)
	}
	if err != nil {
		return m, err
	}
	// From here on the move is finished, also if the client goes.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveWait)
	defer cancel()
	if err := f.Group.Give(ctx, name, to, id); err != nil {
		return m, err
	}
	thaw() // pushes that git still receives end, because this replica may not acknowledge them
	if err := f.askInstall(ctx, target, name, id); err != nil {
		f.work.Go(func() { f.finish(name, to, id) })
		return m, fmt.Errorf("%s belongs to %s, which has not answered that it serves it; the copy here is kept until it does: %w",
			name, to, err)
	}
	open()
	m.Held = time.Since(begun).Milliseconds()
	return m, f.leave(ctx, name)
}

// leave discards the copy of a repository that another replica owns. It cannot come back meanwhile.
func (f *Front) leave(ctx context.Context, repo string) error {
	f.taking.Lock()
	defer f.taking.Unlock()
	if owner, ok := f.Group.Look(ctx, repo); !ok || owner.Self {
		return fmt.Errorf("%w: the copy of %s here may be the only one", record.ErrConflict, repo)
	}
	return f.Executor.Repos.Leave(ctx, repo)
}

// askInstall has another replica take a copy into use.
func (f *Front) askInstall(ctx context.Context, to ownership.Replica, repo, id string) error {
	return f.ask(ctx, to, http.MethodPost, "/replica/install?"+url.Values{"repo": {repo}, "id": {id}}.Encode(), nil, nil)
}

// finish discards the copy of a repository that was given away, once the other replica serves its own. If this process
// ends before, the next one puts the copy aside.
func (f *Front) finish(repo, to, id string) {
	for {
		select {
		case <-time.After(time.Second):
		case <-f.closing.Done():
			return
		}
		owner, ok := f.Group.Find(repo)
		if !ok || owner.Name != to || f.Group.Copy(repo) != id {
			return // it was removed, or moved again
		}
		ctx, cancel := context.WithTimeout(f.closing, giveWait)
		err := errNoOwner
		if owner.URL != "" {
			err = f.askInstall(ctx, owner, repo, id)
		}
		if err == nil {
			if err = f.leave(ctx, repo); err != nil {
				f.Log.Warn("the copy of a repository that was moved stays until the next start", "repo", repo, "err", err)
			}
			cancel()
			return
		}
		cancel()
	}
}

// isOwn reports whether every replica has a repository of that name.
func (f *Front) isOwn(name string) bool {
	return slices.Contains(f.Group.Shared, name)
}

// fileName returns the name of a folder for a repository.
func fileName(repo string) string {
	sum := sha256.Sum256([]byte(repo))
	return hex.EncodeToString(sum[:16])
}

// copying is one of several transfers of a copy.
type copying struct {
	repo, dir, id string
	// first begins a copy, and last completes it.
	first, last bool
}

// send sends the files of a copy that were not sent before. Packs never change, and all else is sent again.
func (f *Front) send(ctx context.Context, to ownership.Replica, c copying, sent map[string]bool) error {
	repo, dir := c.repo, c.dir
	out, in := io.Pipe()
	var writing sync.WaitGroup
	writing.Go(func() {
		w := tar.NewWriter(in)
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() && !d.IsDir() {
				return err
			}
			name, err := filepath.Rel(dir, path)
			if err != nil || name == "." || sent[repo+"/"+name] {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			h := &tar.Header{Name: filepath.ToSlash(name), Mode: int64(info.Mode().Perm()), Typeflag: tar.TypeDir}
			if !d.IsDir() {
				h.Typeflag, h.Size = tar.TypeReg, info.Size()
			}
			if err := w.WriteHeader(h); err != nil || d.IsDir() {
				return err
			}
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			if _, err := io.Copy(w, file); err != nil {
				return err
			}
			if strings.HasPrefix(h.Name, "objects/pack/") {
				sent[repo+"/"+name] = true
			}
			return nil
		})
		if err == nil {
			err = w.Close()
		}
		in.CloseWithError(err)
	})
	defer writing.Wait()
	q := url.Values{"repo": {repo}, "id": {c.id}}
	if c.first {
		q.Set("first", "1")
	}
	if c.last {
		q.Set("last", "1")
	}
	err := f.ask(ctx, to, http.MethodPost, "/replica/take?"+q.Encode(), out, nil)
	out.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // a writer that nobody reads ends
	return err
}

// sendArtifacts sends the artifacts of a repository that were not sent before.
func (f *Front) sendArtifacts(ctx context.Context, to ownership.Replica, repo string, sent map[string]bool) error {
	files, err := f.Executor.Repos.Carried(ctx, repo)
	if err != nil {
		return err
	}
	for _, file := range files {
		if sent[file.SHA256] {
			continue
		}
		in, err := f.Executor.OpenFile(ctx, record.Run{}, file)
		if err != nil {
			return err
		}
		q := url.Values{"sha256": {file.SHA256}, "size": {fmt.Sprint(file.Size)}}
		err = f.ask(ctx, to, http.MethodPost, "/replica/artifact?"+q.Encode(), struct{ io.Reader }{in}, nil)
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
		sent[file.SHA256] = true
	}
	return nil
}

// staged is the folder of a copy. complete is the file that says that all of it is there.
func (f *Front) staged(repo, id string) (dir, complete string) {
	dir = filepath.Join(f.Executor.Data, incoming, fileName(repo)+"-"+id)
	return dir + ".git", dir + ".json"
}

// idForm matches the names of copies.
var idForm = pattern.New(`^[A-Z2-7]{20,40}$`)

// copyOf returns the copy that a request is about.
func copyOf(r *http.Request) (repo, id string, err error) {
	q := r.URL.Query()
	if repo, id = q.Get("repo"), q.Get("id"); !idForm.MatchString(id) {
		return "", "", fmt.Errorf("%.100q is no name of a copy", id)
	}
	return repo, id, gitd.CheckName(repo)
}

// serveTake takes files of a copy.
func (f *Front) serveTake(w http.ResponseWriter, r *http.Request) {
	repo, id, err := copyOf(r)
	if err == nil {
		q := r.URL.Query()
		dir, _ := f.staged(repo, id)
		in := &timely{r.Body, http.NewResponseController(w)}
		err = f.takeFiles(in, copying{repo, dir, id, q.Get("first") != "", q.Get("last") != ""})
	}
	answerResult(w, err)
}

// timely is a body whose next bytes must come within takeIdle.
type timely struct {
	io.Reader
	rc *http.ResponseController
}

func (t *timely) Read(p []byte) (int, error) {
	if err := t.rc.SetReadDeadline(time.Now().Add(takeIdle)); err != nil {
		return 0, err
	}
	return t.Reader.Read(p)
}

// takeFiles writes files of a copy. Only its sender writes into its folder.
func (f *Front) takeFiles(body io.Reader, c copying) error {
	if c.first {
		if err := os.MkdirAll(c.dir, 0o755); err != nil {
			return err
		}
		f.work.Go(func() { f.awaitAssignment(c.repo, c.id, time.Now().Add(unfinishedFor)) })
	} else if _, err := os.Stat(c.dir); err != nil {
		return fmt.Errorf("the first part of the copy of %s is not here any more: %w", c.repo, err)
	}
	in := tar.NewReader(body)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = unpack(c.dir, h, in)
		}
		if err != nil {
			return fmt.Errorf("cannot take a file of %s: %w", c.repo, err)
		}
	}
	if !c.last {
		return nil
	}
	_, complete := f.staged(c.repo, c.id)
	b, err := json.Marshal(stagedCopy{c.repo, c.id})
	if err == nil {
		err = gitd.Sync(c.dir) // before the name of the file that says so
	}
	if err == nil {
		err = durable.Replace(complete, b, true)
	}
	if err == nil {
		err = durable.Folder(filepath.Dir(complete))
	}
	if err == nil {
		f.expect(c.repo, c.id)
	}
	return err
}

// stagedCopy is the content of the file of a complete copy.
type stagedCopy struct{ Repo, ID string }

// expect notes that a complete copy waits for the assignment.
func (f *Front) expect(repo, id string) {
	f.staging.Lock()
	defer f.staging.Unlock()
	f.complete[repo] = id
}

// expected returns the last complete copy of a repository, or "".
func (f *Front) expected(repo string) string {
	f.staging.Lock()
	defer f.staging.Unlock()
	return f.complete[repo]
}

// forgetCopy removes a copy, unless another one came since.
func (f *Front) forgetCopy(repo, id string) error {
	f.staging.Lock()
	if f.complete[repo] == id {
		delete(f.complete, repo)
	}
	f.staging.Unlock()
	dir, complete := f.staged(repo, id)
	err := os.Remove(complete)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// unpack writes an entry of a copy.
func unpack(dir string, h *tar.Header, in io.Reader) error {
	if !filepath.IsLocal(h.Name) {
		return fmt.Errorf("%.200q leads out of the folder", h.Name)
	}
	path := filepath.Join(dir, filepath.FromSlash(h.Name))
	if h.Typeflag == tar.TypeDir {
		return os.MkdirAll(path, 0o755)
	}
	if h.Typeflag != tar.TypeReg {
		return fmt.Errorf("%.200q is no file", h.Name)
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fs.FileMode(h.Mode).Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// awaitAssignment installs a copy when this replica becomes its owner, although the owner before was killed. Otherwise it
// removes the copy after a time.
func (f *Front) awaitAssignment(repo, id string, until time.Time) {
	const often, rarely = time.Second, 30 * time.Second
	wait, complete := often, false
	for {
		select {
		case <-time.After(wait):
		case <-f.closing.Done():
			return
		}
		dir, mark := f.staged(repo, id)
		_, missing := os.Stat(dir)
		info, err := os.Stat(mark)
		if err != nil && (complete || missing != nil) {
			return // installed, or removed
		}
		if err == nil && !complete {
			complete, until = true, info.ModTime().Add(stagedFor)
		}
		late := time.Now().After(until)
		if complete && (late || f.Group.Copy(repo) == id) {
			err := f.install(f.closing, repo, id)
			if err == nil {
				return
			}
			if !errors.Is(err, errNotAssigned) { // the copy stays
				f.Log.Error("cannot take a repository that was moved here into use", "repo", repo, "err", err)
				wait = min(2*wait, rarely)
				continue
			}
		}
		if late {
			if err := f.forgetCopy(repo, id); err != nil {
				f.Log.Warn("cannot remove the copy of a repository that was not moved here", "repo", repo, "err", err)
			}
			return
		}
	}
}

// errNotAssigned means that the assignment of a repository does not name the copy.
var errNotAssigned = fmt.Errorf("%w: the assignment does not name this copy", record.ErrConflict)

// install takes a copy into use, if the assignment names it. It does nothing if that was done, and goes on where a process
// was killed.
func (f *Front) install(ctx context.Context, repo, id string) error {
	f.taking.Lock()
	defer f.taking.Unlock()
	mine, err := f.Group.Assigned(ctx, repo, id)
	if err == nil && !mine {
		err = errNotAssigned
	}
	if err != nil {
		return fmt.Errorf("cannot take %s into use: %w", repo, err)
	}
	dir, complete := f.staged(repo, id)
	if _, err := os.Stat(complete); errors.Is(err, fs.ErrNotExist) {
		if _, err := f.Git.Repo(repo); err == nil {
			return nil
		}
		return fmt.Errorf("%w: no copy of %s is here", record.ErrNotFound, repo)
	}
	if _, err := os.Stat(dir); err == nil { // otherwise it is in its place
		if err := f.putAside(ctx, repo); err != nil {
			return err
		}
		if _, err := f.Git.Adopt(ctx, repo, dir); err != nil {
			return err
		}
	}
	if err := f.Executor.Repos.TakeOver(ctx, repo); err != nil {
		return err
	}
	return f.forgetCopy(repo, id)
}

// putAside moves an older copy of a repository out of the way, which this replica owned once and could not discard.
func (f *Front) putAside(ctx context.Context, repo string) error {
	at, err := Aside(f.Executor.Data, repo)
	if err == nil {
		err = f.Git.MoveOut(ctx, repo, at)
	}
	if errors.Is(err, gitd.ErrNotFound) {
		return nil
	}
	if err == nil {
		f.Log.Warn("an older copy of a repository that was moved here was put aside", "repo", repo, "at", at)
	}
	return err
}

// Aside returns a free place for a copy of a repository that another replica owns. Its folder is there.
func Aside(data, repo string) (string, error) {
	dir := filepath.Join(data, "moved")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return filepath.Join(dir, fmt.Sprintf("%s-%d.git", strings.ReplaceAll(repo, "/", "-"), time.Now().UnixNano())), nil
}

// arrive takes a copy of a repository into use that this replica owns now, before the repository is served.
func (f *Front) arrive(ctx context.Context, repo string) {
	id := f.expected(repo)
	if id == "" || f.Group.Copy(repo) != id {
		return
	}
	if err := f.install(ctx, repo, id); err != nil {
		f.Log.Error("cannot take a repository that was moved here into use", "repo", repo, "err", err)
	}
}

// Install takes the copies into use whose assignment came while this replica did not run. Complete copies wait on for
// theirs, as long as a process that gives the repository away may be at work. The others are removed.
func (f *Front) Install(ctx context.Context) error {
	folder := filepath.Join(f.Executor.Data, incoming)
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		entries, err = nil, nil
	}
	keep := map[string]bool{}
	for _, e := range entries {
		b, rerr := os.ReadFile(filepath.Join(folder, e.Name()))
		var is stagedCopy
		if !strings.HasSuffix(e.Name(), ".json") || rerr != nil || json.Unmarshal(b, &is) != nil || !idForm.MatchString(is.ID) {
			continue
		}
		dir, complete := f.staged(is.Repo, is.ID)
		keep[filepath.Base(dir)], keep[filepath.Base(complete)] = true, true
		f.expect(is.Repo, is.ID)
		if err := f.install(ctx, is.Repo, is.ID); err == nil {
			continue
		} else if !errors.Is(err, errNotAssigned) {
			f.Log.Error("cannot take a repository that was moved here into use yet", "repo", is.Repo, "err", err)
		}
		f.work.Go(func() { f.awaitAssignment(is.Repo, is.ID, time.Now().Add(stagedFor)) })
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(folder, e.Name())))
		}
	}
	return errors.Join(err, os.RemoveAll(filepath.Join(f.Executor.Data, outgoing)), f.Executor.Repos.ClearArrivals())
}

func (f *Front) serveInstall(w http.ResponseWriter, r *http.Request) {
	repo, id, err := copyOf(r)
	if err == nil {
		err = f.install(r.Context(), repo, id)
	}
	answerResult(w, err)
}

func (f *Front) serveArtifact(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	file := record.ManifestFile{SHA256: q.Get("sha256"), Stored: true}
	_, err := fmt.Sscan(q.Get("size"), &file.Size)
	if sum, herr := hex.DecodeString(file.SHA256); herr != nil || len(sum) != sha256.Size {
		err = fmt.Errorf("%.100q is no SHA-256", file.SHA256)
	}
	if err == nil {
		err = f.Executor.Repos.KeepArtifact(r.Context(), file, r.Body)
	}
	answerResult(w, err)
}

func answerResult(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, struct{}{})
}
