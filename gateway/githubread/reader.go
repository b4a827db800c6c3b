package githubread

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
)

// Bounds of a request.
const (
	attemptTime = time.Minute
	maxAnswer   = 32 << 20 // bytes
)

// Reader reads GitHub for containers. Its fields are set before its first use. Methods are safe for concurrent use.
type Reader struct {
	// Web is the URL of the site. The default is https://github.com.
	Web *url.URL
	// API is the URL of the REST API, which ends in a slash. The default is that of github.com.
	API string
	// Tokens returns the token for a repository.
	Tokens github.Tokens
	// Upstream returns the repository at GitHub of a local repository. It returns false if there is none.
	Upstream func(repo string) (forge.Name, bool)
	// HTTP is the client for the API. If it is nil, it is the default one. It must not follow redirects.
	HTTP *http.Client
	Log  *slog.Logger
}

const githubHost = "github.com"

// host returns the host name by which gh knows the site.
func (r *Reader) host() string {
	if r.Web == nil || strings.EqualFold(r.Web.Host, githubHost) {
		return githubHost
	}
	return r.Web.Host
}

// Prefix returns the host and the path of gh's requests, such as "api.github.com/".
func (r *Reader) Prefix() string {
	if host := r.host(); host != githubHost {
		return host + "/api/"
	}
	return "api." + githubHost + "/"
}

// Env returns the environment of commands for a repository, "K=V". It is empty if the repository is not at GitHub. The token
// in it is none: gh does not start without one.
func (r *Reader) Env(repo string) []string {
	name, ok := r.Upstream(repo)
	if !ok {
		return nil
	}
	env := []string{"GH_NO_UPDATE_NOTIFIER=1", "GH_PROMPT_DISABLED=1"}
	if host := r.host(); host != githubHost {
		return append(env, "GH_HOST="+host, "GH_ENTERPRISE_TOKEN=none", "GH_REPO="+host+"/"+name.String())
	}
	return append(env, "GH_TOKEN=none", "GH_REPO="+name.String())
}

// Visitor is the container that sends a request.
type Visitor interface {
	Repo() string        // the name of the caller's repository
	Tell(e record.Event) // journals an event in the run that works now
}

// Handler answers the requests of one container.
func (r *Reader) Handler(v Visitor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, ok := r.Upstream(v.Repo())
		if !ok {
			refuse(w, http.StatusNotFound, "this repository is not at GitHub")
			return
		}
		err := r.answer(w, req, name)
		e := record.Event{Type: record.EventEgress, Message: r.host(), Reason: "allowed"}
		var no *refusal
		if errors.As(err, &no) {
			e.Reason = record.EgressRefused
			refuse(w, no.status, no.message)
		} else if err != nil {
			r.Log.Warn("cannot read GitHub for a container", "repo", name, "err", err)
			refuse(w, http.StatusBadGateway, "GitHub did not answer; try again later")
		}
		v.Tell(e)
	})
}

// refusal is an answer that refuses a request.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return r.message }

// refuse writes an error in GitHub's format.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": "ramus: " + message})
}

// answer forwards a request that is allowed, and its answer. It has written nothing if it returns an error.
func (r *Reader) answer(w http.ResponseWriter, req *http.Request, name forge.Name) error {
	out, err := r.request(req, name)
	if err != nil {
		return err
	}
	token, err := r.Tokens.Token(req.Context(), name, github.AccessInspect)
	if err != nil {
		return err
	}
	out.Header.Set("Authorization", "Bearer "+token)

	resp, err := r.client().Do(out)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		if f, ok := r.Tokens.(interface{ Forget(string) }); ok {
			f.Forget(token)
		}
		return &refusal{http.StatusBadGateway, "GitHub did not accept the token of ramus; tell the operator of ramus"}
	case resp.StatusCode >= 300 && resp.StatusCode < 400 && resp.StatusCode != http.StatusNotModified:
		return &refusal{http.StatusForbidden,
			"GitHub answers with a redirect to another address, which ramus does not follow"}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(body) > maxAnswer {
		return &refusal{http.StatusBadGateway, fmt.Sprintf("the answer of GitHub is larger than %d MiB", maxAnswer>>20)}
	}
	for _, key := range []string{"Content-Type", "Etag", "Last-Modified", "Link", "Retry-After", "X-Github-Media-Type",
		"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"} {
		if value := resp.Header.Get(key); value != "" {
			w.Header().Set(key, value)
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body) // the container may be gone
	return nil
}

func (r *Reader) client() *http.Client {
	if r.HTTP != nil {
		return r.HTTP
	}
	return &http.Client{Timeout: attemptTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// request returns the request to GitHub for a request of a container. The error is a refusal if that is not allowed.
func (r *Reader) request(req *http.Request, name forge.Name) (*http.Request, error) {
	path, graphQL := r.path(req.URL.Path)
	api := cmp.Or(r.API, github.DefaultURL)
	var body []byte
	switch {
	case graphQL:
		if req.Method != http.MethodPost {
			return nil, &refusal{http.StatusMethodNotAllowed, "GraphQL needs POST"}
		}
		var err error
		if body, err = io.ReadAll(io.LimitReader(req.Body, maxQuery+1)); err != nil {
			return nil, &refusal{http.StatusBadRequest, "the request ended early"}
		}
		if len(body) > maxQuery {
			return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("a query may have %d bytes", maxQuery)}
		}
		if err := allowQuery(body, name); err != nil {
			return nil, &refusal{http.StatusForbidden, "containers may only read " + name.String() + ": " + err.Error()}
		}
		api = strings.TrimSuffix(strings.TrimSuffix(api, "/"), "/v3") + "/graphql"
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		return nil, &refusal{http.StatusForbidden,
			fmt.Sprintf("containers may only read %s, and not %s; ramus itself pushes branches and opens pull requests",
				name, req.Method)}
	case !allowedPath(path, name):
		return nil, &refusal{http.StatusForbidden,
			fmt.Sprintf("containers may not read %.200q; they may read the pull requests, issues, checks and releases of %s, and files by git",
				path, name)}
	default:
		api = strings.TrimSuffix(api, "/") + (&url.URL{Path: path, RawQuery: req.URL.RawQuery}).String()
	}
	out, err := http.NewRequestWithContext(req.Context(), req.Method, api, bytes.NewReader(body))
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "the address cannot be read"}
	}
	for _, key := range []string{"Accept", "Content-Type", "Graphql-Features", "If-None-Match"} {
		if value := req.Header.Get(key); value != "" {
			out.Header.Set(key, value)
		}
	}
	out.Header.Set("User-Agent", "ramus")
	return out, nil
}

// path returns the path of a request below the API, and whether it is that of GraphQL.
func (r *Reader) path(path string) (_ string, graphQL bool) {
	if r.host() != githubHost {
		if path == "/api/graphql" {
			return "", true
		}
		rest, ok := strings.CutPrefix(path, "/api/v3")
		if !ok {
			return "", false
		}
		return rest, false
	}
	return path, path == "/graphql"
}
