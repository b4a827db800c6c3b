package render

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// TestPlural counts things for people.
func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 files", 1: "1 file", 2: "2 files"} {
		if got := Plural(n, "file"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for hash, want := range map[gitd.Hash]string{"": "", "0123456789": "0123456789", "0123456789a": "0123456789", "01": "01"} {
		if got := ShortHash(hash); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if Showable("image/png") != "image/png" || Showable("image/svg+xml") != "" {
		t.Error("the wrong pictures are shown")
	}
}

// TestClean keeps white space and joined emoji, and replaces characters that hide something.
func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a\nb\tc": "a\nb\tc", "\U0001F468\u200d\U0001F469": "\U0001F468\u200d\U0001F469", "a\r\nb": "a\nb", "a\rb": "a\nb",
		"a\x00b": "a\ufffdb", "a\x7fb": "a\ufffdb", "a\u202eb": "a\ufffdb", "a\u200bb": "a\ufffdb", "a\xffb": "a\ufffdb",
		"\x1b[31mred\x1b[0m": "red", "\x1b]0;title\x07x": "x", "a\x1b": "a\ufffd",
	} {
		if got := Clean(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	for n, want := range map[int]string{4: "abcd", 3: "abc…", 0: "…"} {
		if got := ClipClean("abcd", n); got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
}

// TestRunDuration shows the time of a run that has begun and ended.
func TestRunDuration(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		m    record.Manifest
		want string
	}{
		{record.Manifest{StartedAt: now, EndedAt: now, DurationMS: 500}, "took 500 ms"},
		{record.Manifest{StartedAt: now, EndedAt: now, DurationMS: -1}, "took 0 ms"},
		{record.Manifest{StartedAt: now, DurationMS: 500}, ""},
		{record.Manifest{EndedAt: now, DurationMS: 500}, ""},
		{record.Manifest{DurationMS: 500}, ""},
	} {
		if got := runDuration(&c.m); got != c.want {
			t.Errorf("%+v: %q, want %q", c.m, got, c.want)
		}
	}
}

// TestResultLinks links the files of a result as long as they fit.
func TestResultLinks(t *testing.T) {
	artifacts := func(n, size int) (list []record.ManifestFile) {
		for i := range n {
			list = append(list, record.ManifestFile{Name: fmt.Sprintf("artifacts/%d", i), Size: int64(size)})
		}
		return list
	}
	long := func(n int) func(string) string {
		return func(string) string { return "https://x/" + strings.Repeat("y", n-len("https://x/")) }
	}
	short := func(name string) string { return "https://x/" + name }
	links := func(files []record.ManifestFile, to func(string) string) string {
		return Result{Manifest: record.Manifest{Files: files}, Links: to}.links()
	}
	for n, want := range map[int]string{0: "", 1: "|0 (1 B)>", 8: "|7 (1 B)>", 9: " · and 1 artifact more", 20: " · and 12 artifacts more"} {
		if got := links(artifacts(n, 1), short); !strings.HasSuffix(got, want) || strings.Count(got, "<https://x/artifacts/") != min(n, 8) {
			t.Errorf("%d artifacts: %s, want %s", n, got, want)
		}
	}
	files := []record.ManifestFile{{Name: "evidence/changes.diff"}, {Name: "journal.jsonl"}, {Name: "run.json"}}
	if got := links(files, short); got != "<https://x/journal.jsonl|Journal>" {
		t.Errorf("files of a run without changes: %s", got)
	}
	if got := links(files, nil); got != "" {
		t.Errorf("without links: %s", got)
	}
	// Each of five links has 10 characters besides its address, and 3 are between two.
	for more, want := range map[int]string{0: "|4 (1 B)>", 1: "|3 (1 B)> · and 1 more"} {
		got := links(artifacts(5, 1), func(name string) string {
			if name == "artifacts/4" {
				return long(394 + more)(name)
			}
			return long(386)(name)
		})
		if !strings.HasSuffix(got, want) || more == 0 && width(got) != 2000 {
			t.Errorf("%d characters: …%s, want %s", width(got), got[len(got)-20:], want)
		}
	}
}

// TestTitleLength keeps titles of the most characters whole.
func TestTitleLength(t *testing.T) {
	for n, want := range map[int]int{titleMax - 1: titleMax - 1, titleMax: titleMax, titleMax + 1: titleMax} {
		got := pullTitle(record.Task{Description: strings.Repeat("x", n)})
		if width(got) != want || strings.HasSuffix(got, "…") != (n > titleMax) {
			t.Errorf("%d characters became %d: %s", n, width(got), got)
		}
	}
}

// TestDiffers describes comparisons of pages.
func TestDiffers(t *testing.T) {
	view := func(viewport string, changed float64, note string) record.BrowserDiff {
		return record.BrowserDiff{Viewport: viewport, Changed: changed, Note: note}
	}
	show := writing(func(s string, _ int) string { return s })
	for _, c := range []struct {
		views []record.BrowserDiff
		want  string
	}{
		{nil, ""},
		{[]record.BrowserDiff{view("a", 0, "no earlier picture")}, "not compared"},
		{[]record.BrowserDiff{view("a", 0, "")}, "nothing changed"},
		{[]record.BrowserDiff{view("a", 0, ""), view("b", 0, "none")}, "nothing changed"},
		{[]record.BrowserDiff{view("a", 0.5, ""), view("b", 0.5, "")}, "50 % changed"},
		{[]record.BrowserDiff{view("a", 0.5, ""), view("b", 0, "")}, "changed 50 % at a"},
		{[]record.BrowserDiff{view("a", 0.5, ""), view("b", 0.25, ""), view("c", 0.1, "")}, "changed 50 % at a, 25 % at b and 10 % at c"},
	} {
		check := record.BrowserCheck{Compare: &record.BrowserComparison{Views: c.views}}
		if got := strings.Join(show.differs(check), "|"); got != c.want {
			t.Errorf("%+v: %q, want %q", c.views, got, c.want)
		}
	}
}

// TestHomeBranch has Slack send the name of a branch at once, and allow that it is empty.
func TestHomeBranch(t *testing.T) {
	var found int
	for _, b := range (Home{Repos: []string{"app"}, Repo: "app", Base: "next"}).Blocks() {
		var input typed
		if err := json.Unmarshal(b, &input); err != nil {
			t.Fatal(err)
		}
		if input.Type != "input" {
			continue
		}
		found++
		if !input.Dispatch || !input.Optional || input.Element.Initial != "next" || input.Block != ActionHomeBase || input.Element.Max != HomeBaseMax {
			t.Errorf("%s", b)
		}
	}
	if found != 1 {
		t.Errorf("%d inputs", found)
	}
}

// TestDuration checks the unit of a duration on both sides of each bound.
func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", time.Second - time.Millisecond: "999 ms",
		time.Second: "1.0 s", time.Minute - 100*time.Millisecond: "59.9 s",
		time.Minute: "1 min 00 s", time.Hour - time.Second: "59 min 59 s",
		time.Hour: "1 h 00 min", 48*time.Hour - time.Minute: "47 h 59 min",
		48 * time.Hour: "2 days", 72*time.Hour - time.Minute: "2 days", 72 * time.Hour: "3 days",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
