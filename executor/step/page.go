package step

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/egress"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// BrowserTasks are the library tasks that look at pages. They may be done twice.
var BrowserTasks = map[string]bool{"browser_test": true, "capture_screenshot": true}

const (
	scratchWait   = 5 * time.Minute // for a container to look at the base in
	scratchPrefix = "look:"         // of the key of such a container
)

// NewChecks returns the checks of the run, of which there are none yet in this process.
func (l *Run) NewChecks() *browse.Run {
	return &browse.Run{
		Output:  l.Runner.Folder.Output(l.Initial),
		Journal: l.Journalled,
		Emit:    func(e record.Event) error { return l.Emit(e, false) },
	}
}

// Browse does one check in the step's container, see [tasks.Browser].
func (s *TaskShell) Browse(ctx context.Context, spec browser.Spec) (browser.Check, error) {
	return s.W.Run.Runner.Inspector.Check(ctx, pageStep(s), spec, s.Timeout)
}

// SpecFiles returns the specs of pages that the repository's configuration names.
func (s *TaskShell) SpecFiles() []string { return s.W.Target.Settings().Browser }

// pageStep returns the step of a shell as browse takes it.
func pageStep(s *TaskShell) browse.Step {
	w := s.W
	return browse.Step{
		ID:    w.Info.ID,
		Claim: w.Run.Initial,
		Run:   w.Run.Checks,
		Tree:  w.Target.Tree,
		Host:  w.Host,
		Image: w.Image,
		Env:   w.Target.Env(w.Run.Initial.Asker),
		Site:  w.Target.Site,
		Shell: pageShell{s},
	}
}

// pageShell is the [browse.Shell] of a step.
type pageShell struct{ s *TaskShell }

func (p pageShell) Commit(ctx context.Context, subject string) (commit, tree gitd.Hash, err error) {
	return p.s.W.commitSoFar(ctx, subject)
}

func (p pageShell) NextID() string {
	w := p.s.W
	w.n++
	return w.ID + "." + strconv.Itoa(w.n)
}

func (p pageShell) Attend(ctx context.Context, c containers.Command, stdout, stderr io.Writer) (containers.Exit, error) {
	return p.s.W.Attend(ctx, c.ID, &c, stdout, stderr)
}

func (p pageShell) Print(w io.Writer, stderr bool) io.Writer { return p.s.W.heard(w, stderr) }

func (p pageShell) ReadFile(ctx context.Context, name string) ([]byte, error) {
	return p.s.readFile(ctx, name)
}

func (p pageShell) Scratch(ctx context.Context, commit gitd.Hash, branch string, number int) (browse.Step, func(), error) {
	w, r := p.s.W, p.s.W.Run.Runner
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", w.Run.Initial.Name(), w.Info.ID, number))
	key := scratchPrefix + hex.EncodeToString(sum[:10])
	t := r.NewTarget(record.Caller{}, w.Target.Repo, w.Target.Base)
	ctx, cancel := context.WithTimeout(ctx, scratchWait)
	defer cancel()
	lease, err := t.OpenScratch(ctx, worktree.Scratch{
		Key:     key,
		Image:   cmp.Or(w.Run.Owner.Image(), r.Image),
		Branch:  branch,
		Commit:  commit,
		Door:    w.scratchDoor(key),
		Furnish: true,
		Beyond:  true, // the step holds a container; an Inspector looks at one base at a time
	})
	if err != nil {
		return browse.Step{}, nil, err
	}
	at := &Work{Run: w.Run, Target: t, Host: lease.Host, Image: lease.Container.Image, Info: w.Info, ID: w.ID, Before: commit,
		Head: &Head{At: commit}}
	return pageStep(&TaskShell{W: at, Timeout: p.s.Timeout}), func() { t.CloseScratch(lease, key) }, nil
}

// scratchDoor returns a door of a scratch container. The container may read all that the caller's container may read.
// It writes nothing, and reaches the allowed hosts. The run records those hosts.
func (w *Work) scratchDoor(key string) http.Handler {
	r, t := w.Run.Runner, w.Target
	git := r.Git.GrantHandler(gitd.Grant{
		Subject: key,
		Repo:    t.Repo.Name(),
		Read:    []string{"refs/heads/" + t.Base, "refs/heads/" + t.Caller.Branch()},
		Scopes:  []string{gitd.ScopeRead},
		Expires: r.Now().AddDate(1, 0, 0), // not a bound, because the grant ends with the connection
	})
	return worktree.ScratchDoor(t.Repo, git, &egress.Proxy{Hosts: r.Egress, Tell: t.Tell})
}

// Identify commits the files as they are and notes their tree. A check is evidence for that tree only.
func (w *Work) Identify(ctx context.Context, check string) error {
	_, tree, err := w.commitSoFar(ctx, "files before "+check)
	if err != nil {
		return fmt.Errorf("cannot commit the files before %s: %w", check, err)
	}
	if !w.Target.LeftOut() { // the check would see files that no tree has
		w.checked = tree
	}
	return nil
}

// commitSoFar commits the work tree in the middle of the step, and returns where the branch is then.
func (w *Work) commitSoFar(ctx context.Context, subject string) (commit, tree gitd.Hash, err error) {
	if w.Info.Discard {
		return "", "", fmt.Errorf("%w: nothing is committed while a plan is made", record.ErrConflict)
	}
	w.Head.mu.Lock()
	defer w.Head.mu.Unlock()
	// Without the trailer of an exit code, since the step has not ended with this commit.
	made, err := w.Target.Commit(ctx, w.Host, w.Head.At, w.Run.Initial.Asker, w.Halfway(subject), nil)
	if err != nil {
		return "", "", err
	}
	w.Head.At, w.Head.Left = made.At, append(w.Head.Left, made.Left...)
	c, err := w.Target.Repo.Commit(ctx, string(made.At))
	return made.At, c.Tree, err
}
