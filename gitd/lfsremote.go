package gitd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitfile"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/lfs"
)

// LFSRemote returns the Git LFS server of an upstream, or nil if the repository has no upstream. An empty URL means
// the source of the import. private lists hosts that may have addresses which are not public. The upstream's host is
// one of them. operation is [lfs.Download] or [lfs.Upload].
func (r *Repo) LFSRemote(ctx context.Context, up Upstream, private []string, operation string) (*lfs.Remote, error) {
	if up.URL == "" {
		own, err := gitfile.ReadConfig(r.dir)
		if err != nil {
			return nil, fmt.Errorf("cannot read the upstream of %s: %w", r.name, err)
		}
		if up.URL = own[keyUpstream]; up.URL == "" {
			return nil, nil
		}
	}
	src, err := up.resolveSource(ctx)
	if err != nil {
		return nil, err
	}
	remote := &lfs.Remote{Private: slices.Clone(private)}
	switch {
	case src.local:
		remote.Dir = filepath.Join(src.location, "lfs", "objects")
		if info, err := os.Stat(filepath.Join(src.location, ".git")); err == nil && info.IsDir() {
			remote.Dir = filepath.Join(src.location, ".git", "lfs", "objects")
		}
		return remote, nil
	case src.site != "":
		remote.Private = append(remote.Private, strings.TrimSuffix(src.site[strings.Index(src.site, "//")+2:], "/"))
		remote.URL = strings.TrimSuffix(strings.TrimRight(src.location, "/"), ".git") + ".git/info/lfs"
		if code := src.hidden["upstream's credential"]; code != "" {
			remote.Header = http.Header{"Authorization": {"Basic " + code}}
		}
		return remote, nil
	}
	return remote, src.redactError(src.askLFS(ctx, remote, operation))
}

const (
	sshLFSTime = 30 * time.Second
	sshLFSMax  = 64 << 10 // bytes of an answer
)

// askLFS asks an upstream that is reached by SSH for its Git LFS server, as clients do.
func (s source) askLFS(ctx context.Context, remote *lfs.Remote, operation string) error {
	host, path, ok := s.sshAddress()
	if !ok {
		return fmt.Errorf("cannot find the Git LFS server of %.200q: %w", s.location, ErrInvalid)
	}
	ctx, cancel := context.WithTimeout(ctx, sshLFSTime)
	defer cancel()
	line := sshCommand
	for _, kv := range s.env {
		if v, found := strings.CutPrefix(kv, "GIT_SSH_COMMAND="); found {
			line = v // the later one counts
		}
	}
	// The shell interprets the options of the command, as git's would. Its arguments are the host and the request.
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", line + ` "$@"`, "ssh"}, host...)...)
	cmd.Args = append(cmd.Args, "git-lfs-authenticate "+quoteWord(path)+" "+operation)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}, serverEnv("SSH_AUTH_SOCK")...)
	out, said := &gitcmd.Buffer{Max: sshLFSMax, Full: cancel}, &gitcmd.Tail{Max: gitcmd.StderrMax}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, said, time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("cannot ask upstream for its Git LFS server: %w: %.300q: %w", err,
			strings.TrimSpace(said.String()), ErrUpstream)
	}
	var a lfs.Action
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		return fmt.Errorf("cannot read where the Git LFS server of upstream is: %w: %w", err, ErrUpstream)
	}
	u, err := url.Parse(a.Href)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("upstream names no Git LFS server: %w", ErrUpstream)
	}
	name := host[len(host)-1]
	remote.Private = append(remote.Private, name[strings.LastIndexByte(name, '@')+1:])
	remote.URL, remote.Header = strings.TrimRight(a.Href, "/"), http.Header{}
	for k, v := range a.Header {
		remote.Header.Set(k, v)
	}
	return nil
}

// sshAddress returns the arguments of ssh for the host of a source, and the path there.
func (s source) sshAddress() (host []string, path string, ok bool) {
	if u, err := url.Parse(s.location); err == nil && u.Scheme == "ssh" {
		if u.Port() != "" {
			host = []string{"-p", u.Port()}
		}
		to := u.Hostname()
		if u.User != nil {
			to = u.User.Username() + "@" + to
		}
		return append(host, "--", to), u.Path, u.Path != ""
	}
	to, path, ok := strings.Cut(s.location, ":")
	return []string{"--", to}, path, ok && to != "" && path != ""
}

// quoteWord quotes a word for the shell of another machine.
func quoteWord(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
