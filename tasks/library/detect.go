package library

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/nodejs"
)

// project has the facts in the root of a work tree that determine its tests, linters and builds. The repository's
// authors wrote all of it, so names from it are quoted in command lines.
type project struct {
	sh    tasks.Shell
	files map[string]bool // in the root
	node  *nodePackage    // nil without package.json
	make  []string        // targets; nil without a Makefile
}

// nodePackage has the relevant parts of a package.json.
type nodePackage struct {
	nodejs.Manager
	pinned  string // the package manager in package.json, as "yarn@4.1.0"
	scripts map[string]string
	deps    map[string]bool // of all kinds
}

var (
	pythonMarkers = []string{"pyproject.toml", "pytest.ini", "setup.cfg", "setup.py", "tox.ini", "conftest.py",
		"requirements.txt", "ruff.toml", ".ruff.toml", ".flake8"}
	makefiles = []string{"GNUmakefile", "makefile", "Makefile"} // in the order of make itself

	// markers are the files that determine the languages, in the order of priority.
	markers = slices.Concat([]string{"go.mod", "Cargo.toml", "package.json"}, pythonMarkers, makefiles)
)

// look reads the root of the work tree.
func look(ctx context.Context, sh tasks.Shell) (*project, error) {
	names, err := sh.ListFiles(ctx, "*")
	if err != nil {
		return nil, err
	}
	p := &project{sh: sh, files: map[string]bool{}}
	for _, n := range names {
		p.files[n] = true
	}
	if p.files["package.json"] {
		if p.node, err = p.readPackage(ctx); err != nil {
			return nil, err
		}
	}
	for _, name := range makefiles {
		if p.files[name] {
			text, err := sh.ReadFile(ctx, name)
			if err != nil {
				return nil, err
			}
			p.make = parseMakeTargets(text)
			break
		}
	}
	return p, nil
}

// none returns the error for a job that the project does not support.
func (p *project) none(job, more string) error {
	var found []string
	for _, m := range markers {
		if p.files[m] {
			found = append(found, m)
		}
	}
	seen := "none of them is there"
	if len(found) > 0 {
		seen = "of these " + strings.Join(found, ", ") + " is there, without a way to " + job
	}
	return &noWay{fmt.Sprintf("cannot find out how to %s: looked in the root of the work tree for %s; %s. %s", job,
		strings.Join(markers, ", "), seen, more)}
}

// noWay is an [tasks.ErrNoWay] that names the searched files.
type noWay struct{ text string }

func (e *noWay) Error() string     { return e.text }
func (e *noWay) Is(err error) bool { return err == tasks.ErrNoWay }

// has reports whether a file is in the root.
func (p *project) has(name string) bool { return p.files[name] }

// contains reports whether a file in the root has a line that re matches.
func (p *project) contains(ctx context.Context, name string, re *pattern.Regexp) (bool, error) {
	if !p.files[name] {
		return false, nil
	}
	text, err := p.sh.ReadFile(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return re.Match(text), err
}

// exists reports whether any file matches a glob.
func (p *project) exists(ctx context.Context, pattern string) (bool, error) {
	names, err := p.sh.ListFiles(ctx, pattern)
	return len(names) > 0, err
}

func (p *project) readPackage(ctx context.Context) (*nodePackage, error) {
	text, err := p.sh.ReadFile(ctx, "package.json")
	if err != nil {
		return nil, err
	}
	var raw struct {
		PackageManager       string                     `json:"packageManager"`
		Scripts              map[string]json.RawMessage `json:"scripts"`
		Dependencies         map[string]json.RawMessage `json:"dependencies"`
		DevDependencies      map[string]json.RawMessage `json:"devDependencies"`
		OptionalDependencies map[string]json.RawMessage `json:"optionalDependencies"`
	}
	if err := json.Unmarshal(bytes.TrimPrefix(text, []byte("\ufeff")), &raw); err != nil {
		return nil, fmt.Errorf("cannot read package.json: %w", err)
	}
	n := &nodePackage{scripts: map[string]string{}, deps: map[string]bool{}}
	for name, v := range raw.Scripts {
		var s string
		if json.Unmarshal(v, &s) == nil {
			n.scripts[name] = s
		}
	}
	for _, m := range []map[string]json.RawMessage{raw.Dependencies, raw.DevDependencies, raw.OptionalDependencies} {
		for name := range m {
			n.deps[name] = true
		}
	}
	n.pinned = raw.PackageManager
	n.Manager = nodejs.Find(p.has, n.pinned)
	// The script that `npm init` writes is not a test.
	if strings.Contains(n.scripts["test"], "no test specified") {
		delete(n.scripts, "test")
	}
	return n, nil
}

// install returns the shell text that installs the dependencies if node_modules is missing, or "" if there are none.
// The installed files must not be committed, so a repository whose .gitignore does not have node_modules gets an error.
func (n *nodePackage) install() string {
	if len(n.deps) == 0 {
		return ""
	}
	return "if [ ! -d node_modules ] && [ ! -e .pnp.cjs ]; then " +
		"git check-ignore -q node_modules/x; " + // 1 means not ignored, 128 no repository
		"if [ $? -eq 1 ]; then echo 'node_modules is missing, and installing it would commit it: name it in .gitignore' >&2; exit 1; fi; " +
		n.Install + " >&2 || exit; fi; "
}

// run returns the shell text that runs a script of package.json with further arguments.
func (n *nodePackage) run(script, args string) string {
	text := n.Name + " run " + tasks.Quote(script)
	if args == "" {
		return text
	}
	if n.Name == "npm" {
		return text + " -- " + args
	}
	return text + " " + args
}

// nodeTool returns the tool at the end of a script: vitest, jest, mocha, node (for node --test), eslint or tsc, or ""
// for any other. Only the last command matters, because it gets the arguments after the script's name.
func nodeTool(script string) string {
	for _, separator := range []string{"\n", ";", "|", "&"} {
		script = strings.TrimSpace(script)
		if i := strings.LastIndex(script, separator); i >= 0 {
			script = script[i+1:]
		}
	}
	words := strings.Fields(script)
	for len(words) > 0 {
		w := words[0]
		switch {
		case assignment.MatchString(w):
		case w == "npx" || w == "cross-env" || w == "c8" || w == "nyc" || w == "env" || w == "pnpm" || w == "yarn" ||
			w == "exec":
			// An option of a wrapper may take the next word. Then the result is "".
		case strings.HasPrefix(w, "-"):
		default:
			tool := strings.TrimSuffix(path.Base(w), ".js")
			switch tool {
			case "vitest", "jest", "mocha", "eslint", "tsc":
				return tool
			case "node", "tsx":
				if slices.Contains(words, "--test") {
					return "node"
				}
				for _, w := range words[1:] {
					if t := strings.TrimSuffix(path.Base(w), ".js"); t == "jest" || t == "mocha" || t == "vitest" || t == "eslint" {
						return t
					}
				}
			}
			return ""
		}
		words = words[1:]
	}
	return ""
}

var assignment = pattern.New(`^[A-Za-z_][A-Za-z0-9_]*=`)

var (
	makeRule     = pattern.New(`^([^\s:=#\t][^:=#]*?)\s*::?(.*)$`)
	makeVariable = pattern.New(`^\s*(?:(?:override|export|private)\s+)*[A-Za-z_][A-Za-z0-9_.-]*\s*(?:[:?+!]|::)?=`)
	makeName     = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9_./+@-]*$`)
)

// parseMakeTargets reads the targets of a Makefile. Asking make (make -pn) would run the commands in $(shell …).
// Targets of included files and computed names are not found.
func parseMakeTargets(text []byte) []string {
	targets := []string{}
	seen := map[string]bool{}
	define, continued := false, false
	for raw := range bytes.Lines(text) {
		line := strings.TrimRight(string(raw), "\r\n")
		skip := continued
		continued = strings.HasSuffix(line, `\`)
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case define:
			define = word != "endef"
			continue
		case word == "define":
			define = true
			continue
		case skip || strings.HasPrefix(line, "\t"):
			continue
		}
		m := makeRule.FindStringSubmatch(line)
		if m == nil || strings.HasPrefix(m[2], "=") || makeVariable.MatchString(m[2]) {
			continue
		}
		for _, name := range strings.Fields(m[1]) {
			if makeName.MatchString(name) && !seen[name] && len(targets) < 1000 {
				seen[name] = true
				targets = append(targets, name)
			}
		}
	}
	return targets
}

// firstTarget returns the first of names that the Makefile has.
func (p *project) firstTarget(names ...string) string {
	for _, n := range names {
		if slices.Contains(p.make, n) {
			return n
		}
	}
	return ""
}

// isPython reports whether the root looks like Python.
func (p *project) isPython(ctx context.Context) (bool, error) {
	for _, m := range pythonMarkers {
		if p.files[m] {
			return true, nil
		}
	}
	for _, pattern := range []string{"test_*.py", "tests/**/*.py"} {
		if ok, err := p.exists(ctx, pattern); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

var (
	mentionsPytest = pattern.New(`(?m)^\s*(?:\[(?:tool\.|tool:)?pytest|["']?pytest\b)|["']pytest\b`)
	hasRuff        = pattern.New(`(?m)^\s*\[tool\.ruff`)
	hasFlake8      = pattern.New(`(?m)^\s*\[flake8\]`)
	hasBuildSystem = pattern.New(`(?m)^\s*\[(?:build-system|project)\]`)
	hasStaticcheck = pattern.New(`(?m)^\s*(?:tool\s+)?honnef\.co/go/tools/cmd/staticcheck\s*$`)
)

// usesPytest reports whether a file of the project names pytest.
func (p *project) usesPytest(ctx context.Context) (bool, error) {
	if p.files["pytest.ini"] || p.files["conftest.py"] {
		return true, nil
	}
	for _, name := range []string{"pyproject.toml", "setup.cfg", "tox.ini", "requirements.txt", "requirements-dev.txt"} {
		if ok, err := p.contains(ctx, name, mentionsPytest); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}
