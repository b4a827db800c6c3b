package giteaserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Program is a built Gitea.
type Program struct {
	Path   string
	Static string // folder of its templates; empty if they are in the program
	// User is the id of the user and group as which it runs. Zero means those of this process. Only root may name others.
	User int
}

// Find returns the Gitea that RAMUS_GITEA names, or bin/gitea/gitea of the checkout with the working directory.
func Find() (Program, error) {
	if path := os.Getenv("RAMUS_GITEA"); path != "" {
		return At(path)
	}
	dir, err := os.Getwd()
	for err == nil {
		if p, err := At(filepath.Join(dir, "bin", "gitea", "gitea")); err == nil {
			return p, nil
		}
		if _, e := os.Stat(filepath.Join(dir, "go.mod")); e == nil || filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	return Program{}, errors.New("there is no Gitea; scripts/gitea.sh builds one, or set RAMUS_GITEA")
}

// At returns the Gitea at path. Its templates are in the folder "static" next to it, or in the program.
func At(path string) (Program, error) {
	if _, err := os.Stat(path); err != nil {
		return Program{}, fmt.Errorf("cannot use Gitea: %w", err)
	}
	p := Program{Path: path}
	if static := filepath.Join(filepath.Dir(path), "static"); dirExists(static) {
		p.Static = static
	}
	return p, nil
}

func dirExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Server is a running Gitea.
type Server struct {
	URL string
	// Admin and Token are the administrator and a token of all scopes. Password is that of all users.
	Admin, Token, Password string

	cmd  *exec.Cmd
	log  *bytes.Buffer
	done chan error
	http http.Client
}

// starting bounds the start.
const starting = time.Minute

const configuration = `RUN_MODE = prod
%s
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = %d
ROOT_URL = http://127.0.0.1:%[2]d/
DISABLE_SSH = true
OFFLINE_MODE = true
%s
[database]
DB_TYPE = sqlite3
PATH = %s/gitea.db
[repository]
ROOT = %[4]s/repos
DEFAULT_PRIVATE = private
[git]
HOME_PATH = %[4]s/home
[security]
INSTALL_LOCK = true
PASSWORD_HASH_ALGO = pbkdf2$1$16
MIN_PASSWORD_LENGTH = 6
[webhook]
ALLOWED_HOST_LIST = loopback
[indexer]
ISSUE_INDEXER_TYPE = db
[log]
MODE = console
LEVEL = error
[cron]
ENABLED = false
[actions]
ENABLED = false
[service]
ENABLE_NOTIFY_MAIL = false
`

// Start starts a Gitea in an empty folder. It ends with [Server.Close].
func Start(ctx context.Context, p Program, dir string) (*Server, error) {
	s, cmd, err := Prepare(p, dir)
	if err != nil {
		return nil, err
	}
	s.cmd = cmd
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start Gitea: %w", err)
	}
	go func() { s.done <- s.cmd.Wait() }()
	if err := s.Await(ctx, s.done); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start Gitea: %w: %s", err, s.log), s.Close())
	}
	return s, nil
}

// Prepare makes the database and the administrator of a Gitea in an empty folder, which belongs to the user of p. It
// returns the command that serves it, which the caller starts.
func Prepare(p Program, dir string) (*Server, *exec.Cmd, error) {
	s := &Server{Admin: "root-of-all", Password: "password-1", log: &bytes.Buffer{}, done: make(chan error, 1)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	s.URL = fmt.Sprintf("http://127.0.0.1:%d", port)

	root, static := "", ""
	if os.Geteuid() == 0 && p.User == 0 {
		root = "I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true"
	}
	if p.Static != "" {
		static = "STATIC_ROOT_PATH = " + p.Static
	}
	config := filepath.Join(dir, "app.ini")
	if err := os.WriteFile(config, fmt.Appendf(nil, configuration, root, port, static, dir), 0o600); err != nil {
		return nil, nil, err
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command(p.Path, append([]string{"--config", config}, args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TMPDIR=" + dir, "GITEA_WORK_DIR=" + dir,
			"HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true}
		if p.User != 0 {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(p.User), Gid: uint32(p.User)}
		}
		return cmd
	}
	if p.User != 0 {
		if err := os.Lchown(config, p.User, p.User); err != nil {
			return nil, nil, err
		}
	}
	for _, args := range [][]string{{"migrate"},
		{"admin", "user", "create", "--username", s.Admin, "--password", s.Password, "--email", "root@example.org",
			"--admin", "--must-change-password=false"}} {
		if out, err := command(args...).CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("cannot start Gitea: %s: %w: %s", args[0], err, out)
		}
	}
	return s, command("web"), nil
}

// Await waits until the started server answers, and makes the token of the administrator. It returns an error if the
// server ends first, which ended reports and reports again to the next reader.
func (s *Server) Await(ctx context.Context, ended chan error) (err error) {
	for begin := time.Now(); !s.healthy(); {
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("it ended: %w", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Since(begin) > starting {
			return errors.New("it does not answer")
		}
	}
	s.Token, err = s.NewToken(ctx, s.Admin)
	return err
}

func (s *Server) healthy() bool {
	resp, err := s.http.Get(s.URL + "/api/healthz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Close ends the server and its children.
func (s *Server) Close() error {
	s.http.CloseIdleConnections()
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.done
	}
	return nil
}

// AddUser adds a user and returns a token.
func (s *Server) AddUser(ctx context.Context, login string) (token string, err error) {
	err = s.Do(ctx, s.Token, http.MethodPost, "/admin/users",
		map[string]any{"username": login, "email": login + "@example.org", "password": s.Password,
			"must_change_password": false}, nil)
	if err != nil {
		return "", err
	}
	return s.NewToken(ctx, login)
}

// NewToken returns a new token of a user, with all scopes.
func (s *Server) NewToken(ctx context.Context, login string) (string, error) {
	var made struct {
		SHA1 string `json:"sha1"`
	}
	err := s.Do(ctx, login+":"+s.Password, http.MethodPost, "/users/"+login+"/tokens",
		map[string]any{"name": fmt.Sprint("test-", time.Now().UnixNano()), "scopes": []string{"all"}}, &made)
	return made.SHA1, err
}

// Do makes a request to the API. who is a token, or "user:password".
func (s *Server) Do(ctx context.Context, who, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, s.URL+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if user, password, ok := strings.Cut(who, ":"); ok {
		r.SetBasicAuth(user, password)
	} else {
		r.Header.Set("Authorization", "token "+who)
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %.500s", method, path, resp.Status, answer)
	}
	if out == nil || len(answer) == 0 {
		return nil
	}
	return json.Unmarshal(answer, out)
}
