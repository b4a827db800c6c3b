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
)

// Code returns source code as HTML, in spans with the classes of chroma. language is the name of its language, and file the name of
// its file, which may be empty. An unknown language, and code that takes too long, has no colours.
func Code(source, language, file string) template.HTML {
	source = Visible(source)
	tokens := tokensOf(source, language, file)
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
	tokens := tokensOf(Visible(source), "", file)
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
func tokensOf(source, language, file string) []chroma.Token {
	if len(source) > maxCode {
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
	began := time.Now()
	next, err := chroma.Coalesce(lexer).Tokenise(nil, source)
	if err != nil {
		return nil
	}
	tokens := []chroma.Token{}
	var all strings.Builder
	for token := next(); token != chroma.EOF; token = next() {
		if time.Since(began) > codeWithin || all.Len()+len(token.Value) > len(source)+1 {
			return nil
		}
		all.WriteString(token.Value)
		tokens = append(tokens, token)
	}
	if strings.TrimSuffix(all.String(), "\n") != strings.TrimSuffix(source, "\n") {
		return nil // a lexer that loses text
	}
	return tokens
}
