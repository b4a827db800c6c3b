package render

import (
	"errors"
	"fmt"
	"slices"
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

// TestEmptyParts checks that a line of small print without words and a row without buttons are left out.
func TestEmptyParts(t *testing.T) {
	fits := press("a", "A", "", strings.Repeat("x", valueMax))
	long := press("b", "B", "", strings.Repeat("x", valueMax+1))
	for _, tt := range []struct {
		name string
		add  func(*layout)
		want int // blocks
	}{
		{"no small print", func(l *layout) { l.context() }, 0},
		{"empty small print", func(l *layout) { l.context("", "") }, 0},
		{"small print", func(l *layout) { l.context("", "a") }, 1},
		{"no buttons", func(l *layout) { l.actions() }, 0},
		{"a button that is too long", func(l *layout) { l.actions(long) }, 0},
		{"one button that fits", func(l *layout) { l.actions(long, fits) }, 1},
		{"an empty section", func(l *layout) { l.section("") }, 0},
	} {
		var l layout
		if tt.add(&l); len(l.blocks) != tt.want {
			t.Errorf("%s: %s", tt.name, l.blocks)
		}
	}
	var l layout
	l.context("a", "", "b")
	l.actions(long, fits)
	if got := string(l.blocks[0]); !strings.Contains(got, `"a · b"`) {
		t.Error(got)
	}
	if got := string(l.blocks[1]); !strings.Contains(got, `"action_id":"a"`) || strings.Contains(got, `"action_id":"b"`) {
		t.Error(got)
	}
}

// TestShownURL checks that an address is shown as it is up to a length, and cut if it is longer.
func TestShownURL(t *testing.T) {
	for n, whole := range map[int]bool{199: true, 200: true, 201: false, 500: false} {
		address := "https://x/" + strings.Repeat("y", n-len("https://x/"))
		if got := shownURL(address); (got == address) != whole || !whole && (width(got) != 200 || !strings.HasSuffix(got, "…")) {
			t.Errorf("%d bytes: %q", n, got)
		}
	}
}

// TestAskChoices checks which repositories can be chosen, and that the others are counted.
func TestAskChoices(t *testing.T) {
	numbered := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("app%d", i))
		}
		return list
	}
	for _, tt := range []struct {
		key           string
		repos         []string
		options, left int
	}{
		{"k", nil, 0, 0},
		{"k", numbered(1), 1, 0},
		{"k", numbered(optionsMax), optionsMax, 0},
		{"k", numbered(optionsMax + 1), optionsMax, 1},
		{"k", numbered(optionsMax + 2), optionsMax, 2},
		{"k", []string{"app", "../no"}, 1, 1},
		{"k", []string{"../no"}, 0, 1},
		{strings.Repeat("k", optionValue-len(" app")), []string{"app", "apps"}, 1, 1},
	} {
		all := shown(t, Ask(tt.key, tt.repos))
		if n := strings.Count(all, `"value": `); n != tt.options || strings.Contains(all, "static_select") != (n > 0) ||
			strings.Contains(all, "Choose it") != (n > 0) {
			t.Errorf("%d repositories: %d options, want %d, in %s", len(tt.repos), n, tt.options, all)
		}
		left := fmt.Sprintf("(%d more are not listed.)", tt.left)
		if strings.Contains(all, "not listed") != (tt.left > 0) || tt.left > 0 && !strings.Contains(all, left) {
			t.Errorf("%d repositories: no %q in %s", len(tt.repos), left, all)
		}
	}
}

// TestNext checks the action that the result of a run names.
func TestNext(t *testing.T) {
	refused := []record.ManifestEgress{{Host: "b.example", Verdict: "allowed"}, {Host: "a.example:443", Verdict: "refused"}}
	for _, tt := range []struct {
		reason record.Reason
		egress []record.ManifestEgress
		hint   bool // about the network
	}{
		{record.ReasonCommandFailed, refused, true},
		{record.ReasonTimedOut, refused, true},
		{record.ReasonCancelled, refused, false},
		{record.ReasonCommandFailed, refused[:1], false},
		{record.ReasonTimedOut, nil, false},
		{record.ReasonDiskFull, nil, false},
	} {
		want := "What to do: " + Hint(tt.reason)
		if tt.hint {
			want = "What to do: " + record.EgressHint([]string{"a.example:443"}) + "; or " + Hint(tt.reason)
		}
		m := record.Manifest{State: record.StateFailed, Reason: tt.reason, Egress: tt.egress}
		if got := (Result{Manifest: m}).next(); got != want {
			t.Errorf("%s, %v: %q, want %q", tt.reason, tt.egress, got, want)
		}
	}
	const merge, propose = "To merge it, say `merge` in this thread.", "To open its pull request, say `pr` in this thread."
	for _, tt := range []struct {
		name   string
		change func(*Result)
		want   string
	}{
		{"changed", func(*Result) {}, merge},
		{"changed and can be proposed", func(r *Result) { r.Propose = true }, propose},
		{"nothing changed", func(r *Result) { r.Propose, r.Manifest.Changed = true, nil }, ""},
		{"checks failed", func(r *Result) { r.Propose, r.Manifest.Verdict = true, record.VerdictFailed }, ""},
		{"not ended", func(r *Result) { r.Propose, r.Manifest.State = true, record.StateAwaitingReview }, ""},
		{"merged", func(r *Result) { r.Propose, r.Manifest.Merged = true, "0123456789a" }, "Merged into `main` as `0123456789`."},
	} {
		r := Result{Manifest: done()}
		tt.change(&r)
		if got := r.next(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestLastChecks checks that a check replaces only an earlier one of the same task and command, and that tests are listed
// by themselves if no check ran them.
func TestLastChecks(t *testing.T) {
	check := func(step, task, command string, result record.CheckResult) record.ManifestCheck {
		return record.ManifestCheck{Step: step, Task: task, Command: command, Result: result}
	}
	for _, tt := range []struct {
		second record.ManifestCheck
		want   string // steps
	}{
		{check("2", "t", "c", record.CheckPassed), "2"},
		{check("2", "t", "d", record.CheckPassed), "1 2"},
		{check("2", "u", "c", record.CheckPassed), "1 2"},
		{check("2", "u", "d", record.CheckPassed), "1 2"},
		{check("2", "u", "c", record.CheckSkipped), "1"},
	} {
		m := &record.Manifest{Checks: []record.ManifestCheck{check("1", "t", "c", record.CheckFailed), tt.second},
			Tests: []record.ManifestTests{{Step: "1"}, {Step: "2"}, {Step: "3"}, {Step: "4", Unknown: true}}}
		ran, alone := lastChecks(m)
		var steps []string
		for _, c := range ran {
			steps = append(steps, c.Step)
		}
		if got := strings.Join(steps, " "); got != tt.want {
			t.Errorf("%+v: steps %q, want %q", tt.second, got, tt.want)
		}
		if len(alone) != 1 || alone[0].Step != "3" {
			t.Errorf("%+v: tests without a check %+v", tt.second, alone)
		}
	}
}

// TestAddedChanges checks how the changes of two rounds to one file are added up.
func TestAddedChanges(t *testing.T) {
	change := func(status string, added, deleted int) gitd.Change {
		return gitd.Change{Path: "a", Status: status, Added: added, Deleted: deleted}
	}
	for _, tt := range []struct{ first, second, want gitd.Change }{
		{change("M", 1, 2), change("M", 3, 4), change("M", 4, 6)},
		{change("M", 0, 2), change("M", 0, 1), change("M", 0, 3)},
		{change("M", 0, 2), change("M", 3, 0), change("M", 3, 2)},
		{change("M", 3, 0), change("M", 0, 2), change("M", 3, 2)},
		{change("M", -1, -1), change("M", 5, 5), change("M", -1, -1)},
		{change("M", 5, 5), change("M", -1, -1), change("M", -1, -1)},
		{change("M", -1, -1), change("M", -1, -1), change("M", -1, -1)},
		{change("A", 1, 0), change("M", 1, 0), change("A", 2, 0)},
		{change("A", 1, 0), change("D", 0, 1), change("D", 1, 1)},
		{change("M", 1, 0), change("D", 0, 1), change("D", 1, 1)},
		{change("D", 0, 1), change("A", 1, 0), change("M", 1, 1)},
	} {
		p := pullBody{work: []record.Manifest{{Changed: []gitd.Change{tt.first}}, {}, {Changed: []gitd.Change{tt.second}}}}
		if list, rounds := p.changes(); len(list) != 1 || list[0] != tt.want || rounds != 2 {
			t.Errorf("%v and %v: %v in %d rounds, want %v", tt.first, tt.second, list, rounds, tt.want)
		}
	}
	for _, tt := range []struct {
		change gitd.Change
		want   string
	}{
		{change("M", 0, 0), "`a` +0 −0"},
		{change("A", 1, 0), "`a` +1 −0, new"},
		{change("D", -1, 0), "`a` binary, deleted"},
		{change("M", 0, -1), "`a` binary"},
	} {
		if got := mdChange(tt.change); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.change, got, tt.want)
		}
	}
}

// TestLinePrompt checks the words about a comment on lines, and how many comments a prompt has.
func TestLinePrompt(t *testing.T) {
	one := LineComment{Thread: "t1", Path: "a.go", From: 7, To: 7, Commit: "0123456789abcdef", First: 6,
		Excerpt: []string{"x", "y", "z"}, By: "bob", Text: "why?", Earlier: []Word{{By: "eve", Text: "so?"}}}
	more := one
	more.To, more.Old, more.Commit = 8, true, "c1"
	got := LinePrompt(LineComments{By: "ann", Note: "hello", Repo: "lib", Comments: []LineComment{one, more}})
	for _, want := range []string{
		"`ann` reviewed your branch and commented on 2 places. The lines are in the repository `lib`.",
		"## 1. Said by `ann`\n", "hello\n", "## 2. Thread `t1`, comment by `bob`\n",
		"On `a.go`, line 7, at commit `0123456789ab`.", "     6  x\n>    7  y\n     8  z\n",
		"On `a.go`, lines 7 to 8 as it was before the change, at commit `c1`.", "     6  x\n>    7  y\n>    8  z\n",
		"[eve said before] so?\n\nwhy?\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if plain := LinePrompt(LineComments{By: "ann", Comments: []LineComment{one}}); strings.Contains(plain, "Said by") ||
		strings.Contains(plain, "in the repository") || strings.Contains(plain, "as it was") {
		t.Error(plain)
	}
	for _, tt := range []struct {
		note    string
		n, left int
	}{{"", 1, 0}, {"", feedbackMost, 0}, {"", feedbackMost + 1, 1}, {"x", feedbackMost, 1}, {"x", feedbackMost + 1, 2}} {
		got := LinePrompt(LineComments{By: "ann", Note: tt.note, Comments: slices.Repeat([]LineComment{one}, tt.n)})
		left := fmt.Sprintf("\n%d more are left out here", tt.left)
		if strings.Contains(got, "left out") != (tt.left > 0) || tt.left > 0 && !strings.Contains(got, left) {
			t.Errorf("%d comments: the prompt ends with %q, want %q", tt.n, got[len(got)-200:], left)
		}
	}
	long := one
	long.Text = strings.Repeat("x", feedbackItem+1)
	for n, most := range map[int]int{1: 2 * feedbackItem, 3: feedbackItems, feedbackMost: feedbackItems} {
		got := LinePrompt(LineComments{By: "ann", Note: long.Text, Comments: slices.Repeat([]LineComment{long}, n)})
		if x := strings.Count(got, "x"); x > most+n || x < most*9/10 && n < feedbackMost {
			t.Errorf("%d comments: %d bytes of texts, want about %d", n, x, most)
		}
	}
}

// TestFirstReviewPrompt checks that the parts of a first review without words are left out.
func TestFirstReviewPrompt(t *testing.T) {
	r := FirstReview{Pull: 7, Base: "main", From: strings.Repeat("a", 41), Most: 3}
	const guideline, unworthy = "## What reviews in this repository are about", "## Not worth saying"
	got := FirstReviewPrompt(r)
	if strings.Contains(got, guideline) || strings.Contains(got, unworthy) ||
		!strings.Contains(got, "#7, which is for `main`.") || !strings.Contains(got, "`git diff "+r.From[:40]+" HEAD`") ||
		!strings.Contains(got, "At most 3.") {
		t.Error(got)
	}
	r.From, r.Guideline, r.Unworthy = "c1", "Be kind.", []string{"a typo", "a name"}
	got = FirstReviewPrompt(r)
	for _, want := range []string{guideline, "Be kind.\n", unworthy, "a typo\n", "a name\n", "`git diff c1 HEAD`"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
