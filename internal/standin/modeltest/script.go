package modeltest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Question is what a client asked, in no provider's words.
type Question struct {
	Provider, Model string
	System          string
	Tools           []string // their names
	// Prompt is what a person said last, Results what the tools that were called
	// since then gave back, in order. What coding agents put into a person's mouth
	// themselves, such as blocks that begin with "<system-reminder>", is no prompt.
	Prompt  string
	Results []string
	// Said is all texts of persons and tools so far.
	Said string
}

// Answer is what the model says: words, and the tools that it calls.
type Answer struct {
	Text  string
	Calls []ToolCall
}

// ToolCall is one call of a tool.
type ToolCall struct {
	Name  string
	Input map[string]any
}

// Scene is what the model does when a person says something.
type Scene struct {
	// Prompt is a part of what the person says.
	Prompt string
	// Answers are given one after another: each but the last calls tools, and the
	// next one follows when all of them have given back what they found.
	Answers []Answer
}

// Play makes a [Server.Answer] of scenes; of those that fit the first is played. Where a
// scene stands follows from the question alone, so a request that is repeated after a fault gets
// the same answer again, and conversations do not disturb each other. A question
// without tools, as agents ask to name a conversation, and one that no scene
// fits, are answered with "Understood.".
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

// talk collects a Question from a request, in the order of its conversation.
type talk struct {
	Question
	all []string // every text, the model's own too: it is what is counted
}

func (t *talk) system(text string) {
	t.System = strings.TrimSpace(t.System + "\n" + text)
	t.all = append(t.all, text)
}

// remarks begin the texts that coding agents put into a person's mouth: Claude
// Code, Codex and Gemini CLI have their own.
var remarks = regexp.MustCompile(`^(?:<system-reminder>|<environment_context>|# AGENTS\.md instructions|<session_context>)`)

// person notes what one message of a person says, block by block.
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

// result notes what a tool gave back.
func (t *talk) result(text string) {
	t.all = append(t.all, text)
	t.tell(text)
	t.Results = append(t.Results, text)
}

// model notes what the model itself said before.
func (t *talk) model(text string) { t.all = append(t.all, text) }

func (t *talk) tell(texts ...string) {
	t.Said = strings.TrimPrefix(t.Said+" "+strings.Join(texts, " "), " ")
}

// answer is what comes out: words, and calls of tools. Both are counted.
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
			x.s.complain("%s: the script calls %s, but the client offers %s", x.provider, c.Name, strings.Join(t.Tools, ", "))
		}
		x.call.Output += int64(len(strings.Fields(c.arguments())))
	}
	return words, a.Calls
}

// arguments is the input of a call as JSON.
func (c ToolCall) arguments() string {
	if c.Input == nil {
		return "{}"
	}
	b, err := json.Marshal(c.Input)
	if err != nil {
		panic(err) // of a test's own making
	}
	return string(b)
}

// pieces cuts a text as models stream it, never within a character.
func pieces(text string) (parts []string) {
	for part := range slices.Chunk([]rune(text), 16) {
		parts = append(parts, string(part))
	}
	return parts
}

// id makes an identifier that no other answer of the server has: clients take
// messages with the same one for the same message.
func (x *exchange) id(prefix string) string {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.s.ids++
	return fmt.Sprintf("%s%024d", prefix, x.s.ids)
}

// textOf finds the text in a message's content: a string, or a list of parts.
func textOf(content json.RawMessage) string { return strings.Join(textsOf(content), " ") }

// textsOf is the same, part by part.
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
