package results

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestResultsGrowth checks that the time to read what tools print grows with it.
func TestResultsGrowth(t *testing.T) {
	common := growth.Tokens("a", "\n", "a\n", " ", "    \n", "\x1b[", "\x1b[1m", "\x1b[0;", "{", "{\n", "[", "[\n", "<",
		"<a>", "\"", "é", "\xff", "\x00", "\r\n", "0 a", ": ", "1")
	goEvent := func(action, test string) string {
		return fmt.Sprintf(`{"Action":%q,"Package":"p","Test":%q,"Output":"a"}`+"\n", action, test)
	}
	long := strings.Repeat("a", 500_000)
	all := map[string][]growth.Case{
		"go": append(growth.Tokens(goEvent("fail", "T"), goEvent("output", "T"),
			goEvent("fail", strings.Repeat("a/", 500)), `{"Action":"output","ImportPath":"p","Output":"a"}`+"\n",
			`{"Action":"fail","Package":"p"}`+"\n", `{"a":`, "=== RUN\n", "--- FAIL: a\n", "FAIL\ta\n"),
			growth.Case{Name: "tests", Each: func(n int) string { return goEvent("fail", fmt.Sprintf("T%d", n)) }},
			growth.Case{Name: "subtests", Each: func(n int) string { return goEvent("fail", fmt.Sprintf("T/%d", n)) }},
			growth.Case{Name: "packages",
				Each: func(n int) string { return fmt.Sprintf(`{"Action":"fail","Package":"p%d"}`+"\n", n) }}),
		"tap": append(growth.Tokens("ok 1 - a\n", "not ok 1 - a\n", "not ok\n", "# Subtest: a\n", "    # Subtest: a\n",
			"  ---\n", "  ...\n", "  ---\n  a\n  ...\n", "ok # SKIP\n", "# pass 1\n", "1..1\n", "Bail out!\n", "ok \\#",
			"    not ok\n", "# duration_ms 1\n", "\\"),
			growth.Case{Name: "a long suite", Prefix: "# Subtest: " + long + "\n", Token: "    not ok\n",
				Limit: 8 << 20}, growth.Case{Name: "a YAML block", Prefix: "not ok 1\n  ---\n", Token: "  a\n"}),
		"tapsums": growth.Tokens("# pass 1\n", "# tests 1\n", "# pass "),
		"jest": append(growth.Tokens(`{"a":1}`+"\n", `{"testResults":[`, `{"testResults":[`+"\n",
			`{"numTotalTests":1`+"\n"), growth.Case{Name: "files", Prefix: `{"numTotalTests":1,"testResults":[`,
			Token: `{"status":"failed"},`, Suffix: "{}]}"},
			growth.Case{Name: "tests", Prefix: `{"numTotalTests":1,"testResults":[{"assertionResults":[`,
				Token: `{"status":"failed","title":"a","ancestorTitles":["b"]},`, Suffix: "{}]}]}"},
			growth.Case{Name: "titles",
				Prefix: `{"numTotalTests":1,"testResults":[{"assertionResults":[{"status":"failed","ancestorTitles":[`,
				Token:  `"",`, Suffix: `""]}]}]}`},
			growth.Case{Name: "attempts", Prefix: strings.Repeat("{\n", 30) + `{"a":[`, Token: "1,", Suffix: "]}"}),
		"mocha": {{Name: "failures", Prefix: `{"stats":{},"failures":[`, Token: `{"err":{"stack":"a"}},`,
			Suffix: "{}]}"}, {Name: "passes", Prefix: `{"stats":{},"passes":[`, Token: "1,", Suffix: "{}]}"}},
		"jstext": growth.Tokens("Tests: 1 total\n", "Tests: 1 failed, ", " Tests  1 a (1)\n", " Tests  1 a | ",
			"  1 passing (1ms)\n", "  1 failing\n", "1 passed ", "Tests: ", " Tests ", " 1 passing ("),
		"junit": append(growth.Tokens("<testsuite>", "<testsuites/>", "<testsuite/>", "<a/>", "&amp;", "<!--",
			"<!-- -->", "<![CDATA[", "<![CDATA[]]>", "<?a?>", "<a b=\"", "&", "</a>"),
			growth.Case{Name: "tests", Prefix: "<testsuite>",
				Token: `<testcase name="a"><failure message="b">c</failure></testcase>`, Suffix: "</testsuite>"},
			growth.Case{Name: "attributes", Prefix: "<testsuite", Token: ` a="b"`, Suffix: "/>"},
			growth.Case{Name: "names", Prefix: "<testsuite", Each: func(n int) string {
				return fmt.Sprintf(` a%d="b"`,
					n)
			}, Suffix: "/>"}, growth.Case{Name: "text", Prefix: "<testsuite><testcase><failure>", Token: "a\n"}),
		"pytest": growth.Tokens("1 passed in 1s\n", "1 passed, ", "=", "= 1 passed in 1s =\n", "FAILED a - b\n",
			"FAILED ", "FAILED a", " - ", "ERROR a\n", "no tests ran in "),
		"unittest": growth.Tokens("Ran 1 test in 1s\n", "FAIL: a\n", "ERROR: a (b)\n", "OK (", "FAILED (failures=1)\n",
			"FAILED (failures=1, ", strings.Repeat("-", 70)+"\n", strings.Repeat("=", 70)+"\n"),
		"cargo": append(growth.Tokens("test result: ok. 1 passed; 1 failed; 1 ignored; finished in 1s\n",
			"test a ... FAILED\n", "test ", "test a ... ", "---- a stdout ----\n", "failures:\n",
			"test result: ok. 1 passed; 1 failed; 1 ignored;"),
			growth.Case{Name: "names", Each: func(n int) string { return fmt.Sprintf("test n%d ... FAILED\n", n) }},
			growth.Case{Name: "quotes",
				Each: func(n int) string { return fmt.Sprintf("---- n%d stdout ----\na\nfailures:\n", n) }}),
	}
	for name, cases := range all {
		growth.Check(t, name, func(text []byte) { parsers[name](text) }, append(cases, common...)...)
	}
	growth.Check(t, "go text", func(text []byte) { GoText(text) }, append(all["go"], common...)...)
	growth.Check(t, "findings", func(text []byte) { ParseFindings(text) },
		append(growth.Tokens("a:1:1: a\n", "a:1: ", "a(1,1): a\n", "a(", "a:", "1:", "http://a:1: b\n"),
			append(common, growth.Case{Name: "places",
				Each: func(n int) string { return fmt.Sprintf("a:%d: b\n", n) }})...)...)
	growth.Check(t, "eslint", func(text []byte) { ParseESLint(text) }, append(common,
		growth.Case{Name: "messages", Prefix: `[{"messages":[`, Token: `{"line":1},`, Suffix: "{}]}]"})...)
}
