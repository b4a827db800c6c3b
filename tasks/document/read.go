package document

import (
	"slices"
	"strings"
)

// Object checks that v is a mapping with only known keys.
func (d *Document) Object(v *Value, what string, known []string) bool {
	if v == nil {
		return false
	}
	if v.Kind != MapValue {
		d.At(v, "%s must be a mapping, not %s", what, KindOf(v))
		return false
	}
	for _, f := range v.Fields {
		if !slices.Contains(known, f.Key) {
			hint := Suggest(f.Key, known)
			if hint == "" {
				hint = "; it has " + strings.Join(known, ", ")
			}
			d.Problem(f.Line, f.Column, "%s has no key %q%s", what, f.Key, hint)
		}
	}
	return true
}

// Text returns a value that must be text. Returns "" if it is missing or of another kind.
func (d *Document) Text(v *Value, what string) string {
	switch {
	case v == nil:
		return ""
	case v.Kind != StringValue:
		d.At(v, "%s must be text, not %s", what, KindOf(v))
		return ""
	}
	return v.Text
}

// Flag returns a value that must be true or false. Returns otherwise if it is missing.
func (d *Document) Flag(v *Value, what string, otherwise bool) bool {
	if v == nil {
		return otherwise
	}
	b, ok := v.Any.(bool)
	if !ok {
		d.At(v, "%s must be true or false, not %s", what, KindOf(v))
	}
	return b
}

// Integer returns a whole number from least to most. Returns otherwise if it is missing or not such a number.
func (d *Document) Integer(v *Value, what string, least, most, otherwise int) int {
	if v == nil {
		return otherwise
	}
	i, ok := v.Any.(int64)
	switch {
	case !ok:
		d.At(v, "%s must be a whole number, not %s", what, KindOf(v))
	case i < int64(least):
		d.At(v, "%s must be at least %d", what, least)
	case i > int64(most):
		d.At(v, "%s must be at most %d", what, most)
	default:
		return int(i)
	}
	return otherwise
}

// Choice returns a text that must be among from. Returns otherwise if it is missing or another text.
func (d *Document) Choice(v *Value, what string, from []string, otherwise string) string {
	s := d.Text(v, what)
	if v == nil || s == "" {
		return otherwise
	}
	if !slices.Contains(from, s) {
		d.At(v, "%s must be one of %s, not %q%s", what, strings.Join(from, ", "), s, Suggest(s, from))
		return otherwise
	}
	return s
}

// List returns the items of a value that must be a list. Returns nil if it is missing or of another kind.
func (d *Document) List(v *Value, what string) []*Value {
	if v == nil {
		return nil
	}
	if v.Kind != ListValue {
		d.At(v, "%s must be a list, not %s", what, KindOf(v))
		return nil
	}
	return v.Items
}

// Number returns a number. Returns otherwise if it is missing or of another kind.
func (d *Document) Number(v *Value, what string, otherwise float64) float64 {
	if v == nil {
		return otherwise
	}
	switch n := v.Any.(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	}
	d.At(v, "%s must be a number, not %s", what, KindOf(v))
	return otherwise
}
