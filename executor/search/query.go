package search

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of a query.
const (
	MaxQuery = 400 // bytes
	MaxHits  = 200
	// DefaultHits is [Query.Max] if that is 0.
	DefaultHits = 50
	// hitsEachRun bounds the hits of one run if the query is about several runs.
	hitsEachRun = 10
	maxWords    = 16
	maxHitText  = 400 // bytes
)

// Query asks for the lines that have certain words. Case does not matter.
type Query struct {
	// Words are separated by spaces. Quotes keep spaces. At least one word has three bytes.
	Words string `json:"q" jsonschema:"words that a line must have, separated by spaces; quotes keep spaces"`
	// Kinds are the kinds of passages. Empty means all.
	Kinds  []Kind `json:"kinds,omitempty" jsonschema:"prompt, answer, command, output, path, subject, person; all if empty"`
	Repo   string `json:"repo,omitempty" jsonschema:"a repository; all if empty"`
	Caller string `json:"caller,omitempty" jsonschema:"a caller; all if empty"`
	// Run is one run, of which all hits are wanted, CALLER/RUN.
	Run string `json:"run,omitempty" jsonschema:"a run, of which all hits are wanted; all runs if empty"`
	// Max bounds the hits. The default is 50, and 200 is the most. A run's hits are not divided, so that there may be 10 more.
	Max int `json:"max,omitempty" jsonschema:"how many; 50 if 0, 200 at most"`
	// After is [Answer.Next] of an earlier answer.
	After string `json:"after,omitempty" jsonschema:"next of an earlier answer"`
	// Sees reports whether hits of a run may be returned. Nil means that all may be.
	Sees func(r record.Run) bool `json:"-"`
}

// Hit is a line that has the words.
type Hit struct {
	Run    string `json:"run"` // CALLER/RUN
	Caller string `json:"caller"`
	Repo   string `json:"repo"`
	Passage
	// Line is the number of the line in the passage, from 1.
	Line int64 `json:"line"`
	// Text is the line, or the part of it around the first word.
	Text string `json:"text"`
}

// Answer has the hits of the newest runs first, and of one run in its own order.
type Answer struct {
	Hits []Hit `json:"hits"`
	// More names the runs that have more hits than are shown.
	More []string `json:"more,omitempty"`
	// Next asks for the hits of older runs. Empty means that there are none.
	Next string `json:"next,omitempty"`
	// Behind is how many runs are not in the index yet, or not as they are now.
	Behind int `json:"behind,omitempty"`
	// Cut is how many runs have more text than is indexed.
	Cut int `json:"cut,omitempty"`
	// Missing names the replicas that did not answer, of an installation of several.
	Missing []string `json:"missing_replicas,omitempty"`
}

// ErrQuery is the error of a query that cannot be answered. It is a [record.ErrInvalid].
var ErrQuery = fmt.Errorf("%w search", record.ErrInvalid)

// plan is a query in the form in which chunks are compared with it.
type plan struct {
	words [][]byte // folded, the longest first
	grams []uint32
	kinds []Kind
}

func (q Query) plan() (p plan, err error) {
	if len(q.Words) > MaxQuery {
		return p, fmt.Errorf("%w: the query has %d bytes, at most %d are allowed", ErrQuery, len(q.Words), MaxQuery)
	}
	if q.Max < 0 || q.Max > MaxHits {
		return p, fmt.Errorf("%w: max is %d, it must be at most %d", ErrQuery, q.Max, MaxHits)
	}
	for _, w := range Words(q.Words) {
		p.words = append(p.words, fold([]byte(w)))
	}
	for _, k := range q.Kinds {
		if !slices.Contains(Kinds, k) {
			return p, fmt.Errorf("%w: there is no kind %.40q of text, the kinds are %s", ErrQuery, k, names(Kinds))
		}
	}
	p.kinds = q.Kinds
	slices.SortStableFunc(p.words, func(a, b []byte) int { return cmp.Compare(len(b), len(a)) })
	if len(p.words) == 0 || len(p.words[0]) < gram {
		return p, fmt.Errorf("%w: one word must have at least %d letters", ErrQuery, gram)
	}
	if len(p.words) > maxWords {
		return p, fmt.Errorf("%w: the query has %d words, at most %d are allowed", ErrQuery, len(p.words), maxWords)
	}
	for _, w := range p.words {
		grams(w, func(g uint32) { p.grams = append(p.grams, g) })
	}
	slices.Sort(p.grams)
	p.grams = slices.Compact(p.grams)
	return p, nil
}

func names(kinds []Kind) string {
	list := make([]string, len(kinds))
	for i, k := range kinds {
		list[i] = string(k)
	}
	return strings.Join(list, ", ")
}

// Words returns the words of a query. A quote without an end goes to the end.
func Words(q string) (words []string) {
	for q = strings.ToValidUTF8(q, ""); ; {
		q = strings.TrimLeft(strings.Map(space, q), " ")
		if q == "" {
			return words
		}
		end, sep := " ", 0
		if q[0] == '"' {
			end, sep = `"`, 1
		}
		word, rest, _ := strings.Cut(q[sep:], end)
		if word != "" {
			words = append(words, word)
		}
		q = rest
	}
}

// space replaces separators by a space.
func space(r rune) rune {
	if r == '\t' || r == '\n' || r == '\r' || r == 0 {
		return ' '
	}
	return r
}

// find calls yield with each line of the chunk that has the words, in order, until yield returns false.
func (p *plan) find(c chunk, yield func(p Passage, line int64, text string) bool) {
	for i, in := range c.parts {
		if len(p.kinds) > 0 && !slices.Contains(p.kinds, in.Kind) {
			continue
		}
		end := len(c.text)
		if i+1 < len(c.parts) {
			end = c.parts[i+1].At
		}
		plain := c.text[in.At:end]
		folded := fold(plain)
		if !p.has(folded) {
			continue
		}
		if !p.inPart(in, plain, folded, yield) {
			return
		}
	}
}

// inPart calls yield with each line of a part that has the words. If the words may be in several lines, these are the lines with the longest
// one. It returns false if yield did.
func (p *plan) inPart(in part, plain, folded []byte, yield func(p Passage, line int64, text string) bool) bool {
	number, word := in.Line, p.words[0]
	if in.Kind.byLine() {
		word = p.rarest(folded)
	}
	for len(folded) > 0 {
		skip := bytes.Index(folded, word)
		if skip < 0 {
			return true
		}
		// Lines without the word are passed at once. Folding keeps lines, but not their lengths.
		passed := bytes.Count(folded[:skip], []byte{'\n'})
		number += int64(passed)
		plain = afterLines(plain, passed)
		folded = folded[bytes.LastIndexByte(folded[:skip], '\n')+1:]

		var line, foldedLine []byte
		line, plain, _ = bytes.Cut(plain, []byte{'\n'})
		foldedLine, folded, _ = bytes.Cut(folded, []byte{'\n'})
		if !in.Kind.byLine() || p.has(foldedLine) {
			if !yield(in.Passage, number, around(line, bytes.Index(foldedLine, word))) {
				return false
			}
		}
		number++
	}
	return true
}

// rarest returns the word that is in a folded text the fewest times.
func (p *plan) rarest(folded []byte) []byte {
	word := p.words[0]
	if len(p.words) == 1 {
		return word
	}
	least := bytes.Count(folded, word)
	for _, w := range p.words[1:] {
		if n := bytes.Count(folded, w); n < least {
			word, least = w, n
		}
	}
	return word
}

// has reports whether a folded text has all words.
func (p *plan) has(folded []byte) bool {
	for _, w := range p.words {
		if !bytes.Contains(folded, w) {
			return false
		}
	}
	return true
}

// afterLines returns the text after n line ends.
func afterLines(text []byte, n int) []byte {
	for ; n > 0; n-- {
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return text
}

// around returns a line as valid UTF-8, or the part of it around a place if it is long.
func around(line []byte, at int) string {
	if len(line) <= maxHitText {
		return strings.ToValidUTF8(string(line), "\uFFFD")
	}
	begin := max(0, min(at, len(line))-maxHitText/4)
	for begin > 0 && begin < len(line) && !utf8.RuneStart(line[begin]) {
		begin--
	}
	cut := strings.ToValidUTF8(string(line[begin:]), "\uFFFD")
	if begin > 0 {
		cut = "…" + cut
	}
	return text.Clip(cut, maxHitText)
}
