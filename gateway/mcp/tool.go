package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of what goes through a tool, in bytes.
const (
	maxArguments  = 1 << 20
	maxStructured = 256 << 10 // beyond that there is only the text
	maxText       = 128 << 10
	maxMistake    = 2000 // what is said of wrong arguments may quote them
)

// usableTool is a [Tool] that can be called over MCP.
type usableTool struct {
	catalog.Tool
	Output json.RawMessage // JSON Schema of the structured result; nil: it has none
	// Access is what a bearer needs for the tool to exist: AccessRead or AccessWrite.
	Access route.Access
	Hints  toolHints
	Call   func(ctx context.Context, c *toolCall) (toolResult, error)
}

// toolHints tell a client what a tool does to the world.
type toolHints struct{ ReadOnly, Destructive, Idempotent, Open bool }

// toolCall is one use of a tool.
type toolCall struct {
	args json.RawMessage // fit the tool's schema
	tell func(string)    // shows the client how it goes on; cheap
}

// read decodes the arguments.
func (c *toolCall) read(into any) error {
	d := json.NewDecoder(bytes.NewReader(c.args))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return route.NewProblem(route.KindInvalid, "cannot read the arguments: %v", err)
	}
	return nil
}

// toolResult is what a tool answers.
type toolResult struct {
	value  any    // structured; what is JSON's object there
	text   string // the same for people and models; empty: the value's JSON
	failed bool   // it was done, and came to a bad end
	// pictures follow the text.
	pictures []toolPicture
}

// toolPicture is a PNG with its name; without one its name says why.
type toolPicture struct {
	name string
	png  []byte
}

// toolset makes a server of tools for one bearer, or one container.
type toolset struct {
	tools        []usableTool
	instructions string
	version      string
	who          route.Who
	secrets      *redact.Secrets
	log          *slog.Logger
	now          func() time.Time
}

// serverName is how the server calls itself: its tools are mcp__engineer__NAME where
// clients put the server's name before them.
const serverName = "engineer"

// server makes the server. session is its one session's id; what it does ends with ctx.
func (ts toolset) server(ctx context.Context, session string) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: serverName, Title: "ramus", Version: ts.version}, &sdk.ServerOptions{
		Instructions: ts.instructions,
		// The tools of a bearer do not change while a session lasts.
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
		GetSessionID: func() string { return session },
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" }, // another bearer sees others
	})
	for _, t := range ts.tools {
		if !ts.who.May(t.Access) {
			continue
		}
		s.AddTool(t.definition(), func(call context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			call, cancel := context.WithCancel(call)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			return ts.call(call, t, r)
		})
	}
	return s
}

func (t usableTool) definition() *sdk.Tool {
	def := &sdk.Tool{Name: t.Name, Description: t.Description, InputSchema: t.Schema, Annotations: &sdk.ToolAnnotations{
		ReadOnlyHint: t.Hints.ReadOnly, DestructiveHint: &t.Hints.Destructive, IdempotentHint: t.Hints.Idempotent, OpenWorldHint: &t.Hints.Open,
	}}
	if t.Output != nil {
		def.OutputSchema = t.Output
	}
	return def
}

// call uses a tool. What goes wrong is a result, too: a model can mend its
// arguments, or do something else, only when it is told.
func (ts toolset) call(ctx context.Context, t usableTool, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	c := &toolCall{tell: ts.progress(ctx, r)}
	var err error
	var result toolResult
	if c.args, err = arguments(t.Schema, r.Params.Arguments); err == nil {
		result, err = t.Call(ctx, c)
	}
	if err == nil {
		return ts.answer(result)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // nobody waits for it
	}
	p := route.AsProblem(err, ts.who)
	if p.Kind == route.KindInternal {
		ts.log.Error("a tool failed", "tool", t.Name, "who", ts.who.Subject, "err", err)
		p.Hint = "" // it speaks of a request's id
	}
	text := p.Error()
	if p.Hint != "" {
		text += "\n" + p.Hint
	}
	return ts.answer(toolResult{text: text, failed: true})
}

// answer writes a result, bounded and without secrets.
func (ts toolset) answer(r toolResult) (*sdk.CallToolResult, error) {
	out := &sdk.CallToolResult{IsError: r.failed}
	if r.value != nil {
		b, err := json.Marshal(r.value)
		if err != nil {
			return nil, fmt.Errorf("cannot encode a tool's result: %w", err)
		}
		b = ts.secrets.JSON(b)
		if len(b) <= maxStructured {
			out.StructuredContent = json.RawMessage(b)
		}
		if r.text == "" {
			r.text = string(b)
		}
	}
	out.Content = []sdk.Content{&sdk.TextContent{Text: text.ClipMiddle(ts.secrets.String(r.text), maxText)}}
	for _, p := range r.pictures {
		out.Content = append(out.Content, &sdk.TextContent{Text: ts.secrets.String(p.name)})
		if len(p.png) > 0 {
			out.Content = append(out.Content, &sdk.ImageContent{Data: p.png, MIMEType: "image/png"})
		}
	}
	return out, nil
}

// progressEvery is how often a client hears how a call goes on, at most.
const progressEvery = time.Second

// progress shows how a call goes on to a client that asked for it.
func (ts toolset) progress(ctx context.Context, r *sdk.CallToolRequest) func(string) {
	token := r.Params.GetProgressToken()
	if token == nil {
		return func(string) {}
	}
	var step float64
	var last time.Time
	return func(message string) {
		now := ts.now()
		if message == "" || now.Sub(last) < progressEvery {
			return
		}
		last = now
		step++
		message = ts.secrets.String(strings.Join(strings.Fields(message), " "))
		// A client that does not read it loses nothing.
		_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: step, Message: text.ClipMiddle(message, 200)})
	}
}

// arguments checks what a client sent against a tool's schema.
func arguments(schema, args json.RawMessage) (json.RawMessage, error) {
	if len(args) > maxArguments {
		return nil, route.NewProblem(route.KindTooLarge, "the arguments have %d bytes, at most %d may be sent", len(args), maxArguments)
	}
	if given := bytes.TrimSpace(args); len(given) == 0 || string(given) == "null" {
		args = json.RawMessage("{}")
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("cannot read a tool's schema: %w", err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("cannot use a tool's schema: %w", err)
	}
	var given map[string]any
	if err := json.Unmarshal(args, &given); err != nil {
		return nil, route.NewProblem(route.KindInvalid, "the arguments are no JSON object: %v", err)
	}
	if err := resolved.Validate(given); err != nil {
		return nil, route.NewProblem(route.KindInvalid, "wrong arguments: %s", text.ClipMiddle(err.Error(), maxMistake))
	}
	return args, nil
}

// schemaFor is the strict schema of an object's struct, for results. Clients that
// turn schemas into the dialect of some model's provider know no lists of types:
// what may be null says so with anyOf, and what may be left out is never null.
func schemaFor[T any]() json.RawMessage {
	schema, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: route.TypeSchemas, IgnoreInvalidTypes: true})
	if err == nil {
		oneType(schema, true)
		var b []byte
		if b, err = json.Marshal(schema); err == nil {
			return b
		}
	}
	panic(fmt.Sprintf("a tool's result: %v", err)) // a fault of the program, which every test finds
}

// oneType takes the lists of types out of a schema of a Go type, see [schemaFor]. A value is there when it
// is no property, or one that is required.
func oneType(s *jsonschema.Schema, there bool) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		oneType(p, slices.Contains(s.Required, name))
	}
	for _, p := range s.Defs {
		oneType(p, true)
	}
	oneType(s.Items, true)
	oneType(s.AdditionalProperties, true)
	if len(s.Types) != 2 || s.Types[0] != "null" {
		return
	}
	if !there {
		s.Type, s.Types = s.Types[1], nil
		return
	}
	full := *s
	full.Type, full.Types, full.Description = s.Types[1], nil, ""
	*s = jsonschema.Schema{Description: s.Description, AnyOf: []*jsonschema.Schema{&full, {Type: "null"}}}
}
