package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// Limits of the arguments and results of a tool, in bytes.
const (
	maxArguments  = 1 << 20
	maxStructured = 256 << 10 // a longer result is sent as text only
	maxText       = 128 << 10
	maxMistake    = 2000 // of the error about wrong arguments, which may quote them
)

// usableTool is a [catalog.Tool] that can be called over MCP.
type usableTool struct {
	catalog.Tool
	Output json.RawMessage // JSON Schema of the structured result; nil if it has none
	// Access is the access that a bearer needs to see the tool. It is AccessRead, AccessWrite or AccessAdmin.
	Access route.Access
	Hints  toolHints
	Call   func(ctx context.Context, c *toolCall) (toolResult, error)
}

// toolHints describe the effects of a tool to a client.
type toolHints struct{ ReadOnly, Destructive, Idempotent, Open bool }

// toolCall is one call of a tool.
type toolCall struct {
	args json.RawMessage // valid for the schema of the tool
	tell func(string)    // shows progress to the client; cheap
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

// toolResult is the result of a tool.
type toolResult struct {
	value  any    // structured; must encode as a JSON object
	text   string // the same for people and models; empty for the JSON of value
	failed bool   // the tool did its work, and the work failed
	// pictures follow the text.
	pictures []toolPicture
}

// toolPicture is a PNG with its name. Without a PNG, the name contains the reason.
type toolPicture struct {
	name string
	png  []byte
}

// toolset makes a server of tools for one bearer or one container.
type toolset struct {
	tools        []usableTool
	instructions string
	version      string
	who          route.Who
	secrets      *redact.Secrets
	log          *slog.Logger
	now          func() time.Time
}

// serverName is the name of the server. Clients that prefix tools with the server's name call them
// mcp__engineer__NAME.
const serverName = "engineer"

// server returns a server with the tools that the bearer may use. session is the id of its only session. All calls end
// with ctx.
func (ts toolset) server(ctx context.Context, session string) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: serverName, Title: "ramus", Version: ts.version}, &sdk.ServerOptions{
		Instructions: ts.instructions,
		// The tools of a bearer do not change while a session lasts.
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
		GetSessionID: func() string { return session },
		SetCacheable: func(_ context.Context, _ sdk.Request,
			c *sdk.Cacheable) {
			c.CacheScope = "private"
		}, // another bearer has other tools
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
		ReadOnlyHint: t.Hints.ReadOnly, DestructiveHint: &t.Hints.Destructive, IdempotentHint: t.Hints.Idempotent,
		OpenWorldHint: &t.Hints.Open,
	}}
	if t.Output != nil {
		def.OutputSchema = t.Output
	}
	return def
}

// call calls a tool. An error is returned as a result too, because a model can correct its arguments or try something
// else only if it gets the error.
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
		return nil, ctx.Err() // the client has gone
	}
	p := route.AsProblem(err, ts.who)
	if p.Kind == route.KindInternal {
		ts.log.Error("a tool failed", "tool", t.Name, "who", ts.who.Subject, "err", err)
		p.Hint = "" // the hint contains a request id that the model cannot use
	}
	text := p.Error()
	if p.Hint != "" {
		text += "\n" + p.Hint
	}
	return ts.answer(toolResult{text: text, failed: true})
}

// answer encodes a result. It limits the size and removes secrets.
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

// progressEvery is the least time between two progress notifications of a call.
const progressEvery = time.Second

// progress returns a function that notifies the client of progress. It does nothing if the client did not ask for it.
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
		// An error is ignored, because progress is not essential.
		_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: step,
			Message: text.ClipMiddle(message, 200)})
	}
}

// arguments checks the arguments of a call with the schema of the tool and returns them.
func arguments(schema, args json.RawMessage) (json.RawMessage, error) {
	if len(args) > maxArguments {
		return nil, route.NewProblem(route.KindTooLarge, "the arguments have %d bytes, at most %d may be sent",
			len(args), maxArguments)
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

// resultSchemas has the results of schemaFor, by type.
var resultSchemas sync.Map

// schemaFor returns the strict schema of T, for results. T must be a struct. Some clients translate schemas for the
// provider of a model and do not support lists of types. Therefore a value that may be null uses anyOf, and an
// optional value is never null. They refuse a schema that is only true, too, so JSON as it came is an object.
//
// Each request of MCP lists the tools, so the schemas are kept.
func schemaFor[T any]() json.RawMessage {
	if kept, ok := resultSchemas.Load(reflect.TypeFor[T]()); ok {
		return kept.(json.RawMessage)
	}
	types := maps.Clone(route.TypeSchemas)
	types[reflect.TypeFor[json.RawMessage]()] = &jsonschema.Schema{Type: "object",
		AdditionalProperties: &jsonschema.Schema{}}
	schema, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: types, IgnoreInvalidTypes: true})
	if err == nil {
		oneType(schema, true)
		var b []byte
		if b, err = json.Marshal(schema); err == nil {
			resultSchemas.Store(reflect.TypeFor[T](), json.RawMessage(b))
			return b
		}
	}
	panic(fmt.Sprintf("a tool's result: %v", err)) // a fault of the program that every test finds
}

// oneType replaces the lists of types in the schema of a Go type, see [schemaFor]. there is true for a required
// property and for any value that is not a property.
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
