package hub

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// maxPack bounds a push.
const maxPack = 256 << 20

func (h *Hub) dir(owner, name string) string {
	return filepath.Join(h.Root, filepath.FromSlash(owner), name+".git")
}

// env is the environment of all git processes, without this machine's configuration.
func (h *Hub) env(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.Root, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_TERMINAL_PROMPT=0"}, more...)
}

// run runs git in a folder and returns its output without the last end of line.
func (h *Hub) run(dir string, env []string, in string, args ...string) (string, error) {
	cmd := exec.CommandContext(h.ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = h.env(env...)
	cmd.Stdin = strings.NewReader(in)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
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

// git serves git's protocol by git itself, to users with a token as the password.
func (h *Hub) git(w http.ResponseWriter, r *http.Request, service, name string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPack))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusRequestEntityTooLarge)
		return
	}
	repo, by, status := h.admit(r, service, strings.Trim(name, "/"))
	if status != 0 {
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="stand-in"`)
		}
		http.Error(w, http.StatusText(status), status)
		return
	}
	req := r.Clone(r.Context())
	req.Body, req.ContentLength, req.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	_, tail, _ := strings.Cut(r.URL.Path, repo.Name+".git/")
	req.URL.Path = "/" + repo.Owner + "/" + repo.Name + ".git/" + tail
	req.Header.Del("Authorization")
	path, err := exec.LookPath("git")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	backend := &cgi.Handler{Path: path, Args: []string{"http-backend"}, Dir: h.Root, Stderr: io.Discard, Env: h.env(
		"GIT_PROJECT_ROOT="+h.Root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER="+by.Login, "GIT_CONFIG_COUNT=2",
		"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "GIT_CONFIG_KEY_1=uploadpack.allowAnySHA1InWant", "GIT_CONFIG_VALUE_1=true")}
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

// branches reads the branches of a repository.
func (r *Repo) branches() (map[string]string, error) {
	out, err := r.h.run(r.Dir, nil, "", "for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads")
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

// follow finds the changes of branches since it was last called, and reports them. The caller holds the lock.
func (r *Repo) follow(by *User) error {
	now, err := r.branches()
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
	date := fmt.Sprintf("%d +0000", h.Now().Unix())
	email := u.Login + "@example.org"
	return []string{"GIT_AUTHOR_NAME=" + u.Login, "GIT_AUTHOR_EMAIL=" + email, "GIT_AUTHOR_DATE=" + date,
		"GIT_COMMITTER_NAME=" + u.Login, "GIT_COMMITTER_EMAIL=" + email, "GIT_COMMITTER_DATE=" + date}
}

// write makes a commit with some files on a parent, which may be empty. The caller holds the lock.
func (r *Repo) write(by *User, parent, message string, files map[string]string) (string, error) {
	index := filepath.Join(r.Dir, "stand-in.index")
	defer os.Remove(index)
	env := append(r.h.identity(by), "GIT_INDEX_FILE="+index)
	if parent != "" {
		if _, err := r.h.run(r.Dir, env, "", "read-tree", parent); err != nil {
			return "", err
		}
	}
	var list strings.Builder
	for _, path := range keys(files) {
		blob, err := r.h.run(r.Dir, nil, files[path], "hash-object", "-w", "--stdin")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&list, "100644 %s\t%s\n", blob, path)
	}
	if _, err := r.h.run(r.Dir, env, list.String(), "update-index", "--index-info"); err != nil {
		return "", err
	}
	tree, err := r.h.run(r.Dir, env, "", "write-tree")
	if err != nil {
		return "", err
	}
	args := []string{"commit-tree", tree, "-m", message}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	return r.h.run(r.Dir, env, "", args...)
}
