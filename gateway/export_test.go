package gateway

// Table is the table of routes, for the authorisation test.
func (s *Server) Table() []Route { return s.routes() }

// DerivedID names a run that comes of another one.
var DerivedID = derivedID

// SetMostSessions bounds MCP's sessions otherwise.
func SetMostSessions(s *Server, most int) { s.mcpFront.most = most }

// Arguments are what a client sent to a tool, checked against its schema.
var Arguments = arguments
