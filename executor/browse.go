package executor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
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

// browserTasks are the library tasks that look at pages. They may be done twice.
var browserTasks = map[string]bool{"browser_test": true, "capture_screenshot": true}

const (
	scratchWait   = 5 * time.Minute // for a container to look at the base in
	scratchPrefix = "look:"         // of the key of such a container
)

// newInspector returns the inspector that does the checks of runs by a browser.
func (x *Executor) newInspector() *browse.Inspector {
	return &browse.Inspector{
		Browser: x.Browser,
		Fleet:   x.Fleet,
		Bot:     x.Bot,
		Secrets: x.Secrets,
		Log:     x.Log,
		Now:     x.Now,
	}
}

// TraceViewer returns Playwright's trace viewer, static files that come with the browser's driver. The error is ErrUnavailable if there is no
// browser.
func (x *Executor) TraceViewer(context.Context) (fs.FS, error) {
	return x.viewer.Files(x.ctx) // the next request needs them too, if this one is gone
}

// newChecks returns the checks of the run, of which there are none yet in this process.
func (l *liveRun) newChecks() *browse.Run {
	return &browse.Run{
		Output:  l.x.folder.Output(l.Initial),
		Journal: l.Journalled,
		Emit:    func(e record.Event) error { return l.Emit(e, false) },
	}
}

// Browse does one check in the step's container, see [tasks.Browser].
func (s *taskShell) Browse(ctx context.Context, spec browser.Spec) (browser.Check, error) {
	return s.w.l.x.inspector.Check(ctx, pageStep(s), spec, s.timeout)
}

// SpecFiles returns the specs of pages that the repository's configuration names.
func (s *taskShell) SpecFiles() []string { return s.w.t.settings().Browser }

// pageStep returns the step of a shell as browse takes it.
func pageStep(s *taskShell) browse.Step {
	w := s.w
	return browse.Step{
		ID:    w.s.ID,
		Claim: w.l.Initial,
		Run:   w.l.checks,
		Tree:  w.t.Tree,
		Host:  w.host,
		Image: w.image,
		Env:   w.t.env(w.l.Initial.Asker),
		Site:  w.t.site,
		Shell: pageShell{s},
	}
}

// pageShell is the [browse.Shell] of a step.
type pageShell struct{ s *taskShell }

func (p pageShell) Commit(ctx context.Context, subject string) (commit, tree gitd.Hash, err error) {
	return p.s.w.commitSoFar(ctx, subject)
}

func (p pageShell) NextID() string {
	w := p.s.w
	w.n++
	return w.id + "." + strconv.Itoa(w.n)
}

func (p pageShell) Attend(ctx context.Context, c containers.Command, stdout, stderr io.Writer) (containers.Exit, error) {
	return p.s.w.attend(ctx, c.ID, &c, stdout, stderr)
}

func (p pageShell) Print(w io.Writer, stderr bool) io.Writer { return p.s.w.heard(w, stderr) }

func (p pageShell) ReadFile(ctx context.Context, name string) ([]byte, error) {
	return p.s.readFile(ctx, name)
}

func (p pageShell) Scratch(ctx context.Context, commit gitd.Hash, branch string, number int) (browse.Step, func(), error) {
	w, x := p.s.w, p.s.w.l.x
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", w.l.Initial.Name(), w.s.ID, number))
	key := scratchPrefix + hex.EncodeToString(sum[:10])
	t := x.newTarget(record.Caller{}, w.t.Repo, w.t.Base)
	ctx, cancel := context.WithTimeout(ctx, scratchWait)
	defer cancel()
	lease, err := t.OpenScratch(ctx, worktree.Scratch{
		Key:     key,
		Image:   cmp.Or(w.l.image(), x.Image),
		Branch:  branch,
		Commit:  commit,
		Door:    w.scratchDoor(key),
		Furnish: true,
	})
	if err != nil {
		return browse.Step{}, nil, err
	}
	at := &work{l: w.l, t: t, host: lease.Host, image: lease.Container.Image, s: w.s, id: w.id, before: commit,
		head: &head{at: commit}}
	return pageStep(&taskShell{w: at, timeout: p.s.timeout}), func() { t.CloseScratch(lease, key) }, nil
}

// scratchDoor returns a door of a scratch container. The container may read all that the caller's container may read.
// It writes nothing, and reaches the allowed hosts. The run records those hosts.
func (w *work) scratchDoor(key string) http.Handler {
	x, t := w.l.x, w.t
	git := x.Git.GrantHandler(gitd.Grant{
		Subject: key,
		Repo:    t.Repo.Name(),
		Read:    []string{"refs/heads/" + t.Base, "refs/heads/" + t.Caller.Branch()},
		Scopes:  []string{gitd.ScopeRead},
		Expires: x.Now().AddDate(1, 0, 0), // not a bound, because the grant ends with the connection
	})
	return worktree.ScratchDoor(t.Repo, git, &egress.Proxy{Hosts: x.egress, Tell: t.tell})
}

// identify commits the files as they are and notes their tree. A check is evidence for that tree only.
func (w *work) identify(ctx context.Context, check string) error {
	_, tree, err := w.commitSoFar(ctx, "files before "+check)
	if err != nil {
		return fmt.Errorf("cannot commit the files before %s: %w", check, err)
	}
	if !w.t.LeftOut() { // the check would see files that no tree has
		w.checked = tree
	}
	return nil
}

// commitSoFar commits the work tree in the middle of the step, and returns where the branch is then.
func (w *work) commitSoFar(ctx context.Context, subject string) (commit, tree gitd.Hash, err error) {
	w.head.mu.Lock()
	defer w.head.mu.Unlock()
	// Without the trailer of an exit code, since the step has not ended with this commit.
	made, err := w.t.Commit(ctx, w.host, w.head.at, w.l.Initial.Asker, w.halfway(subject), nil)
	if err != nil {
		return "", "", err
	}
	w.head.at, w.head.left = made.At, append(w.head.left, made.Left...)
	c, err := w.t.Repo.Commit(ctx, string(made.At))
	return made.At, c.Tree, err
}

// newViewer returns the trace viewer of the browser.
func (x *Executor) newViewer() *browse.Viewer {
	return &browse.Viewer{Inspector: x.inspector, Dir: filepath.Join(x.Data, "trace-viewer")}
}
