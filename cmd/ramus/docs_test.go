package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	docLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	docHeading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	docCode    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inAnchor   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	docPicture = regexp.MustCompile("(?m)^<!-- picture ([a-z]+) -->\n```console\n\\$ (.+)\n")
	docTime    = regexp.MustCompile(`[0-9,]+ ms<!-- ms ([a-z]+) -->`)
)

// anchors returns the anchors of the headings of a page.
func anchors(t *testing.T, page string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Error(err)
		return nil
	}
	for _, h := range docHeading.FindAllStringSubmatch(docCode.ReplaceAllString(string(text), ""), -1) {
		list = append(list, strings.ReplaceAll(inAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
	}
	return list
}

// TestDocLinks follows the links of the documentation to files and headings of the repository.
func TestDocLinks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../../README.md", "../../CHANGELOG.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range docLink.FindAllStringSubmatch(docCode.ReplaceAllString(string(text), ""), -1) {
			file, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(file, ":") {
				continue
			}
			to := page
			if file != "" {
				to = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s leads nowhere", page, link[1])
			} else if anchor != "" && strings.HasSuffix(to, ".md") && !slices.Contains(anchors(t, to), anchor) {
				t.Errorf("%s: %s has no such heading", page, link[1])
			}
		}
	}
}

// TestPictures compares the pictures of docs/going-back.md with the script that makes them. Each has a command of ramus or
// a push, and its time is in the table of costs.
func TestPictures(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/going-back.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../scripts/demo-time.sh")
	if err != nil {
		t.Fatal(err)
	}
	var made, shown, timed []string
	for _, m := range regexp.MustCompile(`(?m)^ *picture=([a-z]+)( .*)?$`).FindAllStringSubmatch(string(script), -1) {
		made = append(made, m[1])
	}
	for _, m := range docPicture.FindAllStringSubmatch(string(page), -1) {
		shown = append(shown, m[1])
		words := strings.Fields(m[2])
		known := words[0] == "git" || words[0] == "ramus" && len(words) > 1 &&
			slices.ContainsFunc(commands(), func(c command) bool { return c.name == words[1] })
		if !known {
			t.Errorf("picture %s is of %q", m[1], m[2])
		}
	}
	for _, m := range docTime.FindAllStringSubmatch(string(page), -1) {
		timed = append(timed, m[1])
	}
	slices.Sort(made)
	slices.Sort(shown)
	if !slices.Equal(made, shown) {
		t.Errorf("the script makes %q, the page shows %q", made, shown)
	}
	for _, name := range timed {
		if !slices.Contains(made, name) {
			t.Errorf("the time of %s is not measured", name)
		}
	}
}
