package githubtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// maxPack bounds a push.
const maxPack = 256 << 20

// updateHook refuses a push to a ref as GitHub does.
const updateHook = `#!/bin/sh
ref=$1 old=$2 new=$3
case " $STANDIN_PROTECTED " in
*" $ref "*)
	echo "error: GH006: Protected branch update failed for $ref." >&2
	echo "error: Changes must be made through a pull request." >&2
	exit 1 ;;
esac
zero=$(git rev-parse --verify -q HEAD >/dev/null && git merge-base HEAD "$new" 2>/dev/null)
case $old in *[!0]*) from=$old ;; *) from=$zero ;; esac
case $new in *[!0]*) ;; *) exit 0 ;; esac
if [ -n "$STANDIN_APP" ] && [ -n "$from" ]; then
	file=$(git diff --name-only "$from" "$new" -- .github/workflows | head -n 1)
	if [ -n "$file" ]; then
		echo "refusing to allow a GitHub App to create or update workflow \` + "`$file\\`" + ` without \` + "`workflows\\`" + ` permission" >&2
		exit 1
	fi
fi
exit 0
`

// openGit makes the folders that git needs.
func (s *Server) openGit() (err error) {
	if s.Root, err = filepath.Abs(s.Root); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(s.Root, s.Account), 0o755); err != nil {
		return err
	}
	if s.hooks, err = os.MkdirTemp("", "github-stand-in"); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.hooks, "update"), []byte(updateHook), 0o755)
}

func (s *Server) closeGit() error { return os.RemoveAll(s.hooks) }

// Dir returns the folder of a repository.
func (s *Server) Dir(name string) string { return filepath.Join(s.Root, s.Account, name+".git") }

// gitEnv returns the environment of all git processes, without this machine's configuration.
func (s *Server) gitEnv(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.hooks, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_TERMINAL_PROMPT=0"}, more...)
}

// run runs git in a folder and returns its output without the last end of line.
func (s *Server) run(dir string, env []string, in string, args ...string) (string, error) {
	cmd := exec.CommandContext(s.ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = s.gitEnv(env...)
	cmd.Stdin = strings.NewReader(in)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return strings.TrimSpace(out.String()), fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// content returns a file of a commit, byte for byte. The name of a branch is not accepted.
func (s *Server) content(r *repo, commit, file string) ([]byte, error) {
	if strings.Trim(commit, "0123456789abcdef") != "" || len(commit) != len(zero) {
		return nil, fmt.Errorf("%q is no commit", commit)
	}
	cmd := exec.CommandContext(s.ctx, "git", "-C", r.dir, "cat-file", "blob", commit+":"+file)
	cmd.Env = s.gitEnv()
	return cmd.Output()
}

// maxFacts bounds the number of cached results for a repository.
const maxFacts = 20_000

// fact returns git's output about commits. It is cached, because it never changes. All names in args are ids of commits
// or paths. s.mu is held.
func (s *Server) fact(r *repo, args ...string) (string, error) {
	key := strings.Join(args, "\x00")
	if f, known := r.facts[key]; known {
		return f.text, f.err
	}
	if r.facts == nil || len(r.facts) >= maxFacts {
		r.facts = map[string]fact{}
	}
	text, err := s.run(r.dir, nil, "", args...)
	if s.ctx.Err() == nil {
		r.facts[key] = fact{text, err}
	}
	return text, err
}

type fact struct {
	text string
	err  error
}

// gitService reports whether a request belongs to git's protocol, and returns its service and repository.
func gitService(r *http.Request) (service, name string, ok bool) {
	path := r.URL.Path
	if rest, is := strings.CutSuffix(path, "/info/refs"); is {
		service = r.URL.Query().Get("service")
		return service, strings.TrimSuffix(rest, ".git"), service == "git-upload-pack" || service == "git-receive-pack"
	}
	for _, service := range []string{"git-upload-pack", "git-receive-pack"} {
		if rest, is := strings.CutSuffix(path, "/"+service); is {
			return service, strings.TrimSuffix(rest, ".git"), true
		}
	}
	return "", "", false
}

func plain(status int, text string) answer {
	return answer{status: status, kind: "text/plain; charset=UTF-8", body: []byte(text)}
}

// git serves git's protocol by git itself.
func (c *call) git(w http.ResponseWriter, service, name string, q *Request) answer {
	s := c.s
	r, env, a := c.admitGit(service, name, q)
	if a != nil {
		return *a
	}
	// CGI needs the length of the body.
	body, err := io.ReadAll(http.MaxBytesReader(w, c.r.Body, maxPack))
	if err != nil {
		return plain(http.StatusRequestEntityTooLarge, "cannot read the body")
	}
	req := c.r.Clone(c.r.Context())
	req.Body, req.ContentLength, req.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	_, tail, _ := strings.Cut(c.r.URL.Path[1:], "/")
	_, tail, _ = strings.Cut(tail, "/")
	req.URL.Path = "/" + s.Account + "/" + r.name + ".git/" + tail
	req.Header.Del("Authorization")
	path, err := exec.LookPath("git")
	if err != nil {
		return plain(http.StatusInternalServerError, err.Error())
	}
	backend := &cgi.Handler{Path: path, Args: []string{"http-backend"}, Dir: s.Root, Stderr: io.Discard, Env: s.gitEnv(append(env,
		"GIT_PROJECT_ROOT="+s.Root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER="+c.who.user.login, "GIT_CONFIG_COUNT=5",
		"GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_VALUE_0="+s.hooks, "GIT_CONFIG_KEY_1=receive.hideRefs", "GIT_CONFIG_VALUE_1=refs/pull",
		"GIT_CONFIG_KEY_2=safe.directory", "GIT_CONFIG_VALUE_2=*", "GIT_CONFIG_KEY_3=receive.fsckObjects", "GIT_CONFIG_VALUE_3=true",
		"GIT_CONFIG_KEY_4=uploadpack.allowAnySHA1InWant", "GIT_CONFIG_VALUE_4=true")...)}
	if service == "git-upload-pack" && !c.lost {
		q.Status = http.StatusOK
		backend.ServeHTTP(w, req)
		return answer{status: http.StatusOK, sent: true}
	}
	// The push is recorded before the response is sent.
	if service == "git-receive-pack" {
		r.writing.Lock()
		defer r.writing.Unlock()
	}
	kept := &keptAnswer{header: http.Header{}}
	backend.ServeHTTP(kept, req.WithContext(context.WithoutCancel(req.Context())))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.follow(r, c.who.user); err != nil {
		return plain(http.StatusInternalServerError, err.Error())
	}
	return answer{status: max(kept.status, http.StatusOK), header: kept.header, kind: kept.header.Get("Content-Type"), body: kept.body.Bytes()}
}

// keptAnswer is an http.ResponseWriter that stores a response, which is sent later.
type keptAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *keptAnswer) Header() http.Header         { return k.header }
func (k *keptAnswer) WriteHeader(status int)      { k.status = status }
func (k *keptAnswer) Write(b []byte) (int, error) { return k.body.Write(b) }

// admitGit authenticates a request of git and checks its permission. env is the environment of the hook.
func (c *call) admitGit(service, name string, q *Request) (r *repo, env []string, _ *answer) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	refuse := func(status int, text string) (*repo, []string, *answer) {
		a := plain(status, text)
		if status == http.StatusUnauthorized {
			a.header = http.Header{"Www-Authenticate": {`Basic realm="GitHub"`}}
		}
		return nil, nil, &a
	}
	user, password, ok := c.r.BasicAuth()
	if c.who = s.actor(password); !ok || c.who == nil || c.who.app && user != "x-access-token" {
		return refuse(http.StatusUnauthorized, "Invalid username or token. Password authentication is not supported for Git operations.")
	}
	q.Who = c.who.user.login
	account, name, _ := strings.Cut(strings.Trim(name, "/"), "/")
	if r = s.repo(name); r == nil || !strings.EqualFold(account, s.Account) || !s.sees(c.who, r) || !c.who.may("contents=read") {
		return refuse(http.StatusNotFound, "Repository not found.")
	}
	if service == "git-receive-pack" {
		if !c.who.may("contents=write") || !c.who.app && rank(r.role(c.who.user)) < rank("write") {
			return refuse(http.StatusForbidden, "Write access to repository not granted.")
		}
		protected := slices.Sorted(func(yield func(string) bool) {
			for branch := range r.protected {
				if !yield("refs/heads/" + branch) {
					return
				}
			}
		})
		env = append(env, "STANDIN_PROTECTED="+strings.Join(protected, " "))
		if c.who.app && !c.who.may("workflows=write") {
			env = append(env, "STANDIN_APP=1")
		}
	}
	return r, env, nil
}

const zero = "0000000000000000000000000000000000000000"

// heads reads the branches of a repository.
func (s *Server) heads(r *repo) (map[string]string, error) {
	out, err := s.run(r.dir, nil, "", "for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads")
	if err != nil {
		return nil, err
	}
	heads := map[string]string{}
	for line := range strings.Lines(out) {
		if sha, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			heads[name] = sha
		}
	}
	return heads, nil
}

// descends reports whether ancestor is in the history of a commit.
func (s *Server) descends(r *repo, commit, ancestor string) bool {
	_, err := s.fact(r, "merge-base", "--is-ancestor", ancestor, commit)
	return err == nil
}

// identity returns a user as author and committer.
func (s *Server) identity(u *user) []string {
	email := fmt.Sprintf("%d+%s@users.noreply.github.com", u.id, u.login)
	date := fmt.Sprintf("%d +0000", s.Now().Unix())
	return []string{"GIT_AUTHOR_NAME=" + u.login, "GIT_AUTHOR_EMAIL=" + email, "GIT_AUTHOR_DATE=" + date,
		"GIT_COMMITTER_NAME=" + u.login, "GIT_COMMITTER_EMAIL=" + email, "GIT_COMMITTER_DATE=" + date}
}

// write makes a commit with some changed files on a parent. The parent may be empty. A nil content deletes a file.
func (s *Server) write(r *repo, u *user, parent, message string, files map[string][]byte) (sha string, err error) {
	index, err := os.CreateTemp(s.hooks, "index")
	if err != nil {
		return "", err
	}
	index.Close()
	os.Remove(index.Name()) // git must create it itself
	defer os.Remove(index.Name())
	env := append(s.identity(u), "GIT_INDEX_FILE="+index.Name())
	if parent != "" {
		if _, err := s.run(r.dir, env, "", "read-tree", parent); err != nil {
			return "", err
		}
	}
	var list strings.Builder
	for path, content := range files {
		if content == nil {
			fmt.Fprintf(&list, "0 %s\t%s\n", zero, path)
			continue
		}
		blob, err := s.run(r.dir, nil, string(content), "hash-object", "-w", "--stdin")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&list, "100644 %s\t%s\n", blob, path)
	}
	if _, err := s.run(r.dir, env, list.String(), "update-index", "--index-info"); err != nil {
		return "", err
	}
	tree, err := s.run(r.dir, env, "", "write-tree")
	if err != nil {
		return "", err
	}
	args := []string{"commit-tree", tree, "-m", message}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	return s.run(r.dir, env, "", args...)
}

// point moves a branch from its known tip. An empty sha deletes the branch. s.mu is held.
func (s *Server) point(r *repo, branch, sha string, by *user) error {
	args := []string{"update-ref", "refs/heads/" + branch, sha, cmp.Or(r.heads[branch], zero)}
	if sha == "" {
		args = []string{"update-ref", "-d", "refs/heads/" + branch, r.heads[branch]}
	}
	if _, err := s.run(r.dir, nil, "", args...); err != nil {
		return &refusal{status: http.StatusConflict, message: "Reference was modified: " + err.Error()}
	}
	return s.follow(r, by)
}
