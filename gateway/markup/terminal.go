package markup

import (
	"html/template"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxTerminal bounds a text of Terminal, in bytes. Of a longer one the end is shown.
const maxTerminal = 256 << 10

// look is how a text is shown. Colours are 1 to 16, and 0 for none.
type look struct {
	bold, dim, italic, underline, strike, inverse bool
	front, back                                   int
}

// classes returns the classes of a look: bo, di, it, un, st, in, f0 to f15 and b0 to b15.
func (l look) classes() string {
	var list []string
	for _, c := range []struct {
		on   bool
		name string
	}{{l.bold, "bo"}, {l.dim, "di"}, {l.italic, "it"}, {l.underline, "un"}, {l.strike, "st"}, {l.inverse, "in"}} {
		if c.on {
			list = append(list, c.name)
		}
	}
	if l.front > 0 {
		list = append(list, "f"+strconv.Itoa(l.front-1))
	}
	if l.back > 0 {
		list = append(list, "b"+strconv.Itoa(l.back-1))
	}
	return strings.Join(list, " ")
}

// Terminal returns the output of a command as HTML. Colours and weights (SGR) become classes. All other sequences of terminals are
// left out, and a line that was drawn over begins again.
func Terminal(output string) template.HTML {
	if len(output) > maxTerminal {
		output = output[len(output)-maxTerminal:]
		for len(output) > 0 && !utf8.RuneStart(output[0]) {
			output = output[1:]
		}
	}
	var p printer
	p.print(strings.ReplaceAll(output, "\r\n", "\n"))
	return template.HTML(p.html())
}

// Lines returns lines of an output as HTML, each as Terminal does. A look that a line sets goes on in the next ones. After most elements
// the rest has no looks.
func Lines(lines []string, most int) []template.HTML {
	list := make([]template.HTML, 0, len(lines))
	var p printer
	for _, line := range lines {
		p.pieces, p.line = p.pieces[:0], 0
		p.print(strings.TrimRight(line, "\r"))
		if most <= 0 {
			for i := range p.pieces {
				p.pieces[i].look = look{}
			}
		}
		for _, piece := range p.pieces {
			if piece.look != (look{}) {
				most--
			}
		}
		list = append(list, template.HTML(p.html()))
	}
	return list
}

// print takes a part of an output, which has no sequence that another part ends.
func (p *printer) print(output string) {
	for output != "" {
		at := strings.IndexAny(output, "\x1b\u009b\r\b")
		if at < 0 {
			at = len(output)
		}
		p.write(output[:at])
		if output = output[at:]; output == "" {
			break
		}
		switch {
		case output[0] == '\r':
			p.again()
			output = output[1:]
		case output[0] == '\b':
			output = output[1:]
		default:
			params, final, n := sequence(output)
			if final == 'm' {
				p.now = p.now.with(params)
			}
			output = output[n:]
		}
	}
}

// printer collects pieces of text with their looks.
type printer struct {
	now    look
	pieces []styled
	line   int // the piece with which the present line begins
}

// styled is a text with one look.
type styled struct {
	look look
	text string
}

func (p *printer) write(text string) {
	if text == "" {
		return
	}
	if end := strings.LastIndexByte(text, '\n'); end >= 0 {
		p.pieces = append(p.pieces, styled{p.now, text[:end+1]})
		p.line = len(p.pieces)
		text = text[end+1:]
	}
	if text != "" {
		p.pieces = append(p.pieces, styled{p.now, text})
	}
}

// again begins the line again.
func (p *printer) again() { p.pieces = p.pieces[:p.line] }

func (p *printer) html() string {
	var out strings.Builder
	for i := 0; i < len(p.pieces); {
		l := p.pieces[i].look
		var text strings.Builder
		for ; i < len(p.pieces) && p.pieces[i].look == l; i++ {
			text.WriteString(p.pieces[i].text)
		}
		shown := template.HTMLEscapeString(Visible(text.String()))
		if class := l.classes(); class != "" {
			shown = `<span class="` + class + `">` + shown + "</span>"
		}
		out.WriteString(shown)
	}
	return out.String()
}

// sequence reads the sequence at the beginning of s. It returns the parameters and the last byte of a control sequence, and how many
// bytes the sequence has. final is 0 for all other sequences.
func sequence(s string) (params string, final byte, n int) {
	if strings.HasPrefix(s, "\u009b") {
		params, final, n = control(s[len("\u009b"):])
		return params, final, n + len("\u009b")
	}
	if len(s) < 2 {
		return "", 0, len(s)
	}
	switch s[1] {
	case '[':
		params, final, n = control(s[2:])
		return params, final, n + 2
	case ']', 'P', 'X', '^', '_': // a string, to BEL or ST
		for i := 2; i < len(s); i++ {
			switch {
			case s[i] == '\a':
				return "", 0, i + 1
			case s[i] == '\x1b':
				if i+1 < len(s) && s[i+1] == '\\' {
					return "", 0, i + 2
				}
				return "", 0, i
			case s[i] == '\n':
				return "", 0, i // no string has lines
			}
		}
		return "", 0, len(s)
	case '(', ')', '*', '+', '#', '%', ' ':
		return "", 0, min(3, len(s))
	}
	if s[1] < 0x30 || s[1] > 0x7e {
		return "", 0, 1
	}
	return "", 0, 2
}

// control reads a control sequence after its introducer.
func control(s string) (params string, final byte, n int) {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 0x40 && c <= 0x7e:
			return s[:i], c, i + 1
		case c < 0x20 || c > 0x3f:
			return "", 0, i
		}
	}
	return "", 0, len(s)
}

// with returns the look after a sequence with these parameters.
func (l look) with(params string) look {
	if len(params) > 200 || strings.ContainsAny(params, "<=>?") {
		return l
	}
	codes := strings.Split(strings.ReplaceAll(params, ":", ";"), ";")
	for len(codes) > 0 {
		n, err := strconv.Atoi(codes[0])
		if codes[0] == "" {
			n, err = 0, nil
		}
		codes = codes[1:]
		if err != nil {
			continue
		}
		switch {
		case n == 38 || n == 48:
			var c int
			if c, codes = extended(codes); n == 38 {
				l.front = c
			} else {
				l.back = c
			}
		default:
			l = l.set(n)
		}
	}
	return l
}

// set returns the look after one code.
func (l look) set(n int) look {
	switch {
	case n == 0:
		return look{}
	case n == 1:
		l.bold = true
	case n == 2:
		l.dim = true
	case n == 3:
		l.italic = true
	case n == 4:
		l.underline = true
	case n == 7:
		l.inverse = true
	case n == 9:
		l.strike = true
	case n == 22:
		l.bold, l.dim = false, false
	case n == 23:
		l.italic = false
	case n == 24:
		l.underline = false
	case n == 27:
		l.inverse = false
	case n == 29:
		l.strike = false
	case n >= 30 && n <= 37:
		l.front = n - 29
	case n == 39:
		l.front = 0
	case n >= 40 && n <= 47:
		l.back = n - 39
	case n == 49:
		l.back = 0
	case n >= 90 && n <= 97:
		l.front = n - 81
	case n >= 100 && n <= 107:
		l.back = n - 91
	}
	return l
}

// extended reads a colour of 256 or of 24 bits, and returns the nearest of the sixteen.
func extended(codes []string) (colour int, rest []string) {
	number := func(i int) int {
		if i >= len(codes) {
			return 0
		}
		n, _ := strconv.Atoi(codes[i])
		return min(max(n, 0), 255)
	}
	switch number(0) {
	case 5:
		return of256(number(1)), codes[min(2, len(codes)):]
	case 2:
		return nearest(number(1), number(2), number(3)), codes[min(4, len(codes)):]
	}
	return 0, codes[min(1, len(codes)):]
}

func of256(n int) int {
	switch {
	case n < 16:
		return n + 1
	case n >= 232:
		grey := 8 + (n-232)*10
		return nearest(grey, grey, grey)
	}
	level := func(n int) int {
		if n == 0 {
			return 0
		}
		return 55 + 40*n
	}
	n -= 16
	return nearest(level(n/36), level(n/6%6), level(n%6))
}

// sixteen are the colours of xterm.
var sixteen = [16][3]int{{0, 0, 0}, {205, 0, 0}, {0, 205, 0}, {205, 205, 0}, {0, 0, 238}, {205, 0, 205}, {0, 205, 205},
	{229, 229, 229},
	{127, 127, 127}, {255, 0, 0}, {0, 255, 0}, {255, 255, 0}, {92, 92, 255}, {255, 0, 255}, {0, 255, 255}, {255, 255, 255}}

func nearest(r, g, b int) int {
	best, least := 1, 1<<30
	for i, c := range sixteen {
		if d := (r-c[0])*(r-c[0]) + (g-c[1])*(g-c[1]) + (b-c[2])*(b-c[2]); d < least {
			best, least = i+1, d
		}
	}
	return best
}
