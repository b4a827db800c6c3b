package markup

import (
	"html/template"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/ramus-dev/ramus/internal/growth"
)

func TestMarkdown(t *testing.T) {
	for source, want := range map[string]string{
		"hello *there*":                          "<p>hello <em>there</em></p>\n",
		"# One\n\ntwo":                           "<h3>One</h3>\n<p>two</p>\n",
		"<script>alert(1)</script>":              "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>\n",
		"a <b onclick=x>b</b>":                   "<p>a &lt;b onclick=x&gt;b&lt;/b&gt;</p>\n",
		"[go](javascript:alert(1))":              `<p><span class="nolink">go</span></p>` + "\n",
		"[go](https://example.org/a?b=c&d)":      `<p><a class="out" href="https://example.org/a?b=c&amp;d" rel="noopener noreferrer nofollow">go</a></p>` + "\n",
		"[go](/auth/out)":                        `<p><span class="nolink">go</span></p>` + "\n",
		"[go](https://you@example.org)":          `<p><span class="nolink">go</span></p>` + "\n",
		"![x](https://evil.example/?q=secret)":   `<p><a class="picture" href="https://evil.example/?q=secret" rel="noopener noreferrer nofollow">x</a></p>` + "\n",
		"[go](mailto:ada@example.org)":           `<p><a class="out" href="mailto:ada@example.org" rel="noopener noreferrer nofollow">go</a></p>` + "\n",
		"![](https://evil.example/)":             `<p><a class="picture" href="https://evil.example/" rel="noopener noreferrer nofollow">https://evil.example/</a></p>` + "\n",
		"see https://example.org.":               `<p>see <a class="out" href="https://example.org" rel="noopener noreferrer nofollow">https://example.org</a>.</p>` + "\n",
		"[a]: https://example.org\n\n[a]":        "<p>[a]: <a class=\"out\" href=\"https://example.org\" rel=\"noopener noreferrer nofollow\">https://example.org</a></p>\n<p>[a]</p>\n",
		"safe\u202etxt":                          "<p>safe\uFFFDtxt</p>\n",
		"a\x00b\x1b[31m":                         "<p>a\uFFFDb\uFFFD[31m</p>\n",
		"- [ ] one\n- [x] two":                   "<ul>\n<li>[ ] one</li>\n<li>[x] two</li>\n</ul>\n",
		"| a | b |\n|:--|--:|\n| 1 | 2 |":        "<table tabindex=\"0\">\n<thead>\n<tr>\n<th align=\"left\">a</th>\n<th align=\"right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td align=\"left\">1</td>\n<td align=\"right\">2</td>\n</tr>\n</tbody>\n</table>\n",
		"```go\nfunc f() {}\n```":                `<pre tabindex="0" class="chroma"><code><span class="kd">func</span><span class="w"> </span><span class="nf">f</span><span class="p">()</span><span class="w"> </span><span class="p">{}</span><span class="w">` + "\n</span></code></pre>\n",
		"```\"onmouseover=\n<x>\n```":            "<pre tabindex=\"0\" class=\"chroma\"><code>&lt;x&gt;\n</code></pre>\n",
		"&lt;b&gt; &#x3c;i&#62; \\*no\\* `a*b*`": "<p>&lt;b&gt; &lt;i&gt; *no* <code>a*b*</code></p>\n",
		"one  \ntwo\\\nthree":                    "<p>one<br>\ntwo<br>\nthree</p>\n",
		"":                                       "",
	} {
		if got := string(whole(source)); got != want {
			t.Errorf("%q\n got %q\nwant %q", source, got, want)
		}
		harmless(t, source, whole(source))
	}
}

// whole renders a text that comes in one piece.
func whole(words string) template.HTML {
	var s Stream
	closed := s.Write(words)
	last, _ := s.Close()
	var all strings.Builder
	for _, block := range append(closed, last...) {
		all.WriteString(string(block))
	}
	return template.HTML(all.String())
}

// allowed are all elements with their attributes.
var allowed = map[string][]string{"p": nil, "br": nil, "hr": nil, "h3": nil, "h4": nil, "h5": nil, "h6": nil,
	"blockquote": nil, "ul": nil, "ol": {"start"},
	"li": nil, "em": nil, "strong": nil, "del": nil, "pre": {"class", "tabindex"}, "code": {"class"}, "table": {"tabindex"}, "thead": nil,
	"tbody": nil, "tr": nil,
	"th": {"align"}, "td": {"align"}, "span": {"class"}, "a": {"class", "href", "rel", "title"}}

var harmlessURL = regexp.MustCompile(`^(https?://[^\s"<>]+|mailto:[^\s"<>]+)$`)

// harmless fails if a rendering has an element, an attribute or an address that none may have.
func harmless(t *testing.T, source string, rendered template.HTML) {
	t.Helper()
	z := html.NewTokenizer(strings.NewReader(string(rendered)))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return
		case html.CommentToken, html.DoctypeToken:
			t.Fatalf("%q: %q", source, rendered)
		case html.TextToken:
			if text := string(z.Raw()); Visible(text) != text {
				t.Fatalf("%q: invisible characters in %q", source, rendered)
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			token := z.Token()
			attributes, known := allowed[token.Data]
			if !known {
				t.Fatalf("%q: <%s> in %q", source, token.Data, rendered)
			}
			for _, a := range token.Attr {
				if !slices.Contains(attributes, a.Key) || a.Key == "href" && !harmlessURL.MatchString(a.Val) {
					t.Fatalf("%q: %s=%q in %q", source, a.Key, a.Val, rendered)
				}
			}
		}
	}
}

// inPieces renders a text that comes in pieces, and checks that no block that was closed is missing from the next.
func inPieces(t *testing.T, source string, cuts []byte) string {
	t.Helper()
	var s Stream
	var closed []template.HTML
	rest := source
	for i := 0; rest != ""; i++ {
		n := len(rest)
		if len(cuts) > 0 {
			n = min(n, 1+int(cuts[i%len(cuts)])%40)
		}
		closed = append(closed, s.Write(rest[:n])...)
		_ = s.Open()
		rest = rest[n:]
	}
	last, size := s.Close()
	if size != len(source) {
		t.Fatalf("%q has %d bytes, not %d", source, len(source), size)
	}
	var all strings.Builder
	for _, block := range append(closed, last...) {
		all.WriteString(string(block))
	}
	return all.String()
}

var texts = []string{
	"# A\n\nb *c*\n\n```go\nx := 1\n```\n\n- a\n- b\n\n  c\n- d\n\ne\n===\n\n| a |\n|---|\n| b |\n\nend",
	"- a\n*b", "- a\n* b\n+ c", "a\n-", "a\n- b", "a\n---\nb", "> a\nb\n\nc", "    code\n\n    more\n\nno",
	"1. a\n\n\n2. b\n\nc", "```\na\n\nb",
	"~~~\n```\n~~~\n~~~", "- ```\n  a\n\nb", "\n\n\n", "a\r\n\r\nb\r\n", "| a |\n|-|\n\n|", "***\n***\n***",
	"> - a\n>\n>   b\n\nc", "\t\ta\n\nb", "a\n\n<!-- x\n\ny -->\n\nz",
	"<div>\n\n*a*\n\n</div>", "[a]: b\n\n[a]", "äöü\n\n\U0001F600 b\n\n漢字", "-\n\n  a\n\nb", "#\n##\n# #",
	"* * *\na\n* b", "\\\n\nb", "- a\n\n\n      b\n\nc", "--\n-", "\x0b\n\na", " \n- \n\n-\na",
}

// TestStream cuts texts at each byte, and compares with the whole.
func TestStream(t *testing.T) {
	for _, source := range texts {
		want := string(whole(source))
		harmless(t, source, template.HTML(want))
		for n := range 40 {
			if got := inPieces(t, source, []byte{byte(n)}); got != want {
				t.Fatalf("%q in pieces of %d\n got %q\nwant %q", source, n+1, got, want)
			}
		}
	}
}

func FuzzStream(f *testing.F) {
	for _, source := range texts {
		f.Add(source, []byte{3, 1, 7})
	}
	f.Fuzz(func(t *testing.T, source string, cuts []byte) {
		if len(source) > 4<<10 {
			return
		}
		want := string(whole(source))
		harmless(t, source, template.HTML(want))
		if got := inPieces(t, source, cuts); got != want {
			t.Fatalf("%q cut by %v\n got %q\nwant %q", source, cuts, got, want)
		}
	})
}

// TestStreamOnce checks that a block that was closed costs nothing more.
func TestStreamOnce(t *testing.T) {
	var s Stream
	var closed int
	for range 100 {
		closed += len(s.Write("one *block*\n\n"))
		if len(s.rest) > 40 {
			t.Fatalf("%d bytes are kept", len(s.rest))
		}
	}
	if closed != 99 {
		t.Errorf("%d blocks were closed", closed)
	}
	if got := s.Open(); got != "<p>one <em>block</em></p>\n" {
		t.Errorf("open: %q", got)
	}
}

// TestMarkdownBounds shows a text as it is only beyond its bounds.
func TestMarkdownBounds(t *testing.T) {
	for size, markdown := range map[int]bool{maxMarkdown: true, maxMarkdown + 1: false} {
		var s Stream
		s.Write("*a*" + strings.Repeat("\n", size-len("*a*")))
		if got := string(s.Open()); strings.Contains(got, "<em>") != markdown {
			t.Errorf("%d bytes: %.20q", size, got)
		}
	}
	if tooDeep([]byte(strings.Repeat("x", maxLine))) || !tooDeep([]byte(strings.Repeat("x", maxLine+1))) {
		t.Error("the bound of a line is another")
	}
	for _, mark := range strings.Split("> - + * . )", " ") {
		line := strings.Repeat(mark+" ", maxMarks)
		if tooDeep([]byte(line + "x")) {
			t.Errorf("%d of %s are too many", maxMarks, mark)
		}
		if !tooDeep([]byte("a\n" + line + mark + " x\n")) {
			t.Errorf("%d of %s are not too many", maxMarks+1, mark)
		}
	}
	for _, line := range []string{strings.Repeat("1", 4*maxMarks) + "x", strings.Repeat(" \t", 4*maxMarks) + "x",
		strings.Repeat("-", 4*maxMarks), strings.Repeat("* ", 4*maxMarks)} {
		if tooDeep([]byte(line)) {
			t.Errorf("%.10q is too deep", line)
		}
	}
}

func TestGrowth(t *testing.T) {
	cases := growth.Tokens("> ", "- ", "* a\n", "[", "![", "](", "`", "*a ", "_a", "**", "~~", "<", "&", "\\", "| a ",
		"|\n", "a\n", "#", "```\n", "http://a.", "a@b.c ", "1. a\n  ", "> a\n\n", "\t", "x")
	for i := range cases {
		cases[i].Limit = maxMarkdown
	}
	growth.Check(t, "Markdown", func(text []byte) { whole(string(text)) }, cases...)
}
