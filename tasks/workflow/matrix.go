package workflow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/tasks/document"
)

// Bounds on a matrix.
const (
	maxAxes       = 6
	maxAxisValues = 64
	maxCells      = 64
	maxCellName   = 60 // characters
)

var matrixKeys = []string{"axes", "exclude", "fail_fast"}

// matrix makes a node run once for each combination of values. The cells run one after another, because they share a branch.
type matrix struct {
	axes     []string // in written order
	cells    []cell
	failFast bool // the first failure ends the node
}

// cell is one combination.
type cell struct {
	name   string         // unique in the matrix
	values map[string]any // by axis
}

// matrix reads a matrix. It is a mapping of axes to lists, or has axes, exclude and fail_fast.
func (p *parsing) matrix(v *document.Value) *matrix {
	if v == nil {
		return nil
	}
	if v.Kind != document.MapValue {
		p.At(v, "matrix must be a mapping of names to lists of values, not %s", document.KindOf(v))
		return nil
	}
	m := &matrix{failFast: true}
	axes := v
	if v.Get("axes") != nil {
		if !p.Object(v, "matrix", matrixKeys) {
			return nil
		}
		axes = v.Get("axes")
		m.failFast = p.Flag(v.Get("fail_fast"), "fail_fast", true)
		if axes.Kind != document.MapValue {
			p.At(axes, "axes must be a mapping of names to lists of values, not %s", document.KindOf(axes))
			return nil
		}
	}
	values, ok := p.axes(m, axes)
	if !ok {
		return nil
	}
	m.cells = m.combine(values, p.excluded(m, v.Get("axes") != nil, v.Get("exclude")))
	if len(m.cells) == 0 {
		p.At(v, "nothing is left of the matrix")
		return nil
	}
	return m
}

// axes reads the axes of a matrix, and returns the values of each.
func (p *parsing) axes(m *matrix, v *document.Value) (values [][]any, ok bool) {
	if len(v.Fields) == 0 || len(v.Fields) > maxAxes {
		p.At(v, "a matrix has 1 to %d axes, this one has %d", maxAxes, len(v.Fields))
		return nil, false
	}
	ok = true
	cells := 1
	for _, f := range v.Fields {
		if !keyName.MatchString(f.Key) || celWords[f.Key] {
			p.Problem(f.Line, f.Column, "%q cannot be the name of an axis; use letters, digits and _", f.Key)
			ok = false
		}
		items := p.List(f.Value, "the axis "+f.Key)
		if f.Value.Kind != document.ListValue {
			ok = false
			continue
		}
		if len(items) == 0 || len(items) > maxAxisValues {
			p.At(f.Value, "an axis has 1 to %d values, this one has %d", maxAxisValues, len(items))
			return nil, false
		}
		var axis []any
		for _, item := range items {
			switch item.Kind {
			case document.StringValue, document.NumberValue, document.BoolValue:
			default:
				p.At(item, "a value of a matrix must be text, a number, true or false, not %s", document.KindOf(item))
				ok = false
				continue
			}
			value := normal(item.Data())
			if item.Kind == document.NumberValue {
				value = item.Text // as it is written, because 1.20 is a version and not 1.2
			}
			if slices.Contains(axis, value) {
				p.At(item, "the axis %s has the value %s twice", f.Key, plain(value))
				ok = false
			}
			axis = append(axis, value)
		}
		m.axes = append(m.axes, f.Key)
		values = append(values, axis)
		if cells *= len(items); cells > maxCells {
			p.At(v, "a matrix may have %d cells, this one has more", maxCells)
			return nil, false
		}
	}
	return values, ok
}

// excluded reads the combinations that a matrix leaves out.
func (p *parsing) excluded(m *matrix, long bool, v *document.Value) []map[string]any {
	if !long {
		return nil
	}
	var out []map[string]any
	for _, item := range p.List(v, "exclude") {
		if !p.Object(item, "an entry of exclude", m.axes) || len(item.Fields) == 0 {
			continue
		}
		entry := map[string]any{}
		for _, f := range item.Fields {
			value := normal(f.Value.Data())
			if f.Value.Kind == document.NumberValue {
				value = f.Value.Text
			}
			entry[f.Key] = value
		}
		out = append(out, entry)
	}
	return out
}

// combine returns the cells of all combinations of values but the excluded ones. The last axis changes first.
func (m *matrix) combine(values [][]any, excluded []map[string]any) []cell {
	var cells []cell
	names := map[string]int{}
	at := make([]int, len(values))
	for {
		c := cell{values: map[string]any{}}
		var parts []string
		for i, axis := range m.axes {
			c.values[axis] = values[i][at[i]]
			parts = append(parts, cellPart(values[i][at[i]]))
		}
		c.name = strings.Join(parts, ",")
		if len(c.name) > maxCellName {
			c.name = c.name[:maxCellName]
		}
		if names[c.name]++; names[c.name] > 1 {
			c.name = fmt.Sprintf("%s-%d", c.name, names[c.name])
		}
		if !slices.ContainsFunc(excluded, c.has) {
			cells = append(cells, c)
		}
		i := len(at) - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < len(values[i]) {
				break
			}
			at[i] = 0
		}
		if i < 0 {
			return cells
		}
	}
}

// has reports whether a cell has the values.
func (c cell) has(values map[string]any) bool {
	for axis, v := range values {
		if c.values[axis] != v {
			return false
		}
	}
	return true
}

// cellPart returns a value as a part of a name, which may be one of a file.
func cellPart(v any) string {
	part := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, plain(v))
	return cmp.Or(strings.Trim(part, ".-"), "x")
}

// cells is the progress of a node with a matrix.
type cells struct {
	next int   // index of the cell that is issued next
	done []any // results of the cells that ended, in order
	// failed is the step of the first cell that failed, or "".
	failed string
}

// ended takes the result of the cell that was issued last, in the step with an id. It reports whether another cell follows.
func (k *cells) ended(m *matrix, id string, r StepResult) bool {
	c := m.cells[k.next]
	k.next++
	entry := map[string]any{"name": c.name, "matrix": maps.Clone(c.values), "ok": r.OK, "error": r.Error}
	for _, key := range []string{"exit_code", "timed_out", "stdout", "stderr"} {
		if v, has := r.Output[key]; has {
			if text, is := v.(string); is {
				v = tail(text, maxCellText)
			}
			entry[key] = v
		}
	}
	k.done = append(k.done, entry)
	if !r.OK {
		k.failed = cmp.Or(k.failed, id)
	}
	return k.next < len(m.cells) && (k.failed == "" || !m.failFast)
}

// cellsKeys are the names of result.KEY after a node with a matrix, instead of those of the node's kind.
var cellsKeys = []string{"cells", "failed", "skipped_cells"}

// maxCellText bounds the end of an output that the result of a node with a matrix has of each cell, in bytes.
const maxCellText = 4 << 10

// tail returns the end of a text, from a whole character on.
func tail(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-most:], "")
}

// result returns the result of a node whose cells have ended.
func (k *cells) result(m *matrix) StepResult {
	var failed []any
	for _, entry := range k.done {
		if e := entry.(map[string]any); e["ok"] != true {
			failed = append(failed, e["name"])
		}
	}
	r := StepResult{OK: k.failed == "", Output: map[string]any{
		"cells": k.done, "failed": slices.Concat([]any{}, failed), "skipped_cells": int64(len(m.cells) - len(k.done))}}
	if !r.OK {
		var names []string
		for _, name := range failed {
			names = append(names, name.(string))
		}
		r.Error = fmt.Sprintf("%d of %d cells failed: %s", len(failed), len(m.cells), strings.Join(names, " "))
	}
	return r
}
