package results

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/internal/golden"
)

// parsers are all parsers of test results, by the first word of their golden files.
var parsers = map[string]func([]byte) (*Tests, bool){
	"go": ParseGoTest, "tap": ParseTAP, "tapsums": ParseTAPSums, "jest": ParseJest, "vitest": ParseJest, "mocha": ParseMocha,
	"jstext": ParseJSText, "junit": ParseJUnit, "pytest": ParsePytest, "unittest": ParseUnittest, "cargo": ParseCargo,
}

// TestResults compares with golden files. NAME.txt is what a real tool printed
// (go 1.26, node 20, vitest 3, jest 29, mocha 11, pytest 7, Python 3.11, cargo
// 1.95, eslint 9, tsc 5), with its folders renamed; -plain, -bail and lint-python were written by hand.
func TestResults(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			in, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			kind, _, _ := strings.Cut(name, "-")
			var got any
			switch kind {
			case "lint":
				got = ParseFindings(in)
			case "eslint":
				l, ok := ParseESLint(in)
				if !ok {
					t.Error("not recognised")
				}
				got = l
			default:
				r, ok := parsers[kind](in)
				if !ok {
					t.Errorf("not recognised")
				}
				if ok {
					checkTests(t, r)
				}
				got = r
			}
			text, err := json.MarshalIndent(got, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, '\n')
			golden.CompareFile(t, strings.TrimSuffix(file, ".txt")+".json", string(text))
		})
	}
}

// checkTests checks the invariants of every result.
func checkTests(t testing.TB, r *Tests) {
	t.Helper()
	switch {
	case r.Passed < 0 || r.Failed < 0 || r.Skipped < 0 || r.DurationMS < 0:
		t.Errorf("negative: %+v", r)
	case r.Total != r.Passed+r.Failed+r.Skipped:
		t.Errorf("the total is not the sum: %+v", r)
	case len(r.FailedNames) > maxFailedNames || len(r.FailedNames) > r.Failed:
		t.Errorf("%d names of %d failed", len(r.FailedNames), r.Failed)
	case len(r.Failures) > maxFailures:
		t.Errorf("%d failures", len(r.Failures))
	}
	for _, n := range r.FailedNames {
		if len(n) > maxName+len("…") || !utf8.ValidString(n) {
			t.Errorf("name %q", n)
		}
	}
	for _, f := range r.Failures {
		if len(f.Text) > maxFailureText+len("…") || !utf8.ValidString(f.Text) {
			t.Errorf("text %q", f.Text)
		}
	}
}

func TestGoText(t *testing.T) {
	in, err := os.ReadFile("testdata/go-mixed.txt")
	if err != nil {
		t.Fatal(err)
	}
	got := GoText(in)
	for _, want := range []string{"--- FAIL: TestTable/three", "got 1, want 2", "cannot use \"text\"",
		"FAIL\texample.org/m/panics", "?   \texample.org/m/none"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	for _, not := range []string{"TestLeaf", "=== RUN", `"Action"`} {
		if strings.Contains(got, not) && not != `"Action"` {
			t.Errorf("%q is in\n%s", not, got)
		}
	}
	if got := GoText([]byte("go: no module\n{\"a\":1}\n")); got != "go: no module\n{\"a\":1}\n" {
		t.Errorf("lines that are no events became %q", got)
	}
}

// Many failures stay within the bounds, and the digest of a long output changes nothing.
func TestGoTestIsBounded(t *testing.T) {
	var out strings.Builder
	for i := range 5000 {
		name := "Test" + strings.Repeat("x", i%700) + string(rune('A'+i%26)) + strings.Repeat("é", i%5)
		for _, e := range []map[string]any{
			{"Action": "output", "Package": "p", "Test": name + "/" + string(rune('a'+i/700)),
				"Output": strings.Repeat("out ", 100)},
			{"Action": "fail", "Package": "p", "Test": name + "/" + string(rune('a'+i/700))},
		} {
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(append(line, '\n'))
		}
	}
	r, ok := ParseGoTest([]byte(out.String()))
	if !ok || len(r.FailedNames) != maxFailedNames || r.Failed < 1000 {
		t.Fatalf("ok %v, %d names, %d failed", ok, len(r.FailedNames), r.Failed)
	}
	checkTests(t, r)
	twice, _ := ParseGoTest([]byte(out.String() + out.String()))
	if twice.Total != r.Total {
		t.Errorf("read twice: %d became %d", r.Total, twice.Total)
	}
}

func TestParseAnyAddsUp(t *testing.T) {
	var all []byte
	want := 0
	for _, name := range []string{"pytest", "cargo", "tap-plain", "jstext-vitest"} {
		in, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		kind, _, _ := strings.Cut(name, "-")
		r, _ := parsers[kind](in)
		want += r.Total
		all = append(append(all, in...), '\n')
	}
	r, ok := ParseAny(all, nil)
	if !ok || r.Total != want {
		t.Errorf("got %v, %d tests; want %d", ok, r.Total, want)
	}
	checkTests(t, r)
	if r, ok := ParseAny([]byte("all fine\n3 passed\n"), nil); ok {
		t.Errorf("prose was counted: %+v", r)
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"", 5, ""},
		{"abcde", 5, "abcde"},
		{"abcdef", 5, "abcde…"},
		{"éééé", 8, "éééé"},
		{"éééé", 7, "ééé…"},
		{"\xff\xff\xff", 5, "\uFFFD"},
		{"\xffa\xff\xff", 4, "\uFFFDa…"},
	} {
		if got := shorten(c.in, c.n); got != c.want {
			t.Errorf("%q to %d: got %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

// seed adds the golden inputs whose names begin with kind.
func seed(f *testing.F, kind string) {
	files, err := filepath.Glob("testdata/" + kind + "*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		in, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(in)
	}
}

func fuzzTests(f *testing.F, kind string, parse func([]byte) (*Tests, bool)) {
	seed(f, kind)
	f.Fuzz(func(t *testing.T, in []byte) {
		if r, ok := parse(in); ok {
			checkTests(t, r)
			if _, err := json.Marshal(r); err != nil {
				t.Error(err)
			}
		}
	})
}

func FuzzGoTest(f *testing.F) { fuzzTests(f, "go", ParseGoTest) }

func FuzzTAP(f *testing.F) { fuzzTests(f, "tap", ParseTAP) }

func FuzzTAPSums(f *testing.F) { fuzzTests(f, "tap", ParseTAPSums) }

func FuzzJest(f *testing.F) { fuzzTests(f, "jest", ParseJest) }

func FuzzMocha(f *testing.F) { fuzzTests(f, "mocha", ParseMocha) }

func FuzzJSText(f *testing.F) { fuzzTests(f, "jstext", ParseJSText) }

func FuzzJUnit(f *testing.F) { fuzzTests(f, "junit", ParseJUnit) }

func FuzzPytest(f *testing.F) { fuzzTests(f, "pytest", ParsePytest) }

func FuzzUnittest(f *testing.F) { fuzzTests(f, "unittest", ParseUnittest) }

func FuzzCargo(f *testing.F) { fuzzTests(f, "cargo", ParseCargo) }

func FuzzFindings(f *testing.F) {
	seed(f, "lint")
	seed(f, "eslint")
	f.Fuzz(func(t *testing.T, in []byte) {
		e, _ := ParseESLint(in)
		for _, l := range []Lint{ParseFindings(in), e} {
			if len(l.Findings) > maxFindings || len(l.Findings) > l.Count {
				t.Errorf("%d findings, count %d", len(l.Findings), l.Count)
			}
		}
	})
}

func FuzzGoText(f *testing.F) {
	seed(f, "go")
	f.Fuzz(func(t *testing.T, in []byte) { GoText(in) })
}

// TestNesting reads suites to the depth that is allowed, and no deeper.
func TestNesting(t *testing.T) {
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`<testsuite name="s">`, depth-1) + `<testcase name="a"/>` +
			strings.Repeat("</testsuite>", depth-1))
	}
	if r, ok := ParseJUnit(nested(maxSuiteDepth)); !ok || r.Passed != 1 {
		t.Errorf("%d elements deep: %v, %+v", maxSuiteDepth, ok, r)
	}
	if _, ok := ParseJUnit(nested(maxSuiteDepth + 1)); ok {
		t.Errorf("%d elements deep is read", maxSuiteDepth+1)
	}

	point := func(indent int) []byte {
		return []byte("TAP version 13\n" + strings.Repeat(" ", indent) + "ok 1 - inner\nok 2 - outer\n1..2\n")
	}
	for indent, want := range map[int]int{2: 1, 4 * (maxSuiteDepth + 1): 1} {
		if r, ok := ParseTAP(point(indent)); !ok || r.Passed != want {
			t.Errorf("a line with %d spaces before it: %v, %+v", indent, ok, r)
		}
	}
}
