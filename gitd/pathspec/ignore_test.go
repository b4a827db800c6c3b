package pathspec

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/pathspec/pathspectest"
)

// checkIgnore reports for each path whether git ignores it. dir is a repository, and the paths are
// below it.
func checkIgnore(t testing.TB, dir string, paths []string) []bool {
	t.Helper()
	cmd := exec.Command("git", "check-ignore", "--no-index", "--stdin", "-z", "-v", "-n")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C")
	cmd.Stdin = strings.NewReader(strings.Join(paths, "\x00") + "\x00")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 { // 1 means that none is ignored
		t.Fatalf("git check-ignore: %v\n%s", err, errs.String())
	}
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if len(fields) != 4*len(paths) {
		t.Fatalf("git answered with %d fields to %d paths\n%s", len(fields), len(paths), errs.String())
	}
	list := make([]bool, len(paths))
	for i := range paths {
		pattern := fields[4*i+2]
		list[i] = pattern != "" && pattern[0] != '!'
	}
	return list
}

// ignoring maps the folders of a work tree to their .gitignore files.
type ignoring map[string]Ignore

func (r ignoring) ignored(path string, folder bool) (out, doubt bool) {
	var m Tally
	up, name := splitPath(path)
	if up != "" {
		if out, doubt = r.ignored(up, true); out || doubt {
			return out, doubt
		}
	}
	for at := up; ; at, _ = splitPath(at) {
		rel := strings.TrimPrefix(strings.TrimPrefix(path, at), "/")
		if said := r[at].Match(rel, name, folder, &m); said != Undecided {
			return said == Ignored, m.Ambiguous
		}
		if at == "" {
			return false, m.Ambiguous
		}
	}
}

// TestPatternsLikeGit compares patterns of every form with git, each in a folder of its own.
func TestPatternsLikeGit(t *testing.T) {
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "-q")
	rnd := rand.New(rand.NewPCG(11, 12))
	text := func(from string, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = from[rnd.IntN(len(from))]
		}
		return string(b)
	}
	part := func() string {
		switch rnd.IntN(4) {
		case 0:
			return text("ab", 1+rnd.IntN(3))
		case 1:
			return text("ab*", 1+rnd.IntN(4))
		case 2:
			return text("ab*?\\", 1+rnd.IntN(4))
		}
		return text("abA*?[]!^-\\: \t#1_.~z\x7f\x80\xff/", 1+rnd.IntN(10))
	}
	var patterns []string
	n := 700
	if os.Getenv("RAMUS_TEST") == "full" {
		n = 5000
	}
	for range n {
		p := part()
		for rnd.IntN(3) > 0 {
			p += "/" + []string{part(), "**", "*"}[rnd.IntN(3)]
		}
		if rnd.IntN(6) == 0 {
			p = "/" + p
		}
		if rnd.IntN(6) == 0 {
			p += "/"
		}
		patterns = append(patterns, p)
	}
	// Every class meets every byte that the name of a file may have.
	for _, class := range []string{"alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
		"space", "upper", "xdigit", "none", ""} {
		patterns = append(patterns, "x[[:"+class+":]]y", "x[^[:"+class+":]]y", "x[[:"+class+"]]y", "x[[:"+class+":]-z]y")
	}
	patterns = append(patterns, "x[a-\\]]y", "x[\\a-z]y", "x[]-a]y", "x[--z]y", "x[!]y]y", "x[a", "x[", "x\\", "x\\ ",
		"x\\  ", "x  ", "", "!", "/", "//", "**", "**/", "/**", "***", "a/***/b", "a**/b", "a/**b", "**/**/b",
		"x[!a]y", `a/**\/b`)
	paths := []string{"a", "b", "ab", "aab", "a/b", "a/a/b", "ab/ba", "a/b/a/b", "b/a", "aa/ab/b", "a*b", `a\b`, "a?",
		"[ab]", "a b", "a ", "x", "x ", "x  ", "#a", "!a", "-", "a/b ", "A", "bb/aa/bb"}
	for c := 1; c < 256; c++ {
		if c != '/' {
			paths = append(paths, "x"+string([]byte{byte(c)})+"y")
		}
	}
	rules := ignoring{}
	var all []string
	for i, p := range patterns {
		folder := fmt.Sprint(i)
		text := []byte("#\n" + p + "\n")
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, folder, ".gitignore"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		rules[folder] = ParseIgnore(text)
		some := paths[:25]
		if strings.HasPrefix(p, "x") {
			some = paths
		}
		for _, q := range some {
			all = append(all, folder+"/"+q)
		}
	}
	matched, doubts := 0, 0
	for i, want := range checkIgnore(t, dir, all) {
		got, doubt := rules.ignored(all[i], false)
		if want {
			matched++
		}
		if doubt {
			doubts++
			continue
		}
		if got != want {
			folder, path, _ := strings.Cut(all[i], "/")
			var n int
			fmt.Sscan(folder, &n)
			t.Errorf("pattern %q, path %q: ignored %v, by git %v", patterns[n], path, got, want)
		}
	}
	t.Logf("%d of %d matched, %d are read in different ways", matched, len(all), doubts)
	if matched < 500 || doubts > len(all)/100 {
		t.Errorf("%d of %d matched, %d are read in different ways", matched, len(all), doubts)
	}
}

// TestIgnoreLikeGit compares trees that have .gitignore files on several levels with git.
func TestIgnoreLikeGit(t *testing.T) {
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "-q")
	m := pathspectest.Random{Rand: rand.New(rand.NewPCG(21, 22))}
	var paths []string
	folders := map[string]bool{}
	var grow func(at string, depth int)
	grow = func(at string, depth int) {
		names := slices.Clone(pathspectest.Names)
		m.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for i, name := range names[:12] {
			p := filepath.Join(at, name)
			paths = append(paths, p)
			if i < 4 && depth < 3 {
				folders[p] = true
				if err := os.Mkdir(filepath.Join(dir, p), 0o755); err != nil {
					t.Fatal(err)
				}
				grow(p, depth+1)
			} else if err := os.WriteFile(filepath.Join(dir, p), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	grow("", 0)
	for round := range 40 {
		rules := ignoring{}
		in := []string{""}
		for range m.IntN(4) {
			p := paths[m.IntN(len(paths))]
			if folders[p] {
				in = append(in, p)
			}
		}
		for _, at := range in {
			data := m.Gitignore()
			if err := os.WriteFile(filepath.Join(dir, at, ".gitignore"), data, 0o644); err != nil {
				t.Fatal(err)
			}
			rules[at] = ParseIgnore(data)
		}
		for i, want := range checkIgnore(t, dir, paths) {
			if got, doubt := rules.ignored(paths[i], folders[paths[i]]); got != want && !doubt {
				t.Errorf("round %d: %q: ignored %v, by git %v", round, paths[i], got, want)
			}
		}
		if t.Failed() {
			for _, at := range in {
				data, _ := os.ReadFile(filepath.Join(dir, at, ".gitignore"))
				t.Logf("%q:\n%q", at, data)
			}
			return
		}
		for _, at := range in {
			os.Remove(filepath.Join(dir, at, ".gitignore"))
		}
	}
}

// TestPatternsThatCost checks that hostile patterns cost no more than a polynomial of their length.
func TestPatternsThatCost(t *testing.T) {
	path := strings.Repeat("a/", 100) + strings.Repeat("a", 200)
	for _, p := range []string{
		strings.Repeat("*a", 50) + "b",
		"/" + strings.Repeat("**/a/", 50) + "b",
		"/" + strings.Repeat("**/*a", 50) + "b",
		"/" + strings.Repeat("a*/", 99) + strings.Repeat("*a", 40) + "b",
	} {
		var m Tally
		rules := ParseIgnore([]byte(p))
		if rules.Match(path, path[200:], false, &m) != Undecided || m.Steps > 1_000_000 {
			t.Errorf("%.40q…: %d steps", p, m.Steps)
		}
	}
}

// FuzzIgnore gives the same file to git and to the parser.
func FuzzIgnore(f *testing.F) {
	for _, s := range []string{"a\n!a/b\n", "*.o\r\n# x\n\\#y\n", "a \\ \n", "/a/**/b/\n**/c",
		"[[:alpha:]-]x[!]a-\\]]\n", "\xef\xbb\xbfa\x00b\n", "a**/b", "!\n/\n//\n", "***/a\\", "a/\\"} {
		f.Add([]byte(s), "a/b c")
	}
	dir := f.TempDir()
	gittest.Run(f, dir, "init", "-q")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		if len(data) > 10_000 || len(path) > 1000 || !validPath(path) {
			return
		}
		rules := ignoring{"": ParseIgnore(data)}
		got, doubt := rules.ignored(path, false)
		if err := os.WriteFile(filepath.Join(dir, ".gitignore"), data, 0o644); err != nil {
			t.Fatal(err)
		}
		if want := checkIgnore(t, dir, []string{path})[0]; got != want && !doubt {
			t.Errorf("%q, %q: ignored %v, by git %v", data, path, got, want)
		}
	})
}

// validPath reports whether git takes path literally on a command line.
func validPath(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." || part == ".git" || len(part) > 255 {
			return false
		}
	}
	return !strings.Contains(path, "\x00") && path[0] != ':' && path != ".gitignore" && path != ".gitattributes" &&
		!strings.HasPrefix(path, ".gitignore/") && !strings.HasPrefix(path, ".gitattributes/")
}

// splitPath splits path into its folder, "" at the root, and its last part.
func splitPath(path string) (folder, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}
