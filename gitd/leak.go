package gitd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// A push that holds the value of a secret is refused before any ref moves. What
// it brings has to be looked at as git understands it, deltas resolved, and
// before it is in the repository: that is where git calls pre-receive hooks. No
// hook of a repository is ever run; this one is ours, in a folder of ours. It
// hands the place where git keeps the new objects apart over a pipe to this process,
// which looks through them and answers.

// hooksFolder below Root holds the hook; its name cannot be a repository's.
const hooksFolder = ".ramus-hooks"

// hookScript speaks to the pipes that the server leaves open for it: 3 asks, 4
// answers. Whatever goes wrong refuses the push.
const hookScript = `#!/bin/sh
# Asks the Git server whether what was pushed may stay.
printf '%s\n' "${GIT_QUARANTINE_PATH:-}" >&3 || exit 1
IFS= read -r answer <&4 || exit 1
[ "$answer" = ok ] && exit 0
printf '%s\n' "$answer" >&2
exit 1
`

// hook is the folder of the hook; the zero value has still to be made.
type hook struct {
	mu    sync.Mutex // guards tried
	tried bool       // it was run, and answered
}

// ready makes sure that the hook is there and runs: git takes one that it
// cannot run for none at all.
func (h *hook) ready(ctx context.Context, root string) (dir string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	dir = filepath.Join(root, hooksFolder)
	file := filepath.Join(dir, "pre-receive")
	text, err := readSmall(file)
	info, err2 := os.Stat(file)
	if err != nil || err2 != nil || string(text) != hookScript || info.Mode().Perm() != 0o700 {
		h.tried = false
		if err := h.write(dir, file); err != nil {
			return "", fmt.Errorf("cannot make the hook that looks for secrets: %w", err)
		}
	}
	if h.tried {
		return dir, nil
	}
	if err := try(ctx, file); err != nil {
		return "", fmt.Errorf("cannot run the hook that looks for secrets: %w", err)
	}
	h.tried = true
	return dir, nil
}

func (h *hook) write(dir, file string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hookScript)
	if err := errors.Join(err, f.Chmod(0o700), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// try runs the hook as git would, with an answer that lies ready.
func try(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		p, err := newTalk()
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, file)
		cmd.Env = []string{"GIT_QUARANTINE_PATH=here"}
		cmd.ExtraFiles = p.theirs()
		_, err = p.answer.WriteString("ok\n")
		if err == nil {
			err = cmd.Run()
		}
		p.closeTheirs()
		asked, _ := bufio.NewReader(p.ask).ReadString('\n')
		p.close()
		switch {
		case errors.Is(err, syscall.ETXTBSY) && ctx.Err() == nil:
			// A child that is just being started still has the file as it was written.
			time.Sleep(10 * time.Millisecond)
			continue
		case err != nil:
			return err
		case asked != "here\n":
			return fmt.Errorf("it asked %q", asked)
		}
		return nil
	}
}

// talk is the two pipes between the hook and this process.
type talk struct {
	ask, theirAnswer *os.File // read ends
	theirAsk, answer *os.File // write ends
}

func newTalk() (*talk, error) {
	var t talk
	var err error
	if t.ask, t.theirAsk, err = os.Pipe(); err != nil {
		return nil, err
	}
	if t.theirAnswer, t.answer, err = os.Pipe(); err != nil {
		t.ask.Close()
		t.theirAsk.Close()
		return nil, err
	}
	return &t, nil
}

// theirs are file descriptors 3 and 4 of the child.
func (t *talk) theirs() []*os.File { return []*os.File{t.theirAsk, t.theirAnswer} }

func (t *talk) closeTheirs() {
	t.theirAsk.Close()
	t.theirAnswer.Close()
}

func (t *talk) close() {
	t.ask.Close()
	t.answer.Close()
}

// watch looks through one push while git receives it.
type watch struct {
	s     *Server
	a     access
	p     protocol.PushRequest
	hooks string
	talk  *talk
	stop  context.CancelFunc
	ended chan struct{}

	// Set when ended is closed.
	asked bool
	leaks []Leak
	err   error
}

// watch begins to wait for git's question; end must be called once git has ended.
func (s *Server) watch(ctx context.Context, a access, p protocol.PushRequest) (*watch, error) {
	dir, err := s.hook.ready(ctx, s.Root)
	if err != nil {
		return nil, err
	}
	t, err := newTalk()
	if err != nil {
		return nil, fmt.Errorf("cannot look for secrets in a push: %w", err)
	}
	ctx, stop := context.WithTimeoutCause(ctx, s.limits.Time, errChildTime)
	w := &watch{s: s, a: a, p: p, hooks: dir, talk: t, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		line, err := bufio.NewReader(t.ask).ReadString('\n')
		if err != nil {
			return // git ended without asking
		}
		w.asked = true
		answer := "ok"
		quarantine := strings.TrimSuffix(line, "\n")
		if w.err = w.believe(quarantine); w.err == nil {
			w.leaks, w.err = w.look(ctx, quarantine)
		}
		switch {
		case w.err != nil:
			answer = "refused: the server could not look for secrets in the push"
		case len(w.leaks) > 0:
			answer = object.LeakText(w.leaks)
		}
		_, _ = io.WriteString(t.answer, answer+"\n") // a hook that hears nothing refuses
	}()
	return w, nil
}

// child adds to git's call what the hook needs.
func (w *watch) child(c gitcmd.Command) gitcmd.Command {
	c.Files = w.talk.theirs()
	c.Config = append(c.Config, "core.hooksPath="+w.hooks)
	return c
}

// end waits until nothing is looked through any more. A push that git accepted
// without asking is an error.
func (w *watch) end(accepted bool) error {
	// Git has ended: what it has not asked it will not ask, and nobody waits for an answer.
	w.talk.closeTheirs()
	_ = w.talk.ask.SetReadDeadline(time.Now()) // a pipe has deadlines
	w.stop()
	<-w.ended
	w.talk.close()
	switch {
	case w.err != nil:
		return w.err
	case accepted && !w.asked:
		return errors.New("git did not ask whether the push holds secrets")
	}
	return nil
}

// believe checks that what came over the pipe is a folder where git keeps new objects.
func (w *watch) believe(quarantine string) error {
	objects, err := filepath.EvalSymlinks(filepath.Join(w.a.dir, "objects"))
	if err != nil {
		return fmt.Errorf("cannot look for secrets in a push: %w", err)
	}
	if rel, err := filepath.Rel(objects, quarantine); err != nil || !filepath.IsLocal(rel) || rel == "." {
		return fmt.Errorf("cannot look for secrets in a push: %q is no folder for new objects of %s", quarantine, w.a.name)
	}
	return nil
}

// look finds the secrets in the objects that are kept apart in the folder quarantine.
func (w *watch) look(ctx context.Context, quarantine string) ([]Leak, error) {
	var leaks []Leak
	err := w.s.eachPushed(ctx, w.a.dir, quarantine, func(id Hash, kind string, r io.Reader) error {
		names, err := w.s.Secrets.Find(r)
		for _, name := range names {
			if len(leaks) < object.MaxLeaks && !slices.ContainsFunc(leaks, func(l Leak) bool { return l.Secret == name && l.Object == id }) {
				leaks = append(leaks, Leak{Secret: name, Kind: kind, Object: id})
			}
		}
		return err
	})
	if err == nil && len(leaks) > 0 {
		leaks, err = w.fresh(ctx, leaks)
	}
	if err == nil && len(leaks) > 0 {
		err = w.place(ctx, quarantine, leaks)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot look for secrets in a push: %w", err)
	}
	return leaks, nil
}

// eachPushed calls f with every object of a quarantine, at least once: in process where that
// can be, which for most pushes is quicker than to start a git for it.
func (s *Server) eachPushed(ctx context.Context, repo, quarantine string, f func(id Hash, kind string, r io.Reader) error) error {
	entries, err := os.ReadDir(quarantine)
	if err != nil {
		return err
	}
	if len(entries) == 1 && entries[0].Name() == "pack" { // no object has a file of its own
		packs := &pack.Files{Dir: filepath.Join(quarantine, "pack")}
		defer packs.Close()
		err := packs.Each(func(id Hash, obj object.Object) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return f(id, obj.Kind, bytes.NewReader(obj.Data))
		})
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return s.eachObject(ctx, repo, quarantine, f)
}

// eachObject calls f with every object of one object folder alone.
func (s *Server) eachObject(ctx context.Context, repo, folder string, f func(id Hash, kind string, r io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	p, err := s.git.Start(ctx, gitcmd.Command{Repo: repo, Args: []string{"cat-file", "--batch-all-objects", "--unordered", "--batch"}, Out: w,
		Env: []string{"GIT_OBJECT_DIRECTORY=" + folder}, CPU: s.limits.CPU, Memory: s.limits.Memory})
	w.Close()
	if err != nil {
		return err
	}
	br := bufio.NewReaderSize(r, 256<<10)
	err = func() error {
		for {
			head, err := br.ReadString('\n')
			if err == io.EOF && head == "" {
				return nil
			}
			if err != nil {
				return fmt.Errorf("cannot read git's list of objects: %w", err)
			}
			parts := strings.Fields(head)
			if len(parts) != 3 {
				return fmt.Errorf("cannot read git's list of objects: a line is %.200q", head)
			}
			size, err := strconv.ParseInt(parts[2], 10, 64)
			if err != nil {
				return fmt.Errorf("cannot read git's list of objects: %w", err)
			}
			content := &io.LimitedReader{R: br, N: size}
			if err := f(Hash(parts[0]), parts[1], content); err != nil {
				return err
			}
			if content.N > 0 {
				return fmt.Errorf("cannot read object %s: %w", parts[0], io.ErrUnexpectedEOF)
			}
			if _, err := br.Discard(1); err != nil {
				return fmt.Errorf("cannot read object %s: %w", parts[0], err)
			}
		}
	}()
	if err != nil {
		cancel(err)
	}
	return errors.Join(err, p.Wait())
}

// fresh leaves out objects that the repository has already: git completes a
// pack with those that its deltas begin from.
func (w *watch) fresh(ctx context.Context, leaks []Leak) ([]Leak, error) {
	var ids strings.Builder
	for _, l := range leaks {
		ids.WriteString(string(l.Object) + "\n")
	}
	out, err := w.s.git.Output(ctx, gitcmd.Command{Repo: w.a.dir, Args: []string{"cat-file", "--batch-check=%(objectname)"},
		In: strings.NewReader(ids.String()), CPU: w.s.limits.CPU, Memory: w.s.limits.Memory})
	if err != nil {
		return nil, err
	}
	known := make(map[Hash]bool)
	for line := range strings.Lines(string(out)) {
		known[Hash(strings.TrimSuffix(line, "\n"))] = true // of one that is missing the line says so, too, and is no name
	}
	return slices.DeleteFunc(leaks, func(l Leak) bool { return known[l.Object] }), nil
}

// place finds out by what paths the objects are reached.
func (w *watch) place(ctx context.Context, quarantine string, leaks []Leak) error {
	var tips strings.Builder
	for _, c := range w.p.Commands {
		if !c.Deletes() {
			tips.WriteString(c.New + "\n")
		}
	}
	paths := &pathFinder{paths: make(map[Hash]string)}
	for _, l := range leaks {
		paths.paths[l.Object] = ""
	}
	err := w.s.git.Run(ctx, gitcmd.Command{Repo: w.a.dir, Args: []string{"rev-list", "--objects", "--stdin", "--not", "--all"}, In: strings.NewReader(tips.String()), Out: paths,
		Env: []string{"GIT_OBJECT_DIRECTORY=" + quarantine, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + filepath.Join(w.a.dir, "objects")},
		CPU: w.s.limits.CPU, Memory: w.s.limits.Memory})
	if err != nil {
		return err
	}
	for i, l := range leaks {
		if l.Kind != "blob" && l.Kind != "tree" {
			continue // git gives a tag its name for a path
		}
		leaks[i].Path = object.CleanPath(w.s.Secrets, paths.paths[l.Object])
	}
	return nil
}

// pathFinder reads lines of "HASH PATH" and keeps the paths of the hashes it knows.
type pathFinder struct {
	paths map[Hash]string
	line  []byte
}

// longestPath is where the rest of a path is not read.
const longestPath = 8 << 10

func (f *pathFinder) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part, rest, whole := bytes.Cut(p, []byte("\n"))
		f.line = append(f.line, part[:min(len(part), max(0, longestPath-len(f.line)))]...)
		p = rest
		if !whole {
			break
		}
		id, path, _ := strings.Cut(string(f.line), " ")
		if old, wanted := f.paths[Hash(id)]; wanted && old == "" {
			f.paths[Hash(id)] = path
		}
		f.line = f.line[:0]
	}
	return n, nil
}
