package gateway

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Table is the table of routes, for the authorisation test.
func (s *Server) Table() []route.Route { return s.routes() }

// DerivedID names a run that comes of another one.
var DerivedID = derivedID

// KnowsItself tells whether Slack has said who ramus is.
func KnowsItself(c *Chat) bool { return c.me.Load() != nil }

// SetIdleSessions ends MCP's sessions after another time.
func SetIdleSessions(s *Server, idle time.Duration) { s.mcpFront.idle = idle }

// SetMostSessions bounds MCP's sessions otherwise.
func SetMostSessions(s *Server, most int) { s.mcpFront.most = most }

// Arguments are what a client sent to a tool, checked against its schema.
var Arguments = arguments

// EndSessions ends MCP's sessions, as a restart of the server does.
func EndSessions(s *Server) {
	s.mcpFront.mu.Lock()
	defer s.mcpFront.mu.Unlock()
	for id, session := range s.mcpFront.sessions {
		session.end()
		delete(s.mcpFront.sessions, id)
	}
}

// ToolSchemas are the schemas of all tools' arguments, by the tools' names.
func ToolSchemas() map[string]json.RawMessage {
	s := &Server{Engineer: new(Engineer), Executor: new(executor.Executor)}
	schemas := map[string]json.RawMessage{}
	for _, t := range slices.Concat(s.mcpTools(route.Local), s.sessionTools(route.Local), new(mcpDoor).taskTools(record.Task{})) {
		schemas[t.Name] = t.Schema
	}
	return schemas
}

// DialInside has previews dial otherwise than into containers.
func DialInside(s *Server, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	s.setUp()
	s.inside.DialContext = dial
}

// PreviewPass is what opens a preview once its link was followed.
func PreviewPass(l *links.Signer, c record.Caller, port int, until time.Time) string {
	return l.Pass(previewPath(c, port), until)
}

// CheckPreviewPass says whether a pass opens a preview.
func CheckPreviewPass(l *links.Signer, c record.Caller, port int, pass string) error {
	_, err := l.CheckPass(previewPath(c, port), pass)
	return err
}

// PreviewLabel is a preview's name in DNS.
var PreviewLabel = previewLabel

// PreviewAnswer is what becomes of an application's headers.
func PreviewAnswer(h http.Header, own bool) {
	if own {
		ownHosted{"https://p5173-run-x.preview.example.org", "__Host-ramus-preview"}.answer(h, "localhost:5173")
		return
	}
	sandboxed{base: "/preview/run:x/5173/pass"}.answer(h, "localhost:5173")
}
