package gateway

// Table is the table of routes, for the authorisation test.
func (s *Server) Table() []Route { return s.routes() }
