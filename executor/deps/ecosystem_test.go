package deps

import (
	"slices"
	"testing"
)

// TestLockHash checks that the hash is of an ecosystem's lock files alone, by name and content.
func TestLockHash(t *testing.T) {
	npm := ecosystems[slices.IndexFunc(ecosystems, func(e ecosystem) bool { return e.name == "npm" })]
	files := map[string]string{"package-lock.json": "1", "web/package-lock.json": "2", "go.sum": "3",
		"my-package-lock.json": "4"}
	if got, want := npm.lockfiles(files), []string{"package-lock.json", "web/package-lock.json"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	hash := npm.lockHash(files)
	files["go.sum"] = "5"
	if npm.lockHash(files) != hash {
		t.Error("another ecosystem's lock file changes the hash")
	}
	for _, change := range []map[string]string{
		{"package-lock.json": "2", "web/package-lock.json": "1"},
		{"package-lock.json": "1"},
		{"package-lock.json": "1", "api/package-lock.json": "2"},
	} {
		if npm.lockHash(change) == hash {
			t.Errorf("%v has the same hash", change)
		}
	}
	if npm.lockHash(map[string]string{"go.sum": "1"}) != "" {
		t.Error("there is a hash without lock files")
	}
}
