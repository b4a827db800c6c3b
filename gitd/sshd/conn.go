package sshd

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// conn is a connection, before and after login.
type conn struct {
	net.Conn
	addr   netip.Addr
	since  time.Time
	passed bool // from another server; constant after it was made

	mu       sync.Mutex  // guards the fields below
	timer    *time.Timer // closes a connection that does not log in, or is idle
	sessions int
}

// beginSession counts a new session. It returns false if the connection has too many.
func (c *conn) beginSession() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions >= sessionsMax {
		return false
	}
	c.sessions++
	c.timer.Stop()
	return true
}

// endSession counts a session that has ended. After the last one the connection may be idle for some time.
func (c *conn) endSession(idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions--; c.sessions == 0 {
		c.timer.Reset(idle)
	}
}

// admitConn registers a new connection.
func (s *Server) admitConn(c net.Conn) *conn {
	made := &conn{Conn: c, addr: RemoteIP(c.RemoteAddr()), since: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest, oldestHere *conn
	here := 0
	for o := range s.strangers {
		if oldest == nil || o.since.Before(oldest.since) {
			oldest = o
		}
		if o.addr == made.addr {
			here++
			if oldestHere == nil || o.since.Before(oldestHere.since) {
				oldestHere = o
			}
		}
	}

	switch {
	case here >= StrangersPerAddr:
		delete(s.strangers, oldestHere)
		oldestHere.Close()
	case len(s.strangers) >= strangersMax:
		delete(s.strangers, oldest)
		oldest.Close()
	}
	made.timer = time.AfterFunc(handshakeTime, func() { made.Close() })
	if s.conns == nil {
		s.conns, s.strangers = map[*conn]struct{}{}, map[*conn]struct{}{}
	}
	s.strangers[made] = struct{}{}
	s.conns[made] = struct{}{}
	if s.closed {
		made.Close()
	}
	return made
}

// markLoggedIn records that a connection has logged in.
func (s *Server) markLoggedIn(c *conn) {
	s.mu.Lock()
	delete(s.strangers, c)
	s.mu.Unlock()
	c.mu.Lock()
	c.timer.Reset(s.Idle)
	c.mu.Unlock()
}

func (s *Server) removeConn(c *conn) {
	c.mu.Lock()
	c.timer.Stop()
	c.mu.Unlock()
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.strangers, c)
	delete(s.conns, c)
}

func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
}
