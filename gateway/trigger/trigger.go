package trigger

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// Trigger starts work in a repository. It has one cause, which is one of Cron, Webhook, Issues, Checks and Push, and
// one kind of work, which is Workflow or Task.
type Trigger struct {
	Name string
	Repo string
	// Base is the branch that the work begins from. If it is empty, it is the pushed branch for a push, and the base of
	// the repository otherwise.
	Base string

	Cron    *Schedule
	Webhook *Webhook
	Issues  *Issues
	Checks  *Checks
	Push    *Push
	// When narrows the events to those that have these texts at these paths ("data.action": "created").
	When map[string]string

	// Workflow is the id or the path of a workflow in the base.
	Workflow string
	// Task is the description of a task for the engineer. The task's context has the event.
	Task  string
	Agent string // of the task; if it is empty, the engineer's
	// Input has fixed inputs of the workflow. Take has further inputs, by the path of their value in the event.
	Input, Take map[string]string
	// Limit is the most work that the trigger starts in an hour. The default is 20.
	Limit int
}

// Issues are new issues at GitHub, or issues that get a label.
type Issues struct {
	// Label is the label that starts the work when somebody adds it. If it is empty, new issues do.
	Label string
	// From lists the associations of the authors of new issues that count, as GitHub names them. The default is OWNER,
	// MEMBER and COLLABORATOR, because anybody may open an issue in a public repository.
	From []string
}

// Checks are failed runs of continuous integration at GitHub.
type Checks struct {
	Branches []string // patterns of path.Match; required
	Names    []string // of workflows and checks; if it is empty, all
}

// Push is a new tip of a branch here, by a push, a merge or a refresh. Branches that callers work on never count.
type Push struct {
	Branches []string // patterns of path.Match; required
}

// Limits of the configuration.
const (
	defaultLimit = 20
	maxTaken     = 32
	maxTaskText  = 16 << 10
	maxPath      = 200
)

var (
	validName  = pattern.New(`^[a-z0-9](?:[a-z0-9]|-[a-z0-9]){0,39}$`)
	validInput = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
)

// reserved are the names below /hooks/ that are not triggers.
var reserved = []string{"deploy"}

// Check returns an error if the trigger cannot work. It lists all mistakes.
func (t *Trigger) Check() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !validName.MatchString(t.Name) || slices.Contains(reserved, t.Name) {
		fault("its name must have lower-case letters, digits and single hyphens, at most 40, and must not be %s",
			strings.Join(reserved, " or "))
	}
	if err := gitd.CheckName(t.Repo); err != nil {
		fault("repo: %w", err)
	}
	if t.Base != "" && (gitd.CheckRef("refs/heads/"+t.Base) != nil || lookup.IsCallerBranch(t.Base)) {
		fault("base %q is no branch to begin from", t.Base)
	}
	switch n := len(t.causes()); {
	case n == 0:
		fault("it has no cause: want cron, webhook, issues, checks or push")
	case n > 1:
		fault("it has %d causes (%s): want one; a second trigger may have the other", n, strings.Join(t.causes(), ", "))
	}
	errs = append(errs, t.checkCause(), t.checkWork())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot use trigger %q: %w", t.Name, err)
	}
	return nil
}

// causes returns the kinds of the causes that are set.
func (t *Trigger) causes() []string {
	var list []string
	for _, c := range []struct {
		kind Kind
		set  bool
	}{{KindCron, t.Cron != nil}, {KindWebhook, t.Webhook != nil}, {KindIssue, t.Issues != nil},
		{KindCheck, t.Checks != nil}, {KindPush, t.Push != nil}} {
		if c.set {
			list = append(list, string(c.kind))
		}
	}
	return list
}

func (t *Trigger) checkCause() error {
	var errs []error
	if t.Webhook != nil {
		errs = append(errs, t.Webhook.check())
	}
	if t.Checks != nil {
		errs = append(errs, checkPatterns("checks.branches", t.Checks.Branches))
	}
	if t.Push != nil {
		errs = append(errs, checkPatterns("push.branches", t.Push.Branches))
	}
	for at := range t.When {
		if at == "" || len(at) > maxPath {
			errs = append(errs, fmt.Errorf("when: %.100q is no path of a value", at))
		}
	}
	return errors.Join(errs...)
}

func (t *Trigger) checkWork() error {
	var errs []error
	switch {
	case (t.Workflow == "") == (t.Task == ""):
		errs = append(errs, errors.New("want one of workflow and task"))
	case t.Task != "" && len(t.Input)+len(t.Take) > 0:
		errs = append(errs, errors.New("input and take are for workflows; the context of a task has the whole event"))
	case len(t.Task) > maxTaskText:
		errs = append(errs, fmt.Errorf("task has %d bytes, at most %d", len(t.Task), maxTaskText))
	case t.Agent != "" && t.Task == "":
		errs = append(errs, errors.New("agent is for a task"))
	}
	if n := len(t.Input) + len(t.Take); n > maxTaken {
		errs = append(errs, fmt.Errorf("it has %d inputs, at most %d", n, maxTaken))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Input)) {
		if !validInput.MatchString(name) {
			errs = append(errs, fmt.Errorf("input: %.100q cannot be the name of an input", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Take)) {
		_, twice := t.Input[name]
		if at := t.Take[name]; !validInput.MatchString(name) || twice || at == "" || len(at) > maxPath {
			errs = append(errs, fmt.Errorf("take: %.100q: %.100q must name one input, and the path of its value", name, at))
		}
	}
	return errors.Join(errs...)
}

// checkPatterns checks a list of patterns of branches.
func checkPatterns(key string, list []string) error {
	if len(list) == 0 {
		return fmt.Errorf("%s names no branch", key)
	}
	for _, p := range list {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("%s: %q is no pattern of branches", key, p)
		}
	}
	return nil
}

// matches reports whether a branch matches one of the patterns. A branch that callers work on never does, because
// work that starts itself again would never end.
func matches(patterns []string, branch string) bool {
	return branch != "" && !lookup.IsCallerBranch(branch) && slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, branch)
		return ok && err == nil
	})
}

// Cause describes the cause in a few words, for lists.
func (t *Trigger) Cause() string {
	switch {
	case t.Cron != nil:
		return "cron " + t.Cron.String()
	case t.Webhook != nil:
		return "webhook " + string(t.Webhook.Scheme)
	case t.Issues != nil && t.Issues.Label != "":
		return "label " + t.Issues.Label
	case t.Issues != nil:
		return "issues"
	case t.Checks != nil:
		return "failed checks of " + strings.Join(t.Checks.Branches, ", ")
	case t.Push != nil:
		return "push to " + strings.Join(t.Push.Branches, ", ")
	}
	return ""
}

// Work describes the work in a few words, for lists.
func (t *Trigger) Work() string {
	if t.Workflow != "" {
		return "workflow " + t.Workflow
	}
	first, _, _ := strings.Cut(t.Task, "\n")
	return "task " + first
}

// workflowFile returns the path of the workflow in the base.
func (t *Trigger) workflowFile() string {
	if strings.ContainsAny(t.Workflow, "/.") {
		return t.Workflow
	}
	return executor.WorkflowDir + "/" + t.Workflow + ".yaml"
}

func (t *Trigger) limit() int {
	if t.Limit > 0 {
		return t.Limit
	}
	return defaultLimit
}
