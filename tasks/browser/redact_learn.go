package browser

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/internal/redact"
)

// Bounds on a lesson. Of a page with more credentials, the rest is removed only at their own positions.
const (
	lessonValues = 300
	lessonBytes  = 128 << 10
	lessonValue  = 4 << 10
	lessonCalls  = 10_000
)

// lesson has the results of the first pass over a trace or HAR, for the second.
type lesson struct {
	secrets *redact.Secrets   // the given secrets, which no name may contain
	values  map[string]string // names by value
	bytes   int
	typed   map[string]string // text that calls typed into password fields, by the call's id
	asked   map[string]string // text that calls typed into any field, until the kind of the field is known
	bodies  map[string]string // media types of bodies that were sent or received, by their file's name
}

// strength is the certainty that a text is a credential and not a word of the page.
type strength int

const (
	// likely is for a text with the name of a credential. "theme=dark" is a cookie as well, so the text must also look
	// like a credential.
	likely strength = iota
	// certain is for a typed password or an Authorization header.
	certain
)

// learnValue remembers a value and its name.
func (l *lesson) learnValue(name, value string, how strength) {
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
	// Programs may print the value before it was escaped.
	if plain, err := url.QueryUnescape(value); err == nil && plain != value {
		l.learnValue(name, plain, how)
	}
}

// authorization remembers the credentials in an Authorization header.
func (l *lesson) authorization(name, value string) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(value), " ")
	if !ok {
		l.learnValue(name, value, certain)
		return
	}
	l.learnValue(name, rest, certain)
	if strings.EqualFold(scheme, "basic") {
		if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
			if _, password, ok := strings.Cut(string(plain), ":"); ok {
				l.learnValue("password", password, certain)
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
				l.learnValue("cookie "+name, strings.Trim(value, `"`), likely)
			}
		}
	}
}

// looksSecret reports whether value looks as if a program made it, as opposed to words and addresses.
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

// named returns the learned values by unique names.
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
