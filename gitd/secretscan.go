package gitd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// A push that holds the value of a secret is refused before any ref changes. Its objects have to be searched as
// git understands them, with deltas resolved, and before they are in the repository. At that point git calls
// pre-receive hooks. Hooks of a repository never run. The only hook is in a folder of the server. It
// sends the place where git keeps the new objects to this process, which searches them and answers.

// secretScan searches one push for secrets while git receives it.
type secretScan struct {
	s     *Server
	a     access
	p     protocol.PushRequest
	hooks string // the folder of the hook
	pipes *hookPipes
	stop  context.CancelFunc
	ended chan struct{}

	// Set before ended is closed.
	asked bool
	leaks []Leak
	err   error
}

// startScan waits in the background for the question of the hook. end must be called once git has ended.
func (p *incoming) startScan(ctx context.Context) (*secretScan, error) {
	s := p.s
	dir, err := s.hook.prepare(ctx, s.Root)
	if err != nil {
		return nil, err
	}
	pipes, err := newHookPipes()
	if err != nil {
		return nil, fmt.Errorf("cannot look for secrets in a push: %w", err)
	}
	ctx, stop := context.WithTimeoutCause(ctx, s.limits.Time, errChildTime)
	w := &secretScan{s: s, a: p.a, p: p.request, hooks: dir, pipes: pipes, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		w.answerHook(ctx)
	}()
	return w, nil
}

// answerHook answers the question of the hook, unless git ends without one.
func (w *secretScan) answerHook(ctx context.Context) {
	line, err := bufio.NewReader(w.pipes.ask).ReadString('\n')
	if err != nil {
		return // git ended without a question
	}
	w.asked = true
	answer := "ok"
	quarantine := strings.TrimSuffix(line, "\n")
	if w.err = w.checkQuarantine(quarantine); w.err == nil {
		w.leaks, w.err = w.findLeaks(ctx, quarantine)
	}
	switch {
	case w.err != nil:
		answer = "refused: the server could not look for secrets in the push"
	case len(w.leaks) > 0:
		answer = object.LeakText(w.leaks)
	}
	_, _ = io.WriteString(w.pipes.answer, answer+"\n") // a hook without an answer refuses
}

// addHook adds the hook to a call of git.
func (w *secretScan) addHook(c gitcmd.Command) gitcmd.Command {
	c.Files = w.pipes.hookFiles()
	c.Config = append(c.Config, "core.hooksPath="+w.hooks)
	return c
}

// end waits for the end of the scan. It returns an error if git accepted a push without a question.
func (w *secretScan) end(accepted bool) error {
	// Git has ended, so no further question comes, and nobody waits for an answer.
	w.pipes.closeHookFiles()
	_ = w.pipes.ask.SetReadDeadline(time.Now()) // a pipe supports deadlines
	w.stop()
	<-w.ended
	w.pipes.close()
	switch {
	case w.err != nil:
		return w.err
	case accepted && !w.asked:
		return errors.New("git did not ask whether the push holds secrets")
	}
	return nil
}

// checkQuarantine returns an error unless the text that came over the pipe is a folder of new objects.
func (w *secretScan) checkQuarantine(quarantine string) error {
	objects, err := filepath.EvalSymlinks(filepath.Join(w.a.dir, "objects"))
	if err != nil {
		return fmt.Errorf("cannot look for secrets in a push: %w", err)
	}
	if rel, err := filepath.Rel(objects, quarantine); err != nil || !filepath.IsLocal(rel) || rel == "." {
		return fmt.Errorf("cannot look for secrets in a push: %q is not a folder for new objects of %s",
			quarantine, w.a.name)
	}
	return nil
}

// findLeaks returns the secrets in the objects of the folder quarantine.
func (w *secretScan) findLeaks(ctx context.Context, quarantine string) ([]Leak, error) {
	var leaks []Leak
	err := w.eachPushed(ctx, quarantine, func(id Hash, kind string, r io.Reader) error {
		names, err := w.s.Secrets.Find(r)
		for _, name := range names {
			if len(leaks) < object.MaxLeaks &&
				!slices.ContainsFunc(leaks, func(l Leak) bool { return l.Secret == name && l.Object == id }) {
				leaks = append(leaks, Leak{Secret: name, Kind: kind, Object: id})
			}
		}
		return err
	})
	if err == nil && len(leaks) > 0 {
		leaks, err = w.dropKnown(ctx, leaks)
	}
	if err == nil && len(leaks) > 0 {
		err = w.findPaths(ctx, quarantine, leaks)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot look for secrets in a push: %w", err)
	}
	return leaks, nil
}

// dropKnown leaves out objects that the repository has already. Git completes a pack with the bases of its
// deltas.
func (w *secretScan) dropKnown(ctx context.Context, leaks []Leak) ([]Leak, error) {
	var ids strings.Builder
	for _, l := range leaks {
		ids.WriteString(string(l.Object) + "\n")
	}
	out, err := w.s.git.Output(ctx, gitcmd.Command{
		Repo: w.a.dir, Args: []string{"cat-file", "--batch-check=%(objectname)"},
		In: strings.NewReader(ids.String()), CPU: w.s.limits.CPU, Memory: w.s.limits.Memory,
	})
	if err != nil {
		return nil, err
	}
	known := make(map[Hash]bool)
	for line := range strings.Lines(string(out)) {
		known[Hash(strings.TrimSuffix(line, "\n"))] = true // the line of a missing object is not a name
	}
	return slices.DeleteFunc(leaks, func(l Leak) bool { return known[l.Object] }), nil
}

// findPaths sets the paths by which the objects are reached.
func (w *secretScan) findPaths(ctx context.Context, quarantine string, leaks []Leak) error {
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
	err := w.s.git.Run(ctx, gitcmd.Command{
		Repo: w.a.dir, Args: []string{"rev-list", "--objects", "--stdin", "--not", "--all"},
		In: strings.NewReader(tips.String()), Out: paths,
		Env: []string{"GIT_OBJECT_DIRECTORY=" + quarantine,
			"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + filepath.Join(w.a.dir, "objects")},
		CPU: w.s.limits.CPU, Memory: w.s.limits.Memory,
	})
	if err != nil {
		return err
	}
	for i, l := range leaks {
		if l.Kind != "blob" && l.Kind != "tree" {
			continue // git prints the name of a tag as its path
		}
		leaks[i].Path = object.CleanPath(w.s.Secrets, paths.paths[l.Object])
	}
	return nil
}

// eachPushed calls f with every object of a quarantine at least once. It reads packs in process, which for most
// pushes takes less time than the start of a git.
func (w *secretScan) eachPushed(ctx context.Context, quarantine string, f func(id Hash, kind string, r io.Reader) error) error {
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
	return w.eachObject(ctx, quarantine, f)
}

// eachObject calls f with every object of one folder of objects, as git prints them.
func (w *secretScan) eachObject(ctx context.Context, folder string, f func(id Hash, kind string, r io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	p, err := w.s.git.Start(ctx, gitcmd.Command{
		Repo: w.a.dir, Args: []string{"cat-file", "--batch-all-objects", "--unordered", "--batch"}, Out: in,
		Env: []string{"GIT_OBJECT_DIRECTORY=" + folder}, CPU: w.s.limits.CPU, Memory: w.s.limits.Memory,
	})
	in.Close()
	if err != nil {
		return err
	}
	err = readBatch(bufio.NewReaderSize(out, 256<<10), f)
	if err != nil {
		cancel(err)
	}
	return errors.Join(err, p.Wait())
}

// readBatch calls f with every object of the output of git cat-file --batch.
func readBatch(br *bufio.Reader, f func(id Hash, kind string, r io.Reader) error) error {
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
}

// pathFinder reads lines of "HASH PATH" and keeps the paths of the hashes in paths.
type pathFinder struct {
	paths map[Hash]string
	line  []byte
}

// longestPath bounds the bytes of a path that are read.
const longestPath = 8 << 10

func (f *pathFinder) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part, rest, complete := bytes.Cut(p, []byte("\n"))
		f.line = append(f.line, part[:min(len(part), max(0, longestPath-len(f.line)))]...)
		p = rest
		if !complete {
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
