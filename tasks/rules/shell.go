package rules

import (
	"path"
	"slices"
	"strings"
)

// Bounds of the commands that are found in one command line.
const (
	maxCommands = 1000
	maxDepth    = 8 // of shells in shells
)

// Shell returns the commands that a line of sh names, as far as they can be read without running it: those between
// operators, in substitutions, after words such as if and env, and in the arguments of sh -c and eval. It reads
// conservatively. A word whose value the shell makes is [Word.Unknown]. An empty command is in place of the rest of a line
// that has too many commands, or shells in too many shells.
func Shell(line string) []Command {
	f := &finder{}
	f.line(line, 0)
	return f.list
}

// Started returns the commands that an argument vector starts: itself, and the commands in it, such as the argument of
// sh -c.
func Started(args []string) []Command {
	f := &finder{}
	f.add(Vector(args...), 0)
	return f.list
}

// finder collects commands.
type finder struct {
	list []Command
	full bool
}

// unreadable adds an empty command in place of all further ones.
func (f *finder) unreadable() {
	if !f.full {
		f.list, f.full = append(f.list, nil), true
	}
}

// add adds a command, and those that it is known to start.
func (f *finder) add(c Command, depth int) {
	for len(c) > 0 && !c[0].Unknown && (assigns(c[0].Text) || slices.Contains(keywords, c[0].Text)) {
		c = c[1:]
	}
	switch {
	case len(c) == 0 || f.full:
		return
	case depth > maxDepth || len(f.list) >= maxCommands:
		f.unreadable()
		return
	}
	f.list = append(f.list, c)
	name := path.Base(c[0].Text)
	switch {
	case slices.Contains(shells, name):
		f.script(c[1:], depth)
	case name == "eval":
		f.line(c[1:].String(), depth+1)
	case slices.Contains(wrappers, name):
		// The options of a wrapper have values of their own, so each later word may be the program.
		for i := 1; i < len(c) && i <= maxWrapped; i++ {
			if w := c[i]; !strings.HasPrefix(w.Text, "-") && !assigns(w.Text) {
				f.add(c[i:], depth+1)
			}
		}
	}
}

// maxWrapped is the number of words in which the command of a wrapper is looked for.
const maxWrapped = 12

var (
	keywords = []string{"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done", "time", "esac"}
	shells   = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"}
	wrappers = []string{"env", "exec", "command", "builtin", "nohup", "nice", "ionice", "timeout", "xargs", "sudo", "doas", "setsid",
		"stdbuf", "strace", "time", "find", "parallel", "watch", "chroot", "unshare", "busybox", "script", "flock"}
)

// script adds the commands of the text after -c.
func (f *finder) script(args Command, depth int) {
	for i, a := range args {
		if !a.Unknown && strings.HasPrefix(a.Text, "-") && !strings.HasPrefix(a.Text, "--") && strings.Contains(a.Text, "c") {
			for _, text := range args[i+1:] {
				if !strings.HasPrefix(text.Text, "-") {
					f.line(text.Text, depth+1)
					return
				}
			}
		}
	}
}

// assigns reports whether a word assigns a variable.
func assigns(w string) bool {
	name, _, ok := strings.Cut(w, "=")
	return ok && name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9')
	})
}

// line adds the commands of a line of sh.
func (f *finder) line(s string, depth int) {
	if depth > maxDepth {
		f.unreadable()
		return
	}
	l := &lexer{f: f, depth: depth}
	l.scan(s)
	l.end()
}

// lexer makes commands of the characters of a line.
type lexer struct {
	f       *finder
	depth   int
	command Command
	word    strings.Builder
	begun   bool // there is a word, which may be empty
	quoted  bool // a part of the word is in quotes, or after a backslash
	unknown bool
	file    bool // the word is the name of a file, after < or >
	// joined is the command before &>. For bash, the words after the name of the file belong to it.
	joined Command
}

// space ends a word.
func (l *lexer) space() {
	if l.begun && !l.file {
		l.command = append(l.command, Word{l.word.String(), l.unknown})
	}
	if l.begun {
		l.file = false
	}
	l.word.Reset()
	l.begun, l.quoted, l.unknown = false, false, false
}

// redirect ends a word, which is the number of a descriptor if it is one. The next word is the name of a file.
func (l *lexer) redirect() {
	if !l.quoted && !l.unknown && strings.Trim(l.word.String(), "0123456789") == "" {
		l.word.Reset()
		l.begun = false
	}
	l.space()
	l.file = true
}

// end ends a command.
func (l *lexer) end() {
	l.space()
	l.f.add(l.command, l.depth)
	if len(l.joined) > 0 && len(l.command) > 0 {
		l.f.add(slices.Concat(l.joined, l.command), l.depth)
	}
	l.command, l.joined, l.file = nil, nil, false
}

// join ends a command at &>, which ends it for sh. For bash it goes on.
func (l *lexer) join() {
	l.space()
	var joined Command
	if !l.f.full {
		joined = slices.Concat(l.joined, l.command)
	}
	l.end()
	l.joined = joined
}

func (l *lexer) put(c byte) {
	l.word.WriteByte(c)
	l.begun = true
}

// scan reads characters outside of quotes, and the rest of the line after an operator.
func (l *lexer) scan(s string) {
	double := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\':
			if i++; i < len(s) && s[i] != '\n' {
				l.put(s[i])
				l.quoted = true
			}
		case c == '\'' && !double:
			n := strings.IndexByte(s[i+1:], '\'')
			if n < 0 {
				n = len(s) - i - 1
			}
			l.word.WriteString(s[i+1 : i+1+n])
			l.begun, l.quoted = true, true
			i += n + 1
		case c == '"':
			double, l.begun, l.quoted = !double, true, true
		case c == '$' && i+1 < len(s) && s[i+1] == '(':
			i += 2 + l.substitution(s[i+2:], '(', ')')
		case c == '`':
			i += 1 + l.substitution(s[i+1:], 0, '`')
		case c == '$' && i+1 < len(s) && (s[i+1] == '\'' || s[i+1] == '"') && !double:
			l.unknown = true // $'…' has escapes of its own
		case c == '$':
			l.unknown = true
			l.put(c)
		case double:
			l.put(c)
		case strings.IndexByte("*?[~", c) >= 0:
			l.unknown = true
			l.put(c)
		case c == '{' && l.begun, c == '}' && l.begun:
			l.unknown = true
			l.put(c)
		case c == '&' && i+1 < len(s) && s[i+1] == '>':
			l.join()
		case strings.IndexByte(";|&\n()", c) >= 0:
			l.end()
		case (c == '<' || c == '>') && i+1 < len(s) && s[i+1] == '(': // for bash, the name of a pipe
			i += 2 + l.substitution(s[i+2:], '(', ')')
		case c == '<' || c == '>':
			l.redirect()
			if i+1 < len(s) && s[i+1] == '&' {
				i++
			}
		case c == ' ' || c == '\t' || c == '\r':
			l.space()
		case c == '#' && !l.begun:
			n := strings.IndexByte(s[i:], '\n')
			if n < 0 {
				return
			}
			i += n - 1
		default:
			l.put(c)
		}
	}
}

// substitution adds the commands of a substitution, and returns its length without the closing character. Its value is
// unknown.
func (l *lexer) substitution(s string, open, shut byte) int {
	l.unknown, l.begun = true, true
	level, n, double := 1, 0, false
	for ; n < len(s); n++ {
		switch c := s[n]; {
		case c == '\\':
			n++
		case c == '"' && shut == ')':
			double = !double
		case double:
		case c == '\'' && shut == ')':
			if k := strings.IndexByte(s[n+1:], '\''); k >= 0 {
				n += k + 1
			}
		case c == shut:
			level--
		case open != 0 && c == open:
			level++
		}
		if level == 0 {
			break
		}
	}
	n = min(n, len(s))
	l.f.line(s[:n], l.depth+1)
	return n
}
