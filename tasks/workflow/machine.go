package workflow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/ramus-dev/ramus/tasks/library"
	"github.com/ramus-dev/ramus/tasks/service"
)

// Machine is the state of one run of a workflow. It is not safe for concurrent use; one goroutine owns it. The same
// calls in the same order give the same steps.
//
// The owner repeats three actions until [Machine.Done]. It calls [Machine.Next] for the steps that became ready,
// performs them (steps of different lines may run in parallel), and passes each result to [Machine.Finish]. The names
// of steps depend on their positions in the workflow and not on time. So the order in which the lines of a fan-out
// finish changes no name and no state.
type Machine struct {
	w       *Workflow
	input   map[string]any
	context map[string]any

	main    *line
	work    []arrival           // nodes that a line has reached, still to be visited
	ready   []Step              // made, and not returned by Next yet
	running map[string]*running // made, and not finished yet, whether Next has returned them or not
	issued  []string            // returned by Next and not finished yet, in that order
	steps   int
	visits  map[string]int // how often each fan-out was entered
	outcome *Outcome
}

// line is one path through the graph, the main line or one line of a fan-out.
type line struct {
	name   string // "" or "judge[3]"
	suffix string // "" or "[3]"
	index  int
	// state belongs to this line alone. Its values are never changed in place.
	state  map[string]any
	sizes  map[string]int // of the values, in bytes of JSON
	made   map[string]any // the outputs of this line
	visits map[string]int // by node
	issues map[string]int // steps made by node, including retries
	group  *group         // nil for the main line
	// failed is the last failure that a transition of this line handled. It becomes the failure of the run if the path
	// ends in $failed.
	failed Outcome
}

// group is one fan-out whose lines have not all arrived.
type group struct {
	section *section
	name    string // "judge", "judge#2"
	lines   []*line
	left    int // number of lines that have not arrived
}

// arrival is a line at a node.
type arrival struct {
	line *line
	node *graphNode
}

// running is a step without a result.
type running struct {
	step    Step
	line    *line // nil for a join
	node    *graphNode
	group   *group // only for fork and join
	retries int    // retries left
	cells   *cells // of a node with a matrix
}

// ErrNoStep means that a result belongs to no running step.
var ErrNoStep = errors.New("no such step is running")

// NewMachine starts a run. context is `context` in templates (run_id, run, caller, branch, base_branch, base_commit,
// repo_id, asker). input is checked against the workflow's declared inputs, and an [InputError] names all mistakes.
func NewMachine(w *Workflow, input, context map[string]any) (*Machine, error) {
	m := &Machine{w: w, running: map[string]*running{}, visits: map[string]int{}, main: newLine(nil)}
	var err error
	if m.input, err = w.resolveInput(input); err != nil {
		return nil, err
	}
	if m.context, err = normalObject(context); err != nil {
		return nil, fmt.Errorf("cannot use the context of the run: %w", err)
	}
	m.enter(m.main, w.start)
	m.settle()
	return m, nil
}

func newLine(state map[string]any) *line {
	l := &line{state: maps.Clone(state), made: map[string]any{}, visits: map[string]int{}, issues: map[string]int{},
		sizes: map[string]int{}}
	if l.state == nil {
		l.state = map[string]any{}
	}
	return l
}

// Next returns the steps that became ready since the last call, in a fixed order. Lines of a fan-out are in the order
// of their numbers. The result is empty while all steps wait for results, and after the run has ended.
func (m *Machine) Next() ([]Step, error) {
	steps := m.ready
	m.ready = nil
	for _, s := range steps {
		m.issued = append(m.issued, s.ID)
	}
	return steps, nil
}

// Running returns the steps without a result, in the order in which Next returned them.
func (m *Machine) Running() []Step {
	list := make([]Step, len(m.issued))
	for i, id := range m.issued {
		list[i] = m.running[id].step
	}
	return list
}

// Done reports whether the run has ended, so that no step is ready or running. After a failure no further steps start,
// but running steps still have to finish.
func (m *Machine) Done() (Outcome, bool) {
	if len(m.running) > 0 || m.outcome == nil {
		return Outcome{}, false
	}
	return *m.outcome, true
}

// State returns a deep copy of the state that output mappings have made.
func (m *Machine) State() map[string]any {
	copied, _ := normalObject(m.main.state) // the state came from JSON, so this cannot fail
	return copied
}

// Finish takes a step's result and follows its transitions. An error means that the call was wrong (ErrNoStep, or a
// result that is not JSON) and had no effect. Failures of the run are in its Outcome.
func (m *Machine) Finish(id string, r StepResult) error {
	at := slices.Index(m.issued, id)
	if at < 0 {
		return fmt.Errorf("cannot finish the step %q: %w", id, ErrNoStep)
	}
	output, err := normalObject(r.Output)
	if err != nil {
		return fmt.Errorf("cannot keep the result of the step %q: %w", id, err)
	}
	r.Output = output
	run := m.running[id]
	m.issued = slices.Delete(m.issued, at, at+1)
	delete(m.running, id)
	if m.outcome != nil {
		return nil // the run has failed already and only waited for this step
	}
	switch {
	case run.step.Kind == KindFork:
		if r.OK {
			m.enter(run.line, run.group.section.entry)
		} else {
			m.fail(id, "cannot give the line a branch of its own"+because(r))
		}
	case run.step.Kind == KindJoin:
		if r.OK {
			m.together(run.group)
		} else {
			m.fail(id, "cannot merge the branches of the lines"+because(r))
		}
	case !r.OK && run.retries > 0:
		m.issue(run.line, run.node, run.retries-1, run.cells)
	case run.cells != nil:
		m.nextCell(run, id, r)
	default:
		m.conclude(run.line, run.node, id, r)
	}
	m.settle()
	return nil
}

// because returns the failure in a result as the end of a sentence.
func because(r StepResult) string {
	if r.Error != "" {
		return ": " + r.Error
	}
	if conflicts, ok := r.Output["conflicts"].([]any); ok && len(conflicts) > 0 {
		var names []string
		for _, c := range conflicts[:min(len(conflicts), 20)] {
			names = append(names, plain(c))
		}
		return ": conflicts in " + strings.Join(names, ", ")
	}
	return ""
}

// fail ends the run. Steps that Next has not returned yet never happen.
func (m *Machine) fail(step, why string) {
	m.end(Outcome{Failed: step, Error: why})
}

func (m *Machine) end(o Outcome) {
	if m.outcome != nil {
		return
	}
	m.outcome = &o
	for _, s := range m.ready {
		delete(m.running, s.ID)
	}
	m.ready, m.work = nil, nil
}

// enter moves a line to a node. settle visits it.
func (m *Machine) enter(l *line, n *graphNode) {
	m.work = append(m.work, arrival{l, n})
}

// settle follows the lines until each waits for a step or has ended. It is a loop and not a recursion, because skipped
// nodes may form a circle.
func (m *Machine) settle() {
	for len(m.work) > 0 && m.outcome == nil {
		a := m.work[0]
		m.work = m.work[1:]
		m.visit(a.line, a.node)
	}
}

// visit makes the step of a node, or skips the node.
func (m *Machine) visit(l *line, n *graphNode) {
	l.visits[n.ID]++
	if l.visits[n.ID] > n.maxVisits {
		m.fail(n.ID+l.suffix, fmt.Sprintf("%s was visited %d times; a loop does not end (max_visits)", n.ID, n.maxVisits))
		return
	}
	if n.when != nil {
		wanted, err := n.when.holds(m.scope(l), nil)
		if err != nil {
			m.fail(n.ID+l.suffix, "cannot decide whether to run "+n.ID+": "+err.Error())
			return
		}
		if !wanted {
			if m.count(n.ID + l.suffix) {
				m.follow(l, n, n.ID+l.suffix, StepResult{OK: true, Output: map[string]any{"skipped": true}})
			}
			return
		}
	}
	var k *cells
	if n.matrix != nil {
		k = &cells{}
	}
	m.issue(l, n, n.retries, k)
}

// nextCell takes the result of a cell, and makes the step of the next one or concludes the node.
func (m *Machine) nextCell(run *running, id string, r StepResult) {
	if run.cells.ended(run.node.matrix, id, r) {
		m.issue(run.line, run.node, run.node.retries, run.cells)
		return
	}
	m.conclude(run.line, run.node, cmp.Or(run.cells.failed, id), run.cells.result(run.node.matrix))
}

// count counts a step against the bound of the run.
func (m *Machine) count(id string) bool {
	if m.steps++; m.steps > maxSteps {
		m.fail(id, fmt.Sprintf("the run has taken %d steps; a loop does not end", maxSteps))
		return false
	}
	return true
}

// issue makes a step ready. If the step cannot be made, because a slot has no value, the step counts as failed, and its
// transitions apply.
func (m *Machine) issue(l *line, n *graphNode, retries int, k *cells) {
	name, scope := n.ID, m.scope(l)
	var c cell
	if k != nil {
		c = n.matrix.cells[k.next]
		name += "(" + c.name + ")"
		scope.matrix = c.values
	}
	l.issues[name]++
	id := name + l.suffix
	if k := l.issues[name]; k > 1 {
		id = fmt.Sprintf("%s#%d", id, k)
	}
	if !m.count(id) {
		return
	}
	s, err := n.step(scope)
	if err != nil {
		r := StepResult{Error: err.Error()}
		if k != nil {
			m.nextCell(&running{line: l, node: n, cells: k}, id, r)
			return
		}
		m.conclude(l, n, id, r)
		return
	}
	s.Cell = c.name
	s.ID, s.Line, s.Branch = id, l.name, l.group != nil && l.group.section.out.branch
	m.running[id] = &running{step: s, line: l, node: n, retries: retries, cells: k}
	m.ready = append(m.ready, s)
}

func (m *Machine) scope(l *line) scope {
	return scope{state: l.state, input: m.input, context: m.context}
}

// step returns the step of a node.
func (n *graphNode) step(s scope) (Step, error) {
	step := Step{Node: n.ID, Kind: n.Kind, Timeout: n.timeout, Background: n.background, Pure: n.pure, Services: n.services}
	var err error
	if n.image != nil {
		if step.Image, err = n.image.expand(s); err == nil && !service.ValidImage(step.Image) {
			err = fmt.Errorf("%q cannot be the name of an image", step.Image)
		}
		if err != nil {
			return Step{}, fmt.Errorf("cannot prepare %s: %w", n.ID, err)
		}
	}
	switch n.Kind {
	case KindShell:
		step.Command, err = n.command.command(s)
	case KindTask:
		step.Task = n.task
		step.Params, err = n.taskParams(s)
	case KindLLM:
		call := &LLMCall{MaxTokens: n.llm.maxTokens, Schema: n.llm.schema}
		for _, part := range []struct {
			from *template
			to   *string
		}{{n.llm.model, &call.Model}, {n.llm.system, &call.System}, {n.llm.prompt, &call.Prompt}} {
			if part.from != nil && err == nil {
				*part.to, err = part.from.expand(s)
			}
		}
		step.LLM = call
	case KindHuman:
		gate := &Gate{Allowed: slices.Clone(n.gate.allowed)}
		gate.Message, err = n.gate.message.expand(s)
		step.Human = gate
	case KindWorkflow:
		sub := &SubCall{Workflow: n.workflow, InheritBranch: n.inherit}
		if n.params != nil {
			sub.Input, err = n.params.object(s)
		}
		step.Sub = sub
	}
	if err != nil {
		return Step{}, fmt.Errorf("cannot prepare %s: %w", n.ID, err)
	}
	return step, nil
}

// taskParams expands a task's parameters and checks them against its schema, because the slots have values now.
func (n *graphNode) taskParams(s scope) (json.RawMessage, error) {
	params, err := n.params.object(s)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	if n.params == nil || !n.params.slotted {
		return raw, nil
	}
	if len(raw) > maxExpanded {
		return nil, fmt.Errorf("the parameters are longer than %d bytes", maxExpanded)
	}
	t, ok := library.Lookup(n.task)
	var schema jsonschema.Schema
	if ok && len(t.Schema) > 0 && json.Unmarshal(t.Schema, &schema) == nil {
		if err := valid(&schema, normal(params)); err != nil {
			return nil, fmt.Errorf("the parameters do not fit %s: %w", n.task, err)
		}
	}
	return raw, nil
}

// conclude maps a step's output into the state and follows the transitions.
func (m *Machine) conclude(l *line, n *graphNode, id string, r StepResult) {
	if err := m.mapOutput(l, n, r); err != nil {
		// Some outputs of a failed step may be missing, which is no further failure. A successful step without an
		// output that later steps need has failed.
		if r.OK {
			r.OK, r.Error = false, err.Error()
		}
	}
	m.follow(l, n, id, r)
}

// visible returns the variables of result in expressions.
func (r StepResult) visible() map[string]any {
	v := map[string]any{"ok": r.OK, "error": r.Error}
	maps.Copy(v, r.Output)
	return v
}

// mapOutput sets the node's output keys. An expression without a value sets its key to null. mapOutput returns the
// first error.
func (m *Machine) mapOutput(l *line, n *graphNode, r StepResult) error {
	if len(n.outputs) == 0 {
		return nil
	}
	result := r.visible()
	scope := m.scope(l)
	values := make([]any, len(n.outputs))
	sizes := make([]int, len(n.outputs))
	var first error
	for i, o := range n.outputs {
		v, err := o.expr.eval(scope, result)
		if err == nil {
			v, sizes[i], err = throughJSON(v)
		}
		if err == nil && sizes[i] > maxStateValue {
			v, err = nil, fmt.Errorf("the value has %d bytes; a key of the state may have %d (keep large things in files)", sizes[i], maxStateValue)
		}
		if err != nil {
			sizes[i] = 0
			if first == nil {
				first = fmt.Errorf("cannot set the output %s of %s: %w", o.key, n.ID, err)
			}
		}
		values[i] = v
	}
	// The keys are set at the end, because all expressions of a mapping see the state from before.
	for i, o := range n.outputs {
		l.set(o.key, values[i], sizes[i])
		l.made[o.key] = values[i]
	}
	total := 0
	for _, size := range l.sizes {
		total += size
	}
	if total > maxState {
		m.fail(n.ID+l.suffix, fmt.Sprintf("the state has %d bytes; it may have %d (keep large things in files)",
			total, maxState))
	}
	return first
}

func (l *line) set(key string, v any, size int) {
	l.state[key] = v
	l.sizes[key] = size
}

// follow takes the first transition that holds, in written order.
func (m *Machine) follow(l *line, n *graphNode, id string, r StepResult) {
	if m.outcome != nil {
		return
	}
	var result map[string]any
	for _, t := range n.next {
		if t.on == "success" && !r.OK || t.on == "failure" && r.OK {
			continue
		}
		if t.when != nil {
			if result == nil {
				result = r.visible()
			}
			holds, err := t.when.holds(m.scope(l), result)
			if err != nil && !r.OK {
				// A step that failed early may lack the values of the condition. That must not hide its failure.
				continue
			}
			if err != nil {
				m.fail(id, fmt.Sprintf("cannot decide whether to continue with %s: %v", t.to, err))
				return
			}
			if !holds {
				continue
			}
		}
		if !r.OK {
			l.failed = Outcome{Failed: id, Error: failure(n, r)}
		}
		m.followTransition(l, t, id, r)
		return
	}
	if !r.OK {
		m.fail(id, failure(n, r))
		return
	}
	m.finished(l)
}

// failure returns a description of a step's failure.
func failure(n *graphNode, r StepResult) string {
	switch {
	case r.Error != "":
		return r.Error
	case r.Output["timed_out"] == true:
		return n.ID + " timed out"
	case n.Kind == KindHuman:
		why := n.ID + " was rejected"
		if by, ok := r.Output["by"].(string); ok && by != "" {
			why += " by " + by
		}
		if comment, ok := r.Output["comment"].(string); ok && comment != "" {
			why += ": " + comment
		}
		return why
	case n.Kind == KindWorkflow:
		return "the sub-workflow " + n.workflow + " failed"
	}
	if code, ok := r.Output["exit_code"].(int64); ok && code != 0 {
		return fmt.Sprintf("%s ended with exit code %d", n.ID, code)
	}
	return n.ID + " failed"
}

// followTransition follows a transition.
func (m *Machine) followTransition(l *line, t *transition, id string, r StepResult) {
	switch {
	case t.to == endFailed:
		if l.failed.Failed != "" {
			m.end(l.failed)
			return
		}
		m.fail(id, "the workflow leads from here to "+endFailed)
	case t.to == endComplete, t.fanIn:
		m.finished(l)
	case t.fanOut != nil:
		m.spread(l, t, id, r)
	default:
		m.enter(l, m.w.byID[t.to])
	}
}

// finished ends a line. The main line ends the run, and the last line of a fan-out ends the fan-out.
func (m *Machine) finished(l *line) {
	g := l.group
	if g == nil {
		m.end(Outcome{OK: true})
		return
	}
	if g.left--; g.left > 0 {
		return
	}
	if !g.section.out.branch {
		m.together(g)
		return
	}
	id := g.name + "/join"
	if !m.count(id) {
		return
	}
	s := Step{ID: id, Node: g.section.entry.ID, Kind: KindJoin}
	for _, l := range g.lines {
		s.Lines = append(s.Lines, l.name)
	}
	m.running[id] = &running{step: s, group: g}
	m.ready = append(m.ready, s)
}
