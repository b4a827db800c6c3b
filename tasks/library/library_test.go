package library_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/library"
	"github.com/ramus-dev/ramus/tasks/results"
	"github.com/ramus-dev/ramus/tasks/taskstest"
)

func TestLibraryHasTheParametersOfItsSpecification(t *testing.T) {
	// A name with ? is optional.
	want := map[string][]string{
		"lib_git_commit": {"message", "files?"},
		"lib_git_push":   {"remote?", "branch?"},
		"lib_git_status": nil,
		"lib_run_tests":  {"pattern?", "framework?"},
		"lib_run_lint":   {"fix?"},
		"lib_run_build":  {"target?"},
		"lib_read_file":  {"path"},
		"lib_write_file": {"path", "content"},
		"lib_list_files": {"pattern?"},
		"browser_test":   {"spec?", "check?", "compare?"},
		"capture_screenshot": {
			"url?", "start?", "dir?", "viewports?", "full_page?", "selector?", "mask?", "name?",
		},
	}
	list := library.All()
	if len(list) != len(want) {
		t.Errorf("%d tasks, want %d", len(list), len(want))
	}
	if !slices.IsSortedFunc(list, func(a, b tasks.Task) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted")
	}
	for _, task := range list {
		if found, ok := library.Lookup(task.Name); !ok || found.Name != task.Name {
			t.Errorf("Lookup does not find %s", task.Name)
		}
		if task.Doc == "" || task.Run == nil {
			t.Errorf("%s is not complete", task.Name)
		}
		var s jsonschema.Schema
		if err := json.Unmarshal(task.Schema, &s); err != nil {
			t.Fatalf("%s: %v", task.Name, err)
		}
		resolved, err := s.Resolve(nil)
		if err != nil {
			t.Fatalf("%s: %v", task.Name, err)
		}
		if err := resolved.Validate(map[string]any{"no_such_parameter": 1}); err == nil {
			t.Errorf("%s: the schema takes unknown parameters", task.Name)
		}
		var got []string
		for name, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("%s: %s has no description", task.Name, name)
			}
			if !slices.Contains(s.Required, name) {
				name += "?"
			}
			got = append(got, name)
		}
		slices.Sort(got)
		names := slices.Sorted(slices.Values(want[task.Name]))
		if !slices.Equal(got, names) {
			t.Errorf("%s: parameters %q, want %q", task.Name, got, names)
		}
	}
	if _, ok := library.Lookup("lib_unknown"); ok {
		t.Error("Lookup found what there is not")
	}
	for _, name := range []string{"lib_git_status", "lib_read_file", "lib_list_files"} {
		if task, _ := library.Lookup(name); !task.ReadOnly {
			t.Errorf("%s is not marked ReadOnly", name)
		}
	}
}

// What Run refuses, the schema refuses too; the error names the parameter.
func TestParametersAreReadStrictly(t *testing.T) {
	l := &taskstest.LocalShell{Dir: t.TempDir()}
	for _, c := range []struct{ task, params, want string }{
		{"lib_read_file", `{}`, `"path" is missing`},
		{"lib_read_file", ``, `"path" is missing`},
		{"lib_read_file", `{"path":"a","extra":1}`, `no parameter "extra"; known are: path`},
		{"lib_read_file", `{"Path":"a"}`, `no parameter "Path"`},
		{"lib_read_file", `{"path":5}`, `"path" must be a string, not a number`},
		{"lib_read_file", `{"path":null}`, `"path" must be a string, not null`},
		{"lib_read_file", `{"path":["a"]}`, `"path" must be a string, not a list`},
		{"lib_read_file", `[]`, "must be an object, not a list"},
		{"lib_read_file", `null`, `"path" is missing`},
		{"lib_read_file", `"path"`, "must be an object, not a string"},
		{"lib_read_file", `{"path":`, "not JSON"},
		{"lib_write_file", `{"path":"a"}`, `"content" is missing`},
		{"lib_run_lint", `{"fix":"yes"}`, `"fix" must be true or false, not a string`},
		{"lib_git_commit", `{"message":"m","files":"a"}`, `"files" must be a list, not a string`},
		{"lib_git_commit", `{"message":"m","files":["a",1]}`, `"files" item 2 must be a string, not a number`},
		{"lib_git_commit", `{"message":"m","files":null}`, `"files" must be a list, not null`},
		{"lib_git_status", `{"x":1}`, `no parameter "x"; known are: none`},
		{"lib_git_commit", `{"message":" \n"}`, "is empty"},
		{"lib_git_commit", `{"message":"a\u0000"}`, "NUL"},
		{"lib_git_push", `{"remote":"ext::sh -c id"}`, "is not the name of a remote"},
		{"lib_git_push", `{"remote":"--exec=id"}`, "is not the name of a remote"},
		{"lib_git_push", `{"branch":"-d"}`, "is not the name of a branch"},
		{"lib_git_push", `{"branch":"+main"}`, "is not the name of a branch"},
		{"lib_run_tests", `{"framework":"cobol"}`, "known are: go, cargo, npm"},
		{"lib_run_tests", `{"pattern":"a\u0000b"}`, "NUL"},
	} {
		task, _ := library.Lookup(c.task)
		_, err := task.Run(t.Context(), l, json.RawMessage(c.params))
		if !errors.Is(err, tasks.ErrParams) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.task) {
			t.Errorf("%s %s: got %v, want %q", c.task, c.params, err, c.want)
		}
	}
	for _, path := range []string{"../x", "/etc/passwd", ".git/config", ""} {
		task, _ := library.Lookup("lib_write_file")
		params, _ := json.Marshal(map[string]string{"path": path, "content": "x"})
		if _, err := task.Run(t.Context(), l, params); !errors.Is(err, tasks.ErrRefused) {
			t.Errorf("write %q: %v", path, err)
		}
	}
}

func FuzzParameters(f *testing.F) {
	f.Add(`{"message":"m","files":["a"]}`)
	f.Add(`{"files":null}`)
	f.Add(`{"message":1,"x":{}}`)
	task, _ := library.Lookup("lib_git_commit")
	var s jsonschema.Schema
	if err := json.Unmarshal(task.Schema, &s); err != nil {
		f.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, params string) {
		_, err := task.Run(t.Context(), nowhere{}, json.RawMessage(params))
		var v any
		if json.Unmarshal([]byte(params), &v) != nil {
			if strings.TrimSpace(params) != "" && err == nil {
				t.Errorf("%q is not JSON and was taken", params)
			}
			return
		}
		if err == nil && resolved.Validate(v) != nil {
			t.Errorf("%q was taken against the schema", params)
		}
	})
}

// nowhere is a Shell that does nothing well.
type nowhere struct{ tasks.Shell }

func (nowhere) Commit(context.Context, string, []string) (string, error) { return "", nil }
func (nowhere) Branch() string                                           { return "" }

// recorder is a work tree of a few files and a PATH of nothing but stubs, which
// write down how they were called. It shows what a tool really gets to see.
type recorder struct {
	*taskstest.LocalShell
	calls string
}

var stubs = []string{"go", "gofmt", "cargo", "npm", "pnpm", "yarn", "vitest", "jest", "mocha", "node", "python3",
	"make", "eslint", "tsc", "ruff", "golangci-lint", "staticcheck"}

func newRecorder(t *testing.T, files map[string]string) recorder {
	t.Helper()
	dir := t.TempDir()
	r := recorder{calls: filepath.Join(dir, "calls")}
	bin := filepath.Join(dir, "bin")
	tree := filepath.Join(dir, "tree")
	for _, d := range []string{bin, tree} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// A program that is written here could not be started as long as a child that another
	// test forks meanwhile has it open (ETXTBSY): that one is there already.
	stub, err := filepath.Abs("testdata/stub.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stubs {
		if err := os.Symlink(stub, filepath.Join(bin, s)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"sh", "git", "mktemp", "rm", "cat", "tee", "wc", "grep"} {
		where, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(where, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	taskstest.WriteTree(t, tree, files)
	r.LocalShell = &taskstest.LocalShell{Dir: tree, Env: []string{"PATH=" + bin, "HOME=" + dir, "CALLS=" + r.calls}}
	return r
}

// run runs a task and returns the calls of stubs, each a list of words.
func (r recorder) run(t *testing.T, name string, params map[string]any) (tasks.Output, [][]string, error) {
	t.Helper()
	_ = os.Remove(r.calls)
	task, _ := library.Lookup(name)
	text, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	out, err := task.Run(t.Context(), r, text)
	var calls [][]string
	recorded, _ := os.ReadFile(r.calls)
	for call := range strings.SplitSeq(strings.TrimSuffix(string(recorded), "\x00\x00"), "\x00\x00") {
		if call != "" {
			calls = append(calls, strings.Split(call, "\x00"))
		}
	}
	return out, calls, err
}

func show(calls [][]string) string {
	var lines []string
	for _, c := range calls {
		line := strings.Join(c, " ")
		for _, w := range c {
			// Temporary folders have a new name every time.
			if i := strings.LastIndex(w, "=/"); i >= 0 && (strings.HasSuffix(w, "/report") || strings.HasSuffix(w, "/cache")) {
				line = strings.Replace(line, filepath.Dir(w[i+1:]), "$d", 1)
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func TestTheProjectsOwnWayIsFound(t *testing.T) {
	pkg := func(scripts, dev string) map[string]string {
		return map[string]string{"package.json": `{"scripts":{` + scripts + `},"devDependencies":{` + dev + `}}`,
			"node_modules/x": ""}
	}
	with := func(m map[string]string, names ...string) map[string]string {
		for _, n := range names {
			name, content, _ := strings.Cut(n, "=")
			m[name] = content
		}
		return m
	}
	files := func(names ...string) map[string]string { return with(map[string]string{}, names...) }
	type p = map[string]any
	for _, c := range []struct {
		name   string
		files  map[string]string
		task   string
		params p
		tool   string
		calls  string
	}{
		{"go", files("go.mod"), "tests", nil, "go", "go test -json ./..."},
		{"go regexp", files("go.mod"), "tests", p{"pattern": "TestA/x"}, "go", "go test -json -run=TestA/x ./..."},
		{"go package", files("go.mod"), "tests", p{"pattern": "./a/..."}, "go", "go test -json ./a/..."},
		{"go before all", with(pkg(`"test":"jest"`, ``), "go.mod", "Makefile=test:", "Cargo.toml"), "tests", nil, "go",
			"go test -json ./..."},
		{"framework chooses", with(pkg(`"test":"jest"`, ``), "go.mod", "Makefile=test:"), "tests",
			p{"framework": "make"}, "make", "make test"},
		{"cargo", files("Cargo.toml"), "tests", p{"pattern": "a b"}, "cargo", "cargo test --no-fail-fast -- -- a b"},
		{"npm script", pkg(`"test":"./all.sh"`, ``), "tests", nil, "npm", "npm run test"},
		{"npm script, pattern", pkg(`"test":"./all.sh"`, ``), "tests", p{"pattern": "x"}, "npm", "npm run test -- x"},
		{"pnpm script, pattern", with(pkg(`"test":"./all.sh"`, ``), "pnpm-lock.yaml"), "tests", p{"pattern": "x"},
			"pnpm", "pnpm run test x"},
		{"yarn", with(pkg(`"test":"./all.sh"`, ``), "yarn.lock"), "tests", nil, "yarn", "yarn run test"},
		{"npm init's test is none", with(pkg(`"test":"echo \"Error: no test specified\" && exit 1"`, ``),
			"Makefile=test:"), "tests", nil, "make", "make test"},
		{"vitest in the script", with(pkg(`"test":"tsc && NODE_ENV=test vitest"`, ``), "pnpm-lock.yaml"), "tests",
			nil, "vitest",
			"pnpm run test --run --reporter=default --reporter=json --outputFile.json=$d/report"},
		{"vitest run", pkg(`"test":"vitest run"`, ``), "tests", p{"pattern": "a.test.ts"}, "vitest",
			"npm run test -- --reporter=default --reporter=json --outputFile.json=$d/report a.test.ts"},
		{"vitest installed", pkg(``, `"vitest":"3"`), "tests", p{"pattern": "adds"}, "vitest",
			"vitest run --reporter=default --reporter=json --outputFile.json=$d/report --testNamePattern=adds"},
		{"jest", pkg(`"test":"cross-env A=1 jest --ci"`, ``), "tests", nil, "jest",
			"npm run test -- --json --outputFile=$d/report"},
		{"mocha", pkg(`"test":"c8 mocha"`, ``), "tests", p{"pattern": "adds"}, "mocha",
			"npm run test -- --reporter=json --reporter-option=output=$d/report --grep=adds"},
		{"node", pkg(`"test":"node --test"`, ``), "tests", nil, "node", "npm run test"},
		{"node, pattern", pkg(`"test":"node --test test/"`, ``), "tests", p{"pattern": "adds"}, "node",
			"node --test --test-reporter=tap --test-reporter-destination=stdout --test-name-pattern=adds"},
		{"node by files", with(pkg(``, ``), "a.test.mjs"), "tests", nil, "node",
			"node --test --test-reporter=tap --test-reporter-destination=stdout"},
		{"pytest named", files("pyproject.toml=[tool.pytest.ini_options]"), "tests",
			p{"pattern": "tests/test_a.py::test_b"}, "pytest",
			"python3 -m pytest --junitxml=$d/report -o cache_dir=$d/cache -- tests/test_a.py::test_b"},
		{"pytest expression", files("pytest.ini"), "tests", p{"pattern": "a or b"}, "pytest",
			"python3 -m pytest --junitxml=$d/report -o cache_dir=$d/cache -k=a or b"},
		{"pytest installed", files("setup.py"), "tests", nil, "pytest",
			"python3 -c import pytest; python3 -m pytest --junitxml=$d/report -o cache_dir=$d/cache"},
		{"unittest", files("tests/test_a.py"), "tests", p{"framework": "unittest"}, "unittest",
			"python3 -m unittest discover -v -s tests"},
		{"unittest, package", files("tests/test_a.py", "tests/__init__.py"), "tests",
			p{"framework": "unittest", "pattern": "x"}, "unittest", "python3 -m unittest -v -k=x"},
		{"make check", files("Makefile=all:\ncheck: all\n\ttrue\n"), "tests", nil, "make", "make check"},

		{"go vet", files("go.mod"), "lint", nil, "go vet", "go vet ./..."},
		{"go fmt", files("go.mod"), "lint", p{"fix": true}, "go vet", "go fmt ./...; go vet ./..."},
		{"golangci-lint", files("go.mod", ".golangci.yml"), "lint", p{"fix": true}, "go vet, golangci-lint",
			"go fmt ./...; go vet ./...; golangci-lint run --fix"},
		{"staticcheck as a tool", files("go.mod=module m\n\ntool honnef.co/go/tools/cmd/staticcheck\n"), "lint", nil,
			"go vet, staticcheck", "go vet ./...; go tool staticcheck ./..."},
		{"staticcheck.conf", files("go.mod", "staticcheck.conf"), "lint", nil, "go vet, staticcheck",
			"go vet ./...; staticcheck ./..."},
		{"clippy", files("Cargo.toml"), "lint", nil, "clippy", "cargo clippy --message-format=short"},
		{"eslint and types", pkg(`"lint":"eslint src","typecheck":"tsc"`, ``), "lint", p{"fix": true}, "eslint",
			"npm run lint -- --format=json --output-file=$d/report --fix; npm run typecheck"},
		{"lint:fix", with(pkg(`"lint":"biome check","lint:fix":"biome check --write"`, ``), "pnpm-lock.yaml"), "lint",
			p{"fix": true}, "pnpm", "pnpm run lint:fix"},
		{"eslint installed", pkg(``, `"eslint":"9"`), "lint", nil, "eslint",
			"eslint . --format=json --output-file=$d/report"},
		{"ruff", files("ruff.toml"), "lint", p{"fix": true}, "ruff", ""},
		{"flake8", files("setup.cfg=[flake8]"), "lint", nil, "flake8", "python3 -m flake8 ."},
		{"make lint", files("Makefile=lint:"), "lint", nil, "make", "make lint"},

		{"go build", files("go.mod"), "build", nil, "go", "go build -o /dev/null ./..."},
		{"go build one", files("go.mod"), "build", p{"target": "./cmd/x"}, "go", "go build -o /dev/null -- ./cmd/x"},
		{"cargo build", files("Cargo.toml"), "build", p{"target": "core"}, "cargo", "cargo build --package=core"},
		{"npm build", pkg(`"build":"x","build:web":"y"`, ``), "build", nil, "npm", "npm run build"},
		{"npm build target", pkg(`"build":"x","build:web":"y"`, ``), "build", p{"target": "build:web"}, "npm",
			"npm run build:web"},
		{"typecheck", pkg(`"typecheck":"tsc"`, ``), "build", nil, "npm", "npm run typecheck"},
		{"python build", files("pyproject.toml=[build-system]"), "build", nil, "python",
			"python3 -c import build; python3 -m build"},
		{"make build", files("GNUmakefile=all: build\nbuild:"), "build", nil, "make", "make -- build"},
		{"make target", files("makefile=all:\nbin/x: all"), "build", p{"target": "bin/x"}, "make", "make -- bin/x"},
	} {
		t.Run(c.task+" "+c.name, func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t, c.files)
			out, calls, err := r.run(t, "lib_run_"+c.task, c.params)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(calls); got != c.calls && c.calls != "" {
				t.Errorf("got  %s\nwant %s\nby %s", got, c.calls, out.Command)
			}
			var value struct{ Tool, Framework string }
			text, err := json.Marshal(out.Value)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &value); err != nil {
				t.Fatal(err)
			}
			if got := value.Tool + value.Framework; got != c.tool {
				t.Errorf("tool %q, want %q", got, c.tool)
			}
			if strings.Contains(out.Result.Stdout, "ramus-report") {
				t.Errorf("the mark of the report is left in %q", out.Result.Stdout)
			}
		})
	}
}

func TestNoWayIsAnErrorThatSaysWhatWasLookedFor(t *testing.T) {
	for _, files := range []map[string]string{{"README": ""}, {"Makefile": "x:\n\ttrue\n", "package.json": `{}`}} {
		r := newRecorder(t, files)
		for _, task := range []string{"lib_run_tests", "lib_run_lint", "lib_run_build"} {
			_, calls, err := r.run(t, task, nil)
			if err == nil || len(calls) > 0 {
				t.Fatalf("%s: %v, %v", task, calls, err)
			}
			for _, want := range []string{"go.mod", "package.json", "pyproject.toml", "Cargo.toml", "Makefile"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %q is missing in: %v", task, want, err)
				}
			}
		}
	}
	r := newRecorder(t, map[string]string{"package.json": `{"scripts":`})
	if _, _, err := r.run(t, "lib_run_tests", nil); err == nil || !strings.Contains(err.Error(), "package.json") {
		t.Errorf("a broken package.json: %v", err)
	}
	r = newRecorder(t, map[string]string{"README": ""})
	for _, f := range []string{"npm", "pnpm", "vitest", "jest", "mocha", "make"} {
		if _, _, err := r.run(t, "lib_run_tests", map[string]any{"framework": f}); err == nil || !strings.Contains(err.Error(), f) {
			t.Errorf("framework %s: %v", f, err)
		}
	}
}

// Every value of a caller arrives as one argument, and never as an option.
func TestHostileValuesStayArguments(t *testing.T) {
	hostile := []string{"'; touch pwned; '", "$(touch pwned)", "`touch pwned`", "a\nb; touch pwned", "-x",
		"--config=/etc/passwd", "--", "-", "a b", "*", "${HOME}", "é\xff", "x.py; touch pwned", "-x/y.js", "-./a/...",
		"--exec=x.py"}
	projects := []struct {
		task, param string
		files       map[string]string
		framework   string
	}{
		{"lib_run_tests", "pattern", map[string]string{"go.mod": ""}, ""},
		{"lib_run_tests", "pattern", map[string]string{"Cargo.toml": ""}, ""},
		{"lib_run_tests", "pattern", map[string]string{"package.json": `{"scripts":{"test":"x"}}`}, "npm"},
		{"lib_run_tests", "pattern", map[string]string{"package.json": `{"scripts":{"test":"x"}}`}, "pnpm"},
		{"lib_run_tests", "pattern", map[string]string{"package.json": `{"scripts":{"test":"vitest"}}`}, "yarn"},
		{"lib_run_tests", "pattern", map[string]string{"package.json": `{"scripts":{"test":"jest"}}`}, ""},
		{"lib_run_tests", "pattern", map[string]string{"package.json": `{}`}, "vitest"},
		{"lib_run_tests", "pattern", map[string]string{"package.json": `{}`}, "jest"},
		{"lib_run_tests", "pattern", map[string]string{"package.json": `{}`}, "mocha"},
		{"lib_run_tests", "pattern", nil, "node"},
		{"lib_run_tests", "pattern", nil, "pytest"},
		{"lib_run_tests", "pattern", nil, "unittest"},
		{"lib_run_tests", "pattern", map[string]string{"Makefile": "test:"}, "make"},
		{"lib_run_build", "target", map[string]string{"go.mod": ""}, ""},
		{"lib_run_build", "target", map[string]string{"Cargo.toml": ""}, ""},
		{"lib_run_build", "target", map[string]string{"package.json": `{"scripts":{"build":"x"}}`}, ""},
		{"lib_run_build", "target", map[string]string{"Makefile": "build:"}, ""},
		{"lib_run_build", "target", map[string]string{"setup.py": ""}, ""},
	}
	for i, p := range projects {
		t.Run(fmt.Sprintf("%d %s %s", i, p.task, p.framework), func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t, p.files)
			for _, v := range hostile {
				params := map[string]any{p.param: v}
				if p.framework != "" {
					params["framework"] = p.framework
				}
				sent, _ := json.Marshal(v)
				_ = json.Unmarshal(sent, &v) // as it arrives
				_, calls, err := r.run(t, p.task, params)
				if err != nil {
					if !errors.Is(err, tasks.ErrParams) {
						t.Errorf("%q: %v", v, err)
					}
					continue
				}
				if len(calls) == 0 {
					t.Fatalf("%q: nothing was called", v)
				}
				call := calls[len(calls)-1]
				found := false
				for i, w := range call {
					bare := strings.TrimPrefix(w, "./")
					before := slices.Contains(call[:i], "--") &&
						call[0] != "npm" // npm's own -- ends before the script's arguments
					switch {
					case bare == v && !strings.HasPrefix(w, "-"), w == v && before:
						found = true
					case strings.HasSuffix(w, "="+v) && strings.HasPrefix(w, "-"):
						found = true
					}
				}
				if !found {
					t.Errorf("%q arrived as %q", v, call)
				}
			}
			if names, _ := filepath.Glob(filepath.Join(r.Dir, "pwned*")); len(names) > 0 {
				t.Error("a value was run by the shell")
			}
		})
	}
	// Names of scripts and targets come from the repository, which is as hostile.
	r := newRecorder(t, map[string]string{"package.json": `{"scripts":{"a; touch pwned; $(touch pwned)":"x"}}`})
	if _, calls, err := r.run(t, "lib_run_build",
		map[string]any{"target": "a; touch pwned; $(touch pwned)"}); err != nil || len(calls) != 1 {
		t.Errorf("got %q, %v", calls, err)
	}
	if _, err := os.Stat(filepath.Join(r.Dir, "pwned")); err == nil {
		t.Error("a script's name was run by the shell")
	}
}

func TestMissingDependenciesAreInstalled(t *testing.T) {
	manifest := `{"scripts":{"test":"x"},"dependencies":{"a":"1"}}`
	for _, c := range []struct{ lock, want string }{
		{"package-lock.json", "npm ci --prefer-offline --no-audit --no-fund; npm run test"},
		{"pnpm-lock.yaml", "pnpm install --frozen-lockfile --prefer-offline; pnpm run test"},
		{"yarn.lock", "yarn install --non-interactive --prefer-offline --frozen-lockfile; yarn run test"},
		{"README", "npm install --no-package-lock --prefer-offline --no-audit --no-fund; npm run test"},
	} {
		r := newRecorder(t, map[string]string{"package.json": manifest, c.lock: ""})
		if _, calls, err := r.run(t, "lib_run_tests", nil); err != nil || show(calls) != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.lock, show(calls), err, c.want)
		}
		taskstest.WriteTree(t, r.Dir, map[string]string{"node_modules/a/x": ""})
		if _, calls, err := r.run(t, "lib_run_tests", nil); err != nil || len(calls) != 1 {
			t.Errorf("%s: installed again: %s, %v", c.lock, show(calls), err)
		}
	}
	// What is installed would be committed where .gitignore does not name it.
	l := taskstest.GitTree(t, map[string]string{"package.json": manifest})
	r := recorder{l, filepath.Join(t.TempDir(), "calls")}
	out, _, err := r.run(t, "lib_run_tests", nil)
	if err != nil || out.OK || !strings.Contains(out.Result.Stderr, ".gitignore") {
		t.Errorf("got %+v, %v", out.Result, err)
	}
}

// need skips a test where a tool is missing.
func need(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("cannot run here: there is no %s", tool)
	}
}

// TestRealTools runs the tasks on small projects with the tools themselves, and
// checks that nothing is left in the work tree.
func TestRealTools(t *testing.T) {
	goFiles := map[string]string{
		"go.mod":    "module example.org/m\n\ngo 1.21\n",
		"main.go":   "package main\n\nfunc main() {}\n",
		"m_test.go": "package main\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) {}\n\nfunc TestBad(t *testing.T) { t.Run(\"inner\", func(t *testing.T) { t.Error(\"told you\") }) }\n\nfunc TestSkipped(t *testing.T) { t.Skip() }\n",
	}
	nodeFiles := map[string]string{
		"package.json":   `{"scripts":{"test":"node --test"}}`,
		"test/a.test.js": "const {test} = require('node:test')\ntest('good', () => {})\ntest('bad', () => { throw new Error('told you') })\ntest('skipped', {skip: true}, () => {})\n",
	}
	pyFiles := map[string]string{
		"tests/test_a.py": "import unittest\n\nclass T(unittest.TestCase):\n    def test_good(self): pass\n    def test_bad(self): self.fail('told you')\n    @unittest.skip('x')\n    def test_skipped(self): pass\n",
	}
	for _, c := range []struct {
		name, tool string
		files      map[string]string
		params     string
		want       results.Tests
	}{
		{"go", "go", goFiles, `{}`, results.Tests{Framework: "go", Passed: 1, Failed: 1, Skipped: 1,
			FailedNames: []string{"example.org/m.TestBad/inner"}}},
		{"go pattern", "go", goFiles, `{"pattern":"TestGood"}`, results.Tests{Framework: "go", Passed: 1}},
		{"node script", "npm", nodeFiles, `{}`,
			results.Tests{Framework: "node", Passed: 1, Failed: 1, Skipped: 1, FailedNames: []string{"bad"}}},
		{"node pattern", "node", nodeFiles, `{"pattern":"^good$"}`, results.Tests{Framework: "node", Passed: 1}},
		{"node file", "node", nodeFiles, `{"pattern":"test/a.test.js","framework":"node"}`,
			results.Tests{Framework: "node", Passed: 1, Failed: 1, Skipped: 1, FailedNames: []string{"bad"}}},
		{"unittest", "python3", pyFiles, `{"framework":"unittest"}`, results.Tests{Framework: "unittest", Passed: 1,
			Failed: 1, Skipped: 1, FailedNames: []string{"test_bad (test_a.T.test_bad)"}}},
		{"make", "make", map[string]string{"Makefile": "test:\n\t@printf 'TAP version 13\\n1..2\\nok 1 - a\\nnot ok 2 - b\\n'; exit 1\n"}, `{}`, results.Tests{Framework: "make", Passed: 1, Failed: 1, FailedNames: []string{"b"}}},
		{"make unknown", "make", map[string]string{"Makefile": "test:\n\t@echo fine\n"}, `{}`,
			results.Tests{Framework: "make", Unknown: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			need(t, c.tool)
			l := taskstest.GitTree(t, c.files)
			task, _ := library.Lookup("lib_run_tests")
			out, err := task.Run(t.Context(), l, []byte(c.params))
			if err != nil {
				t.Fatal(err)
			}
			got := out.Value.(results.Tests)
			if out.OK != (c.want.Failed == 0) || out.OK != (out.Result.ExitCode == 0) {
				t.Errorf("OK is %v, exit code %d", out.OK, out.Result.ExitCode)
			}
			if len(got.Failures) != got.Failed || got.Failed > 0 && c.tool != "make" &&
				!strings.Contains(got.Failures[0].Text, "told you") {
				t.Errorf("failures: %+v", got.Failures)
			}
			c.want.Total = c.want.Passed + c.want.Failed + c.want.Skipped
			got.Failures, got.DurationMS = nil, 0
			if c.want.FailedNames == nil {
				c.want.FailedNames = []string{}
			}
			// Before Python 3.11 the name lacks its last part.
			for i := range got.FailedNames {
				got.FailedNames[i] = strings.Replace(got.FailedNames[i], "(test_a.T)", "(test_a.T.test_bad)", 1)
			}
			g, _ := json.Marshal(got)
			w, _ := json.Marshal(c.want)
			if !bytes.Equal(g, w) {
				t.Errorf("got  %s\nwant %s\nstdout %s\nstderr %s", g, w, out.Result.Stdout, out.Result.Stderr)
			}
			clean(t, l)
		})
	}
}

// clean checks that nothing was left in the work tree.
func clean(t *testing.T, l *taskstest.LocalShell) {
	t.Helper()
	r, err := l.Exec(t.Context(), "git status --porcelain --ignored -uall", time.Minute)
	if err != nil || r.Stdout != "" {
		t.Errorf("the work tree is not clean: %s %v", r.Stdout, err)
	}
}

func TestRealLintAndBuild(t *testing.T) {
	l := taskstest.GitTree(t, map[string]string{
		"go.mod":  "module example.org/m\n\ngo 1.21\n",
		"main.go": "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tfmt.Printf(\"%d\\n\", \"text\")\n}\n",
	})
	run := func(name, params string) tasks.Output {
		t.Helper()
		task, _ := library.Lookup(name)
		out, err := task.Run(t.Context(), l, []byte(params))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	out := run("lib_run_lint", `{}`)
	if v := out.Value.(results.Lint); out.OK || v.Tool != "go vet" || v.Count != 1 || v.Findings[0].File != "main.go" ||
		v.Findings[0].Line != 6 {
		t.Errorf("got %+v", out)
	}
	// A single main package would leave its binary here.
	if out := run("lib_run_build", `{}`); !out.OK || out.Value.(results.Build).Tool != "go" {
		t.Errorf("got %+v", out.Result)
	}
	clean(t, l)
	taskstest.WriteTree(t, l.Dir, map[string]string{"main.go": "package main\nfunc main() {  }\n"})
	if out := run("lib_run_lint", `{"fix":true}`); !out.OK {
		t.Errorf("got %+v", out.Result)
	}
	if b, _ := os.ReadFile(filepath.Join(l.Dir, "main.go")); string(b) != "package main\n\nfunc main() {}\n" {
		t.Errorf("not repaired: %q", b)
	}
	if out := run("lib_run_build", `{"target":"./nowhere"}`); out.OK {
		t.Error("built what is not there")
	}
}

// An output that is too long to be kept is still counted.
func TestLongGoOutputIsCounted(t *testing.T) {
	l := taskstest.GitTree(t, map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.21\n",
		"m_test.go": "package m\n\nimport (\n\t\"fmt\"\n\t\"strings\"\n\t\"testing\"\n)\n\nfunc TestLoud(t *testing.T) {\n" +
			"\tfor i := range [300]int{} {\n\t\tt.Run(fmt.Sprint(i), func(t *testing.T) {\n\t\t\tfor range [50]int{} {\n\t\t\t\tfmt.Println(strings.Repeat(\"x\", 200))\n\t\t\t}\n\t\t\tif i == 150 {\n\t\t\t\tt.Fail()\n\t\t\t}\n\t\t})\n\t}\n}\n",
	})
	task, _ := library.Lookup("lib_run_tests")
	out, err := task.Run(t.Context(), l, nil)
	if err != nil {
		t.Fatal(err)
	}
	v := out.Value.(results.Tests)
	if !out.Result.Truncated || v.Unknown || v.Passed != 299 || !slices.Equal(v.FailedNames, []string{"example.org/m.TestLoud/150"}) {
		t.Errorf("truncated %v, got %d passed, failed %q, unknown %v", out.Result.Truncated, v.Passed,
			v.FailedNames, v.Unknown)
	}
}

func TestTimeoutOfTests(t *testing.T) {
	l := taskstest.GitTree(t, map[string]string{"Makefile": "test:\n\t@echo started; sleep 600\n"})
	need(t, "make")
	l.Timeout = 500 * time.Millisecond
	task, _ := library.Lookup("lib_run_tests")
	out, err := task.Run(t.Context(), l, nil)
	if err != nil || out.OK || !out.Result.TimedOut || !out.Value.(results.Tests).Unknown {
		t.Errorf("got %+v, %v", out, err)
	}
}

func TestReadFileEncodings(t *testing.T) {
	l := taskstest.GitTree(t, map[string]string{"text": "é\n", "binary": "\xff\x00", "empty": ""})
	task, _ := library.Lookup("lib_read_file")
	for name, want := range map[string]library.File{
		"text":   {Path: "text", Content: "é\n", Encoding: "utf-8", Size: 3},
		"binary": {Path: "binary", Content: "/wA=", Encoding: "base64", Size: 2},
		"empty":  {Path: "empty", Encoding: "utf-8"},
	} {
		out, err := task.Run(t.Context(), l, []byte(`{"path":"./`+name+`"}`))
		if err != nil || out.Value != want {
			t.Errorf("%s: got %+v, %v", name, out.Value, err)
		}
	}
}
