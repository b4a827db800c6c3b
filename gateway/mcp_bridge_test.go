package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/loopback"
)

// bridged is a bridge with its standard input and output.
type bridged struct {
	in    *io.PipeWriter
	out   *bufio.Scanner
	notes chan error
	ended chan error
}

func bridge(t *testing.T, c *client.Client) *bridged {
	t.Helper()
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	b := &bridged{in: inWrite, out: bufio.NewScanner(outRead), notes: make(chan error, 10), ended: make(chan error, 1)}
	b.out.Buffer(nil, 1<<20)
	go func() {
		err := c.MCP(t.Context(), inRead, outWrite, func(err error) { b.notes <- err })
		outWrite.Close()
		b.ended <- err
	}()
	t.Cleanup(func() {
		inWrite.Close()
		go io.Copy(io.Discard, outRead) // a failed test may not have read all answers
		if err := <-b.ended; err != nil && t.Context().Err() == nil {
			t.Errorf("the bridge ended badly: %v", err)
		}
	})
	return b
}

// say writes a line.
func (b *bridged) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(b.in, text+"\n"); err != nil {
		t.Fatal(err)
	}
}

// ask writes a line and reads one.
func (b *bridged) ask(t *testing.T, text string) (answer struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }
}) {
	t.Helper()
	b.say(t, text)
	if !b.out.Scan() {
		t.Fatalf("no answer to %s: %v", text, b.out.Err())
	}
	if err := json.Unmarshal(b.out.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, b.out.Bytes())
	}
	return answer
}

const (
	hello      = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	ready      = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	listActive = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_active_tasks","arguments":{}}}`
)

// TestMCPBridge checks that the bridge begins a lost session again with the client's own first messages.
func TestMCPBridge(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, withEngineer(t))
	r.repo(t, "team/app")
	b := bridge(t, r.bearer(t, r.token(t, gitd.Grant{Subject: "x", Repo: "*", Scopes: []string{"read"}})))
	if a := b.ask(t, hello); a.ID != 1 || !strings.Contains(string(a.Result), `"engineer"`) {
		t.Fatalf("%+v", a)
	}
	b.say(t, ready)
	for range 2 {
		if a := b.ask(t, listActive); a.ID != 2 || !strings.Contains(string(a.Result), `"result":[]`) {
			t.Errorf("%s, %+v", a.Result, a.Error)
		}
		gateway.MCP(r.Server).EndSessions()
	}
	b.say(t, "") // an empty line has no effect
	if a := b.ask(t, `{"jsonrpc":"2.0","id":3,"method":"no/such"}`); a.Error == nil {
		t.Errorf("%s", a.Result)
	}
	// The newest version has no sessions. Its clients send their version in each message.
	if a := b.ask(t, `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"list_active_tasks","arguments":{},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`); !strings.Contains(string(a.Result), `"result":[]`) {
		t.Errorf("%s, %+v", a.Result, a.Error)
	}
	b.say(t, "no JSON at all")
	if err := <-b.notes; !strings.Contains(err.Error(), "malformed") {
		t.Errorf("no JSON: %v", err)
	}
}

// TestMCPBridgeWithoutServer checks that each request gets an error if there is no server, and that the bridge
// continues.
func TestMCPBridgeWithoutServer(t *testing.T) {
	t.Parallel()
	c := client.New("http://"+loopback.Address(t), "")
	t.Cleanup(c.Close)
	b := bridge(t, c)
	for range 2 {
		if a := b.ask(t, hello); a.ID != 1 || a.Error == nil || !strings.Contains(a.Error.Message, "cannot reach the ramus server") {
			t.Errorf("%+v", a)
		}
	}
	b.say(t, ready)
	if err := <-b.notes; !strings.Contains(err.Error(), "cannot reach the ramus server") {
		t.Errorf("a notification: %v", err)
	}
}

// TestMCPBridgeEnds checks that a message that is too long ends the bridge, and that its context does.
func TestMCPBridgeEnds(t *testing.T) {
	t.Parallel()
	c := client.New("http://127.0.0.1:1", "")
	defer c.Close()
	if err := c.MCP(t.Context(), strings.NewReader(strings.Repeat("x", 9<<20)), io.Discard,
		func(error) {}); err == nil || !strings.Contains(err.Error(), "8388608 bytes") {
		t.Errorf("a long message: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	in, w := io.Pipe()
	defer w.Close()
	cancel()
	if err := c.MCP(ctx, in, io.Discard, func(error) {}); err == nil {
		t.Error("it ended well though its context had ended")
	}
}
