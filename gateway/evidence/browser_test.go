package evidence

import (
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/render/rendertest"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/internal/golden"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// browserManifest returns the manifest of a run with three browser checks. One failed and is compared with its base,
// one passed, and one could not open the page.
func browserManifest() *record.Manifest {
	m := &record.Manifest{Head: "1111111111111111111111111111111111111111"}
	views := []browser.View{
		{Viewport: browser.Desktop, Verdict: browser.Fail,
			Reason: `step 2 (expect_text "#count") failed: it says "0 items", not "1 item"`,
			URL:    "http://127.0.0.1:5173/", FinalURL: "http://127.0.0.1:5173/?list=<today>",
			Status: 200, Title: "Today", Requests: 12, Allowed: 1, DurationMS: 1830,
			Console: browser.Console{Counts: map[string]int{"error": 2, "log": 3},
				Errors:     []string{"cannot save: <b>quota</b>", "Failed to load resource"},
				PageErrors: []string{"TypeError: items is undefined"}},
			Network: []browser.NetworkError{{Method: "POST", URL: "http://127.0.0.1:5173/api/items", Status: 500},
				{Method: "GET", URL: "http://127.0.0.1:5173/logo.svg", Failure: "net::ERR_CONNECTION_REFUSED"}},
			Steps: []browser.StepResult{{Do: "fill", Target: "#new", Value: "Write tests", OK: true, MS: 41},
				{Do: "fill", Target: "#password", Value: "[redacted]", Secret: true, OK: true, MS: 12},
				{Do: "expect_text", Target: "#count", Value: "1 item", MS: 10003,
					Error:      "timed out after 10 s\nthe element says \"0 items\"",
					Screenshot: "001-todo/desktop/step-03.png"}}},
		{Viewport: browser.Mobile, Verdict: browser.Pass, Reason: "3 steps, no errors", URL: "http://127.0.0.1:5173/",
			FinalURL: "http://127.0.0.1:5173/", Status: 200, Title: "Today", Requests: 12, DurationMS: 1410,
			Console: browser.Console{Counts: map[string]int{"log": 3}},
			Steps: []browser.StepResult{{Do: "fill", Target: "#new", Value: "Write tests", OK: true, MS: 44},
				{Do: "press", Target: "Enter", In: "#new", OK: true, MS: 9},
				{Do: "expect_text", Target: "#count", Value: "1 item", OK: true, MS: 30}}},
	}
	c := rendertest.AddCheck(m, "todo", views...)
	m.Files = append(m.Files,
		record.ManifestFile{Name: render.BrowserFiles + "001-todo/desktop/step-03.png", Type: "image/png"})
	rendertest.AddComparison(m, c, 0.0312, 0)
	c.Spec, c.Browser, c.DurationMS, c.MemoryPeak = ".ramus/browser/todo.yaml", "Chromium 156.0.8078.79", 6200, 171<<20
	c.Views[0].Steps = views[0].Steps
	k := c.Compare
	k.Commit, k.Cached, k.Reason = "2222222222222222222222222222222222222222", true, "3 steps, no errors"
	k.Views[0].Pixels, k.Views[0].Boxes = 44928,
		[]browser.Box{{X: 10, Y: 20, Width: 300, Height: 40}, {X: 10, Y: 80, Width: 30, Height: 40}}
	k.Views[0].Aria = "@@ -1,3 +1,3 @@\n - heading \"Today\" [level=1]\n-- text: 1 item\n+- text: 0 items\n"

	older := rendertest.AddCheck(m, "checkout", browser.View{Viewport: browser.Desktop, Verdict: browser.Pass,
		Reason: "the page at the end", URL: "http://127.0.0.1:5173/checkout", Status: 200, Requests: 1, DurationMS: 900,
		Console: browser.Console{Counts: map[string]int{}}})
	older.Commit, older.DurationMS = "3333333333333333333333333333333333333333", 900
	m.Browser = append(m.Browser,
		browser.Check{Name: `<script>alert(1)</script>`, Verdict: browser.Unverified,
			Reason: "nothing listened at 127.0.0.1:5173 within 1 min", DurationMS: 60_000,
			Log: "Error: cannot find module 'vite'\n"},
		browser.Check{Name: "odd", Verdict: "GREAT", Reason: "a verdict that there is not",
			Views: []browser.View{{Viewport: browser.Desktop, Screenshot: "../../journal.jsonl", Trace: "/etc/passwd"}}})
	return m
}

// browserPage returns the part of a run's page that shows the browser checks.
func browserPage(t *testing.T, m *record.Manifest) string {
	t.Helper()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	s := &API{Links: &links.Signer{Key: []byte("0123456789abcdef0123456789abcdef")}, Now: func() time.Time { return now }}
	c := (&route.Mux{Links: s.Links}).NewCall(nil, nil, route.AccessSigned)
	c.Until = now.Add(time.Hour)
	otter, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	r := record.Run{ID: "20261122-120000-aaaa", Caller: otter, Repo: "app", Branch: "ramus/run-otter",
		Workflow: "check", State: record.StateComplete, Head: m.Head}
	p := &RunPage{Run: r, Title: "Workflow check", State: stateBadge(r), Now: render.Time(now)}
	kept := map[string]bool{}
	for _, f := range m.Files {
		kept[f.Name] = true
	}
	s.showBrowser(c, p, r, m, kept)
	var b strings.Builder
	if err := pages.ExecuteTemplate(&b, "run.html", p); err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(b.String(), "</head>")
	return body
}

func TestBrowserChecksOnThePage(t *testing.T) {
	got := browserPage(t, browserManifest())
	for _, never := range []string{"<script>", "passwd", "journal.jsonl", "GREAT"} {
		if strings.Contains(got, never) {
			t.Errorf("the page has %q", never)
		}
	}
	for _, want := range []string{`/trace/index.html?trace=%2Fevidence%2Frun%3Aotter%2F20261122-120000-aaaa%2Ffiles%2Fartifacts%2Fbrowser%2F001-todo%2Fdesktop%2Ftrace.zip%3Fexpires%3D`,
		`width="1440" height="1000" loading="lazy"`, "3.1 % of the pixels differ in 2 places", "no pixel differs",
		"before the last change"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	golden.Compare(t, "page-browser.html", got)
}
