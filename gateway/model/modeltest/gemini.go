package modeltest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// gemini speaks generateContent and streamGenerateContent.
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
	var q struct {
		Contents []struct {
			Parts []struct {
				Text string `json:"text"`
			} `json:"parts"`
		} `json:"contents"`
	}
	if !x.question(&q) {
		return
	}
	if len(q.Contents) == 0 {
		x.refuse(http.StatusBadRequest, "contents is not specified")
		return
	}
	var all []string
	for _, c := range q.Contents {
		for _, p := range c.Parts {
			all = append(all, p.Text)
		}
	}
	words := x.say(strings.Join(all, " "))
	answer := func(text string, out int64, finish bool) object {
		c := object{"index": 0, "content": object{"role": "model", "parts": []any{object{"text": text}}}}
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
		x.whole(answer(strings.Join(words, ""), x.call.Output, true))
	case "streamGenerateContent":
		x.streamGemini(words, answer)
	default:
		x.refuse(http.StatusNotFound, "no such method: %s", method)
	}
}

// streamGemini sends events with alt=sse, and otherwise one array in pieces.
func (x *exchange) streamGemini(words []string, answer func(string, int64, bool) object) {
	events := x.r.URL.Query().Get("alt") == "sse"
	kind := "application/json"
	if events {
		kind = "text/event-stream"
	}
	s := x.stream(kind)
	defer s.end()
	for i, word := range words {
		part := answer(word, int64(i+1), i == len(words)-1)
		if events {
			s.event("", part)
			continue
		}
		text, err := json.Marshal(part)
		if err != nil {
			panic(err) // of a type of ours
		}
		s.send([]byte(map[bool]string{true: "[", false: ",\r\n"}[i == 0] + string(text)))
	}
	if !events {
		s.send([]byte("]"))
	}
}
