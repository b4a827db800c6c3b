package pushed

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
)

// Bounds of the options of a push.
const (
	maxOptions = 100
	maxPrompt  = 64 << 10 // bytes
	maxName    = 200      // bytes of a name or a path
)

// testTask is the task that the option "test" means.
const testTask = "lib_run_tests"

// Ask is the work that the options of a push ask for.
type Ask struct {
	File   string         // of a workflow, in the branch
	Input  map[string]any // of the workflow
	Agent  string         // name; empty means the only one
	Prompt string         // for the agent
	Task   string
	Detach bool // the push does not wait for the end
	// Ignored are the options that mean nothing here.
	Ignored []string
}

// None reports whether the options ask for nothing.
func (a Ask) None() bool { return a.File == "" && a.Prompt == "" && a.Task == "" }

// Parse reads the options of a push:
//
//	run=FILE          a workflow of the branch
//	param.K=V         an input of it as text; param.K:=JSON as any value
//	agent=PROMPT      an agent with a prompt; agent.NAME=PROMPT if there are several
//	test, task=NAME   a task of the library
//	detach            start the work and end the push
//
// Returns [record.ErrInvalid] for an option of these that is not well-formed, and if the work is not unique.
func Parse(options []string) (Ask, error) {
	var a Ask
	if len(options) > maxOptions {
		return a, fmt.Errorf("%w options: %d, at most %d are read", record.ErrInvalid, len(options), maxOptions)
	}
	work := 0
	for _, o := range options {
		key, value, given := strings.Cut(o, "=")
		kind, name, named := strings.Cut(key, ".")
		switch {
		case key == "run" && given:
			a.File = value
		case kind == "agent" && given:
			a.Agent, a.Prompt = name, value
		case key == "task" && given:
			a.Task = value
		case o == "test":
			a.Task = testTask
		case kind == "param" && named && given:
			if err := a.addInput(name, value); err != nil {
				return a, err
			}
			continue
		case o == "detach":
			a.Detach = true
			continue
		default:
			a.Ignored = append(a.Ignored, o)
			continue
		}
		work++
		if value == "" && o != "test" || named && name == "" {
			return a, fmt.Errorf("%w option %.80q: the value is missing", record.ErrInvalid, o)
		}
	}
	return a, a.check(work)
}

// byName returns the work that the name of a ref below [gitd.AskRefs] means: "test", or a workflow without its ending.
// Options that ask for work go before.
func (a Ask) byName(name string) (Ask, error) {
	switch {
	case !a.None():
	case name == "test":
		a.Task = testTask
	default:
		a.File = name
		if path.Ext(name) == "" {
			a.File += ".yaml"
		}
	}
	return a, a.check(1)
}

// addInput adds an input of the workflow. A name that ends with ":" has a value of JSON.
func (a *Ask) addInput(name, value string) error {
	var v any = value
	if key, isJSON := strings.CutSuffix(name, ":"); isJSON {
		name = key
		if err := json.Unmarshal([]byte(value), &v); err != nil {
			return fmt.Errorf("%w option: the value of param.%.80s is not JSON: %w", record.ErrInvalid, name, err)
		}
	}
	if name == "" {
		return fmt.Errorf("%w option: param.K=V has no name", record.ErrInvalid)
	}
	if a.Input == nil {
		a.Input = map[string]any{}
	}
	a.Input[name] = v
	return nil
}

// check returns an error if the options do not fit together. work is the number of those that ask for work.
func (a Ask) check(work int) error {
	switch {
	case work > 1:
		return fmt.Errorf("%w options: run, agent, test and task are given %d times, and one is done", record.ErrInvalid, work)
	case a.Input != nil && a.File == "":
		return fmt.Errorf("%w options: param needs run, the workflow", record.ErrInvalid)
	case a.Detach && work == 0:
		return fmt.Errorf("%w options: detach needs run, agent, test or task", record.ErrInvalid)
	case len(a.Prompt) > maxPrompt:
		return fmt.Errorf("%w option: the prompt has %d bytes, at most %d", record.ErrInvalid, len(a.Prompt), maxPrompt)
	case slices.ContainsFunc([]string{a.File, a.Agent, a.Task}, func(s string) bool { return len(s) > maxName }):
		return fmt.Errorf("%w option: a name has at most %d bytes", record.ErrInvalid, maxName)
	}
	return nil
}
