package acp_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/internal/standin/acptest"
)

const (
	spoken   = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"so"}}}}` + "\n"
	question = `{"jsonrpc":"2.0","id":"a","method":"session/request_permission","params":{"sessionId":"s","options":[],"toolCall":{"toolCallId":"c"}}}` + "\n"
	answer   = `{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}` + "\n"
)

// TestReplay reads outputs of agents that have ended.
func TestReplay(t *testing.T) {
	request := `{"jsonrpc":"2.0","id":9,"method":"terminal/create","params":{"sessionId":"s","command":"x"}}` + "\n"
	inverse := `{"jsonrpc":"2.0","id":9,"method":"session/update","params":{}}` + "\n"
	for _, c := range []struct {
		name, output, want, stop string
	}{
		{"nothing", "", "", ""},
		{"no end", spoken + request + question + spoken, "so?so", ""},
		{"an end", spoken + answer + spoken, "so", "end_turn"},
		{"a cut message", spoken + spoken[:len(spoken)-5], "so", ""},
		{"a message without its end of line", spoken + strings.TrimSuffix(answer, "\n"), "so", "end_turn"},
		{"other lines", "warning\n[]\n\n{}\nnull\n" + inverse + spoken, "so", ""},
		{"other answers", `{"id":1,"result":{}}` + "\n" + `{"id":2,"error":{"code":1,"message":"m"}}` + "\n" +
			`{"id":2,"result":null}` + "\n" + `{"id":2,"result":{"stopReason":4}}` + "\n" + spoken, "so", ""},
		{"a notification with a result", `{"result":{"stopReason":"end_turn"}}` + "\n" + spoken, "so", ""},
	} {
		var got []string
		stop, err := acp.Replay(strings.NewReader(c.output), func(u acp.Update) { got = append(got, u.Text) },
			func() { got = append(got, "?") })
		if text := strings.Join(got, ""); err != nil || stop != c.stop || text != c.want {
			t.Errorf("%s: %q, %q, %v", c.name, text, stop, err)
		}
	}
	hostile := `{"id":1,"result":{"stopReason":"` + strings.Repeat(`end\n`, 1<<20) + `"}}` + "\n"
	if stop, err := acp.Replay(strings.NewReader(hostile), func(acp.Update) {}, func() {}); err != nil || len(stop) > 100 ||
		!strings.HasPrefix(stop, "end end") || strings.Contains(stop, "\n") {
		t.Errorf("%d bytes, %v", len(stop), err)
	}
	long := io.MultiReader(strings.NewReader(spoken), strings.NewReader(strings.Repeat("x", acp.MaxLine+1)))
	if _, err := acp.Replay(long, func(acp.Update) {}, func() {}); !errors.Is(err, acp.ErrLine) {
		t.Errorf("%v", err)
	}
}

// TestBetweenTurns reads the output of the second turn alone, from the place between the turns on.
func TestBetweenTurns(t *testing.T) {
	noLeaks(t)
	agentIn, stdin := io.Pipe()
	stdout, agentOut := io.Pipe()
	var sent bytes.Buffer // the bytes that were read, which were sent before
	served := make(chan error, 1)
	go func() {
		a := &acptest.Agent{Brain: acptest.Script{}}
		served <- a.Serve(agentIn, io.MultiWriter(&sent, agentOut))
		agentOut.Close()
	}()
	conn, err := acp.Connect(t.Context(), stdin, stdout, &client{files: map[string]string{}}, acp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	session := open(t, conn, acp.Session{})
	say(t, conn, session, "say first")
	var from int64
	if err := conn.Between(t.Context(), func(at int64) { from = at }); err != nil {
		t.Fatal(err)
	}
	say(t, conn, session, "say second\nstop max_tokens")
	conn.Close()
	stdin.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	stdout.Close()
	var got []string
	stop, err := acp.Replay(bytes.NewReader(sent.Bytes()[from:]), func(u acp.Update) { got = append(got, u.Text) }, func() {})
	if err != nil || stop != "max_tokens" || !slices.Contains(got, "second\n") || slices.Contains(got, "first\n") {
		t.Errorf("%q, %q, %v", got, stop, err)
	}
}

func FuzzReplay(f *testing.F) {
	for _, text := range []string{spoken, question, answer, spoken + answer, "x\n", "{}", `{"id":1,"result":[]}`, "\xff\x00"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		lines := bytes.Count(output, []byte("\n")) + 1
		stop, err := acp.Replay(bytes.NewReader(output), func(acp.Update) { lines-- }, func() { lines-- })
		if lines < 0 || err != nil && stop != "" {
			t.Errorf("%d lines, %q, %v", lines, stop, err)
		}
	})
}
