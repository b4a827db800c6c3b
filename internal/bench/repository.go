package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// shape describes a repository. The same shape is the same bytes on every machine.
type shape struct {
	name    string
	files   int
	commits int // after the first, which has all the files; each changes three
	// branches start at main's tip and are called "task-0" and so on. Each has one commit that changes a file and adds
	// one.
	branches int
	long     bool // files are six times as long, like source text instead of fixtures
	depends  bool // it has the dependencies of containers_deps.go
}

// The shapes that scenarios share. Their sizes and histories are those of a small tool, a large JavaScript monorepo,
// three such monorepos, and a middle-sized Go project.
var (
	small  = shape{name: "small", files: 437, commits: 100}
	medium = shape{name: "medium", files: 27_000, commits: 200}
	large  = shape{name: "large", files: 83_000, commits: 50}
	served = shape{name: "served", files: 961, commits: 5_000, long: true}
	tasked = shape{name: "tasked", files: 961, commits: 5_000, branches: 640, long: true}
)

// repository is a repository that was made.
type repository struct {
	shape
	dir string // bare
	tip string
}

// shapeVersion changes with the content of the repositories, so that old ones are not used.
const shapeVersion = 3

// markPath is a file of every repository. Its content is markText.
const (
	markPath = "MARK"
	markText = "the work tree is here\n"
)

// repository makes a repository, or returns the one that an earlier run has made. It is packed and has a bitmap and a
// commit-graph, like a well-maintained one.
func (b *bench) repository(ctx context.Context, s shape) (*repository, error) {
	if r := b.repos[s.name]; r != nil {
		return r, nil
	}
	dir := filepath.Join(b.out, "repos",
		fmt.Sprintf("%s-%d-%d-%d-v%d.git", s.name, s.files, s.commits, s.branches, shapeVersion))
	if _, err := os.Stat(dir); err != nil {
		b.sayf("making a repository of %s files and %s commits", thousands(int64(s.files)), thousands(int64(s.commits)))
		if err := makeRepository(ctx, dir, s); err != nil {
			return nil, fmt.Errorf("cannot make repository %s: %w", s.name, err)
		}
	}
	tip, err := gitIn(ctx, dir, "rev-parse", "refs/heads/main")
	if err != nil {
		return nil, err
	}
	r := &repository{s, dir, tip}
	if b.repos == nil {
		b.repos = map[string]*repository{}
	}
	b.repos[s.name] = r
	return r, nil
}

func makeRepository(ctx context.Context, dir string, s shape) error {
	made := dir + ".making"
	if err := os.RemoveAll(made); err != nil {
		return err
	}
	if _, err := gitIn(ctx, "", "init", "-q", "--bare", "-b", "main", made); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "git", "-C", made, "fast-import", "--quiet")
	cmd.Env = plainEnv()
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return err
	}
	w := bufio.NewWriterSize(in, 1<<20)
	err = s.write(w)
	w.Flush() // git's error has the reason
	in.Close()
	if err := joined(err, cmd.Wait()); err != nil {
		return fmt.Errorf("git fast-import: %w: %s", err, said.Bytes())
	}
	for _, args := range [][]string{
		{"config", "gc.auto", "0"},
		{"-c", "pack.threads=2", "repack", "-q", "-a", "-d", "-f", "--write-bitmap-index"},
		{"commit-graph", "write", "--reachable", "--changed-paths", "--no-progress"},
		{"pack-refs", "--all"},
	} {
		if _, err := gitIn(ctx, made, args...); err != nil {
			return err
		}
	}
	return os.Rename(made, dir)
}

// write writes the repository for git fast-import.
func (s shape) write(w io.Writer) error {
	random := rand.New(rand.NewPCG(uint64(s.files), uint64(s.commits)))
	const begin = 1_700_000_000
	commit := func(branch string, n int, from, message string) {
		fmt.Fprintf(w, "commit refs/heads/%s\n", branch)
		fmt.Fprintf(w, "author A Person <person@example.org> %d +0000\ncommitter A Person <person@example.org> %[1]d +0000\n", begin+600*n)
		fmt.Fprintf(w, "data %d\n%s\n", len(message), message)
		if from != "" {
			fmt.Fprintf(w, "from %s\n", from)
		}
	}
	file := func(path, text string) { fmt.Fprintf(w, "M 100644 inline %s\ndata %d\n%s\n", path, len(text), text) }
	texts := map[int]string{} // of changed files
	commit("main", 0, "", "Begin")
	file(markPath, markText)
	file(".gitignore", "node_modules/\n*.log\n/out/\n")
	if s.depends {
		more, err := dependency()
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(more)) {
			file(name, more[name])
		}
	}
	for i := range s.files - 2 {
		file(s.path(i), s.text(i))
	}
	for n := range s.commits {
		commit("main", n+1, "", fmt.Sprintf("Change number %d", n+1))
		for range 3 {
			i := random.IntN(max(s.files-2, 1))
			old := cmp.Or(texts[i], s.text(i))
			texts[i] = edited(old, random)
			file(s.path(i), texts[i])
		}
	}
	for n := range s.branches {
		commit(fmt.Sprintf("task-%d", n), s.commits+n+1, "refs/heads/main", fmt.Sprintf("Task %d", n))
		i := random.IntN(max(s.files-2, 1))
		file(s.path(i), edited(cmp.Or(texts[i], s.text(i)), random))
		file(fmt.Sprintf("notes/task-%d.txt", n), prose(uint64(n), 1, 1))
	}
	_, err := fmt.Fprintln(w, "done")
	return err
}

// path returns the path of the i-th file. A folder has a dozen files, and a package has folders.
func (s shape) path(i int) string {
	folder := i / 12
	kinds := [...]string{"src", "test", "lib", "fixtures/input", "fixtures/output"}
	return fmt.Sprintf("packages/package-%03d/%s/module-%02d/file-%02d.js", folder/40, kinds[folder%len(kinds)],
		folder%40/len(kinds), i%12)
}

// text returns the first content of the i-th file.
func (s shape) text(i int) string {
	if s.long {
		return prose(uint64(i), 0, 6)
	}
	return prose(uint64(i), 0, 1)
}

var words = strings.Fields("const let return function export import from if else for while new this value index result error " +
	"token node parent child left right name type kind state path scope block source target options context buffer length push pop map " +
	"filter reduce assert equal true false null undefined async await try catch throw class extends super static get set of in")

// prose returns the text of a file, which depends on the seeds alone. Most texts are small, some are not.
func prose(i, n uint64, times int) string {
	random := rand.New(rand.NewPCG(i, n))
	lines := (4 + random.IntN(40)) * times
	if random.IntN(20) == 0 {
		lines *= 8
	}
	var s strings.Builder
	for range lines {
		writeLine(&s, random)
	}
	return s.String()
}

func writeLine(s *strings.Builder, random *rand.Rand) {
	s.WriteString(strings.Repeat("  ", random.IntN(4)))
	for range 2 + random.IntN(7) {
		s.WriteString(words[random.IntN(len(words))])
		s.WriteByte(' ')
	}
	fmt.Fprintf(s, "%x;\n", random.Uint32())
}

// edited returns text with one line replaced.
func edited(text string, random *rand.Rand) string {
	lines := strings.SplitAfter(text, "\n")
	var s strings.Builder
	writeLine(&s, random)
	lines[random.IntN(len(lines)-1)] = s.String()
	return strings.Join(lines, "")
}

// copyTo copies the files of the repository.
func (r *repository) copyTo(dir string) error {
	return os.CopyFS(dir, os.DirFS(r.dir))
}

// gitIn runs git and returns its output without the last newline.
func gitIn(ctx context.Context, dir string, args ...string) (string, error) {
	if dir != "" {
		args = append([]string{"-C", dir}, args...)
	}
	cmd := exec.CommandContext(ctx, "git", args...)
	// A server may run as another user, to whom its copy of a repository belongs.
	cmd.Env = append(plainEnv(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}
