package preview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Executor is what previews need of the executor.
type Executor interface {
	Caller(ctx context.Context, name string) (executor.CallerStatus, error)
	// Ports returns the ports that something listens at in the container of a caller.
	Ports(ctx context.Context, caller record.Caller) ([]int, error)
	// DialPort connects to a port of the container of a caller.
	DialPort(ctx context.Context, caller record.Caller, port int) (net.Conn, error)
}

// API is the routes of ports and previews. Its exported fields are its options, which may be changed until the first
// call of Routes.
type API struct {
	Executor Executor
	// Find finds the callers that paths name.
	Find *lookup.Lookup
	// Verify returns the grant of a token, or why it is refused.
	Verify func(token string) (gitd.Grant, error)
	// Links signs the links to previews. If it is nil, there are no previews.
	Links *links.Signer
	// Origin gives each preview an origin of its own. If it is nil, previews are shown sandboxed, below a path of the
	// server.
	Origin *Origin
	// Transport connects to applications: http://SLUG:PORT is a port of the container of the caller with that slug.
	// Nil means one that dials with Executor.
	Transport *http.Transport
	Log       *slog.Logger
	Now       func() time.Time

	once        sync.Once
	connections route.Streams // to ports of containers
	codes       codes
}

func (api *API) setUp() {
	api.once.Do(func() {
		api.connections.Max = maxConnections
		if api.Transport == nil {
			api.Transport = newTransport(api.Executor)
		}
	})
}

// Routes returns the routes of ports and previews.
func (api *API) Routes() []route.Route {
	api.setUp()
	return []route.Route{
		{Method: "GET", Pattern: "/api/callers/{caller}/ports", Access: route.AccessRead,
			Summary:  "The ports that something listens at in a caller's container, with links that show it",
			Response: []Port{}, Handle: api.ports},
		{Method: "POST", Pattern: "/api/callers/{caller}/ports/{port}/connect", Access: route.AccessWrite,
			Summary: "A connection to a port of a caller's container, in place of this one: with `Connection: Upgrade`, `Upgrade: ramus-tcp`; the answer is 101",
			Media:   route.MediaBytes, Body: -1, Handle: api.connectPort},
		{Method: "GET", Pattern: "/preview/{caller}/{port}/{$}", Access: route.AccessSigned,
			Summary: "What listens at a port of a caller's container: leads to its own origin", Query: links.Query{},
			Media: route.MediaHTML, Handle: api.openPreview},
		{Pattern: "/preview/{caller}/{port}/{pass}/{path...}", Access: route.AccessPreview,
			Summary: "What listens at a port of a caller's container, where previews have no origin of their own",
			Media:   route.MediaHTML, Body: -1, Handle: api.pathPreview},
	}
}

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

func (api *API) ports(c *route.Call) error {
	st, err := api.Find.PathCaller(c)
	if err != nil {
		return err
	}
	open, err := api.Executor.Ports(c.R.Context(), st.Caller)
	if err != nil {
		return err
	}
	list := []Port{}
	for _, port := range open {
		list = append(list, api.portOf(c, st.Caller, port))
	}
	return c.Reply(list)
}

// portOf adds the signed link to a port.
func (api *API) portOf(c *route.Call, caller record.Caller, port int) Port {
	p := Port{Port: port}
	if address := c.Address(); api.Links != nil && address != "" {
		until := api.Links.Expiry()
		p.URL, p.Expires = address+api.Links.SignUntil(links.PreviewPath(caller, port), until), until.UTC().Truncate(time.Second)
	}
	return p
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
func (api *API) connectPort(c *route.Call) error {
	st, err := api.Find.PathCaller(c)
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
	done, err := api.connections.Acquire(c.Who)
	if err != nil {
		return err
	}
	defer done()
	inside, err := api.Executor.DialPort(c.R.Context(), st.Caller, port)
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

// listWithin limits the search for open ports.
const listWithin = 5 * time.Second

// openPorts are the ports that something listens at, as far as that is known, for people.
func (api *API) openPorts(c *route.Call, caller record.Caller) string {
	ctx, cancel := context.WithTimeout(c.R.Context(), listWithin)
	defer cancel()
	open, err := api.Executor.Ports(ctx, caller)
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

// maxConnections is how many connections to ports there may be at once: each is a
// channel into a container. One viewer or preview may hold a quarter of them.
const maxConnections = 1024
