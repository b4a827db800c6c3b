package render

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gitd"
)

// TestNames checks the names of files of pictures.
func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		"": "page", "-": "page", "é/": "page", "azAZ09": "azaz09", "a`{@[/:b": "a-b",
		"Home page (mobile)": "home-page-mobile", strings.Repeat("a", 41): strings.Repeat("a", 40),
	} {
		if got := Slug(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"": "", "azAZ09-.": "azAZ09-.", "a`{@[/:_b": "a-------b", "é": "-"} {
		if got := fileSafe(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for kind, want := range map[string]string{"image/jpeg": ".jpg", "image/png": ".png", "video/webm": ".webm"} {
		if got := PictureExt(Picture{File: record.ManifestFile{Type: kind}}); got != want {
			t.Errorf("%q: %q, want %q", kind, got, want)
		}
	}
	if name := PictureName(Picture{Check: "Home", Viewport: "Desktop", File: record.ManifestFile{Type: "image/png"}}, 2,
		"run:a/1"); name != "home-desktop-2__run-a-1.png" {
		t.Error(name)
	}
}

// TestLists checks how many items of a list are shown, and that the last line has the number of the others.
func TestLists(t *testing.T) {
	item := func(i int) string { return strings.Repeat("x", i+1) }
	for _, tt := range []struct {
		n, most, units int
		bullets, list  string // the items separated by spaces
	}{
		{0, 5, 100, "", ""},
		{3, 3, 100, "x xx xxx", "x xx xxx"},
		{3, 2, 100, "x xx +1", "x xx +1"},
		{3, 0, 100, "+3", "+3"},
		{3, 3, 15, "x xx xxx", "x xx xxx"},
		{3, 3, 14, "x xx +1", "x xx +1"},
		{5, 5, 9, "x xx +3", "x xx +3"},
		{2, 2, 0, "+2", "+2"},
	} {
		got := strings.ReplaceAll(strings.ReplaceAll(bullets(tt.n, tt.most, tt.units, "+%d", item), "\n• ", " "), "\n", " ")
		if strings.TrimSpace(got) != tt.bullets {
			t.Errorf("%d bullets, at most %d in %d: %q, want %q", tt.n, tt.most, tt.units, got, tt.bullets)
		}
		got = strings.ReplaceAll(strings.ReplaceAll(markdownList(tt.n, tt.most, tt.units, item), "- and ", "+"), " more", "")
		if got = strings.ReplaceAll(strings.ReplaceAll(got, "- ", ""), "\n", " "); got != tt.list {
			t.Errorf("%d items, at most %d in %d: %q, want %q", tt.n, tt.most, tt.units, got, tt.list)
		}
	}
	for _, tt := range []struct {
		n, most, units int
		want           string
	}{
		{2, 2, 100, "| A |\n| --- |\n| 0 |\n| 1 |"},
		{3, 2, 100, "| A |\n| --- |\n| 0 |\n| 1 |\n\nand 1 more"},
		{3, 3, 12, "| A |\n| --- |\n| 0 |\n| 1 |\n\nand 1 more"},
		{3, 3, 11, "| A |\n| --- |\n| 0 |\n\nand 2 more"},
	} {
		if got := markdownTable([]string{"A"}, tt.n, tt.most, tt.units,
			func(i int) []string { return []string{fmt.Sprint(i)} }); got != tt.want {
			t.Errorf("%d rows, at most %d in %d: %q, want %q", tt.n, tt.most, tt.units, got, tt.want)
		}
	}
}

// TestCodeBlock checks which lines of an output are shown.
func TestCodeBlock(t *testing.T) {
	for _, tt := range []struct {
		text  string
		most  int
		want  string
		left  int
		short bool
	}{
		{"", 100, "", 0, false},
		{"\n\n", 100, "", 0, false},
		{"a\nb\n", 100, "```\na\nb\n```", 0, false},
		{"a\nb", 12, "```\na\nb\n```", 0, false},
		{"a\nb", 11, "```\na\n```", 1, false},
		{"a\nb\nc", 11, "```\na\n```", 2, false},
		{"abcdef\nb", 12, "```\nabc…\n```", 1, true},
		{"a```b <c>", 100, "```\naˋˋˋb &lt;c&gt;\n```", 0, false},
	} {
		got, left, short := codeBlock(tt.text, tt.most)
		if got != tt.want || left != tt.left || short != tt.short {
			t.Errorf("%q in %d: %q, %d left, short %v", tt.text, tt.most, got, left, short)
		}
	}
}

// TestPromptSize checks a prompt at its bound.
func TestPromptSize(t *testing.T) {
	full := strings.Repeat("x", promptMax)
	if got, err := Prompt(full, PromptData{}); err != nil || got != full {
		t.Errorf("%d bytes: %d, %v", len(full), len(got), err)
	}
	for _, text := range []string{full + "x", full + `{{"x"}}`} {
		if got, err := Prompt(text, PromptData{}); !errors.Is(err, gitd.ErrTooLarge) {
			t.Errorf("%d bytes: %d, %v", len(text), len(got), err)
		}
	}
	for _, text := range []string{"{{", "{{.None}}"} {
		if got, err := Prompt(text, PromptData{}); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestCommentPlace checks where a comment is said to be.
func TestCommentPlace(t *testing.T) {
	for _, tt := range []struct {
		comment forge.Comment
		want    string
	}{
		{forge.Comment{Path: "a.go", Line: 7, Side: "RIGHT"}, "On `a.go`, line 7."},
		{forge.Comment{Path: "a.go", Line: 7, Side: "LEFT"}, "On `a.go`, line 7 as it was before the change."},
		{forge.Comment{Path: "a.go", Side: "LEFT"}, "On `a.go`, the whole file."},
		{forge.Comment{Path: "a.go", DiffHunk: "+x"},
			"On `a.go`; the lines have changed since. The part of the diff above it:"},
		{forge.Comment{}, ""},
	} {
		var b strings.Builder
		p := feedbackPrompt{Builder: &b, each: 1000}
		tt.comment.User, tt.comment.Body = "ann", "why?"
		p.comment(tt.comment)
		_, rest, _ := strings.Cut(b.String(), "\n\n")
		if about, _, _ := strings.Cut(rest, "\n"); about != tt.want && (tt.want != "" || !strings.HasPrefix(about, "```")) {
			t.Errorf("%+v: %q, want %q", tt.comment, b.String(), tt.want)
		}
	}
}

// TestLookLinks checks that only files of the run are linked, and none where links lead nowhere.
func TestLookLinks(t *testing.T) {
	m := &record.Manifest{Run: "run:a/1", Files: []record.ManifestFile{{Name: BrowserFiles + "a.png"},
		{Name: BrowserFiles + "1.png"}, {Name: BrowserFiles + "c.png"}, {Name: BrowserFiles}}}
	view := record.BrowserView{Screenshot: "a.png", Trace: "none.zip",
		Steps: []record.BrowserStep{{OK: true, Screenshot: "1.png"}, {Screenshot: "1.png"}, {}}}
	view.Viewport.Name = "desktop"
	check := record.BrowserCheck{Compare: &record.BrowserComparison{Views: []record.BrowserDiff{{Viewport: "desktop",
		Picture: "c.png"}, {Viewport: "mobile", Picture: "a.png"}}}}
	file := func(run, name string) string { return "https://x/" + run + "/" + name }
	const at = "(https://x/run:a/1/" + BrowserFiles
	p := pullBody{links: PullLinks{File: file, Trace: file}}
	if got, want := p.lookLinks(m, check, view), "[step 2]"+at+"1.png) · [picture]"+at+"a.png) · [before and after]"+at+
		"c.png)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (pullBody{}).lookLinks(m, check, view); got != "" {
		t.Errorf("without links: %q", got)
	}
}

// TestOutcome checks the parts of a result that depend on how it went.
func TestOutcome(t *testing.T) {
	table := checkTable(&record.Manifest{Tests: []record.ManifestTests{{Step: "a", OK: true, Passed: 1},
		{Step: "b", OK: true, Failed: 1}, {Step: "c"}, {Step: "d", Unknown: true}}})
	if strings.Count(table, "✅ passed") != 1 || strings.Count(table, "❌ failed") != 2 {
		t.Errorf("tests without a check:\n%s", table)
	}
	if got := checkTable(&record.Manifest{}); got != "" {
		t.Errorf("no checks: %q", got)
	}
	for _, tt := range []struct {
		state record.State
		text  string
		shown bool
	}{{record.StateFailed, "no disk", true}, {record.StateFailed, "", false}, {record.StateComplete, "no disk", false}} {
		if got := (Result{Manifest: record.Manifest{State: tt.state, Error: tt.text}}).why(); (got != "") != tt.shown ||
			!strings.Contains(got, tt.text) && tt.shown {
			t.Errorf("%s, %q: %q", tt.state, tt.text, got)
		}
	}
	for _, tt := range []struct {
		m    record.Manifest
		want string
	}{
		{record.Manifest{}, ""},
		{record.Manifest{Usage: &record.Usage{InputTokens: 5}}, ""},
		{record.Manifest{Usage: &record.Usage{Calls: 1}}, "1 call to models, 0 tokens in, 0 out"},
		{record.Manifest{Usage: &record.Usage{Calls: 2, InputTokens: 7, CostMicros: 12300}},
			"2 calls to models, 7 tokens in, 0 out, cost 0.0123"},
	} {
		if got := agentWords(&tt.m); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.m.Usage, got, tt.want)
		}
	}
}
