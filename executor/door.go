package executor

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/deps"
	"github.com/ramus-dev/ramus/executor/egress"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/submodule"
	"github.com/ramus-dev/ramus/executor/terminal"
)

// Visitor is the container that sends a request to a door. The connection identifies it.
type Visitor struct {
	Caller record.Caller
	t      *step.Target
	x      *Executor
}

// Repo returns the name of the caller's repository.
func (v Visitor) Repo() string { return v.t.Repo.Name() }

// Run returns the caller's run that works now. Its ID is empty between runs.
func (v Visitor) Run() record.Run {
	if w := v.t.AtWork(); w != nil {
		return w.Run.Snapshot()
	}
	return record.Run{}
}

// Tell journals an event in the run that works now. Between runs it is dropped.
func (v Visitor) Tell(e record.Event) { v.t.Tell(e) }

// door returns the handler of the container's requests to 127.0.0.1:7070. It serves the container's repository, the
// egress proxy, and the handlers of other rooms. The connection identifies the caller, so the door trusts no word of
// a request about its sender.
func (x *Executor) door(t *step.Target) http.Handler {
	git := x.Git.DoorHandler(t.Grant, t.NoteLeaks)
	name := t.Repo.Name()
	others := submodule.Door{Git: x.Git, Repo: name, Subject: t.Caller.String(), Listed: x.Submodules[name],
		Now: x.Now}
	out := &egress.Proxy{Hosts: func() (allow, private []string) { return t.Settings().Reachable() }, Tell: t.Tell,
		Run: t.RunName}
	reverse := &egress.Reverse{Proxy: out, Header: t.Header, Value: t.SecretValue, Secrets: x.Secrets}
	more := make(map[string]http.Handler, len(x.Door))
	for prefix, handler := range x.Door {
		more[prefix] = handler(Visitor{Caller: t.Caller, t: t, x: x})
	}
	return out.Door(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t.ReadOnly() && (strings.HasSuffix(r.URL.Path, "/git-receive-pack") || r.URL.Query().Get("service") == "git-receive-pack") {
			http.Error(w, "ramus: nothing is pushed while a plan is made", http.StatusForbidden)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/"+t.Repo.Name()+".git/") {
			git.ServeHTTP(w, r)
			return
		}
		if t.ServeAddition(w, r) || others.Serve(w, r) {
			return
		}
		if r.URL.Path == containers.SignPath && x.Git.Signer != nil {
			t.ServeSign(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, terminal.PromptPath) {
			x.Shells.ServePrompt(t.Caller, w, r)
			return
		}
		if r.URL.Path == containers.RulePath {
			t.ServeRule(w, r)
			return
		}
		if r.URL.Path == containers.FsmonitorPath {
			t.ServeFsmonitor(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, egress.Prefix) {
			reverse.ServeHTTP(w, r)
			return
		}
		for prefix, handler := range more {
			at := r.URL.Path
			if !strings.HasPrefix(prefix, "/") {
				at = r.Host + at
			}
			if strings.HasPrefix(at, prefix) {
				handler.ServeHTTP(w, r)
				return
			}
		}
		http.Error(w, fmt.Sprintf("ramus: this is the door of %s; behind it are /%s.git and, by http_proxy, the hosts that are allowed",
			t.Caller, t.Repo.Name()), http.StatusNotFound)
	}))
}

// containerEnv returns the environment of every command. The door is the proxy.
func (x *Executor) containerEnv() []string {
	proxy := "http://" + containers.DoorAddr
	env := []string{
		"RAMUS=1",
		"http_proxy=" + proxy, "https_proxy=" + proxy, "HTTP_PROXY=" + proxy, "HTTPS_PROXY=" + proxy,
		"no_proxy=127.0.0.1,localhost,::1", "NO_PROXY=127.0.0.1,localhost,::1",
	}
	// Without it `git status` writes the index, which the host would have to look at.
	env = append(env, "GIT_OPTIONAL_LOCKS=0")
	// The GitHub CLI sends its requests to the door.
	env = append(env, "GH_CONFIG_DIR="+containers.DoorFolder+"/gh")
	return slices.Concat(env, deps.Env, x.options().Env)
}
