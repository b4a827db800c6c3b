package document

import (
	"fmt"
	"strings"
	"testing"
)

// parse returns the value of a file without mistakes.
func parse(t *testing.T, text string) (*Document, *Value) {
	t.Helper()
	d, v := file.Parse("a.yaml", []byte(text))
	if v == nil || len(d.Problems) > 0 {
		t.Fatalf("%.200q: %v", text, d.Problems)
	}
	return d, v
}

// TestPlace looks up positions within the text of the key a.
func TestPlace(t *testing.T) {
	const literal = "a: |\n  one\n  two é three\nb: c\n"
	long := strings.Repeat("é", 300)
	for _, c := range []struct {
		name, text   string
		offset       int
		line, column int
	}{
		{"begin of plain text", "a: héllo wörld\n", 0, 1, 4},
		{"characters, not bytes", "a: héllo wörld\n", len("héllo "), 1, 10},
		{"end of plain text", "a: xyz", 3, 1, 7},
		{"after the end", "a: xyz", 99, 1, 7},
		{"before the begin", "a: xyz", -1, 1, 4},
		{"second line of the file", "b: c\na: xyz\n", 1, 2, 5},
		{"below a key", "b: c\na:\n  xyz\n", 1, 3, 4},
		{"single quotes", "a: 'xyz'\n", 1, 1, 6},
		{"double quotes", "a: \"xyz\"\n", 2, 1, 7},
		{"before an escape", `a: "xy\tz"`, 2, 1, 7},
		{"after an escape", `a: "xy\tz"`, 3, 1, 4},
		{"after an escaped line break", `a: "x\ny"`, 2, 1, 4},
		{"after a folded line", "a: x\n  y\n", 2, 1, 4},
		{"block", literal, 0, 2, 3},
		{"end of a line of a block", literal, 3, 2, 6},
		{"second line of a block", literal, 4, 3, 3},
		{"within a line of a block", literal, len("one\ntwo é "), 3, 9},
		{"end of a block", literal, len("one\ntwo é three\n"), 4, 1},
		{"block with indented text", "a: |\n  x\n    y\n", 4, 3, 5},
		{"block at the end of the file", "a: |\n  x", 1, 2, 4},
		{"begin of folded text", "a: >\n  one\n  two\n", 0, 1, 4},
		{"within folded text", "a: >\n  one\n  two\n", 4, 1, 4},
		{"long line", "a: " + long + "x\n", 600, 1, 304},
		{"long line, at a step", "a: " + long + "x\n", 2 * runeStep, 1, 4 + runeStep},
		{"long line, steps within characters", "a: x" + long + "y\n", 601, 1, 305},
		{"long line, one step", "a: " + strings.Repeat("x", runeStep) + "\n", runeStep, 1, 4 + runeStep},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, v := parse(t, c.text)
			if line, column := d.Place(v.Get("a"), c.offset); line != c.line || column != c.column {
				t.Errorf("offset %d is at %d:%d, want %d:%d", c.offset, line, column, c.line, c.column)
			}
		})
	}
}

// TestPlaceInAnyOrder looks up positions of several values, forwards and backwards.
func TestPlaceInAnyOrder(t *testing.T) {
	d, v := parse(t, "a: [é, ü, zz]\nb: ['é', xy]\n")
	a, b := v.Get("a").Items, v.Get("b").Items
	for i, c := range []struct {
		of     *Value
		offset int
		want   string
	}{
		{a[2], 1, "1:12"}, {a[0], 0, "1:5"}, {a[1], 0, "1:8"}, {b[1], 1, "2:11"}, {a[2], 0, "1:11"}, {b[0], 0, "2:6"},
		{b[0], len("é"), "2:7"}, {b[1], 0, "2:10"},
	} {
		line, column := d.Place(c.of, c.offset)
		if got := fmt.Sprintf("%d:%d", line, column); got != c.want {
			t.Errorf("look-up %d: offset %d of %q is at %s, want %s", i, c.offset, c.of.Text, got, c.want)
		}
	}
}

// TestPlaceOfImplied checks that a text that is not in the file has the position that it was given.
func TestPlaceOfImplied(t *testing.T) {
	d, _ := parse(t, "a: xyz\n")
	for _, at := range [][2]int{{1, 4}, {1, 99}, {99, 5}, {0, 1}} {
		v := Implied("xyz", at[0], at[1])
		if v.Kind != StringValue || v.Text != "xyz" {
			t.Errorf("%+v", v)
		}
		for offset := range 4 {
			if line, column := d.Place(v, offset); line != at[0] || column != at[1] {
				t.Errorf("offset %d is at %d:%d, want %v", offset, line, column, at)
			}
		}
	}
}

// TestWithin checks that a mistake within a text shows its line and its column.
func TestWithin(t *testing.T) {
	d, v := parse(t, "a: |\n  one\n  two\n")
	d.Within(v.Get("a"), 5, "cannot read %q", "wo")
	if got, want := d.Problems.Error(), "a.yaml:3:4: cannot read \"wo\"\n      two\n       ^"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
