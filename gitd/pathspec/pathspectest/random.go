// Package pathspectest generates random names, contents, .gitignore and .gitattributes files for
// tests that compare gitd with git.
package pathspectest

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// Random generates the content of work trees. Equal sources give equal content.
type Random struct{ *rand.Rand }

// Names are names of files and folders, some of them with a meaning in patterns.
var Names = []string{"a", "b", "c", "a.txt", "b.txt", "c.log", "x.o", "build", "Build", "src", "lib", "doc.md", "run.bat",
	"with space", "trailing ", "new\nline", "tab\t", "\xff\xfe", "ä", "-x", "#hash", "!bang", "*", "[x]", "q?",
	`back\slash`, `"quoted"`, "a~1", "git", ".git2", "d.git", ".hidden", strings.Repeat("n", 255)}

// Name returns one of Names.
func (r Random) Name() string { return Names[r.IntN(len(Names))] }

// Pick returns one of list.
func (r Random) Pick(list []string) string { return list[r.IntN(len(list))] }

// Content returns the content of a file, text or binary, with all kinds of line ends.
func (r Random) Content() []byte {
	var b []byte
	for range r.IntN(6) {
		b = append(b, r.Pick([]string{"text", "", "more text ä", "x\ty", "\x1b[m", strings.Repeat("long ", 30)})...)
		switch r.IntN(12) {
		case 0, 1, 2, 3, 4:
			b = append(b, '\n')
		case 5, 6, 7, 8:
			b = append(b, "\r\n"...)
		case 9:
			b = append(b, r.Pick([]string{"\r", "\x00", "\x01", "\x7f\x02", "\r\r\n", "\x1a"})...)
		}
	}
	if r.IntN(10) == 0 {
		b = append(b, r.Pick([]string{"\x1a", "\r", "\r\n\x1a"})...)
	}
	return b
}

// Pattern returns a pattern of .gitignore or .gitattributes.
func (r Random) Pattern() string {
	word := func() string {
		s := r.Pick([]string{"*", "*.txt", "*.o", "?", "[a-c]", "[!a]", "build", "src", "lib", "a*", "*b", "**",
			"a.txt", "b", "c", "[[:alpha:]]", `\*`, `\#hash`, `\!bang`, "#hash", "trailing\\ ", "with space", "*.[ot]*",
			"n*n", `back\\slash`, "[", "x**"})
		if r.IntN(8) == 0 {
			s = r.Name()
		}
		return s
	}
	p := word()
	for r.IntN(3) == 0 {
		p += "/" + word()
	}
	if r.IntN(4) == 0 {
		p = "/" + p
	}
	if r.IntN(4) == 0 {
		p += "/"
	}
	if r.IntN(10) == 0 {
		p = "**/" + p
	}
	if r.IntN(10) == 0 {
		p += "/**"
	}
	return p
}

// Gitignore returns the content of a .gitignore.
func (r Random) Gitignore() []byte {
	var b strings.Builder
	for range 1 + r.IntN(5) {
		if r.IntN(3) == 0 {
			b.WriteByte('!')
		}
		b.WriteString(r.Pattern() + r.Pick([]string{"", "", "", "", " ", "\r", "\t"}) + "\n")
	}
	return []byte(b.String())
}

// Gitattributes returns the content of a .gitattributes.
func (r Random) Gitattributes() []byte {
	var b strings.Builder
	if r.IntN(4) == 0 {
		b.WriteString("[attr]mine text eol=crlf\n[attr]other -text\n")
	}
	for range 1 + r.IntN(4) {
		p := r.Pattern()
		if strings.ContainsAny(p, " \t\"\n") {
			p = strconv.Quote(p)
		}
		b.WriteString(p)
		for range 1 + r.IntN(2) {
			b.WriteString(" " + r.Pick([]string{"text", "text=auto", "text=auto", "-text", "!text", "eol=crlf",
				"eol=lf", "binary", "mine", "-mine", "other", "crlf", "-crlf", "crlf=input", "diff", "text=auto eol=crlf"}))
		}
		if r.IntN(40) == 0 {
			b.WriteString(r.Pick([]string{" ident", " filter=x", " working-tree-encoding=UTF-16", " -ident -filter",
				" bad=name= =x"}))
		}
		b.WriteString("\n")
	}
	return []byte(b.String())
}
