package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/ramus-dev/ramus/tasks/browser"
	"github.com/ramus-dev/ramus/tasks/environment"
	"github.com/ramus-dev/ramus/tasks/rules"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

func checkCommand() command {
	var schema, specs bool
	return command{
		name: "check", args: "FILE… | --schema",
		short: "check workflow files and the files of .ramus, without running them",
		long: `
All mistakes are shown at once, each with its line. Sub-workflows are read from
ID.yaml in the folder of the file. A file in a folder .ramus/browser is read as a
spec of a browser check, .ramus/config.yaml as the configuration of a repository, and
.ramus/rules.yaml as the rules for its commands. No server is needed. The exit status is 0 for valid, 1 for
invalid and 2 for unreadable files.

--schema prints the JSON Schema of workflow files, for editors. --schema --browser
prints that of specs.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&schema, "schema", false, "print the JSON Schema")
			fs.BoolVar(&specs, "browser", false, "read all files as specs of browser checks")
			fs.BoolVar(&e.json, "json", false, "the mistakes as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if schema {
				if err := want(args, 0, 0, ""); err != nil {
					return err
				}
				if specs {
					return e.writeJSON(browser.Schema())
				}
				return e.writeJSON(workflow.Schema())
			}
			if len(args) == 0 {
				return usage("FILE is missing")
			}
			c, err := e.config()
			if err != nil {
				return err
			}
			all := workflow.Problems{}
			var broken error
			for _, name := range args {
				problems, err := checkFile(ctx, e, name, specs, c.LLM.Kind != "")
				if err != nil {
					broken = errors.Join(broken, err)
					continue
				}
				all = append(all, problems...)
			}
			if e.json {
				if err := e.writeJSON(all); err != nil {
					return err
				}
			} else if len(all) > 0 {
				fmt.Fprintln(e.out, e.safe(all.Error()))
			}
			switch {
			case broken != nil:
				return &unreadable{broken}
			case len(all) > 0:
				return &exitStatus{code: exitFailed}
			}
			return nil
		},
	}
}

// ownPath returns the path of a file in a repository's folder .ramus, as ".ramus/browser/page.yaml". It returns "" for
// other files.
func ownPath(name string) string {
	full, err := filepath.Abs(name)
	if err != nil {
		return ""
	}
	path := filepath.ToSlash(full)
	i := strings.LastIndex(path, "/.ramus/")
	if i < 0 {
		return ""
	}
	return path[i+1:]
}

func checkFile(ctx context.Context, e *env, name string, spec, llm bool) (workflow.Problems, error) {
	text, err := readInput(e, name)
	if err != nil {
		return nil, err
	}
	var title string
	switch own := ownPath(name); {
	case spec || path.Dir(own) == ".ramus/browser":
		var s browser.Spec
		s, err = browser.Parse(name, text)
		title = s.Name
	case own == rules.Path:
		var s rules.Set
		s, err = rules.Parse(name, text)
		title = fmt.Sprintf("the list of %d rules", len(s.Rules))
	case own == environment.Path:
		_, err = environment.Parse(name, text)
		title = "the configuration"
	default:
		var w *workflow.Workflow
		if w, err = workflow.Parse(ctx, name, text, workflow.Options{Load: siblings(name), LLM: llm}); err == nil {
			title = w.ID
		}
	}
	var problems workflow.Problems
	switch {
	case errors.As(err, &problems):
		return problems, nil
	case err != nil:
		return nil, err
	}
	if !e.json {
		fmt.Fprintf(e.out, "%s: %s is valid\n", name, e.oneLine(title, 100))
	}
	return nil, nil
}

// siblings returns a function that loads sub-workflows from a file's folder. Ids are names, never paths.
func siblings(name string) func(string) ([]byte, error) {
	return func(id string) ([]byte, error) {
		if !filepath.IsLocal(id) || filepath.Base(id) != id {
			return nil, fmt.Errorf("%q is not the name of a workflow", id)
		}
		for _, suffix := range []string{".yaml", ".yml"} {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(name), id+suffix))
			if err == nil || !errors.Is(err, os.ErrNotExist) {
				return b, err
			}
		}
		return nil, fmt.Errorf("the folder of %[2]s has no %[1]s.yaml", id, filepath.Base(name))
	}
}
