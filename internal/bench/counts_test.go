package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd"
)

// TestStormRunsOnePack checks the cause of the times of clone storms, as a count that no
// noise reaches: however many ask for the same at once, git packs it once, and not again.
func TestStormRunsOnePack(t *testing.T) {
	r := testRepository(t, 0)
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	script := fmt.Sprintf("#!/bin/sh\necho \"$@\" >>'%s'\nexec '%s' \"$@\"\n", log, real)
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	packs := func() (n int, all string) {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "pack-objects") || strings.Contains(line, "upload-pack") &&
				!strings.Contains(line, "--advertise-refs") {
				n++
			}
		}
		return n, string(text)
	}

	s := &gitd.Server{Root: filepath.Dir(r.dir), Anonymous: true}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	storm := func() {
		t.Helper()
		err := together(t.Context(), stormOf, func(ctx context.Context, _ int) error {
			c := newGitClient(server.URL+"/test.git", "")
			defer c.close()
			got, err := c.clone(ctx, clone{ref: "HEAD"})
			if err == nil && got.tip != r.tip {
				err = fmt.Errorf("it is at %s, want %s", got.tip, r.tip)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	storm()
	n, all := packs()
	if n != 1 {
		t.Errorf("%d runs of git made packs for %d clones, want 1:\n%s", n, stormOf, all)
	}
	storm()
	if again, all := packs(); again != n {
		t.Errorf("%d more runs of git made packs for %d clones of the same, want none:\n%s", again-n, stormOf, all)
	}
}
