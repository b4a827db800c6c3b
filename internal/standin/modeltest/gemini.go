package modeltest

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// geminiPart is a part of a content. It is a text, a call of a tool, or a tool's result.
type geminiPart struct {
	Text    string `json:"text"`
	Thought bool   `json:"thought"`
	Call    *struct {
		Name string `json:"name"`
	} `json:"functionCall"`
	Response *struct {
		Name     string          `json:"name"`
		Response json.RawMessage `json:"response"`
	} `json:"functionResponse"`
	Signature string `json:"thoughtSignature"`
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

// texts returns the texts of a content's parts.
func (c geminiContent) texts() (texts []string) {
	for _, p := range c.Parts {
		if p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return texts
}

// geminiRequest is the body of generateContent.
type geminiRequest struct {
	Contents []geminiContent `json:"contents"`
	System   geminiContent   `json:"systemInstruction"`
	Tools    []struct {
		Functions []struct {
			Name string `json:"name"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
	Config struct {
		MIMEType string        `json:"responseMimeType"`
		Schema   *geminiSchema `json:"responseJsonSchema"`
	} `json:"generationConfig"`
}

// geminiSchema has the parts of a schema that are necessary to satisfy it.
type geminiSchema struct {
	Type       string                  `json:"type"`
	Properties map[string]geminiSchema `json:"properties"`
	Required   []string                `json:"required"`
	Enum       []any                   `json:"enum"`
}

// least returns the smallest value that satisfies the schema.
func (s geminiSchema) least() any {
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}
	switch strings.ToLower(s.Type) {
	case "string":
		return ""
	case "integer", "number":
		return 1
	case "boolean":
		return false
	case "array":
		return []any{}
	}
	o := object{}
	for _, name := range s.Required {
		o[name] = s.Properties[name].least()
	}
	return o
}

var geminiTool = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$`)

// readGemini checks a request as the provider does. It returns false if it has refused the request.
func (x *exchange) readGemini(model string, q *geminiRequest) (*talk, bool) {
	refuse := func(format string, args ...any) (*talk, bool) {
		x.refuse(http.StatusBadRequest, format, args...)
		return nil, false
	}
	if len(q.Contents) == 0 {
		return refuse("contents is not specified")
	}
	t := &talk{Question: Question{Model: model}}
	if texts := q.System.texts(); len(texts) > 0 {
		t.system(strings.Join(texts, "\n"))
	}
	for _, tool := range q.Tools {
		for i, f := range tool.Functions {
			if !geminiTool.MatchString(f.Name) {
				return refuse("Invalid value at 'tools.function_declarations[%d].name'", i)
			}
			t.Tools = append(t.Tools, f.Name)
		}
	}
	turn := 0 // the index of the person's last content, with which the turn begins
	for i, c := range q.Contents {
		if c.Role != "model" && !slices.ContainsFunc(c.Parts, func(p geminiPart) bool { return p.Response != nil }) {
			turn = i
		}
	}
	var open []string // the calls of the previous content
	for i, c := range q.Contents {
		var called, answered []string
		for _, p := range c.Parts {
			switch {
			case p.Call != nil:
				// The newest models require the signature of their thoughts with the first call of each step of this
				// turn.
				if i > turn && len(called) == 0 && strings.HasPrefix(model, "gemini-3") && p.Signature == "" {
					return refuse("Function call is missing a thought_signature in functionCall parts. Function call `%s`, position %d.", p.Call.Name, i+1)
				}
				called = append(called, p.Call.Name)
			case p.Response != nil:
				answered = append(answered, p.Response.Name)
				t.result(geminiResult(p.Response.Response))
			}
		}
		switch {
		case c.Role == "model" && len(answered) > 0, c.Role != "model" && len(called) > 0:
			return refuse("Please ensure that function call turn comes immediately after a user turn or after a function response turn.")
		case len(answered) != len(open):
			return refuse("Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
		case c.Role == "model", len(answered) > 0: // a text next to results is the client's remark on them
			for _, text := range c.texts() {
				t.model(text)
			}
		case c.Role == "user", c.Role == "":
			t.person(c.texts()...)
		case c.Role != "function":
			return refuse("Please use a valid role: user, model.")
		}
		open = called
	}
	if len(open) > 0 {
		return refuse("Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
	}
	return t, true
}

// geminiResult returns the text of a tool's result. It is the output, or the whole result if it has no output.
func geminiResult(response json.RawMessage) string {
	var r struct {
		Output string `json:"output"`
	}
	if json.Unmarshal(response, &r) == nil && r.Output != "" {
		return r.Output
	}
	return string(response)
}

// gemini implements generateContent and streamGenerateContent.
func (x *exchange) gemini() {
	rest, ok := strings.CutPrefix(x.path, "/v1beta/models")
	if ok && rest == "" {
		x.whole(object{"models": []any{object{"name": "models/gemini-stand-in-1"}}})
		return
	}
	model, method, found := strings.Cut(strings.TrimPrefix(rest, "/"), ":")
	if !ok || !found || strings.Contains(model, "/") {
		x.refuse(http.StatusNotFound, "no such resource: %s", x.path)
		return
	}
	var q geminiRequest
	if !x.question(&q) {
		return
	}
	if method == "countTokens" {
		var wrapped struct {
			Request *geminiRequest `json:"generateContentRequest"`
		}
		if json.Unmarshal(x.body, &wrapped) == nil && wrapped.Request != nil {
			q = *wrapped.Request
		}
	}
	t, ok := x.readGemini(model, &q)
	if !ok {
		return
	}
	words, calls := x.answer(t)
	if s := q.Config.Schema; s != nil && q.Config.MIMEType == "application/json" && !json.Valid([]byte(strings.Join(words, ""))) {
		text, err := json.Marshal(s.least())
		if err != nil {
			panic(err) // the value was JSON before
		}
		words = []string{string(text)}
		x.call.Output = int64(len(words))
	}
	var parts []object
	for _, word := range words {
		parts = append(parts, object{"text": word})
	}
	for i, c := range calls {
		part := object{"functionCall": object{"name": c.Name, "args": json.RawMessage(c.arguments())}}
		if i == 0 {
			part["thoughtSignature"] = x.id("c2lnbmVk") // base64
		}
		parts = append(parts, part)
	}
	answer := func(out int64, finish bool, parts ...object) object {
		c := object{"index": 0, "content": object{"role": "model", "parts": parts}}
		if finish {
			c["finishReason"] = "STOP"
		}
		a := object{"candidates": []any{c}, "modelVersion": model}
		if !x.fault.NoUsage {
			a["usageMetadata"] = object{"promptTokenCount": x.call.Input, "candidatesTokenCount": out,
				"cachedContentTokenCount": x.s.CacheRead, "totalTokenCount": x.call.Input + out}
		}
		return a
	}
	switch method {
	case "countTokens":
		x.whole(object{"totalTokens": x.call.Input})
	case "generateContent":
		whole := parts[len(words):]
		if words != nil {
			whole = append([]object{{"text": strings.Join(words, "")}}, whole...)
		}
		x.whole(answer(x.call.Output, true, whole...))
	case "streamGenerateContent":
		x.streamGemini(parts, answer)
	default:
		x.refuse(http.StatusNotFound, "no such method: %s", method)
	}
}

// streamGemini sends events with alt=sse, and otherwise one array in pieces. In contrast to the other providers, a part
// with a call is not split.
func (x *exchange) streamGemini(parts []object, answer func(int64, bool, ...object) object) {
	events := x.r.URL.Query().Get("alt") == "sse"
	kind := "application/json"
	if events {
		kind = "text/event-stream"
	}
	s := x.stream(kind)
	defer s.end()
	for i, part := range parts {
		last := i == len(parts)-1
		out := int64(i + 1)
		if last {
			out = x.call.Output
		}
		piece := answer(out, last, part)
		if events {
			s.event("", piece)
			continue
		}
		text, err := json.Marshal(piece)
		if err != nil {
			panic(err) // the type is ours
		}
		s.send([]byte(map[bool]string{true: "[", false: ",\r\n"}[i == 0] + string(text)))
	}
	if !events {
		s.send([]byte("]"))
	}
}
