package pathspec

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/pathspec/pathspectest"
)

// attributesAsked are the attributes that decide a conversion.
var attributesAsked = []string{"text", "crlf", "eol", "ident", "filter", "working-tree-encoding"}

// checkAttributes returns git's attributes of each path, a line "name=value" each. dir is a
// repository, and the paths are below it.
func checkAttributes(t testing.TB, dir string, paths []string) []string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"check-attr", "--stdin", "-z"}, attributesAsked...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1", "LC_ALL=C")
	cmd.Stdin = strings.NewReader(strings.Join(paths, "\x00") + "\x00")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal("git check-attr: ", err)
	}
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	n := 3 * len(attributesAsked)
	if len(fields) != n*len(paths) {
		t.Fatalf("git answered with %d fields to %d paths", len(fields), len(paths))
	}
	list := make([]string, len(paths))
	for i := range paths {
		for j := range attributesAsked {
			list[i] += fields[i*n+3*j+1] + "=" + fields[i*n+3*j+2] + "\n"
		}
	}
	return list
}

// attributing maps the folders of a work tree to their .gitattributes files.
type attributing map[string]*Attributes

func (a attributing) of(path string) (text string, doubt bool) {
	var m Tally
	at, name := splitPath(path)
	var from []Source
	for {
		rules := a[at]
		if rules == nil {
			rules = &Attributes{}
		}
		from = append(from, Source{rules, strings.TrimPrefix(strings.TrimPrefix(path, at), "/")})
		if at == "" {
			break
		}
		at, _ = splitPath(at)
	}
	values := Resolve(name, from, &m)
	for _, name := range attributesAsked {
		text += name + "=" + map[attributeState]string{stateUnknown: "unspecified", stateUnspecified: "unspecified",
			stateSet: "set", stateUnset: "unset", stateText: values[name].text}[values[name].state] + "\n"
	}
	return text, m.Ambiguous
}

// TestAttributesLikeGit compares random .gitattributes files on several levels with git.
func TestAttributesLikeGit(t *testing.T) {
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "-q")
	m := pathspectest.Random{Rand: rand.New(rand.NewPCG(31, 32))}
	folders := []string{"", "a", "a/build", "src", "src/lib", "src/lib/a"}
	var paths []string
	for _, f := range folders {
		if err := os.MkdirAll(filepath.Join(dir, f), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range pathspectest.Names {
			paths = append(paths, path.Join(f, name))
		}
	}
	said := 0
	for round := range 60 {
		rules := attributing{}
		files := map[string][]byte{}
		for _, f := range folders {
			if m.IntN(2) == 0 {
				continue
			}
			data := m.Gitattributes()
			for range m.IntN(3) { // kinds of lines that git leaves out, and macros of macros
				line := m.Pick([]string{"[attr]deep mine -eol\n", "[attr]mine deep\n", "* deep\n",
					"[attr]binary text\n", "*.txt binary\n", "[attr]-x text\n", "[attr] text\n",
					"!*.txt text\n", `"a\056txt" text` + "\n", `"\141*"text=auto` + "\n", `"open text` + "\n",
					`"*" text` + "\n", "*.o text=auto -text text\n", "* te=xt text=\n", "* text= eol=\r\n", "\t # no\n",
					"*.txt\teol=crlf\vtext\n",
					"[attr]binary\n", "*.txt -binary\n", "*.o !binary text\n", "* a.b_c-d text\n", "* a+b text\n"})
				if m.IntN(2) == 0 {
					data = append(data, line...)
				} else {
					data = append([]byte(line), data...)
				}
			}
			files[f] = data
			parsed, err := ParseAttributes(data, f == "")
			if err != nil {
				t.Fatal(err)
			}
			rules[f] = &parsed
			if err := os.WriteFile(filepath.Join(dir, f, ".gitattributes"), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range checkAttributes(t, dir, paths) {
			got, doubt := rules.of(paths[i])
			if strings.Contains(want, "=set") {
				said++
			}
			if got != want && !doubt {
				t.Errorf("round %d: %q\n%s\nby git\n%s", round, paths[i], got, want)
			}
		}
		for f, data := range files {
			if t.Failed() {
				t.Logf("%q:\n%q", f, data)
			}
			os.Remove(filepath.Join(dir, f, ".gitattributes"))
		}
		if t.Failed() {
			return
		}
	}
	if said < 100 {
		t.Errorf("attributes were set %d times", said)
	}
}

// FuzzAttributes gives the same file to git and to the parser.
func FuzzAttributes(f *testing.F) {
	for _, s := range []string{"* text=auto\n*.bat eol=crlf\n", "[attr]m text -eol\n*.x m !filter\n",
		`"a\040b" -text` + "\n", "\xef\xbb\xbfa ident\n", "* filter=lfs diff=lfs merge=lfs -text\r\n", "*[ text\n",
		"a working-tree-encoding=UTF-16\n", "[attr]a b\n[attr]b a\n* a\n", "** binary\n* =x\n* -\n"} {
		f.Add([]byte(s), "a b")
	}
	dir := f.TempDir()
	gittest.Run(f, dir, "init", "-q")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		if len(data) > 10_000 || len(path) > 1000 || !validPath(path) {
			return
		}
		rules, err := ParseAttributes(data, true)
		if err != nil {
			return
		}
		got, doubt := attributing{"": &rules}.of(path)
		if err := os.WriteFile(filepath.Join(dir, ".gitattributes"), data, 0o644); err != nil {
			t.Fatal(err)
		}
		if want := checkAttributes(t, dir, []string{path})[0]; got != want && !doubt {
			t.Errorf("%q, %q\n%s\nby git\n%s", data, path, got, want)
		}
	})
}
