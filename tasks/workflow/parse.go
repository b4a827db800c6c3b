package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/document"
	"github.com/ramus-dev/ramus/tasks/library"
	"github.com/ramus-dev/ramus/tasks/service"
)

// Bounds on a workflow.
const (
	maxNodes       = 1_000
	maxTransitions = 5_000
	maxFanOut      = 256 // of one fan-out
	maxRetries     = 100
	maxTimeout     = 7 * 24 * time.Hour
	defaultVisits  = 100
	maxSteps       = 10_000 // of one run
	maxNesting     = 16     // nesting of sub-workflows
	maxNeeds       = 100    // different sub-workflows of one workflow, directly or not
)

// Keys of the mappings in a workflow file. The JSON Schema and the reference have the same, and tests compare them.
var (
	workflowKeys = []string{"id", "description", "repo", "on", "concurrency", "input", "start", "nodes", "transitions"}
	repoKeys     = []string{"id", "base_branch", "merge_on_success", "merge_strategy"}
	onKeys       = []string{"push"}
	pushKeys     = []string{"branches", "paths"}
	groupKeys    = []string{"group", "cancel_previous"}
	inputKeys    = []string{"type", "required", "default", "description"}
	nodeKeys     = []string{"id", "description", "kind", "operation", "implementation", "run", "task", "params",
		"workflow", "inherit_branch", "input", "llm", "human", "image", "services", "matrix", "execution", "pure",
		"output", "when", "depends_on", "max_visits"}
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
	// resultKeys are the names of result.KEY in conditions after a node, for the kinds whose results have a fixed form.
	resultKeys = map[Kind][]string{
		KindShell:    {"stdout", "stderr", "exit_code", "timed_out", "truncated", "duration_ms"},
		KindLLM:      {"text", "json"},
		KindHuman:    {"approved", "by", "comment"},
		KindWorkflow: {"status", "state"},
	}
)

var (
	idPattern = pattern.New(`^[a-z0-9_-]{1,64}$`)
	keyName   = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
)

// Problem is one mistake in a workflow file, and Problems are all of one file.
type (
	Problem  = document.Problem
	Problems = document.Problems
)

// workflowFile is the format of a workflow file. It bounds the bytes far above those that people write.
var workflowFile = document.Format{
	Noun: "workflow file", Needs: "a workflow needs at least an id and nodes", MaxBytes: 1 << 20,
}

// Parse reads and checks a workflow file. All mistakes are reported at once. The error is then of type Problems.
//
// The time grows with the file. Once ctx is done, Parse returns its error.
func Parse(ctx context.Context, name string, data []byte, o Options) (*Workflow, error) {
	return parse(ctx, name, data, &loader{Options: o, known: map[string]*loaded{}})
}

func parse(ctx context.Context, name string, data []byte, l *loader) (*Workflow, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	d, root := workflowFile.Parse(name, data)
	p := &parsing{ctx: ctx, Document: d, loader: l,
		Workflow: &Workflow{file: name, source: string(data), byID: map[string]*graphNode{}}}
	if root != nil {
		p.workflow(root)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	if len(d.Problems) > 0 {
		return nil, d.Mistakes()
	}
	return p.Workflow, nil
}

// parsing is a workflow between YAML and a checked graph.
type parsing struct {
	ctx context.Context // ends the parsing early
	*document.Document
	*loader
	*Workflow

	transitions []*transition
	unordered   bool // the nodes have no order, which was reported
	// uses are the names in templates and conditions. They are checked once all nodes are known.
	uses []use
	subs []subUse
	// expressions is the number of bytes of all expressions.
	expressions int
}

// use is a read of state, input or context.
type use struct {
	root, name   string     // root "" means state, then input
	node         *graphNode // the node of the text; nil in transitions
	line, column int
}

// subUse is a call of a sub-workflow.
type subUse struct {
	node  *graphNode
	at    *document.Value // the id
	input *document.Value // nil if there is no input
}

func (p *parsing) identifier(v *document.Value, what string) string {
	s := p.Text(v, what)
	if v != nil && v.Kind == document.StringValue && !idPattern.MatchString(s) {
		p.At(v, "%s must be 1 to 64 of a-z, 0-9, _ and -, not %q", what, s)
		return ""
	}
	return s
}

// template reads a text with slots.
func (p *parsing) template(v *document.Value, what string, n *graphNode) *template {
	if v == nil {
		return nil
	}
	if v.Kind != document.StringValue {
		p.At(v, "%s must be text, not %s", what, document.KindOf(v))
		return nil
	}
	t, wrong := parseTemplate(v.Text)
	for _, m := range wrong {
		p.Within(v, m.offset, "%s", m.message)
	}
	for _, s := range t.slots() {
		if p.ctx.Err() != nil {
			return t
		}
		line, column := p.Place(v, s.offset)
		u := use{node: n, line: line, column: column, name: s.path[0]}
		if root := s.path[0]; root == "state" || root == "input" || root == "context" || root == "matrix" && n != nil && n.matrix != nil {
			if len(s.path) < 2 {
				continue // the slot is a whole root
			}
			u.root, u.name = root, s.path[1]
		}
		p.uses = append(p.uses, u)
	}
	return t
}

// command reads a command template.
func (p *parsing) command(v *document.Value, what string, n *graphNode) *template {
	t := p.template(v, what, n)
	if t == nil {
		return nil
	}
	if strings.TrimSpace(v.Text) == "" {
		p.At(v, "%s is empty", what)
	}
	if len(v.Text) > maxCommand {
		p.At(v, "%s is longer than %d bytes, more than a shell can take", what, maxCommand)
		return nil
	}
	for _, m := range checkCommand(t) {
		p.Within(v, m.offset, "%s", m.message)
	}
	return t
}

// param reads a value whose texts may be templates.
func (p *parsing) param(v *document.Value, what string, n *graphNode) *param {
	q := &param{}
	switch v.Kind {
	case document.StringValue:
		q.text = p.template(v, what, n)
		if q.text != nil {
			q.slotted = len(q.text.slots()) > 0
		}
	case document.ListValue:
		q.list = []*param{}
		for _, item := range v.Items {
			inner := p.param(item, what, n)
			q.slotted = q.slotted || inner.slotted
			q.list = append(q.list, inner)
		}
	case document.MapValue:
		q.fields = map[string]*param{}
		for _, f := range v.Fields {
			inner := p.param(f.Value, f.Key, n)
			q.slotted = q.slotted || inner.slotted
			q.fields[f.Key] = inner
		}
	default:
		q.constant = v.Any
	}
	return q
}

// condition reads a CEL expression.
func (p *parsing) condition(v *document.Value, what string, want *cel.Type, n *graphNode, after, path bool) *condition {
	if v == nil {
		return nil
	}
	source := v.Text
	switch v.Kind {
	case document.BoolValue, document.NumberValue: // as in when: true
	case document.StringValue:
	default:
		p.At(v, "%s must be a CEL expression, not %s", what, document.KindOf(v))
		return nil
	}
	if p.ctx.Err() != nil {
		return nil
	}
	if p.expressions += len(source); p.expressions > maxExpressions {
		p.At(v, "the expressions of a workflow have more than %d bytes together; split it into sub-workflows",
			maxExpressions)
		return nil
	}
	c, wrong := compileCondition(source, want, after, path)
	for _, m := range wrong {
		p.Within(v, offsetOf(source, m.line, m.column), "%s", m.message)
	}
	if c == nil {
		return nil
	}
	for _, r := range c.refs {
		line, column := p.Place(v, offsetOf(source, r.line, r.column))
		p.uses = append(p.uses, use{root: r.root, name: r.name, node: n, line: line, column: column})
	}
	return c
}

// offsetOf returns the byte offset of a line (from 1) and a column (from 0, in characters).
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
func (p *parsing) workflow(root *document.Value) {
	if !p.Object(root, "a workflow", workflowKeys) {
		return
	}
	if v := root.Get("id"); v != nil {
		p.ID = p.identifier(v, "id")
	} else {
		p.At(root, "a workflow needs an id")
	}
	p.description = p.Text(root.Get("description"), "description")
	p.Repo.MergeStrategy = "rebase"
	p.repo(root.Get("repo"))
	p.concurrency(root.Get("concurrency"))
	p.inputs = p.declared(root.Get("input"))
	if on := root.Get("on"); on != nil {
		p.On = readOn(p.Document, on)
		for _, in := range p.inputs {
			if in.Required {
				p.At(on, "a push gives no inputs, and the input %s is required; give it a default", in.Name)
			}
		}
	}

	list := root.Get("nodes")
	items := p.List(list, "nodes")
	switch {
	case list == nil:
		p.At(root, "a workflow needs nodes")
	case len(items) == 0 && list.Kind == document.ListValue:
		p.At(list, "a workflow needs at least one node")
	case len(items) > maxNodes:
		p.At(list, "a workflow may have %d nodes, this one has %d; split it into sub-workflows", maxNodes, len(items))
		return
	}
	for _, item := range items {
		if p.ctx.Err() != nil {
			return
		}
		p.node(item)
	}
	items = p.List(root.Get("transitions"), "transitions")
	if len(items) > maxTransitions {
		p.At(root.Get("transitions"), "a workflow may have %d transitions, this one has %d", maxTransitions, len(items))
		return
	}
	for _, item := range items {
		if p.ctx.Err() != nil {
			return
		}
		p.transition(item)
	}
	p.check(root)
}

func (p *parsing) repo(v *document.Value) {
	if !p.Object(v, "repo", repoKeys) {
		return
	}
	p.Repo = RepoSpec{
		ID:             p.Text(v.Get("id"), "repo.id"),
		BaseBranch:     p.Text(v.Get("base_branch"), "repo.base_branch"),
		MergeOnSuccess: p.Flag(v.Get("merge_on_success"), "merge_on_success", false),
		MergeStrategy:  p.Choice(v.Get("merge_strategy"), "merge_strategy", strategies, "rebase"),
	}
	if b := v.Get("base_branch"); b != nil && b.Kind == document.StringValue && !branchName(b.Text) {
		p.At(b, "%q cannot be the name of a branch", b.Text)
	}
	if id := v.Get("id"); id != nil && id.Kind == document.StringValue && !repoName(id.Text) {
		p.At(id, "%q cannot be the name of a repository", id.Text)
	}
}

func (p *parsing) concurrency(v *document.Value) {
	if v == nil || !p.Object(v, "concurrency", groupKeys) {
		return
	}
	p.Concurrency = Concurrency{
		Group:          p.Text(v.Get("group"), "concurrency.group"),
		CancelPrevious: p.Flag(v.Get("cancel_previous"), "cancel_previous", false),
	}
	if g := v.Get("group"); g != nil && g.Kind == document.StringValue && !groupName.MatchString(g.Text) {
		p.At(g, "%q cannot be a group: letters, digits, '.', '_' and '-', at most 100", g.Text)
	}
}

var groupName = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)

// repoName reports whether a text can be the name of a repository.
func repoName(s string) bool {
	return s != "" && !strings.HasPrefix(s, "-") && !strings.ContainsAny(s, " \t\n\\:*?[~^{}")
}

// branchName reports whether git accepts a name of a branch (git check-ref-format --branch).
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
func (p *parsing) declared(v *document.Value) []Input {
	if v == nil {
		return nil
	}
	if v.Kind != document.MapValue {
		p.At(v, "input must be a mapping of names to {type, required, default, description}, not %s", document.KindOf(v))
		return nil
	}
	var inputs []Input
	for _, f := range v.Fields {
		in := Input{Name: f.Key, Type: "string"}
		if !keyName.MatchString(f.Key) {
			p.Problem(f.Line, f.Column, "the name of an input must be letters, digits and _, not %q", f.Key)
		}
		if f.Value.Kind != document.NullValue && p.Object(f.Value, "an input", inputKeys) {
			in.Type = p.Choice(f.Value.Get("type"), "type", inputTypes, "string")
			in.Required = p.Flag(f.Value.Get("required"), "required", false)
			in.Description = p.Text(f.Value.Get("description"), "description")
			if def := f.Value.Get("default"); def != nil {
				if in.Required {
					p.At(def, "a required input cannot have a default")
				}
				var err error
				if in.Default, err = in.accept(normal(def.Data())); err != nil {
					p.At(def, "the default does not fit: %v", err)
				}
			}
		}
		inputs = append(inputs, in)
	}
	return inputs
}

// node reads one node.
func (p *parsing) node(v *document.Value) {
	if !p.Object(v, "a node", nodeKeys) {
		return
	}
	n := &graphNode{Node: Node{Line: v.Line}, column: v.Column, maxVisits: defaultVisits}
	if id := v.Get("id"); id == nil {
		p.At(v, "a node needs an id")
	} else if n.ID = p.identifier(id, "a node's id"); n.ID != "" {
		n.Line, n.column = id.Line, id.Column
		if first, ok := p.byID[n.ID]; ok {
			p.At(id, "there are two nodes with the id %q, the first in line %d", n.ID, first.Line)
		} else {
			p.byID[n.ID] = n
		}
	}
	p.nodes = append(p.nodes, n)
	n.Description = p.Text(v.Get("description"), "description")
	n.Kind = p.kind(v)
	n.matrix = p.matrix(v.Get("matrix")) // before the templates that use it
	impl := v.Get("implementation")
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
	p.surroundings(n, v)
	p.execution(n, v.Get("execution"))
	p.pure(n, v.Get("pure"))
	n.when = p.condition(v.Get("when"), "when", cel.BoolType, n, false, false)
	n.maxVisits = p.Integer(v.Get("max_visits"), "max_visits", 1, maxSteps, defaultVisits)
	p.output(n, v.Get("output"))
	for _, item := range p.List(v.Get("depends_on"), "depends_on") {
		n.dependsOn = append(n.dependsOn, p.Text(item, "a node in depends_on"))
	}
}

// shortForms are the keys that determine the kind of a node.
var shortForms = []struct {
	key  string
	kind Kind
}{{"run", KindShell}, {"task", KindTask}, {"llm", KindLLM}, {"human", KindHuman}, {"workflow", KindWorkflow}}

// kind returns the kind of a node.
func (p *parsing) kind(v *document.Value) Kind {
	var kind Kind
	first := ""
	for _, short := range shortForms {
		f := v.Get(short.key)
		if f == nil {
			continue
		}
		if first != "" {
			p.At(f, "a node does one thing: this one has %s and %s", first, short.key)
			continue
		}
		kind, first = short.kind, short.key
	}
	if k := v.Get("kind"); k != nil {
		written := Kind(p.Choice(k, "kind", kinds, ""))
		if written != "" && kind != "" && written != kind {
			p.At(k, "kind is %s, but %s makes it %s", written, first, kind)
		}
		if written != "" {
			kind = written
		}
		if op := v.Get("operation"); op != nil && written != "" {
			if written != KindShell {
				p.At(op, "only shell nodes have an operation")
			} else {
				p.Choice(op, "operation", []string{"exec"}, "")
			}
		}
	} else if kind == "" {
		p.At(v, "a node needs one of run, task, llm, human, workflow, or kind with implementation")
	}
	if impl := v.Get("implementation"); impl != nil && first != "" && first != "task" {
		p.At(impl, "a node with %s needs no implementation", first)
	}
	return kind
}

// misplaced reports keys that have no meaning for the node's kind.
func (p *parsing) misplaced(n *graphNode, v *document.Value) {
	if n.Kind == "" {
		return
	}
	for key, of := range map[string][]Kind{
		"params":         {KindTask},
		"inherit_branch": {KindWorkflow},
		"input":          {KindWorkflow},
		"image":          {KindShell, KindTask},
		"services":       {KindShell, KindTask},
		"matrix":         {KindShell, KindTask},
	} {
		for _, f := range v.Fields {
			if f.Key == key && !slices.Contains(of, n.Kind) {
				p.Problem(f.Line, f.Column, "%s belongs to %s nodes; this one is a %s node", key, joinKinds(of), n.Kind)
			}
		}
	}
}

func joinKinds(of []Kind) string {
	names := make([]string, len(of))
	for i, k := range of {
		names[i] = string(k)
	}
	return strings.Join(names, " and ")
}

// surroundings reads the image and the services of a node's container.
func (p *parsing) surroundings(n *graphNode, v *document.Value) {
	n.services = service.Parse(p.Document, v.Get("services"))
	if image := v.Get("image"); image != nil {
		n.image = p.template(image, "image", n)
		if n.image != nil && len(n.image.slots()) == 0 {
			service.ParseImage(p.Document, image)
		}
	}
	if b := v.Get("execution").Get("background"); v.Get("matrix") != nil && b != nil && b.Any == true {
		p.At(v.Get("matrix"), "a node in the background has no matrix; its cells run one after another")
	}
}

func (p *parsing) shell(n *graphNode, v, impl *document.Value) {
	if run := v.Get("run"); run != nil {
		n.command, n.Action = p.command(run, "run", n), run.Text
		return
	}
	if impl == nil {
		p.At(v, "a shell node needs run, or implementation with command_template")
		return
	}
	if !p.Object(impl, "the implementation of a shell node", shellKeys) {
		return
	}
	if c := impl.Get("command_template"); c != nil {
		n.command, n.Action = p.command(c, "command_template", n), c.Text
	} else {
		p.At(impl, "a shell node needs a command_template")
	}
	// Commands always run on the branch and in the repository of the run. The two keys may repeat these, but not name
	// others.
	if b := impl.Get("branch"); b != nil && strings.Join(strings.Fields(strings.Trim(p.Text(b, "branch"), "{} ")),
		"") != "context.branch" && b.Kind == document.StringValue {
		p.At(b, "a command works on the run's own branch, {{context.branch}}; for another branch use a sub-workflow")
	}
	p.repoID(impl.Get("repo_id"))
}

// repoID reads the repository of a command. If the repository of the run is not known yet, the first node names it.
func (p *parsing) repoID(v *document.Value) {
	name := p.Text(v, "repo_id")
	if v == nil || v.Kind != document.StringValue || strings.Trim(name, "{} ") == "context.repo_id" {
		return
	}
	if p.Repo.ID == "" && p.RepoID == "" && repoName(name) {
		p.Repo.ID = name
	}
	if own := cmp.Or(p.RepoID, p.Repo.ID); name != p.RepoID && name != p.Repo.ID || own == "" {
		if own != "" {
			own = ", " + own
		}
		p.At(v, "a command works on the run's own repository%s; for another one use a run of its own", own)
	}
}

func (p *parsing) task(n *graphNode, v, impl *document.Value) {
	params := v.Get("params")
	name := v.Get("task")
	if impl != nil && p.Object(impl, "the implementation of a task node", taskKeys) {
		if name == nil {
			name = impl.Get("task")
		}
		if params == nil {
			params = impl.Get("params")
		}
	}
	if name == nil {
		p.At(v, "a task node needs task, the name of a library task")
		return
	}
	n.task = p.Text(name, "task")
	n.Action = n.task
	if params != nil && params.Kind != document.MapValue {
		if params.Kind != document.NullValue {
			p.At(params, "params must be a mapping, not %s", document.KindOf(params))
		}
		params = nil
	}
	if params != nil {
		n.params = p.param(params, "params", n)
	}
	t, ok := library.Lookup(n.task)
	if !ok {
		if name.Kind == document.StringValue {
			var names []string
			for _, t := range library.All() {
				names = append(names, t.Name)
			}
			hint := document.Suggest(n.task, names)
			if hint == "" {
				hint = "; `ramus tasks` lists all tasks"
			}
			p.At(name, "unknown task %q%s", n.task, hint)
		}
		return
	}
	p.fits(t, n.params, params, name)
}

// fits checks parameters against the task's JSON Schema, as far as they are known before the run. A parameter with a
// slot is checked when the slot has a value.
func (p *parsing) fits(t tasks.Task, given *param, params, name *document.Value) {
	var schema jsonschema.Schema
	if len(t.Schema) == 0 || json.Unmarshal(t.Schema, &schema) != nil {
		return
	}
	for _, need := range schema.Required {
		if params.Get(need) == nil {
			at := name
			if params != nil && len(params.Fields) > 0 {
				at = params
			}
			p.At(at, "%s needs the parameter %q", t.Name, need)
		}
	}
	if params == nil {
		return
	}
	known := slices.Sorted(maps.Keys(schema.Properties))
	for _, f := range params.Fields {
		property, ok := schema.Properties[f.Key]
		if !ok {
			if len(known) == 0 {
				p.Problem(f.Line, f.Column, "%s has no parameters", t.Name)
			} else {
				hint := document.Suggest(f.Key, known)
				if hint == "" {
					hint = "; it has " + strings.Join(known, ", ")
				}
				p.Problem(f.Line, f.Column, "%s has no parameter %q%s", t.Name, f.Key, hint)
			}
			continue
		}
		if given.fields[f.Key].slotted {
			continue
		}
		if err := valid(property, normal(f.Value.Data())); err != nil {
			p.At(f.Value, "the parameter %s does not fit: %v", f.Key, err)
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
	// The library returns a chain of positions in the schema. Only the last error, the reason, helps a reader.
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}

func (p *parsing) llm(n *graphNode, v, impl *document.Value) {
	n.llm = &llmNode{}
	body := v.Get("llm")
	if body == nil {
		body = impl
	}
	if !p.LLM {
		at := v.Get("kind")
		if at == nil {
			at = v
		}
		p.At(at, "an llm node needs a model endpoint, and none is configured")
	}
	if body == nil {
		p.At(v, "an llm node needs llm with a prompt")
		return
	}
	if !p.Object(body, "an llm node", llmKeys) {
		return
	}
	n.llm.model = p.template(body.Get("model"), "model", n)
	n.llm.system = p.template(body.Get("system"), "system", n)
	n.llm.prompt = p.template(body.Get("prompt"), "prompt", n)
	n.llm.maxTokens = p.Integer(body.Get("max_tokens"), "max_tokens", 1, 10_000_000, 0)
	if n.llm.prompt == nil && body.Get("prompt") == nil {
		p.At(body, "an llm node needs a prompt")
	}
	n.Action = "ask a model"
	if m := body.Get("model"); m != nil && m.Kind == document.StringValue {
		n.Action = "ask " + m.Text
	}
	if s := body.Get("schema"); s != nil {
		if s.Kind != document.MapValue {
			p.At(s, "schema must be a JSON Schema, a mapping, not %s", document.KindOf(s))
			return
		}
		raw, err := json.Marshal(s.Data())
		var schema jsonschema.Schema
		if err == nil {
			err = json.Unmarshal(raw, &schema)
		}
		if err == nil {
			_, err = schema.Resolve(nil)
		}
		if err != nil {
			p.At(s, "this is not a JSON Schema: %v", err)
			return
		}
		n.llm.schema = raw
	}
}

func (p *parsing) human(n *graphNode, v, impl *document.Value) {
	n.gate = &gateNode{}
	body := v.Get("human")
	if body == nil {
		body = impl
	}
	if body == nil {
		p.At(v, "a human gate needs human with a message")
		return
	}
	if body.Kind == document.StringValue { // in the form human: MESSAGE
		n.gate.message, n.Action = p.template(body, "message", n), body.Text
		return
	}
	if !p.Object(body, "a human gate", humanKeys) {
		return
	}
	if m := body.Get("message"); m != nil {
		n.gate.message, n.Action = p.template(m, "message", n), m.Text
	} else {
		p.At(body, "a human gate needs a message")
	}
	for _, item := range p.List(body.Get("allowed"), "allowed") {
		if who := p.Text(item, "a name in allowed"); who != "" {
			n.gate.allowed = append(n.gate.allowed, who)
		}
	}
}

func (p *parsing) sub(n *graphNode, v, impl *document.Value) {
	at, inherit, input := v.Get("workflow"), v.Get("inherit_branch"), v.Get("input")
	if at == nil {
		if impl == nil {
			p.At(v, "a workflow node needs workflow, or implementation with workflow_def_id")
			return
		}
		if !p.Object(impl, "the implementation of a workflow node", subKeys) {
			return
		}
		at = impl.Get("workflow_def_id")
		if at == nil {
			p.At(impl, "a workflow node needs a workflow_def_id")
		}
		if i := impl.Get("inherit_branch"); i != nil {
			inherit = i
		}
		if i := impl.Get("input"); i != nil {
			input = i
		}
	}
	n.workflow = p.identifier(at, "the id of a sub-workflow")
	n.Action = n.workflow
	n.inherit = p.Flag(inherit, "inherit_branch", true)
	if input != nil && input.Kind == document.NullValue {
		input = nil
	}
	if input != nil {
		if input.Kind != document.MapValue {
			p.At(input, "input must be a mapping, not %s", document.KindOf(input))
			input = nil
		} else {
			n.params = p.param(input, "input", n)
		}
	}
	if n.workflow != "" {
		p.subs = append(p.subs, subUse{n, at, input})
	}
}

func (p *parsing) execution(n *graphNode, v *document.Value) {
	if !p.Object(v, "execution", executionKeys) {
		return
	}
	n.timeout = time.Duration(p.Integer(v.Get("timeout_ms"), "timeout_ms", 1, int(maxTimeout/time.Millisecond),
		0)) * time.Millisecond
	n.retries = p.Integer(v.Get("retries"), "retries", 0, maxRetries, 0)
	n.background = p.Flag(v.Get("background"), "background", false)
	if b := v.Get("background"); b != nil && n.background && n.Kind != KindShell {
		p.At(b, "only shell nodes can run in the background")
	}
	if r := v.Get("retries"); r != nil && n.retries > 0 && n.Kind == KindHuman {
		p.At(r, "a person is asked once; a gate has no retries")
	}
}

// pure reads whether the result of a node follows from the files and the container.
func (p *parsing) pure(n *graphNode, v *document.Value) {
	if v == nil {
		return
	}
	pure := p.Flag(v, "pure", false)
	n.pure = &pure
	switch {
	case n.Kind != KindShell && n.Kind != KindTask:
		p.At(v, "only shell and task nodes can be pure")
	case pure && n.background:
		p.At(v, "a node in the background has no result that could be used again")
	}
}

// output reads an output mapping: {key: expression}, {key} or [key].
func (p *parsing) output(n *graphNode, v *document.Value) {
	if v == nil {
		return
	}
	named := map[string]bool{}
	add := func(key string, line, column int, v *document.Value) {
		if !keyName.MatchString(key) || celWords[key] {
			p.Problem(line, column, "%q cannot be a key of the state; use letters, digits and _", key)
			return
		}
		if named[key] {
			p.Problem(line, column, "the output %q is already in this list", key)
			return
		}
		named[key] = true
		if v == nil || v.Kind == document.NullValue {
			// {verdict} means the part verdict of the result.
			source := key
			if n.Kind == KindLLM && !slices.Contains(resultKeys[KindLLM], key) {
				source = "json." + key
			}
			v = document.Implied(source, line, column)
		}
		n.outputs = append(n.outputs, output{key, p.condition(v, "output "+key, nil, n, true, true)})
	}
	switch v.Kind {
	case document.MapValue:
		for _, f := range v.Fields {
			add(f.Key, f.Line, f.Column, f.Value)
		}
	case document.ListValue:
		for _, item := range v.Items {
			if key := p.Text(item, "a key in output"); key != "" {
				add(key, item.Line, item.Column, nil)
			}
		}
	default:
		p.At(v, "output must be a mapping of state keys to expressions, not %s", document.KindOf(v))
	}
}

// transition reads one transition.
func (p *parsing) transition(v *document.Value) {
	if !p.Object(v, "a transition", transitionKeys) {
		p.unordered = true
		return
	}
	t := &transition{line: v.Line, column: v.Column}
	from, to := v.Get("from"), v.Get("to")
	if from == nil {
		p.At(v, "a transition needs from")
	}
	if to == nil {
		p.At(v, "a transition needs to")
	}
	t.from, t.to = p.Text(from, "from"), p.Text(to, "to")
	n := p.known(from, t.from)
	if t.to != endComplete && t.to != endFailed && p.known(to, t.to) == nil || n == nil {
		p.unordered = true
	}
	t.when = p.condition(v.Get("when"), "when", cel.BoolType, n, true, false)
	t.on = "success"
	if v.Get("when") != nil {
		t.on, t.sometimes = "always", true
	}
	t.on = p.Choice(v.Get("on"), "on", outcomes, t.on)

	if out := v.Get("fan_out"); out != nil && p.Object(out, "fan_out", fanOutKeys) {
		t.fanOut = &fanOut{
			count:  p.Integer(out.Get("spawn_count"), "spawn_count", 1, maxFanOut, 0),
			over:   p.condition(out.Get("over"), "over", cel.ListType(cel.DynType), n, true, false),
			branch: p.Flag(out.Get("branch"), "branch", false),
			as:     "item",
		}
		if out.Get("spawn_count") == nil == (out.Get("over") == nil) {
			p.At(out, "fan_out needs either spawn_count, a number of lines, or over, a list")
		}
		if as := out.Get("as"); as != nil {
			t.fanOut.as = p.Text(as, "as")
			if !keyName.MatchString(t.fanOut.as) || celWords[t.fanOut.as] || t.fanOut.as == "index" {
				p.At(as, "%q cannot be a key of the state; use letters, digits and _", t.fanOut.as)
			}
			if out.Get("over") == nil {
				p.At(as, "as names the element of the list in over")
			}
		}
	}
	switch in := v.Get("fan_in"); {
	case in == nil:
	case in.Kind == document.BoolValue:
		t.fanIn = in.Any == true
	case in.Kind == document.NullValue:
		t.fanIn = true
	case p.Object(in, "fan_in", fanInKeys):
		t.fanIn = true
		if into := in.Get("into"); into != nil {
			t.into = p.Text(into, "into")
			if !keyName.MatchString(t.into) || celWords[t.into] {
				p.At(into, "%q cannot be a key of the state; use letters, digits and _", t.into)
			}
		}
	}
	if t.fanIn && t.fanOut != nil {
		p.At(v, "a transition cannot fan out and fan in at once; put a node between")
	}
	p.transitions = append(p.transitions, t)
	if n != nil {
		n.next = append(n.next, t)
	}
}

// known returns the node with an id, and reports an unknown id.
func (p *parsing) known(at *document.Value, id string) *graphNode {
	if at == nil || id == "" {
		return nil
	}
	n, ok := p.byID[id]
	if !ok {
		hint := p.Suggest(id, func() []string { return slices.Sorted(maps.Keys(p.byID)) })
		if strings.HasPrefix(id, "$") {
			hint = "; the ends of a run are " + endComplete + " and " + endFailed
		}
		p.At(at, "there is no node %q%s", id, hint)
	}
	return n
}
