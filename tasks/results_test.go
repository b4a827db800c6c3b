package tasks

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

var updateResults = flag.Bool("update-results", false, "write the golden files of testdata/results anew")

// parsers are all parsers of test results, by the first word of their golden files.
var parsers = map[string]func([]byte) (*Tests, bool){
	"go": parseGoTest, "tap": parseTAP, "tapsums": parseTAPSums, "jest": parseJest, "vitest": parseJest, "mocha": parseMocha,
	"jstext": parseJSText, "junit": parseJUnit, "pytest": parsePytest, "unittest": parseUnittest, "cargo": parseCargo,
}

// TestResults compares with golden files. NAME.txt is what a real tool printed
// (go 1.26, node 20, vitest 3, jest 29, mocha 11, pytest 7, Python 3.11, cargo
// 1.95, eslint 9, tsc 5), with its folders renamed; -plain, -bail and lint-python were written by hand.
func TestResults(t *testing.T) {
	files, err := filepath.Glob("testdata/results/*.txt")
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
				got = parseFindings(in)
			case "eslint":
				l, ok := parseESLint(in)
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
			golden := strings.TrimSuffix(file, ".txt") + ".json"
			if *updateResults {
				if err := os.WriteFile(golden, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(text, want) {
				t.Errorf("got\n%s\nwant\n%s", text, want)
			}
		})
	}
}

// checkTests is what holds for every result, whatever was parsed.
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
	in, err := os.ReadFile("testdata/results/go-mixed.txt")
	if err != nil {
		t.Fatal(err)
	}
	got := goText(in)
	for _, want := range []string{"--- FAIL: TestTable/three", "got 1, want 2", "cannot use \"text\"", "FAIL\texample.org/m/panics", "?   \texample.org/m/none"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	for _, not := range []string{"TestLeaf", "=== RUN", `"Action"`} {
		if strings.Contains(got, not) && not != `"Action"` {
			t.Errorf("%q stands in\n%s", not, got)
		}
	}
	if got := goText([]byte("go: no module\n{\"a\":1}\n")); got != "go: no module\n{\"a\":1}\n" {
		t.Errorf("lines that are no events became %q", got)
	}
}

// Many failures stay within the bounds, and the digest of a long output changes nothing.
func TestGoTestIsBounded(t *testing.T) {
	var out strings.Builder
	for i := range 5000 {
		name := "Test" + strings.Repeat("x", i%700) + string(rune('A'+i%26)) + strings.Repeat("é", i%5)
		for _, e := range []map[string]any{
			{"Action": "output", "Package": "p", "Test": name + "/" + string(rune('a'+i/700)), "Output": strings.Repeat("out ", 100)},
			{"Action": "fail", "Package": "p", "Test": name + "/" + string(rune('a'+i/700))},
		} {
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(append(line, '\n'))
		}
	}
	r, ok := parseGoTest([]byte(out.String()))
	if !ok || len(r.FailedNames) != maxFailedNames || r.Failed < 1000 {
		t.Fatalf("ok %v, %d names, %d failed", ok, len(r.FailedNames), r.Failed)
	}
	checkTests(t, r)
	twice, _ := parseGoTest([]byte(out.String() + out.String()))
	if twice.Total != r.Total {
		t.Errorf("read twice: %d became %d", r.Total, twice.Total)
	}
}

func TestParseAnyAddsUp(t *testing.T) {
	var all []byte
	want := 0
	for _, name := range []string{"pytest", "cargo", "tap-plain", "jstext-vitest"} {
		in, err := os.ReadFile("testdata/results/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		kind, _, _ := strings.Cut(name, "-")
		r, _ := parsers[kind](in)
		want += r.Total
		all = append(append(all, in...), '\n')
	}
	r, ok := parseAny(nil, all, nil, false)
	if !ok || r.Total != want {
		t.Errorf("got %v, %d tests; want %d", ok, r.Total, want)
	}
	checkTests(t, r)
	if r, ok := parseAny(nil, []byte("all fine\n3 passed\n"), nil, false); ok {
		t.Errorf("prose was counted: %+v", r)
	}
}

func TestClip(t *testing.T) {
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
		if got := clip(c.in, c.n); got != c.want {
			t.Errorf("%q to %d: got %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

func TestParseStatus(t *testing.T) {
	const in = "# branch.oid 0123\n# branch.head work\n# branch.upstream origin/work\n# branch.ab +2 -3\n# unknown thing\n" +
		"1 .M N... 100644 100644 100644 aa bb a b.txt\n" +
		"1 A. N... 000000 100644 100644 aa bb \"tab\\there\"\n" +
		"1 .D N... 100644 100644 000000 aa bb gone\n" +
		"2 R. N... 100644 100644 100644 aa bb R100 new name\told name\n" +
		"u UU N... 100644 100644 100644 100644 aa bb cc clash\n" +
		"? \"new\\nline\"\n! ignored\n9 future\n"
	got, err := parseStatus([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	want := Status{Branch: "work", Head: "0123", Upstream: "origin/work", Ahead: 2, Behind: 3, Changed: 6, Files: []FileStatus{
		{"a b.txt", "", "modified"}, {"tab\there", "", "added"}, {"gone", "", "deleted"},
		{"new name", "old name", "renamed"}, {"clash", "", "conflict"}, {"new\nline", "", "untracked"},
	}}
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if !bytes.Equal(g, w) {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
	for _, in := range []string{"1 x\n", "# branch.ab ++\n", "2 R. a b\n"} {
		if _, err := parseStatus([]byte(in)); err == nil {
			t.Errorf("%q was read", in)
		}
	}
}

// seed adds the golden inputs whose names begin with kind.
func seed(f *testing.F, kind string) {
	files, err := filepath.Glob("testdata/results/" + kind + "*.txt")
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

func FuzzGoTest(f *testing.F)   { fuzzTests(f, "go", parseGoTest) }
func FuzzTAP(f *testing.F)      { fuzzTests(f, "tap", parseTAP) }
func FuzzTAPSums(f *testing.F)  { fuzzTests(f, "tap", parseTAPSums) }
func FuzzJest(f *testing.F)     { fuzzTests(f, "jest", parseJest) }
func FuzzMocha(f *testing.F)    { fuzzTests(f, "mocha", parseMocha) }
func FuzzJSText(f *testing.F)   { fuzzTests(f, "jstext", parseJSText) }
func FuzzJUnit(f *testing.F)    { fuzzTests(f, "junit", parseJUnit) }
func FuzzPytest(f *testing.F)   { fuzzTests(f, "pytest", parsePytest) }
func FuzzUnittest(f *testing.F) { fuzzTests(f, "unittest", parseUnittest) }
func FuzzCargo(f *testing.F)    { fuzzTests(f, "cargo", parseCargo) }

func FuzzFindings(f *testing.F) {
	seed(f, "lint")
	seed(f, "eslint")
	f.Fuzz(func(t *testing.T, in []byte) {
		e, _ := parseESLint(in)
		for _, l := range []Lint{parseFindings(in), e} {
			if len(l.Findings) > maxFindings || len(l.Findings) > l.Count {
				t.Errorf("%d findings, count %d", len(l.Findings), l.Count)
			}
		}
	})
}

func FuzzGoText(f *testing.F) {
	seed(f, "go")
	f.Fuzz(func(t *testing.T, in []byte) { goText(in) })
}

func FuzzStatus(f *testing.F) {
	f.Add([]byte("# branch.head work\n1 .M N... 1 1 1 a b c\n? \"x\\\"y\"\n2 R. N... 1 1 1 a b R1 c\td\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s, _ := parseStatus(in)
		if s.Changed < len(s.Files) || s.Clean != (s.Changed == 0) {
			t.Errorf("got %+v", s)
		}
	})
}

func FuzzMakeTargets(f *testing.F) {
	f.Add([]byte("all: build test\nbuild:\n\tgo build\n.PHONY: all\nX := y\ndefine d\na:\nendef\n%.o: %.c\na b c:: d\nV: X = 1\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, name := range parseMakeTargets(in) {
			if name == "" || name[0] == '-' || strings.ContainsAny(name, "=$%: \t\n'") {
				t.Errorf("target %q", name)
			}
		}
	})
}

func FuzzNodeTool(f *testing.F) {
	f.Add("tsc && NODE_ENV=test npx vitest run | cat")
	f.Fuzz(func(t *testing.T, script string) { nodeTool(script) })
}
