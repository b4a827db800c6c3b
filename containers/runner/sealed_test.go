package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOwnUsers(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n": false,
		"         0 4127719424      65536\n": true,
		"         0          0      65536\n": true,
		"":                                   false,
	} {
		if got := parseOwnUsers(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestEnvironmentWithout(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBE", "kept")
	env := baseEnvironment(Config{Without: []string{"KUBERNETES_"}})
	if slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "KUBERNETES_") }) ||
		!slices.Contains(env, "KUBE=kept") {
		t.Errorf("commands have %q", env)
	}
}

func TestAwaitMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "alive")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := make(chan struct{})
	go func() {
		awaitMissing(path, time.Millisecond)
		close(missing)
	}()
	select {
	case <-missing:
		t.Fatal("the file is there")
	case <-time.After(20 * time.Millisecond):
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	<-missing
}
