package executor

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/egress"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// grant is what the door lets the caller's container do: read the base and its
// own branch, write its own branch, forward only. While a commit script runs that pushes
// to a ref that the host then merges, it may write that ref too. The grant never leaves the
// host: the connection stands for it.
func (t *target) grant() gitd.Grant {
	own := "refs/heads/" + t.caller.Branch()
	write := []string{own}
	t.mu.Lock()
	if t.staging != "" {
		write = append(write, t.staging)
	}
	t.mu.Unlock()
	return gitd.Grant{
		Subject: t.caller.String(),
		Repo:    t.repo.Name(),
		Read:    []string{"refs/heads/" + t.base, own, record.ConflictRefs(t.caller) + "/*"},
		Write:   write,
		Scopes:  []string{gitd.ScopeWrite},
		Expires: t.x.Now().AddDate(1, 0, 0), // not a bound: the grant ends with the connection
	}
}

// Visitor is the container that asks at a door, known by its connection.
type Visitor struct {
	Caller record.Caller
	t      *target
}

// Run is the caller's run that works now; its ID is empty between runs.
func (v Visitor) Run() record.Run {
	if w := v.t.atWork(); w != nil {
		return w.l.snapshot()
	}
	return record.Run{}
}

// Tell journals an event in the run that works now; between runs it is dropped.
func (v Visitor) Tell(e record.Event) { v.t.tell(e) }

// door answers what the container asks at 127.0.0.1:7070: its repository, the
// egress proxy, and what other rooms hang behind it. The caller is known by
// the connection, so nothing in a request is believed about who asks.
func (t *target) door() http.Handler {
	git := t.x.Git.DoorHandler(t.grant, t.heardLeaks)
	out := &egress.Proxy{Allow: t.x.Egress, Private: t.x.PrivateEgress, Tell: t.tell, Run: t.runAtWork}
	more := make(map[string]http.Handler, len(t.x.Door))
	for prefix, handler := range t.x.Door {
		more[prefix] = handler(Visitor{Caller: t.caller, t: t})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect || r.URL.IsAbs() {
			out.ServeHTTP(w, r)
			return
		}
		if fromPage(r) {
			refusePage(w)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/"+t.repo.Name()+".git/") {
			git.ServeHTTP(w, r)
			return
		}
		if r.URL.Path == containers.SignPath && t.x.Git.Signer != nil {
			t.sign(w, r)
			return
		}
		if r.URL.Path == containers.FsmonitorPath {
			t.fsmonitor(w, r)
			return
		}
		for prefix, handler := range more {
			if strings.HasPrefix(r.URL.Path, prefix) {
				handler.ServeHTTP(w, r)
				return
			}
		}
		http.Error(w, fmt.Sprintf("ramus: this is the door of %s; behind it are /%s.git and, by http_proxy, the hosts that are allowed",
			t.caller, t.repo.Name()), http.StatusNotFound)
	})
}

// fromPage tells whether a page in a browser asks, by the headers that no script of a
// page can leave out. The door knows its caller by the connection, and what stands
// behind it is for the container's programs: a page that is looked at there, which may
// come from anywhere, must not push, or ask a model, in the container's name.
func fromPage(r *http.Request) bool {
	return len(r.Header["Origin"]) > 0 || len(r.Header["Sec-Fetch-Site"]) > 0
}

func refusePage(w http.ResponseWriter) {
	http.Error(w, "ramus: the door is not for pages in a browser", http.StatusForbidden)
}

// containerEnv is the environment of every command: the door is the proxy.
func (x *Executor) containerEnv() []string {
	proxy := "http://" + containers.DoorAddr
	env := []string{
		"RAMUS=1",
		"http_proxy=" + proxy, "https_proxy=" + proxy, "HTTP_PROXY=" + proxy, "HTTPS_PROXY=" + proxy,
		"no_proxy=127.0.0.1,localhost,::1", "NO_PROXY=127.0.0.1,localhost,::1",
	}
	// Without it `git status` writes the index, which the host would have to look at.
	env = append(env, "GIT_OPTIONAL_LOCKS=0")
	return slices.Concat(env, cacheEnv, x.Env)
}

// identity makes the asker the author and ramus the committer of what git
// commits, also when the command itself runs `git commit`.
func (x *Executor) identity(author gitd.Person) []string {
	author = x.author(author)
	return []string{
		"GIT_AUTHOR_NAME=" + author.Name, "GIT_AUTHOR_EMAIL=" + author.Email,
		"GIT_COMMITTER_NAME=" + x.Bot.Name, "GIT_COMMITTER_EMAIL=" + x.Bot.Email,
	}
}
