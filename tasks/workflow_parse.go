package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"github.com/google/jsonschema-go/jsonschema"
)

// Bounds on what a workflow may say.
const (
	maxNodes       = 1_000
	maxTransitions = 5_000
	maxFanOut      = 256 // of one fan-out
	maxRetries     = 100
	maxTimeout     = 7 * 24 * time.Hour
	defaultVisits  = 100
	maxSteps       = 10_000 // of one run
	maxNesting     = 16     // sub-workflows inside sub-workflows
	maxNeeds       = 100    // different sub-workflows below one workflow
)

// The keys of each mapping in a workflow file. The JSON Schema and the
// reference list the same; tests hold them together.
var (
	workflowKeys   = []string{"id", "description", "repo", "input", "start", "nodes", "transitions"}
	repoKeys       = []string{"id", "base_branch", "merge_on_success", "merge_strategy"}
	inputKeys      = []string{"type", "required", "default", "description"}
	nodeKeys       = []string{"id", "description", "kind", "operation", "implementation", "run", "task", "params", "workflow", "inherit_branch", "input", "llm", "human", "execution", "output", "when", "depends_on", "max_visits"}
	shellKeys      = []string{"command_template", "repo_id", "branch"}
	taskKeys       = []string{"task", "params"}
	subKeys        = []string{"workflow_def_id", "inherit_branch", "input"}
	llmKeys        = []string{"model", "system", "prompt", "max_tokens", "schema"}
	humanKeys      = []string{"message", "allowed"}
	executionKeys  = []string{"timeout_ms", "retries", "background"}
	transitionKeys = []string{"from", "to", "on", "when", "fan_out", "fan_in"}
	fanOutKeys     = []string{"spawn_count", "over", "branch", "as"}
	fanInKeys      = []string{"into"}

	kinds       = []string{"shell", "task", "llm", "human", "workflow"}
	inputTypes  = []string{"string", "number", "integer", "boolean", "list", "object", "any"}
	strategies  = []string{"rebase", "merge", "squash", "ff"}
	outcomes    = []string{"success", "failure", "always"}
	contextKeys = []string{"run_id", "run", "caller", "branch", "base_branch", "base_commit", "repo_id", "asker"}
	// resultKeys are what conditions see as result.KEY behind a node of a kind
	// whose results have a fixed shape.
	resultKeys = map[Kind][]string{
		KindShell:    {"stdout", "stderr", "exit_code", "timed_out", "truncated", "duration_ms"},
		KindLLM:      {"text", "json"},
		KindHuman:    {"approved", "by", "comment"},
		KindWorkflow: {"status", "state"},
	}
)

var (
	idPattern = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	keyName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
)

// Parse reads and checks a workflow file. All mistakes are reported at once:
// the error is then of type Problems.
func Parse(name string, data []byte, o Options) (*Workflow, error) {
	return parse(name, data, &loader{Options: o, known: map[string]*loaded{}})
}

func parse(name string, data []byte, l *loader) (*Workflow, error) {
	d, root := parseYAML(name, data)
	p := &parsing{document: d, loader: l, Workflow: &Workflow{file: name, source: string(data), byID: map[string]*node{}}}
	if root != nil {
		p.workflow(root)
	}
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	return p.Workflow, nil
}

// parsing is a workflow on its way from YAML to a checked graph.
type parsing struct {
	*document
	*loader
	*Workflow

	transitions []*transition
	unordered   bool // no order of the nodes could be found; that has been said
	// uses are the names that templates and conditions read, checked once all
	// nodes are known.
	uses []use
	subs []subUse
}

// use is one reading of state, input or context.
type use struct {
	root, name   string // root "": state, then input
	node         *node  // where it stands; nil in transitions
	line, column int
}

// subUse is a call of a sub-workflow.
type subUse struct {
	node  *node
	at    *value // its id
	input *value // nil: none given
}

// object checks that v is a mapping with no keys but the known ones.
func (p *parsing) object(v *value, what string, known []string) bool {
	if v == nil {
		return false
	}
	if v.kind != mapValue {
		p.at(v, "%s must be a mapping, not %s", what, kindOf(v))
		return false
	}
	for _, f := range v.fields {
		if !slices.Contains(known, f.key) {
			hint := suggest(f.key, known)
			if hint == "" {
				hint = "; it has " + strings.Join(known, ", ")
			}
			p.problem(f.line, f.column, "%s has no key %q%s", what, f.key, hint)
		}
	}
	return true
}

// text is a value that must be text; "" when it is not there or is something else.
func (p *parsing) text(v *value, what string) string {
	switch {
	case v == nil:
		return ""
	case v.kind != stringValue:
		p.at(v, "%s must be text, not %s", what, kindOf(v))
		return ""
	}
	return v.text
}

func (p *parsing) flag(v *value, what string, otherwise bool) bool {
	if v == nil {
		return otherwise
	}
	b, ok := v.any.(bool)
	if !ok {
		p.at(v, "%s must be true or false, not %s", what, kindOf(v))
	}
	return b
}

func (p *parsing) integer(v *value, what string, least, most, otherwise int) int {
	if v == nil {
		return otherwise
	}
	i, ok := v.any.(int64)
	switch {
	case !ok:
		p.at(v, "%s must be a whole number, not %s", what, kindOf(v))
	case i < int64(least):
		p.at(v, "%s must be at least %d", what, least)
	case i > int64(most):
		p.at(v, "%s must be at most %d", what, most)
	default:
		return int(i)
	}
	return otherwise
}

func (p *parsing) choice(v *value, what string, from []string, otherwise string) string {
	s := p.text(v, what)
	if v == nil || s == "" {
		return otherwise
	}
	if !slices.Contains(from, s) {
		p.at(v, "%s must be one of %s, not %q%s", what, strings.Join(from, ", "), s, suggest(s, from))
		return otherwise
	}
	return s
}

func (p *parsing) identifier(v *value, what string) string {
	s := p.text(v, what)
	if v != nil && v.kind == stringValue && !idPattern.MatchString(s) {
		p.at(v, "%s must be 1 to 64 of a-z, 0-9, _ and -, not %q", what, s)
		return ""
	}
	return s
}

func (p *parsing) list(v *value, what string) []*value {
	if v == nil {
		return nil
	}
	if v.kind != listValue {
		p.at(v, "%s must be a list, not %s", what, kindOf(v))
		return nil
	}
	return v.items
}

// template reads a text with slots.
func (p *parsing) template(v *value, what string, n *node) *template {
	if v == nil {
		return nil
	}
	if v.kind != stringValue {
		p.at(v, "%s must be text, not %s", what, kindOf(v))
		return nil
	}
	t, wrong := parseTemplate(v.text)
	for _, m := range wrong {
		p.within(v, m.offset, "%s", m.message)
	}
	for _, s := range t.slots() {
		line, column := p.place(v, s.offset)
		u := use{node: n, line: line, column: column, name: s.path[0]}
		if root := s.path[0]; root == "state" || root == "input" || root == "context" {
			if len(s.path) < 2 {
				continue // the whole of it
			}
			u.root, u.name = root, s.path[1]
		}
		p.uses = append(p.uses, u)
	}
	return t
}

// command reads a command template.
func (p *parsing) command(v *value, what string, n *node) *template {
	t := p.template(v, what, n)
	if t == nil {
		return nil
	}
	if strings.TrimSpace(v.text) == "" {
		p.at(v, "%s is empty", what)
	}
	if len(v.text) > maxCommand {
		p.at(v, "%s is longer than %d bytes, more than a shell can take", what, maxCommand)
		return nil
	}
	for _, m := range checkCommand(t) {
		p.within(v, m.offset, "%s", m.message)
	}
	return t
}

// param reads a value whose texts may be templates.
func (p *parsing) param(v *value, what string, n *node) *param {
	q := &param{}
	switch v.kind {
	case stringValue:
		q.text = p.template(v, what, n)
		if q.text != nil {
			q.slotted = len(q.text.slots()) > 0
		}
	case listValue:
		q.list = []*param{}
		for _, item := range v.items {
			inner := p.param(item, what, n)
			q.slotted = q.slotted || inner.slotted
			q.list = append(q.list, inner)
		}
	case mapValue:
		q.fields = map[string]*param{}
		for _, f := range v.fields {
			inner := p.param(f.value, f.key, n)
			q.slotted = q.slotted || inner.slotted
			q.fields[f.key] = inner
		}
	default:
		q.constant = v.any
	}
	return q
}

// condition reads a CEL expression.
func (p *parsing) condition(v *value, what string, want *cel.Type, n *node, after, path bool) *condition {
	if v == nil {
		return nil
	}
	source := v.text
	switch v.kind {
	case boolValue, numberValue: // when: true
	case stringValue:
	default:
		p.at(v, "%s must be a CEL expression, not %s", what, kindOf(v))
		return nil
	}
	c, wrong := compileCondition(source, want, after, path)
	for _, m := range wrong {
		p.within(v, offsetOf(source, m.line, m.column), "%s", m.message)
	}
	if c == nil {
		return nil
	}
	for _, r := range c.refs {
		line, column := p.place(v, offsetOf(source, r.line, r.column))
		p.uses = append(p.uses, use{root: r.root, name: r.name, node: n, line: line, column: column})
	}
	return c
}

// offsetOf is the byte offset of a line (from 1) and a column (from 0, in characters).
func offsetOf(s string, line, column int) int {
	offset := 0
	for ; line > 1; line-- {
		i := strings.IndexByte(s[offset:], '\n')
		if i < 0 {
			break
		}
		offset += i + 1
	}
	for i := range s[offset:] {
		if column == 0 {
			return offset + i
		}
		column--
	}
	return len(s)
}

// workflow reads the whole file.
func (p *parsing) workflow(root *value) {
	if !p.object(root, "a workflow", workflowKeys) {
		return
	}
	if v := root.get("id"); v != nil {
		p.ID = p.identifier(v, "id")
	} else {
		p.at(root, "a workflow needs an id")
	}
	p.description = p.text(root.get("description"), "description")
	p.Repo.MergeStrategy = "rebase"
	p.repo(root.get("repo"))
	p.inputs = p.declared(root.get("input"))

	list := root.get("nodes")
	items := p.list(list, "nodes")
	switch {
	case list == nil:
		p.at(root, "a workflow needs nodes")
	case len(items) == 0 && list.kind == listValue:
		p.at(list, "a workflow needs at least one node")
	case len(items) > maxNodes:
		p.at(list, "a workflow may have %d nodes, this one has %d; split it into sub-workflows", maxNodes, len(items))
		return
	}
	for _, item := range items {
		p.node(item)
	}
	items = p.list(root.get("transitions"), "transitions")
	if len(items) > maxTransitions {
		p.at(root.get("transitions"), "a workflow may have %d transitions, this one has %d", maxTransitions, len(items))
		return
	}
	for _, item := range items {
		p.transition(item)
	}
	p.check(root)
}

func (p *parsing) repo(v *value) {
	if !p.object(v, "repo", repoKeys) {
		return
	}
	p.Repo = RepoSpec{
		ID:             p.text(v.get("id"), "repo.id"),
		BaseBranch:     p.text(v.get("base_branch"), "repo.base_branch"),
		MergeOnSuccess: p.flag(v.get("merge_on_success"), "merge_on_success", false),
		MergeStrategy:  p.choice(v.get("merge_strategy"), "merge_strategy", strategies, "rebase"),
	}
	if b := v.get("base_branch"); b != nil && b.kind == stringValue && !branchName(b.text) {
		p.at(b, "%q cannot be the name of a branch", b.text)
	}
	if id := v.get("id"); id != nil && id.kind == stringValue && (id.text == "" || strings.HasPrefix(id.text, "-") || strings.ContainsAny(id.text, " \t\n\\:*?[~^")) {
		p.at(id, "%q cannot be the name of a repository", id.text)
	}
}

// branchName tells whether git would take a name for a branch (git check-ref-format --branch).
func branchName(s string) bool {
	if s == "" || s == "@" || strings.HasPrefix(s, "-") || strings.HasPrefix(s, "refs/") || strings.HasSuffix(s, ".") ||
		strings.Contains(s, "..") || strings.Contains(s, "@{") || strings.ContainsAny(s, " ~^:?*[\\\x7f") ||
		strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
		return false
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

// declared reads the workflow's inputs.
func (p *parsing) declared(v *value) []Input {
	if v == nil {
		return nil
	}
	if v.kind != mapValue {
		p.at(v, "input must be a mapping of names to {type, required, default, description}, not %s", kindOf(v))
		return nil
	}
	var inputs []Input
	for _, f := range v.fields {
		in := Input{Name: f.key, Type: "string"}
		if !keyName.MatchString(f.key) {
			p.problem(f.line, f.column, "the name of an input must be letters, digits and _, not %q", f.key)
		}
		if f.value.kind != nullValue && p.object(f.value, "an input", inputKeys) {
			in.Type = p.choice(f.value.get("type"), "type", inputTypes, "string")
			in.Required = p.flag(f.value.get("required"), "required", false)
			in.Description = p.text(f.value.get("description"), "description")
			if def := f.value.get("default"); def != nil {
				if in.Required {
					p.at(def, "an input that is required has no use for a default")
				}
				var err error
				if in.Default, err = in.accept(normal(def.data())); err != nil {
					p.at(def, "the default does not fit: %v", err)
				}
			}
		}
		inputs = append(inputs, in)
	}
	return inputs
}

// node reads one node.
func (p *parsing) node(v *value) {
	if !p.object(v, "a node", nodeKeys) {
		return
	}
	n := &node{Node: Node{Line: v.line}, column: v.column, maxVisits: defaultVisits}
	if id := v.get("id"); id == nil {
		p.at(v, "a node needs an id")
	} else if n.ID = p.identifier(id, "a node's id"); n.ID != "" {
		n.Line, n.column = id.line, id.column
		if first, ok := p.byID[n.ID]; ok {
			p.at(id, "there are two nodes with the id %q, the first in line %d", n.ID, first.Line)
		} else {
			p.byID[n.ID] = n
		}
	}
	p.nodes = append(p.nodes, n)
	n.Description = p.text(v.get("description"), "description")
	n.Kind = p.kind(v)
	impl := v.get("implementation")
	switch n.Kind {
	case KindShell:
		p.shell(n, v, impl)
	case KindTask:
		p.task(n, v, impl)
	case KindLLM:
		p.llm(n, v, impl)
	case KindHuman:
		p.human(n, v, impl)
	case KindWorkflow:
		p.sub(n, v, impl)
	}
	p.misplaced(n, v)
	p.execution(n, v.get("execution"))
	n.when = p.condition(v.get("when"), "when", cel.BoolType, n, false, false)
	n.maxVisits = p.integer(v.get("max_visits"), "max_visits", 1, maxSteps, defaultVisits)
	p.output(n, v.get("output"))
	for _, item := range p.list(v.get("depends_on"), "depends_on") {
		n.dependsOn = append(n.dependsOn, p.text(item, "a node in depends_on"))
	}
}

// shortForms are the keys that say what a node does in one word.
var shortForms = []struct {
	key  string
	kind Kind
}{{"run", KindShell}, {"task", KindTask}, {"llm", KindLLM}, {"human", KindHuman}, {"workflow", KindWorkflow}}

// kind finds out what a node does.
func (p *parsing) kind(v *value) Kind {
	var kind Kind
	first := ""
	for _, short := range shortForms {
		f := v.get(short.key)
		if f == nil {
			continue
		}
		if first != "" {
			p.at(f, "a node does one thing: this one has %s and %s", first, short.key)
			continue
		}
		kind, first = short.kind, short.key
	}
	if k := v.get("kind"); k != nil {
		written := Kind(p.choice(k, "kind", kinds, ""))
		if written != "" && kind != "" && written != kind {
			p.at(k, "kind is %s, but %s makes it %s", written, first, kind)
		}
		if written != "" {
			kind = written
		}
		if op := v.get("operation"); op != nil && written != "" {
			if written != KindShell {
				p.at(op, "only shell nodes have an operation")
			} else {
				p.choice(op, "operation", []string{"exec"}, "")
			}
		}
	} else if kind == "" {
		p.at(v, "a node needs one of run, task, llm, human, workflow, or kind with implementation")
	}
	if impl := v.get("implementation"); impl != nil && first != "" && first != "task" {
		p.at(impl, "a node with %s needs no implementation", first)
	}
	return kind
}

// misplaced reports keys that mean nothing for the node's kind.
func (p *parsing) misplaced(n *node, v *value) {
	if n.Kind == "" {
		return
	}
	for key, of := range map[string][]Kind{
		"params":         {KindTask},
		"inherit_branch": {KindWorkflow},
		"input":          {KindWorkflow},
	} {
		for _, f := range v.fields {
			if f.key == key && !slices.Contains(of, n.Kind) {
				p.problem(f.line, f.column, "%s belongs to %s nodes; this one is a %s node", key, of[0], n.Kind)
			}
		}
	}
}

func (p *parsing) shell(n *node, v, impl *value) {
	if run := v.get("run"); run != nil {
		n.command, n.Action = p.command(run, "run", n), run.text
		return
	}
	if impl == nil {
		p.at(v, "a shell node needs run, or implementation with command_template")
		return
	}
	if !p.object(impl, "the implementation of a shell node", shellKeys) {
		return
	}
	if c := impl.get("command_template"); c != nil {
		n.command, n.Action = p.command(c, "command_template", n), c.text
	} else {
		p.at(impl, "a shell node needs a command_template")
	}
	// The run's branch and repository are where its commands work, always. The
	// two keys may say so, as the source does, but not otherwise.
	if b := impl.get("branch"); b != nil && strings.Join(strings.Fields(strings.Trim(p.text(b, "branch"), "{} ")), "") != "context.branch" && b.kind == stringValue {
		p.at(b, "a command works on the run's own branch, {{context.branch}}; for another branch use a sub-workflow")
	}
	if r := impl.get("repo_id"); r != nil && r.kind == stringValue && r.text != p.Repo.ID && strings.Trim(r.text, "{} ") != "context.repo_id" {
		p.at(r, "a command works on the run's own repository%s; for another one use a run of its own", map[bool]string{true: ", " + p.Repo.ID}[p.Repo.ID != ""])
	} else {
		p.text(r, "repo_id")
	}
}

func (p *parsing) task(n *node, v, impl *value) {
	params := v.get("params")
	name := v.get("task")
	if impl != nil && p.object(impl, "the implementation of a task node", taskKeys) {
		if name == nil {
			name = impl.get("task")
		}
		if params == nil {
			params = impl.get("params")
		}
	}
	if name == nil {
		p.at(v, "a task node needs task, the name of a library task")
		return
	}
	n.task = p.text(name, "task")
	n.Action = n.task
	if params != nil && params.kind != mapValue {
		if params.kind != nullValue {
			p.at(params, "params must be a mapping, not %s", kindOf(params))
		}
		params = nil
	}
	if params != nil {
		n.params = p.param(params, "params", n)
	}
	t, ok := Lookup(n.task)
	if !ok {
		if name.kind == stringValue {
			var names []string
			for _, t := range Library() {
				names = append(names, t.Name)
			}
			hint := suggest(n.task, names)
			if hint == "" {
				hint = "; ramus tasks lists what there is"
			}
			p.at(name, "there is no task %q%s", n.task, hint)
		}
		return
	}
	p.fits(t, n.params, params, name)
}

// fits checks parameters against the task's JSON Schema, as far as they are
// known before the run: what holds a slot is checked when it is filled.
func (p *parsing) fits(t Task, given *param, params, name *value) {
	var schema jsonschema.Schema
	if len(t.Schema) == 0 || json.Unmarshal(t.Schema, &schema) != nil {
		return
	}
	for _, need := range schema.Required {
		if params.get(need) == nil {
			at := name
			if params != nil && len(params.fields) > 0 {
				at = params
			}
			p.at(at, "%s needs the parameter %q", t.Name, need)
		}
	}
	if params == nil {
		return
	}
	known := slices.Sorted(maps.Keys(schema.Properties))
	for _, f := range params.fields {
		property, ok := schema.Properties[f.key]
		if !ok {
			if len(known) == 0 {
				p.problem(f.line, f.column, "%s has no parameters", t.Name)
			} else {
				hint := suggest(f.key, known)
				if hint == "" {
					hint = "; it has " + strings.Join(known, ", ")
				}
				p.problem(f.line, f.column, "%s has no parameter %q%s", t.Name, f.key, hint)
			}
			continue
		}
		if given.fields[f.key].slotted {
			continue
		}
		if err := valid(property, normal(f.value.data())); err != nil {
			p.at(f.value, "the parameter %s does not fit: %v", f.key, err)
		}
	}
}

// valid checks a JSON value against a schema.
func valid(schema *jsonschema.Schema, v any) error {
	resolved, err := schema.CloneSchemas().Resolve(nil)
	if err != nil {
		return fmt.Errorf("its schema cannot be used: %w", err)
	}
	err = resolved.Validate(v)
	// Of the library's chain of places in the schema only the last, the reason, helps a reader.
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}

func (p *parsing) llm(n *node, v, impl *value) {
	n.llm = &llmNode{}
	body := v.get("llm")
	if body == nil {
		body = impl
	}
	if !p.LLM {
		at := v.get("kind")
		if at == nil {
			at = v
		}
		p.at(at, "an llm node needs a model endpoint, and none is configured")
	}
	if body == nil {
		p.at(v, "an llm node needs llm with a prompt")
		return
	}
	if !p.object(body, "an llm node", llmKeys) {
		return
	}
	n.llm.model = p.template(body.get("model"), "model", n)
	n.llm.system = p.template(body.get("system"), "system", n)
	n.llm.prompt = p.template(body.get("prompt"), "prompt", n)
	n.llm.maxTokens = p.integer(body.get("max_tokens"), "max_tokens", 1, 10_000_000, 0)
	if n.llm.prompt == nil && body.get("prompt") == nil {
		p.at(body, "an llm node needs a prompt")
	}
	n.Action = "ask a model"
	if m := body.get("model"); m != nil && m.kind == stringValue {
		n.Action = "ask " + m.text
	}
	if s := body.get("schema"); s != nil {
		if s.kind != mapValue {
			p.at(s, "schema must be a JSON Schema, a mapping, not %s", kindOf(s))
			return
		}
		raw, err := json.Marshal(s.data())
		var schema jsonschema.Schema
		if err == nil {
			err = json.Unmarshal(raw, &schema)
		}
		if err == nil {
			_, err = schema.Resolve(nil)
		}
		if err != nil {
			p.at(s, "this is not a JSON Schema: %v", err)
			return
		}
		n.llm.schema = raw
	}
}

func (p *parsing) human(n *node, v, impl *value) {
	n.gate = &gateNode{}
	body := v.get("human")
	if body == nil {
		body = impl
	}
	if body == nil {
		p.at(v, "a human gate needs human with a message")
		return
	}
	if body.kind == stringValue { // human: MESSAGE
		n.gate.message, n.Action = p.template(body, "message", n), body.text
		return
	}
	if !p.object(body, "a human gate", humanKeys) {
		return
	}
	if m := body.get("message"); m != nil {
		n.gate.message, n.Action = p.template(m, "message", n), m.text
	} else {
		p.at(body, "a human gate needs a message")
	}
	for _, item := range p.list(body.get("allowed"), "allowed") {
		if who := p.text(item, "a name in allowed"); who != "" {
			n.gate.allowed = append(n.gate.allowed, who)
		}
	}
}

func (p *parsing) sub(n *node, v, impl *value) {
	at, inherit, input := v.get("workflow"), v.get("inherit_branch"), v.get("input")
	if at == nil {
		if impl == nil {
			p.at(v, "a workflow node needs workflow, or implementation with workflow_def_id")
			return
		}
		if !p.object(impl, "the implementation of a workflow node", subKeys) {
			return
		}
		at = impl.get("workflow_def_id")
		if at == nil {
			p.at(impl, "a workflow node needs a workflow_def_id")
		}
		if i := impl.get("inherit_branch"); i != nil {
			inherit = i
		}
		if i := impl.get("input"); i != nil {
			input = i
		}
	}
	n.workflow = p.identifier(at, "the id of a sub-workflow")
	n.Action = n.workflow
	n.inherit = p.flag(inherit, "inherit_branch", true)
	if input != nil && input.kind == nullValue {
		input = nil
	}
	if input != nil {
		if input.kind != mapValue {
			p.at(input, "input must be a mapping, not %s", kindOf(input))
			input = nil
		} else {
			n.params = p.param(input, "input", n)
		}
	}
	if n.workflow != "" {
		p.subs = append(p.subs, subUse{n, at, input})
	}
}

func (p *parsing) execution(n *node, v *value) {
	if !p.object(v, "execution", executionKeys) {
		return
	}
	n.timeout = time.Duration(p.integer(v.get("timeout_ms"), "timeout_ms", 1, int(maxTimeout/time.Millisecond), 0)) * time.Millisecond
	n.retries = p.integer(v.get("retries"), "retries", 0, maxRetries, 0)
	n.background = p.flag(v.get("background"), "background", false)
	if b := v.get("background"); b != nil && n.background && n.Kind != KindShell {
		p.at(b, "only shell nodes can run in the background")
	}
	if r := v.get("retries"); r != nil && n.retries > 0 && n.Kind == KindHuman {
		p.at(r, "a person is asked once; a gate has no retries")
	}
}

// output reads an output mapping: {key: expression}, {key} or [key].
func (p *parsing) output(n *node, v *value) {
	if v == nil {
		return
	}
	add := func(key string, line, column int, v *value) {
		if !keyName.MatchString(key) || celWords[key] {
			p.problem(line, column, "%q cannot be a key of the state; use letters, digits and _", key)
			return
		}
		if v == nil || v.kind == nullValue {
			// {verdict} is what the result calls verdict.
			source := key
			if n.Kind == KindLLM && !slices.Contains(resultKeys[KindLLM], key) {
				source = "json." + key
			}
			v = &value{kind: stringValue, text: source, line: line, column: column, style: foldedStyle}
		}
		n.outputs = append(n.outputs, output{key, p.condition(v, "output "+key, nil, n, true, true)})
	}
	switch v.kind {
	case mapValue:
		for _, f := range v.fields {
			add(f.key, f.line, f.column, f.value)
		}
	case listValue:
		for _, item := range v.items {
			if key := p.text(item, "a key in output"); key != "" {
				add(key, item.line, item.column, nil)
			}
		}
	default:
		p.at(v, "output must be a mapping of state keys to expressions, not %s", kindOf(v))
	}
}

// transition reads one transition.
func (p *parsing) transition(v *value) {
	if !p.object(v, "a transition", transitionKeys) {
		p.unordered = true
		return
	}
	t := &transition{line: v.line, column: v.column}
	from, to := v.get("from"), v.get("to")
	if from == nil {
		p.at(v, "a transition needs from")
	}
	if to == nil {
		p.at(v, "a transition needs to")
	}
	t.from, t.to = p.text(from, "from"), p.text(to, "to")
	n := p.known(from, t.from)
	if t.to != endComplete && t.to != endFailed && p.known(to, t.to) == nil || n == nil {
		p.unordered = true
	}
	t.when = p.condition(v.get("when"), "when", cel.BoolType, n, true, false)
	t.on = "success"
	if v.get("when") != nil {
		t.on, t.sometimes = "always", true
	}
	t.on = p.choice(v.get("on"), "on", outcomes, t.on)

	if out := v.get("fan_out"); out != nil && p.object(out, "fan_out", fanOutKeys) {
		t.fanOut = &fanOut{
			count:  p.integer(out.get("spawn_count"), "spawn_count", 1, maxFanOut, 0),
			over:   p.condition(out.get("over"), "over", cel.ListType(cel.DynType), n, true, false),
			branch: p.flag(out.get("branch"), "branch", false),
			as:     "item",
		}
		if out.get("spawn_count") == nil == (out.get("over") == nil) {
			p.at(out, "fan_out needs either spawn_count, a number of lines, or over, a list")
		}
		if as := out.get("as"); as != nil {
			t.fanOut.as = p.text(as, "as")
			if !keyName.MatchString(t.fanOut.as) || celWords[t.fanOut.as] || t.fanOut.as == "index" {
				p.at(as, "%q cannot be a key of the state; use letters, digits and _", t.fanOut.as)
			}
			if out.get("over") == nil {
				p.at(as, "as names the element of the list in over")
			}
		}
	}
	switch in := v.get("fan_in"); {
	case in == nil:
	case in.kind == boolValue:
		t.fanIn = in.any == true
	case in.kind == nullValue:
		t.fanIn = true
	case p.object(in, "fan_in", fanInKeys):
		t.fanIn = true
		if into := in.get("into"); into != nil {
			t.into = p.text(into, "into")
			if !keyName.MatchString(t.into) || celWords[t.into] {
				p.at(into, "%q cannot be a key of the state; use letters, digits and _", t.into)
			}
		}
	}
	if t.fanIn && t.fanOut != nil {
		p.at(v, "a transition cannot fan out and fan in at once; put a node between")
	}
	p.transitions = append(p.transitions, t)
	if n != nil {
		n.next = append(n.next, t)
	}
}

// known finds a node that is named somewhere.
func (p *parsing) known(at *value, id string) *node {
	if at == nil || id == "" {
		return nil
	}
	n, ok := p.byID[id]
	if !ok {
		hint := suggest(id, slices.Sorted(maps.Keys(p.byID)))
		if strings.HasPrefix(id, "$") {
			hint = "; the ends of a run are " + endComplete + " and " + endFailed
		}
		p.at(at, "there is no node %q%s", id, hint)
	}
	return n
}
