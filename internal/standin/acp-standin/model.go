package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/acptest"
)

// model is a brain that calls Anthropic's Messages API.
type model struct {
	url, key, model string
	client          *http.Client
}

const system = `You are a coding agent in a container. The work tree of the repository is your current folder.
Make the change that you are asked for, run the tests, and say in a few sentences what you did.`

// tools are the model's tools, with their schemas.
var tools = []map[string]any{
	tool("read", "Read a text file.", "path"),
	tool("edit", "Replace a text that is in a file once by another. Without old, text becomes the whole file.", "path",
		"old", "new", "text"),
	tool("bash", "Run a command line in the work tree and return what it prints.", "command"),
}

func tool(name, doc string, params ...string) map[string]any {
	properties := map[string]any{}
	for _, p := range params {
		properties[p] = map[string]any{"type": "string"}
	}
	return map[string]any{"name": name, "description": doc,
		"input_schema": map[string]any{"type": "object", "properties": properties, "required": params[:1]}}
}

// block is one part of a message.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   string          `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
}

type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// messages returns a history in the API's format. A person's texts and tools' results are messages of the user. No two
// consecutive messages have the same role.
func messages(history []acptest.Entry) []message {
	var list []message
	add := func(role string, blocks ...block) {
		if len(blocks) == 0 {
			return
		}
		if n := len(list); n > 0 && list[n-1].Role == role {
			list[n-1].Content = append(list[n-1].Content, blocks...)
			return
		}
		list = append(list, message{role, blocks})
	}
	answered := map[string]bool{}
	for _, e := range history {
		answered[e.CallID] = true
	}
	for _, e := range history {
		switch e.Role {
		case "user":
			add("user", block{Type: "text", Text: e.Text})
		case "tool":
			add("user", block{Type: "tool_result", ToolUseID: e.CallID, Content: e.Text, IsError: e.Failed})
		case "agent":
			var said, missing []block
			if e.Text != "" {
				said = append(said, block{Type: "text", Text: e.Text})
			}
			for _, c := range e.Calls {
				input, err := json.Marshal(c.Args)
				if err != nil {
					panic(fmt.Sprintf("cannot marshal arguments: %v", err)) // strings
				}
				said = append(said, block{Type: "tool_use", ID: c.ID, Name: c.Tool, Input: input})
				if !answered[c.ID] {
					// The process ended before the result. The API requires a result for every call.
					missing = append(missing,
						block{Type: "tool_result", ToolUseID: c.ID, Content: "interrupted", IsError: true})
				}
			}
			add("assistant", said...)
			add("user", missing...)
		}
	}
	return list
}

// Next implements acptest.Brain.
func (m *model) Next(ctx context.Context, s acptest.View) (acptest.Step, error) {
	body, err := json.Marshal(map[string]any{"model": m.model, "max_tokens": 8192, "system": system, "tools": tools,
		"messages": messages(s.History)})
	if err != nil {
		return acptest.Step{}, err
	}
	answer, err := m.ask(ctx, body)
	if err != nil {
		return acptest.Step{}, fmt.Errorf("cannot ask the model: %w", err)
	}
	var got struct {
		Content    []block `json:"content"`
		StopReason string  `json:"stop_reason"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return acptest.Step{}, fmt.Errorf("cannot read the model's answer: %w", err)
	}
	var step acptest.Step
	for _, b := range got.Content {
		switch b.Type {
		case "text":
			step.Text += b.Text + "\n"
		case "tool_use":
			c := acptest.Call{ID: b.ID, Tool: b.Name, Args: map[string]string{}}
			var input map[string]any
			if err := json.Unmarshal(b.Input, &input); err != nil {
				return acptest.Step{}, fmt.Errorf("cannot read the model's call of %s: %w", b.Name, err)
			}
			for k, v := range input {
				c.Args[k] = fmt.Sprint(v)
			}
			step.Calls = append(step.Calls, c)
		}
	}
	switch got.StopReason {
	case "max_tokens", "refusal":
		step.Stop = got.StopReason
	}
	return step, nil
}

// Bounds on calls of a model.
const (
	maxTries  = 8
	maxAnswer = 16 << 20
	longest   = 30 * time.Second // between two attempts
)

// ask sends a request. It retries if the API is busy or the connection breaks.
func (m *model) ask(ctx context.Context, body []byte) ([]byte, error) {
	wait := 250 * time.Millisecond
	for try := 1; ; try++ {
		answer, after, err := m.once(ctx, body)
		var again *busy
		if err == nil || !errors.As(err, &again) || try == maxTries || ctx.Err() != nil {
			return answer, err
		}
		select {
		case <-time.After(min(max(after, wait), longest)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		wait *= 2
	}
}

// busy is a temporary error.
type busy struct{ error }

func (m *model) once(ctx context.Context, body []byte) (answer []byte, after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url+"/v1/messages", bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	req.Header.Set("X-Api-Key", m.key)
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, 0, &busy{err}
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, 0, &busy{err}
	}
	if resp.StatusCode == http.StatusOK {
		return answer, 0, nil
	}
	err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(answer[:min(len(answer), 500)])))
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return nil, time.Duration(seconds) * time.Second, &busy{err}
	}
	return nil, 0, err
}
