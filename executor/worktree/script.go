package worktree

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// The scripts run inside the container. git never runs on the host in a tree that a container wrote.
var (
	//go:embed scripts/git.sh
	gitScript string
	//go:embed scripts/provision.sh
	provisionScript string
	//go:embed scripts/sync.sh
	syncScript string
	//go:embed scripts/commit.sh
	commitScript string
	//go:embed scripts/layer.sh
	layerScript string
	//go:embed scripts/warm.sh
	warmScript string
)

// Exit codes of the scripts.
const (
	scriptFetch = 91
	scriptPush  = 94
	scriptMidst = 95 // of a merge or the like
	scriptNoGit = 97
)

// scriptPrefix begins the ids of the scripts' commands.
const scriptPrefix = "script-"

// NewScriptID returns an id for a command that does not outlive its server, such as a script. See IsScript.
func NewScriptID() string { return scriptPrefix + record.NewToken() }

// IsScript reports whether a command of a container is a script that is at work. It cannot be taken up by another server.
func IsScript(c containers.CommandState) bool {
	return c.Running && !c.Background && strings.HasPrefix(c.ID, scriptPrefix)
}

// ErrDiskFull is the error of a script that found no room on the disk of its work tree.
var ErrDiskFull = errors.New("disk full")

// ScriptError is the error of a script that failed.
type ScriptError struct {
	Code   int
	Stderr string
}

func (e *ScriptError) Error() string {
	text := strings.TrimSpace(e.Stderr)
	if i := strings.LastIndex(text, "ramus: "); i >= 0 {
		text = text[i+len("ramus: "):] + " (" + strings.Join(strings.Fields(text[:i]), " ") + ")"
	}
	return strings.TrimSuffix(text, " ()")
}

// LacksGit reports whether the container's image lacks git, or another program that the scripts need.
func (e *ScriptError) LacksGit() bool { return e.Code == scriptNoGit }

type scriptOutput struct{ stdout, stderr string }

// script runs one of the scripts in the container, under an id of its own.
func (t *Tree) script(ctx context.Context, h *containers.Host, source string, env []string, stdin io.Reader, args ...string) (scriptOutput, error) {
	stdout := text.Tail{Limit: 64 << 10}
	stderr, err := t.scriptTo(ctx, h, source, env, stdin, &stdout, args...)
	return scriptOutput{stdout.String(), stderr}, err
}

// scriptTo is script for one that prints more than a few lines.
func (t *Tree) scriptTo(ctx context.Context, h *containers.Host, source string, env []string, stdin io.Reader, stdout io.Writer,
	args ...string) (string, error) {
	t.awaitIndex()
	id := NewScriptID()
	ctx, cancel := context.WithTimeout(ctx, Housekeeping)
	defer cancel()
	p, err := h.Start(ctx, containers.Command{
		ID:      id,
		Args:    append([]string{"sh", "-c", gitScript + source, "ramus"}, args...),
		Dir:     containers.WorkDir,
		Env:     env,
		Stdin:   stdin,
		Timeout: Housekeeping,
	})
	if err != nil {
		return "", fmt.Errorf("cannot run git in the container: %w", err)
	}

	stderr := text.Tail{Limit: 64 << 10}
	exit, err := p.Output(stdout, &stderr)
	if err != nil {
		return "", fmt.Errorf("cannot run git in the container: %w", err)
	}
	_ = h.Forget(context.WithoutCancel(ctx), id) // only memory is lost if the runner does not get it
	return stderr.String(), scriptFault(exit, stderr.String())
}

// scriptFault returns the error of a script that ended with exit, or nil.
func scriptFault(exit containers.Exit, stderr string) error {
	switch {
	case exit.Code == 0:
		return nil
	case exit.Reason == containers.ReasonDiskFull:
		why := "the work tree's disk is full"
		if exit.Message != "" {
			why = text.Clip(exit.Message, 1<<10)
		}
		return fmt.Errorf("%w: %s", ErrDiskFull, why)
	case exit.Code == 127:
		return &ScriptError{scriptNoGit, "ramus: the container's image lacks a program that ramus needs: " +
			strings.ReplaceAll(stderr, "ramus: ", "")}
	}
	return &ScriptError{exit.Code, stderr}
}

// Untar runs c, a tar that unpacks its input in a container, and gives it everything that write writes. Untar returns when
// write has returned and tar has ended or cannot be followed any more. write's context ends and its writer fails at the end
// of tar. An error of write before that is returned even if tar succeeds. c's Stdin is ignored.
func Untar(ctx context.Context, h *containers.Host, c containers.Command, write func(context.Context, io.Writer) error) error {
	in, out := io.Pipe()
	writing, cancel := context.WithCancel(ctx)
	defer cancel()
	written := make(chan error, 1)
	go func() {
		err := write(writing, out)
		if writing.Err() != nil {
			err = nil // tar ended first, and its exit code counts
		}
		out.Close() // with an error, tar would wait for the rest
		written <- err
	}()
	c.Stdin = in
	said := text.Tail{Limit: 2 << 10}
	p, err := h.Start(ctx, c)
	var exit containers.Exit
	if err == nil {
		exit, err = p.Output(io.Discard, &said)
	}
	cancel()
	in.Close() // a write that is under way fails
	switch failed := <-written; {
	case err != nil:
		return err
	case failed != nil:
		return failed
	case exit.Code != 0:
		return fmt.Errorf("tar ended with %d: %s", exit.Code, strings.Join(strings.Fields(said.String()), " "))
	}
	return nil
}

// fetchPause is the wait before a fetch is tried again.
const fetchPause = 300 * time.Millisecond

// fetching runs a script that fetches, up to three times if it cannot fetch. A container that outlived its server may ask a door whose
// host has just gone.
func (t *Tree) fetching(ctx context.Context, h *containers.Host, script string, env []string) (scriptOutput, error) {
	for attempt := 1; ; attempt++ {
		out, err := t.script(ctx, h, script, env, nil)
		var s *ScriptError
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

// scriptEnv returns the environment of the scripts. known is where the container's branch is, tip where it is on the server.
// Either may be empty.
func (t *Tree) scriptEnv(author gitd.Person, known, tip gitd.Hash) []string {
	env := append(t.store.Identity.Env(author), t.store.Identity.signing()...)
	t.mu.Lock()
	indexed := t.indexed
	t.mu.Unlock()
	if t.store.Git.LFS != nil {
		env = append(env, "RAMUS_LFS=1")
	}
	env = append(env, t.placeEnv()...)
	return append(env,
		"RAMUS_BRANCH="+t.Caller.Branch(),
		"RAMUS_REMOTE="+t.remote(),
		"RAMUS_KNOWN="+string(known),
		"RAMUS_TIP="+string(tip),
		"RAMUS_INDEX="+indexed,
	)
}

// remote returns the repository's address as a container sees it.
func (t *Tree) remote() string {
	return "http://" + containers.DoorAddr + "/" + t.Repo.Name() + ".git"
}

// killWait is how long a stopped command may take to end.
const killWait = time.Minute

// EndCommand stops a command and waits until it has ended.
func EndCommand(ctx context.Context, h *containers.Host, id string) error {
	ctx, cancel := context.WithTimeout(ctx, killWait)
	defer cancel()
	if err := h.Kill(ctx, id); err != nil {
		return err
	}
	p, err := h.Attach(ctx, id, 0, 0)
	if err != nil {
		return err
	}
	_, err = p.Output(nil, nil)
	return err
}

// endScripts ends the scripts of an earlier server, or of a call that was cut off. They would change the container's repository at
// the same time as the next one.
func endScripts(ctx context.Context, h *containers.Host) error {
	commands, err := h.Commands(ctx)
	if err != nil {
		return err
	}
	for _, c := range commands {
		if IsScript(c) {
			if err := EndCommand(ctx, h, c.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// WarmUp prepares a new container before its caller is known.
func (st *Store) WarmUp(ctx context.Context, p containers.Place) error {
	if err := prepare(ctx, p.Host); err != nil || st.layers == nil {
		return err
	}
	return st.warmLeft(ctx, p)
}

// prepare runs scripts/warm.sh.
func prepare(ctx context.Context, h *containers.Host) error {
	id := NewScriptID()
	p, err := h.Start(ctx, containers.Command{ID: id, Args: []string{"sh", "-c", warmScript}, Timeout: time.Minute})
	if err != nil {
		return fmt.Errorf("cannot prepare the container: %w", err)
	}
	said := text.Tail{Limit: 1 << 10}
	exit, err := p.Output(io.Discard, &said)
	if err != nil {
		return fmt.Errorf("cannot prepare the container: %w", err)
	}
	_ = h.Forget(context.WithoutCancel(ctx), id) // only memory is lost if the runner does not get it
	if exit.Code != 0 {
		return &ScriptError{exit.Code, said.String()}
	}
	return nil
}
