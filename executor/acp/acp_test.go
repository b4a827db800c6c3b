package acp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/internal/standin/acptest"
)

// workDir is the folder of the sessions.
const workDir = "/work"

// client records an agent's updates and requests. Its files are a map.
type client struct {
	mu       sync.Mutex // guards all below
	said     string
	updates  []acp.Update
	asked    []acp.Question
	files    map[string]string
	started  []string
	released int
	yes      bool
}

func (c *client) Update(_ context.Context, u acp.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u.Kind == acp.UpdateMessage {
		c.said += u.Text
	}
	c.updates = append(c.updates, u)
}

func (c *client) Permit(_ context.Context, q acp.Question) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, q)
	o, _ := q.Pick(c.yes)
	return o.ID, nil
}

func (c *client) ReadFile(_ context.Context, r sdk.ReadTextFileRequest) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, ok := c.files[r.Path]
	if !ok {
		return "", errors.New("there is no such file")
	}
	return text, nil
}

func (c *client) WriteFile(_ context.Context, r sdk.WriteTextFileRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files[r.Path] = r.Content
	return nil
}

func (c *client) StartTerminal(_ context.Context, r sdk.CreateTerminalRequest) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = append(c.started, strings.Join(append([]string{r.Command}, r.Args...), " "))
	return "t", nil
}

func (c *client) TerminalOutput(context.Context, string) (sdk.TerminalOutputResponse, error) {
	return sdk.TerminalOutputResponse{Output: "printed\n"}, nil
}

func (c *client) AwaitTerminal(ctx context.Context, _ string) (sdk.TerminalExitStatus, error) {
	c.mu.Lock()
	last := c.started[len(c.started)-1]
	c.mu.Unlock()
	if strings.HasSuffix(last, "forever") {
		<-ctx.Done()
		return sdk.TerminalExitStatus{}, ctx.Err()
	}
	code := 0
	return sdk.TerminalExitStatus{ExitCode: &code}, nil
}

func (c *client) KillTerminal(context.Context, string) error { return nil }

func (c *client) ReleaseTerminal(context.Context, string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released++
	return nil
}

func (c *client) heard() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

// noLeaks fails a test that leaves goroutines.
func noLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 1000 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		buf := make([]byte, 1<<20)
		t.Errorf("goroutines left: %d before, %d after\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
	})
}

// serve connects a client to a stand-in.
func serve(t *testing.T, a *acptest.Agent) (*acp.Conn, *client) {
	t.Helper()
	if a.Brain == nil {
		a.Brain = acptest.Script{}
	}
	agentIn, stdin := io.Pipe()
	stdout, agentOut := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- a.Serve(agentIn, agentOut)
		agentOut.Close()
	}()
	c := &client{files: map[string]string{workDir + "/there": "it is there\n"}, yes: true}
	conn, err := acp.Connect(t.Context(), stdin, stdout, c, acp.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		stdin.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		stdout.Close()
	})
	return conn, c
}

func open(t *testing.T, conn *acp.Conn, s acp.Session) string {
	t.Helper()
	s.Dir = workDir
	id, err := conn.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func say(t *testing.T, conn *acp.Conn, session, text string) string {
	t.Helper()
	stop, err := conn.Prompt(t.Context(), session, []sdk.ContentBlock{sdk.TextBlock(text)})
	if err != nil {
		t.Fatal(err)
	}
	return stop
}

func TestTurn(t *testing.T) {
	noLeaks(t)
	conn, c := serve(t, &acptest.Agent{Ask: []string{"edit"}})
	if conn.Agent.Name != "stand-in" || !conn.Agent.Capabilities.LoadSession {
		t.Errorf("%+v", conn.Agent)
	}
	session := open(t, conn, acp.Session{})
	if stop := say(t, conn, session,
		"say hello\nread there\nwrite made by me\nrun make test\nplan one | two\nread nowhere\nthink hard"); stop != "end_turn" {
		t.Errorf("stopped: %s", stop)
	}
	for _, want := range []string{"hello\n", "it is there\n", "printed\n", "there is no such file", "done\n"} {
		if !strings.Contains(c.said, want) {
			t.Errorf("no %q in %q", want, c.said)
		}
	}
	if c.files[workDir+"/made"] != "by me\n" || !slices.Equal(c.started, []string{"sh -c make test"}) || c.released != 1 {
		t.Errorf("%q %q %d", c.files, c.started, c.released)
	}
	if len(c.asked) != 1 || c.asked[0].Tool.Kind != "edit" || c.asked[0].Tool.Words() != "edit made" {
		t.Errorf("asked: %+v", c.asked)
	}
	kinds := map[string]int{}
	for _, u := range c.updates {
		kinds[u.Kind]++
		switch u.Kind {
		case acp.UpdatePlan:
			if len(u.Plan) != 2 || u.Plan[1].Content != "two" {
				t.Errorf("plan: %+v", u.Plan)
			}
		case acp.UpdateThought:
			if u.Text != "hard" {
				t.Errorf("thought: %q", u.Text)
			}
		}
	}
	if kinds[acp.UpdateTool] != 4 || kinds[acp.UpdateToolMore] != 8 || kinds[acp.UpdateThought] != 1 {
		t.Errorf("%v", kinds)
	}
	c.yes = false
	say(t, conn, session, "write made by nobody")
	if c.files[workDir+"/made"] != "by me\n" || !strings.Contains(c.said, "not allowed") {
		t.Errorf("%q %q", c.files, c.said)
	}
}

// TestSessions continues sessions of processes that have ended. Their earlier
// updates do not reach the client again.
func TestSessions(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	conn, _ := serve(t, &acptest.Agent{Dir: dir})
	session := open(t, conn, acp.Session{})
	say(t, conn, session, "say that was before")
	for _, resume := range []bool{false, true} {
		conn, c := serve(t, &acptest.Agent{Dir: dir, Resume: resume})
		if id := open(t, conn, acp.Session{ID: session}); id != session {
			t.Errorf("%q became %q", session, id)
		}
		if len(c.updates) != 0 {
			t.Errorf("told again: %+v", c.updates)
		}
		say(t, conn, session, "recall")
		if !strings.Contains(c.said, "that was before") {
			t.Errorf("said: %q", c.said)
		}
		if _, err := conn.Open(t.Context(), acp.Session{ID: "sess-77", Dir: workDir}); !errors.Is(err, acp.ErrRefused) {
			t.Errorf("a session that is not there: %v", err)
		}
	}
	conn, _ = serve(t, &acptest.Agent{Dir: dir, NoLoad: true})
	if _, err := conn.Open(t.Context(), acp.Session{ID: session, Dir: workDir}); !errors.Is(err, acp.ErrRefused) {
		t.Errorf("an agent that cannot load: %v", err)
	}
}

func TestModes(t *testing.T) {
	noLeaks(t)
	conn, _ := serve(t, &acptest.Agent{Modes: []string{"code", "plan"}})
	open(t, conn, acp.Session{Mode: "plan"})
	if _, err := conn.Open(t.Context(), acp.Session{Mode: "yolo", Dir: workDir}); !errors.Is(err, acp.ErrRefused) {
		t.Errorf("a mode that is not there: %v", err)
	}
}

func TestAuth(t *testing.T) {
	noLeaks(t)
	conn, _ := serve(t, &acptest.Agent{Auth: "api-key"})
	if _, err := conn.Open(t.Context(), acp.Session{Dir: workDir}); !errors.Is(err, acp.ErrAuth) ||
		!strings.Contains(err.Error(), "api-key") {
		t.Errorf("without a way: %v", err)
	}
	if _, err := conn.Open(t.Context(), acp.Session{Dir: workDir, Auth: "wrong"}); !errors.Is(err, acp.ErrRefused) {
		t.Errorf("a wrong way: %v", err)
	}
	open(t, conn, acp.Session{Auth: "api-key"})
}

func TestCancel(t *testing.T) {
	noLeaks(t)
	conn, c := serve(t, &acptest.Agent{})
	session := open(t, conn, acp.Session{})
	stopped := make(chan string, 1)
	for _, prompt := range []string{"say begun\nhang", "say begun\nrun forever"} {
		c.said = ""
		go func() {
			stop, err := conn.Prompt(context.WithoutCancel(t.Context()), session, []sdk.ContentBlock{sdk.TextBlock(prompt)})
			stopped <- fmt.Sprint(stop, " ", err)
		}()
		for !strings.Contains(c.heard(), "begun") {
			runtime.Gosched()
		}
		if err := conn.Cancel(session); err != nil {
			t.Fatal(err)
		}
		if got := <-stopped; got != "cancelled <nil>" {
			t.Errorf("%q: %s", prompt, got)
		}
	}
	if got := say(t, conn, session, "say again"); got != "end_turn" {
		t.Errorf("afterwards: %s", got)
	}
}

// TestErrors has agents answer with errors.
func TestErrors(t *testing.T) {
	noLeaks(t)
	conn, _ := serve(t, &acptest.Agent{})
	session := open(t, conn, acp.Session{})
	_, err := conn.Prompt(t.Context(), session, []sdk.ContentBlock{sdk.TextBlock("fail with words")})
	if !errors.Is(err, acp.ErrRefused) || !strings.Contains(err.Error(), "with words") {
		t.Errorf("%v", err)
	}
	if got := say(t, conn, session, "stop max_tokens"); got != "max_tokens" {
		t.Errorf("stopped: %s", got)
	}
	if _, err := conn.Prompt(t.Context(), "sess-nowhere", nil); !errors.Is(err, acp.ErrRefused) {
		t.Errorf("no session: %v", err)
	}
}

// told connects to an agent that sends the first text on the first request, the
// second on the second, and so on, and then ends.
func told(t testing.TB, o acp.Options, sent ...string) (*client, error) {
	agentIn, stdin := io.Pipe()
	stdout, agentOut := io.Pipe()
	var wg sync.WaitGroup
	asked := make(chan struct{}, 2)
	wg.Go(func() {
		defer close(asked)
		for in := bufio.NewScanner(agentIn); in.Scan(); {
			if text := in.Text(); strings.Contains(text, `"method":"initialize"`) || strings.Contains(text, `"method":"session/new"`) {
				asked <- struct{}{}
			}
		}
	})
	wg.Go(func() {
		for _, text := range sent {
			<-asked // closed when the client has closed
			_, _ = io.WriteString(agentOut, text)
		}
		agentOut.Close()
	})
	c := &client{files: map[string]string{}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := acp.Connect(ctx, stdin, stdout, c, o)
	if err == nil {
		_, err = conn.Open(ctx, acp.Session{Dir: workDir})
	}
	conn.Close()
	stdin.Close()
	stdout.Close()
	wg.Wait()
	if ctx.Err() != nil {
		t.Fatal("it hangs")
	}
	return c, err
}

const hello = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}` + "\n"

// TestStray has agents print lines that are not messages, and messages that the
// package does not know.
func TestStray(t *testing.T) {
	noLeaks(t)
	var stray strings.Builder
	_, err := told(t, acp.Options{Stray: &stray},
		"npm warn something\n"+`{"half":`+"\n[]\n"+`{"jsonrpc":"2.0","method":"of/others"}`+"\n"+hello,
		`{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}`+"\n", "")
	if err != nil {
		t.Error(err)
	}
	if got := stray.String(); !strings.HasPrefix(got, "npm warn something\n{\"half\":\n[]\n") {
		t.Errorf("%q", got)
	}
	// Agents that answer stay until the client closes. If an agent ended at once,
	// the client could see the end before the answer.
	for _, c := range []struct {
		sent []string
		want error
	}{
		{[]string{`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":7}}` + "\n", ""}, acp.ErrVersion},
		{[]string{hello}, acp.ErrEnded},
		{nil, acp.ErrEnded},
		{[]string{hello, `{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"sign in"}}` + "\n", ""}, acp.ErrAuth},
		{[]string{hello, `{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"broken"}}` + "\n", ""}, acp.ErrRefused},
		{[]string{hello, `{"jsonrpc":"2.0","id":2,"result":{}}` + "\n", ""}, acp.ErrRefused},
		{[]string{hello, strings.Repeat("x", acp.MaxLine+1)}, acp.ErrLine},
	} {
		if _, err := told(t, acp.Options{}, c.sent...); !errors.Is(err, c.want) {
			t.Errorf("%.80q: %v, want %v", c.sent, err, c.want)
		}
	}
}

// TestClosedInput has an agent that closes its input, and not yet its output.
func TestClosedInput(t *testing.T) {
	noLeaks(t)
	agentIn, stdin := io.Pipe()
	stdout, agentOut := io.Pipe()
	agentIn.Close()
	conn, err := acp.Connect(t.Context(), stdin, stdout, &client{}, acp.Options{})
	if !errors.Is(err, acp.ErrEnded) {
		t.Errorf("%v, want %v", err, acp.ErrEnded)
	}
	agentOut.Close()
	conn.Close()
	stdout.Close()
}

// TestBurst sends more messages than the SDK's queue holds.
func TestBurst(t *testing.T) {
	noLeaks(t)
	const n = 5000
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%d "}}}}`+"\n", i)
		if i%50 == 0 {
			fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":"q%d","method":"fs/read_text_file","params":{"sessionId":"s","path":"/x"}}`+"\n", i)
		}
	}
	b.WriteString(`{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}` + "\n")
	c, err := told(t, acp.Options{}, hello, b.String(), "") // and stays
	if err != nil {
		t.Fatal(err)
	}
	if len(c.updates) != n || !strings.HasSuffix(c.said, fmt.Sprint(n-1, " ")) {
		t.Errorf("%d updates", len(c.updates))
	}
}

func FuzzAgent(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}`,
		`{"jsonrpc":"2.0","id":"a","method":"session/request_permission","params":{"sessionId":"s","options":[{"optionId":"o","name":"n","kind":"allow_once"}],"toolCall":{"toolCallId":"c"}}}`,
		`{"jsonrpc":"2.0","id":[],"method":"terminal/create","params":{"sessionId":"s","command":"x","env":[{"name":"a","value":"b"}]}}`,
		`{"jsonrpc":"2.0","id":1e400,"method":"fs/read_text_file","params":{"path":"/x"}}`,
		`{"jsonrpc":"2.0","id":null,"method":"session/update","params":null}`,
		`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"plan","entries":[{}]}}}`,
		`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"a"}}`,
		`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":{"a":[1]}}}`,
		`{"ID":2,"METHOD":"initialize"}`, `[]`, `null`, ``, "\xff\x00",
	} {
		f.Add([]byte(line + "\n"))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		_, _ = told(t, acp.Options{}, hello, string(sent)) // it ends with any input
	})
}

func FuzzParseUpdate(f *testing.F) {
	for _, update := range []string{
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}`,
		`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","kind":"edit","locations":[{"path":"/a","line":3}],"rawInput":{"a":1}}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","content":[{"type":"of tomorrow"}]}`,
		`{"sessionUpdate":"plan","entries":[{"content":"c","status":"pending","priority":"high"}]}`,
		`{"sessionUpdate":"current_mode_update","currentModeId":"plan"}`, `{"sessionUpdate":"of tomorrow"}`, `[]`, `{`,
	} {
		f.Add([]byte(`{"sessionId":"s","update":` + update + `}`))
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		_, u, err := acp.ParseUpdate(params)
		if err == nil && (u.Kind == acp.UpdateTool) != (u.Tool != nil && u.Kind != acp.UpdateToolMore) {
			t.Errorf("%+v", u)
		}
	})
}
