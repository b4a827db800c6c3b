package githubtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/internal/standin/githost"
)

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

// host runs git for the repositories.
func (s *Server) host() githost.Host {
	return githost.Host{Root: s.Root, Home: s.hooks, Context: s.ctx}
}

// run runs git in a folder, see [githost.Host.Run].
func (s *Server) run(dir string, env []string, args ...string) (string, error) {
	return s.host().Run(dir, env, "", args...)
}

// maxFacts bounds the number of cached results for a repository.
const maxFacts = 20_000

// fact returns git's output about commits. It is cached, because it never changes. All names in args are ids of commits
// or paths. s.mu is held.
func (s *Server) fact(r *repository, args ...string) (string, error) {
	key := strings.Join(args, "\x00")
	if f, known := r.facts[key]; known {
		return f.text, f.err
	}
	if r.facts == nil || len(r.facts) >= maxFacts {
		r.facts = map[string]fact{}
	}
	text, err := s.run(r.dir, nil, args...)
	if s.ctx.Err() == nil {
		r.facts[key] = fact{text, err}
	}
	return text, err
}

type fact struct {
	text string
	err  error
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
	backend, req, err := s.host().Handler(w, c.r,
		githost.Backend{Repo: s.Account + "/" + r.name, User: c.who.user.login, Env: env,
			Config: []string{"core.hooksPath", s.hooks, "receive.hideRefs", "refs/pull", "receive.fsckObjects", "true"}})
	if err != nil {
		return plain(http.StatusRequestEntityTooLarge, err.Error())
	}
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
	return answer{status: max(kept.status, http.StatusOK), header: kept.header, kind: kept.header.Get("Content-Type"),
		body: kept.body.Bytes()}
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
func (c *call) admitGit(service, name string, q *Request) (r *repository, env []string, _ *answer) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	refuse := func(status int, text string) (*repository, []string, *answer) {
		a := plain(status, text)
		if status == http.StatusUnauthorized {
			a.header = http.Header{"Www-Authenticate": {`Basic realm="GitHub"`}}
		}
		return nil, nil, &a
	}
	user, password, ok := c.r.BasicAuth()
	if c.who = s.actor(password); !ok || c.who == nil || c.who.app && user != "x-access-token" {
		return refuse(http.StatusUnauthorized,
			"Invalid username or token. Password authentication is not supported for Git operations.")
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

// descends reports whether ancestor is in the history of a commit.
func (s *Server) descends(r *repository, commit, ancestor string) bool {
	_, err := s.fact(r, "merge-base", "--is-ancestor", ancestor, commit)
	return err == nil
}

// identity returns a user as author and committer.
func (s *Server) identity(u *user) []string {
	return githost.Identity(u.login, fmt.Sprintf("%d+%s@users.noreply.github.com", u.id, u.login), s.Now())
}

// write makes a commit with some changed files on a parent. The parent may be empty. A nil content deletes a file.
func (s *Server) write(r *repository, u *user, parent, message string, files map[string][]byte) (string, error) {
	return s.host().Commit(r.dir, s.identity(u), parent, message, files)
}

// point moves a branch from its known tip. An empty sha deletes the branch. s.mu is held.
func (s *Server) point(r *repository, branch, sha string, by *user) error {
	args := []string{"update-ref", "refs/heads/" + branch, sha, cmp.Or(r.heads[branch], githost.Zero)}
	if sha == "" {
		args = []string{"update-ref", "-d", "refs/heads/" + branch, r.heads[branch]}
	}
	if _, err := s.run(r.dir, nil, args...); err != nil {
		return &refusal{status: http.StatusConflict, message: "Reference was modified: " + err.Error()}
	}
	return s.follow(r, by)
}
