package gitd

// Stats counts what a server has done since it was opened.
type Stats struct {
	Children uint64 // git processes started, for whatever reason; they may have started others
	Lists    uint64 // lists of refs answered without one
	Packs    uint64 // git processes that made an answer to a fetch, each kept for others
	Composed uint64 // answers put together from the base's pack and a branch's own objects
	Hits     uint64 // answers that had been made, or were being made, for another
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
