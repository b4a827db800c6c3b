package gitlab_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/forgetest"
	"github.com/ramus-dev/ramus/gateway/gitlab"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/standin/forgeworld"
	"github.com/ramus-dev/ramus/internal/standin/gitlabtest"
	"github.com/ramus-dev/ramus/internal/standin/hub"
)

// TestConformance runs the suite of forges.
func TestConformance(t *testing.T) {
	forgetest.Run(t, func(t *testing.T) forgetest.World {
		h := gitlabtest.New(t)
		return forgeworld.New(t, h, func(token string, rt http.RoundTripper) forge.Forge {
			return &gitlab.Client{URL: h.URL(), Token: token, HTTP: &http.Client{Transport: rt},
				Log: slog.New(slog.DiscardHandler), Now: time.Now, Sleep: forgetest.Sleep}
		}, gitlab.ParseDelivery)
	})
}

// TestCommands checks that no line of a post is a command that GitLab obeys, and that no post has a secret.
func TestCommands(t *testing.T) {
	h := gitlabtest.New(t)
	r, err := h.AddRepo("acme/tools", "app", "") // a nested group
	if err != nil {
		t.Fatal(err)
	}
	secrets, _ := redact.New(map[string]string{"KEY": "s3cr3t-value"})
	c := &gitlab.Client{URL: h.URL(), Token: h.AddUser("ramus", hub.Writer).Token, Secrets: secrets}
	if _, err := r.Push("ramus", "work", map[string]string{"a.txt": "a\n"}); err != nil {
		t.Fatal(err)
	}
	repo := forge.Name{Owner: "acme/tools", Repo: "app"}
	hostile := "Done s3cr3t-value.\n/merge\n/close now\n```\n/usr/bin/x: no\n```\r\n/merge\r\n/approve"
	p, err := c.CreatePull(t.Context(), repo,
		forge.NewPull{Head: "work", Base: "main", Title: "s3cr3t-value", Body: hostile})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.EditPull(t.Context(), repo, p.Number, "", hostile); err != nil {
		t.Fatal(err)
	}
	said, err := c.Say(t.Context(), repo, p.Number, hostile, "one")
	if err != nil {
		t.Fatal(err)
	}
	p, err = c.Pull(t.Context(), repo, p.Number)
	if err != nil || !p.Open || p.Merged {
		t.Errorf("GitLab obeyed: %+v, %v", p, err)
	}
	for _, text := range []string{p.Title, p.Body, said.Body} {
		if strings.Contains(text, "s3cr3t-value") {
			t.Errorf("a secret is in %q", text)
		}
	}
	if !strings.Contains(said.Body, "\n\\/merge\n\\/close now\n") || !strings.Contains(said.Body, "\n/usr/bin/x: no\n") {
		t.Errorf("%q", said.Body)
	}
}
