package gitd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// attributesAsked are what decides about a conversion.
var attributesAsked = []string{"text", "crlf", "eol", "ident", "filter", "working-tree-encoding"}

// checkAttributes asks git for attributes of paths below dir, a repository, as "name=value".
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

// attributing is a work tree of .gitattributes files alone, by folder.
type attributing map[string]*attributeRules

func (a attributing) of(path string) (text string, doubt bool) {
	var m matching
	at, name := splitName(path)
	var from []attributeSource
	for {
		rules := a[at]
		if rules == nil {
			rules = &attributeRules{}
		}
		from = append(from, attributeSource{rules, strings.TrimPrefix(strings.TrimPrefix(path, at), "/")})
		if at == "" {
			break
		}
		at, _ = splitName(at)
	}
	values := attributesOf(name, from, &m)
	for _, name := range attributesAsked {
		text += name + "=" + map[attributeState]string{attributeUnknown: "unspecified", attributeUnsettled: "unspecified",
			attributeSet: "set", attributeUnset: "unset", attributeText: values[name].text}[values[name].state] + "\n"
	}
	return text, m.doubt
}

// TestAttributesLikeGit has git read random .gitattributes on several levels.
func TestAttributesLikeGit(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	m := &mutation{Rand: rand.New(rand.NewPCG(31, 32))}
	folders := []string{"", "a", "a/build", "src", "src/lib", "src/lib/a"}
	var paths []string
	for _, f := range folders {
		if err := os.MkdirAll(filepath.Join(dir, f), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range mutationNames {
			paths = append(paths, join(f, name))
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
			data := m.gitattributes()
			for range m.IntN(3) { // lines of the kinds that git leaves out, and macros of macros
				line := m.pick([]string{"[attr]deep mine -eol\n", "[attr]mine deep\n", "* deep\n", "[attr]binary text\n", "*.txt binary\n", "[attr]-x text\n", "[attr] text\n",
					"!*.txt text\n", `"a\056txt" text` + "\n", `"\141*"text=auto` + "\n", `"open text` + "\n", `"*" text` + "\n", "*.o text=auto -text text\n", "* te=xt text=\n", "* text= eol=\r\n", "\t # no\n", "*.txt\teol=crlf\vtext\n",
					"[attr]binary\n", "*.txt -binary\n", "*.o !binary text\n", "* a.b_c-d text\n", "* a+b text\n"})
				if m.IntN(2) == 0 {
					data = append(data, line...)
				} else {
					data = append([]byte(line), data...)
				}
			}
			files[f] = data
			parsed, err := parseAttributes(data, f == "")
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

// TestLineEndsLikeGit converts random content both ways by every combination of attributes,
// over an index that has something else.
func TestLineEndsLikeGit(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	m := &mutation{Rand: rand.New(rand.NewPCG(41, 42))}
	lines := []string{"", "text", "-text", "text=auto", "text eol=crlf", "text=auto eol=crlf", "text=auto eol=lf", "eol=crlf", "eol=lf", "crlf", "-crlf", "crlf=input", "crlf=auto", "binary", "text=input", "text=other", "-text eol=crlf", "!text crlf", "text=auto -crlf"}
	var config strings.Builder
	for i, l := range lines {
		fmt.Fprintf(&config, "[0-9]*.%d %s\n", i, l)
	}
	rules, err := parseAttributes([]byte(config.String()), true)
	if err != nil {
		t.Fatal(err)
	}
	// First everything is added without attributes, so that the index has CRLF, too.
	const each = 25
	name := func(i, n int) string { return fmt.Sprintf("%d.%d", n, i) }
	was := map[string][]byte{}
	for i := range lines {
		for n := range each {
			was[name(i, n)] = m.content()
			if n%5 == 0 {
				continue // is not in the index
			}
			if err := os.WriteFile(filepath.Join(dir, name(i, n)), was[name(i, n)], 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	git(t, dir, "add", "-A")
	index := git(t, dir, "write-tree")
	now := map[string][]byte{}
	for _, f := range slices.Sorted(maps.Keys(was)) { // in an order, so that it is the same content each time
		now[f] = append(m.content(), "longer than before, for git's stat"...)
		if err := os.WriteFile(filepath.Join(dir, f), now[f], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".gitattributes"), []byte(config.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", "-A")
	tree := git(t, dir, "write-tree")
	git(t, dir, "checkout-index", "-q", "-a", "-f", "--prefix=out/")
	git(t, r.Dir(), "fetch", "-q", dir, git(t, dir, "commit-tree", "-m", "x", index), git(t, dir, "commit-tree", "-m", "x", tree))
	w := &snapshotWalk{ctx: ctx, repo: r, trees: map[Hash]*treeEntries{}}
	known, err := w.named(Hash(index))
	if err != nil {
		t.Fatal(err)
	}
	want, err := w.named(Hash(tree))
	if err != nil {
		t.Fatal(err)
	}
	converted, out := 0, 0
	for f, data := range now {
		var ma matching
		c := conversionOf(attributesOf(f, []attributeSource{{&rules, f}}, &ma))
		got, err := w.clean(data, c, known.named[f])
		if err != nil {
			t.Fatal(err)
		}
		if h := blobID(got); h != string(want.named[f].hash) {
			t.Errorf("%s: %q became %q, not what git makes of it (index: %q)", f, data, got, was[f])
		}
		if len(got) != len(data) {
			converted++
		}
		if c.crlf {
			got = toCRLF(got, c.lines)
		}
		checkout, err := os.ReadFile(filepath.Join(dir, "out", f))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(checkout) {
			t.Errorf("%s: checked out %q, by git %q", f, got, checkout)
		}
		if len(got) > len(data) {
			out++
		}
	}
	if converted < 20 || out < 20 {
		t.Errorf("%d were converted, %d back", converted, out)
	}
}

// FuzzAttributes gives git and the parser the same file.
func FuzzAttributes(f *testing.F) {
	for _, s := range []string{"* text=auto\n*.bat eol=crlf\n", "[attr]m text -eol\n*.x m !filter\n", `"a\040b" -text` + "\n", "\xef\xbb\xbfa ident\n", "* filter=lfs diff=lfs merge=lfs -text\r\n", "*[ text\n", "a working-tree-encoding=UTF-16\n", "[attr]a b\n[attr]b a\n* a\n", "** binary\n* =x\n* -\n"} {
		f.Add([]byte(s), "a b")
	}
	dir := f.TempDir()
	git(f, dir, "init", "-q")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		if len(data) > 10_000 || len(path) > 1000 || !validPath(path) {
			return
		}
		rules, err := parseAttributes(data, true)
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

// TestLFReader reads what comes in pieces of every size.
func TestLFReader(t *testing.T) {
	for _, text := range []string{"", "\r", "\r\n", "a\r\nb", "\r\r\n\r", "a\rb\n\r\n", strings.Repeat("0123456789\r\n", 50) + "\r"} {
		for _, in := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
			got, err := io.ReadAll(iotest.HalfReader(lfReader{bufio.NewReaderSize(in, 16)}))
			if want := toLF([]byte(text)); string(got) != string(want) || err != nil {
				t.Errorf("%q became %q, %v", text, got, err)
			}
		}
	}
	broken := errors.New("broken")
	if _, err := io.ReadAll(lfReader{bufio.NewReader(io.MultiReader(strings.NewReader("a\r"), iotest.ErrReader(broken)))}); !errors.Is(err, broken) {
		t.Error(err)
	}
}
