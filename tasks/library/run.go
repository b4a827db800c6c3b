package library

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/nodejs"
	"github.com/ramus-dev/ramus/tasks/results"
)

// frameworks are the frameworks that lib_run_tests accepts.
var frameworks = []string{"go", "cargo", "npm", "pnpm", "yarn", "vitest", "jest", "mocha", "node", "pytest",
	"unittest", "make"}

// job is a command line of a library task, with the parser of its output.
type job struct {
	tool string
	// command is shell text. "$d" in it is a new folder outside the work tree. A tool that writes its report to a file
	// writes it to "$d/report".
	command string
	// parse reads the report, or stdout if there is none. It may set Framework to one of several tools.
	parse func(report, stdout, stderr []byte, truncated bool) (*results.Tests, bool)
	// text, if not nil, makes stdout readable after it was parsed.
	text func(stdout []byte) string
}

// line returns the whole command line. The report in "$d/report" and the folder of the command are printed last, after
// a mark that the tool does not know and so cannot forge. They are never in the work tree, whose files are committed
// afterwards.
func (j job) line(mark string) string {
	if !strings.Contains(j.command, `"$d`) {
		return j.command
	}
	return `d=$(mktemp -d) || exit; trap 'rm -rf "$d"' EXIT; ` + j.command +
		`; rc=$?; [ ! -s "$d/report" ] || { printf '\n%s\n' ` + mark + `; pwd; cat "$d/report"; }; exit $rc`
}

// run runs the job and removes the report from the output. root is the folder of the command, with a slash at the end.
// It is to be removed from absolute names that tools print.
func (j job) run(ctx context.Context, sh tasks.Shell) (out tasks.Output, report []byte, root string, err error) {
	mark := "ramus-report-" + rand.Text()
	line := j.line(mark)
	r, err := sh.Exec(ctx, line, 0)
	if err != nil {
		return tasks.Output{}, nil, "", err
	}
	if i := strings.LastIndex(r.Stdout, "\n"+mark+"\n"); i >= 0 {
		dir, rest, _ := strings.Cut(r.Stdout[i+len(mark)+2:], "\n")
		root, report = strings.TrimSuffix(dir, "/")+"/", []byte(rest)
		r.Stdout = r.Stdout[:i]
	}
	return tasks.Output{OK: r.ExitCode == 0 && !r.TimedOut, Result: &r, Command: line}, report, root, nil
}

type testParams struct {
	Pattern   string `json:"pattern,omitempty" jsonschema:"Which tests to run. A file or folder (Go: a package, ./x or ./x/...) if it looks like a path, else a part of test names: a regular expression for go, jest, vitest, mocha and node, an expression of -k for pytest. Without one, all tests."`
	Framework string `json:"framework,omitempty" jsonschema:"The framework to use if the repository has several. Without one, it is detected."`
}

func (testParams) adjust(s *jsonschema.Schema) {
	for _, f := range frameworks {
		s.Properties["framework"].Enum = append(s.Properties["framework"].Enum, f)
	}
}

const testsDoc = `Runs the project's tests. The files in the root of the work tree determine the tool, the first in this list that exists: go.mod (go test ./...), Cargo.toml (cargo test), package.json (its test script by pnpm, yarn or npm, whichever has its lock file there; else vitest, jest, mocha or node --test), Python (pytest where it is named or installed, else unittest), Makefile (the target test or check). framework chooses another. node_modules is installed from the lock file first when it is missing.

The value has passed, failed, skipped and total, the names of failed tests (at most 200) and the messages of the first 20 of them. "unknown": true means that the output could not be counted, so that only the exit code shows the result. The task is OK if all tests passed.`

func runTests() tasks.Task {
	return newTask("lib_run_tests", testsDoc, func(ctx context.Context, sh tasks.Shell, p testParams) (tasks.Output, error) {
		if p.Framework != "" && !slices.Contains(frameworks, p.Framework) {
			return tasks.Output{}, refuse("framework", p.Framework, "is unknown; known are: "+strings.Join(frameworks, ", "))
		}
		if err := checkArgument("pattern", p.Pattern); err != nil {
			return tasks.Output{}, err
		}
		proj, err := look(ctx, sh)
		if err != nil {
			return tasks.Output{}, err
		}
		j, err := proj.tests(ctx, p)
		if err != nil {
			return tasks.Output{}, err
		}
		out, report, root, err := j.run(ctx, sh)
		if err != nil {
			return tasks.Output{}, err
		}
		r := out.Result
		t, ok := j.parse(report, []byte(r.Stdout), []byte(r.Stderr), r.Truncated)
		if t == nil || !ok {
			t = results.NewTests()
		}
		t.Unknown = !ok
		if j.text != nil {
			r.Stdout = j.text([]byte(r.Stdout))
		}
		if t.Framework == "" {
			t.Framework = j.tool
		}
		for i := range t.FailedNames { // a file that could not be loaded
			t.FailedNames[i] = strings.TrimPrefix(t.FailedNames[i], root)
		}
		for i := range t.Failures {
			t.Failures[i].Name = strings.TrimPrefix(t.Failures[i].Name, root)
		}
		if t.DurationMS == 0 {
			t.DurationMS = r.DurationMS
		}
		// A script may hide the exit code of its tests.
		out.OK = out.OK && t.Failed == 0
		out.Value = *t
		return out, nil
	})
}

// checkArgument refuses a value that cannot be one argument, or that would be invisible in a log.
func checkArgument(param, value string) error {
	if tasks.Quotable(value) != nil {
		return refuse(param, value, tasks.ErrNUL.Error())
	}
	if len(value) > 4096 {
		return refuse(param, value, "is longer than 4096 bytes")
	}
	return nil
}

// asPath prevents a file name from being read as an option.
func asPath(s string) string {
	if strings.HasPrefix(s, "-") {
		return "./" + s
	}
	return s
}

var (
	nodeFile   = pattern.New(`/|\.[cm]?[jt]sx?$`)
	pythonFile = pattern.New(`/|::|\.py$`)
)

// tests chooses the command line of the tests.
func (p *project) tests(ctx context.Context, q testParams) (job, error) {
	has := func(f string) bool { return q.Framework == f }
	none := q.Framework == ""
	switch {
	case has("go") || none && p.files["go.mod"]:
		return goTests(q.Pattern), nil
	case has("cargo") || none && p.files["Cargo.toml"]:
		return cargoTests(q.Pattern), nil
	case has("npm") || has("pnpm") || has("yarn"):
		if p.node == nil || p.node.scripts["test"] == "" {
			return job{}, fmt.Errorf("cannot run tests with %s: there is no package.json with a script \"test\" in the root of the work tree", q.Framework)
		}
		p.node.Manager = nodejs.Named(q.Framework, p.has, p.node.pinned)
		return p.nodeScriptTests(q.Pattern)
	case has("vitest") || has("jest") || has("mocha") || has("node"):
		if p.node != nil && nodeTool(p.node.scripts["test"]) == q.Framework {
			return p.nodeScriptTests(q.Pattern)
		}
		if p.node == nil && q.Framework != "node" {
			return job{}, fmt.Errorf("cannot run tests with %s: there is no package.json in the root of the work tree",
				q.Framework)
		}
		return p.nodeToolTests(q.Framework, q.Pattern), nil
	case has("pytest"):
		return pythonTests(pytestOnly, q.Pattern, false), nil
	case has("unittest"):
		flat, err := p.flatTests(ctx)
		return pythonTests(unittestOnly, q.Pattern, flat), err
	case has("make"):
		return p.makeTests(q.Pattern)
	}
	if p.node != nil {
		if p.node.scripts["test"] != "" {
			return p.nodeScriptTests(q.Pattern)
		}
		for _, tool := range []string{"vitest", "jest", "mocha"} {
			if p.node.deps[tool] {
				return p.nodeToolTests(tool, q.Pattern), nil
			}
		}
		for _, pattern := range []string{"**/*.test.{js,mjs,cjs}", "test/**/*.{js,mjs,cjs}"} {
			if ok, err := p.exists(ctx, pattern); err != nil {
				return job{}, err
			} else if ok {
				return p.nodeToolTests("node", q.Pattern), nil
			}
		}
	}
	if ok, err := p.isPython(ctx); err != nil {
		return job{}, err
	} else if ok {
		named, err := p.usesPytest(ctx)
		if err != nil {
			return job{}, err
		}
		if named {
			return pythonTests(pytestOnly, q.Pattern, false), nil
		}
		flat, err := p.flatTests(ctx)
		return pythonTests(pytestIfThere, q.Pattern, flat), err
	}
	if p.firstTarget("test", "check") != "" {
		return p.makeTests(q.Pattern)
	}
	return job{}, p.none("run tests", "The parameter framework takes: "+strings.Join(frameworks, ", ")+".")
}

// goDigest keeps the important events if go test prints more than a Shell keeps in memory. Its lines come after the
// mark, at the end, which is kept.
const goDigest = `{ [ $(wc -c <"$d/events") -le 250000 ] || grep -E '"Action":"(pass|fail|skip)"' "$d/events" >"$d/report"; }`

func goTests(pattern string) job {
	args := "./..."
	switch {
	case pattern == "":
	case pattern == "." || strings.HasPrefix(pattern, "./") || strings.HasSuffix(pattern, "/..."):
		// Not after "--", because go test passes arguments after it to the tests.
		if strings.HasPrefix(pattern, "-") {
			pattern = "./" + pattern
		}
		args = tasks.Quote(pattern)
	default:
		args = "-run=" + tasks.Quote(pattern) + " ./..."
	}
	return job{
		tool: "go",
		// sh has no pipefail, so the exit code goes through a file.
		command: `{ go test -json ` + args + `; echo $? >"$d/rc"; } | tee "$d/events"; ` + goDigest +
			`; (exit "$(cat "$d/rc")")`,
		text: results.GoText,
		parse: func(report, stdout, _ []byte, truncated bool) (*results.Tests, bool) {
			t, ok := results.ParseGoTest(slices.Concat(stdout, []byte("\n"), report))
			return t, ok && (!truncated || len(report) > 0)
		},
	}
}

func cargoTests(pattern string) job {
	command := cargoEnv + "cargo test --no-fail-fast"
	if pattern != "" {
		command += " -- -- " + tasks.Quote(pattern) // the first -- is cargo's, the second the test program's
	}
	return job{tool: "cargo", command: command, parse: func(_, stdout, _ []byte, truncated bool) (*results.Tests, bool) {
		t, ok := results.ParseCargo(stdout)
		return t, ok && !truncated
	}}
}

// cargoEnv keeps target/ out of a work tree that does not ignore it.
const cargoEnv = `git check-ignore -q target/x; [ $? -ne 1 ] || export CARGO_TARGET_DIR="${TMPDIR:-/tmp}/ramus-target"; `

// nodeScriptTests runs the test script of package.json. If the script ends in a tool with a parsable reporter, it
// selects that reporter.
func (p *project) nodeScriptTests(pattern string) (job, error) {
	n := p.node
	script := n.scripts["test"]
	tool := nodeTool(script)
	setup := "export CI=true; " + n.install()
	switch tool {
	case "vitest", "jest", "mocha":
		args := nodeArgs(tool, pattern)
		if tool == "vitest" && !slices.Contains(strings.Fields(script), "run") {
			args = "--run " + args
		}
		return job{tool: tool, command: setup + n.run("test", args), parse: nodeParse(tool)}, nil
	case "node":
		if pattern != "" || strings.Contains(script, "--test-reporter") {
			if pattern == "" {
				return job{tool: "node", command: setup + n.run("test", ""), parse: parseAny}, nil
			}
			// Arguments after the script's own files would be files as well.
			return p.nodeToolTests("node", pattern), nil
		}
		env := `NODE_OPTIONS="$NODE_OPTIONS --test-reporter=tap --test-reporter-destination=stdout" `
		return job{tool: "node", command: setup + env + n.run("test", ""), parse: nodeParse("node")}, nil
	}
	args := ""
	if pattern != "" {
		if strings.HasPrefix(pattern, "-") {
			return job{}, refuse("pattern", pattern,
				"begins with \"-\", and the test script of package.json would take it for an option")
		}
		args = tasks.Quote(pattern)
	}
	return job{tool: n.Name, command: setup + n.run("test", args), parse: parseAny}, nil
}

// nodeToolTests runs a tool directly.
func (p *project) nodeToolTests(tool, pattern string) job {
	setup := "export CI=true; "
	if p.node != nil {
		setup += p.node.install()
	}
	setup += `PATH="$PWD/node_modules/.bin:$PATH" `
	command := tool + " "
	switch tool {
	case "vitest":
		command = "vitest run "
	case "node":
		command = "node --test --test-reporter=tap --test-reporter-destination=stdout "
	}
	return job{tool: tool, command: strings.TrimSpace(setup + command + nodeArgs(tool, pattern)), parse: nodeParse(tool)}
}

// nodeArgs returns the arguments of a tool, with the reporter and the pattern.
func nodeArgs(tool, pattern string) string {
	var args []string
	switch tool {
	case "vitest":
		args = append(args, `--reporter=default --reporter=json --outputFile.json="$d/report"`)
	case "jest":
		args = append(args, `--json --outputFile="$d/report"`)
	case "mocha":
		args = append(args, `--reporter=json --reporter-option=output="$d/report"`)
	}
	if pattern == "" {
		return strings.Join(args, " ")
	}
	if nodeFile.MatchString(pattern) {
		args = append(args, tasks.Quote(asPath(pattern)))
	} else {
		option := map[string]string{"vitest": "--testNamePattern=", "jest": "--testNamePattern=", "mocha": "--grep=",
			"node": "--test-name-pattern="}[tool]
		args = append(args, option+tasks.Quote(pattern))
	}
	return strings.Join(args, " ")
}

func nodeParse(tool string) func(report, stdout, stderr []byte, truncated bool) (*results.Tests, bool) {
	return func(report, stdout, stderr []byte, truncated bool) (*results.Tests, bool) {
		parse := map[string]func([]byte) (*results.Tests, bool){"vitest": results.ParseJest, "jest": results.ParseJest,
			"mocha": results.ParseMocha, "node": results.ParseTAP}[tool]
		if tool == "node" && truncated {
			return results.ParseTAPSums(stdout)
		}
		for _, text := range [][]byte{report, stdout} { // mocha before 9.2 supports no output file
			if t, ok := parse(text); ok {
				return t, true
			}
		}
		t, ok := results.ParseJSText(slices.Concat(stdout, []byte("\n"), stderr))
		return t, ok && !truncated
	}
}

const (
	pytestOnly = iota
	unittestOnly
	pytestIfThere
)

// flatTests reports whether unittest needs the folder tests/ as argument, because it is not a package.
func (p *project) flatTests(ctx context.Context) (bool, error) {
	names, err := p.sh.ListFiles(ctx, "{test*.py,tests/__init__.py,tests/test*.py}")
	if err != nil {
		return false, err
	}
	return len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool {
		return n == "tests/__init__.py" || !strings.HasPrefix(n, "tests/")
	}), nil
}

// pythonEnv keeps bytecode out of the work tree, and prefers the project's own interpreter.
const pythonEnv = `export PYTHONDONTWRITEBYTECODE=1; py=python3; [ ! -x .venv/bin/python ] || py=.venv/bin/python; `

func pythonTests(which int, pattern string, flat bool) job {
	// The cache is moved because not every .gitignore has .pytest_cache.
	pytest := `"$py" -m pytest --junitxml="$d/report" -o cache_dir="$d/cache"`
	unittest := `"$py" -m unittest -v`
	switch {
	case pattern == "":
		if flat {
			unittest = `"$py" -m unittest discover -v -s tests`
		}
	case pythonFile.MatchString(pattern):
		pytest += " -- " + tasks.Quote(pattern)
		unittest += " " + tasks.Quote(asPath(pattern))
	default:
		pytest += " -k=" + tasks.Quote(pattern)
		if flat {
			unittest = `"$py" -m unittest discover -v -s tests`
		}
		unittest += " -k=" + tasks.Quote(pattern)
	}
	j := job{tool: "pytest", command: pythonEnv + pytest}
	switch which {
	case unittestOnly:
		j = job{tool: "unittest", command: pythonEnv + unittest}
	case pytestIfThere:
		j.command = pythonEnv + `if "$py" -c 'import pytest' 2>/dev/null; then ` + pytest + `; else ` + unittest + `; fi`
	}
	j.parse = func(report, stdout, stderr []byte, truncated bool) (*results.Tests, bool) {
		if t, ok := results.ParseJUnit(report); ok {
			t.Framework = "pytest"
			return t, true
		}
		// unittest prints to stderr, with its sums at the end, so they are there even if the middle is missing.
		if t, ok := results.ParseUnittest(stderr); ok && which != pytestOnly {
			t.Framework = "unittest"
			return t, true
		}
		return results.ParsePytest(stdout)
	}
	return j
}

func (p *project) makeTests(pattern string) (job, error) {
	target := p.firstTarget("test", "check")
	switch {
	case p.make == nil:
		return job{}, fmt.Errorf("cannot run tests with make: there is no Makefile in the root of the work tree")
	case target == "":
		return job{}, fmt.Errorf("cannot run tests with make: the Makefile has no target test or check; it has: %s",
			text.Clip(strings.Join(p.make, ", "), 500))
	case pattern != "":
		return job{}, refuse("pattern", pattern, "cannot be given to make; choose a framework, or run a command of your own")
	}
	return job{tool: "make", command: "make " + target, parse: parseAny}, nil
}

// parseAny reads the output of a script that may run anything. It does not count truncated output.
func parseAny(_, stdout, stderr []byte, truncated bool) (*results.Tests, bool) {
	sum, ok := results.ParseAny(stdout, stderr)
	return sum, ok && !truncated
}
