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
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// A repository moves in five steps. Its owner copies it to the other replica while it is used. It holds new requests, waits
// for the pushes at work, and copies the rest. It changes the assignment, which is the moment of the move. The other
// replica takes the copy into use. The owner before discards its own, and passes the held requests on.

const (
	// drainWait bounds the wait for pushes at work. Those that take longer are refused when they end.
	drainWait = 20 * time.Second
	// giveWait bounds the time without an answer of the cluster whether the assignment has changed.
	giveWait = 2 * time.Minute
	// stagedFor is how long a copy waits for the assignment.
	stagedFor = 10 * time.Minute
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

// shutGate holds new requests for a repository, and waits for its pushes.
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
	return func() {
		f.gating.Lock()
		defer f.gating.Unlock()
		close(g.shut)
		if g.shut = nil; g.pushes == 0 {
			delete(f.gates, repo)
		}
	}, nil
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
	artifacts, err := f.Executor.HandOver(ctx, name, by)
	if err != nil {
		return m, err
	}
	dir := filepath.Join(f.Executor.Data, outgoing, fileName(name))
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	sent, id := map[string]bool{}, rand.Text()
	refs, err := repo.Copy(ctx, dir, nil)
	if err == nil {
		err = f.send(ctx, target, copying{name, dir, id, true, false}, sent)
	}
	if err == nil {
		err = f.sendArtifacts(ctx, target, artifacts, sent)
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
	// What was done since the first copy.
	if artifacts, err = f.Executor.HandOver(ctx, name, by); err != nil {
		return m, err
	}
	thaw, ok := f.Group.Freeze(name)
	if !ok {
		return m, fmt.Errorf("%w: it is being moved already", record.ErrConflict)
	}
	defer thaw()
	if err := f.Executor.CheckIdle(name); err != nil {
		return m, err
	}
	if _, err = repo.Copy(ctx, dir, refs); err == nil {
		err = f.send(ctx, target, copying{name, dir, id, false, true}, sent)
	}
	if err == nil {
		err = f.sendArtifacts(ctx, target, artifacts, sent)
	}
	if err != nil {
		return m, err
	}
	// From here on the move is finished, also if the client goes.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveWait)
	defer cancel()
	if err := f.Group.Give(ctx, name, to); err != nil {
		return m, err
	}
	// The copy here stays until the other replica serves its own. The next start of this one puts it aside.
	if err := f.ask(ctx, target, http.MethodPost, "/replica/install?"+url.Values{"repo": {name}}.Encode(), nil, nil); err != nil {
		return m, fmt.Errorf("%s belongs to %s, which has not answered that it serves it; the copy here is kept: %w", name, to, err)
	}
	m.Held = time.Since(begun).Milliseconds()
	return m, f.Executor.Leave(ctx, name)
}

// isOwn reports whether every replica has a repository of that name.
func (f *Front) isOwn(name string) bool {
	for _, shared := range f.Group.Shared {
		if name == shared {
			return true
		}
	}
	return false
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
	go func() {
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
	}()
	q := url.Values{"repo": {repo}, "id": {c.id}}
	if c.first {
		q.Set("first", "1")
	}
	if c.last {
		q.Set("last", "1")
	}
	err := f.ask(ctx, to, http.MethodPost, "/replica/take?"+q.Encode(), out, nil)
	out.CloseWithError(err)
	return err
}

// sendArtifacts sends artifacts that were not sent before.
func (f *Front) sendArtifacts(ctx context.Context, to ownership.Replica, files []record.ManifestFile, sent map[string]bool) error {
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
func (f *Front) staged(repo string) (dir, complete string) {
	dir = filepath.Join(f.Executor.Data, incoming, fileName(repo))
	return dir + ".git", dir + ".json"
}

// serveTake takes files of a copy.
func (f *Front) serveTake(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	repo := q.Get("repo")
	err := gitd.CheckName(repo)
	if err == nil {
		dir, _ := f.staged(repo)
		err = f.take(r, copying{repo, dir, q.Get("id"), q.Get("first") != "", q.Get("last") != ""})
	}
	answerResult(w, err)
}

func (f *Front) take(r *http.Request, c copying) error {
	f.taking.Lock()
	defer f.taking.Unlock()
	dir, repo := c.dir, c.repo
	_, complete := f.staged(repo)
	if err := os.Remove(complete); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if c.first {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		f.copies[repo] = c.id
	} else if f.copies[repo] != c.id {
		return fmt.Errorf("the first part of the copy of %s is not here any more", repo)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	in := tar.NewReader(r.Body)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = unpack(dir, h, in)
		}
		if err != nil {
			return fmt.Errorf("cannot take a file of %s: %w", repo, err)
		}
	}
	if !c.last {
		return nil
	}
	delete(f.copies, repo)
	b, err := json.Marshal(map[string]string{"repo": repo})
	if err == nil {
		err = gitd.Sync(dir) // before the name of the file that says so
	}
	if err == nil {
		err = os.WriteFile(complete, b, 0o600)
	}
	if err == nil {
		err = gitd.Sync(filepath.Dir(dir))
	}
	if err == nil {
		f.work.Go(func() { f.awaitAssignment(repo) })
	}
	return err
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

// awaitAssignment installs a copy when this replica becomes its owner, although the owner before was killed.
func (f *Front) awaitAssignment(repo string) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for late := time.Now().Add(stagedFor); time.Now().Before(late); {
		select {
		case <-tick.C:
		case <-f.closing.Done():
			return
		}
		if owner, ok := f.Group.Find(repo); !ok || !owner.Self {
			continue
		}
		if err := f.install(f.closing, repo); err != nil {
			f.Log.Error("cannot take a repository that was moved here into use", "repo", repo, "err", err)
		}
		return
	}
}

// install takes a copy into use, if this replica owns the repository. It does nothing if that was done.
func (f *Front) install(ctx context.Context, repo string) error {
	f.taking.Lock()
	defer f.taking.Unlock()
	dir, complete := f.staged(repo)
	if _, err := os.Stat(complete); errors.Is(err, fs.ErrNotExist) {
		if _, err := f.Git.Repo(repo); err == nil {
			return nil
		}
		return fmt.Errorf("%w: no copy of %s is here", record.ErrNotFound, repo)
	}
	if owner, ok := f.Group.Look(ctx, repo); !ok || !owner.Self {
		return fmt.Errorf("%w: this replica does not own %s", record.ErrConflict, repo)
	}
	if _, err := f.Git.Adopt(ctx, repo, dir); err != nil {
		return err
	}
	err := f.Executor.TakeOver(ctx, repo)
	return errors.Join(err, os.Remove(complete))
}

// Install takes the copies into use whose assignment came while this replica did not run, and removes the others.
func (f *Front) Install(ctx context.Context) error {
	folder := filepath.Join(f.Executor.Data, incoming)
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		var is struct{ Repo string }
		b, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if !strings.HasSuffix(e.Name(), ".json") || err != nil || json.Unmarshal(b, &is) != nil {
			continue
		}
		if owner, ok := f.Group.Find(is.Repo); ok && owner.Self {
			if err := f.install(ctx, is.Repo); err != nil {
				return fmt.Errorf("cannot take %s into use, which was moved here: %w", is.Repo, err)
			}
		}
	}
	return errors.Join(err, os.RemoveAll(folder), os.RemoveAll(filepath.Join(f.Executor.Data, outgoing)))
}

func (f *Front) serveInstall(w http.ResponseWriter, r *http.Request) {
	answerResult(w, f.install(r.Context(), r.URL.Query().Get("repo")))
}

func (f *Front) serveArtifact(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	file := record.ManifestFile{SHA256: q.Get("sha256"), Stored: true}
	_, err := fmt.Sscan(q.Get("size"), &file.Size)
	if sum, herr := hex.DecodeString(file.SHA256); herr != nil || len(sum) != sha256.Size {
		err = fmt.Errorf("%.100q is no SHA-256", file.SHA256)
	}
	if err == nil {
		err = f.Executor.KeepArtifact(r.Context(), file, r.Body)
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
