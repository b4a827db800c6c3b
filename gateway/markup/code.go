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
	plain := template.HTML(template.HTMLEscapeString(source))
	if len(source) > maxCode {
		return plain
	}
	for line := range strings.Lines(source) {
		if len(line) > maxCodeLine {
			return plain
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
		return plain
	}
	began := time.Now()
	next, err := chroma.Coalesce(lexer).Tokenise(nil, source)
	if err != nil {
		return plain
	}
	var out, all strings.Builder
	for token := next(); token != chroma.EOF; token = next() {
		if time.Since(began) > codeWithin || all.Len()+len(token.Value) > len(source)+1 {
			return plain
		}
		all.WriteString(token.Value)
		class := chroma.StandardTypes[token.Type]
		if class == "" {
			out.WriteString(template.HTMLEscapeString(token.Value))
			continue
		}
		out.WriteString(`<span class="` + class + `">` + template.HTMLEscapeString(token.Value) + "</span>")
	}
	if strings.TrimSuffix(all.String(), "\n") != strings.TrimSuffix(source, "\n") {
		return plain // a lexer that loses text
	}
	return template.HTML(out.String())
}
