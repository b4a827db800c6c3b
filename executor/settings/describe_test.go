package settings

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
	"github.com/ramus-dev/ramus/tasks/devcontainer"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// TestDescribe reads the image that files of a base describe.
func TestDescribe(t *testing.T) {
	git := repotest.NewServer(t)
	build := server
	build.Allow.Build = true
	ada := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	type files map[string]string
	for i, c := range []struct {
		name     string
		bounds   Bounds
		files    files
		path     string // of the file that counts; "" if none does
		image    string
		warnings []string // parts of them
	}{
		{"nothing", server, files{"a": ""}, "", "ramus/task:latest", nil},
		{"a Dockerfile", build, files{environment.Path: "dockerfile: D", "D": ""}, "D", "ramus/task:latest", nil},
		{"a devcontainer.json", server, files{devcontainer.Path: `{"image": "ramus/x"}`}, devcontainer.Path, "ramus/x", nil},
		{"one that builds", build, files{devcontainer.Path: `{"build": {"dockerfile": "D"}}`}, devcontainer.Path, "ramus/task:latest", nil},
		{"devcontainer.json and an image", server, files{environment.Path: "image: ramus/y",
			devcontainer.Path: `{"image": "ramus/x"}`}, "", "ramus/y", nil},
		{"a named one", build, files{environment.Path: "devcontainer: d/dev.json", "d/dev.json": `{"image": "ramus/x"}`}, "d/dev.json", "ramus/x", nil},
		{"a named one that is missing", build, files{environment.Path: "devcontainer: d.json"}, "", "ramus/task:latest", []string{"d.json:1:1: this must be a file"}},
		{"a named one below a file", build, files{environment.Path: "devcontainer: a/d.json", "a": ""}, "", "ramus/task:latest",
			[]string{"a/d.json:1:1: this must be a file"}},
		{"a file for the folder", server, files{".devcontainer": ""}, "", "ramus/task:latest", nil},
		{"a large one", server, files{devcontainer.Path: strings.Repeat(" ", devcontainer.MaxBytes+1)}, "", "ramus/task:latest", []string{"this must be a file of at most"}},
		{"a broken one", server, files{devcontainer.Path: `{`}, "", "ramus/task:latest", []string{devcontainer.Path}},
		{"an image that is not allowed", server, files{devcontainer.Path: `{"image": "evil"}`}, "", "ramus/task:latest", []string{"evil is not used"}},
		{"fields without effect", server, files{devcontainer.Path: `{"image": "ramus/x", "remoteUser": "node", "privileged": true}`},
			devcontainer.Path, "ramus/x", []string{"refused", "no effect"}},
		{"a refused field", server, files{devcontainer.Path: `{"image": "ramus/x", "privileged": true}`}, devcontainer.Path, "ramus/x", []string{"refused"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo, err := git.Create(t.Context(), fmt.Sprint("r", i))
			if err != nil {
				t.Fatal(err)
			}
			var put []gitd.File
			for path, text := range c.files {
				put = append(put, gitd.File{Path: path, Content: []byte(text)})
			}
			hash, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Put: put, Author: ada, Committer: ada, When: time.Unix(1e9, 0), Message: "m"})
			if err == nil {
				err = repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: hash})
			}
			if err != nil {
				t.Fatal(err)
			}
			r := &Reader{}
			r.SetBounds(c.bounds)
			s, err := r.Read(t.Context(), repo, "main")
			if err != nil {
				t.Fatal(err)
			}
			path := ""
			if s.Container != nil {
				path = s.Container.File.Path
				if s.Container.Dockerfile != strings.HasPrefix(c.name, "a Dockerfile") {
					t.Errorf("it is about a Dockerfile alone: %t", s.Container.Dockerfile)
				}
			}
			if path != c.path || s.Image != c.image || len(s.Warnings) != len(c.warnings) {
				t.Fatalf("image %s of %q, warnings %q; want %s of %q, %q", s.Image, path, s.Warnings, c.image, c.path, c.warnings)
			}
			for i, part := range c.warnings {
				if !strings.Contains(s.Warnings[i], part) {
					t.Errorf("warnings %q, want %q", s.Warnings, c.warnings)
				}
			}
		})
	}
}

// TestRemembered remembers a bounded number of settings, until the bounds change.
func TestRemembered(t *testing.T) {
	repo := repotest.NewRepo(t)
	r := &Reader{}
	r.SetBounds(server)
	read := func(base string, want int) {
		t.Helper()
		if _, err := r.Read(t.Context(), repo, base); err != nil || len(r.known) != want {
			t.Errorf("%d settings are remembered after %s, %v; want %d", len(r.known), base, err, want)
		}
	}
	read("a", 1)
	read("b", 2)
	read("a", 2)
	for i := len(r.known); i < most; i++ {
		r.known[place{base: fmt.Sprint(i)}] = Settings{}
	}
	read("b", most)
	read("c", 1)
	read("d", 2)
	r.SetBounds(server)
	read("d", 1)
}

// TestShownSizes shows sizes to people.
func TestShownSizes(t *testing.T) {
	for n, want := range map[int64]string{-1: "none", 0: "0 B", 1 << 30: "1 GiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %v, want %s", n, got, want)
		}
	}
	for text, want := range map[string]string{"start: make": ".ramus/config.yaml:1:8", "setup: make": OriginDefault} {
		s := Resolve(server, "app", file(t, text))
		if i := slices.IndexFunc(s.Values, func(v Value) bool { return v.Key == "start" }); i < 0 || s.Values[i].Origin != want {
			t.Errorf("%s: start comes from %+v, want %s", text, s.Values, want)
		}
	}
}
