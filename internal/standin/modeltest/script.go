package modeltest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Question is a client's request, independent of the provider.
type Question struct {
	Provider, Model string
	System          string
	Tools           []string // their names
	// Prompt is the last text of a person. Results has the results of the tools that were called since then, in order.
	// A text that a coding agent itself adds to a person's message, such as a block that begins with
	// "<system-reminder>", is not part of the prompt.
	Prompt  string
	Results []string
	// Said has all texts of persons and tools so far.
	Said string
}

// Answer is the model's answer, a text and calls of tools.
type Answer struct {
	Text  string
	Calls []ToolCall
}

// ToolCall is one call of a tool.
type ToolCall struct {
	Name  string
	Input map[string]any
}

// Scene is the model's behaviour after a person's text.
type Scene struct {
	// Prompt is a part of the person's text.
	Prompt string
	// Answers are given in order. Each except the last calls tools, and the next one follows when all of them have
	// returned their results.
	Answers []Answer
}

// Play makes a [Server.Answer] of scenes. The first scene whose prompt matches is played. The position in a scene
// depends on the question alone. A request that is repeated after a fault therefore gets the same answer again, and
// conversations are independent. The answer is "Understood." if no scene matches, or if the question has no tools, like
// an agent's request for the name of a conversation.
func Play(scenes ...Scene) func(Question) Answer {
	return func(q Question) Answer {
		for _, s := range scenes {
			if len(q.Tools) == 0 || !strings.Contains(q.Prompt, s.Prompt) {
				continue
			}
			results := len(q.Results)
			for i, a := range s.Answers {
				if results <= 0 || i == len(s.Answers)-1 {
					return a
				}
				results -= len(a.Calls)
			}
		}
		return Answer{Text: "Understood."}
	}
}

// talk builds a Question from a request, in the order of the conversation.
type talk struct {
	Question
	all []string // every text, including the model's; it is the input for the count of tokens
}

func (t *talk) system(text string) {
	t.System = strings.TrimSpace(t.System + "\n" + text)
	t.all = append(t.all, text)
}

// remarks matches the beginnings of texts that coding agents add to a person's message. Claude Code, Codex and Gemini
// CLI have their own.
var remarks = regexp.MustCompile(`^(?:<system-reminder>|<environment_context>|# AGENTS\.md instructions|<session_context>)`)

// person records the blocks of a person's message.
func (t *talk) person(blocks ...string) {
	t.all = append(t.all, blocks...)
	own := slices.DeleteFunc(slices.Clone(blocks), func(b string) bool {
		b = strings.TrimSpace(b)
		return b == "" || remarks.MatchString(b)
	})
	t.tell(blocks...)
	if len(own) > 0 {
		t.Prompt, t.Results = strings.Join(own, "\n"), nil
	}
}

// result records the result of a tool.
func (t *talk) result(text string) {
	t.all = append(t.all, text)
	t.tell(text)
	t.Results = append(t.Results, text)
}

// model records an earlier text of the model.
func (t *talk) model(text string) { t.all = append(t.all, text) }

func (t *talk) tell(texts ...string) {
	t.Said = strings.TrimPrefix(t.Said+" "+strings.Join(texts, " "), " ")
}

// answer returns the words and the calls of the answer. Both are counted.
func (x *exchange) answer(t *talk) (words []string, calls []ToolCall) {
	all := strings.Join(t.all, " ")
	x.call.Input = int64(len(strings.Fields(all))) + x.s.CacheRead + x.s.CacheWrite
	t.Provider = x.provider
	a := Answer{Text: all}
	switch {
	case x.s.Answer != nil:
		a = x.s.Answer(t.Question)
	case x.s.Reply != nil:
		a.Text = x.s.Reply(all)
	}
	if a.Text != "" || len(a.Calls) == 0 {
		words = strings.SplitAfter(a.Text, " ")
	}
	x.call.Output = int64(len(words))
	for _, c := range a.Calls {
		if !slices.Contains(t.Tools, c.Name) {
			x.s.complain("%s: the script calls %s, but the client offers %s", x.provider, c.Name,
				strings.Join(t.Tools, ", "))
		}
		x.call.Output += int64(len(strings.Fields(c.arguments())))
	}
	return words, a.Calls
}

// arguments returns the input of a call as JSON.
func (c ToolCall) arguments() string {
	if c.Input == nil {
		return "{}"
	}
	b, err := json.Marshal(c.Input)
	if err != nil {
		panic(err) // the test made the value
	}
	return string(b)
}

// pieces splits a text as models stream it, never within a character.
func pieces(text string) (parts []string) {
	for part := range slices.Chunk([]rune(text), 16) {
		parts = append(parts, string(part))
	}
	return parts
}

// id returns an identifier that no other response of the server has. Clients take messages with equal identifiers for
// the same message.
func (x *exchange) id(prefix string) string {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.s.ids++
	return fmt.Sprintf("%s%024d", prefix, x.s.ids)
}

// textOf returns the text of a message's content, which is a string or a list of parts.
func textOf(content json.RawMessage) string { return strings.Join(textsOf(content), " ") }

// textsOf returns the same as a list of parts.
func textsOf(content json.RawMessage) []string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []string{text}
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return nil
	}
	var all []string
	for _, p := range parts {
		all = append(all, p.Text)
	}
	return all
}
