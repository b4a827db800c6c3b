package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Port is a port that something listens at in a caller's container.
type Port struct {
	Port int `json:"port"`
	// URL shows what listens there to whoever has it, until it expires; empty where the
	// server signs no links, or does not know where people reach it.
	URL     string    `json:"url,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
}

// PortUpgrade is the protocol that a connection to a port is asked for with, in the
// header Upgrade: after the answer 101 each byte is the container's, or for it. An
// end in either direction is the end of both.
const PortUpgrade = "ramus-tcp"

func (s *Server) ports(c *route.Call) error {
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	open, err := s.Executor.Ports(c.R.Context(), st.Caller)
	if err != nil {
		return err
	}
	list := []Port{}
	for _, port := range open {
		list = append(list, s.portOf(c, st.Caller, port))
	}
	return c.Reply(list)
}

// portOf adds the signed link to a port.
func (s *Server) portOf(c *route.Call, caller record.Caller, port int) Port {
	p := Port{Port: port}
	if address := c.Address(); s.Links != nil && address != "" {
		until := s.Links.Expiry()
		p.URL, p.Expires = address+s.Links.SignUntil(previewPath(caller, port), until), until.UTC().Truncate(time.Second)
	}
	return p
}

// previewPath is what links to a preview are signed for.
func previewPath(caller record.Caller, port int) string {
	return fmt.Sprintf("/preview/%s/%d/", caller, port)
}

// portNumber reads a port; only the shortest way to write it is one, so that
// what was signed has one name.
func portNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, route.NewProblem(route.KindInvalid, "%.100q is no port; want 1 to 65535", s)
	}
	return int(n), nil
}

// connectPort gives the request's connection to a port of the container.
func (s *Server) connectPort(c *route.Call) error {
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	port, err := portNumber(c.R.PathValue("port"))
	if err != nil {
		return err
	}
	if !strings.EqualFold(c.R.Header.Get("Upgrade"), PortUpgrade) {
		return route.NewProblem(route.KindInvalid, "a connection to a port takes the place of this one: want the headers `Connection: Upgrade` and `Upgrade: %s`", PortUpgrade)
	}
	done, err := s.previews.Acquire(c.Who)
	if err != nil {
		return err
	}
	defer done()
	inside, err := s.Executor.DialPort(c.R.Context(), st.Caller, port)
	if err != nil {
		return err
	}
	defer inside.Close()
	outside, buffered, err := http.NewResponseController(c.W).Hijack()
	if err != nil {
		return route.NewProblem(route.KindInvalid, "this connection cannot be given to a port: %v", err).WithHint("HTTP/1.1 can")
	}
	defer outside.Close()
	_ = outside.SetDeadline(time.Time{}) // of the server's, for requests
	if _, err := io.WriteString(outside, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+PortUpgrade+"\r\n\r\n"); err != nil {
		return nil // it is gone, as connections go
	}
	defer context.AfterFunc(c.Draining(), func() { outside.Close() })()
	Splice(&bufferedConn{outside, buffered.Reader}, inside)
	return nil
}

// bufferedConn is a connection whose first bytes were read already.
type bufferedConn struct {
	net.Conn
	r io.Reader
}

func (b *bufferedConn) Read(p []byte) (int, error) { return b.r.Read(p) }

// Splice copies both ways between two connections until either ends, and closes both.
func Splice(a, b io.ReadWriteCloser) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(a, b) // however it ended, it has
		_, _ = a.Close(), b.Close()
	}()
	_, _ = io.Copy(b, a)
	_, _ = a.Close(), b.Close()
	<-done
}

// maxPortLinks is how many ports a run's page leads to.
const maxPortLinks = 16

// portLinks leads from the page of a run that goes on to what listens in its container.
func (s *Server) portLinks(c *route.Call, r record.Run) []pageLink {
	if s.Links == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), portsWithin)
	defer cancel()
	open, err := s.Executor.Ports(ctx, r.Caller)
	if err != nil {
		return nil // it has no container yet, or one that is busy; the next look tells
	}
	var list []pageLink
	for _, port := range open[:min(len(open), maxPortLinks)] {
		list = append(list, pageLink{strconv.Itoa(port), c.Link(previewPath(r.Caller, port))})
	}
	return list
}

// portsWithin is how long a page waits to be told what listens.
const portsWithin = time.Second

// openPorts are the ports that something listens at, as far as that is known, for people.
func (s *Server) openPorts(c *route.Call, caller record.Caller) string {
	ctx, cancel := context.WithTimeout(c.R.Context(), 5*portsWithin)
	defer cancel()
	open, err := s.Executor.Ports(ctx, caller)
	switch {
	case errors.Is(err, executor.ErrGone):
		return fmt.Sprintf("%s has no container at the moment", caller)
	case err != nil:
		return ""
	case len(open) == 0:
		return "nothing listens in its container; an application has to be started, and to be left running"
	}
	words := make([]string, len(open))
	for i, port := range open {
		words[i] = strconv.Itoa(port)
	}
	return "what listens in its container are the ports " + strings.Join(words, ", ")
}

// maxPreviews is how many connections to ports there may be at once: each is a
// channel into a container. One viewer or preview may hold a quarter of them.
const maxPreviews = 1024
