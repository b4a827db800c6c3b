package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds on a request.
const (
	maxRequest = 32 << 20
	// bodyTime bounds the time until a body has arrived.
	bodyTime = 2 * time.Minute
)

// question is a request to a model.
type question struct {
	body   []byte
	model  string
	stream bool
	most   int64 // most tokens of the answer; 0 if the request has no limit
	// usageAdded means that the client did not ask for the last chunk of the stream.
	usageAdded bool
}

// bodyModel matches the name of a model in a body. The names of endpoints that serve many vendors' models have slashes.
var bodyModel = pattern.New(`^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}$`)

// readBody reads a request's body into memory, which the account of the run counts.
func (c *call) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	tooLarge := &refusal{kind: kindTooLarge, text: fmt.Sprintf("ramus: the request is larger than %d MiB", maxRequest>>20)}
	if r.ContentLength > maxRequest {
		return nil, tooLarge
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // only a server of a test has no deadlines
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	var body []byte
	for {
		if len(body) == cap(body) {
			// One byte more than allowed shows that the body is too long.
			size := min(max(2*cap(body), 64<<10), maxRequest+1)
			if !c.account.holdBytes(int64(size - cap(body))) {
				return nil, &refusal{kind: kindBusy, text: "ramus: too many large requests at once; try again"}
			}
			c.held += int64(size - cap(body))
			body = append(make([]byte, 0, size), body...)
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > maxRequest:
			return nil, tooLarge
		case errors.Is(err, io.EOF):
			return body, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, &refusal{kind: kindTime, text: fmt.Sprintf("ramus: the request did not come within %v", bodyTime)}
		case err != nil:
			return nil, &refusal{kind: kindBadRequest, text: "ramus: the request broke off"}
		}
	}
}

// parse reads the relevant parts of a body, and returns the question to send. model is the name in the path, or "".
func (e *endpoint) parse(v *served, path, model string, body []byte) (question, *refusal) {
	q := question{body: body, model: model}
	bad := func(format string, args ...any) (question, *refusal) {
		return q, &refusal{kind: kindBadRequest, text: "ramus: " + fmt.Sprintf(format, args...)}
	}
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '{' || !json.Valid(body) {
		return bad("the body must be a JSON object")
	}
	seen := make(map[string]bool)
	var options member
	for m := range members(body) {
		// The provider might use the key that was not checked here.
		if seen[m.key] {
			return bad("the body has the key %q twice", text.Clip(m.key, clipped))
		}
		seen[m.key] = true
		switch m.key {
		case "model":
			if model != "" {
				continue // in Gemini's body it has no effect
			}
			if json.Unmarshal(m.value(body), &q.model) != nil || !bodyModel.MatchString(q.model) {
				return bad("the body's model is no model's name")
			}
		case "stream":
			q.stream = string(m.value(body)) == "true"
		case "background":
			if string(m.value(body)) != "false" && string(m.value(body)) != "null" {
				return bad("background work is not served: it could not be counted")
			}
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			if n, err := strconv.ParseInt(string(m.value(body)), 10, 64); err == nil && n > 0 {
				q.most = max(q.most, min(n, maxTokens))
			}
		case "stream_options":
			options = m
		}
	}
	if e.counted != countNothing && q.model == "" {
		return bad("the body names no model")
	}
	if v.name == "openai" && path == "/chat/completions" && q.stream {
		q.body, q.usageAdded = withUsage(body, options)
	}
	return q, nil
}

// withUsage asks for the usage in a streamed completion, because its last chunk otherwise lacks the counts. added is
// true if the client did not ask.
func withUsage(body []byte, options member) (with []byte, added bool) {
	var o map[string]json.RawMessage
	if options.key != "" && json.Unmarshal(options.value(body), &o) == nil && string(o["include_usage"]) == "true" {
		return body, false
	}
	if o == nil {
		o = make(map[string]json.RawMessage)
	}
	o["include_usage"] = json.RawMessage("true")
	value := marshal(o)
	if options.key != "" {
		return bytes.Join([][]byte{body[:options.from], value, body[options.to:]}, nil), true
	}
	// The object has at least the member stream.
	return bytes.Join([][]byte{[]byte(`{"stream_options":`), value, []byte(`,`), body[1:]}, nil), true
}

// member is one member of a JSON object. Its value is text[from:to].
type member struct {
	key      string
	from, to int
}

func (m member) value(text []byte) []byte { return text[m.from:m.to] }

// members returns the members of a valid JSON object that begins with its brace. It copies only keys, because bodies
// are large, and only a few members matter here.
func members(text []byte) iter.Seq[member] {
	return func(yield func(member) bool) {
		i := 1
		space := func() {
			for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r' ||
				text[i] == ',' || text[i] == ':') {
				i++
			}
		}
		for {
			space()
			if i >= len(text) || text[i] != '"' {
				return
			}
			start := i
			i = stringEnd(text, i)
			var m member
			if json.Unmarshal(text[start:i], &m.key) != nil {
				return
			}
			space()
			m.from = i
			i = valueEnd(text, i)
			m.to = i
			if !yield(m) {
				return
			}
		}
	}
}

// stringEnd returns the index after the string that begins at i.
func stringEnd(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// valueEnd returns the index after the value that begins at i.
func valueEnd(text []byte, i int) int {
	for depth := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = stringEnd(text, i) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth == 0 {
				return i // of a number, true, false or null
			}
			depth--
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue // a part of a number, true, false or null; or a colon
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(text)
}

// clipped is the number of bytes of a container's text in an error.
const clipped = 40
