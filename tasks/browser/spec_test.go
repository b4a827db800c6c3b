package browser_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/internal/golden"
	"github.com/ramus-dev/ramus/tasks/browser"
	"github.com/ramus-dev/ramus/tasks/document"
)

func TestParse(t *testing.T) {
	text, err := os.ReadFile("testdata/todo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := browser.Parse("testdata/todo.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	share := 0.01
	second := browser.Duration(time.Second)
	want := browser.Spec{
		Name: "Todo list", Install: "npm ci", Start: "npm run dev -- --port 5173", Dir: "web", URL: "http://127.0.0.1:5173/",
		Wait: 90 * second, Timeout: 180 * second,
		Viewports: []browser.Viewport{browser.Desktop, {Name: "tablet", Width: 820, Height: 1180, Scale: 2,
			Mobile: true}, {Name: "1024x768", Width: 1024, Height: 768, Scale: 1}},
		Steps: []browser.Step{
			{Do: "goto", Target: "/login"},
			{Do: "fill", Target: "#user", Value: "ada"},
			{Do: "fill", Target: "#password", Value: "correct horse", Secret: true},
			{Do: "press", Target: "Enter", In: "#password"},
			{Do: "wait_for", Target: "#list", Timeout: 20 * second},
			{Do: "click", Target: "button:has-text('Add')"},
			{Do: "select", Target: "#sort", Value: "Newest"},
			{Do: "check", Target: "#done"},
			{Do: "uncheck", Target: "#done"},
			{Do: "hover", Target: "#menu"},
			{Do: "expect_text", Target: "[data-testid=count]", Value: "1 item"},
			{Do: "expect_visible", Target: "#list"},
			{Do: "expect_hidden", Target: "#spinner"},
			{Do: "expect_url", Target: "/todos"},
			{Do: "expect_title", Target: "Todo"},
			{Do: "expect_count", Target: "#list li", Value: "3"},
			{Do: "screenshot", Target: "filled in"},
		},
		Auth: "node scripts/sign-in.mjs",
		Allow: browser.Allow{Console: []string{"^Download the React DevTools"},
			PageErrors: []string{"ResizeObserver loop"}, Requests: []string{`^https://example\.com/beacon`}},
		Screenshot: browser.Shot{FullPage: true, Selector: "main", Mask: []string{".clock", "[data-private]"}},
		Video:      true, PDF: true, Compare: &browser.Against{Base: "main", MaxChanged: &share, Threshold: 0.2},
		Clock: "2026-03-01T12:00:00Z",
	}
	for i := range want.Steps {
		if want.Steps[i].Timeout == 0 {
			want.Steps[i].Timeout = 10 * second
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	same(t, got)
}

// same checks that a spec survives being written and read, by the parser and by encoding/json.
func same(t *testing.T, s browser.Spec) {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := browser.Parse("x", text)
	if err != nil || !reflect.DeepEqual(again, s) {
		t.Errorf("%s\nread again: %+v, %v\nwas %+v", text, again, err, s)
	}
	var plain browser.Spec
	if err := json.Unmarshal(text, &plain); err != nil || !reflect.DeepEqual(plain, s) {
		t.Errorf("%s\nunmarshalled: %+v, %v\nwas %+v", text, plain, err, s)
	}
	if twice, _ := json.Marshal(plain); string(twice) != string(text) {
		t.Errorf("written again: %s\nwas %s", twice, text)
	}
}

func TestDefaults(t *testing.T) {
	s, err := browser.Parse(".ramus/browser/front page.yml", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	want := browser.Spec{
		Name: "front page", Wait: browser.Duration(time.Minute), Timeout: browser.Duration(2 * time.Minute),
		Viewports: []browser.Viewport{browser.Desktop, browser.Mobile},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%+v", s)
	}
	same(t, s)
	if s, err := (browser.Spec{Compare: &browser.Against{}}).Complete(); err != nil || s.Name != "page" ||
		s.Compare.Threshold != browser.DefaultThreshold {
		t.Errorf("%+v, %v", s, err)
	}
	// What was given stays as it is.
	viewports := []browser.Viewport{{Width: 300, Height: 300}}
	if _, err := (browser.Spec{Viewports: viewports}).Complete(); err != nil || viewports[0].Scale != 0 {
		t.Errorf("%+v, %v", viewports, err)
	}
}

func TestParseJSON(t *testing.T) {
	s, err := browser.Parse("check",
		[]byte("{\n\t\"url\": \"http:\\/\\/[::1]:8080\\/\",\n\t\"steps\": [{\"value\": \"\\ud83d\\ude00\\n\", \"fill\": \"#a\"}]\n}"))
	if err != nil || s.URL != "http://[::1]:8080/" || s.Steps[0].Do != "fill" || s.Steps[0].Value != "😀\n" {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestProblems tests that all mistakes are reported, each once, at its position.
func TestProblems(t *testing.T) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	if len(files) < 5 {
		t.Fatalf("only %q", files)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = browser.Parse(filepath.Base(file), text)
		var problems document.Problems
		if !errors.As(err, &problems) {
			t.Errorf("%s: %v", file, err)
			continue
		}
		golden.CompareFile(t, strings.TrimSuffix(file, ".yaml")+".problems", err.Error()+"\n")
	}
}

func TestBounds(t *testing.T) {
	many := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	for name, c := range map[string]struct{ text, want string }{
		"a large file": {"name: a\n# " + strings.Repeat("x", 256<<10), "a spec may have 262144"},
		"201 steps":    {"steps: " + many(201, "{click: a}"), "steps are 201, and the limit is 200"},
		"11 viewports": {"viewports: " + many(11, "desktop"), "viewports are 11, and the limit is 10"},
		"101 patterns": {"allow: {console: " + many(60, "a") + ", requests: " + many(41, "b") + "}",
			"allow has 101 patterns, and the limit is 100"},
		"101 masks":              {"screenshot: {mask: " + many(101, "a") + "}", "the limit is 100"},
		"a long pattern":         {"allow: {console: [" + strings.Repeat("a", 1001) + "]}", "the limit is 1000"},
		"a long selector":        {"steps: [{click: " + strings.Repeat("a", 2001) + "}]", "the limit is 2000"},
		"a long command":         {"start: " + strings.Repeat("a", 16<<10+1), "the limit is 16384"},
		"a costly pattern":       {"allow: {console: ['(a{1000}){1000}']}", "RE2"},
		"NUL":                    {`start: "a\0b"`, "NUL"},
		"a long base":            {"compare: {base: " + strings.Repeat("a", 251) + "}", "must be a branch or a commit"},
		"a character of no base": {"compare: {base: 'main~1'}", "must be a branch or a commit"},
		"a space in a base":      {"compare: {base: 'a b'}", "must be a branch or a commit"},
		"a count below 0":        {"steps: [{expect_count: li, value: '-1'}]", "must be a number of elements"},
		"a large count":          {"steps: [{expect_count: li, value: '1000001'}]", "must be a number of elements"},
		"a name with colours":    {`name: "a\e[31m"`, "readable name"},
		"not a number":           {"compare: {max_changed: .nan}", "is not allowed in a spec"},
		"two documents":          {"a: b\n---\nc: d\n", "a spec holds one"},
	} {
		_, err := browser.Parse("x.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	for _, n := range []string{"0", "1000000"} {
		if _, err := browser.Parse("x.yaml", []byte("steps: [{expect_count: li, value: '"+n+"'}]")); err != nil {
			t.Error(err)
		}
	}
	if _, err := browser.Parse("x.yaml", []byte("steps: "+many(200, "{click: a}")+"\nallow: {console: "+many(100, "a")+
		"}\ncompare: {base: "+strings.Repeat("a", 250)+"}")); err != nil {
		t.Error(err)
	}
}

func TestCompleteTellsAllMistakes(t *testing.T) {
	_, err := browser.Spec{URL: "x", Viewports: []browser.Viewport{{Name: "a", Width: 1, Height: 300}},
		Steps: []browser.Step{{Do: "jump"}}}.Complete()
	for _, want := range []string{"url must begin with", "width of viewport 1 must be 200 to 4000", `step 1 has no action "jump"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

func TestSlug(t *testing.T) {
	for name, want := range map[string]string{
		"Todo list": "todo-list", "../../etc": "etc", "": "page", "…": "page", "Ä b": "b", "a--b": "a-b",
		strings.Repeat("ab ", 100): strings.Repeat("ab-", 20)[:59], "x/y.z": "x-y-z",
	} {
		if got := (browser.Spec{Name: name}).Slug(); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		90 * time.Second: `"1m30s"`, 2 * time.Minute: `"2m"`, time.Hour: `"1h"`, 0: `"0s"`,
		1500 * time.Millisecond: `"1.5s"`, time.Hour + time.Second: `"1h0m1s"`,
	} {
		text, err := json.Marshal(browser.Duration(d))
		var back browser.Duration
		if err != nil || string(text) != want || json.Unmarshal(text, &back) != nil || time.Duration(back) != d {
			t.Errorf("%v: %s, %v, back %v", d, text, err, back)
		}
	}
	for _, text := range []string{`5`, `"5"`, `"soon"`, `null x`, `{}`} {
		if err := json.Unmarshal([]byte(text), new(browser.Duration)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

func TestStepsOfJSON(t *testing.T) {
	for _, text := range []string{`{}`, `{"value":"x"}`, `{"click":"a","fill":"b"}`, `{"jump":"a"}`, `{"click":5}`,
		`"click"`, `{"click":"a","timeout":5}`} {
		if err := json.Unmarshal([]byte(text), new(browser.Step)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	if _, err := json.Marshal(browser.Step{Do: "jump"}); err == nil {
		t.Error("an unknown action is written")
	}
	text, err := json.Marshal(browser.Step{Do: "fill", Target: "#new", Value: "<a>", Secret: true,
		Timeout: browser.Duration(5 * time.Second)})
	if want := `{"fill":"#new","secret":true,"timeout":"5s","value":"\u003ca\u003e"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}

// Parse ends for every file, and the specs that it accepts survive being written.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "testdata/bad/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte(`{"url": "http://a/", "steps": [{"expect_count": "a", "value": 03}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := browser.Parse("fuzz.yaml", text)
		if err == nil {
			same(t, s)
			return
		}
		var problems document.Problems
		if !errors.As(err, &problems) || len(problems) == 0 {
			t.Fatalf("got %v, want problems", err)
		}
		for _, p := range problems {
			if p.Line < 1 || p.Column < 1 || p.Message == "" || !utf8.ValidString(p.Message) {
				t.Fatalf("a problem at no place: %+v in %q", p, text)
			}
		}
	})
}
