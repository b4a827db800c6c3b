package gateway

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Table is the table of routes, for the authorisation test.
func (s *Server) Table() []route.Route { return s.routes() }

// SetIdleSessions ends MCP's sessions after another time.
func SetIdleSessions(s *Server, idle time.Duration) { s.mcp.mcpFront.idle = idle }

// SetMostSessions bounds MCP's sessions otherwise.
func SetMostSessions(s *Server, most int) { s.mcp.mcpFront.most = most }

// Arguments are what a client sent to a tool, checked against its schema.
var Arguments = arguments

// EndSessions ends MCP's sessions, as a restart of the server does.
func EndSessions(s *Server) {
	s.mcp.mcpFront.mu.Lock()
	defer s.mcp.mcpFront.mu.Unlock()
	for id, session := range s.mcp.mcpFront.sessions {
		session.end()
		delete(s.mcp.mcpFront.sessions, id)
	}
}

// ToolSchemas are the schemas of all tools' arguments, by the tools' names.
func ToolSchemas() map[string]json.RawMessage {
	s := &mcpAPI{Engineer: new(engineer.Engineer), Executor: new(executor.Executor)}
	schemas := map[string]json.RawMessage{}
	for _, t := range slices.Concat(s.mcpTools(route.Local), s.sessionTools(route.Local), new(mcpDoor).taskTools(record.Task{})) {
		schemas[t.Name] = t.Schema
	}
	return schemas
}

// DialInside has previews dial otherwise than into containers.
func DialInside(s *Server, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	s.setUp()
	s.preview.Transport.DialContext = dial
}
