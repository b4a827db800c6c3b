package export_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/export"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

var ada = gitd.Person{Name: "Ada", Email: "ada@example.org"}

// world is a server without an executor: repositories, artifacts and an index.
type world struct {
	t     testing.TB
	git   *gitd.Server
	store *store.Store
	dir   string
	index map[string]record.Run
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, git: repotest.NewServer(t), dir: t.TempDir(), index: make(map[string]record.Run)}
	var err error
	if w.store, err = store.Open(filepath.Join(w.dir, "artifacts"), nil); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) importer() *export.Importer {
	return &export.Importer{Git: w.git, Chain: &seal.Chain{Bot: ada, Now: time.Now}, Store: w.store,
		Dir: filepath.Join(w.dir, "exports"), Bot: ada, Now: time.Now,
		Claim: func(record.Run) error { return nil },
		Index: func(runs ...record.Run) error {
			for _, r := range runs {
				w.index[r.Name()] = r
			}
			return nil
		},
		Taken: func(c record.Caller) bool {
			for _, r := range w.index {
				if r.Caller == c {
					return true
				}
			}
			return false
		}}
}

// OpenFile implements [export.Runs] for stored files.
func (w *world) OpenFile(ctx context.Context, _ record.Run, f record.ManifestFile) (*store.File, error) {
	return w.store.Open(ctx, f)
}

func (w *world) Events(context.Context, string, int64, bool) iter.Seq2[record.Event, error] {
	return func(func(record.Event, error) bool) {}
}

func (w *world) Output(context.Context, string, string, string) (io.ReadCloser, error) {
	return nil, record.ErrNotFound
}

// caller makes a repository whose caller has a random history: binary files, renames, deletions, merges, and a run with
// a record after some of the commits.
func (w *world) caller(random *rand.Rand) (*gitd.Repo, []record.Run) {
	t := w.t
	repo, err := w.git.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(w.dir, "work")
	gittest.Run(t, "", "clone", "-q", repo.Dir(), work)
	git := func(args ...string) string {
		return gittest.Run(t, work, append([]string{"-c", "user.name=Ada", "-c", "user.email=ada@example.org",
			"-c", "merge.conflictStyle=merge"}, args...)...)
	}
	write := func() {
		content := make([]byte, random.Intn(3000))
		if random.Intn(2) == 0 {
			random.Read(content)
		} else {
			content = bytes.Repeat([]byte(fmt.Sprintln("line", random.Intn(9))), random.Intn(200))
		}
		name := filepath.Join(work, fmt.Sprintf("d%d", random.Intn(3)), fmt.Sprintf("f%d ä", random.Intn(6)))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write()
	git("add", "-A")
	git("commit", "-qm", "begin")
	git("push", "-q", "origin", "HEAD:refs/heads/main")
	base := gitd.Hash(git("rev-parse", "HEAD"))
	c, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	git("checkout", "-qb", c.Branch())
	var runs []record.Run
	start := base
	for n := range 3 + random.Intn(8) {
		switch files := strings.Split(git("ls-files", "-z"), "\x00"); random.Intn(5) {
		case 0:
			if files[0] != "" {
				git("mv", files[0], fmt.Sprintf("moved-%d", n))
			}
		case 1:
			git("checkout", "-qb", fmt.Sprint("side-", n), "HEAD~"+fmt.Sprint(min(random.Intn(2), n)))
			write()
			git("add", "-A")
			git("commit", "-q", "--allow-empty", "-m", fmt.Sprint("side ", n))
			git("checkout", "-q", c.Branch())
			git("merge", "-q", "-s", "ours", "-m", fmt.Sprint("merge ", n), fmt.Sprint("side-", n))
		default:
			write()
		}
		git("add", "-A")
		git("commit", "-q", "--allow-empty", "-m", fmt.Sprint("commit ", n))
		git("push", "-q", "origin", "HEAD")
		head := gitd.Hash(git("rev-parse", "HEAD"))
		if random.Intn(2) == 0 || n == 0 {
			runs = append(runs, w.seal(repo, c, fmt.Sprint("r", n), base, start, head, random))
			start = head
		}
	}
	if random.Intn(2) == 0 {
		none := gitd.Hash("")
		if err := repo.Update(t.Context(), gitd.RefUpdate{Name: record.ConflictRefs(c) + "/r0-abc", New: start, Old: &none}); err != nil {
			t.Fatal(err)
		}
	}
	return repo, runs
}

// seal writes the record of a run, with an output in git and sometimes an artifact in the store.
func (w *world) seal(repo *gitd.Repo, c record.Caller, id string, base, start, head gitd.Hash, random *rand.Rand) record.Run {
	t := w.t
	r := record.Run{ID: id, Caller: c, Kind: record.KindExec, Repo: "app", Base: "main", BaseCommit: base, Branch: c.Branch(),
		Start: start, Head: head, Command: "true", Exec: &record.Command{Shell: "true"}, Asker: gitd.Person{Name: "Eve", ID: "github:1"},
		State: record.StateComplete, Secrets: []string{"KEY"}, Session: "s", Group: "g", CreatedAt: time.Now().UTC(), EndedAt: time.Now().UTC()}
	output := make([]byte, random.Intn(500))
	random.Read(output)
	m := record.Manifest{Run: r.Name(), Verdict: record.VerdictVerified, State: r.State,
		Files: []record.ManifestFile{describe("output/0001-exec.stdout", output)}}
	if random.Intn(2) == 0 {
		large := []byte("large " + id)
		f := describe("artifacts/large", large)
		f.Stored = true
		place := filepath.Join(w.dir, "large")
		if err := os.WriteFile(place, large, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := w.store.Put(t.Context(), place, f.SHA256, f.Size); err != nil {
			t.Fatal(err)
		}
		m.Files = append(m.Files, f)
	}
	commit := gitd.NewCommit{Parents: []gitd.Hash{head}, Author: ada, Message: r.Name(),
		Put: []gitd.File{{Path: "output/0001-exec.stdout", Content: output}, {Path: "run.json", Content: encode(t, r)},
			{Path: record.ManifestPath, Content: encode(t, m)}}}
	h, err := repo.WriteCommit(t.Context(), commit)
	if err != nil {
		t.Fatal(err)
	}
	none := gitd.Hash("")
	if err := repo.Update(t.Context(), gitd.RefUpdate{Name: record.RunRef(c, id), New: h, Old: &none}); err != nil {
		t.Fatal(err)
	}
	return r
}

func describe(name string, content []byte) record.ManifestFile {
	sum := sha256.Sum256(content)
	return record.ManifestFile{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// pack returns the export of runs.
func (w *world) pack(repo *gitd.Repo, q export.Request) ([]byte, export.Manifest) {
	t := w.t
	t.Helper()
	e := &export.Exporter{Runs: w, Repo: repo, Dir: filepath.Join(w.dir, "exports"), Bot: ada, Now: time.Now}
	p, err := e.Prepare(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := errors.Join(p.Write(t.Context(), &file), p.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Bytes(), p.Manifest
}

// TestProperty exports and imports random callers. Stock git compares branch, records and trees.
func TestProperty(t *testing.T) {
	for seed := range int64(4) {
		random := rand.New(rand.NewSource(seed))
		here, there := newWorld(t), newWorld(t)
		repo, runs := here.caller(random)
		file, m := here.pack(repo, export.Request{Runs: runs, By: "Ada"})

		name := filepath.Join(here.dir, "file.bundle")
		if err := os.WriteFile(name, file, 0o600); err != nil {
			t.Fatal(err)
		}
		clone := filepath.Join(here.dir, "clone")
		gittest.Run(t, "", "clone", "-q", name, clone)
		gittest.Run(t, clone, "fsck", "--strict", "--no-dangling")
		if got := gittest.Run(t, clone, "rev-parse", "HEAD", "HEAD^{tree}"); got != gittest.Run(t, repo.Dir(), "rev-parse", m.Branch, m.Branch+"^{tree}") {
			t.Fatalf("seed %d: the clone is at %s", seed, got)
		}
		refs := func(dir string) string {
			return gittest.Run(t, dir, "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/ramus/runs", "refs/ramus/conflicts")
		}
		heads := gittest.Run(t, "", "bundle", "list-heads", name)
		for line := range strings.Lines(refs(repo.Dir())) {
			if !strings.Contains(heads, line) {
				t.Errorf("seed %d: the file lacks %s", seed, line)
			}
		}

		done, err := there.importer().Import(t.Context(), bytes.NewReader(file), export.Wish{Repo: "app", New: true, By: ada})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		second, err := there.git.Repo("app")
		if err != nil {
			t.Fatal(err)
		}
		gittest.Run(t, second.Dir(), "fsck", "--strict", "--no-dangling")
		for _, what := range []string{"refs/heads", "refs/ramus/conflicts"} {
			list := []string{"for-each-ref", "--format=%(objectname) %(refname) %(tree)", what}
			if a, b := gittest.Run(t, repo.Dir(), list...), gittest.Run(t, second.Dir(), list...); a != b {
				t.Errorf("seed %d: %s differs:\n%s%s", seed, what, a, b)
			}
		}
		for _, r := range runs {
			there.compare(repo, second, r)
		}
		if len(done.Runs) != len(runs) || done.Caller != m.Caller {
			t.Errorf("seed %d: %+v", seed, done)
		}
	}
}

// compare compares the record of an imported run with that of the first server.
func (w *world) compare(first, second *gitd.Repo, r record.Run) {
	t := w.t
	t.Helper()
	ref := record.RunRef(r.Caller, r.ID)
	if a, b := gittest.Run(t, first.Dir(), "rev-parse", ref), gittest.Run(t, second.Dir(), "rev-parse", ref+"^"); a != b {
		t.Errorf("the record of %s is %s and not on top of %s", r.Name(), b, a)
	}
	changed := gittest.Run(t, second.Dir(), "diff-tree", "-r", "--name-only", ref+"^", ref)
	if changed != "evidence/manifest.json\nrun.json" {
		t.Errorf("the import changed %s of %s", changed, r.Name())
	}
	var got record.Run
	var m, was record.Manifest
	for name, into := range map[string]any{"run.json": &got, record.ManifestPath: &m} {
		if err := json.Unmarshal([]byte(gittest.Run(t, second.Dir(), "show", ref+":"+name)), into); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.Unmarshal([]byte(gittest.Run(t, first.Dir(), "show", ref+":"+record.ManifestPath)), &was); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.Files, was.Files) || m.Verdict != record.VerdictUnverified || m.Imported == nil || m.Imported.Verdict != was.Verdict {
		t.Errorf("the evidence of %s is %+v", r.Name(), m)
	}
	for _, f := range m.Files {
		if f.Stored {
			in, err := w.store.Open(t.Context(), f)
			if err == nil {
				err = errors.Join(in.Verify(), in.Close())
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	if got.Imported == nil || got.Asker != ada || got.Session != "" || got.Secrets != nil || got.Group != "" ||
		got.Start != r.Start || got.Head != r.Head || w.index[got.Name()].ID != r.ID {
		t.Errorf("the run is %+v", got)
	}
}

// TestHostile imports files that somebody changed. Nothing of them stays.
func TestHostile(t *testing.T) {
	here := newWorld(t)
	repo, runs := here.caller(rand.New(rand.NewSource(1)))
	file, m := here.pack(repo, export.Request{Runs: runs})
	header, pack, _ := bytes.Cut(file, []byte("\n\n"))
	replaced := func(old, new string) []byte {
		return slices.Concat(bytes.Replace(header, []byte(old), []byte(new), 1), []byte("\n\n"), pack)
	}
	zero := strings.Repeat("0", 39) + "1"
	run := record.RunRef(m.Caller, runs[0].ID)
	damaged := slices.Clone(file)
	damaged[len(file)-200] ^= 0x55
	there := newWorld(t)
	for name, text := range map[string][]byte{
		"no bundle":            []byte("# v3 git bundle\n\n"),
		"header alone":         slices.Concat(header, []byte("\n\n")),
		"cut":                  file[:len(file)-30],
		"damaged":              damaged,
		"more after the pack":  append(slices.Clone(file), 'x'),
		"a missing commit":     replaced(string(m.Head)+" refs/heads/ramus", zero+" refs/heads/ramus"),
		"another branch":       replaced("refs/heads/ramus/run-otter", "refs/heads/ramus/run-other"),
		"another record":       replaced(run, run+"-2"),
		"a bad name":           replaced(run, "refs/ramus/../x"),
		"a name twice":         replaced(run, "refs/heads/ramus/run-otter"),
		"no manifest":          replaced("refs/ramus/export/", "refs/ramus/exported/"),
		"the manifest of none": replaced("refs/ramus/export/run-otter", "refs/ramus/export/run-other"),
		"a prerequisite":       replaced("# v2 git bundle\n", "# v2 git bundle\n-"+zero+" x\n"),
		"a long line":          replaced(run, "refs/ramus/"+strings.Repeat("x", 9000)),
	} {
		_, err := there.importer().Import(t.Context(), bytes.NewReader(text), export.Wish{Repo: "app", New: true, By: ada})
		if !errors.Is(err, record.ErrInvalid) && !errors.Is(err, gitd.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := there.git.Repo("app"); !errors.Is(err, gitd.ErrNotFound) {
			t.Errorf("%s: a repository was made: %v", name, err)
		}
		if left, err := filepath.Glob(filepath.Join(there.git.Root, "*", "bundle-*")); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left, %v", name, left, err)
		}
	}

	// Another project has nothing in common.
	if _, err := there.git.Create(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	if _, err := there.importer().Import(t.Context(), bytes.NewReader(file), export.Wish{Repo: "app", By: ada}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("a repository without commits: %v", err)
	}
}

// typed are the events of a terminal with one command.
type typed struct{ *world }

func (w typed) Events(context.Context, string, int64, bool) iter.Seq2[record.Event, error] {
	at, exit := time.Unix(1000, 0), 3
	return slicesAll([]record.Event{
		{Time: at, Type: record.EventStepStarted, Step: "shell/1"},
		{Time: at.Add(time.Second), Type: record.EventStepStarted, Step: "shell/1/1", Command: "ls \"x\""},
		{Time: at.Add(2500 * time.Millisecond), Type: record.EventStepFinished, Step: "shell/1/1", Exit: &exit, Stdout: &record.Stream{Bytes: 9}},
		{Time: at.Add(time.Minute), Type: record.EventStepFinished, Step: "shell/1"},
	})
}

func slicesAll(list []record.Event) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (w typed) Output(context.Context, string, string, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("\x1b[1mone\x1b[m\r\ntwo\xff\n")), nil
}

// TestCast records a terminal. The recording is in its export.
func TestCast(t *testing.T) {
	w := newWorld(t)
	repo, runs := w.caller(rand.New(rand.NewSource(2)))
	r := runs[0]
	r.Kind, r.CreatedAt, r.Terminal = record.KindTerminal, time.Unix(999, 0), &record.TerminalCall{Name: "1", Rows: 40, Cols: 100}
	var out bytes.Buffer
	n, err := export.Cast(t.Context(), typed{w}, r, &out)
	want := `{"version":2,"width":100,"height":40,"timestamp":999,"title":"run:otter/` + r.ID + ` true"}
[2,"o","$ ls \"x\"\r\n"]
[3.5,"o","\u001b[1mone\u001b[m\r\ntwo\ufffd\r\n"]
[3.5,"o","[exit 3]\r\n"]
`
	got := strings.ReplaceAll(out.String(), "\uFFFD", `\ufffd`)
	if err != nil || n != 1 || got != want {
		t.Errorf("%d commands, %v:\n%s", n, err, got)
	}
	e := &export.Exporter{Runs: typed{w}, Repo: repo, Dir: filepath.Join(w.dir, "exports"), Bot: ada, Now: time.Now}
	p, err := e.Prepare(t.Context(), export.Request{Runs: []record.Run{r}, One: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Manifest.Terminals) != 1 || p.Manifest.Terminals[0].File != "terminals/"+r.ID+".cast" {
		t.Errorf("the terminals are %v", p.Manifest.Terminals)
	}
	var file bytes.Buffer
	if err := errors.Join(p.Write(t.Context(), &file), p.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestRecordings leaves recordings out that an export has no room for.
func TestRecordings(t *testing.T) {
	w := newWorld(t)
	repo, runs := w.caller(rand.New(rand.NewSource(2)))
	for i := range runs {
		runs[i].Kind, runs[i].CreatedAt, runs[i].Terminal = record.KindTerminal, time.Unix(999, 0), &record.TerminalCall{Name: "1"}
	}
	var first bytes.Buffer
	if _, err := export.Cast(t.Context(), typed{w}, runs[0], &first); err != nil {
		t.Fatal(err)
	}
	for _, most := range []int64{1, int64(first.Len())} {
		e := &export.Exporter{Runs: typed{w}, Repo: repo, Dir: filepath.Join(w.dir, "exports"), Bot: ada, Now: time.Now, Most: most}
		p, err := e.Prepare(t.Context(), export.Request{Runs: runs[:2], WithoutArtifacts: true})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if len(p.Manifest.Terminals) != 1 || !slices.Contains(p.Manifest.LeftOut, "recordings of terminals (1)") {
			t.Errorf("at most %d bytes: %v are recorded, and %q left out", most, p.Manifest.Terminals, p.Manifest.LeftOut)
		}
	}
}

// TestBounds exports more than an export may have.
func TestBounds(t *testing.T) {
	w := newWorld(t)
	repo, runs := w.caller(rand.New(rand.NewSource(3)))
	e := &export.Exporter{Runs: w, Repo: repo, Dir: filepath.Join(w.dir, "exports"), Bot: ada, Now: time.Now, Most: 3}
	if _, err := e.Prepare(t.Context(), export.Request{Runs: runs}); !errors.Is(err, gitd.ErrTooLarge) {
		t.Errorf("large artifacts: %v", err)
	}
	p, err := e.Prepare(t.Context(), export.Request{Runs: runs, WithoutArtifacts: true})
	if err != nil || len(p.Manifest.LeftOut) == 0 {
		t.Fatalf("without artifacts: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(e.Dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// FuzzParseManifest parses manifests from outside. What is accepted has names that are safe in refs and paths.
func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"caller":"run:otter","branch":"ramus/run-otter","base":"main","head":"` + strings.Repeat("a", 40) +
		`","runs":[{"id":"1","record":"` + strings.Repeat("b", 40) + `"}],"artifacts":[{"sha256":"` + strings.Repeat("c", 64) + `","size":1}]}`))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := export.ParseManifest(text)
		if err != nil {
			if !errors.Is(err, record.ErrInvalid) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		for _, r := range m.Runs {
			if gitd.CheckRef(record.RunRef(m.Caller, r.ID)) != nil {
				t.Errorf("run %q", r.ID)
			}
		}
		for _, a := range m.Artifacts {
			if !filepath.IsLocal(a.SHA256) || strings.ContainsAny(a.SHA256, "/.") || a.Size < 0 {
				t.Errorf("artifact %q", a.SHA256)
			}
		}
		if gitd.CheckRef("refs/heads/"+m.Base) != nil || gitd.CheckRef("refs/heads/"+m.Branch) != nil {
			t.Errorf("branches %q and %q", m.Base, m.Branch)
		}
	})
}
