package markup

import (
	"bytes"
	"html/template"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	gohtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Bounds of Markdown.
const (
	maxMarkdown = 256 << 10 // of a text; the rest is shown as it is
	maxLine     = 8 << 10   // of a line; a text with a longer one is shown as it is
	maxMarks    = 64        // at the beginning of a line, where each is a level
	maxURL      = 2000
)

// Stream renders a text that grows. Its zero value is an empty text. It is not safe for concurrent use.
type Stream struct {
	// Colours bounds the highlighting of code. If it is nil, the text has a Colours of its own.
	Colours *Colours

	rest  []byte // of the text, from the first byte of the block that is open
	bytes int    // of the whole text
	plain bool   // the rest is not Markdown any more
	shown bool   // open is that of rest
	open  template.HTML
}

// Write appends a piece of the text, and returns the blocks that it closes. They never change.
func (s *Stream) Write(words string) (closed []template.HTML) {
	s.rest = append(s.rest, words...)
	s.bytes += len(words)
	s.open, s.shown = "", false
	if s.plain {
		return nil
	}
	if s.bytes > maxMarkdown || tooDeep(s.rest) {
		s.plain = true
		return nil
	}
	whole := s.rest[:bytes.LastIndexByte(s.rest, '\n')+1]
	doc := parse(whole)
	last := doc.LastChild()
	if last == nil || last == doc.FirstChild() {
		return nil
	}
	at := firstByte(whole, last)
	if at <= 0 {
		return nil // it is not known where the last block begins
	}
	for n := doc.FirstChild(); n != last; n = n.NextSibling() {
		closed = append(closed, render(whole, n, s.colours()))
	}
	s.rest = append([]byte(nil), s.rest[at:]...)
	return closed
}

// Open returns the block that more text may change, or "" if there is none.
func (s *Stream) Open() template.HTML {
	if s.shown || len(bytes.TrimSpace(s.rest)) == 0 {
		return s.open
	}
	s.shown = true
	if s.plain {
		s.open = plain(s.rest)
		return s.open
	}
	var all strings.Builder
	doc := parse(s.rest)
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		all.WriteString(string(render(s.rest, n, nil)))
	}
	s.open = template.HTML(all.String())
	return s.open
}

// Close ends the text, and returns the blocks that were open. It returns the number of bytes of the text too.
func (s *Stream) Close() (closed []template.HTML, size int) {
	defer func() { *s = Stream{Colours: s.Colours} }()
	switch {
	case len(bytes.TrimSpace(s.rest)) == 0:
	case s.plain:
		closed = append(closed, plain(s.rest))
	default:
		doc := parse(s.rest)
		for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
			closed = append(closed, render(s.rest, n, s.colours()))
		}
	}
	return closed, s.bytes
}

func (s *Stream) colours() *Colours {
	if s.Colours == nil {
		s.Colours = &Colours{}
	}
	return s.Colours
}

// tooDeep reports whether a text has lines that a parser needs too long for.
func tooDeep(source []byte) bool {
	for len(source) > 0 {
		line := source
		if end := bytes.IndexByte(source, '\n'); end >= 0 {
			line, source = source[:end], source[end+1:]
		} else {
			source = nil
		}
		if len(line) > maxLine {
			return true
		}
		marks := 0
		for _, c := range line {
			if strings.IndexByte("> \t-+*.)0123456789", c) < 0 {
				break
			}
			if c == '>' || c == '-' || c == '+' || c == '*' || c == '.' || c == ')' {
				marks++
			}
		}
		if marks > maxMarks && len(bytes.Trim(line, "-* \t\r")) > 0 {
			return true
		}
	}
	return false
}

// firstByte returns the first byte of the line on which a block begins, or -1 if that is not known.
func firstByte(source []byte, n ast.Node) int {
	at := n.Pos()
	if at < 0 || at > len(source) {
		return -1
	}
	return bytes.LastIndexByte(source[:at], '\n') + 1
}

// markdown is the parser, without raw HTML, and without definitions of links, which would change blocks that are closed.
var markdown = sync.OnceValue(func() goldmark.Markdown {
	blocks := []util.PrioritizedValue{
		util.Prioritized(parser.NewSetextHeadingParser(), 100),
		util.Prioritized(parser.NewThematicBreakParser(), 200),
		util.Prioritized(parser.NewListParser(), 300),
		util.Prioritized(parser.NewListItemParser(), 400),
		util.Prioritized(parser.NewCodeBlockParser(), 500),
		util.Prioritized(parser.NewATXHeadingParser(), 600),
		util.Prioritized(parser.NewFencedCodeBlockParser(), 700),
		util.Prioritized(parser.NewBlockquoteParser(), 800),
		util.Prioritized(parser.NewParagraphParser(), 1000),
	}
	inlines := []util.PrioritizedValue{
		util.Prioritized(parser.NewCodeSpanParser(), 100),
		util.Prioritized(parser.NewLinkParser(), 200),
		util.Prioritized(parser.NewAutoLinkParser(), 300),
		util.Prioritized(parser.NewEmphasisParser(), 500),
	}
	p := parser.NewParser(parser.WithBlockParsers(blocks...), parser.WithInlineParsers(inlines...))
	return goldmark.New(goldmark.WithParser(p),
		goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Strikethrough, extension.Linkify),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(nodes{}, 10)),
			gohtml.WithEastAsianLineBreaks(gohtml.EastAsianLineBreaksSimple)))
})

func parse(source []byte) ast.Node { return markdown().Parser().Parse(text.NewReader(source)) }

// render renders one top-level block. Its code is highlighted unless colours is nil.
func render(source []byte, n ast.Node, colours *Colours) template.HTML {
	if colours != nil {
		n.SetAttributeString(coloursAttribute, colours)
	}
	var out bytes.Buffer
	if err := markdown().Renderer().Render(&out, source, n); err != nil {
		return plain(source) // no writer fails, and no renderer of ours
	}
	return template.HTML(focusable.Replace(string(policy().SanitizeBytes(out.Bytes()))))
}

// focusable lets the keyboard reach code and tables, which scroll sideways. Texts have no such tags, because they are escaped.
var focusable = strings.NewReplacer("<pre>", `<pre tabindex="0">`, "<pre class=", `<pre tabindex="0" class=`,
	"<table>", `<table tabindex="0">`)

// coloursAttribute is the Colours of a block whose code is highlighted.
const coloursAttribute = "colours"

// plain shows a text as it is.
func plain(source []byte) template.HTML {
	if len(source) > 4*maxMarkdown {
		source = source[:4*maxMarkdown]
		for len(source) > 0 && !utf8.Valid(source[max(0, len(source)-utf8.UTFMax):]) {
			source = source[:len(source)-1]
		}
	}
	return template.HTML(`<pre tabindex="0" class="plain">` + template.HTMLEscapeString(Visible(string(source))) + "</pre>")
}

// policy is the second wall. It lists everything that a block may have.
var policy = sync.OnceValue(func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "h3", "h4", "h5", "h6", "blockquote", "ul", "li", "em", "strong", "del", "pre",
		"code", "table", "thead", "tbody", "tr")
	p.AllowAttrs("start").Matching(bluemonday.Integer).OnElements("ol")
	p.AllowElements("ol", "th", "td", "span", "a")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|right|center)$`)).OnElements("th", "td")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^[a-z0-9-]{1,24}( [a-z0-9-]{1,24})?$`)).OnElements("pre", "code",
		"span", "a")
	p.AllowAttrs("href", "title").OnElements("a")
	p.AllowAttrs("rel").Matching(regexp.MustCompile(`^noopener noreferrer nofollow$`)).OnElements("a")
	p.AllowURLSchemes("http", "https", "mailto")
	p.AllowNoAttrs().OnElements("span")
	p.RequireParseableURLs(true)
	return p
})

// nodes renders the nodes whose HTML differs from goldmark's.
type nodes struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (nodes) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, heading)
	r.Register(ast.KindLink, link)
	r.Register(ast.KindAutoLink, autoLink)
	r.Register(ast.KindImage, image)
	r.Register(ast.KindFencedCodeBlock, fence)
	r.Register(ast.KindText, words)
}

// heading renders a heading below those of the page.
func heading(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	level := string('0' + rune(min(n.(*ast.Heading).Level+2, 6)))
	if entering {
		_, _ = w.WriteString("<h" + level + ">")
	} else {
		_, _ = w.WriteString("</h" + level + ">\n")
	}
	return ast.WalkContinue, nil
}

// target returns the address of a link if it may be one.
func target(address string) (string, bool) {
	u, err := url.Parse(address)
	if err != nil || len(address) > maxURL || Visible(address) != address || strings.ContainsAny(address, " \t\n") {
		return "", false
	}
	switch {
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil:
		return u.String(), true
	case u.Scheme == "mailto" && u.Opaque != "":
		return u.String(), true
	}
	return "", false
}

// openLink begins a link, or the text in place of one.
func openLink(w util.BufWriter, address, class string) {
	to, ok := target(address)
	if !ok {
		_, _ = w.WriteString(`<span class="nolink">`)
		return
	}
	_, _ = w.WriteString(`<a class="` + class + `" href="` + template.HTMLEscapeString(to) +
		`" rel="noopener noreferrer nofollow">`)
}

func closeLink(w util.BufWriter, address string) {
	if _, ok := target(address); ok {
		_, _ = w.WriteString("</a>")
		return
	}
	_, _ = w.WriteString("</span>")
}

func link(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	address := string(n.(*ast.Link).Destination)
	if entering {
		openLink(w, address, "out")
	} else {
		closeLink(w, address)
	}
	return ast.WalkContinue, nil
}

func autoLink(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	a := n.(*ast.AutoLink)
	address := string(a.URL(source))
	if a.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(address, "mailto:") {
		address = "mailto:" + address
	}
	openLink(w, address, "out")
	_, _ = w.WriteString(escaped(a.Label(source)))
	closeLink(w, address)
	return ast.WalkContinue, nil
}

// image renders a picture as a link to it.
func image(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	address := string(n.(*ast.Image).Destination)
	if entering {
		openLink(w, address, "picture")
		if n.FirstChild() == nil {
			_, _ = w.WriteString(escaped([]byte(address)))
		}
	} else {
		closeLink(w, address)
	}
	return ast.WalkContinue, nil
}

// fence renders a block of code.
func fence(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	block := n.(*ast.FencedCodeBlock)
	var code bytes.Buffer
	for i := range block.Lines().Len() {
		line := block.Lines().At(i)
		code.Write(line.Value(source))
	}
	var html template.HTML
	if colours, ok := top(n).AttributeString(coloursAttribute); ok {
		html = colours.(*Colours).Code(code.String(), string(block.Language(source)), "")
	} else {
		html = template.HTML(template.HTMLEscapeString(Visible(code.String())))
	}
	_, _ = w.WriteString(`<pre class="chroma"><code>` + string(html) + "</code></pre>\n")
	return ast.WalkSkipChildren, nil
}

// top returns the top-level block that a node is in.
func top(n ast.Node) ast.Node {
	for n.Parent() != nil && n.Parent().Kind() != ast.KindDocument {
		n = n.Parent()
	}
	return n
}

// words renders text, with all of its characters visible.
func words(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	t := n.(*ast.Text)
	value := t.Segment.Value(source)
	if t.IsRaw() {
		_, _ = w.WriteString(escaped(value))
	} else {
		_, _ = w.WriteString(escaped(util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(value)))))
	}
	switch {
	case t.HardLineBreak():
		_, _ = w.WriteString("<br>\n")
	case t.SoftLineBreak():
		_, _ = w.WriteString("\n")
	}
	return ast.WalkContinue, nil
}

func escaped(b []byte) string { return template.HTMLEscapeString(Visible(string(b))) }
