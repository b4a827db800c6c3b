package browser

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/url"
	"path"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/internal/redact"
)

// scrub removes credentials from one file. With a lesson it only collects them, and its output is discarded.
type scrub struct {
	secrets *redact.Secrets // as given by the caller
	lesson  *lesson         // of the first pass; nil in the second
	// The results of the first pass. known has all values, including the given ones.
	known  *redact.Secrets
	typed  map[string]string
	bodies map[string]string

	found map[string]bool // names of secrets
	depth int             // nesting of JSON in strings of JSON
}

// hide returns the replacement of a credential. It also replaces a known secret, whose own label is not fit for a URL.
func (s *scrub) hide(name, value string, how strength) string {
	if value == "" {
		return value
	}
	if s.lesson != nil {
		s.lesson.learnValue(name, value, how)
		return value
	}
	s.exact(value) // only to record the name of a known secret
	return Redacted
}

// header returns the replacement of the value of a credential header.
func (s *scrub) header(name, value string) string {
	if value == "" {
		return value
	}
	if s.lesson == nil {
		return s.hide(name, value, likely)
	}
	switch strings.ToLower(name) {
	case "cookie", "set-cookie":
		s.lesson.cookies(value)
	case "authorization", "proxy-authorization":
		s.lesson.authorization("authorization", value)
	default:
		s.lesson.learnValue(strings.ToLower(name), value, likely)
	}
	return value
}

// fillMessage matches log lines in which Playwright names the typed text.
var fillMessage = pattern.New(`^(\s*(?:fill|type|press|insertText)\()".*"\)$`)

// passwordElement matches log lines in which Playwright names the element.
var passwordElement = pattern.New(`locator resolved to .*(?:type="password"|autocomplete="(?:current-password|new-password|one-time-code)")`)

// event cleans one line of a trace or of the console.
func (s *scrub) event(v any) any {
	e, ok := v.(map[string]any)
	if !ok {
		return s.value("", v)
	}
	id := textOf(e["callId"])
	switch textOf(e["type"]) {
	case "before":
		params, _ := e["params"].(map[string]any)
		for _, key := range []string{"value", "text", "key"} {
			text := textOf(params[key])
			if text == "" {
				continue
			}
			if s.lesson != nil {
				s.lesson.ask(id, text)
			} else if typed := s.typed[id]; typed != "" {
				params[key] = Redacted
				if title := textOf(e["title"]); title != "" {
					e["title"] = strings.ReplaceAll(title, typed, Redacted)
				}
			}
		}
	case "log":
		message := textOf(e["message"])
		switch {
		case s.lesson != nil && passwordElement.MatchString(message):
			s.lesson.password(id)
		case s.lesson == nil && s.typed[id] != "":
			e["message"] = fillMessage.ReplaceAllString(message, `$1"`+Redacted+`")`)
		}
	}
	// These are words of the format itself. Removing a secret that equals one of them would break the trace.
	kept := make(map[string]any)
	for _, key := range []string{"type", "class", "method", "origin", "browserName", "platform", "sdkLanguage", "messageType"} {
		if word, ok := e[key].(string); ok && isWord(word) {
			kept[key] = word
			delete(e, key)
		}
	}
	clean, _ := s.value("", e).(map[string]any)
	for key, word := range kept {
		clean[key] = word
	}
	return clean
}

var wordRule = pattern.New(`^[A-Za-z][A-Za-z0-9\-]{0,40}$`)

func isWord(text string) bool { return wordRule.MatchString(text) }

// ask remembers the typed text of a call until its element is known.
func (l *lesson) ask(id, text string) {
	if id == "" || len(text) > lessonValue || len(l.asked) >= lessonCalls {
		return
	}
	if l.asked == nil {
		l.asked = make(map[string]string)
	}
	l.asked[id] = text
}

// password marks the typed text of a call as a password.
func (l *lesson) password(id string) {
	text := l.asked[id]
	if text == "" {
		return
	}
	if l.typed == nil {
		l.typed = make(map[string]string)
	}
	l.typed[id] = text
	l.learnValue("password", text, certain)
}

// value cleans a JSON value. key is its name in the object around it. Maps and lists are changed in place.
func (s *scrub) value(key string, v any) any {
	switch v := v.(type) {
	case string:
		return s.string(v)
	case json.Number:
		// A number is replaced only if it is a secret as a whole, because a part of a time is harmless.
		if clean := s.exact(v.String()); isLabel(clean) {
			return clean
		}
		return v
	case []any:
		for i := range v {
			v[i] = s.value(key, v[i])
		}
		return v
	case map[string]any:
		return s.object(key, v)
	}
	return v
}

// object cleans a JSON object. Credentials are recognised by the form of the object.
func (s *scrub) object(key string, o map[string]any) any {
	switch name, value := textOf(o["name"]), textOf(o["value"]); {
	case value == "":
	case key == "cookies":
		o["value"] = s.hide("cookie "+name, value, likely)
	case key == "headers" && isCredentialHeader(name):
		o["value"] = s.header(name, value)
	case key == "queryString" && isCredentialParameter(name):
		o["value"] = s.hide("parameter "+name, value, likely)
	case key == "localStorage" || key == "sessionStorage":
		o["value"] = s.hide("storage "+name, value, likely)
	case name != "" && isCredentialField(name):
		o["value"] = s.hide("field "+name, value, likely)
	}
	if isPasswordElement(o) {
		for _, key := range []string{"value", "__playwright_value_"} {
			if value := textOf(o[key]); value != "" {
				o[key] = s.hide("password", value, certain)
			}
		}
	}
	// This is Playwright's notation for an argument that is an object.
	if field, inner := textOf(o["k"]), objectOf(o["v"]); isCredentialField(field) && inner != nil {
		if value := textOf(inner["s"]); value != "" {
			inner["s"] = s.hide("field "+field, value, likely)
		}
	}
	if s.lesson != nil {
		s.bodyOf(o)
	}
	s.bodyText(o)
	out := o
	for _, k := range sortedKeys(o) {
		v := o[k]
		if text, ok := v.(string); ok && isCredentialField(k) && !isPasswordElement(o) {
			v = s.hide("field "+k, text, likely)
		} else if ok && isCredentialHeader(k) && (key == "headers" || strings.HasSuffix(key, "Headers")) {
			v = s.header(k, text)
		} else {
			v = s.value(k, v)
		}
		if clean := s.exact(k); clean != k {
			delete(out, k)
			k = clean
		}
		out[k] = v
	}
	return out
}

// isPasswordElement reports whether o has the attributes of a password field.
func isPasswordElement(o map[string]any) bool {
	if strings.EqualFold(textOf(o["type"]), "password") {
		return true
	}
	switch strings.ToLower(textOf(o["autocomplete"])) {
	case "current-password", "new-password", "one-time-code":
		return true
	}
	return false
}

// bodyOf remembers the media type of a body that is in a file of its own.
func (s *scrub) bodyOf(o map[string]any) {
	media := textOf(o["mimeType"])
	if media == "" {
		return
	}
	for _, key := range []string{"_sha1", "_file"} {
		if name := textOf(o[key]); name != "" && len(s.lesson.bodies) < MaxRedactEntries {
			if s.lesson.bodies == nil {
				s.lesson.bodies = make(map[string]string)
			}
			if bodyKind(media) != "" {
				s.lesson.bodies[path.Base(name)] = media
			}
		}
	}
}

func (s *scrub) bodyType(name string) string {
	if s.lesson != nil {
		return s.lesson.bodies[name]
	}
	return s.bodies[name]
}

// bodyText cleans a body inside the object, in a HAR's content or postData.
func (s *scrub) bodyText(o map[string]any) {
	text, media := textOf(o["text"]), textOf(o["mimeType"])
	if text == "" || media == "" {
		return
	}
	if textOf(o["encoding"]) == "base64" {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil || isMedia(b) {
			return
		}
		o["text"] = base64.StdEncoding.EncodeToString(s.body(b, media))
		return
	}
	o["text"] = string(s.body([]byte(text), media))
}

// bodyKind returns "json", "form" or "multipart". Returns "" for a body without fields.
func bodyKind(media string) string {
	media, _, _ = mime.ParseMediaType(media)
	switch {
	case media == "application/json", strings.HasSuffix(media, "+json"), media == "text/json":
		return "json"
	case media == "application/x-www-form-urlencoded":
		return "form"
	case media == "multipart/form-data":
		return "multipart"
	}
	return ""
}

// body cleans a body that was sent or received.
func (s *scrub) body(b []byte, media string) []byte {
	switch bodyKind(media) {
	case "form":
		return []byte(s.form(s.exact(string(b))))
	case "json":
		if v, err := parseJSON(b); err == nil {
			var out bytes.Buffer
			if writeJSON(&out, s.value("", v)) == nil {
				return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
			}
		}
	}
	return []byte(s.text(string(b)))
}

// form cleans a form in the encoding of browsers.
func (s *scrub) form(t string) string {
	fields := strings.Split(t, "&")
	for i, field := range fields {
		name, value, ok := strings.Cut(field, "=")
		if plain, err := url.QueryUnescape(name); err == nil && ok && isCredentialField(plain) {
			fields[i] = name + "=" + s.hide("field "+plain, value, likely)
		}
	}
	return s.rules(strings.Join(fields, "&"))
}

// maxInner bounds the nesting of JSON in strings of JSON.
const maxInner = 4

// string cleans a string of a JSON text. The string may be JSON itself.
func (s *scrub) string(t string) string {
	// A shorter text has no member that is a credential.
	if len(t) >= redact.MinLength && s.depth < maxInner && (t[0] == '{' && t[len(t)-1] == '}' || t[0] == '[' && t[len(t)-1] == ']') {
		if v, err := parseJSON([]byte(t)); err == nil {
			var out bytes.Buffer
			s.depth++
			err := writeJSON(&out, s.value("", v))
			s.depth--
			if err == nil {
				return strings.TrimSuffix(out.String(), "\n")
			}
		}
	}
	return s.text(t)
}

func textOf(v any) string { t, _ := v.(string); return t }

func objectOf(v any) map[string]any { o, _ := v.(map[string]any); return o }

// parseJSON reads one JSON text. Numbers keep their notation.
func parseJSON(b []byte) (v any, err error) {
	if n := countValues(b); n > maxValues {
		return nil, fmt.Errorf("it has more than %d values", maxValues)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is not JSON: unexpected data after its end")
	}
	return v, nil
}

// countValues returns the number of values of a JSON text that would need memory.
func countValues(b []byte) (n int) {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '[' || c == '{'):
			n++
		}
	}
	return n
}

// writeJSON writes a JSON text and a line end. The keys of objects are in alphabetical order.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
