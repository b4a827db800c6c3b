package taskstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/tasks"
)

// LocalShell is a Shell over a plain folder of this machine, for tests. It isolates nothing. Its commands run with the
// rights of this process. The files that it reads and writes itself are in the folder.
//
// LocalShell is as safe for concurrent use as the commands that it runs.
type LocalShell struct {
	// Dir is the work tree's root. Commit and Push need a git work tree.
	Dir string
	// Env is the whole environment of commands, "K=V". If it is nil, commands get PATH, HOME, USER and TMPDIR of this
	// process and LANG=C.UTF-8. They get nothing else, so that no secret of this process reaches a command by accident.
	Env []string
	// Timeout is the timeout of a command without one. The default is 30 min.
	Timeout time.Duration
	// Now is the clock that measures durations. If it is nil, it is time.Now.
	Now func() time.Time
}

var _ tasks.Shell = (*LocalShell)(nil)

const (
	defaultTimeout = 30 * time.Minute
	// pipeGrace bounds the time for which a process that left the command's group may keep the output open after the
	// end of the command.
	pipeGrace = time.Second
	// maxWalk bounds the number of listed files.
	maxWalk = 1_000_000
	// maxGitOutput bounds git's output about a work tree, in bytes.
	maxGitOutput = 256 << 20
)

// Exec implements Shell. At the timeout it kills the whole process group. The exit code after a signal is 128 + signal,
// as in a shell.
func (l *LocalShell) Exec(ctx context.Context, command string, timeout time.Duration) (tasks.Result, error) {
	if err := tasks.Quotable(command); err != nil {
		return tasks.Result{}, fmt.Errorf("cannot run the command: it %w", err)
	}
	if timeout <= 0 {
		timeout = l.Timeout
	}
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	r, err := l.run(ctx, timeout, nil, "sh", "-c", command)
	if err != nil {
		return tasks.Result{}, fmt.Errorf("cannot run %.200q: %w", command, err)
	}
	return r, nil
}

// run runs a program to its end in a process group of its own.
func (l *LocalShell) run(ctx context.Context, timeout time.Duration, stdin io.Reader, name string, args ...string) (tasks.Result, error) {
	now := l.Now
	if now == nil {
		now = time.Now
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var stdout, stderr tasks.HeadTail
	cmd := exec.CommandContext(limited, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = l.Dir, l.environ(), stdin
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipeGrace
	start := now()
	err := cmd.Run()
	if cmd.Process != nil {
		// Background processes of the command are killed too, as when its container is removed. No process outlives its
		// caller.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if cause := ctx.Err(); cause != nil {
		return tasks.Result{}, cause
	}
	if cmd.ProcessState == nil {
		return tasks.Result{}, err
	}
	r := tasks.Result{
		Stdout: stdout.String(), Stderr: stderr.String(),
		Truncated:  stdout.Truncated() || stderr.Truncated(),
		ExitCode:   cmd.ProcessState.ExitCode(),
		TimedOut:   limited.Err() != nil,
		DurationMS: now().Sub(start).Milliseconds(),
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.ExitCode = 128 + int(ws.Signal())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && !r.TimedOut {
		return tasks.Result{}, err
	}
	return r, nil
}

func (l *LocalShell) environ() []string {
	if l.Env != nil {
		return l.Env
	}
	env := []string{"LANG=C.UTF-8"}
	for _, k := range []string{"PATH", "HOME", "USER", "TMPDIR"} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return env
}

// open opens the root and follows symlinks in name itself, because os.Root would keep them inside the folder, but not
// out of .git. The returned path has no symlink, and may name no existing file.
func (l *LocalShell) open(name string) (*os.Root, string, error) {
	name, err := tasks.CleanPath(name)
	if err != nil {
		return nil, "", err
	}
	root, err := os.OpenRoot(l.Dir)
	if err != nil {
		return nil, "", err
	}
	target, err := tasks.ResolvePath(root, name)
	if err != nil {
		_ = root.Close()
		return nil, "", err
	}
	return root, target, nil
}

// ReadFile implements Shell.
func (l *LocalShell) ReadFile(ctx context.Context, name string) ([]byte, error) {
	content, err := l.readFile(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("cannot read file: %w", err)
	}
	return content, nil
}

func (l *LocalShell) readFile(ctx context.Context, name string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	root, name, err := l.open(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// Without O_NONBLOCK, opening a named pipe would wait forever for a writer.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := tasks.Regular(name, info); err != nil {
		return nil, err
	}
	if info.Size() > tasks.MaxFile {
		return nil, fmt.Errorf("%.200q: %w", name, tasks.ErrTooLarge)
	}
	content, err := io.ReadAll(io.LimitReader(f, tasks.MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > tasks.MaxFile {
		return nil, fmt.Errorf("%.200q: %w", name, tasks.ErrTooLarge) // the file grew meanwhile
	}
	return content, nil
}

// WriteFile implements Shell. It replaces the file by rename, so that no process sees a part of it.
func (l *LocalShell) WriteFile(ctx context.Context, name string, content []byte) error {
	if err := l.writeFile(ctx, name, content); err != nil {
		return fmt.Errorf("cannot write file: %w", err)
	}
	return nil
}

func (l *LocalShell) writeFile(ctx context.Context, name string, content []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(content) > tasks.MaxFile {
		return fmt.Errorf("%.200q: %w", name, tasks.ErrTooLarge)
	}
	root, name, err := l.open(name)
	if err != nil {
		return err
	}
	defer root.Close()
	mode := fs.FileMode(0o644)
	info, err := root.Lstat(name)
	switch {
	case err == nil:
		if err := tasks.Regular(name, info); err != nil {
			return err
		}
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// O_EXCL prevents following a symlink of that name.
	temp := path.Join(path.Dir(name), ".ramus-"+rand.Text()+".tmp")
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		_ = root.Remove(temp)
	}
	return err
}

// ListFiles implements Shell. In a git work tree it asks git, so that git's rules for ignored files apply. Elsewhere it
// walks the folder.
func (l *LocalShell) ListFiles(ctx context.Context, pattern string) ([]string, error) {
	glob, err := tasks.ParseGlob(pattern)
	if err != nil {
		return nil, err
	}
	names, err := l.allFiles(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list files: %w", err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !glob.Match(n) })
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (l *LocalShell) allFiles(ctx context.Context) ([]string, error) {
	root, err := os.OpenRoot(l.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if !l.isGit(ctx) {
		var names []string
		err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, fs.ErrNotExist):
				return nil // removed since its folder was read
			case err != nil:
				return err
			case strings.EqualFold(d.Name(), ".git"):
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			case d.IsDir():
				return nil
			}
			if len(names) == maxWalk {
				return fmt.Errorf("there are more than %d", maxWalk)
			}
			names = append(names, name)
			return nil
		})
		return names, err
	}
	text, err := l.output(ctx, "", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range strings.SplitSeq(text, "\x00") {
		if name == "" || strings.HasSuffix(name, "/") { // a nested repository
			continue
		}
		// The index also has deleted files and submodules.
		if info, err := root.Lstat(name); err != nil || info.IsDir() {
			continue
		}
		if len(names) == maxWalk {
			return nil, fmt.Errorf("there are more than %d", maxWalk)
		}
		names = append(names, name)
	}
	return names, nil
}

// isGit reports whether Dir itself is the top of a git work tree, and not a folder inside another repository.
func (l *LocalShell) isGit(ctx context.Context) bool {
	out, err := l.git(ctx, "rev-parse", "--show-prefix").Output()
	return err == nil && strings.TrimSpace(string(out)) == "" && l.hasDotGit()
}

func (l *LocalShell) hasDotGit() bool {
	_, err := os.Lstat(filepath.Join(l.Dir, ".git"))
	return err == nil
}

// git returns a git command that runs no hook, asks nothing and uses no translations. A command may have just written a
// hook.
func (l *LocalShell) git(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c",
		"commit.gpgSign=false"}, args...)
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = l.Dir
	cmd.Env = append(slices.Clone(l.environ()), "GIT_TERMINAL_PROMPT=0", "LC_ALL=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipeGrace
	return cmd
}

// output runs git and returns its standard output. The error has git's message.
func (l *LocalShell) output(ctx context.Context, stdin string, args ...string) (string, error) {
	var stderr tasks.HeadTail
	stdout := limitedBuffer{left: maxGitOutput}
	cmd := l.git(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("git %s: %w: %.1000s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// limitedBuffer returns an error beyond its limit, because an incomplete list of names would be worse than none.
type limitedBuffer struct {
	bytes.Buffer
	left int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(p) > b.left {
		return 0, errors.New("more output than fits in memory")
	}
	b.left -= len(p)
	return b.Buffer.Write(p)
}

// Commit implements Shell. The author is that of git's configuration, or else ramus.
func (l *LocalShell) Commit(ctx context.Context, message string, paths []string) (string, error) {
	hash, err := l.commit(ctx, message, paths)
	if err != nil {
		return "", fmt.Errorf("cannot commit: %w", err)
	}
	return hash, nil
}

func (l *LocalShell) commit(ctx context.Context, message string, paths []string) (string, error) {
	if strings.TrimSpace(message) == "" {
		return "", errors.New("the message is empty")
	}
	if err := tasks.Quotable(message); err != nil {
		return "", fmt.Errorf("the message %w", err)
	}
	if !l.isGit(ctx) {
		return "", fmt.Errorf("%s is not the top of a git work tree", l.Dir)
	}
	// Literal, because a file may be called ":(exclude)x" or "*".
	status := []string{"--literal-pathspecs", "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--"}
	for _, p := range paths {
		name, err := tasks.CleanPath(p)
		if err != nil {
			return "", err
		}
		status = append(status, name)
	}
	changed, err := l.output(ctx, "", status...)
	if err != nil || changed == "" {
		return "", err
	}
	// The changed files below paths are named one by one, because git refuses all names if one of them has no match.
	var only []string
	if len(paths) > 0 {
		list, err := os.CreateTemp("", "ramus-paths-*")
		if err != nil {
			return "", err
		}
		defer os.Remove(list.Name())
		defer list.Close()
		for entry := range strings.SplitSeq(changed, "\x00") {
			if len(entry) > 3 { // "XY path"
				if _, err := list.WriteString(entry[3:] + "\x00"); err != nil {
					return "", err
				}
			}
		}
		only = []string{"--pathspec-from-file=" + list.Name(), "--pathspec-file-nul"}
	}
	if _, err := l.output(ctx, "", append([]string{"--literal-pathspecs", "add", "--all"}, only...)...); err != nil {
		return "", err
	}
	var args []string
	if out, err := l.output(ctx, "", "config", "--get", "user.email"); err != nil || out == "" {
		args = append(args, "-c", "user.name=ramus", "-c", "user.email=ramus@localhost")
	}
	args = append(args, "--literal-pathspecs", "commit", "--quiet", "--no-verify", "--cleanup=whitespace", "--file=-")
	if _, err := l.output(ctx, message, append(args, only...)...); err != nil {
		return "", err
	}
	hash, err := l.output(ctx, "", "rev-parse", "--verify", "HEAD")
	return strings.TrimSpace(hash), err
}

// Push implements Shell. Remote is the name of a configured remote ("" means origin), and branch the name in it (""
// means the current branch).
func (l *LocalShell) Push(ctx context.Context, remote, branch string) error {
	if remote == "" {
		remote = "origin"
	}
	if branch == "" {
		branch = l.Branch()
	}
	if !tasks.IsRemoteName(remote) || !tasks.IsBranchName(branch) {
		return fmt.Errorf("cannot push: %w remote %.100q, branch %.100q", tasks.ErrRefused, remote, branch)
	}
	// git would also accept a URL or a path as remote.
	if _, err := l.output(ctx, "", "remote", "get-url", "--", remote); err != nil {
		return fmt.Errorf("cannot push: there is no remote %q: %w", remote, err)
	}
	if _, err := l.output(ctx, "", "push", "--quiet", "--no-verify", "--end-of-options", remote, "HEAD:refs/heads/"+branch); err != nil {
		return fmt.Errorf("cannot push: %w", err)
	}
	return nil
}

// Branch implements Shell. Returns "" if there is none (no repository, detached).
func (l *LocalShell) Branch() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := l.output(ctx, "", "symbolic-ref", "--quiet", "--short", "HEAD")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}
