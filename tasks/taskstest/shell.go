// Package taskstest tests the rules for every tasks.Shell.
package taskstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/library"
)

// Shell runs the conformance suite. open returns a Shell over a new work tree for each test: a git repository on a
// branch with at least one commit, clean, with an "origin" for Push, and without files whose names begin with "t-".
// Commands run on a Unix with sh, git, ln, cat, printf and sleep. open cleans up by t.Cleanup.
func Shell(t *testing.T, open func(t *testing.T) tasks.Shell) {
	for _, c := range []struct {
		name string
		test func(*testing.T, shell)
	}{
		{"Exec", execute},
		{"ExecTimeout", execTimeout},
		{"ExecOutput", execOutput},
		{"ExecCancelled", execCancelled},
		{"ReadWrite", readWrite},
		{"OddNames", oddNames},
		{"Modes", modes},
		{"HostilePaths", hostilePaths},
		{"HostileLinks", hostileLinks},
		{"Folders", folders},
		{"LargeFile", largeFile},
		{"ListFiles", listFiles},
		{"Commit", commit},
		{"CommitPaths", commitPaths},
		{"Push", push},
		{"Library", testLibrary},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, shell{open(t), t}) })
	}
}

// shell is a Shell whose failures end the test.
type shell struct {
	tasks.Shell
	t *testing.T
}

func (s shell) sh(command string) tasks.Result {
	s.t.Helper()
	r, err := s.Exec(s.t.Context(), command, time.Minute)
	if err != nil {
		s.t.Fatalf("Exec %q: %v", command, err)
	}
	return r
}

// must runs a command that has to succeed and returns its stdout.
func (s shell) must(command string) string {
	s.t.Helper()
	r := s.sh(command)
	if r.ExitCode != 0 || r.TimedOut {
		s.t.Fatalf("%q: exit code %d, timed out %v\n%s%s", command, r.ExitCode, r.TimedOut, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

func (s shell) write(name, content string) {
	s.t.Helper()
	if err := s.WriteFile(s.t.Context(), name, []byte(content)); err != nil {
		s.t.Fatalf("WriteFile %q: %v", name, err)
	}
}

func (s shell) read(name string) string {
	s.t.Helper()
	b, err := s.ReadFile(s.t.Context(), name)
	if err != nil {
		s.t.Fatalf("ReadFile %q: %v", name, err)
	}
	return string(b)
}

func (s shell) list(pattern string) []string {
	s.t.Helper()
	names, err := s.ListFiles(s.t.Context(), pattern)
	if err != nil {
		s.t.Fatalf("ListFiles %q: %v", pattern, err)
	}
	return names
}

func execute(t *testing.T, s shell) {
	r := s.sh("printf out; printf err >&2; exit 7")
	if r.Stdout != "out" || r.Stderr != "err" || r.ExitCode != 7 || r.TimedOut || r.Truncated {
		t.Errorf("got %+v", r)
	}
	if got := s.must("test -e .git && echo here"); got != "here\n" {
		t.Errorf("a command does not start in the root of the work tree: %q", got)
	}
	if r := s.sh("no-such-command-at-all"); r.ExitCode != 127 {
		t.Errorf("unknown command: got %+v", r)
	}
	if r := s.sh("kill -9 $$"); r.ExitCode != 128+9 {
		t.Errorf("a shell killed by signal 9: exit code %d, want 137", r.ExitCode)
	}
	if r := s.sh("if then ("); r.ExitCode == 0 || r.Stderr == "" {
		t.Errorf("syntax error: got %+v", r)
	}
	if r := s.sh("cat"); r.ExitCode != 0 || r.Stdout != "" {
		t.Errorf("stdin is not empty: %+v", r)
	}
	if _, err := s.Exec(t.Context(), "echo a\x00b", time.Minute); err == nil {
		t.Error("a command with NUL was run")
	}
	for _, v := range []string{"'; rm -rf /; '", "$(id)", "a\nb", "-n", "\xff"} {
		if got := s.must("printf %s " + tasks.Quote(v)); got != v {
			t.Errorf("argument %q arrived as %q", v, got)
		}
	}
}

func execTimeout(t *testing.T, s shell) {
	var r tasks.Result
	begun := func() bool { return s.sh("test -e t-begun").ExitCode == 0 }
	// A machine may be too slow to start a command in such a short time.
	for timeout := 500 * time.Millisecond; timeout < time.Minute && !begun(); timeout *= 2 {
		var err error
		if r, err = s.Exec(t.Context(), "echo before; : >t-begun; trap '' TERM; sleep 600; echo after", timeout); err != nil {
			t.Fatal(err)
		}
	}
	if !r.TimedOut || r.Stdout != "before\n" || r.ExitCode == 0 {
		t.Errorf("got %+v", r)
	}
	if got := s.must("echo next"); got != "next\n" {
		t.Errorf("after a timeout: got %q", got)
	}
}

func execOutput(t *testing.T, s shell) {
	if got := s.must(`printf 'a\377\000b'`); got != "a\xff\x00b" {
		t.Errorf("binary output arrived as %q", got)
	}
	r := s.sh("echo first; yes 0123456789abcdef | head -c 20000000; echo; echo last")
	if !r.Truncated || len(r.Stdout) > 8<<20 {
		t.Errorf("20 MB of output: truncated %v, %d bytes kept", r.Truncated, len(r.Stdout))
	}
	if !strings.HasPrefix(r.Stdout, "first\n") || !strings.HasSuffix(r.Stdout, "\nlast\n") {
		t.Error("20 MB of output: the start or the end is missing, where most is said")
	}
}

func execCancelled(t *testing.T, s shell) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	if _, err := s.Exec(ctx, "sleep 600", 10*time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func readWrite(t *testing.T, s shell) {
	for _, content := range []string{"", "text\n", "no newline", "\r\n\x00\xff\xfe binary \x1b",
		strings.Repeat("0123456789abcdef", 1<<16)} {
		s.write("t-a/b/c.txt", content)
		if got := s.read("t-a/b/c.txt"); got != content {
			t.Errorf("%d bytes became %d bytes", len(content), len(got))
		}
		if got := s.must("wc -c <t-a/b/c.txt"); strings.TrimSpace(got) != fmt.Sprint(len(content)) {
			t.Errorf("a command sees %s bytes, not %d", got, len(content))
		}
	}
	s.must("printf by-command >t-d")
	if got := s.read("t-d"); got != "by-command" {
		t.Errorf("got %q", got)
	}
	for _, name := range []string{"t-none", "t-none/x", "t-a/none"} {
		if _, err := s.ReadFile(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want fs.ErrNotExist", name, err)
		}
	}
	if got := s.must("git status --porcelain -uall"); strings.Contains(got, "tmp") {
		t.Errorf("something is left over: %s", got)
	}
}

func oddNames(t *testing.T, s shell) {
	names := []string{"t- space", "t-new\nline", "t-\xff\xfe", "-t-dash", "t-ünï", "t-'quote\"", "t-$(id)", "t-*",
		"t-\\back", "t-dir with space/-x", ":(t-exclude)y", "t-#", "~t-home", "t-\t"}
	for _, name := range names {
		s.write(name, name)
		if got := s.read(name); got != name {
			t.Errorf("%q: read %q", name, got)
		}
	}
	all := s.list("")
	for _, name := range names {
		if !slices.Contains(all, name) {
			t.Errorf("%q is not listed", name)
		}
	}
	if hash, err := s.Commit(t.Context(), "Odd names", names); err != nil || hash == "" {
		t.Fatalf("Commit: %q, %v", hash, err)
	}
	if got := s.must("git status --porcelain"); got != "" {
		t.Errorf("not committed: %q", got)
	}
}

func modes(t *testing.T, s shell) {
	s.must("printf '#!/bin/sh\necho one\n' >t-run; chmod 755 t-run; printf x >t-private; chmod 600 t-private")
	s.write("t-run", "#!/bin/sh\necho two\n")
	if got := s.must("./t-run"); got != "two\n" {
		t.Errorf("got %q", got)
	}
	s.write("t-private", "y")
	if got := s.must("ls -l t-private"); !strings.HasPrefix(got, "-rw-------") {
		t.Errorf("mode was not kept: %s", got)
	}
	s.write("t-new", "z")
	if got := s.must("ls -l t-new"); !strings.HasPrefix(got, "-rw-r--r--") {
		t.Errorf("mode of a new file: %s", got)
	}
}

// refused checks that a path is refused, for reading and for writing.
func (s shell) refused(name string) {
	s.t.Helper()
	if b, err := s.ReadFile(s.t.Context(), name); !errors.Is(err, tasks.ErrRefused) {
		s.t.Errorf("ReadFile %q: got %.40q, %v; want ErrRefused", name, b, err)
	}
	if err := s.WriteFile(s.t.Context(), name, []byte("x")); !errors.Is(err, tasks.ErrRefused) {
		s.t.Errorf("WriteFile %q: got %v; want ErrRefused", name, err)
	}
}

func hostilePaths(t *testing.T, s shell) {
	s.must("mkdir -p t-dir")
	for _, name := range []string{
		"", "/", "/etc/passwd", "..", "../x", "t-dir/../../x", "t-dir/../x", "./../x", "t-dir/..", "a\x00b",
		strings.Repeat("x/", 4000),
		// git would run programs that these files name.
		".git", ".git/config", ".git/hooks/pre-commit", ".GIT/config", "./.git/config", "t-dir/.git/config",
	} {
		s.refused(name)
	}
	if _, err := s.Commit(t.Context(), "x", []string{"../x"}); !errors.Is(err, tasks.ErrRefused) {
		t.Errorf("Commit of ../x: got %v, want ErrRefused", err)
	}
	for _, pattern := range []string{"/etc/*", "../*", "[", strings.Repeat("x", 10_000)} {
		if names, err := s.ListFiles(t.Context(), pattern); err == nil {
			t.Errorf("ListFiles %.20q: got %d names", pattern, len(names))
		}
	}
}

func hostileLinks(t *testing.T, s shell) {
	s.must(`set -e
		ln -s /etc/passwd t-passwd; ln -s /etc t-etc; ln -s .. t-up; ln -s ../../../../../../../../etc/passwd t-rel
		ln -s .git t-git; ln -s .git/config t-config; ln -s t-git/config t-twice; mkdir -p t-dir; ln -s ../.git t-dir/git
		ln -s t-loop t-loop; ln -s t-b t-c; ln -s t-c t-b
		printf inside >t-file; ln -s t-file t-link; ln -s ../t-file t-dir/link; ln -s t-dir t-dirlink; ln -s t-nothing t-dangling`)
	for _, name := range []string{
		"t-passwd", "t-etc/passwd", "t-etc/new", "t-up/x", "t-rel", "t-git/config", "t-config", "t-twice",
		"t-dir/git/config", "t-dirlink/git/hooks/x", "t-loop", "t-b",
	} {
		s.refused(name)
	}
	before := s.must("cat .git/config /etc/passwd")
	// Links that stay inside are followed, and stay links.
	for _, name := range []string{"t-link", "t-dir/link", "t-dirlink/link"} {
		if got := s.read(name); got != "inside" {
			t.Errorf("%s: got %q", name, got)
		}
	}
	s.write("t-dirlink/link", "changed")
	if got := s.must("cat t-file; test -L t-dir/link && test -L t-dirlink && echo +links"); got != "changed+links\n" {
		t.Errorf("got %q", got)
	}
	s.write("t-dangling", "made")
	if got := s.must("cat t-nothing"); got != "made" {
		t.Errorf("got %q", got)
	}
	if got := s.must("cat .git/config /etc/passwd"); got != before {
		t.Error("a file that is out of bounds has changed")
	}
	if names := s.list("**"); !slices.Contains(names, "t-passwd") || slices.Contains(names, "t-etc/passwd") {
		t.Errorf("links must be listed and not followed: %q", names)
	}
}

func folders(t *testing.T, s shell) {
	s.must("mkdir -p t-dir; printf x >t-file; mkfifo t-pipe")
	s.refused("t-dir")
	s.refused(".")
	s.refused("t-pipe")
	if _, err := s.ReadFile(t.Context(), "t-file/x"); err == nil {
		t.Error("a file was taken for a folder")
	}
	if err := s.WriteFile(t.Context(), "t-file/x", nil); err == nil {
		t.Error("a file was taken for a folder")
	}
	if got := s.read("t-file"); got != "x" {
		t.Errorf("got %q", got)
	}
}

func largeFile(t *testing.T, s shell) {
	largest := bytes.Repeat([]byte("x"), tasks.MaxFile)
	if err := s.WriteFile(t.Context(), "t-large", largest); err != nil {
		t.Fatalf("a file of MaxFile: %v", err)
	}
	if got, err := s.ReadFile(t.Context(), "t-large"); err != nil || !bytes.Equal(got, largest) {
		t.Errorf("a file of MaxFile: %d bytes, %v", len(got), err)
	}
	if err := s.WriteFile(t.Context(), "t-large", append(largest, 'x')); !errors.Is(err, tasks.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	s.must("printf x >>t-large; truncate -s 1000000000 t-sparse")
	for _, name := range []string{"t-large", "t-sparse"} {
		if _, err := s.ReadFile(t.Context(), name); !errors.Is(err, tasks.ErrTooLarge) {
			t.Errorf("%s: got %v, want ErrTooLarge", name, err)
		}
	}
	s.must("rm t-sparse")
}

func listFiles(t *testing.T, s shell) {
	s.write("t-x/.gitignore", "*.log\nout/\n")
	for _, name := range []string{"t-x/a.go", "t-x/sub/b.go", "t-x/sub/c.txt", "t-x/d.log", "t-x/out/e", "t-x/.hidden"} {
		s.write(name, "x")
	}
	s.must("mkdir -p t-x/empty; git add t-x/a.go; printf x >t-x/gone.go; git add t-x/gone.go; rm t-x/gone.go")
	for _, c := range []struct {
		pattern string
		want    []string
	}{
		{"t-x/**", []string{"t-x/.gitignore", "t-x/.hidden", "t-x/a.go", "t-x/sub/b.go", "t-x/sub/c.txt"}},
		{"t-x/", []string{"t-x/.gitignore", "t-x/.hidden", "t-x/a.go", "t-x/sub/b.go", "t-x/sub/c.txt"}},
		{"t-x/*.go", []string{"t-x/a.go"}},
		{"t-x/**/*.go", []string{"t-x/a.go", "t-x/sub/b.go"}},
		{"t-x/sub/{b,z}.*", []string{"t-x/sub/b.go"}},
		{"t-x/[ab].go", []string{"t-x/a.go"}},
		{"t-none/*", nil},
		{".git/**", nil},
	} {
		if got := s.list(c.pattern); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.pattern, got, c.want)
		}
	}
	all := s.list("")
	if !slices.IsSorted(all) {
		t.Error("not sorted")
	}
	for _, name := range all {
		if strings.HasPrefix(name, ".git/") {
			t.Errorf("%s is listed", name)
		}
	}
}

func commit(t *testing.T, s shell) {
	head := strings.TrimSpace(s.must("git rev-parse HEAD"))
	if branch := strings.TrimSpace(s.must("git rev-parse --abbrev-ref HEAD")); branch != s.Branch() {
		t.Errorf("Branch is %q, git says %q", s.Branch(), branch)
	}
	hash, err := s.Commit(t.Context(), "Nothing", nil)
	if err != nil || hash != "" {
		t.Errorf("nothing changed: got %q, %v", hash, err)
	}
	s.write("t-a", "1")
	s.write("t-dir/b", "2")
	message := "-m: a subject with 'quotes' and $(id)\n\nA body.\n# not a comment\n"
	if hash, err = s.Commit(t.Context(), message, nil); err != nil || hash == "" {
		// A Shell may have committed already, directly after the write.
		if hash = strings.TrimSpace(s.must("git rev-parse HEAD")); err != nil || hash == head {
			t.Fatalf("got %q, %v", hash, err)
		}
	} else if got := s.must("git log -1 --format=%B " + hash); !strings.HasPrefix(got, strings.TrimRight(message, "\n")) {
		t.Errorf("the message became %q", got)
	}
	if got := s.must("git show HEAD:t-a; git show HEAD:t-dir/b; git status --porcelain"); got != "12" {
		t.Errorf("got %q", got)
	}
	if _, err := s.Commit(t.Context(), "  \n", nil); err == nil {
		t.Error("an empty message was taken")
	}
}

func commitPaths(t *testing.T, s shell) {
	for _, name := range []string{"t-a", "t-b", "t-dir/c", "t-dir/d", "t-*"} {
		s.write(name, name)
	}
	if _, err := s.Commit(t.Context(), "Some", []string{"t-a", "t-dir", "t-missing", "t-*"}); err != nil {
		t.Fatal(err)
	}
	if got := s.must("git ls-tree -r --name-only HEAD -- t-a t-dir 't-*'"); got != "t-*\nt-a\nt-dir/c\nt-dir/d\n" {
		t.Errorf("got %q", got)
	}
	s.must("rm t-a")
	if _, err := s.Commit(t.Context(), "Remove", []string{"t-a"}); err != nil {
		t.Fatal(err)
	}
	if r := s.sh("git cat-file -e HEAD:t-a"); r.ExitCode == 0 {
		t.Error("a deletion was not committed")
	}
}

func push(t *testing.T, s shell) {
	s.write("t-pushed", "x")
	if _, err := s.Commit(t.Context(), "Push this", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Push(t.Context(), "", ""); err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSpace(s.must("git rev-parse HEAD"))
	got := s.must("git ls-remote origin " + tasks.Quote("refs/heads/"+s.Branch()))
	if !strings.HasPrefix(got, want) {
		t.Errorf("the server has %q, want %s", got, want)
	}
	for _, remote := range []string{"--upload-pack=id", "ext::sh -c id", "/etc", "t-unknown"} {
		if err := s.Push(t.Context(), remote, ""); err == nil {
			t.Errorf("pushed to %q", remote)
		}
	}
	for _, branch := range []string{"-d", ":x", "+x", "a..b", "x.lock", "a b"} {
		if err := s.Push(t.Context(), "", branch); err == nil {
			t.Errorf("pushed to branch %q", branch)
		}
	}
}

func testLibrary(t *testing.T, s shell) {
	run := func(name, params string) tasks.Output {
		t.Helper()
		task, ok := library.Lookup(name)
		if !ok {
			t.Fatalf("no task %s", name)
		}
		out, err := task.Run(t.Context(), s.Shell, []byte(params))
		if err != nil {
			t.Fatalf("%s %s: %v", name, params, err)
		}
		return out
	}
	run("lib_write_file", `{"path":"t-lib/a.txt","content":"hello\n"}`)
	if f := run("lib_read_file", `{"path":"t-lib/a.txt"}`).Value.(library.File); f.Content != "hello\n" {
		t.Errorf("got %+v", f)
	}
	if out := run("lib_read_file", `{"path":"t-lib/none"}`); out.OK || !out.Value.(library.File).Missing {
		t.Errorf("got %+v", out)
	}
	if l := run("lib_list_files", `{"pattern":"t-lib/**"}`).Value.(library.Files); !slices.Equal(l.Files, []string{"t-lib/a.txt"}) {
		t.Errorf("got %+v", l)
	}
	run("lib_git_commit", `{"message":"By the library","files":["t-lib"]}`)
	if st := run("lib_git_status", `{}`).Value.(library.Status); st.Branch != s.Branch() || st.Head == "" || !st.Clean {
		t.Errorf("got %+v", st)
	}
	run("lib_git_push", `{}`)
}
