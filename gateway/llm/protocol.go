package llm

import (
	"encoding/json"
	"fmt"

	"github.com/ramus-dev/ramus/executor"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chatQuestion is a request in the Chat Completions protocol.
type chatQuestion struct {
	Model          string          `json:"model"`
	Messages       []message       `json:"messages"`
	MaxTokens      int             `json:"max_tokens,omitempty"`
	ResponseFormat *responseFormat `json:"response_format,omitempty"`
}

type responseFormat struct {
	Type       string     `json:"type"`
	JSONSchema jsonSchema `json:"json_schema"`
}

type jsonSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

type chatAnswer struct {
	Choices []struct {
		Message struct {
			Content *string `json:"content"`
			Refusal string  `json:"refusal"`
		} `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
}

// messagesQuestion is a request in the Messages protocol. Structured answers are requested as the input of a tool that
// the model must call.
type messagesQuestion struct {
	Model      string      `json:"model"`
	System     string      `json:"system,omitempty"`
	Messages   []message   `json:"messages"`
	MaxTokens  int         `json:"max_tokens"`
	Tools      []tool      `json:"tools,omitempty"`
	ToolChoice *toolChoice `json:"tool_choice,omitempty"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type toolChoice struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

type messagesAnswer struct {
	Content []struct {
		Type  string          `json:"type"`
		Text  string          `json:"text"`
		Input json.RawMessage `json:"input"`
	} `json:"content"`
	StopReason string `json:"stop_reason"`
}

const answerTool = "answer"

// encode returns a question in the endpoint's protocol.
func (c *Client) encode(call executor.LLMCall) ([]byte, error) {
	if c.Kind == Anthropic {
		q := messagesQuestion{Model: call.Model, System: call.System, MaxTokens: call.MaxTokens,
			Messages: []message{{"user", call.Prompt}}}
		if q.MaxTokens == 0 {
			q.MaxTokens = maxTokens
		}
		if len(call.Schema) > 0 {
			q.Tools = []tool{{answerTool, "Give the answer.", call.Schema}}
			q.ToolChoice = &toolChoice{"tool", answerTool}
		}
		return json.Marshal(q)
	}
	q := chatQuestion{Model: call.Model, MaxTokens: call.MaxTokens}
	if call.System != "" {
		q.Messages = append(q.Messages, message{"system", call.System})
	}
	q.Messages = append(q.Messages, message{"user", call.Prompt})
	if len(call.Schema) > 0 {
		q.ResponseFormat = &responseFormat{"json_schema", jsonSchema{answerTool, call.Schema}}
	}
	return json.Marshal(q)
}

// decode reads an answer. An answer that was cut off at the token limit is an error, because a part of a verdict could
// mean the opposite of the whole.
func (c *Client) decode(b []byte, call executor.LLMCall) (string, error) {
	if c.Kind == Anthropic {
		return decodeMessages(b, len(call.Schema) > 0)
	}
	var a chatAnswer
	if err := json.Unmarshal(b, &a); err != nil {
		return "", fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if len(a.Choices) == 0 {
		return "", fmt.Errorf("%w: it has no choices", ErrAnswer)
	}
	first := a.Choices[0]
	switch {
	case first.Message.Refusal != "":
		return "", fmt.Errorf("%w: the model declined", ErrAnswer)
	case first.FinishReason == "length":
		return "", fmt.Errorf("%w: it was cut off at max_tokens", ErrAnswer)
	case first.FinishReason == "content_filter":
		return "", fmt.Errorf("%w: it was withheld by the endpoint's filter", ErrAnswer)
	case first.Message.Content == nil:
		return "", fmt.Errorf("%w: it has no content", ErrAnswer)
	}
	return *first.Message.Content, nil
}

func decodeMessages(b []byte, structured bool) (string, error) {
	var a messagesAnswer
	if err := json.Unmarshal(b, &a); err != nil {
		return "", fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	switch a.StopReason {
	case "max_tokens":
		return "", fmt.Errorf("%w: it was cut off at max_tokens", ErrAnswer)
	case "refusal":
		return "", fmt.Errorf("%w: the model declined", ErrAnswer)
	}
	text, found := "", false
	for _, block := range a.Content {
		switch {
		case structured && block.Type == "tool_use":
			return string(block.Input), nil
		case !structured && block.Type == "text":
			text, found = text+block.Text, true
		}
	}
	if !found {
		return "", fmt.Errorf("%w: it has no content", ErrAnswer)
	}
	return text, nil
}
