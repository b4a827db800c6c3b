package workflow

import (
	"path"
	"slices"

	"github.com/ramus-dev/ramus/tasks/document"
)

// maxPatterns bounds the patterns of branches of one workflow.
const maxPatterns = 100

// On says which events start a workflow.
type On struct {
	// Push is set if pushes of branches start it.
	Push bool
	// Branches are patterns of [path.Match] for the branches whose pushes count. Empty means all branches.
	Branches []string
}

// Matches reports whether a push of a branch starts the workflow.
func (o On) Matches(branch string) bool {
	return o.Push && (len(o.Branches) == 0 || slices.ContainsFunc(o.Branches, func(p string) bool {
		ok, err := path.Match(p, branch)
		return ok && err == nil
	}))
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
	list := push.Get("branches")
	if list == nil {
		return on
	}
	items := d.List(list, "branches")
	if len(items) == 0 || len(items) > maxPatterns {
		d.At(list, "branches must have 1 to %d patterns, and without it all branches count", maxPatterns)
		return on
	}
	for _, item := range items {
		p := d.Text(item, "a pattern of branches")
		if _, err := path.Match(p, ""); err != nil || p == "" {
			d.At(item, "%q is no pattern of branches", p)
		}
		on.Branches = append(on.Branches, p)
	}
	return on
}
