package prepare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// Bounds of the commands.
const (
	within   = 20 * time.Minute // one command
	tailSize = 4 << 10          // bytes of its output that are kept
	endWait  = time.Minute      // for a command that is stopped
)

// Names of commands in a runner. The number of the attempt and that of the command follow.
const (
	prefix = "prepare."
	done   = "prepared"
)

// Job prepares one container. Its fields are its options.
type Job struct {
	Host *containers.Host
	// Kept, if not nil, are the files that are restored before that.
	Kept *Kept
	// Commands run in order. Each must succeed.
	Commands []Command
	// Start lists the programs that are started after that.
	Start []environment.Start
	// Env is the environment of all of them, "K=V".
	Env []string
	// Secrets are removed from the output that is kept.
	Secrets *redact.Secrets
	// Emit journals an event.
	Emit func(record.Event) error
	Now  func() time.Time
}

// Command is one command.
type Command struct {
	Kind  string // "install" or "setup"
	Shell string
	Dir   string // below the work tree; empty means the work tree
	Env   []string
	// Optional lets the others run if the command fails.
	Optional bool
}

// Failed is the error of a command that did not succeed.
type Failed struct {
	Command Command
	Exit    int
	Reason  string // of [containers.Exit]
	Output  string // the end of both streams, without secrets
}

func (f *Failed) Error() string {
	why := fmt.Sprintf("ended with %d", f.Exit)
	if f.Reason == containers.ReasonTimeout {
		why = fmt.Sprintf("took longer than %v and was ended", within)
	} else if f.Reason != "" {
		why = "was ended (" + f.Reason + ")"
	}
	message := fmt.Sprintf("cannot prepare the container: the %s command %q %s", f.Command.Kind,
		text.Clip(f.Command.Shell, 200), why)
	if f.Output != "" {
		message += ": " + text.Clip(strings.Join(strings.Fields(f.Output), " "), 500)
	}
	return message
}

// Run prepares the container, unless that was done before. Commands of an earlier attempt that still run are ended
// first. If a command fails, the error is a [Failed], and the next Run begins again.
func (j Job) Run(ctx context.Context) error {
	known, err := j.Host.Commands(ctx)
	if err != nil {
		return err
	}
	attempt := 1
	started := make(map[string]bool)
	for _, c := range known {
		if c.ID == done {
			return nil
		}
		started[c.ID] = true
		if n := attemptOf(c.ID); n >= attempt {
			attempt = n + 1
		}
		if c.Running && strings.HasPrefix(c.ID, prefix) {
			if err := worktree.EndCommand(ctx, j.Host, c.ID); err != nil {
				return err
			}
		}
	}
	if j.Kept != nil && !started[restored] {
		if err := j.restore(ctx); err != nil {
			return err
		}
	}
	for i, c := range j.Commands {
		err := j.run(ctx, fmt.Sprintf("%s%d.%d", prefix, attempt, i), c)
		var failed *Failed
		if err != nil && !(c.Optional && errors.As(err, &failed)) {
			return err
		}
	}
	for _, s := range j.Start {
		if err := j.start(ctx, s, started); err != nil {
			return err
		}
	}
	return j.mark(ctx)
}

// restore restores the kept files. A failure is told, and stops nothing.
func (j Job) restore(ctx context.Context) error {
	found, err := j.Kept.restore(ctx, j.Host)
	switch {
	case errors.Is(err, containers.ErrGone), ctx.Err() != nil:
		return err
	case err != nil:
		ok := false
		return j.Emit(record.Event{Type: record.EventSetup, Kind: "keep", OK: &ok, Message: err.Error()})
	case found:
		return j.Emit(record.Event{Type: record.EventSetup, Kind: "keep",
			Message: "the kept files of the last container are restored"})
	}
	return nil
}

// attemptOf returns the number of the attempt of which a command is, or 0.
func attemptOf(id string) int {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok {
		return 0
	}
	number, _, _ := strings.Cut(rest, ".")
	n, _ := strconv.Atoi(number)
	return n
}

// run runs one command and journals it.
func (j Job) run(ctx context.Context, id string, c Command) error {
	if err := j.Emit(record.Event{Type: record.EventSetup, Kind: c.Kind, Command: text.Clip(c.Shell, 16<<10),
		Message: "begun"}); err != nil {
		return err
	}
	out := text.Tail{Limit: tailSize}
	clean := j.Secrets.Writer(&out)
	exit, err := j.attend(ctx, containers.Command{ID: id, Shell: c.Shell, Dir: c.Dir,
		Env: append(j.Env[:len(j.Env):len(j.Env)], c.Env...), Timeout: within}, clean)
	if err != nil {
		return err
	}
	_ = clean.Flush() // a Tail takes everything
	ok := exit.Code == 0 && exit.Reason == ""
	e := record.Event{Type: record.EventSetup, Kind: c.Kind, Command: text.Clip(c.Shell, 16<<10), OK: &ok,
		Exit: &exit.Code, Reason: exit.Reason,
		DurationMS: exit.Duration.Milliseconds(), Message: strings.ToValidUTF8(out.String(), "\uFFFD")}
	if err := j.Emit(e); err != nil {
		return err
	}
	if !ok {
		return &Failed{Command: c, Exit: exit.Code, Reason: exit.Reason, Output: out.String()}
	}
	return nil
}

// attend follows a command to its end. If ctx ends, the command is ended.
func (j Job) attend(ctx context.Context, c containers.Command, out *redact.Writer) (containers.Exit, error) {
	p, err := j.Host.Start(ctx, c)
	if err != nil {
		return containers.Exit{}, err
	}
	both := &joined{w: out}
	exit, err := p.Output(both, both)
	if err != nil && ctx.Err() != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
		defer cancel()
		if end := worktree.EndCommand(ending, j.Host, c.ID); end != nil && !errors.Is(end, containers.ErrGone) {
			err = errors.Join(err, end)
		}
		return exit, errors.Join(context.Cause(ctx), err)
	}
	return exit, err
}

// start starts a program in the background, unless it was started before.
func (j Job) start(ctx context.Context, s environment.Start, started map[string]bool) error {
	id := containers.StartPrefix + s.Name
	if started[id] {
		return nil
	}
	c := containers.Command{ID: id, Shell: s.Run, Dir: s.Dir, Env: j.Env, Background: true}
	if s.Port > 0 {
		c.Env = append(c.Env[:len(c.Env):len(c.Env)], "PORT="+strconv.Itoa(s.Port))
	}
	if _, err := j.Host.Start(ctx, c); err != nil {
		return fmt.Errorf("cannot start the program %s of the repository: %w", s.Name, err)
	}
	return j.Emit(record.Event{Type: record.EventSetup, Kind: "start", Command: text.Clip(s.Run, 16<<10),
		Message: s.Name + " is started"})
}

// mark has the runner remember that the container is prepared.
func (j Job) mark(ctx context.Context) error {
	p, err := j.Host.Start(ctx, containers.Command{ID: done, Args: []string{"true"}, Timeout: endWait})
	if err == nil {
		_, err = p.Output(io.Discard, io.Discard)
	}
	return err
}
