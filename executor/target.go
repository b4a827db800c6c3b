package executor

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// The scripts run inside the container: git never runs on the host in a tree
// that a container wrote.
var (
	//go:embed scripts/git.sh
	gitScript string
	//go:embed scripts/provision.sh
	provisionScript string
	//go:embed scripts/sync.sh
	syncScript string
	//go:embed scripts/commit.sh
	commitScript string
)

// Exit codes of the scripts.
const (
	scriptFetch = 91
	scriptPush  = 94
	scriptNoGit = 97
)

// scriptPrefix begins the ids of the scripts' commands.
const scriptPrefix = "script-"

// housekeeping is the longest time for a clone, a checkout or a commit.
const housekeeping = 15 * time.Minute

// target is where a caller's commands run: its branch and its container. A
// fan-out line with a branch of its own has a target of its own.
type target struct {
	x      *Executor
	caller record.Caller
	repo   *gitd.Repo
	base   string        // branch name
	turn   chan struct{} // holds one token: commands run one after another
	// serving holds one token: one check by a browser at a time serves its page.
	serving chan struct{}

	mu    sync.Mutex
	leaks []gitd.Leak // of the last push that was refused for them
	known gitd.Hash   // where the container's branch stands; "" when that is not known
	// indexed is the SHA-256 of the index that the container keeps for the next script; "" if it keeps none.
	indexed string
	// staging is the ref that a commit script may push to; "" while none does.
	staging string
	// left are the files that no commit could hold, by path, with their size and time when that was told.
	left  map[string]string
	bound *binding // nil: the container's work tree was not bound from outside
	// indexing is the index of what was bound while it is to be written; nil: it is.
	indexing *indexWrite
	listen   func(record.Event) // the run that works now hears of egress and refusals
	// furniture is what the newest container found in its cache; the first step in it tells.
	furniture string
	step      *work // the step that runs now
	// installed is what a check by a browser has installed, from what and in which container.
	installed string
}

// target returns the caller's target, the same one as long as a run, a container's door or
// anybody else holds it. Then it is forgotten, with what it knew of its container.
func (x *Executor) target(c record.Caller, repo *gitd.Repo, base string) *target {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.targets[c].Value()
	if t == nil || t.repo.Name() != repo.Name() {
		t = &target{x: x, caller: c, repo: repo, base: base, turn: make(chan struct{}, 1), serving: make(chan struct{}, 1)}
		x.targets[c] = weak.Make(t)
		runtime.AddCleanup(t, x.forgetTarget, c)
	}
	return t
}

// forgetTarget removes a caller's target that nobody holds.
func (x *Executor) forgetTarget(c record.Caller) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.targets[c].Value() == nil {
		delete(x.targets, c)
	}
}

// tip returns the branch's tip on the server. The error is errBranchGone if the branch is deleted.
func (t *target) tip(ctx context.Context) (gitd.Hash, error) {
	tip, err := t.repo.Resolve(ctx, "refs/heads/"+t.caller.Branch())
	if errors.Is(err, gitd.ErrNotFound) {
		err = fmt.Errorf("%w: %s: %w", errBranchGone, t.caller.Branch(), err)
	}
	return tip, err
}

// take waits for the caller's turn; the returned function gives it back.
func (t *target) take(ctx context.Context) (func(), error) {
	select {
	case t.turn <- struct{}{}:
		return sync.OnceFunc(func() { <-t.turn }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (t *target) tell(e record.Event) {
	t.mu.Lock()
	f := t.listen
	t.mu.Unlock()
	if f != nil {
		f(e)
	}
}

func (t *target) setListen(f func(record.Event)) {
	t.mu.Lock()
	t.listen = f
	t.mu.Unlock()
}

// atWork is the step that runs now; nil between steps.
func (t *target) atWork() *work {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.step
}

// runAtWork names the run of the step that works now; "" between steps.
func (t *target) runAtWork() string {
	if w := t.atWork(); w != nil {
		return w.l.claim.Name()
	}
	return ""
}

func (t *target) setAtWork(w *work) {
	t.mu.Lock()
	t.step = w
	t.mu.Unlock()
}

// knownTip is where the container's branch stands; "" when that is not known.
func (t *target) knownTip() gitd.Hash {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known
}

func (t *target) setKnown(h gitd.Hash) {
	t.mu.Lock()
	t.known = h
	t.mu.Unlock()
}

// labelAsked is the image that a container was asked with, by the name it had in the request.
const labelAsked = "ramus.asked"

func (t *target) request(image string, author gitd.Person, waiting func(int)) containers.Request {
	image = cmp.Or(image, t.x.Image)
	r := containers.Request{
		Key:    t.caller.String(),
		Image:  image,
		Env:    t.x.containerEnv(),
		Limits: t.x.Limits,
		Labels: map[string]string{"ramus.repo": t.repo.Name(), labelAsked: image},
		Door:   t.door(),
		Warm:   t.x.warmUp,
		Provision: func(ctx context.Context, h *containers.Host) error {
			t.setKnown("")
			t.setBinding(nil)
			t.setIndexed("")
			if _, err := t.fetching(ctx, h, provisionScript, t.scriptEnv(author, "", "")); err != nil {
				return err
			}
			if tip, err := t.tip(ctx); err == nil { // without one, what follows says so
				t.furnish(ctx, h, nil, tip)
			}
			return nil
		},
		Waiting: waiting,
	}
	if t.x.layers != nil {
		r.Bind = func(ctx context.Context, p containers.Place) error {
			if err := t.bind(ctx, p, author); err != nil {
				return err
			}
			t.furnish(ctx, p.Host, &p, t.knownTip())
			return nil
		}
	}
	return r
}

// ready returns a lease of the caller's container with its work tree at the
// branch's tip, and that tip. A container of another image than the one that is
// needed is removed first; with no image named, any is good.
func (t *target) ready(ctx context.Context, image string, author gitd.Person, waiting func(int)) (*containers.Lease, gitd.Hash, error) {
	for attempt := 0; ; attempt++ {
		lease, err := t.x.Fleet.Acquire(ctx, t.request(image, author, waiting))
		if err != nil {
			return nil, "", err
		}
		if attempt == 0 && !t.madeOf(lease.Container, image) {
			lease.Release()
			if err := t.x.Fleet.Remove(ctx, t.caller.String()); err != nil {
				return nil, "", err
			}
			continue
		}
		t.board(lease)
		t.awaitIndex()
		tip, err := t.tip(ctx)
		if err == nil {
			err = t.sync(ctx, lease.Host, tip, author)
		}
		if err == nil {
			return lease, tip, nil
		}
		lease.Release()
		if !errors.Is(err, containers.ErrGone) || attempt == 2 {
			return nil, "", err
		}
	}
}

// madeOf tells whether a container is of an image, as far as its engine has images.
func (t *target) madeOf(c containers.Container, image string) bool {
	return image == "" || c.Image == "" || cmp.Or(c.Labels[labelAsked], t.x.Image) == image
}

// fetchPause is the wait before a fetch is tried again.
const fetchPause = 300 * time.Millisecond

// fetching runs a script that fetches, again when it could not: a container that
// outlived its server may knock at a door whose host has just gone.
func (t *target) fetching(ctx context.Context, h *containers.Host, script string, env []string) (scriptOutput, error) {
	for attempt := 1; ; attempt++ {
		out, err := t.script(ctx, h, script, env, nil)
		var s *scriptError
		if err == nil || attempt == 3 || !errors.As(err, &s) || s.Code != scriptFetch {
			return out, err
		}
		select {
		case <-time.After(time.Duration(attempt) * fetchPause):
		case <-ctx.Done():
			return out, context.Cause(ctx)
		}
	}
}

func (t *target) sync(ctx context.Context, h *containers.Host, tip gitd.Hash, author gitd.Person) error {
	if t.knownTip() == tip {
		return nil
	}
	if t.knownTip() == "" {
		if err := endScripts(ctx, h); err != nil {
			return err
		}
	}
	return t.bring(ctx, h, tip, t.scriptEnv(author, t.knownTip(), tip))
}

// endScripts ends the scripts of an earlier server, or of a call that was cut off. They would change the container's repository
// at the same time as the next one.
func endScripts(ctx context.Context, h *containers.Host) error {
	commands, err := h.Commands(ctx)
	if err != nil {
		return err
	}
	for _, c := range commands {
		if c.Running && !c.Background && strings.HasPrefix(c.ID, scriptPrefix) {
			if err := end(ctx, h, c.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// bring has the container's work tree be at the branch's tip.
func (t *target) bring(ctx context.Context, h *containers.Host, tip gitd.Hash, env []string) error {
	// A script that is cut off may go on in the container, and leave the work tree anywhere.
	t.setKnown("")
	out, err := t.fetching(ctx, h, syncScript, env)
	if err != nil {
		return err
	}
	t.setKnown(tip)
	t.setIndexed(parseCommitOutput(out.stdout).index)
	t.settle(ctx, tip, true)
	return nil
}

func (t *target) setIndexed(sum string) {
	t.mu.Lock()
	t.indexed = sum
	t.mu.Unlock()
}

// remote is the repository's address as a container sees it.
func (t *target) remote() string {
	return "http://" + containers.DoorAddr + "/" + t.repo.Name() + ".git"
}

type scriptOutput struct{ stdout, stderr string }

// scriptError is a script that said no.
type scriptError struct {
	Code   int
	Stderr string
}

func (e *scriptError) Error() string {
	text := strings.TrimSpace(e.Stderr)
	if i := strings.LastIndex(text, "ramus: "); i >= 0 {
		text = text[i+len("ramus: "):] + " (" + strings.Join(strings.Fields(text[:i]), " ") + ")"
	}
	return strings.TrimSuffix(text, " ()")
}

// script runs one of the scripts in the container, under an id of its own.
func (t *target) script(ctx context.Context, h *containers.Host, source string, env []string, stdin io.Reader, args ...string) (scriptOutput, error) {
	stdout := text.Tail{Limit: 64 << 10}
	stderr, err := t.scriptTo(ctx, h, source, env, stdin, &stdout, args...)
	return scriptOutput{stdout.String(), stderr}, err
}

// scriptTo is script for one that prints more than a few lines.
func (t *target) scriptTo(ctx context.Context, h *containers.Host, source string, env []string, stdin io.Reader, stdout io.Writer, args ...string) (string, error) {
	t.awaitIndex()
	id := scriptPrefix + record.NewToken()
	ctx, cancel := context.WithTimeout(ctx, housekeeping)
	defer cancel()
	p, err := h.Start(ctx, containers.Command{
		ID:      id,
		Args:    append([]string{"sh", "-c", gitScript + source, "ramus"}, args...),
		Dir:     containers.WorkDir,
		Env:     env,
		Stdin:   stdin,
		Timeout: housekeeping,
	})
	if err != nil {
		return "", fmt.Errorf("cannot run git in the container: %w", err)
	}
	stderr := text.Tail{Limit: 64 << 10}
	exit, err := p.Output(stdout, &stderr)
	if err != nil {
		return "", fmt.Errorf("cannot run git in the container: %w", err)
	}
	_ = h.Forget(context.WithoutCancel(ctx), id) // only memory is lost when the runner does not hear it
	out := stderr.String()
	if exit.Code != 0 {
		if exit.Reason == containers.ReasonDiskFull {
			why := "the work tree's disk is full"
			if exit.Message != "" {
				why = text.Clip(exit.Message, 1<<10)
			}
			return out, fmt.Errorf("%w: %s", errDiskFull, why)
		}
		if exit.Code == 127 {
			return out, &scriptError{scriptNoGit, "ramus: the container's image lacks a program that ramus needs: " + strings.ReplaceAll(out, "ramus: ", "")}
		}
		return out, &scriptError{exit.Code, out}
	}
	return out, nil
}
