package chat

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Rule leads threads to a repository by words of their first mention.
type Rule struct {
	// Words are words or phrases. One of them in the text is enough. Case does not count.
	Words []string
	// Channels limits the rule to channels, by id. If it is empty, the rule is for all.
	Channels          []string
	Repo, Base, Agent string
}

// Limits of rules.
const (
	maxRules     = 100
	maxRuleWords = 50
	maxRuleText  = 8 << 10 // the part of a mention that rules look at, in bytes
)

// CheckRules returns an error if a rule cannot lead anywhere.
func CheckRules(rules []Rule) error {
	if len(rules) > maxRules {
		return fmt.Errorf("there are %d rules, at most %d", len(rules), maxRules)
	}
	for i, r := range rules {
		switch {
		case r.Repo == "":
			return fmt.Errorf("rule %d names no repo", i+1)
		case len(r.Words) == 0 || len(r.Words) > maxRuleWords:
			return fmt.Errorf("rule %d has %d words, want 1 to %d", i+1, len(r.Words), maxRuleWords)
		case slices.ContainsFunc(r.Words, func(w string) bool { return strings.TrimSpace(w) == "" || len(w) > 100 }):
			return fmt.Errorf("rule %d has a word that is empty or longer than 100 bytes", i+1)
		}
	}
	return nil
}

// findRule returns the first rule for a text in a channel. Returns the zero Rule if there is none.
func findRule(rules []Rule, channel, text string) Rule {
	text = strings.ToLower(text[:min(len(text), maxRuleText)])
	for _, r := range rules {
		if len(r.Channels) > 0 && !slices.Contains(r.Channels, channel) {
			continue
		}
		if slices.ContainsFunc(r.Words, func(w string) bool { return hasWord(text, strings.ToLower(strings.TrimSpace(w))) }) {
			return r
		}
	}
	return Rule{}
}

// hasWord reports whether a text has a word, and not only as a part of a longer one.
func hasWord(text, word string) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		at := from + i
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+len(word):])
		if !inWord(before) && !inWord(after) {
			return true
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		from = at + size
	}
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }
