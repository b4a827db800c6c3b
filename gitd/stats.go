package gitd

// Stats counts the work of a server since it was opened.
type Stats struct {
	Children uint64 // git processes that were started, not counting their own children
	Lists    uint64 // lists of refs that were answered without git
	Packs    uint64 // answers to fetches made by git to be kept for others
	Composed uint64 // answers composed of the pack of the base and the objects of a branch
	Hits     uint64 // answers that had been made, or were being made, for another client
	Kept     int64  // bytes of kept answers
}

// Stats returns the counts since the server was opened.
func (s *Server) Stats() Stats {
	c := s.clones.Stats()
	return Stats{
		Children: s.git.Started(), Lists: s.lists.Load(),
		Packs: c.Packs, Composed: c.Composed, Hits: c.Hits, Kept: c.Kept,
	}
}
