package workflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/tasks/document"
)

// check checks the workflow as a whole, once every node is known.
func (p *parsing) check(root *document.Value) {
	p.order(root)
	p.beginChecks(root)
	p.sections()
	p.reachable()
	p.names()
	p.subworkflows()
}

// order makes transitions if none are written. Nodes follow each other in written order, or in that of depends_on.
func (p *parsing) order(root *document.Value) {
	depends := slices.ContainsFunc(p.nodes, func(n *graphNode) bool { return len(n.dependsOn) > 0 })
	if len(p.transitions) > 0 {
		for _, n := range p.nodes {
			if len(n.dependsOn) > 0 {
				p.Problem(n.Line, n.column, "%s has depends_on, but the workflow has transitions; use one of the two", n.ID)
			}
		}
		p.shadowed()
		return
	}
	if root.Get("transitions") != nil && len(root.Get("transitions").Items) > 0 {
		p.unordered = true // there are transitions, but all of them are wrong
		return
	}
	sorted := p.nodes
	if depends {
		if start := root.Get("start"); start != nil {
			p.At(start, "depends_on determines the order; start is not used")
		}
		if sorted = p.dependencies(); sorted == nil {
			p.unordered = true
			return
		}
	}
	begin := 0
	if start := root.Get("start"); start != nil && !depends {
		begin = max(slices.Index(sorted, p.byID[start.Text]), 0)
	}
	for i := begin; i+1 < len(sorted); i++ {
		t := &transition{from: sorted[i].ID, to: sorted[i+1].ID, on: "success", line: sorted[i].Line,
			column: sorted[i].column}
		sorted[i].next = append(sorted[i].next, t)
	}
	if depends { // there is a node that has it
		p.start = sorted[0]
	}
}

// dependencies sorts the nodes so that each comes after its dependencies, and otherwise in written order. Returns nil
// if that is impossible.
func (p *parsing) dependencies() []*graphNode {
	good := true
	for _, n := range p.nodes {
		for _, d := range n.dependsOn {
			if _, ok := p.byID[d]; !ok {
				good = false
				p.Problem(n.Line, n.column, "%s depends on %q, which is not a node%s", n.ID, d,
					p.Suggest(d, func() []string { return slices.Sorted(maps.Keys(p.byID)) }))
			}
		}
	}
	if !good {
		return nil
	}
	var sorted []*graphNode
	done := map[string]bool{}
	met := make([]int, len(p.nodes)) // by node, how many of its dependencies, from the first on, are done
	for len(sorted) < len(p.nodes) {
		i := -1
		for k, n := range p.nodes {
			for met[k] < len(n.dependsOn) && done[n.dependsOn[met[k]]] {
				met[k]++
			}
			if !done[n.ID] && met[k] == len(n.dependsOn) {
				i = k
				break
			}
		}
		if i < 0 {
			// Every remaining node waits for another one, so following one of them leads round a circle.
			i = slices.IndexFunc(p.nodes, func(n *graphNode) bool { return !done[n.ID] })
			var path []string
			for n := p.nodes[i]; ; {
				if at := slices.Index(path, n.ID); at >= 0 {
					first := p.byID[path[at]]
					p.Problem(first.Line, first.column, "depends_on goes in a circle: %s",
						strings.Join(append(path[at:], n.ID), " → "))
					return nil
				}
				path = append(path, n.ID)
				j := slices.IndexFunc(n.dependsOn, func(d string) bool { return !done[d] })
				if j < 0 {
					return nil // two nodes have one id, which is reported elsewhere
				}
				n = p.byID[n.dependsOn[j]]
			}
		}
		done[p.nodes[i].ID] = true
		sorted = append(sorted, p.nodes[i])
	}
	return sorted
}

// shadowed reports transitions that are never taken because an earlier one always is.
func (p *parsing) shadowed() {
	for _, n := range p.nodes {
		taken := map[string]int{} // line of the transition that takes an outcome, by outcome
		for _, t := range n.next {
			covers := []string{t.on}
			if t.on == "always" {
				covers = []string{"success", "failure"}
			}
			first, all := 0, true
			for _, c := range covers {
				if taken[c] == 0 {
					all = false
				}
				first = max(first, taken[c])
			}
			if all {
				p.Problem(t.line, t.column,
					"this transition is never taken, because the one in line %d always comes first (use fan_out to run several nodes at once)", first)
				continue
			}
			if !t.sometimes {
				for _, c := range covers {
					if taken[c] == 0 {
						taken[c] = t.line
					}
				}
			}
		}
	}
}

func (p *parsing) beginChecks(root *document.Value) {
	at := root.Get("start")
	if at != nil {
		id := p.Text(at, "start")
		if n := p.known(at, id); n != nil && p.start == nil {
			p.start = n
		}
	}
	if p.start == nil && len(p.nodes) > 0 {
		p.start = p.nodes[0]
	}
}

// sections finds the nodes that run in the lines of a fan-out, and checks that they may.
func (p *parsing) sections() {
	for _, t := range p.transitions {
		entry := p.byID[t.to]
		if t.fanOut == nil || entry == nil {
			continue
		}
		if entry.section != nil && entry.section.entry == entry {
			p.Problem(t.line, t.column, "two transitions fan out to %s; one node begins the lines of one fan-out", t.to)
			continue
		}
		s := &section{entry: entry, out: t.fanOut}
		p.gather(s, t)
		if s.target == "" {
			p.Problem(t.line, t.column,
				"the lines that fan out to %s never come together; a transition with fan_in must follow", t.to)
		}
	}
	// Nodes that the main line reaches must not be part of a section.
	if p.start == nil {
		return
	}
	seen := map[*graphNode]bool{}
	todo := []*graphNode{p.start}
	for len(todo) > 0 {
		n := todo[0]
		todo = todo[1:]
		if seen[n] {
			continue
		}
		seen[n] = true
		if n.section != nil {
			p.Problem(n.Line, n.column, "%s belongs to the fan-out of %s, but is reached from outside of it too", n.ID,
				n.section.entry.ID)
			continue
		}
		for _, t := range n.next {
			to := p.byID[t.to]
			if t.fanIn {
				p.Problem(t.line, t.column, "fan_in outside a fan-out: %s runs in the main line", n.ID)
				continue
			}
			if t.fanOut != nil && to != nil && to.section != nil {
				to = p.byID[to.section.target]
			}
			if to != nil {
				todo = append(todo, to)
			}
		}
	}
}

// gather walks through a section from its entry to its fan-ins.
func (p *parsing) gather(s *section, out *transition) {
	todo := []*graphNode{s.entry}
	for len(todo) > 0 {
		n := todo[0]
		todo = todo[1:]
		if n.section == s {
			continue
		}
		if n.section != nil {
			p.Problem(n.Line, n.column, "%s belongs to two fan-outs, of %s and of %s", n.ID, n.section.entry.ID, s.entry.ID)
			continue
		}
		n.section, n.Section = s, s.entry.ID
		p.allowedInLine(n, s, out)
		for _, t := range n.next {
			switch {
			case t.fanOut != nil:
				p.Problem(t.line, t.column, "a fan-out inside a fan-out; let the lines call a sub-workflow that fans out")
			case t.fanIn:
				into := t.into
				if into == "" {
					into = strings.ReplaceAll(s.entry.ID, "-", "_")
				}
				if s.target != "" && (s.target != t.to || s.into != into) {
					p.Problem(t.line, t.column,
						"the lines of %s already come together in %s, into state.%s; they must all meet in one place",
						s.entry.ID, s.target, s.into)
				}
				if t.to == endComplete || t.to == endFailed {
					p.Problem(t.line, t.column, "a fan_in leads to a node, not to %s", t.to)
				}
				s.target, s.into = t.to, into
			case t.to == endComplete:
				p.Problem(t.line, t.column, "a line of a fan-out cannot end the run; use fan_in")
			default:
				if to := p.byID[t.to]; to != nil {
					todo = append(todo, to)
				}
			}
		}
	}
}

// allowedInLine reports nodes that need a work tree in lines without one.
func (p *parsing) allowedInLine(n *graphNode, s *section, out *transition) {
	if s.out.branch {
		return
	}
	switch {
	case n.Kind == KindShell || n.Kind == KindTask:
		p.Problem(n.Line, n.column,
			"%s needs a shell, and lines of a fan-out have none: several would write to one branch at once; set branch: true in line %d to give each line a branch of its own", n.ID, out.line)
	case n.Kind == KindWorkflow && n.inherit:
		p.Problem(n.Line, n.column,
			"%s would share the run's branch with the other lines; set inherit_branch: false, or branch: true in line %d", n.ID, out.line)
	}
}

// reachable reports nodes to which no path leads.
func (p *parsing) reachable() {
	if p.start == nil || p.unordered || len(p.nodes) != len(p.byID) {
		return // ids or the order are wrong, and further mistakes that follow from that would only distract
	}
	seen := map[string]bool{}
	todo := []string{p.start.ID}
	for len(todo) > 0 {
		id := todo[0]
		todo = todo[1:]
		n := p.byID[id]
		if n == nil || seen[id] {
			continue
		}
		seen[id] = true
		for _, t := range n.next {
			todo = append(todo, t.to)
		}
	}
	for _, n := range p.nodes {
		if !seen[n.ID] {
			p.Problem(n.Line, n.column, "no transition leads to %s", n.ID)
		}
	}
}

// names checks the names that templates and expressions read. They must be declared inputs, outputs of the workflow's
// nodes, or parts of the context.
func (p *parsing) names() {
	state := map[string]bool{}
	for _, n := range p.nodes {
		for _, o := range n.outputs {
			state[o.key] = true
		}
	}
	inputs := map[string]bool{}
	for _, in := range p.inputs {
		inputs[in.Name] = true
	}
	lines := map[*section]map[string]bool{}
	for _, n := range p.nodes {
		if s := n.section; s != nil && lines[s] == nil {
			state[s.into] = true
			lines[s] = map[string]bool{"index": true}
			if s.out.over != nil {
				lines[s][s.out.as] = true
			}
		}
	}
	for _, u := range p.uses {
		if p.ctx.Err() != nil {
			return
		}
		var line map[string]bool
		if u.node != nil && u.node.section != nil {
			line = lines[u.node.section]
		}
		all := func() []string { return slices.Concat(slices.Sorted(maps.Keys(state)), slices.Sorted(maps.Keys(line))) }
		switch u.root {
		case "":
			if !state[u.name] && !line[u.name] && !inputs[u.name] {
				p.Problem(u.line, u.column, "{{%s}} is neither an output of a node nor a declared input%s", u.name,
					p.Suggest(u.name, func() []string { return append(all(), slices.Sorted(maps.Keys(inputs))...) }))
			}
		case "state":
			if !state[u.name] && !line[u.name] {
				p.Problem(u.line, u.column, "no node has the output %q%s", u.name, p.Suggest(u.name, all))
			}
		case "input":
			if !inputs[u.name] {
				p.Problem(u.line, u.column, "the input %q is not declared%s", u.name,
					p.Suggest(u.name, func() []string { return slices.Sorted(maps.Keys(inputs)) }))
			}
		case "context":
			if !slices.Contains(contextKeys, u.name) {
				p.Problem(u.line, u.column, "context has no %q; it has %s", u.name, strings.Join(contextKeys, ", "))
			}
		case "matrix":
			if !slices.Contains(u.node.matrix.axes, u.name) {
				p.Problem(u.line, u.column, "the matrix has no axis %q; it has %s", u.name,
					strings.Join(u.node.matrix.axes, ", "))
			}
		case "result":
			if u.node == nil {
				continue
			}
			keys, ok := resultKeys[u.node.Kind]
			if u.node.matrix != nil {
				keys, ok = cellsKeys, true
			}
			if ok && u.name != "ok" && u.name != "error" && u.name != "skipped" && !slices.Contains(keys, u.name) {
				p.Problem(u.line, u.column, "the result of a %s node has no %q; it has ok, error, %s", u.node.Kind,
					u.name, strings.Join(keys, ", "))
			}
		}
	}
}

// loader loads sub-workflows, each only once.
type loader struct {
	Options
	known map[string]*loaded
	chain []string // the workflows that are being read, outermost first
}

// loaded is a sub-workflow, or the error of loading it.
type loaded struct {
	w   *Workflow
	err error
}

var errTooMany = fmt.Errorf("more than %d sub-workflows", maxNeeds)

// load reads and checks a sub-workflow.
func (l *loader) load(ctx context.Context, id string) (*Workflow, error) {
	if known, ok := l.known[id]; ok {
		return known.w, known.err
	}
	if len(l.known) >= maxNeeds {
		return nil, errTooMany
	}
	entry := &loaded{}
	if l.Load == nil {
		entry.err = errors.New("no other workflows are known here")
	} else if text, err := l.Load(id); err != nil {
		entry.err = err
	} else {
		entry.w, entry.err = parse(ctx, id, text, l)
	}
	l.known[id] = entry
	return entry.w, entry.err
}

// subworkflows checks the calls of other workflows, and those workflows.
func (p *parsing) subworkflows() {
	p.chain = append(p.chain, p.ID)
	defer func() { p.chain = p.chain[:len(p.chain)-1] }()
	needs := map[string]bool{}
	for _, sub := range p.subs {
		if p.ctx.Err() != nil {
			return
		}
		id := sub.node.workflow
		needs[id] = true
		if i := slices.Index(p.chain, id); i >= 0 {
			p.At(sub.at, "a workflow cannot call itself: %s", strings.Join(append(slices.Clone(p.chain[i:]), id), " → "))
			continue
		}
		if len(p.chain) > maxNesting {
			p.At(sub.at, "sub-workflows nest more than %d deep", maxNesting)
			continue
		}
		child, err := p.load(p.ctx, id)
		var inside Problems
		switch {
		case errors.As(err, &inside):
			more := ""
			if len(inside) > 1 {
				more = fmt.Sprintf(" (and %d more)", len(inside)-1)
			}
			p.At(sub.at, "the sub-workflow %s has mistakes: %s:%d:%d: %s%s", id, inside[0].File, inside[0].Line,
				inside[0].Column, inside[0].Message, more)
		case err != nil:
			p.At(sub.at, "cannot find the sub-workflow %q: %v", id, err)
		default:
			p.calls(sub, child)
		}
	}
	p.needs = slices.Sorted(maps.Keys(needs))
}

// calls checks the input of a call against the inputs that the sub-workflow declares.
func (p *parsing) calls(sub subUse, child *Workflow) {
	fields := map[string]*document.Value{}
	if sub.input != nil {
		for _, f := range sub.input.Fields {
			fields[f.Key] = f.Value
		}
	}
	names := map[string]bool{}
	for _, in := range child.inputs {
		names[in.Name] = true
		given := fields[in.Name]
		if given == nil {
			if in.Required {
				p.At(sub.at, "%s needs the input %q", child.ID, in.Name)
			}
			continue
		}
		if sub.node.params.fields[in.Name].slotted {
			continue
		}
		if _, err := in.accept(normal(given.Data())); err != nil {
			p.At(given, "the input %s of %s does not fit: %v", in.Name, child.ID, err)
		}
	}
	if sub.input == nil {
		return
	}
	for _, f := range sub.input.Fields {
		if !names[f.Key] {
			suggestion := p.Suggest(f.Key, func() []string { return slices.Sorted(maps.Keys(names)) })
			p.Problem(f.Line, f.Column, "%s declares no input %q%s", child.ID, f.Key, suggestion)
		}
	}
}
