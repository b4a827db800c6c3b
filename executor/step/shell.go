package step

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/rules"
)

// TaskShell is the tasks.Shell of a step. Its commands run in the caller's container, one after another. Their changes are
// committed when the task has ended.
type TaskShell struct {
	W       *Work
	Timeout time.Duration // of a command that names none
}

var _ tasks.Shell = (*TaskShell)(nil)

func (s *TaskShell) Exec(ctx context.Context, command string, timeout time.Duration) (tasks.Result, error) {
	w := s.W
	if err := tasks.Quotable(command); err != nil {
		return tasks.Result{}, fmt.Errorf("cannot run the command: %w", err)
	}
	if timeout <= 0 || s.Timeout > 0 && timeout > s.Timeout {
		timeout = s.Timeout
	}
	q := Question{Step: w.Info.ID, Command: command}
	if err := w.Run.Permit(ctx, w.Target, q, rules.Shell(command), w.approved); err != nil {
		return tasks.Result{}, err
	}
	w.n++
	id := w.ID + "." + strconv.Itoa(w.n)
	var stdout, stderr tasks.HeadTail
	// A long output is cut in the middle for the task, so secrets are taken out before.
	cleanOut, cleanErr, flush := w.Run.Runner.Secrets.Writers(&stdout, &stderr)
	exit, err := w.Attend(ctx, id,
		&containers.Command{ID: id, Shell: command, Env: w.Target.Env(w.Run.Initial.Asker), Timeout: timeout},
		w.heard(cleanOut, false), w.heard(cleanErr, true))
	flush()
	if err == nil {
		err = context.Cause(ctx) // the command was stopped for that cause
	}
	if err != nil {
		return tasks.Result{}, err
	}
	return tasks.Result{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: exit.Code,
		TimedOut:   exit.Reason == containers.ReasonTimeout,
		Truncated:  stdout.Truncated() || stderr.Truncated(),
		DurationMS: exit.Duration.Milliseconds()}, nil
}

// heard returns a writer to by and to the step's own output. A visitor's task has no output of its own.
func (w *Work) heard(by io.Writer, stderr bool) io.Writer {
	switch {
	case w.Out == nil:
		return by
	case stderr:
		return io.MultiWriter(w.Out.Stderr, by)
	}
	return io.MultiWriter(w.Out.Stdout, by)
}

// links reads a container's work tree for tasks.ResolvePath.
type links struct{ files *sftp.Client }

func (l links) Lstat(name string) (fs.FileInfo, error) {
	return l.files.Lstat(path.Join(containers.WorkDir, name))
}

func (l links) Readlink(name string) (string, error) {
	return l.files.ReadLink(path.Join(containers.WorkDir, name))
}

// open connects to the container's files and resolves a path there. The container opens files in a way that no symlink leads out
// of.
func (s *TaskShell) open(ctx context.Context, name string) (*sftp.Client, string, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, "", err
	}
	clean, err := tasks.CleanPath(name)
	if err != nil {
		return nil, "", err
	}
	files, err := s.W.Host.Files(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("cannot open the container's files: %w", err)
	}
	target, err := tasks.ResolvePath(links{files}, clean)
	if err != nil {
		files.Close()
		return nil, "", err
	}
	return files, path.Join(containers.WorkDir, target), nil
}

func (s *TaskShell) ReadFile(ctx context.Context, name string) ([]byte, error) {
	content, err := s.readFile(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("cannot read file: %w", err)
	}
	return content, nil
}

func (s *TaskShell) readFile(ctx context.Context, name string) ([]byte, error) {
	files, at, err := s.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	info, err := files.Lstat(at)
	if err != nil {
		return nil, err
	}
	if err := tasks.Regular(name, info); err != nil {
		return nil, err
	}
	if info.Size() > tasks.MaxFile {
		return nil, fmt.Errorf("%.200q: %w", name, tasks.ErrTooLarge)
	}
	f, err := files.Open(at)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, tasks.MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > tasks.MaxFile {
		return nil, fmt.Errorf("%.200q: %w", name, tasks.ErrTooLarge) // it grew meanwhile
	}
	return content, nil
}

func (s *TaskShell) WriteFile(ctx context.Context, name string, content []byte) error {
	if err := s.writeFile(ctx, name, content); err != nil {
		return fmt.Errorf("cannot write file: %w", err)
	}
	return nil
}

func (s *TaskShell) writeFile(ctx context.Context, name string, content []byte) error {
	if len(content) > tasks.MaxFile {
		return fmt.Errorf("%.200q: %w", name, tasks.ErrTooLarge)
	}
	files, at, err := s.open(ctx, name)
	if err != nil {
		return err
	}
	defer files.Close()
	info, err := files.Lstat(at)
	switch {
	case err == nil:
		if err := tasks.Regular(name, info); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	default:
		if err := files.MkdirAll(path.Dir(at)); err != nil {
			return err
		}
	}
	f, err := files.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

func (s *TaskShell) ListFiles(ctx context.Context, pattern string) ([]string, error) {
	glob, err := tasks.ParseGlob(pattern)
	if err != nil {
		return nil, err
	}
	listed, err := s.listed(ctx, "--cached", "--others", "--exclude-standard", "--deduplicate")
	if err != nil {
		return nil, err
	}
	// The index also names files that were deleted.
	gone, err := s.listed(ctx, "--deleted")
	if err != nil {
		return nil, err
	}
	names := []string{}
	for name := range listed {
		// A name with a slash at its end is a repository inside this one.
		if !gone[name] && !strings.HasSuffix(name, "/") && (pattern == "" || glob.Match(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// maxListing bounds a list of files, in bytes.
const maxListing = 64 << 20

func (s *TaskShell) listed(ctx context.Context, args ...string) (map[string]bool, error) {
	w := s.W
	w.n++
	id := w.ID + "." + strconv.Itoa(w.n)
	var out bytes.Buffer
	exit, err := w.Attend(ctx, id, &containers.Command{ID: id, Timeout: s.Timeout,
		Args: append([]string{"git", "-c", "core.fsmonitor=false", "ls-files", "-z"}, args...)},
		&text.Limit{W: &out, Left: maxListing}, io.Discard)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list files: %w", err)
	}
	switch {
	case exit.Code != 0:
		return nil, fmt.Errorf("cannot list files: git ls-files ended with %d", exit.Code)
	case out.Len() >= maxListing:
		return nil, fmt.Errorf("cannot list files: their names alone are more than %d MiB", maxListing>>20)
	}
	names := make(map[string]bool)
	for name := range strings.SplitSeq(out.String(), "\x00") {
		if name != "" {
			names[name] = true
		}
	}
	return names, nil
}

func (s *TaskShell) Commit(ctx context.Context, message string, paths []string) (string, error) {
	w := s.W
	if strings.TrimSpace(message) == "" {
		return "", fmt.Errorf("cannot commit: %w: the message is empty", record.ErrInvalid)
	}
	if err := tasks.Quotable(message); err != nil {
		return "", fmt.Errorf("cannot commit: the message %w", err)
	}
	paths = slices.Clone(paths)
	for i, p := range paths {
		clean, err := tasks.CleanPath(p)
		if err != nil {
			return "", fmt.Errorf("cannot commit: %w", err)
		}
		paths[i] = clean
	}
	text := w.message(Outcome{Subject: message})
	if body := strings.TrimSpace(message); strings.Contains(body, "\n") {
		_, trailers, _ := strings.Cut(text, record.TrailerCaller+": ")
		text = body + "\n\n" + record.TrailerCaller + ": " + trailers
	}
	w.Head.mu.Lock()
	defer w.Head.mu.Unlock()
	made, err := w.Target.Commit(ctx, w.Host, w.Head.At, w.Run.Initial.Asker, text, paths)
	if err != nil {
		return "", fmt.Errorf("cannot commit: %w", err)
	}
	w.Head.Left = append(w.Head.Left, made.Left...)
	if made.At == w.Head.At {
		return "", nil
	}
	w.Head.At = made.At
	return string(made.Tip), nil
}

// Push has nothing to send. Each command's commits are pushed when it ends, and Commit pushes at once. Push returns an error if
// anything else is asked for.
func (s *TaskShell) Push(_ context.Context, remote, branch string) error {
	if remote != "" && remote != "origin" {
		return fmt.Errorf("cannot push to %q: %w: a container reaches only origin", remote, record.ErrInvalid)
	}
	if own := s.Branch(); branch != "" && branch != own {
		return fmt.Errorf("cannot push %q: %w: only %s may be pushed from here", branch, record.ErrInvalid, own)
	}
	return nil
}

func (s *TaskShell) Branch() string { return s.W.Target.Caller.Branch() }
