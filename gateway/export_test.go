package gateway

import (
	"context"
	"net"

	"github.com/ramus-dev/ramus/gateway/mcp"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Table returns the table of routes, for the authorisation test.
func (s *Server) Table() []route.Route { return s.routes() }

// MCP returns the API of MCP.
func MCP(s *Server) *mcp.API { return s.mcp }

// DialInside makes previews use dial in place of dialing into containers.
func DialInside(s *Server, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	s.setUp()
	s.preview.Transport.DialContext = dial
}
