package gateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/privacy"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// openPrivate returns rooms in which work can be private.
func openPrivate(t *testing.T) *rooms {
	t.Helper()
	return open(t, false, func(s *gateway.Server) {
		s.Privacy = &privacy.Store{Git: s.Git, Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"}}
		if err := s.Privacy.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Git.Veil = s.Privacy.Veil
	})
}

// advert returns the refs that a token sees.
func (r *rooms) advert(t *testing.T, repo, token string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", r.web.URL+"/"+repo+".git/info/refs?service=git-upload-pack", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("git", token)
	resp, err := r.web.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode, err)
	}
	return string(body)
}

// TestPrivateWorkspace has everybody look for a private workspace, by REST and by git.
func TestPrivateWorkspace(t *testing.T) {
	r := openPrivate(t)
	r.repo(t, "app")
	of := func(subject string, scopes ...string) string {
		return r.token(t, gitd.Grant{Subject: subject, Repo: "*", Scopes: scopes, Write: []string{"refs/heads/*"},
			Expires: time.Now().Add(time.Hour)})
	}
	owner, other, admin := of("github:1", "write"), of("github:2", "write"), of("boss", "admin")
	status, body := r.ask(t, false, owner, "POST", "/api/workspaces", `{"repository":"app","name":"quiet","private":true,"key":"k"}`)
	var s workspace.Workspace
	if err := json.Unmarshal([]byte(body), &s); err != nil || status != 201 || !s.Private || s.Owner.ID != "github:1" {
		t.Fatal(status, body, err)
	}
	paths := []string{"/api/workspaces/run-quiet", "/api/workspaces/run-quiet/events", "/api/callers/run:quiet",
		"/api/callers/run:quiet/log", "/api/callers/run:quiet/terminals", "/api/runs/" + url.PathEscape(s.Last),
		"/api/runs/" + url.PathEscape(s.Last) + "/events?follow=0",
		"/api/repos/app/log?rev=ramus/run-quiet", "/api/repos/app/diff?to=ramus/run-quiet"}
	lists := []string{"/api/workspaces", "/api/callers", "/api/runs"}
	look := func(name, token string, sees bool) {
		t.Helper()
		for _, path := range paths {
			status, body := r.ask(t, false, token, "GET", path, "")
			if !sees && (status != 404 || strings.Contains(body, "private")) || sees && (status == 404 || status >= 500) {
				t.Errorf("%s: %s: %d %s", name, path, status, body)
			}
		}
		for _, path := range lists {
			if status, body := r.ask(t, false, token, "GET", path, ""); status != 200 || strings.Contains(body, "quiet") != sees {
				t.Errorf("%s: %s: %d %s", name, path, status, body)
			}
		}
		if seen := strings.Contains(r.advert(t, "app", token), "run-quiet"); seen != sees {
			t.Errorf("%s: git shows the branch: %t", name, seen)
		}
	}
	look("owner", owner, true)
	look("admin", admin, true)
	look("other", other, false)
	for path, body := range map[string]string{"/api/callers/run:quiet/exec": `{"repo":"app","command":{"shell":"true"}}`,
		"/api/workspaces/run-quiet/stop": "", "/api/callers/run:quiet/merge": "{}",
		"/api/runs": `{"repo":"app","base":"ramus/run-quiet","command":{"shell":"true"}}`} {
		if status, answer := r.ask(t, false, other, "POST", path, body); status != 404 {
			t.Errorf("other: POST %s: %d %s", path, status, answer)
		}
	}
	if status, body := r.ask(t, false, other, "PATCH", "/api/workspaces/run-quiet", `{"private":false}`); status != 404 {
		t.Errorf("somebody else shows it: %d %s", status, body)
	}

	// It stays private in the next server, and until its owner shows it.
	again := &privacy.Store{Git: r.Git, Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"}}
	if err := again.Open(t.Context()); err != nil || !again.IsPrivate(s.Caller) {
		t.Errorf("it is not private after a restart: %v", err)
	}
	if status, body := r.ask(t, false, owner, "PATCH", "/api/workspaces/run-quiet", `{"private":false}`); status != 200 {
		t.Errorf("the owner cannot show it: %d %s", status, body)
	}
	look("other, later", other, true)
}
