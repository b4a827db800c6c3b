package modeltest

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
)

// anthropic implements the Messages API.
func (x *exchange) anthropic() {
	if x.r.Header.Get("Anthropic-Version") == "" {
		x.refuse(http.StatusBadRequest, "anthropic-version: header is required")
		return
	}
	id, one := strings.CutPrefix(x.path, "/v1/models/")
	switch {
	case x.path == "/v1/models" && x.r.Method == http.MethodGet:
		x.whole(object{"data": []any{object{"type": "model", "id": "claude-stand-in-1", "display_name": "Stand-in"}},
			"has_more": false})
	case one && x.r.Method == http.MethodGet:
		x.whole(object{"type": "model", "id": id, "display_name": "Stand-in", "created_at": "2026-01-01T00:00:00Z"})
	case x.path == "/v1/messages", x.path == "/v1/messages/count_tokens":
		x.messages()
	default:
		x.refuse(http.StatusNotFound, "not found: %s", x.path)
	}
}

// message is one message of a conversation.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// block is a part of an Anthropic message.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

// blocks returns the parts of a message. A string is one text.
func (m message) blocks() (blocks []block, ok bool) {
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return []block{{Type: "text", Text: text}}, true
	}
	return blocks, json.Unmarshal(m.Content, &blocks) == nil
}

var anthropicTool = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// messagesRequest is the body of POST /v1/messages.
type messagesRequest struct {
	Model     string          `json:"model"`
	MaxTokens int64           `json:"max_tokens"`
	System    json.RawMessage `json:"system"`
	Messages  []message       `json:"messages"`
	Stream    bool            `json:"stream"`
	Tools     []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		InputSchema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
}

// readMessages checks a request as the provider does. It returns false if it has refused the request.
func (x *exchange) readMessages(q *messagesRequest, counting bool) (*talk, bool) {
	refuse := func(format string, args ...any) (*talk, bool) {
		x.refuse(http.StatusBadRequest, format, args...)
		return nil, false
	}
	switch {
	case q.Model == "":
		return refuse("model: field required")
	case len(q.Messages) == 0:
		return refuse("messages: at least one message is required")
	case !counting && q.MaxTokens < 1:
		return refuse("max_tokens: field required")
	}
	t := &talk{Question: Question{Model: q.Model}}
	if q.System != nil {
		t.system(strings.Join(textsOf(q.System), "\n"))
	}
	for i, tool := range q.Tools {
		switch own := tool.Type == "" || tool.Type == "custom"; {
		case !anthropicTool.MatchString(tool.Name):
			return refuse("tools.%d.custom.name: String should match pattern '%s'", i, anthropicTool)
		case own && tool.InputSchema == nil:
			return refuse("tools.%d.custom.input_schema: Field required", i)
		}
		t.Tools = append(t.Tools, tool.Name)
	}
	open := map[string]bool{} // calls of the previous message that have no result yet
	for i, m := range q.Messages {
		blocks, ok := m.blocks()
		if !ok {
			return refuse("messages.%d.content: Input should be a valid list", i)
		}
		var texts []string
		results := false
		called := map[string]bool{}
		for j, b := range blocks {
			switch b.Type {
			case "text":
				if b.Text == "" && len(blocks) > 1 {
					return refuse("messages.%d: text content blocks must be non-empty", i)
				}
				texts = append(texts, b.Text)
			case "tool_use":
				if m.Role != "assistant" || b.ID == "" || called[b.ID] {
					return refuse("messages.%d.content.%d: `tool_use` ids must be unique, and of the assistant", i, j)
				}
				called[b.ID] = true
			case "tool_result":
				if m.Role != "user" || !open[b.ToolUseID] {
					return refuse("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s",
						i, j, b.ToolUseID)
				}
				delete(open, b.ToolUseID)
				t.result(textOf(b.Content))
				results = true
			case "":
				return refuse("messages.%d.content.%d.type: Field required", i, j)
			}
		}
		for id := range open {
			return refuse("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s", i, id)
		}
		open = called
		switch {
		case m.Role == "assistant":
			for _, text := range texts {
				t.model(text)
			}
		case m.Role == "system" && i > 0:
			t.system(strings.Join(texts, "\n"))
		case m.Role != "user":
			return refuse("messages: Unexpected role %q", m.Role)
		case results: // a text next to results is the client's remark on them
			for _, text := range texts {
				t.model(text)
			}
		default:
			t.person(texts...)
		}
	}
	return t, true
}

func (x *exchange) messages() {
	var q messagesRequest
	if !x.question(&q) {
		return
	}
	counting := x.path != "/v1/messages"
	t, ok := x.readMessages(&q, counting)
	if !ok {
		return
	}
	words, calls := x.answer(t)
	if counting {
		x.whole(object{"input_tokens": x.call.Input})
		return
	}
	content := []object{}
	if words != nil {
		content = append(content, object{"type": "text", "text": strings.Join(words, "")})
	}
	stop := "end_turn"
	for _, c := range calls {
		stop = "tool_use"
		content = append(content,
			object{"type": "tool_use", "id": x.id("toolu_"), "name": c.Name, "input": json.RawMessage(c.arguments())})
	}
	usage := object{"input_tokens": x.call.Input - x.s.CacheRead - x.s.CacheWrite, "cache_read_input_tokens": x.s.CacheRead,
		"cache_creation_input_tokens": x.s.CacheWrite, "output_tokens": x.call.Output}
	m := object{"id": x.id("msg_"), "type": "message", "role": "assistant", "model": q.Model,
		"content": content, "stop_reason": stop, "stop_sequence": nil, "usage": usage}
	if x.fault.NoUsage {
		delete(m, "usage")
	}
	if !q.Stream {
		x.whole(m)
		return
	}
	m["content"], m["stop_reason"] = []any{}, nil
	if !x.fault.NoUsage {
		m["usage"] = object{"input_tokens": usage["input_tokens"], "cache_read_input_tokens": x.s.CacheRead,
			"cache_creation_input_tokens": x.s.CacheWrite, "output_tokens": 1}
	}
	s := x.stream("text/event-stream; charset=utf-8")
	defer s.end()
	s.event("message_start", object{"type": "message_start", "message": m})
	for i, c := range content {
		parts, kind, field := words, "text_delta", "text"
		empty := object{"type": "text", "text": ""}
		if input, ok := c["input"].(json.RawMessage); ok {
			// The first piece of a provider is empty.
			parts, kind, field = append([]string{""}, pieces(string(input))...), "input_json_delta", "partial_json"
			empty = object{"type": "tool_use", "id": c["id"], "name": c["name"], "input": object{}}
		}
		s.event("content_block_start", object{"type": "content_block_start", "index": i, "content_block": empty})
		if i == 0 {
			s.event("ping", object{"type": "ping"})
		}
		for _, part := range parts {
			s.event("content_block_delta",
				object{"type": "content_block_delta", "index": i, "delta": object{"type": kind, field: part}})
		}
		s.event("content_block_stop", object{"type": "content_block_stop", "index": i})
	}
	end := object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}}
	if !x.fault.NoUsage {
		end["usage"] = object{"output_tokens": x.call.Output}
	}
	s.event("message_delta", end)
	s.event("message_stop", object{"type": "message_stop"})
}
