package library

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/results"
)

const lintDoc = `Runs the project's linters. The files in the root of the work tree determine them, the first in this list that exists: go.mod (go vet, and golangci-lint or staticcheck where the project configures it and it is installed), Cargo.toml (cargo clippy), package.json (its scripts lint and typecheck, else eslint, else tsc), Python (ruff or flake8, whichever is configured, else installed), Makefile (the target lint). With fix, what the tool can repair is repaired in the work tree: go fmt, golangci-lint --fix, clippy --fix, eslint --fix or the script lint:fix, ruff --fix, the make target fix or fmt.
The value has the tool and the number of findings, with file, line, column and message of the first 100. The task is OK if the tool ends with exit code 0.`

func runLint() tasks.Task {
	type params struct {
		Fix bool `json:"fix,omitempty" jsonschema:"Fix the findings that the tool can fix itself."`
	}
	return newTask("lib_run_lint", lintDoc, func(ctx context.Context, sh tasks.Shell, p params) (tasks.Output, error) {
		proj, err := look(ctx, sh)
		if err != nil {
			return tasks.Output{}, err
		}
		j, err := proj.lint(ctx, p.Fix)
		if err != nil {
			return tasks.Output{}, err
		}
		out, report, root, err := j.run(ctx, sh)
		if err != nil {
			return tasks.Output{}, err
		}
		l := results.ParseFindings([]byte(out.Result.Stdout + "\n" + out.Result.Stderr))
		if tool, rest, ok := strings.Cut(string(report), "\n"); ok && strings.HasPrefix(tool, toolLine) {
			j.tool, report = strings.TrimPrefix(tool, toolLine), []byte(rest)
		}
		if e, ok := results.ParseESLint(report); ok {
			for _, f := range l.Findings { // of other tools in the same script
				e.Add(f)
			}
			l = e
		}
		for i := range l.Findings {
			l.Findings[i].File = strings.TrimPrefix(l.Findings[i].File, root)
		}
		l.Tool = j.tool
		out.Value = l
		return out, nil
	})
}

// toolLine begins the first line of a report if the shell chose the tool. say is the shell text that writes that line.
const toolLine = "tool "

func sayTool(tool string) string { return `echo '` + toolLine + tool + `' >"$d/report"; ` }

const buildDoc = `Builds the project. The files in the root of the work tree determine the tool, the first in this list that exists: go.mod (go build ./..., binaries thrown away), Cargo.toml (cargo build), package.json (its script build, else typecheck), Python (python3 -m build into dist/ where that is set up and installed, else every file is compiled), Makefile (the target build, else all). target chooses a part: a Go package, a crate, a script of package.json, a target of the Makefile. What is built is committed unless .gitignore names it.
The task is OK if the tool ends with exit code 0.`

func runBuild() tasks.Task {
	type params struct {
		Target string `json:"target,omitempty" jsonschema:"What to build: a Go package (./cmd/x), a crate, a script of package.json, a target of the Makefile. Without one, everything."`
	}
	return newTask("lib_run_build", buildDoc, func(ctx context.Context, sh tasks.Shell, p params) (tasks.Output, error) {
		if err := checkArgument("target", p.Target); err != nil {
			return tasks.Output{}, err
		}
		proj, err := look(ctx, sh)
		if err != nil {
			return tasks.Output{}, err
		}
		j, err := proj.build(ctx, p.Target)
		if err != nil {
			return tasks.Output{}, err
		}
		out, _, _, err := j.run(ctx, sh)
		if err != nil {
			return tasks.Output{}, err
		}
		out.Value = results.Build{Tool: j.tool}
		return out, nil
	})
}

// lint chooses the command line of the linters.
func (p *project) lint(ctx context.Context, fix bool) (job, error) {
	if p.files["go.mod"] {
		return p.goLint(ctx, fix)
	}
	if p.files["Cargo.toml"] {
		command := "cargo clippy --message-format=short"
		if fix {
			command += " --fix --allow-dirty --allow-staged"
		}
		return job{tool: "clippy", command: cargoEnv + command}, nil
	}
	if p.node != nil {
		if j, ok, err := p.nodeLint(ctx, fix); ok || err != nil {
			return j, err
		}
	}
	if ok, err := p.isPython(ctx); err != nil {
		return job{}, err
	} else if ok {
		return p.pythonLint(ctx, fix)
	}
	if t := p.firstTarget("lint"); t != "" {
		if fix {
			if t = p.firstTarget("lint-fix", "fix", "fmt", "format"); t == "" {
				return job{}, fmt.Errorf("%w: parameter \"fix\": the Makefile has no target lint-fix, fix, fmt or format", tasks.ErrParams)
			}
			return job{tool: "make", command: "make " + t + " && make lint"}, nil
		}
		return job{tool: "make", command: "make " + t}, nil
	}
	return job{}, p.none("lint", "Use a command of your own.")
}

func (p *project) goLint(ctx context.Context, fix bool) (job, error) {
	tools, command := []string{"go vet"}, ""
	if fix {
		command = "go fmt ./... && "
	}
	// All tools run. The first exit code other than 0 is kept.
	command += "go vet ./...; rc=$?; "
	configured := slices.ContainsFunc([]string{".golangci.yml", ".golangci.yaml", ".golangci.toml", ".golangci.json"},
		func(n string) bool { return p.files[n] })
	static, err := p.contains(ctx, "go.mod", hasStaticcheck)
	if err != nil {
		return job{}, err
	}
	switch {
	case configured:
		run := "golangci-lint run"
		if fix {
			run += " --fix"
		}
		command += "if command -v golangci-lint >/dev/null; then " + sayTool("go vet, golangci-lint") + run + " || rc=$?; fi; "
	case static:
		tools = append(tools, "staticcheck")
		command += "go tool staticcheck ./... || rc=$?; "
	case p.files["staticcheck.conf"]:
		command += "if command -v staticcheck >/dev/null; then " + sayTool("go vet, staticcheck") +
			"staticcheck ./... || rc=$?; fi; "
	}
	return job{tool: strings.Join(tools, ", "), command: command + "(exit $rc)"}, nil
}

// nodeLint returns false if package.json has no linter.
func (p *project) nodeLint(ctx context.Context, fix bool) (job, bool, error) {
	n := p.node
	setup := "export CI=true; " + n.install()
	direct := `PATH="$PWD/node_modules/.bin:$PATH" `
	eslint := `--format=json --output-file="$d/report"`
	if fix {
		eslint += " --fix"
	}
	script := n.scripts["lint"]
	switch {
	case script == "" && n.deps["eslint"]:
		return job{tool: "eslint", command: setup + direct + "eslint . " + eslint}, true, nil
	case script == "" && n.scripts["typecheck"] == "":
		if ok, err := p.exists(ctx, "tsconfig.json"); err != nil || !ok || !n.deps["typescript"] {
			return job{}, false, err
		}
		if fix {
			return job{}, false, noFix("tsc")
		}
		return job{tool: "tsc", command: setup + direct + "tsc --noEmit --pretty false"}, true, nil
	case script == "":
		if fix {
			return job{}, false, noFix("the script typecheck")
		}
		return job{tool: n.Name, command: setup + n.run("typecheck", "")}, true, nil
	}
	j := job{tool: n.Name}
	args := ""
	if nodeTool(script) == "eslint" {
		j.tool = "eslint"
		args = eslint
	}
	switch {
	case !fix || j.tool == "eslint":
		j.command = setup + n.run("lint", args)
	case n.scripts["lint:fix"] != "":
		j.command = setup + n.run("lint:fix", "")
	default:
		return job{}, false, noFix("the script lint")
	}
	if n.scripts["typecheck"] != "" {
		j.command += "; rc=$?; " + n.run("typecheck", "") + " || rc=$?; (exit $rc)"
	}
	return j, true, nil
}

func noFix(tool string) error {
	return fmt.Errorf("%w: parameter \"fix\": %s has no known way to repair; add a script lint:fix to package.json",
		tasks.ErrParams, tool)
}

func (p *project) pythonLint(ctx context.Context, fix bool) (job, error) {
	// Caches are kept out of the work tree.
	ruff := "ruff check --no-cache --output-format=concise"
	if fix {
		ruff += " --fix"
	}
	ruff = `"$py" -m ` + ruff + " ."
	flake8 := `"$py" -m flake8 .`
	if fix {
		flake8 = "echo 'flake8 repairs nothing: use ruff' >&2; (exit 2)"
	}
	configured := p.files["ruff.toml"] || p.files[".ruff.toml"]
	if ok, err := p.contains(ctx, "pyproject.toml", hasRuff); err != nil {
		return job{}, err
	} else if ok {
		configured = true
	}
	// A ruff program is as good as the Python module.
	find := `if "$py" -c 'import ruff' 2>/dev/null; then ` + ruff + `; elif command -v ruff >/dev/null; then ` +
		strings.TrimPrefix(ruff, `"$py" -m `)
	if configured {
		return job{tool: "ruff",
			command: pythonEnv + find + `; else echo 'ruff is configured, but not installed' >&2; (exit 127); fi`}, nil
	}
	flake := p.files[".flake8"]
	for _, name := range []string{"setup.cfg", "tox.ini"} {
		ok, err := p.contains(ctx, name, hasFlake8)
		if err != nil {
			return job{}, err
		}
		flake = flake || ok
	}
	if flake {
		return job{tool: "flake8", command: pythonEnv + flake8}, nil
	}
	find = strings.ReplaceAll(find, "then ", "then "+sayTool("ruff"))
	return job{tool: "python", command: pythonEnv + find + `; elif "$py" -c 'import flake8' 2>/dev/null; then ` +
		sayTool("flake8") + flake8 +
		`; else echo 'neither ruff nor flake8 is installed' >&2; (exit 127); fi`}, nil
}

// build chooses the command line of the build.
func (p *project) build(ctx context.Context, target string) (job, error) {
	if p.files["go.mod"] {
		what := "./..."
		if target != "" {
			what = "-- " + tasks.Quote(asPath(target))
		}
		// The output goes to /dev/null, because a single main package would leave its binary in the work tree.
		return job{tool: "go", command: "go build -o /dev/null " + what}, nil
	}
	if p.files["Cargo.toml"] {
		command := "cargo build"
		if target != "" {
			command += " --package=" + tasks.Quote(target)
		}
		return job{tool: "cargo", command: cargoEnv + command}, nil
	}
	if n := p.node; n != nil {
		script := target
		for _, s := range []string{"build", "typecheck"} {
			if script == "" && n.scripts[s] != "" {
				script = s
			}
		}
		if target != "" && n.scripts[target] == "" {
			return job{}, refuse("target", target, "is no script of package.json")
		}
		if script != "" {
			return job{tool: n.Name, command: "export CI=true; " + n.install() + n.run(script, "")}, nil
		}
	}
	if ok, err := p.isPython(ctx); err != nil {
		return job{}, err
	} else if ok {
		if target != "" {
			return job{}, refuse("target", target, "cannot be given: a Python project is built as a whole")
		}
		compile := `PYTHONPYCACHEPREFIX="$d" "$py" -m compileall -q -x '/\.venv/|/node_modules/' .`
		set, err := p.contains(ctx, "pyproject.toml", hasBuildSystem)
		if err != nil {
			return job{}, err
		}
		if !set && !p.files["setup.py"] {
			return job{tool: "compileall", command: pythonEnv + compile}, nil
		}
		return job{tool: "python", command: pythonEnv +
			`if "$py" -c 'import build' 2>/dev/null; then "$py" -m build; else ` + compile + `; fi`}, nil
	}
	if p.make != nil {
		t := target
		if t == "" {
			t = p.firstTarget("build", "all")
		} else if !slices.Contains(p.make, t) {
			// Other arguments might be options or set a variable (SHELL=…).
			return job{}, refuse("target", target,
				"is not a target of the Makefile; it has: "+text.Clip(strings.Join(p.make, ", "), 500))
		}
		if t != "" {
			return job{tool: "make", command: "make -- " + tasks.Quote(t)}, nil
		}
	}
	return job{}, p.none("build", "Use a command of your own.")
}
