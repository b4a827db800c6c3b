package workflow

import (
	"fmt"
	"maps"
)

// spread starts the lines of a fan-out.
func (m *Machine) spread(l *line, t *transition, id string, r StepResult) {
	s := m.w.byID[t.to].section
	count, items := t.fanOut.count, []any(nil)
	if t.fanOut.over != nil {
		v, err := t.fanOut.over.eval(m.scope(l), r.visible())
		if err == nil {
			v, _, err = throughJSON(v)
		}
		if err != nil {
			m.fail(id, fmt.Sprintf("cannot fan out to %s: %v", t.to, err))
			return
		}
		list, ok := v.([]any)
		if !ok {
			m.fail(id, fmt.Sprintf("cannot fan out to %s: over is %s, not a list", t.to, kindOfJSON(v)))
			return
		}
		count, items = len(list), list
	}
	if count > maxFanOut {
		m.fail(id, fmt.Sprintf("cannot fan out to %s: %d lines, and %d is the most", t.to, count, maxFanOut))
		return
	}
	m.visits[t.to]++
	g := &group{section: s, name: t.to, left: count}
	if k := m.visits[t.to]; k > 1 {
		g.name = fmt.Sprintf("%s#%d", t.to, k)
	}
	suffix := g.name[len(t.to):]
	for i := range count {
		// The lines share the values, which are never changed in place.
		one := newLine(l.state)
		one.group, one.index = g, i
		one.suffix = fmt.Sprintf("%s[%d]", suffix, i)
		one.name = t.to + one.suffix
		one.state["index"] = int64(i)
		if items != nil {
			one.state[t.fanOut.as] = items[i]
		}
		g.lines = append(g.lines, one)
	}
	if count == 0 {
		m.together(g)
		return
	}
	for _, one := range g.lines {
		if !s.out.branch {
			m.enter(one, s.entry)
			continue
		}
		id := one.name + "/fork"
		if !m.count(id) {
			return
		}
		step := Step{ID: id, Node: s.entry.ID, Kind: KindFork, Line: one.name, Branch: true}
		m.running[id] = &running{step: step, line: one, group: g}
		m.ready = append(m.ready, step)
	}
}

// together collects the outputs of a fan-out's lines into a list, in line order, and continues the main line.
func (m *Machine) together(g *group) {
	list := make([]any, len(g.lines))
	for i, l := range g.lines {
		list[i] = maps.Clone(l.made)
	}
	v, size, err := throughJSON(list)
	if err != nil || size > maxState {
		m.fail(g.name, fmt.Sprintf("the outputs of the lines have %d bytes; the state may have %d (keep large things in files)", size, maxState))
		return
	}
	m.main.set(g.section.into, v, size)
	m.enter(m.main, m.w.byID[g.section.target])
}
