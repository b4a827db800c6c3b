package browser

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/internal/redact"
)

// What is learned at most: a page that makes more credentials than these has the
// rest removed only where they stand.
const (
	lessonValues = 300
	lessonBytes  = 128 << 10
	lessonValue  = 4 << 10
	lessonCalls  = 10_000
)

// lesson is what a first look at a trace or HAR tells for the second.
type lesson struct {
	secrets *redact.Secrets   // that are known anyway: no name may show one
	values  map[string]string // names by value
	bytes   int
	typed   map[string]string // what calls typed into fields for passwords, by the call's id
	asked   map[string]string // what calls typed into any field, until it is known which
	bodies  map[string]string // media types of bodies that were sent or received, by their file's name
}

// strength says how sure it is that a text is a credential and not a word that
// stands in the page too.
type strength int

const (
	// likely: named like one. "theme=dark" is a cookie as well, so that it must look like one.
	likely strength = iota
	// certain: a password that was typed, or an Authorization header.
	certain
)

// take remembers a value by what it is called.
func (l *lesson) take(name, value string, how strength) {
	value = strings.TrimSpace(value)
	if len(value) < redact.MinLength || len(value) > lessonValue || how == likely && !looksSecret(value) || value == Redacted {
		return
	}
	if l.values[value] != "" || len(l.values) >= lessonValues || l.bytes+len(value) > lessonBytes {
		return
	}
	if l.values == nil {
		l.values = make(map[string]string)
	}
	if name = l.secrets.String(name); len(name) > 40 {
		name = strings.ToValidUTF8(name[:40], "")
	}
	l.values[value] = name
	l.bytes += len(value)
	// Programs print what they had before it was escaped.
	if plain, err := url.QueryUnescape(value); err == nil && plain != value {
		l.take(name, plain, how)
	}
}

// authorization remembers the credentials in an Authorization header.
func (l *lesson) authorization(name, value string) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(value), " ")
	if !ok {
		l.take(name, value, certain)
		return
	}
	l.take(name, rest, certain)
	if strings.EqualFold(scheme, "basic") {
		if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
			if _, password, ok := strings.Cut(string(plain), ":"); ok {
				l.take("password", password, certain)
			}
		}
	}
}

// cookies remembers the values in a Cookie header, or the first in a Set-Cookie header.
func (l *lesson) cookies(header string) {
	for line := range strings.Lines(header) { // several Set-Cookie headers are lines of one
		for i, part := range strings.Split(line, ";") {
			name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
			switch strings.ToLower(name) {
			case "path", "domain", "expires", "max-age", "samesite":
				if i > 0 {
					continue
				}
			}
			if ok {
				l.take("cookie "+name, strings.Trim(value, `"`), likely)
			}
		}
	}
}

// looksSecret tells a value that was made by a program from words and addresses.
func looksSecret(value string) bool {
	if strings.Contains(value, "://") || strings.HasPrefix(value, "/") {
		return false
	}
	digits, letters := false, false
	for _, r := range value {
		switch {
		case unicode.IsSpace(r):
			return false
		case unicode.IsDigit(r):
			digits = true
		case unicode.IsLetter(r):
			letters = true
		}
	}
	return len(value) >= 24 || len(value) >= 12 && digits && letters
}

// named are the values that were learned, by names that differ.
func (l *lesson) named() map[string]string {
	values := make(map[string]string, len(l.values))
	for _, value := range sortedKeys(l.values) {
		name := l.values[value]
		for n := 2; values[name] != ""; n++ {
			name = fmt.Sprintf("%s %d", l.values[value], n)
		}
		values[name] = value
	}
	return values
}
