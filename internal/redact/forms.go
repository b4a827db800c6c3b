package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// minLine is the length of the shortest line of a value with several lines that is a secret by itself.
const minLine = 16

// form is one notation of a value.
type form struct {
	text  string
	wraps bool // line breaks may split it
}

// formsOf returns the notations of a value that are searched, each once.
func formsOf(value string) []form {
	var list []form
	for _, v := range append(parts(value), value) {
		for _, text := range slices.Concat(quoted(v), escapedURL(v)) {
			list = append(list, form{text, false})
		}
		for _, text := range slices.Concat(base64Forms(v), hexForms(v)) {
			list = append(list, form{text, true})
		}
	}
	if strings.Contains(value, "\n") {
		crlf := strings.ReplaceAll(strings.ReplaceAll(value, "\r\n", "\n"), "\n", "\r\n")
		list = append(list, form{crlf, false}, form{strings.ReplaceAll(crlf, "\r\n", "\n"), false})
	}
	seen := make(map[string]bool)
	return slices.DeleteFunc(list, func(f form) bool {
		drop := seen[f.text] || len(f.text) < MinLength
		seen[f.text] = true
		return drop
	})
}

// parts returns the parts of a value that are secrets by themselves. These are its longer lines. In the JSON of a
// service account, whose lines are mostly the same for everybody, they are the keys.
func parts(value string) (list []string) {
	var fields map[string]any
	if json.Unmarshal([]byte(value), &fields) != nil {
		return lines(value)
	}
	for _, field := range fields {
		if text, ok := field.(string); ok && strings.Contains(text, "\n") {
			text = strings.TrimSpace(text)
			list = append(append(list, text), lines(text)...)
		}
	}
	return list
}

// lines returns the lines of a value with content. It leaves out the first and last line of a PEM file, which many
// files share.
func lines(value string) (list []string) {
	if !strings.Contains(value, "\n") {
		return nil
	}
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); len(line) >= minLine && !strings.HasPrefix(line, "-----") {
			list = append(list, line)
		}
	}
	return list
}

// base64Forms returns the characters of a value within a longer base64 text, for each number of bytes before it, and
// the base64 text of the value alone. If the value needs neither + nor /, these are the same in both alphabets, in URLs
// and in JSON.
func base64Forms(v string) (list []string) {
	std := base64.StdEncoding
	list = append(list, std.EncodeToString([]byte(v)), std.WithPadding(base64.NoPadding).EncodeToString([]byte(v)))
	for before := range 3 {
		text := std.EncodeToString(append(make([]byte, before), v...))
		// The first whole character of v, and the first one after v.
		from, to := (before*8+5)/6, (before+len(v))*8/6
		list = append(list, text[from:to])
	}
	for _, text := range slices.Clone(list) {
		for _, r := range []*strings.Replacer{
			strings.NewReplacer("+", "-", "/", "_"),
			strings.NewReplacer("+", "%2B", "/", "%2F", "=", "%3D"),
			strings.NewReplacer("+", "%2b", "/", "%2f", "=", "%3d"),
			strings.NewReplacer("/", `\/`),
		} {
			list = append(list, r.Replace(text))
		}
	}
	return list
}

func hexForms(v string) []string {
	text := hex.EncodeToString([]byte(v))
	return []string{text, strings.ToUpper(text)}
}

// escapedURL returns the notations of a value in a URL or a form. Programs differ in the characters that they escape.
func escapedURL(v string) (list []string) {
	const alnum = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	for _, kept := range []string{
		"",                             // everything is escaped
		alnum,                          // cautious programs
		alnum + "-_.~",                 // RFC 3986
		alnum + "-_.!~*'()",            // encodeURIComponent
		alnum + "-_.*",                 // forms of browsers
		alnum + "-_.!~*'();/?:@&=+$,#", // encodeURI
		alnum + "-_.~/",                // Python's quote
	} {
		for _, verb := range []string{"%%%02X", "%%%02x"} {
			var b strings.Builder
			for i := range len(v) {
				if strings.IndexByte(kept, v[i]) >= 0 {
					b.WriteByte(v[i])
				} else {
					fmt.Fprintf(&b, verb, v[i])
				}
			}
			list = append(list, b.String(), strings.ReplaceAll(b.String(), "%20", "+"))
		}
	}
	lower := func(s string) string { // lower converts only the digits of escapes
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			if s[i] == '%' && i+2 < len(s) {
				b.WriteString(strings.ToLower(s[i : i+3]))
				i += 2
				continue
			}
			b.WriteByte(s[i])
		}
		return b.String()
	}
	for _, text := range []string{url.QueryEscape(v), url.PathEscape(v), (&url.URL{Path: v}).EscapedPath()} {
		list = append(list, text, lower(text))
	}
	return list
}

// quoted returns a value unchanged, and in the quotes of JSON, Go, a shell and HTML.
func quoted(v string) []string {
	list := []string{v}
	for _, text := range jsonForms(v) {
		list = append(list, text)
		// JSON in JSON, as in a message within a message.
		list = append(list, jsonForms(text)...)
	}
	inner := func(s string) string { return s[1 : len(s)-1] }
	list = append(list, inner(strconv.Quote(v)), inner(strconv.QuoteToASCII(v)))
	// In single quotes ' becomes '\'' or '"'"'. In double quotes four characters get a backslash. bash's printf %q and
	// xtrace escape every character with a meaning.
	list = append(list, strings.ReplaceAll(v, `'`, `'\''`), strings.ReplaceAll(v, `'`, `'"'"'`),
		strings.ReplaceAll(v, `'`, `\'`),
		strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(v),
		backslashed(v, " !\"$&'()*,;<>?[\\]^`{|}\t"), backslashed(v, " !\"#$&'()*,;<>?[\\]^`{|}~\t"))
	for _, r := range []*strings.Replacer{
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;"),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;"),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;"),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#x27;"),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;"),
	} {
		list = append(list, r.Replace(v))
	}
	return append(list, html.EscapeString(v))
}

func backslashed(v, special string) string {
	var b strings.Builder
	for i := range len(v) {
		if strings.IndexByte(special, v[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(v[i])
	}
	return b.String()
}

// jsonForms returns the notations of encoders between quotes, with and without escapes for HTML, for slashes, and for
// characters that are not ASCII.
func jsonForms(v string) (list []string) {
	for _, forHTML := range []bool{false, true} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(forHTML)
		if e.Encode(v) != nil {
			continue // encoding a string cannot fail
		}
		text := strings.TrimSuffix(b.String(), "\n")
		text = text[1 : len(text)-1]
		ascii := asciiJSON(text)
		list = append(list, text, ascii, strings.ReplaceAll(text, "/", `\/`), strings.ReplaceAll(ascii, "/", `\/`))
	}
	return list
}

func asciiJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
