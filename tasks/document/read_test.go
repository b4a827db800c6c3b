package document

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestRead reads values of each kind by each method, and names the mistake.
func TestRead(t *testing.T) {
	const text = "text: hello\nempty: ''\nflag: true\noff: false\nnumber: 7\nfraction: 1.5\nlist: [a, b]\nmap: {nmae: 1}\nnothing:\n"
	object := func(known ...string) func(*Document, *Value) any {
		return func(d *Document, v *Value) any { return d.Object(v, "x", known) }
	}
	integer := func(least, most int) func(*Document, *Value) any {
		return func(d *Document, v *Value) any { return d.Integer(v, "x", least, most, 9) }
	}
	choice := func(from ...string) func(*Document, *Value) any {
		return func(d *Document, v *Value) any { return d.Choice(v, "x", from, "other") }
	}
	read := func(d *Document, v *Value) any { return d.Text(v, "x") }
	flag := func(otherwise bool) func(*Document, *Value) any {
		return func(d *Document, v *Value) any { return d.Flag(v, "x", otherwise) }
	}
	items := func(d *Document, v *Value) any { return len(d.List(v, "x")) }
	number := func(d *Document, v *Value) any { return d.Number(v, "x", 2.5) }
	for _, c := range []struct {
		key  string
		read func(*Document, *Value) any
		want any
		says string // the mistake with its position; empty if there is none
	}{
		{"missing", object("a"), false, ""},
		{"map", object("nmae"), true, ""},
		{"map", object("name"), true, `8:7: x has no key "nmae"; did you mean "name"?`},
		{"map", object("run", "when"), true, `8:7: x has no key "nmae"; it has run, when`},
		{"list", object("a"), false, "7:7: x must be a mapping, not a list"},

		{"missing", read, "", ""},
		{"text", read, "hello", ""},
		{"empty", read, "", ""},
		{"number", read, "", "5:9: x must be text, not 7"},
		{"nothing", read, "", "x must be text, not nothing"},

		{"missing", flag(true), true, ""},
		{"missing", flag(false), false, ""},
		{"flag", flag(false), true, ""},
		{"off", flag(true), false, ""},
		{"text", flag(true), false, `1:7: x must be true or false, not the text "hello"`},

		{"missing", integer(1, 8), 9, ""},
		{"number", integer(7, 7), 7, ""},
		{"number", integer(8, 9), 9, "5:9: x must be at least 8"},
		{"number", integer(1, 6), 9, "5:9: x must be at most 6"},
		{"fraction", integer(1, 8), 9, "6:11: x must be a whole number, not 1.5"},
		{"list", integer(1, 8), 9, "7:7: x must be a whole number, not a list"},

		{"missing", choice("hello"), "other", ""},
		{"empty", choice("hello"), "other", ""},
		{"text", choice("world", "hello"), "hello", ""},
		{"text", choice("world", "hallo"), "other", `1:7: x must be one of world, hallo, not "hello"; did you mean "hallo"?`},
		{"flag", choice("hello"), "other", "3:7: x must be text, not true or false"},

		{"missing", items, 0, ""},
		{"list", items, 2, ""},
		{"map", items, 0, "x must be a list, not a mapping"},

		{"missing", number, 2.5, ""},
		{"number", number, 7.0, ""},
		{"fraction", number, 1.5, ""},
		{"text", number, 2.5, `1:7: x must be a number, not the text "hello"`},
	} {
		t.Run(c.key, func(t *testing.T) {
			d, v := parse(t, text)
			if got := c.read(d, v.Get(c.key)); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			var said []string
			for _, p := range d.Problems {
				said = append(said, fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message))
			}
			if got := strings.Join(said, "\n"); (got == "") != (c.says == "") || !strings.HasSuffix(got, c.says) {
				t.Errorf("says %q, want %q", got, c.says)
			}
		})
	}
}

func TestKindOf(t *testing.T) {
	x40 := strings.Repeat("x", 40)
	for _, c := range []struct {
		v    Value
		want string
	}{
		{Value{Kind: NullValue}, "nothing"},
		{Value{Kind: BoolValue, Text: "true"}, "true or false"},
		{Value{Kind: NumberValue, Text: "0x10"}, "0x10"},
		{Value{Kind: StringValue}, "text"},
		{Value{Kind: StringValue, Text: x40}, `the text "` + x40 + `"`},
		{Value{Kind: StringValue, Text: x40 + "x"}, "text"},
		{Value{Kind: StringValue, Text: "a\nb"}, "text"},
		{Value{Kind: ListValue}, "a list"},
		{Value{Kind: MapValue}, "a mapping"},
		{Value{Kind: BrokenValue}, "nothing"},
	} {
		if got := KindOf(&c.v); got != c.want {
			t.Errorf("KindOf(%+v) = %q, want %q", c.v, got, c.want)
		}
	}
}

func TestGetAndData(t *testing.T) {
	_, v := parse(t, "a: {b: [1, x, true, null, 1.5]}\nc: ''\n")
	if b := v.Get("a").Get("b"); b == nil || len(b.Items) != 5 {
		t.Errorf("%+v", b)
	}
	if v.Get("b") != nil || v.Get("b").Get("c") != nil {
		t.Error("a missing key has a value")
	}
	want := map[string]any{"a": map[string]any{"b": []any{int64(1), "x", true, nil, 1.5}}, "c": ""}
	if got := v.Data(); !reflect.DeepEqual(got, want) {
		t.Errorf("%#v, want %#v", got, want)
	}
}
