package modeltest

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// openai implements Chat Completions, Responses and Embeddings.
func (x *exchange) openai() {
	id, one := strings.CutPrefix(x.path, "/v1/models/")
	switch {
	case x.path == "/v1/models":
		x.whole(object{"object": "list",
			"data": []any{object{"id": "gpt-stand-in-1", "object": "model", "owned_by": "stand-in"}}})
	case one && x.r.Method == http.MethodGet:
		x.whole(object{"id": id, "object": "model", "owned_by": "stand-in"})
	case x.path == "/v1/chat/completions":
		x.completions()
	case x.path == "/v1/responses":
		x.responses()
	case x.path == "/v1/embeddings":
		x.embeddings()
	default:
		x.refuse(http.StatusNotFound, "Invalid URL (%s %s)", x.r.Method, x.path)
	}
}

var openAITool = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// chatMessage is a message of a conversation in Chat Completions.
type chatMessage struct {
	message
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tool_calls"`
	ToolCallID string `json:"tool_call_id"`
}

// chatRequest is the body of POST /v1/chat/completions.
type chatRequest struct {
	Model    string        `json:"model"`
	Messages []chatMessage `json:"messages"`
	Tools    []struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	Stream  bool `json:"stream"`
	Options *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// readChat checks a request as the provider does. It returns false if it has refused the request.
func (x *exchange) readChat(q *chatRequest) (*talk, bool) {
	refuse := func(format string, args ...any) (*talk, bool) {
		x.refuse(http.StatusBadRequest, format, args...)
		return nil, false
	}
	switch {
	case q.Model == "":
		return refuse("you must provide a model parameter")
	case len(q.Messages) == 0:
		return refuse("[] is too short - 'messages'")
	case q.Options != nil && !q.Stream:
		return refuse("The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
	t := &talk{Question: Question{Model: q.Model}}
	for i, tool := range q.Tools {
		if tool.Type != "function" || !openAITool.MatchString(tool.Function.Name) {
			return refuse("Invalid 'tools[%d].function.name': string does not match pattern.", i)
		}
		t.Tools = append(t.Tools, tool.Function.Name)
	}
	open := map[string]bool{} // calls that have no result yet
	for i, m := range q.Messages {
		text := textOf(m.Content)
		if m.Role != "tool" && len(open) > 0 {
			return refuse("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.")
		}
		switch m.Role {
		case "system", "developer":
			t.system(text)
		case "user":
			t.person(textsOf(m.Content)...)
		case "assistant":
			for _, c := range m.ToolCalls {
				if c.ID == "" || open[c.ID] {
					return refuse("Invalid 'messages[%d].tool_calls': the ids must be unique.", i)
				}
				open[c.ID] = true
			}
			t.model(text)
		case "tool":
			if !open[m.ToolCallID] {
				return refuse("Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.")
			}
			delete(open, m.ToolCallID)
			t.result(text)
		default:
			return refuse("Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", m.Role)
		}
	}
	if len(open) > 0 {
		return refuse("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.")
	}
	return t, true
}

func (x *exchange) completions() {
	var q chatRequest
	if !x.question(&q) {
		return
	}
	t, ok := x.readChat(&q)
	if !ok {
		return
	}
	words, called := x.answer(t)
	var calls []any
	for _, c := range called {
		calls = append(calls, object{"id": x.id("call_"), "type": "function",
			"function": object{"name": c.Name, "arguments": c.arguments()}})
	}
	finish := "stop"
	if len(calls) > 0 {
		finish = "tool_calls"
	}
	id := x.id("chatcmpl-")
	usage := object{"prompt_tokens": x.call.Input, "completion_tokens": x.call.Output,
		"total_tokens":          x.call.Input + x.call.Output,
		"prompt_tokens_details": object{"cached_tokens": x.s.CacheRead}}
	if !q.Stream {
		m := object{"role": "assistant", "content": nil}
		if words != nil {
			m["content"] = strings.Join(words, "")
		}
		if len(calls) > 0 {
			m["tool_calls"] = calls
		}
		a := object{"id": id, "object": "chat.completion", "model": q.Model, "usage": usage,
			"choices": []any{object{"index": 0, "message": m, "finish_reason": finish}}}
		if x.fault.NoUsage {
			delete(a, "usage")
		}
		x.whole(a)
		return
	}
	withUsage := q.Options != nil && q.Options.IncludeUsage && !x.fault.NoUsage
	chunk := func(choices ...any) object {
		c := object{"id": id, "object": "chat.completion.chunk", "model": q.Model, "choices": append([]any{}, choices...)}
		if withUsage {
			c["usage"] = nil
		}
		return c
	}
	s := x.stream("text/event-stream")
	defer s.end()
	delta := func(d object) { s.event("", chunk(object{"index": 0, "delta": d, "finish_reason": nil})) }
	delta(object{"role": "assistant", "content": ""})
	for _, word := range words {
		delta(object{"content": word})
	}
	for i, c := range calls {
		c := c.(object)
		function := c["function"].(object)
		// The first piece has the name. All others have only arguments.
		delta(object{"tool_calls": []any{object{"index": i, "id": c["id"], "type": "function",
			"function": object{"name": function["name"], "arguments": ""}}}})
		for _, part := range pieces(function["arguments"].(string)) {
			delta(object{"tool_calls": []any{object{"index": i, "function": object{"arguments": part}}}})
		}
	}
	s.event("", chunk(object{"index": 0, "delta": object{}, "finish_reason": finish}))
	if withUsage {
		last := chunk()
		last["usage"] = usage
		s.event("", last)
	}
	s.event("", "[DONE]")
}

// responsesRequest is the body of POST /v1/responses.
type responsesRequest struct {
	Model        string          `json:"model"`
	Instructions string          `json:"instructions"`
	Input        json.RawMessage `json:"input"`
	Tools        []responsesTool `json:"tools"`
	Stream       bool            `json:"stream"`
	Background   bool            `json:"background"`
	Previous     string          `json:"previous_response_id"`
}

// responsesTool is a client's tool ("function", or "custom", which takes plain text), a namespace of tools, or a tool
// that the provider runs.
type responsesTool struct {
	Type  string          `json:"type"`
	Name  string          `json:"name"`
	Tools []responsesTool `json:"tools"`
}

// responsesItem is one item of a conversation.
type responsesItem struct {
	message
	Type   string          `json:"type"`
	CallID string          `json:"call_id"`
	Name   string          `json:"name"`
	Output json.RawMessage `json:"output"`
	Tools  []responsesTool `json:"tools"` // of "additional_tools", which Codex sends first
}

// responsesTalk is a talk with the kind of each tool.
type responsesTalk struct {
	talk
	kinds map[string]responsesTool // by the tool's name; Name is its namespace
}

// offer records tools. It returns false if one has an invalid name. The namespace "functions" equals no namespace.
func (t *responsesTalk) offer(namespace string, tools []responsesTool) bool {
	if namespace == "functions" {
		namespace = ""
	}
	for _, tool := range tools {
		switch tool.Type {
		case "namespace":
			if !t.offer(tool.Name, tool.Tools) {
				return false
			}
			continue
		case "function", "custom":
		default:
			continue // a tool of the provider
		}
		if !openAITool.MatchString(tool.Name) {
			return false
		}
		t.Tools = append(t.Tools, tool.Name)
		t.kinds[tool.Name] = responsesTool{Type: tool.Type, Name: namespace}
	}
	return true
}

// readResponses checks a request as the provider does. It returns false if it has refused the request.
func (x *exchange) readResponses(q *responsesRequest) (*responsesTalk, bool) {
	refuse := func(format string, args ...any) (*responsesTalk, bool) {
		x.refuse(http.StatusBadRequest, format, args...)
		return nil, false
	}
	var text string
	var items []responsesItem
	switch {
	case q.Model == "":
		return refuse("Missing required parameter: 'model'.")
	case q.Previous != "":
		return refuse("Previous response with id '%s' not found.", q.Previous)
	case q.Background:
		x.s.complain("openai: background work, which nobody counts")
	}
	if json.Unmarshal(q.Input, &text) == nil {
		items = []responsesItem{{message: message{Role: "user", Content: q.Input}}}
	} else if json.Unmarshal(q.Input, &items) != nil {
		return refuse("Invalid type for 'input': expected one of a list of items or a string.")
	}
	t := &responsesTalk{talk{Question: Question{Model: q.Model}}, map[string]responsesTool{}}
	if !t.offer("", q.Tools) {
		return refuse("Invalid 'tools': a name does not match the pattern.")
	}
	if q.Instructions != "" {
		t.system(q.Instructions)
	}
	type pending struct{ kind, id string }
	var open []pending // calls that have no output yet
	for i, item := range items {
		switch item.Type {
		case "message", "":
			switch item.Role {
			case "user":
				t.person(textsOf(item.Content)...)
			case "assistant":
				t.model(textOf(item.Content))
			case "system", "developer":
				t.system(textOf(item.Content))
			default:
				return refuse("Invalid value: '%s'. Supported values are: 'assistant', 'system', 'developer', and 'user'.", item.Role)
			}
		case "function_call", "custom_tool_call":
			if item.CallID == "" || item.Name == "" {
				return refuse("Missing required parameter: 'input[%d].call_id'.", i)
			}
			open = append(open, pending{item.Type, item.CallID})
		case "function_call_output", "custom_tool_call_output":
			kind := strings.TrimSuffix(item.Type, "_output")
			at := slices.Index(open, pending{kind, item.CallID})
			if at < 0 {
				return refuse("No tool call found for %s with call_id %s.", strings.ReplaceAll(item.Type, "_", " "),
					item.CallID)
			}
			open = slices.Delete(open, at, at+1)
			t.result(textOf(item.Output))
		case "additional_tools":
			if !t.offer("", item.Tools) {
				return refuse("Invalid 'input[%d].tools': a name does not match the pattern.", i)
			}
		}
	}
	if len(open) > 0 {
		return refuse("No tool output found for %s %s.", strings.ReplaceAll(open[0].kind, "_", " "), open[0].id)
	}
	return t, true
}

// call returns an item that calls a tool, the name of the field that has its text, and the text.
func (t *responsesTalk) call(x *exchange, c ToolCall) (item object, field, text string) {
	kind := t.kinds[c.Name]
	item = object{"call_id": x.id("call_"), "name": c.Name, "status": "completed"}
	if kind.Type == "custom" {
		text, _ = c.Input["input"].(string)
		if text == "" || len(c.Input) != 1 {
			x.s.complain("openai: the script calls %s, which takes text: want {\"input\": TEXT}", c.Name)
		}
		item["type"], item["id"], field = "custom_tool_call", x.id("ctc_"), "input"
	} else {
		item["type"], item["id"], field, text = "function_call", x.id("fc_"), "arguments", c.arguments()
	}
	if kind.Name != "" {
		item["namespace"] = kind.Name
	}
	item[field] = text
	return item, field, text
}

func (x *exchange) responses() {
	var q responsesRequest
	if !x.question(&q) {
		return
	}
	t, ok := x.readResponses(&q)
	if !ok {
		return
	}
	words, calls := x.answer(&t.talk)
	id := x.id("resp_")
	var output []any
	response := func(status string) object {
		r := object{"id": id, "object": "response", "status": status, "model": q.Model, "output": []any{}, "usage": nil}
		if status == "completed" {
			r["output"] = output
			if !x.fault.NoUsage {
				r["usage"] = object{"input_tokens": x.call.Input,
					"input_tokens_details": object{"cached_tokens": x.s.CacheRead},
					"output_tokens":        x.call.Output, "output_tokens_details": object{"reasoning_tokens": 0},
					"total_tokens": x.call.Input + x.call.Output}
			}
		}
		return r
	}
	// A response without a stream is made like a stream that is not sent.
	event := func(string, object) {}
	if q.Stream {
		s := x.stream("text/event-stream; charset=utf-8")
		defer s.end()
		event = func(name string, o object) {
			o["type"], o["sequence_number"] = name, x.events
			s.event(name, o)
		}
	}
	event("response.created", object{"response": response("in_progress")})
	event("response.in_progress", object{"response": response("in_progress")})
	if words != nil {
		part := object{"type": "output_text", "text": strings.Join(words, ""), "annotations": []any{}}
		item := object{"type": "message", "id": x.id("msg_"), "role": "assistant", "status": "completed",
			"content": []any{part}}
		at := func(o object) object {
			o["item_id"], o["output_index"], o["content_index"] = item["id"], 0, 0
			return o
		}
		event("response.output_item.added", object{"output_index": 0,
			"item": object{"type": "message", "id": item["id"], "role": "assistant", "status": "in_progress",
				"content": []any{}}})
		event("response.content_part.added",
			at(object{"part": object{"type": "output_text", "text": "", "annotations": []any{}}}))
		for _, word := range words {
			event("response.output_text.delta", at(object{"delta": word}))
		}
		event("response.output_text.done", at(object{"text": part["text"]}))
		event("response.content_part.done", at(object{"part": part}))
		event("response.output_item.done", object{"output_index": 0, "item": item})
		output = append(output, item)
	}
	for _, c := range calls {
		item, field, text := t.call(x, c)
		begun := object{}
		for k, v := range item {
			begun[k] = v
		}
		begun[field], begun["status"] = "", "in_progress"
		event("response.output_item.added", object{"output_index": len(output), "item": begun})
		name := "response.function_call_arguments"
		if field == "input" {
			name = "response.custom_tool_call_input"
		}
		for _, part := range pieces(text) {
			event(name+".delta", object{"item_id": item["id"], "output_index": len(output), "delta": part})
		}
		event(name+".done", object{"item_id": item["id"], "output_index": len(output), field: text})
		event("response.output_item.done", object{"output_index": len(output), "item": item})
		output = append(output, item)
	}
	event("response.completed", object{"response": response("completed")})
	if !q.Stream {
		x.whole(response("completed"))
	}
}

func (x *exchange) embeddings() {
	var q struct {
		Model string `json:"model"`
		Input string `json:"input"`
	}
	if !x.question(&q) {
		return
	}
	x.say(q.Input)
	x.call.Output = 0
	x.whole(object{"object": "list", "model": q.Model,
		"data":  []any{object{"object": "embedding", "index": 0, "embedding": []float64{0.5, -0.5}}},
		"usage": object{"prompt_tokens": x.call.Input, "total_tokens": x.call.Input}})
}
