package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/internal/text"
)

// Words is the text of a mention, parsed as a command. A text that is no command is for the agent.
type Words struct {
	// Verb is one of run, exec, test, lint, build, diff, log, status, why, merge, pr, stop, retry and help. It is empty
	// for plain words, which are for the agent.
	Verb string
	// Workflow and Input belong to run. Input is nil if no input is given.
	Workflow string
	Input    map[string]any
	// Command belongs to exec. It is the text of the code block, or the rest of the line.
	Command string
	// Args are the words of the other verbs: a pattern of test, "fix" of lint, a target of build, "--stat" of diff, a
	// number of log.
	Args []string
	// Into and Strategy belong to merge. They are empty if they are not given.
	Into     string
	Strategy gitd.Strategy
	// Repo, Base and Agent are the values of repo:NAME, base:BRANCH and agent:NAME. These options are removed from
	// Text.
	Repo, Base, Agent string
	// Text is the rest of the text, for the agent. A command has its whole text here too, in case the thing that it
	// names does not exist.
	Text string
}

const (
	// wordsMax limits the text of a mention, in bytes. The messages of Slack are limited to 40,000 characters.
	wordsMax  = 160 << 10
	inputsMax = 64
	logMax    = 100
)

// Mistake describes the error in a command and how to correct it. The text is for the person who wrote the command.
type Mistake struct{ Text string }

func (m *Mistake) Error() string { return m.Text }

func mistake(format string, args ...any) error { return &Mistake{fmt.Sprintf(format, args...)} }

// ParseWords parses the text of a mention, without the prefix and the mention of ramus. A text is a command only if
// all of it, from the first word to the last, is one. A sentence that merely begins with a verb is for the agent. The
// error is a [*Mistake].
func ParseWords(text string) (Words, error) {
	if len(text) > wordsMax {
		return Words{}, mistake("this is longer than %d KiB: put it into a file and share that", wordsMax>>10)
	}
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\r\n", "\n"), "\uFFFD")
	w, is, err := parseExec(text)
	if is || err != nil {
		return w, err
	}
	w = Words{}
	if w.Text, err = w.cutOptions(text); err != nil {
		return Words{}, err
	}
	w.Text = strings.TrimSpace(w.Text)
	if rest, ok := handedOver(w.Text); ok {
		w.Verb, w.Text = verbFallback, rest
		return w, nil
	}
	if err := w.command(asTyped(strings.TrimLeft(w.Text, address))); err != nil {
		return Words{}, err
	}
	return w, nil
}

// handedOver returns the request in a text of the form "fallback" or "fallback: REQUEST". Returns false for any other
// text.
func handedOver(text string) (request string, ok bool) {
	text = strings.TrimLeft(text, address)
	head, rest, request := text, "", text
	head, rest, ok = strings.Cut(text, ":")
	if !strings.EqualFold(strings.Trim(head, " `"), verbFallback) || !ok && strings.Contains(text, "\n") {
		return "", false
	}
	return strings.TrimSpace(rest), true
}

// command parses text as a command. It leaves w unchanged if text is none.
func (w *Words) command(text string) error {
	text, marked := unwrap(text)
	if strings.Contains(text, "```") {
		return nil
	}
	words, err := shellWords(text)
	if len(words) == 0 {
		return nil
	}
	verb := strings.ToLower(words[0].text)
	if words[0].quoted {
		return nil
	}
	if last := &words[len(words)-1]; !last.quoted {
		last.text = withoutStop(last.text)
		if len(words) == 1 {
			verb = strings.ToLower(last.text)
		}
	}
	if verb == "run" {
		return w.run(words[1:], err)
	}
	if err != nil || strings.Contains(text, "\n") {
		return nil
	}
	return w.setVerb(verb, words[1:], marked)
}

// setVerb parses the arguments of a verb. It leaves w unchanged if the verb does not take them. marked means that
// the text was marked as code.
func (w *Words) setVerb(verb string, args []word, marked bool) error {
	one := word{}
	if len(args) == 1 {
		one = args[0]
	}
	switch verb {
	case "status", "why", "stop", "retry", "help", "pr", "disconnect":
		if len(args) == 0 {
			w.Verb = verb
		}
	case "connect":
		if site := strings.ToLower(one.text); len(args) == 0 {
			w.Verb = verb
		} else if slices.Contains([]string{"github", "gitlab", "gitea"}, site) {
			return w.set(verb, site)
		}
	case "test":
		if len(args) == 0 || one.text != "" && (one.quoted || marked || isPattern(one.text)) {
			return w.set(verb, one.text)
		}
	case "build":
		if len(args) == 0 || one.text != "" && (one.quoted || marked || isTarget(one.text)) {
			return w.set(verb, one.text)
		}
	case "lint":
		switch strings.TrimPrefix(strings.ToLower(one.text), "--") {
		case "fix":
			return w.set(verb, "fix")
		case "":
			if len(args) == 0 {
				w.Verb = verb
			}
		}
	case "diff":
		switch strings.TrimLeft(strings.ToLower(one.text), "-") {
		case "stat":
			return w.set(verb, "--stat")
		case "":
			if len(args) == 0 {
				w.Verb = verb
			}
		}
	case "log":
		if len(args) == 0 {
			w.Verb = verb
		} else if strings.Trim(one.text, "0123456789") == "" && one.text != "" {
			if n, err := strconv.Atoi(one.text); err != nil || n < 1 || n > logMax {
				return mistake("`log` shows 1 to %d commands: write `log 20`", logMax)
			}
			return w.set(verb, one.text)
		}
	case "merge":
		return w.merge(args)
	}
	return nil
}

// set sets the verb and at most one argument.
func (w *Words) set(verb, arg string) error {
	switch {
	case strings.HasPrefix(arg, "-") && verb != "diff":
		return mistake("%q begins with a dash: `%s` takes a name, a path or a pattern", short(arg), verb)
	case len(arg) > 1000:
		return mistake("what follows `%s` is longer than 1,000 bytes", verb)
	case strings.ContainsFunc(arg, unicode.IsControl):
		return mistake("the text after `%s` has a control character: write it again", verb)
	}
	w.Verb = verb
	if arg != "" {
		w.Args = []string{arg}
	}
	return nil
}

// merge parses [into BRANCH] [STRATEGY].
func (w *Words) merge(args []word) error {
	into := ""
	if len(args) >= 2 && strings.EqualFold(args[0].text, "into") {
		into, args = args[1].text, args[2:]
		if into == "" {
			return nil
		}
	}
	strategy := gitd.Strategy("")
	if len(args) == 1 {
		strategy = gitd.Strategy(strings.ToLower(args[0].text))
		if !slices.Contains([]gitd.Strategy{gitd.StrategyMerge, gitd.StrategyRebase, gitd.StrategySquash, gitd.StrategyFF}, strategy) {
			return nil
		}
		args = nil
	}
	if len(args) > 0 {
		return nil
	}
	if into != "" && gitd.CheckRef("refs/heads/"+into) != nil {
		return mistake("%q cannot be a branch: write `merge into main`", short(into))
	}
	w.Verb, w.Into, w.Strategy = "merge", into, strategy
	return nil
}

var (
	// workflowID matches the ids of workflows and the paths of their files.
	workflowID   = pattern.New(`^(?:[a-z0-9_-]{1,64}|[A-Za-z0-9._][A-Za-z0-9._/-]{0,199}\.ya?ml)$`)
	inputName    = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	agentName    = pattern.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	buildTarget  = pattern.New(`^[A-Za-z0-9_.@][A-Za-z0-9_./+@:-]*$`)
	inputExample = "`run NAME key=value other=\"two words\"`"
)

// pronouns are words that end a sentence ("run it", "build this") and name nothing.
var pronouns = []string{"it", "this", "that", "them", "these", "those", "all", "both", "everything", "something",
	"anything", "again", "now", "please", "first",
	"one", "on", "in", "out", "up", "away", "along", "over"}

// states are words that describe a build ("build fails") and are not targets.
var states = []string{"fails", "failed", "failing", "fail", "failure", "broken", "breaks", "broke", "passes", "passed",
	"passing", "error", "errors", "errored",
	"red", "green", "is", "was", "are", "status", "works", "hangs", "slow", "logs"}

// run parses WORKFLOW [key=value]…. broken is the error in the quotes of the text, or nil.
func (w *Words) run(args []word, broken error) error {
	if len(args) == 0 {
		if broken != nil {
			return nil
		}
		return mistake("`run` needs a workflow: write `run NAME`, or %s; to run a command, write `exec COMMAND`",
			inputExample)
	}
	name := args[0].text
	if !args[0].quoted && isInput(args[0]) {
		return mistake("`run` needs a workflow before %q: write %s", short(name), inputExample)
	}
	if args[0].quoted || !workflowID.MatchString(name) || strings.Contains(name, "..") || strings.HasPrefix(name, "-") {
		return nil
	}
	rest := args[1:]
	switch {
	case len(rest) > 0 && !isInput(rest[0]):
		return nil
	case broken != nil:
		if len(rest) == 0 {
			return nil
		}
		return broken
	case len(rest) == 0 && slices.Contains(pronouns, name):
		return nil
	case len(rest) > inputsMax:
		return mistake("`run` takes at most %d values", inputsMax)
	}
	var input map[string]any
	for _, r := range rest {
		key, text, found := strings.Cut(r.text, "=")
		typed := strings.HasSuffix(key, ":")
		key = strings.TrimSuffix(key, ":")
		switch {
		case !found:
			return mistake("%q is no key=value: write %s, with quotes around a value that has spaces", short(r.text),
				inputExample)
		case !inputName.MatchString(key):
			return mistake("%q cannot be the name of an input: letters, digits and _; write %s", short(key), inputExample)
		}
		if _, twice := input[key]; twice {
			return mistake("%q is given twice", short(key))
		}
		var value any = text
		if typed {
			if json.Unmarshal([]byte(text), &value) != nil {
				return mistake("what follows %s:= is no JSON: write it in single quotes, like %s:='[1, 2]'", key, key)
			}
		} else if !r.quoted {
			value = scalar(text)
		}
		if input == nil {
			input = map[string]any{}
		}
		input[key] = value
	}
	w.Verb, w.Workflow, w.Input = "run", name, input
	return nil
}

// isInput reports whether a word is meant as key=value, even if it is malformed.
func isInput(w word) bool { return strings.Contains(w.text, "=") && !strings.HasPrefix(w.text, "-") }

// scalar returns the JSON value that text denotes, or text itself. A number that JSON would write differently (1.10,
// 007, 20 digits) stays text. It may be a version, a code or an id, and no digit of it must be lost.
func scalar(text string) any {
	switch text {
	case "true":
		return true
	case "false":
		return false
	case "null":
		return nil
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if again, err := json.Marshal(n); err == nil && string(again) == text {
			return n
		}
	}
	return text
}

// isPattern reports whether a word looks like a pattern of tests and not like a word of a sentence. A pattern has a
// character of paths or patterns, or a capital after a small letter.
func isPattern(s string) bool {
	if strings.ContainsAny(s, "/*:_[]|^$\\.") {
		return true
	}
	small := false
	for _, r := range s {
		if small && unicode.IsUpper(r) {
			return true
		}
		small = unicode.IsLower(r)
	}
	return false
}

func isTarget(s string) bool {
	lower := strings.ToLower(s)
	return buildTarget.MatchString(s) && !slices.Contains(pronouns, lower) && !slices.Contains(states, lower)
}

// parseExec parses a text whose first word after the options is exec. It takes the line unchanged. After the command,
// a word that looks like an option is a part of the command.
func parseExec(text string) (w Words, is bool, err error) {
	rest := strings.TrimLeft(text, address)
	for {
		rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
		first := rest[:wordEnd(rest)]
		taken, err := w.option(first)
		if err != nil {
			return Words{}, true, err
		}
		if taken {
			rest = rest[len(first):]
			continue
		}
		if len(first) < 4 || !strings.EqualFold(first[:4], "exec") || first[4:] != "" && !strings.HasPrefix(first[4:], "`") {
			return Words{}, false, nil
		}
		rest = rest[4:]
		break
	}
	missing := mistake("`exec` needs a command: write `exec make test`, or `exec` and a code block")
	for {
		rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
		first := rest[:wordEnd(rest)]
		if taken, err := w.option(first); err != nil {
			return Words{}, true, err
		} else if !taken {
			break
		}
		rest = rest[len(first):]
	}
	if block, ok := strings.CutPrefix(rest, "```"); ok {
		command, after, closed := strings.Cut(block, "```")
		if !closed {
			return Words{}, true, mistake("the code block is not closed: write ``` at its end")
		}
		after, err := w.cutOptions(after)
		switch command = blockText(command); {
		case err != nil:
			return Words{}, true, err
		case strings.TrimSpace(after) != "":
			return Words{}, false, nil // plain words for the agent that contain code
		case command == "":
			return Words{}, true, missing
		}
		return w.exec(command, text)
	}
	line, more, _ := strings.Cut(rest, "\n")
	if strings.Contains(rest, "```") {
		return Words{}, false, nil
	}
	more, err = w.cutOptions(more)
	line = strings.TrimSpace(line)
	switch {
	case err != nil:
		return Words{}, true, err
	case strings.TrimSpace(more) != "":
		return Words{}, true, mistake("`exec` takes one line: put several into a code block, ``` before and after them")
	}
	if inner, ok := unwrap(line); ok {
		line = inner
	} else {
		line = asTyped(line)
	}
	if line == "" {
		return Words{}, true, missing
	}
	return w.exec(line, text)
}

func (w *Words) exec(command, text string) (Words, bool, error) {
	if strings.ContainsRune(command, 0) {
		return Words{}, true, mistake("the command has a NUL character: write it again")
	}
	w.Verb, w.Command, w.Text = "exec", command, strings.TrimSpace(text)
	return *w, true, nil
}

// blockText returns the content of a code block without the name of a shell after the first fence.
func blockText(s string) string {
	if first, rest, more := strings.Cut(s, "\n"); more &&
		slices.Contains([]string{"sh", "bash", "shell", "zsh", "console"}, strings.TrimSpace(first)) {
		s = rest
	}
	return strings.Trim(strings.TrimRightFunc(s, unicode.IsSpace), "\n")
}

// unwrap removes the code marks from a text that is one piece of code. Returns false if the text is not.
func unwrap(s string) (string, bool) {
	if inner, ok := strings.CutPrefix(s, "```"); ok {
		if inner, ok = strings.CutSuffix(inner, "```"); ok && !strings.Contains(inner, "```") {
			inner = blockText(inner)
			return strings.TrimSpace(inner), true
		}
		return s, false
	}
	if inner, ok := strings.CutPrefix(s, "`"); ok {
		if inner, ok = strings.CutSuffix(inner, "`"); ok && inner != "" && !strings.ContainsAny(inner, "`\n") {
			return strings.TrimSpace(inner), true
		}
	}
	return s, false
}

// option parses a word of the form repo:NAME, base:BRANCH or agent:NAME. taken is false for any other word.
func (w *Words) option(word string) (taken bool, err error) {
	key, value, found := strings.Cut(word, ":")
	if !found {
		return false, nil
	}
	value = strings.Trim(asTyped(strings.TrimRight(value, ",.;!?)")), `"'`)
	if value == "" {
		return false, nil
	}
	var at *string
	switch key = strings.ToLower(key); key {
	case "repo":
		if gitd.CheckName(value) != nil {
			return false, mistake("%q cannot be a repository: write its name, like repo:team/app", short(value))
		}
		at = &w.Repo
	case "base":
		if gitd.CheckRef("refs/heads/"+value) != nil {
			return false, mistake("%q cannot be a branch: write its name, like base:main", short(value))
		}
		at = &w.Base
	case "agent":
		if !agentName.MatchString(value) {
			return false, mistake("%q cannot be an agent: write its name, like agent:coder", short(value))
		}
		at = &w.Agent
	default:
		return false, nil
	}
	if *at != "" && *at != value {
		return false, mistake("%s: is given twice, as %q and %q: write one", key, short(*at), short(value))
	}
	*at = value
	return true, nil
}

// cutOptions removes the options from a text. It leaves options in code and in quoted lines.
func (w *Words) cutOptions(text string) (string, error) {
	if !strings.Contains(text, ":") {
		return text, nil
	}
	var b strings.Builder
	code := codeParts(text)
	at := 0
	for line := range strings.SplitAfterSeq(text, "\n") {
		if strings.HasPrefix(strings.TrimLeftFunc(line, unicode.IsSpace), ">") {
			b.WriteString(line)
			at += len(line)
			continue
		}
		for line != "" {
			space := line[:len(line)-len(strings.TrimLeftFunc(line, unicode.IsSpace))]
			word := line[len(space):][:wordEnd(line[len(space):])]
			from, to := at+len(space), at+len(space)+len(word)
			line, at = line[len(space)+len(word):], to
			taken := false
			// A word that touches code is not a separate word.
			for len(code) > 0 && code[0].end < from {
				code = code[1:]
			}
			if len(code) == 0 || code[0].start > to {
				var err error
				if taken, err = w.option(word); err != nil {
					return "", err
				}
			}
			if !taken {
				b.WriteString(space)
				b.WriteString(word)
			}
		}
	}
	return b.String(), nil
}

// part is the piece of a text from start up to but not including end.
type part struct{ start, end int }

// codeParts returns the positions of code in a text, which are ``` blocks and `code` within a line. An unclosed block
// reaches to the end of the text. Slack shows the rest of it as prose, but its author meant code.
func codeParts(text string) (parts []part) {
	for at := 0; ; {
		n := strings.IndexByte(text[at:], '`')
		if n < 0 {
			return parts
		}
		start := at + n
		fence := "`"
		if strings.HasPrefix(text[start:], "```") {
			fence = "```"
		}
		inner := text[start+len(fence):]
		n = strings.Index(inner, fence)
		switch {
		case n >= 0 && (fence == "```" || !strings.Contains(inner[:n], "\n")):
			at = start + n + 2*len(fence)
			parts = append(parts, part{start, at})
		case fence == "```":
			return append(parts, part{start, len(text)})
		default:
			at = start + 1
		}
	}
}

// address is the set of characters that people write between a mention and its text.
const address = ",: \t\n\u00a0"

func wordEnd(s string) int {
	if n := strings.IndexFunc(s, unicode.IsSpace); n >= 0 {
		return n
	}
	return len(s)
}

// withoutStop removes the punctuation at the end of a sentence from its last word.
func withoutStop(s string) string {
	if strings.HasSuffix(s, "...") {
		return s
	}
	return strings.TrimRight(s, ".!?,;:")
}

// asTyped undoes the changes that phones and Slack make to typed text. These are curly quotes, dashes in place of --,
// an ellipsis character in place of three dots, non-breaking spaces and invisible characters.
func asTyped(s string) string {
	var b strings.Builder
	runes := []rune(s)
	for i, r := range runes {
		begins := i == 0 || unicode.IsSpace(runes[i-1])
		switch {
		case r == '“' || r == '”' || r == '„' || r == '‟':
			b.WriteByte('"')
		case r == '‘' || r == '’' || r == '‚' || r == '‛':
			b.WriteByte('\'')
		case (r == '—' || r == '–') && begins:
			// An option of one letter has one dash, as in -v. Longer options have two, as in --verbose.
			if i+1 < len(runes) && unicode.IsLetter(runes[i+1]) && (i+2 == len(runes) || unicode.IsSpace(runes[i+2])) {
				b.WriteByte('-')
			} else {
				b.WriteString("--")
			}
		case r == '…':
			b.WriteString("...")
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		case text.Invisible(r):
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

type word struct {
	text   string
	quoted bool // true if any part of the word is quoted
}

var errQuote = &Mistake{"a quote is not closed: write another at the end of the value"}

// shellWords splits a text into words by the quotes and backslashes of a shell. It expands nothing. A value may be
// between backticks too, because Slack marks code that way. On an error shellWords returns the words before the error
// too.
func shellWords(s string) ([]word, error) {
	var words []word
	var b strings.Builder
	var in, quoted bool
	end := func() {
		if in {
			words = append(words, word{b.String(), quoted})
		}
		b.Reset()
		in, quoted = false, false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n':
			end()
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
			in = true
		case c == '\'' || c == '"' || c == '`':
			n := closing(s[i+1:], c)
			if n < 0 {
				end()
				return words, errQuote
			}
			text := s[i+1 : i+1+n]
			if c == '"' {
				text = unescape.Replace(text)
			}
			b.WriteString(text)
			i += n + 1
			in, quoted = true, true
		default:
			b.WriteByte(c)
			in = true
		}
	}
	end()
	return words, nil
}

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\$`, `$`, "\\`", "`", "\\\n", "")

// closing returns the index of the quote that closes the string at the start of s. Returns -1 if there is none.
func closing(s string, quote byte) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote == '"':
			i++
		case s[i] == quote:
			return i
		}
	}
	return -1
}

// short returns a text cut to 60 runes, so that a message can quote it.
func short(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return s
}
