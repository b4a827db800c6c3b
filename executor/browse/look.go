package browse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// look is one look at a page, of a step's work tree in its own container, or of another commit in a scratch container.
type look struct {
	in      *Inspector
	step    Step
	spec    browser.Spec
	timeout time.Duration // of Install
	part    string        // folder of the host where the evidence is gathered
	dir     string        // begins the names of files
	check   browser.Check
	// secrets are the server's, and values that were typed or came from Auth.
	secrets *redact.Secrets
}

// Bounds of the preparations of a look.
const (
	authWithin = 2 * time.Minute
	stopWithin = 30 * time.Second
	listenPoll = 100 * time.Millisecond
	probeTime  = 3 * time.Second
	// betterWithin is the wait for a better port than one that answers without a page.
	betterWithin = 3 * time.Second
	maxApps      = 20 // ports that are asked for HTTP
)

// judged is the error of a look that ends before, or without, the browser's own verdict.
type judged struct {
	verdict browser.Verdict
	reason  string
}

func (j *judged) Error() string { return j.reason }

func fails(format string, args ...any) error {
	return &judged{browser.Fail, fmt.Sprintf(format, args...)}
}

func unverified(format string, args ...any) error {
	return &judged{browser.Unverified, fmt.Sprintf(format, args...)}
}

// run looks, and writes the outcome to check. An error is not the page's. Either the container was lost, or ctx has ended.
func (k *look) run(ctx context.Context) error {
	err := k.do(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var j *judged
	if errors.As(err, &j) {
		k.check.Verdict, k.check.Reason = j.verdict, j.reason
		return nil
	}
	return err
}

func (k *look) do(ctx context.Context) (err error) {
	if k.in.Browser == nil {
		return unverified("there is no browser here: see `browser` in the configuration, and `ramus doctor`")
	}
	page, err := parsePage(k.spec.URL)
	if err != nil {
		return unverified("%v", err)
	}
	if k.spec.Start != startNone && page.local {
		done, err := k.step.Site.serve(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	install, start, err := k.plan(ctx, page)
	if err != nil {
		return err
	}
	if install != "" {
		if err := k.install(ctx, install); err != nil {
			return err
		}
	}
	var a *app
	if start != "" {
		if a, err = k.start(ctx, start); err != nil {
			return err
		}
		defer func() {
			a.stop(ctx)
			err = errors.Join(err, k.keepLog(a))
		}()
	}
	if page.local {
		if err := k.await(ctx, a, &page); err != nil {
			return err
		}
	}
	state, err := k.auth(ctx, page)
	if err != nil {
		return err
	}
	return k.inspect(ctx, page, state)
}

// startNone is the Start of a page that is served already.
const startNone = "none"

// plan returns the command lines that install and start the page, or "" for none.
func (k *look) plan(ctx context.Context, p page) (install, start string, err error) {
	install, start = k.spec.Install, k.spec.Start
	switch {
	case start == startNone || !p.local && start == "":
		return install, "", nil
	case start == "" && p.url != "" && k.listens(ctx, p):
		return install, "", nil
	case start != "" && p.local && p.url != "" && k.listens(ctx, p):
		return "", "", unverified("something listens at %s already, before `%s` was started: end it, or say start: none to look at it", p.addr(), start)
	case start != "":
		return install, start, nil
	}
	found, start, err := browser.Server(func(name string) ([]byte, error) {
		return k.step.ReadFile(ctx, path.Join(k.spec.Dir, name))
	})
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, containers.ErrGone) {
			return "", "", err
		}
		return "", "", unverified("%v", err)
	}
	if install == "" {
		install = found
	}
	return install, start, nil
}

// command runs a command line of the spec to its end.
func (k *look) command(ctx context.Context, line string, within time.Duration, stdout, stderr io.Writer, env ...string) (containers.Exit, error) {
	id := k.step.NextID()
	exit, err := k.step.Attend(ctx, containers.Command{ID: id, Shell: line, Dir: k.spec.Dir, Timeout: within,
		Env: slices.Concat(k.step.Env, env)}, stdout, stderr)
	if err == nil {
		_ = k.step.Host.Forget(ctx, id) // only memory is lost if the runner does not get it
	}
	return exit, err
}

// install installs the page's dependencies, once in a container for one tree, since many pages of it may be checked.
// A command line that was found in package.json needs the lock files alone. So an agent that works on other files
// does not cause another installation.
func (k *look) install(ctx context.Context, line string) error {
	from := k.check.Tree
	if k.spec.Install == "" {
		locks, err := k.step.Tree.Repo.Lockfiles(ctx, gitd.Hash(k.check.Commit))
		if err != nil {
			return err
		}
		from = fmt.Sprint(locks) // maps print in the order of their keys
	}
	done := strings.Join([]string{k.step.Host.Container().ID, from, k.spec.Dir, line}, "\x00")
	if k.step.Site.swapInstalled("") == done {
		k.step.Site.swapInstalled(done)
		return nil
	}
	said := &text.Tail{Limit: maxSaid}
	out, errs, flush := k.in.Secrets.Writers(said, said)
	exit, err := k.command(ctx, line, k.timeout, k.step.Print(out, false), k.step.Print(errs, true), "CI=true")
	flush()
	if err != nil {
		return err
	}
	if exit.Code != 0 || exit.Reason != "" {
		k.check.Log = said.String()
		return unverified("the dependencies of the page could not be installed: `%s` %s: %s", line, howEnded(exit),
			lastLines(said.String()))
	}
	k.step.Site.swapInstalled(done)
	return nil
}

// howEnded returns in words how a command ended.
func howEnded(e containers.Exit) string {
	switch e.Reason {
	case containers.ReasonTimeout:
		return "took too long and was ended"
	case containers.ReasonDiskFull:
		return "filled the disk and was ended"
	case containers.ReasonMemory:
		return "used more memory than it may and was ended"
	case containers.ReasonKilled:
		return "was stopped"
	}
	if e.Signal != "" {
		return "was ended by the signal " + e.Signal
	}
	return fmt.Sprintf("ended with exit code %d", e.Code)
}

// lastLines returns the end of a command's output, for the middle of a sentence.
func lastLines(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	said := strings.Join(strings.Fields(strings.Join(lines[max(0, len(lines)-5):], " ")), " ")
	if said == "" {
		return "it said nothing"
	}
	return text.ClipEnd(said, 500)
}
