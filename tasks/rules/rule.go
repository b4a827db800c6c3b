package rules

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Path is the place of the file in a repository. It is read from the base, never from a branch under work.
const Path = ".ramus/rules.yaml"

// Answer is the decision of a rule about a command.
type Answer string

// The answers.
const (
	Allow Answer = "allow"
	Ask   Answer = "ask" // a person decides
	Deny  Answer = "deny"
)

// Rule is one entry of a file.
type Rule struct {
	// Run has patterns of commands. Each is a list of words, see [Pattern].
	Run []Pattern `json:"run"`
	// Then is the answer for a command that one of the patterns matches.
	Then Answer `json:"then"`
	// Reason is shown to people and to the command. It may be empty.
	Reason string `json:"reason,omitempty"`
	// Who lists the people who may answer. Empty means everybody who may answer questions of the run.
	Who []string `json:"who,omitempty"`
	// Line is the line of the rule in its file, from 1. It is 0 for a rule that is in no file.
	Line int `json:"line,omitempty"`
}

// Name returns a name of the rule for people, which is its first pattern.
func (r *Rule) Name() string {
	if len(r.Run) == 0 {
		return string(r.Then)
	}
	return r.Run[0].String()
}

// ID returns a text that is different for rules that are.
func (r *Rule) ID() string { return fmt.Sprint(r.Then, r.Run, r.Who, r.Reason) }

// Pattern matches commands. The first word matches the name of a program, and its path if the word has a slash. The
// other words match its arguments, one by one. In a word, * matches any text and ? one character. The word ... matches
// any number of arguments.
type Pattern []string

// rest is the word that matches any number of arguments.
const rest = "..."

// String returns the words of the pattern.
func (p Pattern) String() string { return strings.Join(p, " ") }

// Set is the rules of a repository, in their order. The zero value allows everything. It is never changed.
type Set struct {
	Rules []Rule
	// Mistake has the mistakes of the file. A set with mistakes has one rule, which asks about every command.
	Mistake string
}

// Broken returns the set of a file with mistakes.
func Broken(mistake string) Set {
	return Set{Mistake: mistake, Rules: []Rule{{Run: []Pattern{{"*"}}, Then: Ask,
		Reason: "the rules of the base have a mistake, so every command needs a person"}}}
}

// Command is an argument vector. An argument may be text that is not known yet.
type Command []Word

// Word is one argument.
type Word struct {
	Text string
	// Unknown marks a word that the shell makes when the command runs, such as $1 or *.go. Text is then as it was written.
	Unknown bool
}

// Vector returns the command of an argument vector.
func Vector(args ...string) Command {
	c := make(Command, len(args))
	for i, a := range args {
		c[i] = Word{Text: a}
	}
	return c
}

// String returns the words of the command, with spaces between them.
func (c Command) String() string {
	words := make([]string, len(c))
	for i, w := range c {
		words[i] = w.Text
	}
	return strings.Join(words, " ")
}

// Judge returns the rule that decides on a command. Returns nil if there is none, and the command is allowed. An empty
// command could not be read. The first rule that does not allow decides on it.
func (s Set) Judge(c Command) *Rule {
	for i := range s.Rules {
		r := &s.Rules[i]
		if len(c) == 0 && r.Then != Allow || slices.ContainsFunc(r.Run, func(p Pattern) bool { return p.matches(c, r.Then != Allow) }) {
			return r
		}
	}
	return nil
}

// JudgeAll returns the rules that ask about commands, each once and in their order, and the first one that denies one.
func (s Set) JudgeAll(list []Command) (ask []*Rule, deny *Rule) {
	for _, c := range list {
		switch r := s.Judge(c); {
		case r == nil:
		case r.Then == Deny:
			return nil, r
		case r.Then == Ask && !slices.Contains(ask, r):
			ask = append(ask, r)
		}
	}
	return ask, nil
}

// Programs returns the words of all patterns that match the name of a program, each once and without folders. Only
// commands of such programs need a judgement.
func (s Set) Programs() (list []string) {
	for _, r := range s.Rules {
		for _, p := range r.Run {
			name := path.Base(p[0])
			if !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list
}

// matches reports whether the pattern matches a command. unknown is the answer for a word that is not known yet.
func (p Pattern) matches(c Command, unknown bool) bool {
	if len(p) == 0 || len(c) == 0 {
		return false
	}
	program := c[0]
	if !strings.Contains(p[0], "/") {
		program.Text = path.Base(program.Text)
	}
	return program.matches(p[0], unknown) && matchArguments(p[1:], c[1:], unknown)
}

// matches reports whether a word of a pattern matches the word.
func (w Word) matches(pattern string, unknown bool) bool {
	if w.Unknown {
		return unknown || pattern == "*"
	}
	return Glob(pattern, w.Text)
}

// matchArguments reports whether words of a pattern match the beginning of a list of arguments. It takes time
// proportional to the product of their lengths.
func matchArguments(words []string, args Command, unknown bool) bool {
	// mark is the last word ... that was met, and from the argument where its words were tried.
	w, a, mark, from := 0, 0, -1, 0
	for w < len(words) {
		switch {
		case words[w] == rest:
			mark, from = w, a
			w++
		case a < len(args) && args[a].matches(words[w], unknown):
			w, a = w+1, a+1
		case mark >= 0 && from < len(args):
			from++
			w, a = mark+1, from
		default:
			return false
		}
	}
	return true
}

// Glob reports whether a pattern matches a whole text. * matches any text, also with slashes and line breaks, and ? one
// byte. It takes time proportional to the product of their lengths.
func Glob(pattern, text string) bool {
	p, t, star, from := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p, t = p+1, t+1
		case star >= 0:
			from++
			p, t = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
