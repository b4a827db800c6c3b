package gateway

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Pages are whole in themselves: no script, nothing from elsewhere, one style
// that the policy names by its hash. All text in them is hostile: html/template
// escapes it, and clean makes visible what would deceive the eye.

//go:embed pages
var pageFiles embed.FS

var (
	pageStyle = string(must(pageFiles.ReadFile("pages/style.css")))
	// pagePolicy lets a page show its style, and this server's pictures and films.
	pagePolicy = "default-src 'none'; style-src 'sha256-" + styleHash() +
		"'; img-src 'self'; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	// sandboxPolicy is for pages that show what a container made. A sandboxed page
	// cannot reload itself, so the page of a run is not.
	sandboxPolicy = pagePolicy + "; sandbox allow-downloads"

	pages = must(template.New("").Funcs(template.FuncMap{
		"style":    func() template.CSS { return template.CSS(pageStyle) },
		"sentence": sentence,
	}).ParseFS(pageFiles, "pages/*.html"))
)

// must is for what is part of the program: a test that runs it finds its faults.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func styleHash() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// page writes a page. It is made whole before its first byte is sent, so that a
// fault in it is a problem and no half of a page.
func (c *call) page(status int, policy, name string, data any) error {
	var b strings.Builder
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Errorf("cannot make the page: %w", err)
	}
	c.private()
	h := c.W.Header()
	h.Set("Content-Type", mediaHTML)
	h.Set("Content-Security-Policy", policy)
	h.Del("Content-Disposition")
	c.W.WriteHeader(status)
	_, err := c.W.Write([]byte(b.String()))
	return err
}

// wantsPage tells a browser that followed a link from a program.
func (c *call) wantsPage() bool { return strings.Contains(c.R.Header.Get("Accept"), "text/html") }

// refusePage is a problem for people.
func (c *call) refusePage(p *Problem) {
	if err := c.page(p.Status, pagePolicy, "problem.html", p); err != nil {
		http.Error(c.W, p.Error(), p.Status)
	}
}

// sentence makes the text of a problem one, for a page.
func sentence(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToUpper(first)) + s[size:] + "."
}
