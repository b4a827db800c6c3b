package browser

import (
	"bytes"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/tasks/document"
)

// specFile is the format of a spec. It bounds the bytes far above those that people write.
var specFile = document.Format{
	Noun: "spec", Needs: "write {} for a check with all defaults", MaxBytes: 256 << 10,
}

// Keys of the mappings of a spec. The JSON Schema has the same, and a test compares both.
var (
	specKeys = []string{"name", "install", "start", "dir", "url", "wait", "timeout", "viewports", "steps", "auth", "allow",
		"screenshot", "video", "pdf", "compare", "clock"}
	viewportKeys = []string{"name", "width", "height", "scale", "mobile"}
	stepKeys     = []string{"value", "in", "secret", "timeout"} // in addition to the action
	allowKeys    = []string{"console", "page_errors", "requests"}
	shotKeys     = []string{"full_page", "selector", "mask"}
	againstKeys  = []string{"base", "max_changed", "region", "threshold"}
)

// Parse reads a spec from YAML or JSON, and sets every default except URL and Start. name is the name of the file in
// messages, and the source of Name's default. The error has all mistakes, with line and column if they have any. It is
// then a [document.Problems].
func Parse(name string, text []byte) (Spec, error) {
	if json.Valid(text) {
		// JSON may be indented with tabs, which YAML forbids. Strings of JSON contain no tabs.
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" "))
	}
	d, root := specFile.Parse(name, text)
	r := &reader{Document: d, places: map[string]*document.Value{}, wrong: map[string]bool{}}
	var s Spec
	if root != nil {
		s = r.spec(root)
		if s.Name == "" && !r.wrong["name"] {
			s.Name = fileName(name)
		}
		s.fill()
		for _, m := range s.mistakes() {
			if !r.reported(m.at) {
				r.At(r.valueAt(m.at), "%s", m.text)
			}
		}
	}
	if len(d.Problems) > 0 {
		return Spec{}, d.Mistakes()
	}
	return s, nil
}

// fileName returns a file's name without its folder and its extension.
func fileName(name string) string {
	base := path.Base(name)
	return strings.TrimSuffix(base, path.Ext(base))
}

// reader makes a Spec from a document. It checks the kinds of values, and keeps their positions for later mistakes.
type reader struct {
	*document.Document
	places map[string]*document.Value // by path, "steps.3.timeout"
	wrong  map[string]bool            // paths that could not be read, whose mistake is known
}

// note keeps the position of a value, and whether reading it made a mistake.
func note[T any](r *reader, at string, v *document.Value, read func() T) T {
	if v != nil {
		r.places[at] = v
	}
	before := len(r.Problems)
	got := read()
	if len(r.Problems) > before || v != nil && v.Kind == document.BrokenValue {
		r.wrong[at] = true
	}
	return got
}

// reported reports whether a path, or one above it, has a mistake already.
func (r *reader) reported(at string) bool {
	for {
		if r.wrong[at] {
			return true
		}
		i := strings.LastIndexByte(at, '.')
		if i < 0 {
			return false
		}
		at = at[:i]
	}
}

// valueAt returns the value at a path, or the nearest value above it.
func (r *reader) valueAt(at string) *document.Value {
	for {
		if v := r.places[at]; v != nil {
			return v
		}
		at = at[:max(strings.LastIndexByte(at, '.'), 0)]
	}
}

func (r *reader) text(v *document.Value, at string) string {
	return note(r, at, v, func() string { return r.Text(v, inWords(at)) })
}

func (r *reader) flag(v *document.Value, at string) bool {
	return note(r, at, v, func() bool { return r.Flag(v, inWords(at), false) })
}

func (r *reader) number(v *document.Value, at string) float64 {
	return note(r, at, v, func() float64 { return r.Number(v, inWords(at), 0) })
}

func (r *reader) integer(v *document.Value, at string) int {
	const far = 1 << 30 // the field has its own bounds; this one keeps the value an int
	return note(r, at, v, func() int { return r.Integer(v, inWords(at), -far, far, 0) })
}

func (r *reader) duration(v *document.Value, at string) Duration {
	return note(r, at, v, func() Duration {
		if v == nil {
			return 0
		}
		if v.Kind == document.NumberValue {
			r.At(v, "%s needs a unit: %ss or %sm", inWords(at), v.Text, v.Text)
			return 0
		}
		s := r.Text(v, inWords(at))
		d, err := time.ParseDuration(s)
		if err != nil && v.Kind == document.StringValue {
			r.At(v, `%s must be a duration with its unit, like "90s" or "2m", not %q`, inWords(at), s)
		}
		return Duration(d)
	})
}

func (r *reader) texts(v *document.Value, at string) []string {
	var list []string
	for i, item := range r.list(v, at) {
		list = append(list, r.text(item, child(at, i)))
	}
	return list
}

func (r *reader) integers(v *document.Value, at string) (all []int) {
	for i, item := range r.list(v, at) {
		all = append(all, r.integer(item, child(at, i)))
	}
	return all
}

func (r *reader) list(v *document.Value, at string) []*document.Value {
	return note(r, at, v, func() []*document.Value { return r.List(v, inWords(at)) })
}

func (r *reader) spec(v *document.Value) Spec {
	r.places[""] = v
	if !r.Object(v, "a spec", specKeys) {
		r.wrong[""] = true
		return Spec{}
	}
	s := Spec{
		Name: r.text(v.Get("name"), "name"), Install: r.text(v.Get("install"), "install"),
		Start: r.text(v.Get("start"), "start"), Dir: r.text(v.Get("dir"), "dir"), URL: r.text(v.Get("url"), "url"),
		Wait: r.duration(v.Get("wait"), "wait"), Timeout: r.duration(v.Get("timeout"), "timeout"),
		Auth: r.text(v.Get("auth"), "auth"), Video: r.flag(v.Get("video"), "video"), PDF: r.flag(v.Get("pdf"), "pdf"),
		Clock: r.text(v.Get("clock"), "clock"),
	}
	for i, item := range r.list(v.Get("viewports"), "viewports") {
		s.Viewports = append(s.Viewports, r.viewport(item, child("viewports", i)))
	}
	for i, item := range r.list(v.Get("steps"), "steps") {
		s.Steps = append(s.Steps, r.step(item, child("steps", i)))
	}
	if a := v.Get("allow"); r.Object(a, "allow", allowKeys) {
		s.Allow = Allow{
			Console:    r.texts(a.Get("console"), "allow.console"),
			PageErrors: r.texts(a.Get("page_errors"), "allow.page_errors"),
			Requests:   r.texts(a.Get("requests"), "allow.requests"),
		}
	}
	if a := v.Get("screenshot"); r.Object(a, "screenshot", shotKeys) {
		s.Screenshot = Shot{
			FullPage: r.flag(a.Get("full_page"), "screenshot.full_page"),
			Selector: r.text(a.Get("selector"), "screenshot.selector"),
			Mask:     r.texts(a.Get("mask"), "screenshot.mask"),
		}
	}
	if a := v.Get("compare"); a != nil {
		r.places["compare"] = a
		switch {
		case a.Kind == document.NullValue || a.Any == true:
			r.At(a, "compare must be a mapping; write compare: {} to compare with the commit at which the branch began")
		case r.Object(a, "compare", againstKeys):
			s.Compare = &Against{Base: r.text(a.Get("base"), "compare.base"),
				Threshold: r.number(a.Get("threshold"), "compare.threshold"),
				Region:    r.integers(a.Get("region"), "compare.region")}
			if m := a.Get("max_changed"); m != nil {
				share := r.number(m, "compare.max_changed")
				s.Compare.MaxChanged = &share
			}
		}
	}
	return s
}

func (r *reader) viewport(v *document.Value, at string) Viewport {
	r.places[at] = v
	if v.Kind == document.StringValue {
		known, ok := KnownViewport(v.Text)
		if !ok {
			names := []string{Desktop.Name, Mobile.Name}
			r.At(v, "%s: unknown viewport %q, known are %s%s", inWords(at), v.Text, strings.Join(names, ", "),
				document.Suggest(v.Text, names))
		}
		r.wrong[at] = !ok
		return known
	}
	if !r.Object(v, inWords(at), viewportKeys) {
		r.wrong[at] = true
		return Viewport{}
	}
	return Viewport{
		Name:  r.text(v.Get("name"), at+".name"),
		Width: r.integer(v.Get("width"), at+".width"), Height: r.integer(v.Get("height"), at+".height"),
		Scale: r.number(v.Get("scale"), at+".scale"), Mobile: r.flag(v.Get("mobile"), at+".mobile"),
	}
}

func (r *reader) step(v *document.Value, at string) (s Step) {
	r.places[at] = v
	if v.Kind != document.MapValue {
		r.At(v, "%s must be a mapping like {click: button}, not %s", inWords(at), document.KindOf(v))
		r.wrong[at] = true
		return s
	}
	before := len(r.Problems)
	r.Object(v, inWords(at), slices.Concat(actions, stepKeys))
	for _, f := range v.Fields {
		switch {
		case !slices.Contains(actions, f.Key):
		case s.Do != "":
			r.Problem(f.Line, f.Column, "%s has two actions, %s and %s: make them two steps", inWords(at), s.Do, f.Key)
		case f.Value.Kind == document.NullValue:
			s.Do = f.Key
			r.Problem(f.Line, f.Column,
				"%s of %s is missing; text that begins with # must be quoted, because YAML reads it as a comment",
				f.Key, inWords(at))
			r.wrong[at+"."+f.Key] = true
		default:
			s.Do = f.Key
			s.Target = r.text(f.Value, at+"."+f.Key)
		}
	}
	value := v.Get("value")
	switch {
	case s.Do == "":
		if len(r.Problems) == before {
			r.At(v, "%s has no action; it needs one of %s", inWords(at), strings.Join(actions, ", "))
		}
		r.wrong[at] = true
	case s.Do == "fill" && value == nil:
		r.At(v, `%s needs a value ("" empties the field)`, inWords(at))
	}
	if value != nil && (value.Kind == document.NumberValue || value.Kind == document.BoolValue) {
		// {expect_count: li, value: 3} is accepted.
		r.places[at+".value"] = value
		s.Value = value.Text
	} else {
		s.Value = r.text(value, at+".value")
	}
	s.In = r.text(v.Get("in"), at+".in")
	s.Secret = r.flag(v.Get("secret"), at+".secret")
	s.Timeout = r.duration(v.Get("timeout"), at+".timeout")
	return s
}
