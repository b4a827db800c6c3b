package workflow

import (
	"slices"

	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/document"
)

// maxPatterns bounds the patterns of branches, and those of paths, of one workflow.
const maxPatterns = 100

// On says which events start a workflow.
type On struct {
	// Push is set if pushes of branches start it.
	Push bool
	// Branches are patterns of [tasks.ParseGlob] for the branches whose pushes count. Empty means all branches.
	Branches []string
	// Paths are such patterns for files. A push that changes none of them does not count. Empty means that all pushes count.
	Paths []string
}

// Matches reports whether a push of a branch starts the workflow, if it changes files that [On.Touches] takes.
func (o On) Matches(branch string) bool {
	return o.Push && (len(o.Branches) == 0 || matchesAny(o.Branches, branch))
}

// Touches reports whether one of the changed files counts.
func (o On) Touches(changed []string) bool {
	return len(o.Paths) == 0 || matchesAny(o.Paths, changed...)
}

// matchesAny reports whether a name matches a pattern.
func matchesAny(patterns []string, names ...string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		g, err := tasks.ParseGlob(p)
		return err == nil && slices.ContainsFunc(names, g.Match)
	})
}

// ReadOn reads the events of a workflow file, and nothing else of it. A file without events is no mistake, and has the
// zero value. The error is of type Problems.
func ReadOn(name string, data []byte) (On, error) {
	d, root := workflowFile.Parse(name, data)
	var on On
	if root != nil && root.Kind == document.MapValue {
		if v := root.Get("on"); v != nil {
			on = readOn(d, v)
		}
	}
	if len(d.Problems) > 0 {
		return On{}, d.Mistakes()
	}
	return on, nil
}

// readOn reads the key "on", which is the word push, or a mapping.
func readOn(d *document.Document, v *document.Value) On {
	if v.Kind == document.StringValue {
		d.Choice(v, "on", onKeys, "push")
		return On{Push: true}
	}
	if !d.Object(v, "on", onKeys) {
		return On{}
	}
	on, push := On{}, (*document.Value)(nil)
	for _, f := range v.Fields {
		on.Push, push = true, f.Value
	}
	if push == nil || push.Kind == document.NullValue || !d.Object(push, "push", pushKeys) {
		return on
	}
	on.Branches, on.Paths = readPatterns(d, push, "branches"), readPatterns(d, push, "paths")
	return on
}

// readPatterns reads a list of patterns.
func readPatterns(d *document.Document, push *document.Value, key string) (patterns []string) {
	list := push.Get(key)
	if list == nil {
		return nil
	}
	items := d.List(list, key)
	if len(items) == 0 || len(items) > maxPatterns {
		d.At(list, "%s must have 1 to %d patterns, and without it all %s count", key, maxPatterns, key)
		return nil
	}
	for _, item := range items {
		p := d.Text(item, "a pattern of "+key)
		if _, err := tasks.ParseGlob(p); err != nil || p == "" {
			d.At(item, "%.200q is no pattern of %s", p, key)
		}
		patterns = append(patterns, p)
	}
	return patterns
}
