package gitd

import "sync/atomic"

// Stats counts what a server has done since it was opened.
type Stats struct {
	Children uint64 // git processes started, for whatever reason; they may have started others
	Lists    uint64 // lists of refs answered without one
	Packs    uint64 // git processes that made an answer to a fetch, each kept for others
	Composed uint64 // answers put together from the base's pack and a branch's own objects
	Hits     uint64 // answers that had been made, or were being made, for another
	Kept     int64  // bytes of kept answers
}

// stats holds the counts of [Stats] that the server itself keeps.
type stats struct {
	lists, packs, composed, hits atomic.Uint64
}

// Stats is what the server has done so far.
func (s *Server) Stats() Stats {
	s.replies.mu.Lock()
	kept := s.replies.bytes
	s.replies.mu.Unlock()
	return Stats{s.git.Started(), s.stats.lists.Load(), s.stats.packs.Load(), s.stats.composed.Load(), s.stats.hits.Load(), kept}
}
