package gateway

// Table is the table of routes, for the authorisation test.
func (s *Server) Table() []Route { return s.routes() }

// DerivedID names a run that comes of another one.
var DerivedID = derivedID
