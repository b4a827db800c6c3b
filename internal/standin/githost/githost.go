package githost

import (
	"bytes"
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
	"time"
)

// maxPack bounds a push, in bytes.
const maxPack = 256 << 20

// Zero is the id of no object.
const Zero = "0000000000000000000000000000000000000000"

// Host runs git for a stand-in. All methods are safe for concurrent use.
type Host struct {
	Root    string          // the folder of the repositories
	Home    string          // the home of git's processes, and the folder of temporary files
	Context context.Context // its end kills git's processes
}

// env returns the environment of git's processes, without this machine's configuration.
func (h Host) env(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.Home, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0"}, more...)
}

// Run runs git in a folder and returns its output without the last end of line, also after an error.
func (h Host) Run(dir string, env []string, in string, args ...string) (string, error) {
	cmd := exec.CommandContext(h.Context, "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = h.env(env...)
	cmd.Stdin = strings.NewReader(in)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSuffix(out.String(), "\n"), err
}

// Heads returns the commits of the branches of a repository, by the names of the branches.
func (h Host) Heads(dir string) (map[string]string, error) {
	out, err := h.Run(dir, nil, "", "for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads")
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

// Identity returns the environment that makes a person the author and committer of a commit at a time.
func Identity(name, email string, at time.Time) []string {
	date := fmt.Sprintf("%d +0000", at.Unix())
	return []string{"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + email, "GIT_AUTHOR_DATE=" + date,
		"GIT_COMMITTER_NAME=" + name, "GIT_COMMITTER_EMAIL=" + email, "GIT_COMMITTER_DATE=" + date}
}

// Commit makes a commit with changed files on a parent, which may be empty, and returns its id. A nil content deletes
// a file. env names the author and the committer, see [Identity].
func (h Host) Commit(dir string, env []string, parent, message string, files map[string][]byte) (string, error) {
	folder, err := os.MkdirTemp(h.Home, "index")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	env = append(slices.Clone(env), "GIT_INDEX_FILE="+filepath.Join(folder, "index"))
	if parent != "" {
		if _, err := h.Run(dir, env, "", "read-tree", parent); err != nil {
			return "", err
		}
	}

	var list strings.Builder
	for path, content := range files {
		if content == nil {
			fmt.Fprintf(&list, "0 %s\t%s\n", Zero, path)
			continue
		}
		blob, err := h.Run(dir, nil, string(content), "hash-object", "-w", "--stdin")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&list, "100644 %s\t%s\n", blob, path)
	}
	if _, err := h.Run(dir, env, list.String(), "update-index", "--index-info"); err != nil {
		return "", err
	}

	tree, err := h.Run(dir, env, "", "write-tree")
	if err != nil {
		return "", err
	}
	args := []string{"commit-tree", tree, "-m", message}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	return h.Run(dir, env, "", args...)
}

// Service returns the service of git's protocol and the repository that a request is for. It reports whether the
// request belongs to the protocol.
func Service(r *http.Request) (service, repo string, ok bool) {
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

// Backend answers a request of git's protocol.
type Backend struct {
	Repo   string   // the path of the repository below the root, "acme/app"
	User   string   // for git and its hooks
	Config []string // the configuration, name and value in turn
	Env    []string // more of the environment of git and its hooks
}

// Handler reads the body of a request, because CGI needs its length, and returns the handler and the request that it
// must serve.
func (h Host) Handler(w http.ResponseWriter, r *http.Request, b Backend) (http.Handler, *http.Request, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPack))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the body: %w", err)
	}
	path, err := exec.LookPath("git")
	if err != nil {
		return nil, nil, err
	}
	req := r.Clone(r.Context())
	req.Body, req.ContentLength, req.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	operation := "info/refs"
	if service, _, _ := Service(r); strings.HasSuffix(r.URL.Path, "/"+service) {
		operation = service
	}
	req.URL.Path = "/" + b.Repo + ".git/" + operation
	req.Header.Del("Authorization")

	config := append([]string{"safe.directory", "*", "uploadpack.allowAnySHA1InWant", "true"}, b.Config...)
	env := []string{"GIT_PROJECT_ROOT=" + h.Root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=" + b.User,
		fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(config)/2)}
	for i := 0; i < len(config); i += 2 {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i/2, config[i]),
			fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i/2, config[i+1]))
	}
	env = append(env, b.Env...)
	return &cgi.Handler{Path: path, Args: []string{"http-backend"}, Dir: h.Root, Stderr: io.Discard,
		Env: h.env(env...)}, req, nil
}

// File returns a file of a commit, byte for byte. It does not accept the name of a branch.
func (h Host) File(dir, commit, path string) ([]byte, error) {
	if strings.Trim(commit, "0123456789abcdef") != "" || len(commit) != len(Zero) {
		return nil, fmt.Errorf("%q is no commit", commit)
	}
	cmd := exec.CommandContext(h.Context, "git", "-C", dir, "cat-file", "blob", commit+":"+path)
	cmd.Env = h.env()
	return cmd.Output()
}
