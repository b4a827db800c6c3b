package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/golden"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
	plain "github.com/ramus-dev/ramus/internal/text"
	slackgo "github.com/slack-go/slack"
)

// renderedAt is the tests' clock.
var renderedAt = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// shown is a message as people read JSON.
func shown(t *testing.T, m slack.Message) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	var blocks []any
	for _, raw := range m.Blocks {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, v)
	}
	if err := e.Encode(map[string]any{"text": m.Text, "blocks": blocks}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var (
	entity = regexp.MustCompile(`&[^;]{0,5};?`)
	// A link as it is rendered; nothing else may follow a <.
	linked = regexp.MustCompile(`<(https?://[^<>|\s]+)\|([^<>|\n]+)>`)
)

// withinLimits checks a message against what Slack accepts and what it shows:
// every limit, nothing of strangers that is read as markup, nothing that is invisible.
func withinLimits(t *testing.T, m slack.Message) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf(format+"\n%s", append(args, shown(t, m))...)
	}
	if m.Text == "" || width(m.Text) > notifiableMax {
		fail("the text has %d characters", width(m.Text))
	}
	if len(m.Blocks) == 0 {
		fail("%d blocks", len(m.Blocks))
	}
	markup := func(text string) {
		t.Helper()
		if !utf8.ValidString(text) {
			fail("%q is no UTF-8", text)
		}
		rest := linked.ReplaceAllStringFunc(text, func(l string) string {
			address := strings.ReplaceAll(linked.FindStringSubmatch(l)[1], "&amp;", "&")
			if u, err := url.Parse(address); err != nil || u.Host != "ramus.example" {
				fail("%q leads elsewhere", l)
			}
			return ""
		})
		for line := range strings.SplitSeq(rest, "\n") {
			if strings.ContainsAny(strings.TrimPrefix(line, ">"), "<>") {
				fail("%q is markup, or a broken link", line)
			}
		}
		for _, e := range entity.FindAllString(rest, -1) {
			if !strings.HasPrefix(e, "&amp;") && !strings.HasPrefix(e, "&lt;") && !strings.HasPrefix(e, "&gt;") {
				fail("%q is no entity", e)
			}
		}
		if strings.Count(text, "```")%2 != 0 {
			fail("a block of code is left open in %q", text)
		}
		for _, r := range text {
			if plain.Invisible(r) || r == '\u200d' || r == '\u200c' {
				fail("%U is shown", r)
			}
		}
	}
	markup(m.Text)
	list, err := json.Marshal(m.Blocks)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := slacktest.CheckBlocks(list); len(wrong) > 0 {
		fail("%q", wrong)
	}
	var all any
	if err := json.Unmarshal(list, &all); err != nil {
		t.Fatal(err)
	}
	total := 0
	actions := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
			if text, ok := v["text"].(string); ok {
				total += width(text)
				if width(text) > 3000 {
					fail("a text of %d characters", width(text))
				}
				if v["type"] == "mrkdwn" {
					markup(text)
					if v["verbatim"] != true {
						fail("%q may be turned into links and mentions", text)
					}
				}
			}
			if id, ok := v["action_id"].(string); ok {
				if id == "" || actions[id] {
					fail("two buttons are called %q", id)
				}
				actions[id] = true
			}
			if v["type"] == "button" && v["value"] == "" {
				fail("%v does nothing", v)
			}
		}
	}
	walk(all)
	if total > 12500 {
		fail("%d characters together", total)
	}
	// Blocks are read by a library of Slack's protocol as what they are meant to be.
	var blocks slackgo.Blocks
	if err := json.Unmarshal(list, &blocks); err != nil || len(blocks.BlockSet) != len(m.Blocks) {
		fail("%d of %d blocks are read: %v", len(blocks.BlockSet), len(m.Blocks), err)
	}
	for _, b := range blocks.BlockSet {
		if _, unknown := b.(*slackgo.UnknownBlock); unknown {
			fail("block %s is unknown", b.BlockType())
		}
	}
}

const (
	page = "https://ramus.example/evidence/conv%3A7c1d/01k9?expires=1772999999&signature=c2lnbmF0dXJl"
	runs = "conv:7c1d0a4be2f3/01k9abc"
)

func pageOf(name string) string {
	return "https://ramus.example/" + url.PathEscape(name) + "?expires=1772999999&signature=c2ln"
}

func someRun(state record.State) record.Run {
	caller, err := record.ParseCaller("conv:7c1d0a4be2f3")
	if err != nil {
		panic(err)
	}
	return record.Run{ID: "01k9abc", Caller: caller, Kind: record.KindAgent, Repo: "team/app", Base: "main",
		Branch: "ramus/conv-7c1d0a4be2f3", State: state}
}

func number(n int) *int { return &n }

// done is the manifest of a run in which everything went well.
func done() record.Manifest {
	return record.Manifest{
		Run: runs, Kind: record.KindAgent, State: record.StateComplete, Verdict: record.VerdictVerified,
		Repo: "team/app", Branch: "ramus/conv-7c1d0a4be2f3", Base: "main",
		BaseRefreshed: renderedAt.Add(-3 * time.Hour), Start: "a1", Head: "b2", Agent: "coder",
		Usage: &record.Usage{Calls: 14, InputTokens: 182340, OutputTokens: 9120, CostMicros: 412300},
		Commands: []record.ManifestCommand{
			{Step: "agent", Command: "codex exec", Exit: number(0), OK: true, DurationMS: 192400},
			{Step: "tests", Task: "lib_run_tests", Command: "lib_run_tests", Exit: number(0), OK: true, DurationMS: 8340},
			{Step: "lint", Task: "lib_run_lint", Command: "lib_run_lint", Exit: number(0), OK: true, DurationMS: 950},
		},
		Tests: []record.ManifestTests{{Step: "tests", Framework: "go", Passed: 42, Skipped: 1, OK: true}},
		Checks: []record.ManifestCheck{
			{Check: "tests", Task: "lib_run_tests", Command: "lib_run_tests", Step: "tests", Tool: "go",
				Result: record.CheckPassed, Current: true},
			{Check: "lint", Task: "lib_run_lint", Command: "lib_run_lint", Step: "lint", Tool: "go vet",
				Result: record.CheckPassed, Current: true},
			{Check: "build", Task: "lib_run_build", Result: record.CheckSkipped, Why: "there is nothing to build"},
		},
		Unverified: []string{"build skipped: there is nothing to build"},
		Changed: []gitd.Change{
			{Path: "store/store.go", Status: "M", Added: 12, Deleted: 3},
			{Path: "store/store_test.go", Status: "A", Added: 40},
			{Path: "web/new.png", Status: "A", Added: -1, Deleted: -1},
			{Path: "web/b.js", OldPath: "web/a.js", Status: "R"},
		},
		Files: []record.ManifestFile{
			{Name: "artifacts/browser/desktop.png", Size: 81234, Type: "image/png"},
			{Name: "artifacts/trace.zip", Size: 5 << 20, Stored: true},
			{Name: "evidence/changes.diff", Size: 1234}, {Name: "journal.jsonl", Size: 9999},
			{Name: "output/1.stdout", Size: 10},
		},
		StartedAt: renderedAt.Add(-4 * time.Minute), EndedAt: renderedAt, DurationMS: 240000,
	}
}

var through = gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonThreadStarter}

func TestRenderResult(t *testing.T) {
	with := func(change func(*record.Manifest)) Result {
		m := done()
		change(&m)
		return Result{Manifest: m, Policy: through, Page: page, Links: pageOf}
	}
	failed := func(reason record.Reason, text string) Result {
		return with(func(m *record.Manifest) {
			m.State, m.Reason, m.Error, m.Verdict = record.StateFailed, reason, text, record.VerdictFailed
		})
	}
	full := with(func(*record.Manifest) {})
	full.Clone, full.Says = "https://ramus.example/team/app.git", "I fixed the store.\n\n✅ All tests pass, <!channel>!"
	for name, r := range map[string]Result{
		"done":   full,
		"merged": with(func(m *record.Manifest) { m.Merged = "0123456789abcdef" }),
		"nothing": with(func(m *record.Manifest) {
			*m = record.Manifest{Run: runs, State: m.State, Verdict: record.VerdictNone}
		}),
		"unverified": with(func(m *record.Manifest) { m.Verdict, m.Checks, m.Tests = record.VerdictUnverified, nil, nil }),
		"red": with(func(m *record.Manifest) {
			m.Verdict = record.VerdictFailed
			m.Tests[0] = record.ManifestTests{Step: "tests", Framework: "go", Passed: 40, Failed: 7,
				FailedNames: []string{"TestA", "TestB", "TestC", "TestD", "TestE", "TestF", "TestG"}}
			m.Checks[0].Result, m.Checks[0].Why = record.CheckFailed, "7 of 47 failed"
		}),
		"exec": {Manifest: record.Manifest{Run: runs, Kind: record.KindExec, State: record.StateComplete,
			Verdict: record.VerdictNone,
			Commands: []record.ManifestCommand{{Step: "1", Command: "node --version\nnpm --version", Exit: number(0),
				OK: true, DurationMS: 41}}}, Policy: through, Output: "v22.1.0\n10.7.0\n"},
		"failed":  failed(record.ReasonCommandFailed, "step build failed: exit code 2"),
		"stopped": failed(record.ReasonCancelled, "stopped by Ann"),
		"unable": with(func(m *record.Manifest) {
			m.State, m.Reason, m.Error, m.Verdict, m.Changed, m.Head = record.StateFailed, record.ReasonCommandFailed,
				"cannot run lib_run_tests: there is no go.mod", record.VerdictFailed, nil, m.Start
			m.Checks, m.Tests = nil, nil
			m.Unverified = []string{"tests could not run: cannot run lib_run_tests: there is no go.mod"}
		}),
		"timed-out": failed(record.ReasonTimedOut, "the run's time is up"),
		"rejected":  failed(record.ReasonRejected, "not on a Friday"),
	} {
		m := r.Message()
		withinLimits(t, m)
		golden.Compare(t, "result-"+name+".json", shown(t, m))
	}
}

// What the agent says never reaches a headline, a notification or a verdict.
func TestAgentsWordsAreNoEvidence(t *testing.T) {
	m := done()
	m.Verdict, m.Checks, m.Tests = record.VerdictUnverified, nil, nil
	quiet := Result{Manifest: m, Policy: through}
	loud := quiet
	loud.Says = "✅ Done\n*Verified*: all 900 tests pass\n```\n> quoted\n<https://evil.example|Run's page> <@U1>"
	a, b := quiet.Message(), loud.Message()
	if a.Text != b.Text {
		t.Errorf("the notification became %q", b.Text)
	}
	if len(b.Blocks) != len(a.Blocks)+1 {
		t.Fatalf("%d blocks became %d", len(a.Blocks), len(b.Blocks))
	}
	extra := 0
	for i := range b.Blocks {
		if extra == 0 && (i >= len(a.Blocks) || string(a.Blocks[i]) != string(b.Blocks[i])) {
			extra = 1
			var s struct{ Text struct{ Text string } }
			if err := json.Unmarshal(b.Blocks[i], &s); err != nil {
				t.Fatal(err)
			}
			first, rest, _ := strings.Cut(s.Text.Text, "\n")
			if !strings.Contains(first, "its own words, nobody has checked them") {
				t.Errorf("the quotation begins %q", first)
			}
			for line := range strings.SplitSeq(rest, "\n") {
				if !strings.HasPrefix(line, ">") {
					t.Errorf("%q is outside of the quotation", line)
				}
			}
			continue
		}
		if string(a.Blocks[i-extra]) != string(b.Blocks[i]) {
			t.Errorf("block %d became %s", i, b.Blocks[i])
		}
	}
	withinLimits(t, b)
}

// Every reason has a hint of its own, that needs no command line.
func TestHints(t *testing.T) {
	source, err := os.ReadFile("../../executor/record/reason.go")
	if err != nil {
		t.Fatal(err)
	}
	reasons := regexp.MustCompile(`Reason[A-Z]\w+ +Reason = "(\w+)"`).FindAllSubmatch(source, -1)
	if len(reasons) < 10 {
		t.Fatalf("%d reasons", len(reasons))
	}
	seen := map[string]bool{}
	for _, m := range reasons {
		reason := record.Reason(m[1])
		h := Hint(reason)
		if h == Hint("something new") || strings.Contains(h, "`ramus re") || !strings.HasSuffix(h, ".") {
			t.Errorf("%s: %s", reason, h)
		}
		if words := ReasonText(reason); seen[words] {
			t.Errorf("%s has another's words: %s", reason, words)
		} else {
			seen[words] = true
		}
	}
}

func TestRequestHasNoResult(t *testing.T) {
	m := Result{Manifest: record.Manifest{Kind: record.KindRequest, State: record.StateComplete}, Policy: through,
		Page: page, Links: pageOf}.Message()
	if m.Text != "" || len(m.Blocks) > 0 {
		t.Errorf("%s", shown(t, m))
	}
}

// An agent's last words are the last that it printed.
func TestAgentsLastWords(t *testing.T) {
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	m := Result{Manifest: done(), Says: b.String()}.Message()
	withinLimits(t, m)
	if all := shown(t, m); !strings.Contains(all, `>…\n>line 490\n`) || !strings.Contains(all, "line 499") {
		t.Error(all)
	}
}

func TestRenderProgress(t *testing.T) {
	standing := func(state record.State, change func(*Standing)) Standing {
		p := Standing{Run: someRun(state), Policy: through, Since: renderedAt.Add(-95 * time.Second), Now: renderedAt,
			Base: renderedAt.Add(-50 * time.Hour), Link: page}
		if change != nil {
			change(&p)
		}
		return p
	}
	for name, p := range map[string]Standing{
		"claimed":    {Run: someRun(record.StateSubmitted), Policy: through, Now: renderedAt},
		"queued":     standing(record.StateSubmitted, func(p *Standing) { p.Run.Place = 3 }),
		"running":    standing(record.StateRunning, func(p *Standing) { p.Step, p.Steps = "lib_run_tests", 4 }),
		"addressing": standing(record.StateAddressingComments, func(p *Standing) { p.Steps = 1 }),
		"gate": standing(record.StateAwaitingReview, func(p *Standing) {
			p.Run.Gate = &record.Gate{Step: "deploy/ok", Message: "Deploy to production?"}
		}),
		"permission": standing(record.StateRunning, func(p *Standing) {
			p.Run.Gate = &record.Gate{Step: "turn-1/permission-1",
				Message: "The agent asks for permission: rm -r build (execute)"}
		}),
		"ended": standing(record.StateFailed, func(p *Standing) { p.Run.Reason = record.ReasonDiskFull }),
	} {
		m := Progress(p)
		withinLimits(t, m)
		golden.Compare(t, "progress-"+name+".json", shown(t, m))
	}
}

func TestRenderText(t *testing.T) {
	for name, a := range map[string]Answer{
		"text":  {Text: "There is no repository `x<y>`: say `repo:NAME`."},
		"code":  {Text: "What changed:", Code: "diff --git a/x b/x\n+<b>&amp;</b>\n"},
		"empty": {},
	} {
		m := a.Message()
		withinLimits(t, m)
		golden.Compare(t, "text-"+name+".json", shown(t, m))
	}
	// Long code is cut at a line's end, says so and leads to all of it.
	var lines []string
	for i := range 1000 {
		lines = append(lines, fmt.Sprintf("line %d <&>", i))
	}
	m := Answer{Text: "The log:", Code: strings.Join(lines, "\n"), Page: page}.Message()
	withinLimits(t, m)
	var last struct{ Elements []struct{ Text string } }
	if err := json.Unmarshal(m.Blocks[len(m.Blocks)-1], &last); err != nil {
		t.Fatal(err)
	}
	if len(m.Blocks) != 5 || !strings.Contains(last.Elements[0].Text, "lines more") ||
		!strings.Contains(last.Elements[0].Text, "ramus.example") {
		t.Errorf("%s", shown(t, m))
	}
	all := shown(t, m)
	for i := range 100 {
		if !strings.Contains(all, fmt.Sprintf(`line %d &lt;&amp;&gt;\n`, i)) {
			t.Fatalf("line %d is missing", i)
		}
	}
	m = Answer{Text: "one (" + page + ") two " + page + " and https://evil.example/evidence/?signature=x, cut " + page +
		"…", Own: "https://ramus.example/"}.Message()
	withinLimits(t, m)
	linkTo := strings.ReplaceAll("<"+page+"|page>", "&", "&amp;")
	if all := shown(t, m); strings.Count(all, linkTo) != 2 || !strings.Contains(all, "one ("+linkTo+") two "+linkTo+" and https://evil") {
		t.Error(all)
	}
	withinLimits(t, Answer{Text: strings.Repeat(page+" ", 200), Own: "https://ramus.example"}.Message())
}

func TestRenderAsk(t *testing.T) {
	m := Ask("C061EG9SL:1700000099.000200", []string{"team/app", "lib"})
	withinLimits(t, m)
	golden.Compare(t, "ask.json", shown(t, m))
	for _, n := range []int{0, 1, 100, 250} {
		var repos []string
		for i := range n {
			repos = append(repos, fmt.Sprintf("team/%s%d", strings.Repeat("x", i%95), i))
		}
		withinLimits(t, Ask("C061EG9SL:1700000099.000200", repos))
	}
}

// strange makes texts as strangers would.
type strange struct{ *rand.Rand }

var hostile = []string{"<!channel>", "<!here|x>", "<@U0A5KQ7U3N3>", "<#C1>", "<https://evil.example|Run's page>",
	"https://evil.example/", "`", "```", "\n", "\r", "\r\n", "\t",
	"&", "&lt;", "&amp", "<", ">", "|", "*", "_", "~", ":white_check_mark:", "✅ Done", "\x00", "\x1b[31m",
	"\x1b]8;;http://evil.example\x07", "\u202e", "\u2066", "\u200b", "\u200d", "\ufeff",
	"👩‍👩‍👧‍👦", "🇩🇪", "e\u0301", "\u0301", "日本語", "\xff\xfe", "plain words ", "go test ./...", "\u2028", "\U000e0041",
	"> quote", "@channel"}

func (s strange) text() string {
	var b strings.Builder
	for range s.IntN(8) {
		w := hostile[s.IntN(len(hostile))]
		n := 1
		if s.IntN(6) == 0 {
			n = s.IntN(3000)
		}
		b.WriteString(strings.Repeat(w, n))
	}
	return b.String()
}

func (s strange) some(f func()) {
	n := s.IntN(4)
	if s.IntN(8) == 0 {
		n = s.IntN(200)
	}
	for range n {
		f()
	}
}

func (s strange) manifest() record.Manifest {
	pick := func(list ...string) string { return list[s.IntN(len(list))] }
	m := record.Manifest{Run: runs, Kind: record.Kind(pick("workflow", "exec", "agent")),
		State:   record.State(pick("complete", "failed", "awaiting_review", s.text())),
		Reason:  record.Reason(pick("", "cancelled", "timed_out", "command_failed", "something_new", s.text())),
		Error:   s.text(),
		Verdict: record.Verdict(pick("verified", "unverified", "failed", "none", "", s.text())), Repo: s.text(),
		Branch: s.text(), Base: s.text(), BaseRefreshed: renderedAt.Add(time.Duration(s.Int64N(1e15)) - 1e12),
		Start: gitd.Hash(pick("", "a")), Head: gitd.Hash(pick("", "a")), Merged: gitd.Hash(pick("", "a", s.text())),
		Agent: s.text(), StartedAt: renderedAt, EndedAt: renderedAt, DurationMS: s.Int64() - 1<<62}
	if s.IntN(2) == 0 {
		m.Usage = &record.Usage{Calls: s.Int64N(1e9), InputTokens: s.Int64N(1e12), OutputTokens: s.Int64N(1e12),
			CostMicros: s.Int64()}
	}
	s.some(func() {
		m.Commands = append(m.Commands, record.ManifestCommand{Step: s.text(), Command: s.text(),
			Exit: number(s.IntN(256)), Reason: s.text(), DurationMS: s.Int64N(1e9)})
	})
	s.some(func() {
		m.Changed = append(m.Changed, gitd.Change{Path: s.text(), OldPath: s.text(), Status: pick("A", "M", "D", "R"),
			Added: s.IntN(1000) - 1, Deleted: s.IntN(1000) - 1})
	})
	s.some(func() {
		m.Checks = append(m.Checks, record.ManifestCheck{Check: s.text(), Task: s.text(), Command: s.text(),
			Step: pick("1", "2"), Tool: s.text(), Why: s.text(),
			Result: record.CheckResult(pick("passed", "failed", "skipped", "not_run", s.text())), Current: s.IntN(2) == 0})
	})
	s.some(func() {
		m.Tests = append(m.Tests,
			record.ManifestTests{Step: pick("1", "2", "3"), Framework: s.text(), Passed: s.IntN(1000),
				Failed: s.IntN(3), FailedNames: []string{s.text(), s.text()}, Unknown: s.IntN(3) == 0})
	})
	s.some(func() {
		m.Files = append(m.Files, record.ManifestFile{Name: pick("artifacts/", "evidence/changes.diff", "journal.jsonl",
			"output/") + s.text(), Size: s.Int64N(1 << 40)})
	})
	s.some(func() { m.Unverified = append(m.Unverified, s.text()) })
	return m
}

// The messages of every run are within Slack's limits and say nothing
// that strangers could have said in ramus's name.
func TestRenderHostile(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 50
	}
	for seed := range rounds {
		s := strange{rand.New(rand.NewPCG(uint64(seed), 7))}
		withinLimits(t, Result{Manifest: s.manifest(),
			Policy: gate.Policy{Runner: gate.Runner(s.text()), Reason: gate.PolicyReason(s.text())}, Page: page,
			Links: pageOf, Clone: s.text(), Output: s.text(), Says: s.text()}.Message())
		r := someRun(record.State([]string{"submitted", "running", "awaiting_review", "addressing_comments", "complete",
			"failed", s.text()}[s.IntN(7)]))
		r.Repo, r.Branch, r.Base, r.Place, r.Reason = s.text(), s.text(), s.text(), s.IntN(100), record.Reason(s.text())
		if s.IntN(2) == 0 {
			r.Gate = &record.Gate{Step: s.text(), Message: s.text()}
		}
		withinLimits(t, Progress(Standing{Run: r, Policy: through, Step: s.text(), Steps: s.IntN(1000),
			Since: renderedAt, Now: renderedAt.Add(time.Duration(s.Int64N(1e16))), Base: renderedAt, Link: page}))
		withinLimits(t, Text(s.text(), s.text()))
		withinLimits(t, Ask(runs, []string{s.text(), "app", s.text()}))
	}
}

func FuzzRender(f *testing.F) {
	for _, s := range hostile {
		f.Add(s, s+s, strings.Repeat(s, 100))
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		m := done()
		m.Error, m.State, m.Repo, m.Branch, m.Agent = a, record.State(b), a, b, c
		m.Commands[0].Command, m.Changed[0].Path, m.Checks[0].Why, m.Tests[0].FailedNames, m.Files[0].Name = c, b, a,
			[]string{a, b, c}, "artifacts/"+a
		m.Unverified = []string{a, b, c}
		withinLimits(t, Result{Manifest: m, Policy: through, Page: page, Links: pageOf, Clone: b, Output: a,
			Says: c}.Message())
		withinLimits(t, Text(a, c))
		withinLimits(t, Text(c, b))
		r := someRun(record.StateAwaitingReview)
		r.Gate = &record.Gate{Step: "s", Message: c}
		withinLimits(t, Progress(Standing{Run: r, Policy: through, Step: b, Now: renderedAt}))
	})
}

func TestLink(t *testing.T) {
	for address, want := range map[string]string{
		"https://ramus.example/a?x=1&y=2": "<https://ramus.example/a?x=1&amp;y=2|a &lt;b&gt;>",
		"http://ramus.example/a|b>c":      "<http://ramus.example/a%7Cb%3Ec|a &lt;b&gt;>",
		"/evidence/x":                     "a &lt;b&gt;",
		"javascript:alert(1)":             "a &lt;b&gt;",
		"":                                "a &lt;b&gt;",
		"https:///x":                      "a &lt;b&gt;",
	} {
		if got := link(address, "a <b>"); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

// A cut never goes through what is one sign to its reader.
func TestCut(t *testing.T) {
	for _, x := range []struct {
		text string
		most int
		want string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"ae\u0301x", 3, "a…"},
		{"ae\u0301xx", 4, "ae\u0301…"},
		{"a👩‍👧b", 4, "a…"},
		{"a👍🏽b", 5, "a…"},
		{"🇩🇪🇫🇷", 6, "🇩🇪…"},
		{"日本語", 2, "日…"},
		{"a\u0301\u0301", 2, "…"},
	} {
		if got := Cut(x.text, x.most); got != x.want || width(got) > x.most {
			t.Errorf("%q to %d: %q, want %q", x.text, x.most, got, x.want)
		}
	}
	for _, s := range []string{"ab&amp;cd", "&lt;&gt;&amp;", "x&amp;"} {
		for most := 1; most < 12; most++ {
			got := cutEscaped(s, most)
			if width(got) > most || strings.Contains(entity.ReplaceAllString(got, ""), "&") ||
				strings.HasSuffix(strings.TrimSuffix(got, "…"), "&") {
				t.Errorf("%q to %d: %q", s, most, got)
			}
		}
	}
}
