package way

import (
	"io"
	"net"
)

// Server serves the sessions of one pod in another process than the pod's, in place of the commands serve and connect. A
// node that is simulated has one for each of its pods. Its methods may be called concurrently.
type Server struct{ sessions *sessions }

// NewServer returns a server. dial connects with a socket of the pod, by its path there.
func NewServer(dial func(socket string) (net.Conn, error)) *Server { return &Server{newSessions(dial)} }

// Connect carries a session on c until that breaks or the session ends, and closes c. opening is the argument of the command
// connect; see [Opening].
func (s *Server) Connect(opening string, c io.ReadWriteCloser) error {
	o, err := parseOpening([]byte(opening))
	if err != nil {
		_ = c.Close()
		return err
	}
	s.sessions.carrySession(o, c)
	return nil
}

// Close ends all sessions, as the end of a pod does.
func (s *Server) Close() {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	for name, one := range s.sessions.open {
		s.sessions.endLocked(name, one)
	}
}
