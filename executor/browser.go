package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// Browser says how pages are looked at; see [Executor.Browser].
type Browser struct {
	// Image of the browser's sidecar; the Sandbox uses the host's programs. Default ramus/browser:latest.
	Image  string
	Limits containers.Limits // of a sidecar; default 1 GiB, 2 CPUs, 256 processes
	// Timeout is the longest that one check may take in the browser; default 15 min.
	Timeout time.Duration

	// grace is for a browser to start and to write its evidence, beside its time; and once
	// more until it is ended. Default browserGrace.
	grace time.Duration
}

// browserTasks are the library tasks that look at pages: they may be done twice.
var browserTasks = map[string]bool{"browser_test": true, "capture_screenshot": true}

// Bounds of checks by a browser.
const (
	browserTimeout = 15 * time.Minute
	browserGrace   = 30 * time.Second
	maxBrowserData = 1 << 20 // bytes of a check in the journal, 2,000 names of files among them
	maxBrowserSaid = 4 << 10 // bytes of what a command said in a reason or a Log
)

// maxBrowsed is what the checks of one run may come to. Each is bounded by itself, but a workflow
// may do them in a loop, and the run's manifest has to be read again.
var maxBrowsed = browsed{checks: 1000, files: 20_000, evidence: 4 << 30, data: 64 << 20}

// browsed is how much a run's checks by a browser have come to.
type browsed struct {
	checks, files  int
	evidence, data int64 // bytes of the files, and of what the journal says
}

func (b *browsed) add(c browser.Check) {
	b.checks++
	b.files += len(c.Files)
	for _, f := range c.Files {
		b.evidence += f.Size
	}
	b.data += int64(len(marshal(c)))
}

// full tells whether there is no room for another check.
func (b browsed) full() bool {
	return b.checks >= maxBrowsed.checks || b.files >= maxBrowsed.files || b.evidence >= maxBrowsed.evidence || b.data >= maxBrowsed.data
}

func (b *Browser) timeout() time.Duration { return cmp.Or(b.Timeout, browserTimeout) }

// browsing is a run's checks by a browser, of which several may be at work at once.
type browsing struct {
	mu     sync.Mutex // guards all below, and the folder's index.json
	opened bool       // what an earlier process left half way was removed
	last   int        // number of the newest check
	kept   browsed
}

// Browse does one check in the step's container; see [tasks.Browser]. What stands in the
// work tree is committed first, so that the evidence names a commit. Checks that
// serve their page in one container take turns, since they would take each other's ports.
func (s *taskShell) Browse(ctx context.Context, spec browser.Spec) (browser.Check, error) {
	file := spec.File
	spec, err := spec.Complete()
	if err != nil {
		return browser.Check{}, fmt.Errorf("%w: %w", tasks.ErrParams, err)
	}
	if spec.Dir != "" {
		if spec.Dir, err = tasks.CleanPath(spec.Dir); err != nil {
			return browser.Check{}, fmt.Errorf("%w: dir: %w", tasks.ErrParams, err)
		}
	}
	w := s.w
	l, x := w.l, w.l.x
	begun := x.Now()
	commit, tree, err := w.standing(ctx, "browser check "+spec.Name+": the work so far")
	if err != nil {
		return browser.Check{}, fmt.Errorf("cannot check %s in a browser: %w", spec.Name, err)
	}
	number, place, err := l.openCheck(spec)
	if err != nil {
		return browser.Check{}, fmt.Errorf("cannot check %s in a browser: %w", spec.Name, err)
	}
	defer os.RemoveAll(place.part)
	k := &look{w: w, shell: s, spec: spec, timeout: s.timeout, part: place.part, dir: place.name, secrets: x.Secrets.With(typed(spec))}
	k.check = browser.Check{Name: spec.Name, Spec: file, Dir: place.name, Commit: string(commit), Tree: string(tree), Branch: w.t.Caller.Branch(),
		Step: w.s.ID, Started: begun.UTC(), Views: []browser.View{}, Images: []browser.Image{{Role: "task", Name: cmp.Or(w.image, x.Fleet.Engine.Name())}}}
	err = k.run(ctx)
	if err == nil && spec.Compare != nil {
		err = k.compare(ctx, number)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return browser.Check{}, fmt.Errorf("cannot check %s in a browser: %w", spec.Name, err)
	}
	k.check.DurationMS = x.Now().Sub(begun).Milliseconds()
	check, err := k.keep(place)
	if err != nil {
		return browser.Check{}, fmt.Errorf("cannot keep the browser check %s: %w", spec.Name, err)
	}
	if err := l.checked(w.s.ID, check); err != nil {
		return browser.Check{}, fmt.Errorf("cannot keep the browser check %s: %w", spec.Name, err)
	}
	w.showPictures(ctx, check)
	return check, nil
}

// typed are the values of a spec's steps that are secret.
func typed(spec browser.Spec) map[string]string {
	values := make(map[string]string)
	for i, step := range spec.Steps {
		if step.Secret {
			values["typed in step "+strconv.Itoa(i+1)] = step.Value
		}
	}
	return values
}

// identify commits the files as they are and notes their tree: a check says something about this tree alone.
func (w *work) identify(ctx context.Context, check string) error {
	_, tree, err := w.standing(ctx, "files before "+check)
	if err != nil {
		return fmt.Errorf("cannot commit the files before %s: %w", check, err)
	}
	if !w.t.LeftOut() { // the check would see files that no tree has
		w.checked = tree
	}
	return nil
}

// standing commits what stands in the work tree and returns where the branch is then.
func (w *work) standing(ctx context.Context, subject string) (commit, tree gitd.Hash, err error) {
	w.head.mu.Lock()
	defer w.head.mu.Unlock()
	// Without the trailer of an exit code: the step has not ended with this commit.
	made, err := w.t.Commit(ctx, w.host, w.head.at, w.l.claim.Asker, w.halfway(subject), nil)
	if err != nil {
		return "", "", err
	}
	w.head.at, w.head.left = made.At, append(w.head.left, made.Left...)
	c, err := w.t.Repo.Commit(ctx, string(made.At))
	return made.At, c.Tree, err
}

// checkPlace is where a check's files are gathered, and where they are kept then.
type checkPlace struct {
	part  string // folder of the host, removed at the end
	name  string // of the folder below BrowserFolder, "001-todo"
	final string // that folder on the host
}

// openCheck gives a check its number and its folders. What an earlier process left
// half way is removed before: its step begins again.
func (l *liveRun) openCheck(spec browser.Spec) (number int, p checkPlace, err error) {
	b := &l.browsing
	b.mu.Lock()
	defer b.mu.Unlock()
	output := l.x.outputDir(l.claim)
	folder := filepath.Join(output, "artifacts", record.BrowserFolder)
	if !b.opened {
		known := make(map[string]bool)
		for _, c := range record.BrowserChecks(l.journalled()) {
			known[c.Dir] = true
			b.kept.add(c)
			digits, _, _ := strings.Cut(c.Dir, "-")
			n, _ := strconv.Atoi(digits) // a name of ours
			b.last = max(b.last, n)
		}
		left, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, p, err
		}
		for _, e := range left {
			if e.IsDir() && !known[e.Name()] {
				if err := os.RemoveAll(filepath.Join(folder, e.Name())); err != nil {
					return 0, p, err
				}
			}
		}
		b.opened = true
	}
	if b.kept.full() {
		return 0, p, fmt.Errorf("%w: the run's checks by a browser have come to %d, with %d files of %d MiB, and no more are kept; do the others in another run",
			tasks.ErrParams, b.kept.checks, b.kept.files, b.kept.evidence>>20)
	}
	b.last++
	p.name = fmt.Sprintf("%03d-%s", b.last, spec.Slug())
	// Not below artifacts/: what is there is sealed with the run.
	p.part, p.final = filepath.Join(output, fmt.Sprintf("browser-%03d.part", b.last)), filepath.Join(folder, p.name)
	return b.last, p, errors.Join(os.RemoveAll(p.part), os.MkdirAll(filepath.Join(p.part, keptFolder), 0o700), os.MkdirAll(folder, 0o700))
}

// keep moves a check's files to where they are sealed from, and completes the check.
func (k *look) keep(p checkPlace) (browser.Check, error) {
	kept := filepath.Join(p.part, keptFolder)
	c := k.check
	var err error
	if c.Files, err = listFiles(kept, p.name); err != nil {
		return c, err
	}
	c = boundedCheck(redact.Clean(k.secrets, c))
	if err := errors.Join(os.RemoveAll(p.final), os.Rename(kept, p.final)); err != nil {
		return c, err
	}
	return c, nil
}

// listFiles describes the files below a folder, by their names below another.
func listFiles(dir, as string) (files []browser.File, err error) {
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		f, err := describe(path.Join(as, filepath.ToSlash(rel)), name)
		files = append(files, browser.File{Name: f.Name, Size: f.Size, SHA256: f.SHA256, Type: f.Type})
		return err
	})
	return files, err
}

// checked journals a check and writes the run's index of them anew.
func (l *liveRun) checked(step string, c browser.Check) error {
	b := &l.browsing
	b.mu.Lock()
	defer b.mu.Unlock()
	ok := c.Verdict == browser.Pass
	if err := l.emit(record.Event{Type: record.EventBrowser, Step: step, Message: c.Name, OK: &ok, Reason: string(c.Verdict), Commit: gitd.Hash(c.Commit),
		DurationMS: c.DurationMS, Data: marshal(c)}, false); err != nil {
		return err
	}
	b.kept.add(c)
	text, err := json.MarshalIndent(browser.Index{Schema: 1, Checks: record.BrowserChecks(l.journalled())}, "", "  ")
	if err != nil {
		return err
	}
	name := filepath.Join(l.x.outputDir(l.claim), "artifacts", record.BrowserFolder, "index.json")
	if err := os.WriteFile(name+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// showWithin bounds the copying of pictures into a container.
const showWithin = 30 * time.Second

// showPictures copies a check's pictures and the index to the container's /artifacts,
// for an agent to look at. They are copies: what is kept is the host's. So nothing
// that goes wrong here is worth more than a line in the log.
func (w *work) showPictures(ctx context.Context, c browser.Check) {
	ctx, cancel := context.WithTimeout(ctx, showWithin)
	defer cancel()
	from := filepath.Join(w.l.x.outputDir(w.l.claim), "artifacts", record.BrowserFolder)
	names := []string{"index.json"}
	for _, f := range c.Files {
		if path.Ext(f.Name) == ".png" {
			names = append(names, f.Name)
		}
	}
	if err := w.copyIn(ctx, from, names); err != nil && ctx.Err() == nil {
		w.l.x.Log.Info("the pictures of a browser check are not in its container", "run", w.l.claim.Name(), "err", err)
	}
}

func (w *work) copyIn(ctx context.Context, from string, names []string) error {
	files, err := w.host.Files(ctx)
	if err != nil {
		return err
	}
	defer files.Close()
	// A call that hangs in a container that is hostile, or going away, ends with the context.
	defer context.AfterFunc(ctx, func() { files.Close() })()
	for _, name := range names {
		to := path.Join(containers.ArtifactsDir, record.BrowserFolder, name)
		if err := files.MkdirAll(path.Dir(to)); err != nil {
			return err
		}
		in, err := os.Open(filepath.Join(from, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		out, err := files.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
		if err == nil {
			_, err = out.ReadFrom(in)
			err = errors.Join(err, out.Close())
		}
		if err := errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return nil
}

// boundedCheck cuts what a page said in a check until the journal can hold it: a line that is
// too long there makes the whole run unreadable. JSON may write six bytes for one.
func boundedCheck(c browser.Check) browser.Check {
	for most, entries := 2<<10, maxViewSteps; ; {
		c.Reason, c.Log = text.Clip(c.Reason, maxBrowserSaid), text.ClipEnd(c.Log, maxBrowserSaid)
		c.Views = slices.Clone(c.Views)
		for i := range c.Views {
			v := boundedView(c.Views[i], most)
			v.Network, v.Steps = v.Network[:min(len(v.Network), entries)], v.Steps[:min(len(v.Steps), entries)]
			v.Console.Errors, v.Console.PageErrors = v.Console.Errors[:min(len(v.Console.Errors), entries)], v.Console.PageErrors[:min(len(v.Console.PageErrors), entries)]
			c.Views[i] = v
		}
		if c.Compare != nil {
			d := *c.Compare
			d.Reason, d.Views = text.Clip(d.Reason, most), slices.Clone(d.Views)
			for i := range d.Views {
				d.Views[i].Aria = text.Clip(d.Views[i].Aria, 8*most)
			}
			c.Compare = &d
		}
		switch {
		case entries == 0 || len(marshal(c)) <= maxBrowserData:
			return c
		case most > 128:
			most /= 2
		default:
			entries /= 2
		}
	}
}
