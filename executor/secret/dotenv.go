package secret

import (
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// Pair is a line of a .env file.
type Pair struct{ Name, Value string }

// ParseDotenv reads the text of a .env file: NAME=VALUE lines, with or without `export`, comments, and values in single
// or double quotes. Double quotes may have \n, \t, \" and \\, and may contain line breaks. Names are in capital letters. An
// error names the line and never the value.
func ParseDotenv(text string) ([]Pair, error) {
	var list []Pair
	seen := make(map[string]bool)
	for line, rest := 1, strings.ReplaceAll(text, "\r\n", "\n"); rest != ""; {
		first, after, _ := strings.Cut(rest, "\n")
		trimmed := strings.TrimSpace(first)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			line, rest = line+1, after
			continue
		}
		bad := func(format string, args ...any) error {
			return fmt.Errorf("%w .env file: line %d: %s", record.ErrInvalid, line, fmt.Sprintf(format, args...))
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(trimmed, "export "), "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok:
			return nil, bad("want NAME=VALUE")
		case !environment.ValidSecret(name):
			return nil, bad("a name has capital letters, digits and underscores")
		case seen[name]:
			return nil, bad("%s is set twice", name)
		}
		seen[name] = true
		value = strings.TrimLeft(value, " \t")
		lines := 1
		switch {
		case strings.HasPrefix(value, `"`), strings.HasPrefix(value, "'"):
			// A quoted value may go on in later lines.
			whole := value[1:]
			if after != "" {
				whole += "\n" + after
			}
			inner, left, closed := cutQuoted(whole, value[0])
			if !closed {
				return nil, bad("the quotes of %s are not closed", name)
			}
			lines += strings.Count(whole[:len(whole)-len(left)], "\n")
			end, next, _ := strings.Cut(left, "\n")
			if end = strings.TrimSpace(end); end != "" && !strings.HasPrefix(end, "#") {
				return nil, bad("there is text after the quotes of %s", name)
			}
			value, after = inner, next
		default:
			if i := strings.Index(value, " #"); i >= 0 {
				value = value[:i]
			}
			value = strings.TrimSpace(value)
		}
		list = append(list, Pair{name, value})
		line, rest = line+lines, after
	}
	return list, nil
}

// cutQuoted splits a text at the quote that closes a value.
func cutQuoted(text string, quote byte) (value, rest string, closed bool) {
	if quote == '\'' {
		return strings.Cut(text, "'")
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), text[i+1:], true
		case c == '\\' && i+1 < len(text):
			i++
			switch text[i] {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case '"', '\\', '$':
				b.WriteByte(text[i])
			default:
				b.WriteString(text[i-1 : i+1])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}
