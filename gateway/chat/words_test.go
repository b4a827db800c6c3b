package chat

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/golden"
)

func TestWords(t *testing.T) {
	input := func(kv ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1]
		}
		return m
	}
	run := func(name string, in map[string]any) Words { return Words{Verb: "run", Workflow: name, Input: in} }
	verb := func(v string, args ...string) Words { return Words{Verb: v, Args: args} }
	exec := func(c string) Words { return Words{Verb: "exec", Command: c} }
	for _, x := range []struct {
		text string
		want Words // except Text; an empty Text means text
	}{
		// Single words.
		{"status", verb("status")},
		{"Status", verb("status")},
		{"  status?\n", verb("status")},
		{"why?", verb("why")},
		{"stop!", verb("stop")},
		{"Stop.", verb("stop")},
		{"retry", verb("retry")},
		{"pr", verb("pr")},
		{"connect", verb("connect")},
		{"Connect Gitea", verb("connect", "gitea")},
		{"connect the two ends", Words{}},
		{"disconnect.", verb("disconnect")},
		{"pr looks wrong", Words{}},
		{"help", verb("help")},
		{"`help`", verb("help")},
		{", status", verb("status")},
		{": status", verb("status")},
		{"test", verb("test")},
		{"lint", verb("lint")},
		{"build", verb("build")},
		{"diff", verb("diff")},
		{"log", verb("log")},
		{"merge", verb("merge")},
		{"st\u200batus", verb("status")},
		{"status\u00a0", verb("status")},

		// test
		{"test ./...", verb("test", "./...")},
		{"test ./…", verb("test", "./...")},
		{"test ./store", verb("test", "./store")},
		{"test ./store.", verb("test", "./store")},
		{"test TestStoreKeeps", verb("test", "TestStoreKeeps")},
		{"test web/format.test.js", verb("test", "web/format.test.js")},
		{"test tests/test_x.py::test_y", verb("test", "tests/test_x.py::test_y")},
		{"test Test.*Keeps$", verb("test", "Test.*Keeps$")},
		{`test "user can log in"`, verb("test", "user can log in")},
		{"test “user can log in”", verb("test", "user can log in")},
		{"test `login`", verb("test", "login")},
		{"`test login`", verb("test", "login")},

		// lint, build, diff, log
		{"lint fix", verb("lint", "fix")},
		{"lint --fix", verb("lint", "fix")},
		{"lint —fix", verb("lint", "fix")},
		{"build docs", verb("build", "docs")},
		{"build ./cmd/x", verb("build", "./cmd/x")},
		{"build build:web", verb("build", "build:web")},
		{"diff --stat", verb("diff", "--stat")},
		{"diff —stat", verb("diff", "--stat")},
		{"diff –stat", verb("diff", "--stat")},
		{"diff stat", verb("diff", "--stat")},
		{"log 5", verb("log", "5")},
		{"Log 100", verb("log", "100")},

		// merge
		{"merge squash", Words{Verb: "merge", Strategy: gitd.StrategySquash}},
		{"merge into main", Words{Verb: "merge", Into: "main"}},
		{"merge into main.", Words{Verb: "merge", Into: "main"}},
		{"Merge into release/1.2 ff", Words{Verb: "merge", Into: "release/1.2", Strategy: gitd.StrategyFF}},
		{"merge into rebase rebase", Words{Verb: "merge", Into: "rebase", Strategy: gitd.StrategyRebase}},
		{"merge merge", Words{Verb: "merge", Strategy: gitd.StrategyMerge}},

		// run
		{"run deploy", run("deploy", nil)},
		{"Run deploy", run("deploy", nil)},
		{"run deploy.", run("deploy", nil)},
		{"run .ramus/workflows/deploy.yaml", run(".ramus/workflows/deploy.yaml", nil)},
		{"run deploy env=prod", run("deploy", input("env", "prod"))},
		{"run deploy\nenv=prod\nn=3", run("deploy", input("env", "prod", "n", 3.0))},
		{`run deploy n=3 x=-1.5 yes=true no=false nil=null`,
			run("deploy", input("n", 3.0, "x", -1.5, "yes", true, "no", false, "nil", nil))},
		{`run deploy version=1.10 code=007 id=12345678901234567890 e=1e5 inf=Inf nan=NaN hex=0x10 plus=+1`,
			run("deploy", input("version", "1.10", "code", "007", "id", "12345678901234567890", "e", "1e5", "inf",
				"Inf", "nan", "NaN", "hex", "0x10", "plus", "+1"))},
		{`run deploy n="3" yes='true'`, run("deploy", input("n", "3", "yes", "true"))},
		{`run deploy msg="two words" b='it''s' c=a\ b d="say \"hi\" \n"`,
			run("deploy", input("msg", "two words", "b", "its", "c", "a b", "d", `say "hi" \n`))},
		{"run deploy msg=“two words” b=‘one two’ c=“it’s”",
			run("deploy", input("msg", "two words", "b", "one two", "c", "it's"))},
		{"run deploy cmd=`make test`", run("deploy", input("cmd", "make test"))},
		{`run deploy list:='[1, "a"]' o:='{"k":null}'`,
			run("deploy", input("list", []any{1.0, "a"}, "o", map[string]any{"k": nil}))},
		{"run deploy empty= q=\"\"", run("deploy", input("empty", "", "q", ""))},
		{"run deploy eq=a=b url=https://x.example/?a=b", run("deploy", input("eq", "a=b", "url", "https://x.example/?a=b"))},
		{"run deploy shell=$(rm -rf)", Words{}}, // a mistake, which is checked below
		{"run tests", run("tests", nil)},
		{"run make CC=clang", run("make", input("CC", "clang"))},

		// exec
		{"exec make test", exec("make test")},
		{"Exec make test", exec("make test")},
		{"exec   make test  \n", exec("make test")},
		{"exec `make test`", exec("make test")},
		{"exec echo `date` `id`", exec("echo `date` `id`")},
		{"exec ```make test```", exec("make test")},
		{"exec```make test```", exec("make test")},
		{"exec\n```\nmake\nmake test\n```", exec("make\nmake test")},
		{"exec\n```sh\nmake\n```\n", exec("make")},
		{"exec ```\n\n  indented\n\n```", exec("  indented")},
		{"exec ```echo “kept” — …```", exec("echo “kept” — …")},
		{"exec echo “hi there” —short –v —x ./…", exec(`echo "hi there" --short -v -x ./...`)},
		{"exec echo it’s", exec("echo it's")},
		{"exec echo 'a; b' && rm x | tee $HOME", exec("echo 'a; b' && rm x | tee $HOME")},
		{"exec : > file", exec(": > file")},
		{"exec curl http://x repo:y", exec("curl http://x repo:y")},
		{"exec a\u00a0b\u200b", exec("a b")},
		{"exec line\r\n", exec("line")},
		{"exec ec\u202eho\x00 \x1b[1mx", exec("echo [1mx")},

		// Options, in any place outside code.
		{"repo:team/app status", Words{Verb: "status", Repo: "team/app", Text: "status"}},
		{"status repo:team/app", Words{Verb: "status", Repo: "team/app", Text: "status"}},
		{"Repo:app Base:main Agent:coder test",
			Words{Verb: "test", Repo: "app", Base: "main", Agent: "coder", Text: "test"}},
		{"run deploy repo:app env=prod", Words{Verb: "run", Workflow: "deploy", Input: input("env", "prod"),
			Repo: "app", Text: "run deploy env=prod"}},
		{"repo:app exec make", Words{Verb: "exec", Command: "make", Repo: "app", Text: "repo:app exec make"}},
		{"exec repo:app make", Words{Verb: "exec", Command: "make", Repo: "app", Text: "exec repo:app make"}},
		{"exec make\nrepo:app", Words{Verb: "exec", Command: "make", Repo: "app", Text: "exec make\nrepo:app"}},
		{"exec ```make``` repo:app", Words{Verb: "exec", Command: "make", Repo: "app", Text: "exec ```make``` repo:app"}},
		{"in repo:app, fix the tests", Words{Repo: "app", Text: "in fix the tests"}},
		{"fix it\nrepo:app\nplease", Words{Repo: "app", Text: "fix it\n\nplease"}},
		{"fix it repo:“app” repo:app", Words{Repo: "app", Text: "fix it"}},
		{"repo:app", Words{Repo: "app", Text: ""}},
		{"fix `repo:app` and ```\nbase:x\n```", Words{}},
		{"fix x`code`repo:app and repo:`app`", Words{}},
		{"> they said repo:app\nfix it", Words{}},
		{"the repo: where is it, and the base:?", Words{}},
		{"see https://x.example/repo:app", Words{}},
		{"```\nrepo:app", Words{}},

		// Sentences.
		{"", Words{}},
		{"   ", Words{}},
		{"fix the flaky test", Words{}},
		{"run the tests and fix what fails", Words{}},
		{"run it", Words{}},
		{"run this again", Words{}},
		{"run and/or tests", Words{}},
		{"run deploy with env=prod", Words{}},
		{"run tests, please", Words{}},
		{"run tests -run=Foo", Words{}},
		{"run Deploy", Words{}},
		{"run ../../etc/x.yaml", Words{}},
		{"run --help", Words{}},
		{"run 'deploy'", Words{}},
		{"run what's failing", Words{}},
		{"test whether login works", Words{}},
		{"test it", Words{}},
		{"test it.", Words{}},
		{"test login", Words{}},
		{"test this please", Words{}},
		{"test everything?", Words{}},
		{"testing is broken", Words{}},
		{"test ./store and fix it", Words{}},
		{"status of the build is red, please fix", Words{}},
		{"status quo", Words{}},
		{"merge sort is slow, replace it", Words{}},
		{"merge conflict", Words{}},
		{"merge main", Words{}},
		{"merge into main please", Words{}},
		{"merge into", Words{}},
		{"merge the two functions", Words{}},
		{"build fails", Words{}},
		{"build it", Words{}},
		{"build broken?", Words{}},
		{"build a login page", Words{}},
		{"lint is too slow", Words{}},
		{"lint errors", Words{}},
		{"fix lint", Words{}},
		{"log in does not work", Words{}},
		{"log files", Words{}},
		{"log level", Words{}},
		{"diff the two branches", Words{}},
		{"diff main", Words{}},
		{"stop the timer when the window closes", Words{}},
		{"stop please", Words{}},
		{"please stop", Words{}},
		{"retry on 503", Words{}},
		{"why is the build red", Words{}},
		{"help me with this", Words{}},
		{"status\nand diff", Words{}},
		{"\"status\"", Words{}},
		{"executive summary", Words{}},
		{"execute make", Words{}},
		{"exec-path is wrong", Words{}},
		{"exec ```make``` and fix what fails", Words{}},
		{"exec the following and fix it: ```make```", Words{}},
		{"exec this:\n```make```", Words{}},
		{"```status``` and more", Words{}},
		{"it says ```\nstatus\n```", Words{}},
		{":tada: fixed?", Words{}},
		{"don't stop", Words{}},
		{"test it's fine", Words{}},
	} {
		got, err := ParseWords(x.text)
		if strings.HasPrefix(x.text, "run deploy shell") {
			if err == nil {
				t.Errorf("%q: no mistake", x.text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", x.text, err)
			continue
		}
		if x.want.Text == "" && x.text != "repo:app" {
			x.want.Text = strings.TrimSpace(strings.ReplaceAll(x.text, "\r\n", "\n"))
		}
		if !reflect.DeepEqual(got, x.want) {
			t.Errorf("%q:\ngot  %#v\nwant %#v", x.text, got, x.want)
		}
	}
}

// TestWordsMistakes checks that the text of a mistake has the correct command.
func TestWordsMistakes(t *testing.T) {
	for _, x := range []struct{ text, says string }{
		{"exec", "`exec make test`"},
		{"exec  \n", "`exec make test`"},
		{"exec repo:app", "`exec make test`"},
		{"exec ``` ```", "`exec make test`"},
		{"exec ```make", "not closed"},
		{"exec cd web\nnpm test", "code block"},
		{"exec ```a\x00b```", "NUL"},
		{"run", "`run NAME`"},
		{"run?", "`run NAME`"},
		{"run env=prod", "before \"env=prod\""},
		{"run deploy env=prod now", "\"now\" is no key=value"},
		{"run deploy msg=two words", "\"words\" is no key=value"},
		{"run deploy 9x=1", "\"9x\" cannot be the name"},
		{"run deploy =1", "cannot be the name"},
		{"run deploy a=1 a=2", "twice"},
		{"run deploy a=\"1", "not closed"},
		{"run deploy a=it's", "not closed"},
		{"run deploy l:=[1,", "no JSON"},
		{"run deploy " + strings.Repeat("a=1 ", inputsMax+1), "at most"},
		{"log 0", "1 to 100"},
		{"log 99999999999999999999", "1 to 100"},
		{"merge into a..b", "cannot be a branch"},
		{"merge into -x", "cannot be a branch"},
		{"test '-run x'", "dash"},
		{"test ./" + strings.Repeat("x", 2000), "1,000 bytes"},
		{"repo:../x fix it", "cannot be a repository"},
		{"repo:a fix repo:b", "twice"},
		{"base:a..b fix", "cannot be a branch"},
		{"agent:x/y fix", "cannot be an agent"},
		{strings.Repeat("x", wordsMax+1), "file"},
	} {
		w, err := ParseWords(x.text)
		var m *Mistake
		if !errors.As(err, &m) || !strings.Contains(m.Text, x.says) {
			t.Errorf("%.60q: got %v, want a mistake that says %q", x.text, err, x.says)
		}
		if !reflect.DeepEqual(w, Words{}) {
			t.Errorf("%.60q: a mistake, and %+v", x.text, w)
		}
	}
}

func TestHandOverWords(t *testing.T) {
	for text, want := range map[string]string{
		"fallback": "", "Fallback": "", "`fallback`": "", "fallback:": "",
		"fallback: build the Mac app": "build the Mac app", "fallback: two\nlines": "two\nlines",
		"fallback logic is broken": "-", "the fallback: is broken": "-", "fallback\nlogic": "-", "exec fallback": "-",
		"fallback please: build": "-",
	} {
		w, err := ParseWords(text)
		if is := w.Verb == verbFallback; err != nil || is != (want != "-") || is && w.Text != want {
			t.Errorf("%q: %+v, %v", text, w, err)
		}
	}
}

func FuzzWords(f *testing.F) {
	for _, s := range []string{"status", "run deploy a=1 b:='[1]'", "exec ```sh\nmake\n```", "exec make",
		"repo:app fix `x` it", "merge into main squash",
		"test “a b”", "> q repo:x", "log 5", "run x a=\"\\\"", "``` repo:a", "diff —stat", "\xff\x00"} {
		f.Add(s)
	}
	verbs := map[string]bool{"": true, "run": true, "exec": true, "test": true, "lint": true, "build": true,
		"diff": true, "log": true, "status": true,
		"why": true, "merge": true, "pr": true, "stop": true, "retry": true, "help": true, "connect": true,
		"disconnect": true}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := ParseWords(text)
		if err != nil {
			var m *Mistake
			if !errors.As(err, &m) || m.Text == "" || len(m.Text) > 1000 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if !verbs[w.Verb] || !utf8.ValidString(w.Text) || !utf8.ValidString(w.Command) {
			t.Fatalf("%q: %+v", text, w)
		}
		if (w.Verb == "exec") != (w.Command != "") || (w.Verb == "run") != (w.Workflow != "") || strings.ContainsRune(w.Command, 0) {
			t.Fatalf("%q: %+v", text, w)
		}
		for _, a := range w.Args {
			if a == "" || a[0] == '-' && a != "--stat" {
				t.Fatalf("%q: argument %q", text, a)
			}
		}
		if w.Into != "" && gitd.CheckRef("refs/heads/"+w.Into) != nil || w.Repo != "" &&
			gitd.CheckName(w.Repo) != nil || w.Base != "" && gitd.CheckRef("refs/heads/"+w.Base) != nil {
			t.Fatalf("%q: %+v", text, w)
		}
		if _, err := json.Marshal(w.Input); err != nil {
			t.Fatalf("%q: input %v: %v", text, w.Input, err)
		}
		again, err := ParseWords(text)
		if err != nil || !reflect.DeepEqual(w, again) {
			t.Fatalf("%q: %+v, then %+v, %v", text, w, again, err)
		}
	})
}

func TestHelpText(t *testing.T) {
	container := gate.RunnerContainer
	for name, text := range map[string]string{
		"help-agents.txt":   HelpText([]string{"coder", "reviewer"}, container),
		"help-agent.txt":    HelpText([]string{"coder"}, container),
		"help-no-agent.txt": HelpText(nil, container),
		"help-fallback.txt": HelpText([]string{"coder"}, ""),
	} {
		golden.Compare(t, name, text+"\n")
	}
	// ParseWords must understand the examples in the help.
	for line := range strings.SplitSeq(HelpText(nil, container), "\n") {
		example, ok := strings.CutPrefix(line, "• `")
		if !ok {
			continue
		}
		example, _, _ = strings.Cut(example, "`")
		verb, _, _ := strings.Cut(example, " ")
		example = strings.NewReplacer("WORKFLOW", "deploy", "[key=value …]", "key=value", "COMMAND", "make",
			"[PATTERN]", "TestX", "[fix]", "fix", "[TARGET]", "web",
			"[--stat]", "--stat", "[N]", "5", "[into BRANCH]", "into main", "[squash]", "squash").Replace(example)
		if w, err := ParseWords(example); err != nil || w.Verb != strings.TrimSuffix(verb, ":") {
			t.Errorf("help says %q: %+v, %v", example, w, err)
		}
	}
}

// TestGuide checks that the guide names every word, reason, tool and headline.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/slack.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := string(text)
	var names []string
	for line := range strings.SplitSeq(HelpText(nil, gate.RunnerContainer), "\n") {
		if command, ok := strings.CutPrefix(line, "• `"); ok {
			verb, _, _ := strings.Cut(command, " ")
			names = append(names, "`"+strings.Trim(verb, "`:"))
		}
	}
	for _, reason := range []gate.PolicyReason{gate.ReasonGlobalDisabled, gate.ReasonThreadStarter,
		gate.ReasonExplicitPrefix, gate.ReasonNotAllowlisted, gate.ReasonChannelAllowlist, gate.ReasonRepoAllowlist,
		gate.ReasonPercentage, gate.ReasonAgent, gate.ReasonRepoExcluded, gate.ReasonPerson} {
		names = append(names, "`"+string(reason)+"`")
	}
	for _, tool := range catalog.List(gate.Policy{Runner: gate.RunnerContainer}, catalog.Offer{Browser: true, Fallback: true}) {
		if !strings.HasPrefix(tool.Name, "lib_") {
			names = append(names, "`"+tool.Name+"`")
		}
	}
	for _, m := range []record.Manifest{
		{State: record.StateComplete, Verdict: record.VerdictVerified},
		{State: record.StateComplete, Verdict: record.VerdictUnverified},
		{State: record.StateComplete, Verdict: record.VerdictFailed},
		{State: record.StateFailed, Reason: record.ReasonCancelled},
		{State: record.StateFailed, Reason: record.ReasonTimedOut},
		{State: record.StateFailed, Reason: record.ReasonRejected},
	} {
		head, _ := render.Headline(&m)
		names = append(names, head)
	}
	for _, name := range names {
		if !strings.Contains(guide, name) {
			t.Errorf("docs/slack.md does not speak of %s", name)
		}
	}
}
