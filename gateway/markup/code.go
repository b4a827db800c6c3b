package markup

import (
	"html/template"
	"strings"
	"time"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
)

// Bounds of highlighting. Beyond them code is shown without colours.
const (
	maxCode     = 256 << 10
	maxCodeLine = 2000
	codeWithin  = 200 * time.Millisecond
	// coloursWithin and coloursPerByte bound all code of a Colours. Few bytes can keep a lexer busy for half a second, and
	// it needs about a microsecond for each byte of usual code.
	coloursWithin  = 500 * time.Millisecond
	coloursPerByte = 4 * time.Microsecond
	maxToken       = 8 << 10 // bytes of tokens of a type that are one token
)

// Colours bounds the time in which the code of a page or a conversation is highlighted. The code that comes after that time
// has no colours. The zero value has the whole time. It is not safe for concurrent use.
type Colours struct {
	spent time.Duration
	bytes int
}

// exhausted reports whether the time is over.
func (c *Colours) exhausted() bool {
	return c.spent > coloursWithin+time.Duration(c.bytes)*coloursPerByte
}

// Code returns source code as HTML, in spans with the classes of chroma. language is the name of its language, and file the name of
// its file, which may be empty. An unknown language, and code that takes too long, has no colours.
func (c *Colours) Code(source, language, file string) template.HTML {
	source = Visible(source)
	tokens := c.tokensOf(source, language, file)
	if tokens == nil {
		return template.HTML(template.HTMLEscapeString(source))
	}
	var out strings.Builder
	for _, token := range tokens {
		class := chroma.StandardTypes[token.Type]
		if class == "" {
			out.WriteString(template.HTMLEscapeString(token.Value))
			continue
		}
		out.WriteString(`<span class="` + class + `">` + template.HTMLEscapeString(token.Value) + "</span>")
	}
	return template.HTML(out.String())
}

// Piece is a part of a line of source code. Class is its class of chroma, which is empty for usual text.
type Piece struct{ Class, Text string }

// coloured are the classes that the style sheet of pages has a colour for.
var coloured = func() map[string]bool {
	set := map[string]bool{}
	for _, class := range strings.Fields("k kd kn kc kr kp s s1 s2 sb sd sc si sh m mi mf mh kt nb c c1 cm cp ch nf nc nt na gd gi") {
		set[class] = true
	}
	return set
}()

// CodeLines returns the lines of source code as pieces, whose texts are visible. Neighbours have different classes. Returns nil if the
// language of the file is unknown, and for code that takes too long.
func CodeLines(source, file string) [][]Piece {
	tokens := new(Colours).tokensOf(Visible(source), "", file)
	if tokens == nil {
		return nil
	}
	lines := [][]Piece{nil}
	for _, token := range tokens {
		class := chroma.StandardTypes[token.Type]
		if !coloured[class] {
			class = ""
		}
		for i, part := range strings.Split(token.Value, "\n") {
			if i > 0 {
				lines = append(lines, nil)
			}
			if part == "" {
				continue
			}
			last := &lines[len(lines)-1]
			if n := len(*last); n > 0 && (*last)[n-1].Class == class {
				(*last)[n-1].Text += part
				continue
			}
			*last = append(*last, Piece{class, part})
		}
	}
	if lines[len(lines)-1] == nil {
		lines = lines[:len(lines)-1] // after the last newline
	}
	return lines
}

// tokensOf returns the tokens of visible source code, which have all of its text. Returns nil if there are none within the bounds.
func (c *Colours) tokensOf(source, language, file string) []chroma.Token {
	if c.bytes += len(source); len(source) > maxCode || c.exhausted() {
		return nil
	}
	for line := range strings.Lines(source) {
		if len(line) > maxCodeLine {
			return nil
		}
	}
	var lexer chroma.Lexer
	switch {
	case language != "":
		lexer = lexers.Get(language)
	case file != "":
		lexer = lexers.Match(file)
	}
	if lexer == nil {
		return nil
	}
	if _, err := lexer.Tokenise(nil, ""); err != nil { // the first call compiles the lexer, which is no work of this code
		return nil
	}
	began := time.Now()
	defer func() { c.spent += time.Since(began) }()
	next, err := lexer.Tokenise(nil, source)
	if err != nil {
		return nil
	}
	tokens := []chroma.Token{}
	var all strings.Builder
	for token := next(); token != chroma.EOF; token = next() {
		// Some lexers return empty tokens without an end.
		if time.Since(began) > codeWithin || all.Len()+len(token.Value) > len(source)+1 {
			return nil
		}
		if token.Value == "" {
			continue
		}
		all.WriteString(token.Value)
		if n := len(tokens); n > 0 && tokens[n-1].Type == token.Type && len(tokens[n-1].Value) < maxToken {
			tokens[n-1].Value += token.Value
			continue
		}
		tokens = append(tokens, token)
	}
	if strings.TrimSuffix(all.String(), "\n") != strings.TrimSuffix(source, "\n") {
		return nil // a lexer that loses text
	}
	return tokens
}
