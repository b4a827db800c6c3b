// Package page writes pages for people.
//
// # Nouns
//
// A page is one HTML document that needs nothing else: it has no script, loads nothing from elsewhere, and has the
// one style of this package, which a [Policy] names by its hash. Packages with pages of their own [Parse] them with
// the template "head", which begins each page, and the functions "style" and "sentence".
//
// # Untrusted input
//
// All text on a page. html/template escapes it; its callers make visible what would deceive the eye (see
// render.Clean).
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

//go:embed pages
var files embed.FS

var (
	style = string(must(files.ReadFile("pages/style.css")))

	// Policy lets a page show its style, and pictures and films of this server.
	Policy = "default-src 'none'; style-src 'sha256-" + hashStyle() +
		"'; img-src 'self'; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	// SandboxPolicy is for pages that show content of a container. A sandboxed page cannot reload itself, so
	// the page of a run has [Policy].
	SandboxPolicy = Policy + "; sandbox allow-downloads"
)

// Parse returns the templates of pages/*.html in fsys. It panics on a template with an error, which is a fault of
// the program that a test finds.
func Parse(fsys fs.FS) *template.Template {
	t := template.New("").Funcs(template.FuncMap{
		"style":    func() template.CSS { return template.CSS(style) },
		"sentence": sentence,
	})
	return must(must(t.ParseFS(files, "pages/*.html")).ParseFS(fsys, "pages/*.html"))
}

// Write answers with the page of a template. The page is complete before its first byte is sent, so that a fault in
// it is an error and not half a page.
func Write(w http.ResponseWriter, status int, policy string, t *template.Template, name string, data any) error {
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Errorf("cannot make the page: %w", err)
	}

	h := w.Header()
	MarkPrivate(h)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Del("Content-Disposition")
	w.WriteHeader(status)
	_, err := w.Write([]byte(b.String()))
	return err
}

// MarkPrivate marks an answer that only its reader may keep, and that must not tell other servers where it was found.
func MarkPrivate(h http.Header) {
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "private, no-cache")
	}
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex, nofollow")
}

// must returns v. It panics on an error, which is a fault of the program that a test finds.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func hashStyle() string {
	sum := sha256.Sum256([]byte(style))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// sentence makes a sentence of the text of a problem.
func sentence(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToUpper(first)) + s[size:] + "."
}
