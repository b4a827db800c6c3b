package model

import (
	"encoding/json"
	"errors"
	"time"
)

// tokens of a call. input includes those read from and written to a cache.
type tokens struct{ input, output, cacheRead, cacheWrite int64 }

func (t tokens) total() int64 { return t.input + t.output }

// maxTokens is more than any call can have; what an endpoint says beyond it is no count.
const maxTokens = 1 << 28

// tally is what is known of a call's use while its answer comes.
type tally struct {
	model   string        // as the provider names it
	said    tokens        // by the provider, so far
	hasIn   bool          // it said what went in
	whole   bool          // and what came out to the end
	guess   int64         // input, from the request's size
	visible int64         // bytes of text that came out
	waited  time.Duration // for the answer, when the call is over
	most    int64         // output that was allowed for, 0: not said
}

// Where the provider did not say: a token is about four bytes of text, and a
// model that was given up before its answer may have written that many a second.
const (
	bytesPerToken   = 4
	tokensPerSecond = 100
)

// tokens is the best that is known; estimated tells that it is not the provider's word.
func (t *tally) tokens() (n tokens, estimated bool) {
	n = t.said
	if !t.hasIn {
		n.input, estimated = max(n.input, t.guess), true
	}
	if !t.whole {
		out := t.visible / bytesPerToken
		if out == 0 { // it may have been thinking
			out = int64(t.waited.Seconds() * tokensPerSecond)
			if t.most > 0 {
				out = min(out, t.most)
			}
		}
		n.output, estimated = max(n.output, out), true
	}
	return n, estimated
}

// count is a number of tokens as a provider says it; nil: it does not.
type count *int64

func value(c count) int64 {
	if c == nil {
		return 0
	}
	return max(0, min(*c, maxTokens))
}

// decode reads JSON as far as its types fit: endpoints that only resemble a
// provider's differ in fields that do not matter here.
func decode(object []byte, into any) bool {
	if len(object) == 0 {
		return false
	}
	err := json.Unmarshal(object, into)
	var mismatch *json.UnmarshalTypeError
	return err == nil || errors.As(err, &mismatch)
}

// anthropicUsage is the usage of the Messages API: input_tokens are those that no
// cache was used for.
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

// readAnthropic reads a message, or an event of a streamed one: message_start has
// what went in, message_delta what came out, both as totals so far.
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
		if e.Type == "message_delta" { // which may leave the caches out
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

// openAIUsage is the usage of both of OpenAI's APIs: Chat Completions (and
// Embeddings) say prompt and completion, Responses input and output.
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

// readOpenAI reads an answer, a chunk of a streamed completion, or an event of a
// streamed response, of which the last ones hold the response as it ended.
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

// geminiAnswer is an answer of generateContent, or one part of a streamed one;
// each has the totals so far.
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
	Feedback *struct{} `json:"promptFeedback"` // the prompt was blocked: nothing comes out
	Usage    *struct {
		Prompt     count `json:"promptTokenCount"`
		Candidates count `json:"candidatesTokenCount"`
		Thoughts   count `json:"thoughtsTokenCount"`
		Tools      count `json:"toolUsePromptTokenCount"`
		Cached     count `json:"cachedContentTokenCount"`
	} `json:"usageMetadata"`
}

// readGemini reads an answer, or one part of a streamed one. A stream that was
// not asked for as events is an array of parts.
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

// guessInput estimates the tokens of a request's body. A long run of letters
// without any white space or punctuation is an image or a document in base64,
// which costs about as much as a picture does, however long it is.
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
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '=' || c == '-' || c == '_' {
			run++
			continue
		}
		flush()
		n++
	}
	flush()
	return n/bytesPerToken + pictures*picture
}
