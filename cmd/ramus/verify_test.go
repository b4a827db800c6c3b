package main

import (
	"os"
	"strings"
	"testing"
)

// TestVerifyPage checks that docs/verify.md has the commands that the story of verify runs.
func TestVerifyPage(t *testing.T) {
	t.Parallel()
	story, err := os.ReadFile("testdata/script/verify.txtar")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/verify.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fetch.sh", "check.sh"} {
		_, text, _ := strings.Cut(string(story), "-- "+name+" --\n")
		text, _, _ = strings.Cut(text, "-- ")
		if text == "" || !strings.Contains(string(page), "```sh\n"+text+"```\n") {
			t.Errorf("docs/verify.md does not have %s of the story", name)
		}
	}
}
