package hub

import (
	"net/http"
	"path/filepath"
	"strings"

	"github.com/ramus-dev/ramus/internal/standin/githost"
)

func (h *Hub) dir(owner, name string) string {
	return filepath.Join(h.Root, filepath.FromSlash(owner), name+".git")
}

// host runs git for the repositories.
func (h *Hub) host() githost.Host { return githost.Host{Root: h.Root, Home: h.Root, Context: h.ctx} }

// run runs git in the folder of a repository, see [githost.Host.Run].
func (r *Repo) run(env []string, args ...string) (string, error) {
	return r.h.host().Run(r.Dir, env, "", args...)
}

// git serves git's protocol by git itself, to users with a token as the password.
func (h *Hub) git(w http.ResponseWriter, r *http.Request, service, name string) {
	repo, by, status := h.admit(r, service, strings.Trim(name, "/"))
	if status != 0 {
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="stand-in"`)
		}
		http.Error(w, http.StatusText(status), status)
		return
	}
	backend, req, err := h.host().Handler(w, r, githost.Backend{Repo: repo.FullName(), User: by.Login})
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	if service == "git-upload-pack" {
		backend.ServeHTTP(w, req)
		return
	}
	h.mu.Lock() // so that the push is seen before it is answered
	defer h.mu.Unlock()
	backend.ServeHTTP(w, req)
	if err := repo.follow(by); err != nil {
		h.complain("git: %v", err)
	}
}

// admit returns the repository and user of a request of git, or the status of a refusal.
func (h *Hub) admit(r *http.Request, service, name string) (*Repo, *User, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, password, _ := r.BasicAuth()
	by := h.byToken(password)
	if by == nil {
		return nil, nil, http.StatusUnauthorized
	}
	for _, repo := range h.repos {
		if strings.EqualFold(repo.FullName(), name) && by.Level >= Reader {
			if service == "git-receive-pack" && by.Level < Writer {
				return nil, nil, http.StatusForbidden
			}
			return repo, by, 0
		}
	}
	return nil, nil, http.StatusNotFound
}

// follow finds the changes of branches since it was last called, and reports them. The caller holds the lock.
func (r *Repo) follow(by *User) error {
	now, err := r.h.host().Heads(r.Dir)
	if err != nil {
		return err
	}
	before := r.heads
	r.heads = now
	for name, sha := range now {
		if before[name] != sha {
			r.h.emit(Event{Kind: "push", Repo: r, User: by, Branch: name, Before: before[name], After: sha})
			for _, p := range r.Pulls {
				if p.State == "open" && p.Head == name {
					p.HeadSHA = sha
					r.Changed(p, by, "update")
				}
			}
		}
	}
	for name, sha := range before {
		if now[name] == "" {
			r.h.emit(Event{Kind: "push", Repo: r, User: by, Branch: name, Before: sha})
		}
	}
	return nil
}

// identity returns a user as author and committer.
func (h *Hub) identity(u *User) []string {
	return githost.Identity(u.Login, u.Login+"@example.org", h.Now())
}

// write makes a commit with some files on a parent, which may be empty. The caller holds the lock.
func (r *Repo) write(by *User, parent, message string, files map[string]string) (string, error) {
	contents := make(map[string][]byte, len(files))
	for path, text := range files {
		contents[path] = []byte(text)
	}
	return r.h.host().Commit(r.Dir, r.h.identity(by), parent, message, contents)
}
