package export_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/export"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// many returns n values.
func many[T any](n int, v func(i int) T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v(i)
	}
	return all
}

// TestManifestBounds changes one field of a manifest at a time, to the last value that counts and to the first that does not.
func TestManifestBounds(t *testing.T) {
	c, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	commit, sum := strings.Repeat("a", 40), strings.Repeat("0", 64)
	run := func(i int) export.Run { return export.Run{ID: fmt.Sprint("r", i)} }
	artifact := func(int) export.Artifact { return export.Artifact{SHA256: sum} }
	terminal := func(int) export.Terminal { return export.Terminal{} }
	for name, test := range map[string]struct {
		change func(m *export.Manifest)
		valid  bool
	}{
		"as it is":                  {func(*export.Manifest) {}, true},
		"another format":            {func(m *export.Manifest) { m.Format = 0 }, false},
		"no caller":                 {func(m *export.Manifest) { m.Caller = record.Caller{} }, false},
		"another branch":            {func(m *export.Manifest) { m.Branch = "main" }, false},
		"no head":                   {func(m *export.Manifest) { m.Head = "" }, false},
		"no base commit":            {func(m *export.Manifest) { m.BaseCommit = "" }, true},
		"a base commit that is one": {func(m *export.Manifest) { m.BaseCommit = gitd.Hash(commit) }, true},
		"a base commit that is not": {func(m *export.Manifest) { m.BaseCommit = "main" }, false},
		"a base that is no branch":  {func(m *export.Manifest) { m.Base = "a..b" }, false},
		"10,000 runs":               {func(m *export.Manifest) { m.Runs = many(10_000, run) }, true},
		"10,001 runs":               {func(m *export.Manifest) { m.Runs = many(10_001, run) }, false},
		"10,000 artifacts":          {func(m *export.Manifest) { m.Artifacts = many(10_000, artifact) }, true},
		"10,001 artifacts":          {func(m *export.Manifest) { m.Artifacts = many(10_001, artifact) }, false},
		"10,000 terminals":          {func(m *export.Manifest) { m.Terminals = many(10_000, terminal) }, true},
		"10,001 terminals":          {func(m *export.Manifest) { m.Terminals = many(10_001, terminal) }, false},
		"10,000 sentences":          {func(m *export.Manifest) { m.LeftOut = make([]string, 10_000) }, true},
		"10,001 sentences":          {func(m *export.Manifest) { m.LeftOut = make([]string, 10_001) }, false},
		"texts of 1,000 bytes": {func(m *export.Manifest) {
			long := strings.Repeat("x", 1000)
			m.Origin, m.By, m.Version, m.Repo = long, long, long, long
		}, true},
		"an origin of 1,001 bytes":     {func(m *export.Manifest) { m.Origin = strings.Repeat("x", 1001) }, false},
		"a person of 1,001 bytes":      {func(m *export.Manifest) { m.By = strings.Repeat("x", 1001) }, false},
		"a version of 1,001 bytes":     {func(m *export.Manifest) { m.Version = strings.Repeat("x", 1001) }, false},
		"a repository of 1,001 bytes":  {func(m *export.Manifest) { m.Repo = strings.Repeat("x", 1001) }, false},
		"a run twice":                  {func(m *export.Manifest) { m.Runs = []export.Run{run(1), run(2), run(1)} }, false},
		"a run without an id":          {func(m *export.Manifest) { m.Runs = []export.Run{{}} }, false},
		"a record":                     {func(m *export.Manifest) { m.Runs = []export.Run{{ID: "a", Record: gitd.Hash(commit)}} }, true},
		"a record that is no commit":   {func(m *export.Manifest) { m.Runs = []export.Run{{ID: "a", Record: "main"}} }, false},
		"a file of less than no bytes": {func(m *export.Manifest) { m.Artifacts = []export.Artifact{{SHA256: sum, Size: -1}} }, false},
		"all digits":                   {func(m *export.Manifest) { m.Artifacts[0].SHA256 = strings.Repeat("0123456789abcdef", 4) }, true},
		"a sum that is short":          {func(m *export.Manifest) { m.Artifacts[0].SHA256 = sum[1:] }, false},
		"a sum that is long":           {func(m *export.Manifest) { m.Artifacts[0].SHA256 = sum + "0" }, false},
		"a sum with /":                 {func(m *export.Manifest) { m.Artifacts[0].SHA256 = "/" + sum[1:] }, false},
		"a sum with :":                 {func(m *export.Manifest) { m.Artifacts[0].SHA256 = ":" + sum[1:] }, false},
		"a sum with `":                 {func(m *export.Manifest) { m.Artifacts[0].SHA256 = "`" + sum[1:] }, false},
		"a sum with g":                 {func(m *export.Manifest) { m.Artifacts[0].SHA256 = "g" + sum[1:] }, false},
		"a sum in capitals":            {func(m *export.Manifest) { m.Artifacts[0].SHA256 = "A" + sum[1:] }, false},
	} {
		m := export.Manifest{Format: 1, Caller: c, Branch: c.Branch(), Head: gitd.Hash(commit), Base: "main",
			Artifacts: []export.Artifact{{SHA256: sum, Size: 0}}}
		test.change(&m)
		got, err := export.ParseManifest(encode(t, m))
		if test.valid && (err != nil || got.Caller != c) || !test.valid && !errors.Is(err, record.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	text := encode(t, export.Manifest{Format: 1, Caller: c, Branch: c.Branch(), Head: gitd.Hash(commit), Base: "main"})
	full := append(text, bytes.Repeat([]byte(" "), export.MaxManifest-len(text))...)
	if _, err := export.ParseManifest(full); err != nil {
		t.Errorf("a manifest of the largest size: %v", err)
	}
	if _, err := export.ParseManifest(append(full, ' ')); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("a manifest that is larger: %v", err)
	}
}

// TestNames imports one file several times: into a new repository, with a number, with a name, and with one that is taken.
func TestNames(t *testing.T) {
	here, there := newWorld(t), newWorld(t)
	repo, runs := here.caller(rand.New(rand.NewSource(5)))
	file, m := here.pack(repo, export.Request{Runs: runs, Private: true, Origin: "https://ramus.example.org", By: "Eve"})
	if !m.Private || m.Origin != "https://ramus.example.org" || m.Repo != "app" || m.Base != "main" || len(m.Runs) != len(runs) {
		t.Fatalf("the manifest is %+v", m)
	}
	var hidden []string
	take := func(w export.Wish) (export.Imported, error) {
		w.By = ada
		w.Hide = func(_ context.Context, c record.Caller, repo string) error {
			hidden = append(hidden, repo+" "+c.String())
			return nil
		}
		return there.importer().Import(t.Context(), bytes.NewReader(file), w)
	}
	if _, err := take(export.Wish{Repo: "app"}); !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("a repository that is not there: %v", err)
	}
	plan, err := take(export.Wish{Repo: "app", New: true, Dry: true})
	if err != nil || !plan.Created || plan.Caller != m.Caller || len(plan.Runs) != len(runs) || plan.Head != m.Head {
		t.Errorf("a dry import is %+v, %v", plan, err)
	}
	if _, err := there.git.Repo("app"); !errors.Is(err, gitd.ErrNotFound) || len(hidden) > 0 {
		t.Errorf("a dry import made the repository, or hid %q: %v", hidden, err)
	}
	for _, step := range []struct {
		wish   export.Wish
		caller string // empty means that it is refused
	}{
		{export.Wish{Repo: "app", New: true}, "run:otter"},
		{export.Wish{Repo: "app", New: true}, ""},
		{export.Wish{Repo: "app"}, "run:otter-2"},
		{export.Wish{Repo: "app"}, "run:otter-3"},
		{export.Wish{Repo: "app", Caller: "otter-2"}, ""},
		{export.Wish{Repo: "app", Caller: "run:badger"}, "run:badger"},
		{export.Wish{Repo: "app", Caller: "not a name"}, ""},
	} {
		hidden = nil
		got, err := take(step.wish)
		if step.caller == "" {
			if err == nil || hidden != nil {
				t.Errorf("%+v is %+v, and hides %q", step.wish, got, hidden)
			}
			continue
		}
		if err != nil || got.Caller.String() != step.caller || got.Was != m.Caller || got.Created != step.wish.New ||
			!slices.Equal(hidden, []string{"app " + step.caller}) || got.Origin != m.Origin {
			t.Errorf("%+v is %+v, hides %q, %v", step.wish, got, hidden, err)
		}
	}
	second, err := there.git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	for _, branch := range []string{"ramus/run-otter", "ramus/run-otter-2", "ramus/run-otter-3", "ramus/run-badger"} {
		if h, err := second.Resolve(t.Context(), "refs/heads/"+branch); err != nil || h != m.Head {
			t.Errorf("%s is at %s, %v", branch, h, err)
		}
	}
	// A branch takes a name without a caller.
	none := gitd.Hash("")
	if err := second.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/ramus/run-otter-4", New: m.Head, Old: &none}); err != nil {
		t.Fatal(err)
	}
	if got, err := take(export.Wish{Repo: "app"}); err != nil || got.Caller.String() != "run:otter-5" {
		t.Errorf("an import where a branch has the next name is %s, %v", got.Caller, err)
	}
}

// printed are events of commands with outputs of some lengths.
type printed struct {
	*world
	lengths []int
	fill    string // of outputs; empty means x
	status  int
}

func (w printed) Events(context.Context, string, int64, bool) iter.Seq2[record.Event, error] {
	var all []record.Event
	at := time.Unix(1000, 0)
	for i, n := range w.lengths {
		step := fmt.Sprint("exec/", i)
		all = append(all, record.Event{Time: at.Add(-time.Duration(i) * time.Second), Type: record.EventStepStarted, Step: step, Command: "one\ntwo"},
			record.Event{Time: at, Type: record.EventStepFinished, Step: step, Exit: &w.status, Stdout: &record.Stream{Bytes: int64(n)},
				Stderr: &record.Stream{}},
			record.Event{Time: at, Type: record.EventStepFinished, Step: step, Stdout: &record.Stream{Bytes: int64(n)}}) // a second end
	}
	return slicesAll(all)
}

func (w printed) Output(_ context.Context, _, step, stream string) (io.ReadCloser, error) {
	var i int
	if _, err := fmt.Sscanf(step, "exec/%d", &i); err != nil || stream != "stdout" {
		return nil, fmt.Errorf("there is no %s of %s", stream, step)
	}
	return io.NopCloser(strings.NewReader(strings.Repeat(cmp.Or(w.fill, "x"), w.lengths[i]))), nil
}

// TestCastBounds records outputs at the bounds. Times never go back, and a status of 0 is not printed.
func TestCastBounds(t *testing.T) {
	w := newWorld(t)
	r := record.Run{ID: "1", Kind: record.KindExec, CreatedAt: time.Unix(990, 0)}
	const most = 1 << 20
	record := func(lengths ...int) (lines [][]any) {
		t.Helper()
		var out bytes.Buffer
		n, err := export.Cast(t.Context(), printed{world: w, lengths: lengths}, r, &out)
		if err != nil || n != len(lengths) {
			t.Fatalf("%d commands, %v", n, err)
		}
		for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			if i == 0 {
				if !strings.Contains(line, `"width":80,"height":24,"timestamp":990`) {
					t.Errorf("the header is %s", line)
				}
				continue
			}
			var l []any
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, l)
		}
		return lines
	}
	lines := record(0, most, most+1)
	var last float64
	var texts []string
	for _, l := range lines {
		if at := l[0].(float64); at < last {
			t.Errorf("the time goes back from %v to %v", last, at)
		} else {
			last = at
		}
		texts = append(texts, l[2].(string))
	}
	command, whole := "$ one\r\n> two\r\n", strings.Repeat("x", most)
	if want := []string{command, command, whole, command, whole, "\r\n[the output is cut]\r\n"}; !slices.Equal(texts, want) {
		t.Errorf("%d texts, with the lengths %v", len(texts), many(len(texts), func(i int) int { return len(texts[i]) }))
	}
	// All outputs together have a bound, too.
	sum, cut := 0, 0
	for _, l := range record(many(66, func(int) int { return most })...) {
		text := l[2].(string)
		sum += strings.Count(text, "x")
		cut += strings.Count(text, "[the output is cut]")
	}
	if sum != 64<<20 || cut != 2 {
		t.Errorf("%d bytes of outputs are recorded, and %d are cut", sum, cut)
	}
}

// TestCastFile cuts a recording whose file would be far larger than the outputs in it.
func TestCastFile(t *testing.T) {
	const most = 96 << 20
	outputs := printed{world: newWorld(t), lengths: many(18, func(int) int { return 1 << 20 }), fill: "\x1b"}
	r := record.Run{ID: "1", Kind: record.KindExec, CreatedAt: time.Unix(990, 0)}
	var out bytes.Buffer
	n, err := export.Cast(t.Context(), outputs, r, &out)
	if err != nil || n != len(outputs.lengths) || out.Len() > most+100 || out.Len() < most-8<<20 {
		t.Errorf("%d commands in %d bytes, %v", n, out.Len(), err)
	}
	if end := out.Bytes()[out.Len()-100:]; !bytes.HasSuffix(end, []byte(`[the recording is cut]\r\n"]`+"\n")) ||
		bytes.Count(out.Bytes(), []byte("is cut")) != 1 {
		t.Errorf("the recording ends with %q", end)
	}
}
