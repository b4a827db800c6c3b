package library_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/library"
	"github.com/ramus-dev/ramus/tasks/results"
	"github.com/ramus-dev/ramus/tasks/taskstest"
)

// TestWaysByFiles chooses tools by files that come late in the search.
func TestWaysByFiles(t *testing.T) {
	const pytest = "python3 -m pytest --junitxml=$d/report -o cache_dir=$d/cache"
	for _, c := range []struct {
		name, task string
		files      map[string]string
		want       string // calls of tools, or a part of the error after !
	}{
		{"pytest in the last file", "tests", map[string]string{"setup.py": "", "pyproject.toml": "[project]\n", "tox.ini": "",
			"requirements-dev.txt": "black\npytest>=7\n"}, pytest},
		{"pytest in conftest.py", "tests", map[string]string{"conftest.py": "", "test_a.py": ""}, pytest},
		{"types", "lint", map[string]string{"package.json": `{"devDependencies":{"typescript":"5"}}`, "node_modules/x": "",
			"tsconfig.json": "{}"}, "tsc --noEmit --pretty false"},
		{"types without a compiler", "lint", map[string]string{"package.json": `{}`, "tsconfig.json": "{}"}, "!cannot find out how to lint"},
		{"a compiler without types", "lint", map[string]string{"package.json": `{"devDependencies":{"typescript":"5"}}`,
			"node_modules/x": ""}, "!cannot find out how to lint"},
		{"a definition", "tests", map[string]string{"Makefile": "define x: y\ntest:\nendef\ncheck:\n"}, "make check"},
	} {
		r := newRecorder(t, c.files)
		_, calls, err := r.run(t, "lib_run_"+c.task, nil)
		if want, fails := strings.CutPrefix(c.want, "!"); fails {
			if !errors.Is(err, tasks.ErrNoWay) || !strings.Contains(err.Error(), want) || len(calls) > 0 {
				t.Errorf("%s: %v, %v", c.name, calls, err)
			}
			continue
		}
		if got := show(calls); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
		}
	}
}

// TestReportOfLinter reads a report of several lines, whose first one names no tool.
func TestReportOfLinter(t *testing.T) {
	l := taskstest.GitTree(t, map[string]string{"package.json": `{"devDependencies":{"eslint":"9"}}`})
	bin := filepath.Join(l.Dir, "node_modules", ".bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	// A link, because a program that was just written may not be started yet.
	stub, err := filepath.Abs("testdata/eslint.sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(stub, filepath.Join(bin, "eslint")); err != nil {
		t.Fatal(err)
	}
	task, _ := library.Lookup("lib_run_lint")
	out, err := task.Run(t.Context(), l, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, ok := out.Value.(results.Lint)
	if !ok || out.OK || v.Tool != "eslint" || v.Count != 1 || v.Findings[0].File != "a.js" || v.Findings[0].Line != 3 {
		t.Errorf("%+v by %s", out.Value, out.Result.Stdout)
	}
}

// TestReadMissingFile returns that a file is missing.
func TestReadMissingFile(t *testing.T) {
	l := taskstest.GitTree(t, map[string]string{"a": ""})
	task, _ := library.Lookup("lib_read_file")
	out, err := task.Run(t.Context(), l, []byte(`{"path":"b"}`))
	if want := (library.File{Path: "b", Missing: true}); err != nil || out.OK || out.Value != want {
		t.Errorf("%+v, %v", out, err)
	}
}
