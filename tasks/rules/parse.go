package rules

import (
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/tasks/document"
)

// MaxBytes is the size of the largest file.
const MaxBytes = 64 << 10

// Bounds of a file.
const (
	maxRules    = 200
	maxPatterns = 50 // of one rule
	maxWords    = 50 // of one pattern
	maxText     = 1 << 10
	maxWho      = 50
)

var format = document.Format{Noun: "rule file", Needs: "a rule file needs a list of rules", MaxBytes: MaxBytes}

var ruleKeys = []string{"run", "then", "reason", "who"}

// Parse reads a file. name is the name of the file in mistakes. The error has all mistakes, with line and column, and is
// then a [document.Problems]. A file with nothing but comments has no rules.
func Parse(name string, text []byte) (Set, error) {
	if format.Blank(text) {
		return Set{}, nil
	}
	d, root := format.Parse(name, text)
	r := reader{d}
	var s Set
	if root != nil && r.Object(root, "the rule file", []string{"rules"}) {
		s.Rules = r.rules(root)
	}
	if len(d.Problems) > 0 {
		return Set{}, d.Mistakes()
	}
	return s, nil
}

type reader struct{ *document.Document }

func (r reader) rules(root *document.Value) (list []Rule) {
	v := root.Get("rules")
	if v == nil {
		r.At(root, "the rule file has no key rules")
		return nil
	}
	items := r.List(v, "rules")
	if len(items) > maxRules {
		r.At(v, "rules has %d entries; at most %d are possible", len(items), maxRules)
		return nil
	}
	for i, item := range items {
		at := fmt.Sprintf("rules.%d", i)
		if !r.Object(item, at, ruleKeys) {
			continue
		}
		rule := Rule{Line: item.Line, Reason: r.text(item.Get("reason"), at+".reason")}
		rule.Then = Answer(r.Choice(item.Get("then"), at+".then", []string{string(Allow), string(Ask), string(Deny)}, ""))
		if item.Get("then") == nil {
			r.At(item, "%s has no key then; want allow, ask or deny", at)
		}
		for _, p := range r.texts(item.Get("run"), at+".run", maxPatterns) {
			if words := r.pattern(p, at+".run"); words != nil {
				rule.Run = append(rule.Run, words)
			}
		}
		if item.Get("run") == nil {
			r.At(item, "%s has no key run; want a command such as \"git push\"", at)
		}
		for _, w := range r.texts(item.Get("who"), at+".who", maxWho) {
			rule.Who = append(rule.Who, r.text(w, at+".who"))
		}
		if len(rule.Who) > 0 && rule.Then != Ask {
			r.At(item.Get("who"), "%s.who has an effect only with `then: ask`", at)
		}
		list = append(list, rule)
	}
	return list
}

// texts returns the items of a list. A single text is a list of one.
func (r reader) texts(v *document.Value, at string, most int) []*document.Value {
	if v == nil || v.Kind == document.NullValue {
		return nil
	}
	if v.Kind == document.StringValue {
		return []*document.Value{v}
	}
	list := r.List(v, at)
	switch {
	case len(list) > most:
		r.At(v, "%s has %d entries; at most %d are possible", at, len(list), most)
		return nil
	case len(list) == 0:
		r.At(v, "%s is empty", at)
	}
	return list
}

// text returns a text of one line.
func (r reader) text(v *document.Value, at string) string {
	s := strings.TrimSpace(r.Text(v, at))
	switch {
	case v == nil:
	case s == "":
		r.At(v, "%s is empty", at)
	case len(s) > maxText:
		r.At(v, "%s has %d bytes; at most %d are possible", at, len(s), maxText)
	case strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }):
		r.At(v, "%s has a control character", at)
	default:
		return s
	}
	return ""
}

// pattern returns the words of a pattern. They are quoted as in a shell.
func (r reader) pattern(v *document.Value, at string) Pattern {
	s := r.text(v, at)
	if s == "" {
		return nil
	}
	words, ok := fields(s)
	switch {
	case !ok:
		r.At(v, "%s: a quote does not end", at)
	case len(words) > maxWords:
		r.At(v, "%s has %d words; at most %d are possible", at, len(words), maxWords)
	case len(words) == 0 || words[0] == "" || words[0] == rest || strings.HasSuffix(words[0], "/"):
		r.At(v, "%s: %q begins with no program", at, s)
	default:
		return words
	}
	return nil
}

// fields splits a text at spaces. Quotes and backslashes are those of a shell. It returns false if a quote does not end.
func fields(s string) (list []string, ok bool) {
	var word strings.Builder
	in, begun := byte(0), false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case in != 0 && c == in:
			in = 0
		case in == 0 && (c == '\'' || c == '"'):
			in, begun = c, true
		case in != '\'' && c == '\\' && i+1 < len(s):
			i++
			word.WriteByte(s[i])
			begun = true
		case in == 0 && (c == ' ' || c == '\t'):
			if begun {
				list = append(list, word.String())
				word.Reset()
				begun = false
			}
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if begun {
		list = append(list, word.String())
	}
	return list, in == 0
}
