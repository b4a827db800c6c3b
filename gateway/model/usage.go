package model

import (
	"encoding/json"
	"errors"
	"time"
)

// tokens are those of a call. input includes those read from and written to a cache.
type tokens struct{ input, output, cacheRead, cacheWrite int64 }

func (t tokens) total() int64 { return t.input + t.output }

// maxTokens is more than any call can have. A larger count of an endpoint is ignored.
const maxTokens = 1 << 28

// tally is the known use of a call while its answer arrives.
type tally struct {
	model   string        // as reported by the provider
	said    tokens        // as reported by the provider so far
	hasIn   bool          // the provider has reported the input
	whole   bool          // the provider has reported the final output
	guess   int64         // of the input, from the size of the request
	visible int64         // bytes of text in the answer
	waited  time.Duration // for the answer, once the call is over
	most    int64         // limit of the output; 0 if the request has none
}

// Estimates for calls whose provider reported nothing. A token is about four bytes of text. A model that was abandoned
// before its answer may have written tokensPerSecond.
const (
	bytesPerToken   = 4
	tokensPerSecond = 100
)

// tokens returns the best known numbers. estimated is true if they are not the provider's.
func (t *tally) tokens() (n tokens, estimated bool) {
	n = t.said
	if !t.hasIn {
		n.input, estimated = max(n.input, t.guess), true
	}
	if !t.whole {
		out := t.visible / bytesPerToken
		if out == 0 { // the model may have been thinking
			out = int64(t.waited.Seconds() * tokensPerSecond)
			if t.most > 0 {
				out = min(out, t.most)
			}
		}
		n.output, estimated = max(n.output, out), true
	}
	return n, estimated
}

// count is a number of tokens of a provider. It is nil if the provider does not report it.
type count *int64

func value(c count) int64 {
	if c == nil {
		return 0
	}
	return max(0, min(*c, maxTokens))
}

// decode reads JSON as far as its types match, because endpoints that only resemble a provider's differ in fields that
// do not matter here.
func decode(object []byte, into any) bool {
	if len(object) == 0 {
		return false
	}
	err := json.Unmarshal(object, into)
	var mismatch *json.UnmarshalTypeError
	return err == nil || errors.As(err, &mismatch)
}

// anthropicUsage is the usage of the Messages API. input_tokens are those without use of a cache.
type anthropicUsage struct {
	Input      count `json:"input_tokens"`
	Output     count `json:"output_tokens"`
	CacheWrite count `json:"cache_creation_input_tokens"`
	CacheRead  count `json:"cache_read_input_tokens"`
}

type anthropicMessage struct {
	Model string          `json:"model"`
	Usage *anthropicUsage `json:"usage"`
}

// readAnthropic reads a message, or an event of a streamed one. message_start has the input, and message_delta the
// output, both as totals so far.
func readAnthropic(t *tally, object []byte) {
	var e struct {
		Type string `json:"type"`
		anthropicMessage
		Message *anthropicMessage `json:"message"`
		Delta   struct {
			Text     string `json:"text"`
			Thinking string `json:"thinking"`
			JSON     string `json:"partial_json"`
		} `json:"delta"`
	}
	if !decode(object, &e) {
		return
	}
	t.visible += int64(len(e.Delta.Text) + len(e.Delta.Thinking) + len(e.Delta.JSON))
	m := &e.anthropicMessage
	if e.Message != nil {
		m = e.Message
	}
	if m.Model != "" {
		t.model = m.Model
	}
	u := m.Usage
	if u == nil {
		return
	}
	if u.Input != nil {
		read, write := value(u.CacheRead), value(u.CacheWrite)
		if e.Type == "message_delta" { // message_delta may omit the caches
			read, write = max(read, t.said.cacheRead), max(write, t.said.cacheWrite)
		}
		t.said.cacheRead, t.said.cacheWrite = read, write
		t.said.input, t.hasIn = value(u.Input)+read+write, true
	}
	if u.Output != nil {
		t.said.output = max(t.said.output, value(u.Output))
		t.whole = e.Type != "message_start"
	}
}

// openAIUsage is the usage of both of OpenAI's APIs. Chat Completions (and Embeddings) use prompt and completion, and
// Responses input and output.
type openAIUsage struct {
	Prompt        count         `json:"prompt_tokens"`
	Completion    count         `json:"completion_tokens"`
	PromptDetails openAIDetails `json:"prompt_tokens_details"`
	Input         count         `json:"input_tokens"`
	Output        count         `json:"output_tokens"`
	InputDetails  openAIDetails `json:"input_tokens_details"`
}

type openAIDetails struct {
	Cached count `json:"cached_tokens"`
}

type openAIAnswer struct {
	Model string       `json:"model"`
	Usage *openAIUsage `json:"usage"`
}

// readOpenAI reads an answer, a chunk of a streamed completion, or an event of a streamed response. The last events
// have the whole response.
func readOpenAI(t *tally, object []byte) {
	var e struct {
		openAIAnswer
		Response *openAIAnswer   `json:"response"`
		Delta    json.RawMessage `json:"delta"` // text, in events of a response
		Choices  []struct {
			Delta struct {
				Content   string `json:"content"`
				Reasoning string `json:"reasoning_content"`
				Refusal   string `json:"refusal"`
				Calls     []struct {
					Function struct {
						Arguments string `json:"arguments"`
					} `json:"function"`
				} `json:"tool_calls"`
			} `json:"delta"`
		} `json:"choices"`
	}
	if !decode(object, &e) {
		return
	}
	var text string
	if len(e.Delta) > 0 && json.Unmarshal(e.Delta, &text) == nil {
		t.visible += int64(len(text))
	}
	for _, c := range e.Choices {
		t.visible += int64(len(c.Delta.Content) + len(c.Delta.Reasoning) + len(c.Delta.Refusal))
		for _, call := range c.Delta.Calls {
			t.visible += int64(len(call.Function.Arguments))
		}
	}
	a := &e.openAIAnswer
	if e.Response != nil {
		a = e.Response
	}
	if a.Model != "" {
		t.model = a.Model
	}
	u := a.Usage
	if u == nil || u.Prompt == nil && u.Input == nil {
		return
	}
	t.said = tokens{
		input:     value(u.Prompt) + value(u.Input),
		output:    value(u.Completion) + value(u.Output),
		cacheRead: value(u.PromptDetails.Cached) + value(u.InputDetails.Cached),
	}
	t.hasIn, t.whole = true, true
}

// geminiAnswer is an answer of generateContent, or one part of a streamed one. Each has the totals so far.
type geminiAnswer struct {
	Version    string `json:"modelVersion"`
	Candidates []struct {
		Content struct {
			Parts []struct {
				Text string          `json:"text"`
				Call json.RawMessage `json:"functionCall"`
			} `json:"parts"`
		} `json:"content"`
		Finish string `json:"finishReason"`
	} `json:"candidates"`
	Feedback *struct{} `json:"promptFeedback"` // the prompt was blocked, so there is no output
	Usage    *struct {
		Prompt     count `json:"promptTokenCount"`
		Candidates count `json:"candidatesTokenCount"`
		Thoughts   count `json:"thoughtsTokenCount"`
		Tools      count `json:"toolUsePromptTokenCount"`
		Cached     count `json:"cachedContentTokenCount"`
	} `json:"usageMetadata"`
}

// readGemini reads an answer, or one part of a streamed one. A stream that was not requested as events is an array of
// parts.
func readGemini(t *tally, object []byte) {
	var parts []geminiAnswer
	if len(object) == 0 || object[0] != '[' || !decode(object, &parts) {
		var one geminiAnswer
		if !decode(object, &one) {
			return
		}
		parts = []geminiAnswer{one}
	}
	for _, a := range parts {
		finished := a.Feedback != nil
		for _, c := range a.Candidates {
			finished = finished || c.Finish != ""
			for _, p := range c.Content.Parts {
				t.visible += int64(len(p.Text) + len(p.Call))
			}
		}
		if a.Version != "" {
			t.model = a.Version
		}
		u := a.Usage
		if u == nil || u.Prompt == nil {
			continue
		}
		t.said = tokens{
			input:     value(u.Prompt) + value(u.Tools),
			output:    value(u.Candidates) + value(u.Thoughts),
			cacheRead: value(u.Cached),
		}
		t.hasIn, t.whole = true, t.whole || finished
	}
}

// guessInput estimates the tokens of a request's body. A long run of letters without any white space or punctuation is
// an image or a document in base64. It costs about as much as a picture, independent of its length.
func guessInput(body []byte) int64 {
	const long, picture = 2 << 10, 1600
	var n, run, pictures int64
	flush := func() {
		if run > long {
			pictures++
		} else {
			n += run
		}
		run = 0
	}
	for _, c := range body {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '=' ||
			c == '-' || c == '_' {
			run++
			continue
		}
		flush()
		n++
	}
	flush()
	return n/bytesPerToken + pictures*picture
}
