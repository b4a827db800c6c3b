package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// nobody is the user as which Gitea runs if the bench runs as root. Gitea changes git's global configuration wherever
// that is, and must not reach anything outside its own folder.
const nobody = 65534

// startGitea serves a copy of r by Gitea. Its API makes the repository, which then gets our bytes. Clients sign in with
// a token, because each check of a password takes 100 ms.
func (b *bench) startGitea(ctx context.Context, program string, r *repository) (*gitServer, error) {
	home, err := os.MkdirTemp(b.dir, "gitea-")
	if err != nil {
		return nil, err
	}
	b.onExit(func(context.Context) error { return os.RemoveAll(home) })
	as := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		as.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	own := func() error {
		if os.Geteuid() != 0 {
			return nil
		}
		return filepath.WalkDir(home, func(path string, _ fs.DirEntry, err error) error {
			return joined(err, os.Lchown(path, nobody, nobody))
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().(*net.TCPAddr)
	l.Close()
	config := filepath.Join(home, "app.ini")
	text := fmt.Sprintf(`RUN_MODE = prod
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = %d
DISABLE_SSH = true
OFFLINE_MODE = true
%s
[database]
DB_TYPE = sqlite3
PATH = %s/gitea.db
[repository]
ROOT = %[3]s/repos
[security]
INSTALL_LOCK = true
[log]
MODE = console
LEVEL = error
[cron]
ENABLED = false
[git.timeout]
GC = 60
`, address.Port, staticRoot(), home)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := own(); err != nil {
		return nil, err
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TMPDIR=" + home, "GITEA_WORK_DIR=" + home, "HOME=" + home,
		"GIT_CONFIG_NOSYSTEM=1"}
	gitea := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, append([]string{"--config", config}, args...)...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = env, home, as
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("gitea %s: %w: %s %s", args[0], err, out.Bytes(), said.Bytes())
		}
		return out.String(), nil
	}
	if _, err := gitea("migrate"); err != nil {
		return nil, err
	}
	out, err := gitea("admin", "user", "create", "--username", "bench", "--password", "bench-bench-1", "--email",
		"bench@example.org",
		"--admin", "--must-change-password=false", "--access-token", "--access-token-scopes", "all")
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(out)
	var token string
	for _, f := range fields {
		if len(f) == 40 {
			token = f
		}
	}
	if token == "" {
		return nil, fmt.Errorf("gitea told no token: %q", out)
	}
	web := exec.Command(program, "--config", config, "web")
	web.Env, web.Dir, web.SysProcAttr = env, home, as
	s, err := b.startCommand(ctx, sideGitea, web, nil)
	if err != nil {
		return nil, err
	}
	s.url = fmt.Sprintf("http://%s", address)
	for begin := time.Now(); ; {
		resp, err := http.Get(s.url + "/api/healthz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Since(begin) > starting {
			return nil, fmt.Errorf("cannot reach Gitea: %w: %s", err, s.log)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	body, _ := json.Marshal(map[string]any{"name": r.name, "default_branch": "main", "auto_init": false})
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+"/api/v1/user/repos", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "token "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return nil, fmt.Errorf("cannot make a repository in Gitea: %s: %s", resp.Status, said)
	}
	dir := filepath.Join(home, "repos", "bench", r.name+".git")
	// Its hooks stay, because they belong to Gitea. All other files are replaced.
	for _, name := range []string{"objects", "refs", "packed-refs", "HEAD"} {
		to := filepath.Join(dir, name)
		if err := os.RemoveAll(to); err != nil {
			return nil, err
		}
		if err := copyPath(filepath.Join(r.dir, name), to); err != nil {
			return nil, err
		}
	}
	if err := own(); err != nil {
		return nil, err
	}
	return &gitServer{server: s, repo: s.url + "/bench/" + r.name + ".git", user: "bench:" + token, dir: dir}, nil
}

// staticRoot returns the folder of templates for a Gitea that was built without them.
func staticRoot() string {
	if dir := os.Getenv("BENCH_GITEA_STATIC"); dir != "" {
		return "STATIC_ROOT_PATH = " + dir
	}
	return ""
}

func copyPath(from, to string) error {
	info, err := os.Stat(from)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
