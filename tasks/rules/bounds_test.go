package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestParseBounds reads files with as much of everything as is possible, and with one more.
func TestParseBounds(t *testing.T) {
	rules := func(n int) string { return "rules:\n" + strings.Repeat(" - {run: a, then: deny}\n", n) }
	patterns := func(n int) string {
		return "rules:\n - {run: [a" + strings.Repeat(", a", n-1) + "], then: deny}\n"
	}
	words := func(n int) string { return "rules:\n - {run: 'a" + strings.Repeat(" a", n-1) + "', then: deny}\n" }
	reason := func(n int) string {
		return "rules:\n - {run: a, then: deny, reason: " + strings.Repeat("a", n) + "}\n"
	}
	people := func(n int) string {
		return "rules:\n - {run: a, then: ask, who: [a" + strings.Repeat(", a", n-1) + "]}\n"
	}
	for name, x := range map[string]struct {
		file func(int) string
		most int
	}{
		"rules": {rules, 200}, "patterns": {patterns, 50}, "words": {words, 50}, "bytes": {reason, 1024}, "people": {people, 50},
	} {
		if s, err := Parse(Path, []byte(x.file(x.most))); err != nil || len(s.Rules) == 0 {
			t.Errorf("%d %s: %v", x.most, name, err)
		}
		_, err := Parse(Path, []byte(x.file(x.most+1)))
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("at most %d are possible", x.most)) {
			t.Errorf("%d %s: %v", x.most+1, name, err)
		}
	}
}

// TestParseTexts reads texts that are refused, with the place of each, and texts that are not.
func TestParseTexts(t *testing.T) {
	for text, want := range map[string]string{
		"{run: a, then: ask, reason: ''}":            "rules.0.reason is empty",
		"{run: a, then: ask, reason: ' '}":           "rules.0.reason is empty",
		"{run: a, then: ask, reason: \"a\\u001fb\"}": "rules.0.reason has a control character",
		"{run: a, then: ask, reason: \"a\\u007fb\"}": "rules.0.reason has a control character",
		"{run: a, then: ask, who: [a, '']}":          "rules.0.who is empty",
		"{run: \"a\\tb\", then: ask}":                "rules.0.run has a control character",
		"{run: bin/, then: ask}":                     `"bin/" begins with no program`,
		"{run: \"''\", then: ask}":                   "begins with no program",
		"{run: a, then: allow, who: [a]}":            "only with `then: ask`",
		"{run: a, then: ask, reason: ' é b~ '}":      "",
		"{run: a, then: allow, who: null}":           "",
		"{run: a/b, then: ask, who: a}":              "",
	} {
		s, err := Parse(Path, []byte("rules:\n - "+text))
		if want == "" && (err != nil || len(s.Rules) != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	s, err := Parse(Path, []byte("rules:\n - {run: a, then: ask, reason: ' b c '}"))
	if err != nil || s.Rules[0].Reason != "b c" {
		t.Errorf("%+v, %v", s, err)
	}
	// A file with several mistakes has them all in its error, and no rules.
	s, err = Parse(Path, []byte("rules:\n - {then: ask}\n - {run: a}\n - {run: b, then: deny}"))
	if err == nil || len(s.Rules) != 0 || !strings.Contains(err.Error(), "no key run") || !strings.Contains(err.Error(), "no key then") {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestPatternWords splits patterns as a shell splits words.
func TestPatternWords(t *testing.T) {
	for text, want := range map[string][]string{
		`git  push `:        {"git", "push"},
		`a 'b c' "d e"`:     {"a", "b c", "d e"},
		`a ''`:              {"a", ""},
		`a "" b`:            {"a", "", "b"},
		`a b\ c`:            {"a", "b c"},
		`a \'b`:             {"a", "'b"},
		`a "b\"c"`:          {"a", `b"c`},
		`a 'b\'`:            {"a", `b\`},
		`a 'b"c' "d'e"`:     {"a", `b"c`, "d'e"},
		`a b\`:              {"a", `b\`},
		`a x'y'"z"w`:        {"a", "xyzw"},
		"a\tb":              {"a", "b"},
		`a \ `:              {"a", " "},
		`a --x='y z' "..."`: {"a", "--x=y z", "..."},
	} {
		if got, ok := fields(text); !ok || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %t, want %q", text, got, ok, want)
		}
	}
	for _, text := range []string{`a 'b`, `a "b`, `a "b'`, `'`, `a "b\"`} {
		if got, ok := fields(text); ok {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// TestNames shows a rule to people, and tells rules apart.
func TestNames(t *testing.T) {
	r := Rule{Run: []Pattern{{"git", "push"}, {"x"}}, Then: Ask, Reason: "r", Who: []string{"ada"}}
	if r.Name() != "git push" || (&Rule{Then: Deny}).Name() != "deny" {
		t.Errorf("%q", r.Name())
	}
	same := r
	same.Line = 7
	if same.ID() != r.ID() {
		t.Error("a rule on another line has another ID")
	}
	for _, change := range []func(*Rule){
		func(r *Rule) { r.Then = Deny }, func(r *Rule) { r.Run = r.Run[:1] }, func(r *Rule) { r.Reason = "" },
		func(r *Rule) { r.Who = nil },
	} {
		other := r
		if change(&other); other.ID() == r.ID() {
			t.Errorf("%+v has the ID of another rule", other)
		}
	}
	b := Broken("line 1")
	if b.Mistake != "line 1" || b.Judge(Vector("ls")) == nil || b.Judge(Vector("ls")).Then != Ask {
		t.Errorf("%+v", b)
	}
	if got := Vector("git", "push").String(); got != "git push" {
		t.Errorf("%q", got)
	}
}

// TestJudgeOrder has the first rule that matches decide, and each rule asked about once.
func TestJudgeOrder(t *testing.T) {
	s := parse(t, `rules:
  - {run: git push origin ramus, then: allow}
  - {run: git push, then: ask}
  - {run: git, then: deny}
  - {run: [tea, curl], then: ask}
`)
	push, git, tea := &s.Rules[1], &s.Rules[2], &s.Rules[3]
	for _, x := range []struct {
		commands []Command
		ask      []*Rule
		deny     *Rule
	}{
		{nil, nil, nil},
		{[]Command{Vector("ls")}, nil, nil},
		{[]Command{Vector("git", "push", "origin", "ramus")}, nil, nil},
		{[]Command{Vector("curl"), Vector("git", "push"), Vector("tea")}, []*Rule{tea, push}, nil},
		{[]Command{Vector("git", "push"), Vector("git", "push", "x")}, []*Rule{push}, nil},
		{[]Command{Vector("git", "push"), Vector("git", "pull")}, nil, git},
		{[]Command{nil}, []*Rule{push}, nil}, // could not be read
	} {
		if ask, deny := s.JudgeAll(x.commands); !slices.Equal(ask, x.ask) || deny != x.deny {
			t.Errorf("%v: %v, %v", x.commands, ask, deny)
		}
	}
	allows := parse(t, "rules:\n - {run: git, then: allow}")
	if r := allows.Judge(nil); r != nil {
		t.Errorf("a command that could not be read is decided by %v", r)
	}
}

// TestPatternMatches matches patterns with whole commands. $ is an unknown word.
func TestPatternMatches(t *testing.T) {
	for _, x := range []struct {
		pattern, command string
		asks, allows     bool // for a rule that asks or denies, and for one that allows
	}{
		{"git", "git", true, true},
		{"git", "/bin/git x", true, true},
		{"/bin/git", "git", false, false},
		{"/bin/git", "/bin/git", true, true},
		{"g?t", "gt", false, false},
		{"git push", "git", false, false},
		{"git push", "git pull push", false, false},
		{"git ... push", "git push", true, true},
		{"git ... push", "git a b push c", true, true},
		{"git ... push", "git a b", false, false},
		{"git ...", "git", true, true},
		{"git ... push --force", "git push push --force", true, true},
		{"git ... push --force", "git push x push --force", true, true},
		{"git ... push --force", "git push x --force", false, false},
		{"git ... push ... --force", "git a push b --force", true, true},
		{"git ... push ... --force", "git --force push", false, false},
		{"git ... a ... b c", "git a b x b c", true, true},
		{"git a ... b", "git x a b", false, false},
		{"$", "git", false, false},
		{"git", "$", true, false},
		{"git push", "git $", true, false},
		{"git *", "git $", true, true},
		{"* push", "$ push", true, true},
		{"git ... push x", "git $ $", true, false},
		{"git ... push x", "git $", false, false},
	} {
		var c Command
		for _, w := range strings.Fields(x.command) {
			c = append(c, Word{Text: w, Unknown: w == "$"})
		}
		p := Pattern(strings.Fields(x.pattern))
		if asks, allows := p.matches(c, true), p.matches(c, false); asks != x.asks || allows != x.allows {
			t.Errorf("%s with %s: %t, %t, want %t, %t", p, x.command, asks, allows, x.asks, x.allows)
		}
	}
	if (Pattern{}).matches(Vector("a"), true) || (Pattern{"a"}).matches(nil, true) {
		t.Error("nothing matches something")
	}
}

// TestGlobTexts matches patterns with whole texts.
func TestGlobTexts(t *testing.T) {
	for _, x := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"*", "", true}, {"?", "", false}, {"?", "a", true},
		{"??", "a", false}, {"a?c", "abc", true}, {"a*c", "ac", true}, {"a*c", "abcbc", true}, {"a*c", "abcb", false},
		{"*a*b", "xaxbxb", true}, {"*ab", "aab", true}, {"*aab", "aaab", true}, {"a*b?", "aebxbc", true},
		{"*a?b", "aaxab", false}, {"a", "ab", false}, {"ab", "a", false}, {"a*", "b", false}, {"*/b", "a/c/b", true},
		{"a*b*c", "abbc", true}, {"a*b*c", "acb", false}, {"*", "a\nb/c", true},
	} {
		if got := Glob(x.pattern, x.text); got != x.want {
			t.Errorf("%q with %q: %t", x.pattern, x.text, got)
		}
	}
}

// TestShellBounds finds as many commands as are possible in a line, and says where it stopped.
func TestShellBounds(t *testing.T) {
	whole := Shell(strings.Repeat("true;", maxCommands))
	if len(whole) != maxCommands || whole[len(whole)-1] == nil {
		t.Errorf("%d commands", len(whole))
	}
	// The empty command comes once, and nothing after it.
	if cut := Shell(strings.Repeat("true;", maxCommands) + "a;b;c"); len(cut) != maxCommands+1 || cut[maxCommands] != nil {
		t.Errorf("%d commands", len(cut))
	}
	nested := func(depth int) []Command {
		line := "git push"
		for range depth {
			line = "echo `" + strings.ReplaceAll(line, "`", "") + "`"
			line = strings.Replace(line, "echo `", "echo $(", 1)
			line = strings.TrimSuffix(line, "`") + ")"
		}
		return Shell(line)
	}
	if list := nested(maxDepth); list[0].String() != "git push" || slices.ContainsFunc(list, func(c Command) bool { return c == nil }) {
		t.Errorf("%d substitutions: %v", maxDepth, list)
	}
	if list := nested(maxDepth + 1); list[0] != nil || slices.ContainsFunc(list, func(c Command) bool { return c.String() == "git push" }) {
		t.Errorf("%d substitutions: %v", maxDepth+1, list)
	}
	// The command of a wrapper is looked for in the words after it.
	for words, want := range map[int]bool{maxWrapped - 1: true, maxWrapped: false} {
		list := Started(append([]string{"xargs"}, append(slices.Repeat([]string{"-x"}, words), "git", "push")...))
		if got := slices.ContainsFunc(list, func(c Command) bool { return c.String() == "git push" }); got != want {
			t.Errorf("after %d options: %t", words, got)
		}
	}
}

// TestStarted finds the commands in an argument vector.
func TestStarted(t *testing.T) {
	for _, x := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"git", "push"}, "git push"},
		{[]string{"A=1", "git", "push"}, "git push"},
		{[]string{"/bin/sh", "-c", "git push; ls"}, "/bin/sh -c git push; ls|git push|ls"},
		{[]string{"sh", "-c", "-e", "git push"}, "sh -c -e git push|git push"},
		{[]string{"sh", "-c"}, "sh -c"},
		{[]string{"bash", "-x", "file"}, "bash -x file"},
		{[]string{"eval", "git push;", "ls"}, "eval git push; ls|git push|ls"},
		{[]string{"sudo", "-u", "B=1", "sh", "-c", "ls"}, "sudo -u B=1 sh -c ls|sh -c ls|ls|ls"},
		{[]string{"env", "-x"}, "env -x"},
		{[]string{"=1", "git"}, "=1 git"},
		{[]string{"a-b=1", "git"}, "a-b=1 git"},
	} {
		var got []string
		for _, c := range Started(x.args) {
			got = append(got, c.String())
		}
		if strings.Join(got, "|") != x.want {
			t.Errorf("%q:\ngot  %s\nwant %s", x.args, strings.Join(got, "|"), x.want)
		}
	}
}

// TestShellWords reads the quotes, expansions and redirections of a line. $ marks an unknown word.
func TestShellWords(t *testing.T) {
	for line, want := range map[string]string{
		"":                                "",
		"# git push":                      "",
		"a # git push":                    "a",
		"a 'b' # x\n# y\nc":               "a b|c",
		`a 'b\'`:                          `a b\`,
		`a "b\"c" d`:                      `a b"c d`,
		`a "b;c|d&e" f`:                   "a b;c|d&e f",
		`a "#b" ''#c`:                     "a #b #c",
		`a "b  c"	d`:                      "a b  c d",
		`a "" b`:                          "a  b",
		`a *.go b? [c] ~/d`:               "a $*.go $b? $[c] $~/d",
		`a "*" '?' "~"`:                   "a * ? ~",
		`a {b,c} d{e,f}`:                  "a ${b,c} $d{e,f}",
		`a "{b}"`:                         "a {b}",
		`a $b "$c" '$d'`:                  "a $$b $$c $d",
		`a $'b' $"c" "$'d'"`:              "a $b $c $$'d'",
		`a $`:                             "a $$",
		`a $(b) c`:                        "b|a $ c",
		`a "$(b "c)" 'd)')" e`:            "b c) d)|a $ e",
		`a $(b $(c) d) e`:                 "c|b $ d|a $ e",
		`a $(b \) c) d`:                   "b ) c|a $ d",
		`a $(b 'c`:                        "b c|a $",
		"a `b 'c` d":                      "b c|a $ d",
		"a `b (c` d":                      "b|c|a $ d",
		"a `b \\` c` d":                   "b ` c|a $ d",
		"a $(b\nc) d":                     "b|c|a $ d",
		"a <b c >d e 2>f 3<g h":           "a c e h",
		"a>b c":                           "a c",
		"a 2x>b c":                        "a 2x c",
		`a '2'>b \3>c "">d e`:             "a 2 3  e",
		"a $(b)>c d":                      "b|a $ d",
		"a `b`2>c d":                      "b|a $2 d",
		"a 2$'b'>c d":                     "a $2b d",
		"a &>b c d":                       "a|c d|a c d",
		"a&>>b c; d":                      "a|c|a c|d",
		"a &>b c &>d e":                   "a|c|a c|e|a c e",
		"a &>b; c":                        "a|c",
		"&>a b":                           "b",
		"a <(b c) >(d) e":                 "b c|d|a $ $ e",
		"a >&2 b":                         "a b",
		"a > 'b c' d":                     "a d",
		"a >b; c":                         "a|c",
		"a >; c d":                        "a|c d",
		"a\\":                             "a",
		"a\\ b c":                         "a b c",
		"a \\\nb":                         "a b",
		"while ! a; do b; done":           "a|b",
		"until a; do time b; done":        "a|b",
		"case x in y) a;; esac":           "case x in y|a",
		"a && b || c & d | e":             "a|b|c|d|e",
		"for x in 1 2; do git push; done": "for x in 1 2|git push",
	} {
		var got []string
		for _, c := range Shell(line) {
			words := make([]string, len(c))
			for i, w := range c {
				if words[i] = w.Text; w.Unknown {
					words[i] = "$" + w.Text
				}
			}
			got = append(got, strings.Join(words, " "))
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q\ngot  %s\nwant %s", line, strings.Join(got, "|"), want)
		}
	}
}
