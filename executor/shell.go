package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/tasks"
)

// taskShell is the tasks.Shell of a step: its commands run in the caller's
// container, one after another, and what they change is committed when the
// task has ended.
type taskShell struct {
	w       *work
	timeout time.Duration // of a command that names none
}

var _ tasks.Shell = (*taskShell)(nil)

func (s *taskShell) Exec(ctx context.Context, command string, timeout time.Duration) (tasks.Result, error) {
	w := s.w
	if timeout <= 0 || s.timeout > 0 && timeout > s.timeout {
		timeout = s.timeout
	}
	w.n++
	id := w.id + "." + strconv.Itoa(w.n)
	stdout, stderr := &tail{max: 1 << 20}, &tail{max: 1 << 20}
	exit, err := w.attend(ctx, id, &containers.Command{ID: id, Shell: command, Env: w.l.x.identity(w.l.run.Asker), Timeout: timeout},
		io.MultiWriter(w.out.stdout, stdout), io.MultiWriter(w.out.stderr, stderr))
	if err != nil {
		return tasks.Result{}, err
	}
	return tasks.Result{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: exit.Code,
		TimedOut:   exit.Reason == containers.ReasonTimeout,
		Truncated:  stdout.n > int64(stdout.max) || stderr.n > int64(stderr.max),
		DurationMS: exit.Duration.Milliseconds()}, nil
}

// inside turns a task's path into one for SFTP; the container's side refuses what leaves the work tree through a symlink.
func inside(name string) (string, error) {
	clean, err := tasks.CleanPath(name)
	if err != nil {
		return "", err
	}
	return containers.WorkDir + "/" + clean, nil
}

func (s *taskShell) files(ctx context.Context) (*sftp.Client, error) {
	c, err := s.w.host.Files(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot open the container's files: %w", err)
	}
	return c, nil
}

func (s *taskShell) ReadFile(ctx context.Context, name string) ([]byte, error) {
	p, err := inside(name)
	if err != nil {
		return nil, err
	}
	files, err := s.files(ctx)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	f, err := files.Open(p)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	} else if info.IsDir() {
		return nil, fmt.Errorf("cannot read %s: %w: it is a folder", name, tasks.ErrRefused)
	}
	b, err := io.ReadAll(io.LimitReader(f, tasks.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	if len(b) > tasks.MaxFile {
		return nil, fmt.Errorf("cannot read %s: %w", name, tasks.ErrTooLarge)
	}
	return b, nil
}

func (s *taskShell) WriteFile(ctx context.Context, name string, content []byte) error {
	p, err := inside(name)
	if err != nil {
		return err
	}
	if len(content) > tasks.MaxFile {
		return fmt.Errorf("cannot write %s: %w", name, tasks.ErrTooLarge)
	}
	files, err := s.files(ctx)
	if err != nil {
		return err
	}
	defer files.Close()
	if err := files.MkdirAll(path.Dir(p)); err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	f, err := files.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return nil
}

func (s *taskShell) ListFiles(ctx context.Context, pattern string) ([]string, error) {
	glob, err := tasks.ParseGlob(pattern)
	if err != nil {
		return nil, err
	}
	w := s.w
	w.n++
	id := w.id + "." + strconv.Itoa(w.n)
	out := &tail{max: 16 << 20}
	exit, err := w.attend(ctx, id, &containers.Command{ID: id, Timeout: s.timeout,
		Args: []string{"git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"}}, out, io.Discard)
	if err != nil {
		return nil, err
	}
	if exit.Code != 0 {
		return nil, fmt.Errorf("cannot list files: git ls-files ended with %d", exit.Code)
	}
	names := []string{}
	for name := range strings.SplitSeq(out.buf.String(), "\x00") {
		if name != "" && (pattern == "" || glob.Match(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (s *taskShell) Commit(ctx context.Context, message string, paths []string) (string, error) {
	w := s.w
	for _, p := range paths {
		if _, err := inside(p); err != nil {
			return "", err
		}
	}
	text := w.message(outcome{subject: message})
	if body := strings.TrimSpace(message); strings.Contains(body, "\n") {
		_, trailers, _ := strings.Cut(text, trailerCaller+": ")
		text = body + "\n\n" + trailerCaller + ": " + trailers
	}
	after, _, err := w.t.commit(ctx, w.host, w.head, w.l.run.Asker, text, paths)
	if err != nil {
		return "", fmt.Errorf("cannot commit: %w", err)
	}
	if after == w.head {
		return "", nil
	}
	w.head = after
	return string(after), nil
}

// Push has nothing to send: every command's commits are pushed when it ends,
// and Commit pushes at once. It checks that nothing else is asked for.
func (s *taskShell) Push(_ context.Context, remote, branch string) error {
	if remote != "" && remote != "origin" {
		return fmt.Errorf("cannot push to %q: %w: a container reaches only origin", remote, ErrInvalid)
	}
	if own := s.Branch(); branch != "" && branch != own {
		return fmt.Errorf("cannot push %q: %w: only %s may be pushed from here", branch, ErrInvalid, own)
	}
	return nil
}

func (s *taskShell) Branch() string { return s.w.t.caller.Branch() }
