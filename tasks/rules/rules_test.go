package rules

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// file is a rule file with one rule of each kind.
const file = `# comment
rules:
  - run: git push origin ramus/*
    then: allow
  - run: [git ... push, "terraform apply", 'rm -rf "/my files"']
    then: ask
    reason: a person looks at it
    who: [ada, U012]
  - run: /usr/bin/shutdown
    then: deny
    reason: never
`

func parse(t testing.TB, text string) Set {
	t.Helper()
	s, err := Parse(Path, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParse(t *testing.T) {
	s := parse(t, file)
	if len(s.Rules) != 3 || s.Rules[1].Line != 5 || !slices.Equal(s.Rules[1].Who, []string{"ada", "U012"}) ||
		!slices.Equal(s.Rules[1].Run[2], Pattern{"rm", "-rf", "/my files"}) || s.Rules[2].Reason != "never" {
		t.Errorf("%+v", s)
	}
	if got := s.Programs(); !slices.Equal(got, []string{"git", "terraform", "rm", "shutdown"}) {
		t.Errorf("programs %q", got)
	}
	if s := parse(t, "# nothing\n\n"); len(s.Rules) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestParseMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"rule: []":                                     `has no key "rule"`,
		"{}":                                           "has no key rules",
		"rules:\n - run: x":                            "has no key then",
		"rules:\n - then: ask":                         "has no key run",
		"rules:\n - {run: x, then: maybe}":             "then",
		"rules:\n - {run: '', then: ask}":              "is empty",
		"rules:\n - {run: [], then: ask}":              "is empty",
		"rules:\n - {run: '... x', then: ask}":         "begins with no program",
		"rules:\n - {run: \"a 'b\", then: ask}":        "a quote does not end",
		"rules:\n - {run: a, then: deny, who: ada}":    "only with `then: ask`",
		"rules:\n - {run: a, then: deny, reason: [b]}": "reason",
		"rules:\n - {run: a, then: ask, whose: b}":     `has no key "whose"`,
	} {
		if _, err := Parse(Path, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestJudge(t *testing.T) {
	s := parse(t, file)
	for command, want := range map[string]Answer{
		"git push origin ramus/x":         Allow,
		"git push origin main":            Ask,
		"git push":                        Ask,
		"git -C sub push --force":         Ask,
		"/opt/git/bin/git push":           Ask,
		"git pull":                        "",
		"git commit -m push":              Ask, // ... matches any arguments
		"terraform apply -auto-approve x": Ask,
		"terraform":                       "",
		"shutdown":                        "", // the pattern has a path
		"/usr/bin/shutdown -h now":        Deny,
		"gitpush":                         "",
	} {
		got := Answer("")
		if r := s.Judge(Vector(strings.Fields(command)...)); r != nil {
			got = r.Then
		}
		if got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	if ask, deny := Broken("x").JudgeAll([]Command{Vector("true")}); len(ask) != 1 || deny != nil {
		t.Errorf("a broken file: %v, %v", ask, deny)
	}
}

func TestShell(t *testing.T) {
	for line, want := range map[string]string{
		"git push":                                   "git push",
		"cd x && git push; true || false":            "cd x|git push|true|false",
		"A=1 B='2 3' git push >/dev/null 2>&1":       "git push",
		"git >log push":                              "git push",
		"if git fetch; then git push; fi":            "git fetch|git push",
		"echo \"$(git push \")\" x)\" y":             "git push ) x|echo $ y",
		"echo `git push`":                            "git push|echo $",
		"git \"pu\"'sh'":                             "git push",
		"g\\it push # git pull":                      "git push",
		"(git push)|tee x":                           "git push|tee x",
		"sh -ec 'git push'":                          "sh -ec git push|git push",
		"env -i X=1 git push":                        "env -i X=1 git push|git push|push",
		"eval git push":                              "eval git push|git push",
		"echo a#b $x 'git push'":                     "echo a#b $ git push",
		"x() { git push; }":                          "x|git push",
		"bash -c \"bash -c 'git push'\"":             "bash -c bash -c 'git push'|bash -c git push|git push",
		"a\\\nb":                                     "ab",
		"true # a b\ngit push":                       "true|git push",
		"git\tpush\r\nz=1 Z9=2 a":                    "git push|a",
		"git 'push":                                  "git push",
		"git push >":                                 "git push",
		"a=1 z=1 A=1 Z=1 x0=1 x9=1 _=1 git push":     "git push",
		"sh --norc 'git push'":                       "sh --norc git push",
		"sh cat 'git push'":                          "sh cat git push",
		"sh -x cat 'git push'":                       "sh -x cat git push",
		"find . -exec git push \\;":                  "find . -exec git push ;|. -exec git push ;|git push ;|push ;|;",
		strings.Repeat("true;", maxCommands) + "git": strings.Repeat("true|", maxCommands) + "?",
	} {
		var got []string
		for _, c := range Shell(line) {
			words := make([]string, len(c))
			for i, w := range c {
				words[i] = w.Text
				if w.Unknown {
					words[i] = "$"
				}
			}
			if len(c) == 0 {
				words = []string{"?"}
			}
			got = append(got, strings.Join(words, " "))
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%.100s\ngot  %.200s\nwant %.200s", line, strings.Join(got, "|"), want)
		}
	}
}

// An unknown word asks, and is never allowed.
func TestUnknown(t *testing.T) {
	s := parse(t, file)
	for line, want := range map[string]Answer{
		"git push origin $x":       Ask,
		"git $x":                   Ask,
		"git push origin ramus/$x": Ask,
		"git pull $x":              Ask, // ... push may be in it
		"terraform $x":             Ask,
		"ls $x":                    "",
	} {
		ask, deny := s.JudgeAll(Shell(line))
		got := Answer("")
		switch {
		case deny != nil:
			got = Deny
		case len(ask) > 0:
			got = Ask
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(file))
	f.Add([]byte("rules:\n - {run: \"a 'b\\\\ c' ...\", then: ask}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(Path, text)
		if err != nil {
			return
		}
		for _, r := range s.Rules {
			for _, p := range r.Run {
				if len(p) == 0 || p[0] == "" {
					t.Fatalf("%q", p)
				}
			}
			if s.Judge(nil) == nil && r.Then != Allow {
				t.Fatal("a command that cannot be read is allowed")
			}
		}
	})
}

// TestGlob matches words with patterns that end with stars.
func TestGlob(t *testing.T) {
	for pattern, want := range map[string]bool{"a**": true, "**": true, "a*": true, "a?*": false, "b*": false} {
		if got := Glob(pattern, "a"); got != want {
			t.Errorf("%q: %t", pattern, got)
		}
	}
}

// FuzzShell looks for lines in which a command between operators is not found.
func FuzzShell(f *testing.F) {
	f.Add("cd x; ", " | tee y")
	f.Add("if true; then ", "; fi")
	f.Add("echo $(", ")")
	f.Add("A='", "' \"")
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Count(before, "\n")+strings.Count(before, ";") > 100 || strings.ContainsAny(before, "'\"\\$`#(&|<>") {
			Shell(before + after)
			return
		}
		found := slices.ContainsFunc(Shell(before+"\ngit push\n"+after), func(c Command) bool { return c.String() == "git push" })
		if !found {
			t.Errorf("git push is not found after %q", before)
		}
	})
}

// FuzzGlob compares a pattern with the words that it was made of.
func FuzzGlob(f *testing.F) {
	f.Add("ab", "c", "d*")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if !strings.ContainsAny(a+c, "*?") && !Glob(a+"*"+c, a+b+c) {
			t.Errorf("%q*%q does not match with %q between", a, c, b)
		}
		_ = Glob(b, a+c) // hostile patterns end
	})
}

// TestExample judges commands by the rules of examples/rules.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../examples/rules/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := parse(t, string(text))
	for line, want := range map[string]Answer{
		"git push origin ramus/run-x":       Allow,
		"cd sub && git -C . push --force":   Ask,
		"npm ci && npm publish":             Ask,
		"kubectl -n prod delete pod x":      Ask,
		"kubectl get pods":                  "",
		"sudo rm -rf /usr":                  Deny,
		"rm -rf build":                      "",
		"sh -c 'terraform apply; shutdown'": Deny,
	} {
		ask, deny := s.JudgeAll(Shell(line))
		got := Answer("")
		switch {
		case deny != nil:
			got = Deny
		case len(ask) > 0:
			got = Ask
		case s.Judge(Shell(line)[0]) != nil:
			got = Allow
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
