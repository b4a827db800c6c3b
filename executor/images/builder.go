package images

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/devcontainer"
)

// Failed is the error of an image that cannot be built.
type Failed struct {
	Path string // of the file that describes the image
	Why  string
	Log  string // the end of the builder's output
}

func (f *Failed) Error() string {
	return fmt.Sprintf("the image of %s could not be built: %s", f.Path, f.Why)
}

// Wish is an image to build.
type Wish struct {
	Repo   *gitd.Repo
	Commit gitd.Hash // of the base
	File   devcontainer.File
	// Dockerfile means that File is about a Dockerfile alone, and no devcontainer.json.
	Dockerfile bool
}

// Builder builds images. Its exported fields are its options, and must not change after the first build. Methods are safe for
// concurrent use.
type Builder struct {
	// Devcontainer is the program of @devcontainers/cli. The default is "devcontainer", found in PATH.
	Devcontainer string
	// Dir has the folders of builds while they run.
	Dir string
	// Timeout bounds one build. The default is 30 min.
	Timeout time.Duration
	// Secrets are removed from the output of builders. Nil means that there are none.
	Secrets *redact.Secrets
	Log     *slog.Logger
	Now     func() time.Time

	mu     sync.Mutex        // guards all below
	builds map[string]*build // by the name of the image
	known  map[place]string  // names of images that were there
}

// place is a file at a commit of a repository.
type place struct {
	repo, path string
	commit     gitd.Hash
}

// mostKnown is the number of names that a Builder remembers.
const mostKnown = 256

// remember notes that an image is there.
func (b *Builder) remember(at place, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil || len(b.known) >= mostKnown {
		b.known = make(map[place]string)
	}
	b.known[at] = name
}

// build is one that runs, or that failed lately.
type build struct {
	done   chan struct{} // closed when it has ended
	failed *Failed       // set before done is closed
	err    error
	ended  time.Time
}

const (
	// forgive is the time after which a build that failed is tried again.
	forgive = 10 * time.Minute
	// keptLog bounds the output of a builder that is kept, in bytes.
	keptLog = 64 << 10
	// asking bounds a question to Docker.
	asking = 30 * time.Second
)

// Image returns the name of the image of a wish, and builds it if it is not there. begin is called before a build begins. Callers that
// wish for the same image wait for one build. The error is a [*Failed] if the build fails, also for ten minutes afterwards.
func (b *Builder) Image(ctx context.Context, w Wish, begin func() error) (name string, err error) {
	at := place{w.Repo.Name(), w.File.Path, w.Commit}
	b.mu.Lock()
	name = b.known[at]
	b.mu.Unlock()
	if name != "" {
		return name, nil
	}
	tree, err := b.list(ctx, w)
	if err != nil {
		return "", err
	}
	name = imageName(w, tree)
	if b.exists(ctx, name) {
		b.remember(at, name)
		return name, nil
	}
	b.mu.Lock()
	k := b.builds[name]
	if k == nil || k.over() && b.Now().Sub(k.ended) > forgive {
		if b.builds == nil {
			b.builds = make(map[string]*build)
		}
		k = &build{done: make(chan struct{})}
		b.builds[name] = k
		b.mu.Unlock()
		if err := begin(); err != nil {
			b.end(name, k, nil, err)
			return "", err
		}
		failed, err := b.build(ctx, w, tree, name)
		b.end(name, k, failed, err)
	} else {
		b.mu.Unlock()
	}
	select {
	case <-k.done:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	switch {
	case k.failed != nil:
		return "", k.failed
	case k.err != nil:
		return "", k.err
	}
	b.remember(at, name)
	return name, nil
}

func (k *build) over() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// end notes the end of a build. Only one that failed by itself is remembered.
func (b *Builder) end(name string, k *build, failed *Failed, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.failed, k.err, k.ended = failed, err, b.Now()
	if failed == nil {
		delete(b.builds, name)
	}
	close(k.done)
}

// imageName returns the name of the image that a wish's files make.
func imageName(w Wish, tree []file) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "1\x00%s\x00%v\x00", w.File.Config(), w.Dockerfile)
	for _, f := range tree {
		fmt.Fprintf(sum, "%s\x00%s\x00%s\x00", f.mode, f.hash, f.path)
	}
	repo := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(w.Repo.Name()))
	return "ramus/dev-" + cmp.Or(strings.Trim(repo[:min(len(repo), 80)], "-"), "repo") + ":" +
		hex.EncodeToString(sum.Sum(nil)[:10])
}

// exists reports whether Docker has an image.
func (b *Builder) exists(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	return b.command(ctx, os.TempDir(), os.TempDir(), "docker", "image", "inspect", name).Run() == nil
}

// build writes the files of a wish to a folder and builds the image.
func (b *Builder) build(ctx context.Context, w Wish, tree []file, name string) (*Failed, error) {
	limit := cmp.Or(b.Timeout, 30*time.Minute)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it takes longer than %v", limit))
	defer cancel()
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.Dir, "build-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Log.Warn("the folder of a build stays", "folder", dir, "err", err)
		}
	}()
	files, home := filepath.Join(dir, "files"), filepath.Join(dir, "home")
	for _, d := range []string{files, home} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
	}
	if err := b.export(ctx, w, tree, files); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(home, wrapper), []byte(wrapperText), 0o700); err != nil {
		return nil, err
	}
	cmd := b.builder(ctx, w, files, home, name)
	said := &text.Tail{Limit: keptLog}
	cmd.Stdout, cmd.Stderr = said, said
	err = cmd.Run()
	if err == nil && !b.exists(ctx, name) {
		err = errors.New("the builder ended well, and the image is not there")
	}
	if err == nil {
		return nil, nil
	}
	failed := &Failed{Path: w.File.Path, Why: err.Error(), Log: b.Secrets.String(said.String())}
	switch {
	case errors.Is(err, exec.ErrNotFound) && !w.Dockerfile:
		failed.Why = "there is no program " + b.program() + "; npm install --global @devcontainers/cli installs it"
	case ctx.Err() != nil && context.Cause(ctx) != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, context.Cause(ctx) // the run was stopped, or the server is closing
	case ctx.Err() != nil:
		failed.Why = context.Cause(ctx).Error()
	}
	return failed, nil
}

func (b *Builder) program() string { return cmp.Or(b.Devcontainer, "devcontainer") }

// builder returns the command that builds the image of a wish, whose files are in a folder.
func (b *Builder) builder(ctx context.Context, w Wish, files, home, name string) *exec.Cmd {
	if w.Dockerfile {
		return b.command(ctx, files, home, "docker", "build", "--force-rm", "--file",
			filepath.Join(files, w.File.Build.Dockerfile), "--tag", name,
			filepath.Join(files, w.File.Build.Context))
	}
	return b.command(ctx, files, home, b.program(), "build", "--workspace-folder", files, "--docker-path",
		filepath.Join(home, wrapper), "--config", filepath.Join(files, w.File.Path), "--image-name", name)
}

// wrapper is a program in the home folder of a build that the program of @devcontainers/cli starts in place of docker. The builder of
// earlier engines leaves the container of a step that failed, unless it is told otherwise.
const (
	wrapper     = "docker"
	wrapperText = `#!/bin/sh
if [ "$1" = build ]; then
    shift
    exec docker build --force-rm "$@"
fi
exec docker "$@"
`
)

// command returns a command with a clean environment. If ctx ends, the whole process group is killed.
func (b *Builder) command(ctx context.Context, dir, home, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, "DOCKER_CONFIG=" + home,
		"LANG=C.UTF-8"}
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+host)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin = bytes.NewReader(nil)
	return cmd
}
