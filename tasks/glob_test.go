package tasks

import (
	"regexp"
	"strings"
	"testing"
)

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "a/b", true},
		{".", "a/b", true},
		{"*", "a", true},
		{"*", ".env", true},
		{"*", "a/b", false},
		{"**", "a/b/c", true},
		{"*.go", "a.go", true},
		{"*.go", "x/a.go", false},
		{"**/*.go", "a.go", true},
		{"**/*.go", "x/y/a.go", true},
		{"src/**/*.go", "src/a.go", true},
		{"src/**/*.go", "src/x/y/a.go", true},
		{"src/**/*.go", "lib/a.go", false},
		{"src/**", "src/a", true},
		{"src/**", "srcs/a", false},
		{"src/", "src/a/b", true},
		{"./src/*", "src/a", true},
		{"a?c", "abc", true},
		{"a?c", "a/c", false},
		{"[a-c]x", "bx", true},
		{"[^a-c]x", "bx", false},
		{"{go,package}.*", "go.mod", true},
		{"{go,package}.*", "package.json", true},
		{"{go,package}.*", "Makefile", false},
		{"**/*.{ts,tsx}", "a/b.tsx", true},
		{"{a,b/**}/c", "b/x/c", true},
		{"[{]a", "{a", true},
		{`\{a`, "{a", true},
		{`\*`, "*", true},
		{`\*`, "a", false},
		{"a**", "ab", true},
		{"**/**/x", "x", true},
		{"*", "\xff", true},
	} {
		g, err := ParseGlob(c.pattern)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		if got := g.Match(c.name); got != c.want {
			t.Errorf("%q on %q: got %v", c.pattern, c.name, got)
		}
	}
	for _, p := range []string{"[", "[]", "a[b", "{a", "{a,{b}}", "a\\", "/etc/*", "../*", "a/../b", "{a,..}/b", "\x00",
		strings.Repeat("x", 2000), strings.Repeat("{a,b}", 20)} {
		if _, err := ParseGlob(p); err == nil {
			t.Errorf("%q was taken", p)
		}
	}
}

func TestGlobStaysQuick(t *testing.T) {
	g, err := ParseGlob(strings.Repeat("**/a*a*a*a*b/", 50) + "x")
	if err != nil {
		t.Fatal(err)
	}
	if g.Match(strings.Repeat(strings.Repeat("a", 60)+"/", 60) + "x") {
		t.Error("matches")
	}
}

// FuzzGlob compares with the regular expression that the documentation's words amount to.
func FuzzGlob(f *testing.F) {
	for _, s := range []string{"**/*.go", "a/**/b", "{a,b}/*", "?/*", "**", "*/**/*", "a**/b", "./x/"} {
		f.Add(s, "a/x/b.go")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		g, err := ParseGlob(pattern)
		if err != nil {
			return
		}
		got := g.Match(name)
		if len(pattern) > 60 || len(name) > 60 || strings.ContainsAny(pattern, `[]{}\`) ||
			strings.Contains(name, "//") || strings.Contains(pattern, "//") || strings.HasPrefix(name, "/") {
			return // beyond the translation below; the call above must only not panic
		}
		p := strings.TrimPrefix(pattern, "./")
		if p == "" || p == "." {
			p = "**"
		}
		if strings.HasSuffix(p, "/") {
			p += "**"
		}
		var re strings.Builder
		for s := range strings.SplitSeq(p, "/") {
			switch s {
			case ".":
			case "**":
				re.WriteString(`(?:[^/]*/)*`)
			default:
				for _, r := range s {
					switch r {
					case '*':
						re.WriteString(`[^/]*`)
					case '?':
						re.WriteString(`[^/]`)
					default:
						re.WriteString(regexp.QuoteMeta(string(r)))
					}
				}
				re.WriteString("/")
			}
		}
		want, err := regexp.Compile(`(?s)^` + re.String() + `$`)
		if err != nil || strings.ContainsRune(pattern, '�') || strings.ToValidUTF8(name, "") != name {
			return
		}
		if got != want.MatchString(name+"/") {
			t.Errorf("%q on %q: got %v, regexp %s says otherwise", pattern, name, got, want)
		}
	})
}

func TestCleanPath(t *testing.T) {
	for in, want := range map[string]string{
		"a": "a", "./a//b": "a/b", "a/": "a", ".": ".", ".github/x": ".github/x", ".gitignore": ".gitignore",
		"-x": "-x", "a b\n": "a b\n", "\xff": "\xff", "...": "...", "a..b": "a..b", "~/x": "~/x", "x.git/y": "x.git/y",
	} {
		got, err := CleanPath(in)
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "/", "/etc/passwd", "..", "../x", "a/../b", "a/..", ".git", ".git/config",
		"sub/.git/hooks/x", ".GIT/config", "a\x00", strings.Repeat("a/", 3000)} {
		if got, err := CleanPath(in); err == nil {
			t.Errorf("%q became %q", in, got)
		}
	}
}
