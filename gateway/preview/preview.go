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

// Executor is the part of the executor that previews need.
type Executor interface {
	Caller(ctx context.Context, name string) (executor.CallerStatus, error)
}

// Programs reaches the ports of containers.
type Programs interface {
	// Ports returns the open ports of the container of a caller.
	Ports(ctx context.Context, caller record.Caller) ([]int, error)
	// DialPort connects to a port of the container of a caller.
	DialPort(ctx context.Context, caller record.Caller, port int) (net.Conn, error)
}

// API serves the routes of ports and previews. Its exported fields are its options, which may be changed until the
// first call of Routes.
type API struct {
	Executor Executor
	Programs Programs
	// Find finds the callers that paths name.
	Find *lookup.Lookup
	// Verify returns the grant of a token, or the error why the token is refused.
	Verify func(token string) (gitd.Grant, error)
	// Links signs the links to previews. If it is nil, there are no previews.
	Links *links.Signer
	// Origin gives each preview an origin of its own. If it is nil, previews are shown sandboxed, below a path of the
	// server.
	Origin *Origin
	// Transport connects to applications. Its address http://SLUG:PORT is a port of the container of the caller with
	// that slug. If it is nil, a transport that dials with Programs is used.
	Transport *http.Transport
	Log       *slog.Logger
	Now       func() time.Time

	once        sync.Once
	connections route.Streams // limits the connections to ports of containers
	codes       codes
}

func (api *API) setUp() {
	api.once.Do(func() {
		api.connections.Max = maxConnections
		if api.Transport == nil {
			api.Transport = newTransport(api.Programs)
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

// Port is an open port of a caller's container.
type Port struct {
	Port int `json:"port"`
	// URL is a link to the application at the port that needs no token until it expires. It is empty if the server
	// signs no links or does not know its own URL.
	URL     string    `json:"url,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
}

// PortUpgrade is the protocol of a connection to a port. A client asks for it with the header Upgrade. After the
// answer 101, all bytes are those of the connection to the port. If either direction ends, both do.
const PortUpgrade = "ramus-tcp"

func (api *API) ports(c *route.Call) error {
	st, err := api.Find.PathCaller(c)
	if err != nil {
		return err
	}
	open, err := api.Programs.Ports(c.R.Context(), st.Caller)
	if err != nil {
		return err
	}
	list := []Port{}
	for _, port := range open {
		list = append(list, api.portOf(c, st.Caller, port))
	}
	return c.Reply(list)
}

// portOf returns a port with its signed link.
func (api *API) portOf(c *route.Call, caller record.Caller, port int) Port {
	p := Port{Port: port}
	if address := c.Address(); api.Links != nil && address != "" {
		until := api.Links.Expiry()
		p.URL, p.Expires = address+api.Links.SignUntil(links.PreviewPath(caller, port), until),
			until.UTC().Truncate(time.Second)
	}
	return p
}

// portNumber parses a port. It accepts only the shortest form of a number, so that each signed port has only one name.
func portNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, route.NewProblem(route.KindInvalid, "%.100q is no port; want 1 to 65535", s)
	}
	return int(n), nil
}

// connectPort connects the connection of the request to a port of the container.
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
		return route.NewProblem(route.KindInvalid,
			"a connection to a port takes the place of this one: want the headers `Connection: Upgrade` and `Upgrade: %s`", PortUpgrade)
	}
	done, err := api.connections.Acquire(c.Who)
	if err != nil {
		return err
	}
	defer done()
	inside, err := api.Programs.DialPort(c.R.Context(), st.Caller, port)
	if err != nil {
		return err
	}
	defer inside.Close()
	outside, buffered, err := http.NewResponseController(c.W).Hijack()
	if err != nil {
		return route.NewProblem(route.KindInvalid, "this connection cannot be given to a port: %v",
			err).WithHint("HTTP/1.1 can")
	}
	defer outside.Close()
	_ = outside.SetDeadline(time.Time{}) // removes the deadline that the server set for requests
	if _, err := io.WriteString(outside, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
		PortUpgrade+"\r\n\r\n"); err != nil {
		return nil // the client has closed the connection
	}
	defer context.AfterFunc(c.Draining(), func() { outside.Close() })()
	Splice(&bufferedConn{outside, buffered.Reader}, inside)
	return nil
}

// bufferedConn is a connection of which r has read the first bytes already.
type bufferedConn struct {
	net.Conn
	r io.Reader
}

func (b *bufferedConn) Read(p []byte) (int, error) { return b.r.Read(p) }

// Splice copies in both directions between two connections until either ends. It closes both.
func Splice(a, b io.ReadWriteCloser) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(a, b) // any error ends the connection
		_, _ = a.Close(), b.Close()
	}()
	_, _ = io.Copy(b, a)
	_, _ = a.Close(), b.Close()
	<-done
}

// listWithin limits the search for open ports.
const listWithin = 5 * time.Second

// openPorts returns a sentence about the open ports of a caller's container, for people. Returns "" if they cannot be
// listed.
func (api *API) openPorts(c *route.Call, caller record.Caller) string {
	ctx, cancel := context.WithTimeout(c.R.Context(), listWithin)
	defer cancel()
	open, err := api.Programs.Ports(ctx, caller)
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

// maxConnections limits the concurrent connections to ports, because each is a channel into a container. One viewer or
// preview may have a quarter of them.
const maxConnections = 1024
