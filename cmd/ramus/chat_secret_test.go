package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/fallback"
	"github.com/ramus-dev/ramus/internal/redact/redacttest"
	"github.com/ramus-dev/ramus/internal/standin/fallbacktest"
	"github.com/ramus-dev/ramus/internal/standin/modeltest"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
	"github.com/rogpeppe/go-internal/txtar"
)

// chatSecret is a secret that the server holds and commands know. Its methods search for the secret in everything
// that ramus keeps and sends.
type chatSecret struct {
	*chatServer
	value string
}

// look searches a text for the secret.
func (s *chatSecret) look(where string, text []byte) {
	s.t.Helper()
	for _, form := range redacttest.Text(text, s.value) {
		s.t.Errorf("%s has the secret (%s):\n%.2000s", where, form, text)
	}
}

// folder searches the data folder. It leaves out containers, whose content is removed with them.
func (s *chatSecret) folder(skip ...string) {
	s.t.Helper()
	hits, err := redacttest.Folder(s.t.Context(), s.data, s.value, skip...)
	if err != nil {
		s.t.Error(err)
	}
	for _, hit := range hits {
		s.t.Errorf("the data folder: %s", hit)
	}
}

// slackSide searches every request of ramus to Slack, and every answer of ramus.
func (s *chatSecret) slackSide() (requests int) {
	s.t.Helper()
	for _, q := range s.slack.Requests() {
		requests++
		s.look("a request for "+q.Method, q.Body)
		for name, values := range q.Form {
			for _, v := range values {
				s.look(q.Method+" "+name, []byte(v))
			}
		}
		for name, values := range q.Header {
			s.look(q.Method+" "+name, []byte(strings.Join(values, "\n")))
		}
	}
	for _, a := range s.slack.Attempts() {
		s.look("the answer to a delivery", a.Answer)
	}
	for _, r := range s.slack.Responses() {
		s.look("a response", r.Body)
	}
	return requests
}

// pages searches all pages that the links of all messages open.
func (s *chatSecret) pages() int {
	s.t.Helper()
	var queue []string
	for _, m := range s.slack.Messages("C01") {
		if m.BotID != "" && len(m.Blocks) > 0 {
			for _, l := range linksOf(s.t, m) {
				queue = append(queue, l)
			}
		}
	}
	seen := map[string]bool{}
	for len(queue) > 0 {
		l := queue[0]
		queue = queue[1:]
		u, err := url.Parse(l)
		if err != nil || seen[u.Path+u.Query().Get("view")] {
			continue
		}
		seen[u.Path+u.Query().Get("view")] = true
		s.look("the address of a page", []byte(l))
		p := s.fetch("GET", l)
		if p.status != 200 {
			s.t.Errorf("%s: %d %s", l, p.status, p.body)
		}
		s.look(u.Path, p.body)
		s.look(u.Path+"'s name to save it as", []byte(p.header.Get("Content-Disposition")))
		if strings.HasSuffix(u.Path, ".tar.gz") && p.header.Get("Content-Type") == "application/gzip" {
			for name, content := range unpack(s.t, p.body) {
				s.look(u.Path+" "+name, append([]byte(name+"\n"), content...))
			}
		}
		queue = append(queue, s.linked(p)...)
	}
	return len(seen)
}

// api searches all answers of the API to an administrator.
func (s *chatSecret) api() (answers int) {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialSocket(ctx, s.data)
	}}}
	defer client.CloseIdleConnections()
	get := func(path string) []byte {
		s.t.Helper()
		req, err := http.NewRequestWithContext(s.t.Context(), "GET", "http://ramus"+path, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			s.t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			s.t.Fatal(err)
		}
		s.look("the API's "+path, body)
		answers++
		return body
	}
	for _, path := range []string{"/health", "/metrics", "/api/repos", "/api/callers", "/api/repos/sample/log", "/api/repos/sample/bases"} {
		get(path)
	}
	var runs []record.Run
	if body := get("/api/runs?max=1000"); json.Unmarshal(body, &runs) != nil || len(runs) == 0 {
		s.t.Errorf("the API lists %s", body)
	}
	callers := map[string]bool{}
	for _, r := range runs {
		callers[r.Caller.String()] = true
		run := "/api/runs/" + url.PathEscape(r.Name())
		get(run)
		get(run + "/evidence")
		var events []record.Event
		if body := get(run + "/events?follow=0"); json.Unmarshal(body, &events) != nil || len(events) == 0 {
			s.t.Errorf("the API has the journal %s", body)
		}
		for _, e := range events {
			if e.Type == record.EventStepFinished {
				get(run + "/output/" + url.PathEscape(e.Step) + "/stdout")
				get(run + "/output/" + url.PathEscape(e.Step) + "/stderr")
			}
		}
	}
	for caller := range callers {
		at := "/api/callers/" + url.PathEscape(caller)
		for _, what := range []string{"", "/log", "/diff", "/changes", "/processes"} {
			get(at + what)
		}
	}
	return answers
}

// leakyWorkflow prints, is answered by a model, and asks a person, with the secret in each text.
const leakyWorkflow = `id: leaky
input:
  token: {type: string}
nodes:
  - id: say
    run: echo {{ input.token }}; printf %s "$CANARY"; echo "and $CANARY" >&2
    output: {said: result.stdout}
  - id: judge
    llm: {prompt: 'What is {{ state.said }}?'}
    output: {opinion: result.text}
  - id: ask
    human: {message: 'go on with {{ input.token }} and {{ state.opinion }}?'}
  - id: use
    run: printf %s {{ state.said }} >said; printf %s {{ state.opinion }} >opinion
  - id: fail
    run: echo "no entry with $CANARY" >&2; exit 9
`

// TestChatSecret plants a secret in every source. These are the environment of the server and of the commands,
// messages, files and names of people in Slack, output, files, commits, artifacts and errors of commands, the
// messages and the memory of an agent, and the answers of a model and of the fallback runner. Nothing that ramus
// keeps, sends or shows has the secret.
func TestChatSecret(t *testing.T) {
	t.Parallel()
	s := &chatSecret{chatServer: newChatServer(t, scripted(t, "timeout: 2m")), value: "c4n4ry+/&=<x>" + rand.Text() + "'s"}
	canary := s.value
	hexed := fmt.Sprintf("%x", canary)
	models, remote := modeltest.New()
	models.Reply = func(said string) string { return "The value is " + canary + ", I think." }
	defer remote.Close()
	elsewhere, server := fallbacktest.New()
	elsewhere.Answer = func(fallback.Packet) string { return "It is `" + canary + "`, or " + hexed + "." }
	defer server.Close()
	s.environ = append(s.environ, "CANARY="+canary, "RAMUS_SECRETS=CANARY", "RAMUS_ENV=CANARY="+canary,
		"FALLBACK_SECRET="+fallbacktest.Secret, "MODEL_KEY="+modeltest.Key, "RAMUS_LOG_LEVEL=debug")
	s.configure(fallbackConfig(server) + "models: {anthropic: {base_url: " + modeltest.BaseURL(remote.URL,
		"anthropic") + ", api_key_env: MODEL_KEY}}\n" +
		"llm: {kind: openai, base_url: " + modeltest.BaseURL(remote.URL, "openai") +
		", model: gpt-stand-in-1, api_key_env: MODEL_KEY}\n")

	// The scripts print the value in many forms. The story of the command line uses the same scripts.
	story, err := txtar.ParseFile("testdata/script/secret.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{".ramus/workflows/leaky.yaml": leakyWorkflow}
	for _, f := range story.Files {
		if name, ok := strings.CutPrefix(f.Name, "upstream/"); ok {
			files["leak/"+name] = string(f.Data)
		}
	}
	s.commit(files)
	s.start()
	s.slack.AddUser("U66", canary)
	mention := "<@" + s.slack.BotUser + "> "

	threads := []string{}
	say := func(text string) string {
		ts := s.slack.Say(chatOwner, "C01", "", mention+typed(text))
		threads = append(threads, ts)
		return ts
	}
	results := func(ts string, n int) {
		t.Helper()
		s.until(fmt.Sprintf("%d results for %q", n, s.slack.Thread("C01", ts)[0].Text), 4*time.Minute,
			func() bool { return len(s.part(ts, "result")) >= n })
	}
	// The commands leave output in many forms and split over writes, files, names of files, commits, artifacts, names
	// of artifacts, and an error.
	prints := say("exec sh leak/print.sh; echo \"cannot log in with $CANARY\" >&2; exit 3")
	writes := say("exec sh leak/write.sh")
	say("exec sh leak/artifacts.sh")
	// The messages themselves have the value in a command, an input, a mistake, and in the names of a repository, a
	// base, an agent and a workflow.
	say(`exec echo "` + canary + `" | tee "said-$(printf %s "` + canary + `" | base64 -w0 | tr / _)"`)
	gated := say(`run leaky token="` + canary + `"`)
	say("merge into " + canary)
	say("log " + canary)
	say(`run leaky "` + canary + `"=1`)
	say(`run leaky ` + hexed + `=1 nothing=` + hexed)
	say("repo:" + hexed + " test")
	say("base:" + hexed + " test")
	say("agent:" + hexed + " do it")
	say("run " + hexed)
	say("exec cat " + hexed + "/" + canary)
	// The thread has several people, one with the value as a name. Its files are for the agent.
	parent := s.slack.Write(chatOwner, "C01", "", typed("The value is "+canary),
		slacktest.File{Name: hexed + ".txt", MIME: "text/plain", Data: []byte("shared: " + canary + "\n")})
	threads = append(threads, parent)
	s.slack.Write("U66", "C01", parent, typed("no, it is "+hexed))
	curl := `run curl -sS http://127.0.0.1:7070/model/anthropic/v1/messages -H 'anthropic-version: 2023-06-01' ` +
		`-d '{"model":"claude-x","max_tokens":99,"messages":[{"role":"user","content":"what is it?"}]}'`
	s.slack.Say(chatOwner, "C01", parent, mention+typed(strings.Join([]string{
		"say I know " + canary, "remember " + canary, `run printf 'it is %s' "$CANARY" >"$HOME/.scripted/` + hexed + `"`,
		`run cp "$RAMUS_FILES"/* . ; ls "$RAMUS_FILES"; cat "$RAMUS_FILES"/*`, curl, "write agent.txt " + canary,
		`run printf %s "$CANARY" | head -c 9; sleep 1; printf %s "$CANARY" | tail -c +10`, "sleep 3", "fail 5"}, "\n")),
		slacktest.File{Name: "notes of " + canary + ".txt", MIME: "text/plain", Data: []byte(hexed)})
	s.poll("the agent does not begin", func() bool {
		names, err := filepath.Glob(filepath.Join(s.data, "live", "*", "*.output", "*turn-1.stdout"))
		return err == nil && len(names) > 0
	})
	s.slack.Say(chatOwner, "C01", parent, mention+typed("recall\nsay "+canary))
	// The fallback runner's answer and error do not pass through the gate.
	outside := s.slack.Say("U02", "C01", "", mention+typed("what is "+canary+"?"))
	results(outside, 1)
	elsewhere.Fail(fallbacktest.Fault{Status: 400, Body: "it cannot be " + canary})
	refused := s.slack.Say("U02", "C01", "", mention+"and what is it not?")
	results(refused, 1)
	threads = append(threads, outside, refused)
	// ramus repeats the text of a slash command.
	for _, text := range []string{`exec echo "` + canary + `"`, "merge " + canary, canary} {
		if a := s.slack.Command(t.Context(), chatOwner, "C01", "/ramus", text); a.Status != 200 {
			t.Errorf("/ramus %s: %d %s", text, a.Status, a.Answer)
		}
	}

	// The run works and asks a person, while the live journals are in the data folder.
	s.poll("nobody is asked", func() bool {
		p := s.part(gated, "progress")
		return len(p) > 0 && strings.Contains(string(p[0].Blocks), `"approve"`)
	})
	s.folder("sandbox", "hosts")
	s.api()
	// The server dies in the middle of a command.
	slow := say("exec sh leak/slow.sh")
	s.poll("it does not begin", func() bool { return s.printed(slow) })
	s.kill(syscall.SIGKILL)
	s.folder("sandbox", "hosts")
	s.start()
	// The command continues until the base has moved.
	s.sh(s.data, "cd repos/sample.git && git update-ref refs/heads/main "+
		"$(git -c user.name=Ann -c user.email=ann@example.org commit-tree -p main -m more 'main^{tree}')")
	s.press(gated, "approve")
	results(parent, 2)
	for _, ts := range threads {
		results(ts, 1)
	}
	// These answers are about runs that have ended.
	s.slack.Say(chatOwner, "C01", gated, mention+"why")
	for n, word := range []string{"status", "log", "diff", "why", "merge", "test " + hexed + ".*"} {
		s.slack.Say(chatOwner, "C01", writes, mention+typed(word))
		results(writes, n+2)
	}
	results(gated, 2)
	if _, err := s.slack.Press(t.Context(), chatOwner, "C01", s.part(prints, "result")[0].TS, "retry", ""); err != nil {
		t.Error(err)
	}
	results(prints, 2)
	s.settle()

	answers, opened := s.api(), s.pages()
	requests := s.slackSide()
	s.kill(syscall.SIGTERM)
	s.ramus("ps") // removes the containers that were left warm
	s.folder()
	s.mu.Lock()
	log := slices.Clone(s.log.Bytes())
	s.mu.Unlock()
	s.look("the log", log)

	// The secret must have been removed from messages. Otherwise a search without a result would mean nothing.
	said := ""
	for _, m := range s.slack.Messages("C01") {
		if m.BotID != "" {
			said += m.Text + string(m.Blocks)
		}
	}
	if n := strings.Count(said, "[secret CANARY]"); n < 20 {
		t.Errorf("only %d times was it taken out of messages:\n%s", n, said)
	}
	kinds := map[string]int{}
	runs := s.sealed()
	for _, r := range runs {
		for _, e := range r.events {
			if e.Type == record.EventSecret {
				kinds[e.Kind]++
			}
		}
	}
	for _, kind := range []string{record.SecretInOutput, record.SecretInArtifact, record.SecretInState, record.SecretInCommit} {
		if kinds[kind] == 0 {
			t.Errorf("no secret was taken out of %s: %v", kind, kinds)
		}
	}
	t.Logf("searched %d requests to Slack, %d pages, %d answers of the API, %d KiB of log, %d runs: %v", requests,
		opened, answers, len(log)>>10, len(runs), kinds)
}
