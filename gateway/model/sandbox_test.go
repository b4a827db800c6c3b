package model_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/model"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

// site is a server whose containers reach models.
type site struct {
	t      *testing.T
	data   string
	runner string
	remote string // the stand-in's address
	git    *gitd.Server
	x      *executor.Executor
	log    bytes.Buffer
}

// start opens the data folder, as a new process would.
func (s *site) start() {
	s.t.Helper()
	log := slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	proxy := &model.Proxy{Budget: model.Budget{Tokens: 60}, Log: log, Providers: map[string]model.Provider{
		"anthropic": {BaseURL: modeltest.BaseURL(s.remote, "anthropic"), Key: modeltest.Key,
			Prices: map[string]model.Price{"claude-*": {Input: 3_000_000, Output: 15_000_000}}},
	}}
	s.git = &gitd.Server{Root: filepath.Join(s.data, "repos"), Log: log}
	if err := s.git.Open(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	s.x = &executor.Executor{Data: s.data, Git: s.git, Log: log,
		Fleet: &containers.Fleet{Dir: filepath.Join(s.data, "fleet"), Log: log,
			Engine: &sandbox.Engine{Dir: filepath.Join(s.data, "sandbox"), Runner: s.runner, Log: log}},
		Door: map[string]func(executor.Visitor) http.Handler{model.Prefix: proxy.Handler},
	}
	if err := s.x.Open(context.Background()); err != nil {
		s.t.Fatal(err)
	}
}

// stop ends what start began, if that has not been ended.
func (s *site) stop() {
	s.t.Helper()
	if s.x == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.x.Close(ctx, false); err != nil {
		s.t.Error(err)
	}
	if err := s.x.Fleet.Engine.Close(); err != nil {
		s.t.Error(err)
	}
	if err := s.git.Close(); err != nil {
		s.t.Error(err)
	}
	s.x = nil
}

// wait waits until a run has ended or waits for a person.
func (s *site) wait(name string) record.Run {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	for {
		for _, err := range s.x.Events(ctx, name, 0, true) {
			if err != nil {
				s.t.Fatalf("cannot follow %s: %v", name, err)
			}
		}
		r, err := s.x.Run(ctx, name)
		if err != nil {
			s.t.Fatal(err)
		}
		if r.Ended() || r.State == record.StateAwaitingReview {
			return r
		}
	}
}

// usage is what a run's journal tells of models.
func (s *site) usage(name string) (calls []record.ModelCall) {
	s.t.Helper()
	for e, err := range s.x.Events(s.t.Context(), name, 0, false) {
		if err != nil {
			s.t.Fatal(err)
		}
		if e.Type == record.EventUsage {
			var c record.ModelCall
			if err := json.Unmarshal(e.Data, &c); err != nil || e.Step == "" {
				s.t.Errorf("%+v: %v", e, err)
			}
			calls = append(calls, c)
		}
	}
	return calls
}

// A command in a real container asks a model, a person is asked, the server is
// restarted meanwhile, and the command after that finds the budget as it was left.
const asking = `
id: asking
nodes:
  - id: whole
    run: |
      ask() { curl -sS -N -H 'content-type: application/json' -H 'anthropic-version: 2023-06-01' -H 'x-api-key: any' "$@"; }
      ask http://127.0.0.1:7070/model/anthropic/v1/messages -d '{"model":"claude-x","max_tokens":9,"messages":[{"role":"user","content":"one two three"}]}' >answer.json
      ask http://127.0.0.1:7070/model/anthropic/v1/messages -d '{"model":"claude-x","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"four five"}]}' >answer.sse
      ask -o /dev/null -w '%{http_code}\n' --path-as-is http://127.0.0.1:7070/model/anthropic/../../v1/files >tricks
      ask -o /dev/null -w '%{http_code}\n' --noproxy '' -x http://127.0.0.1:7070 http://127.0.0.1:7070/model/anthropic/v1/messages -d '{}' >>tricks
      (env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null) | tr '\0' '\n' >seen
      # One that nobody waits for: the step ends it, and it is counted.
      (ask http://127.0.0.1:7070/model/anthropic/v1/messages -d '{"model":"claude-x","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"slow"}]}' >slow.sse 2>&1; true) &
      while ! grep -q message_start slow.sse 2>/dev/null; do :; done
  - id: gate
    human: {message: go on?}
  - id: again
    run: |
      for i in 1 2 3; do
        curl -sS -w '%{http_code}\n' -H 'anthropic-version: 2023-06-01' http://127.0.0.1:7070/model/anthropic/v1/messages -d '{"model":"claude-x","max_tokens":9,"messages":[{"role":"user","content":"a b c d e f g h i j k l m n o p q r s t"}]}' >>last
        echo >>last
      done
`

func TestFromASandbox(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("cannot run here: there is no curl")
	}
	// Short, because it has sockets.
	dir, err := os.MkdirTemp("", "model")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &site{t: t, data: filepath.Join(dir, "data"), runner: filepath.Join(dir, "ramus")}
	if err := programs.Into(dir, "cmd/ramus"); err != nil {
		t.Fatal(err)
	}
	if err := (&sandbox.Engine{Dir: filepath.Join(dir, "check"), Runner: s.runner}).Check(t.Context()); err != nil {
		t.Skipf("cannot run here: sandboxes: %v", err)
	}
	stand, remote := modeltest.New()
	defer remote.Close()
	s.remote = remote.URL
	hold := make(chan struct{})
	defer close(hold)
	stand.Fail(modeltest.Fault{}, modeltest.Fault{}, modeltest.Fault{Cut: 3, Hold: hold})

	s.start()
	defer s.stop()
	repo, err := s.git.Create(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	person := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	first, err := repo.WriteCommit(t.Context(),
		gitd.NewCommit{Put: []gitd.File{{Path: "README", Content: []byte("hello\n")}},
			Author: person, Committer: person, When: time.Unix(1_700_000_000, 0), Message: "begin"})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: first}); err != nil {
		t.Fatal(err)
	}
	r, err := s.x.Submit(t.Context(), record.Request{Repo: "demo", Workflow: asking, Asker: person})
	if err != nil {
		t.Fatal(err)
	}
	name := r.Name()
	r = s.wait(name)
	read := func(path string) string {
		b, err := repo.ReadFile(t.Context(), "refs/heads/"+r.Branch, path, 1<<20)
		if err != nil {
			t.Errorf("%v\n%s", err, s.log.String())
		}
		return string(b)
	}
	if text := read("answer.json"); !strings.Contains(text, "one two three") {
		t.Errorf("answer.json: %s", text)
	}
	if text := read("answer.sse"); !strings.Contains(text, "message_stop") {
		t.Errorf("answer.sse: %s", text)
	}
	if text := read("tricks"); text != "404\n403\n" {
		t.Errorf("tricks: %s", text)
	}
	calls := s.usage(name)
	if len(calls) != 3 || calls[0].InputTokens != 3 || calls[1].OutputTokens != 2 || !calls[2].Estimated {
		t.Fatalf("%s %s: journalled %+v", r.State, r.Error, calls)
	}
	var want record.Usage
	for _, c := range calls {
		want = *want.Plus(c)
	}
	if r.Usage == nil || *r.Usage != want || want.CostMicros < 3*3+3*15 {
		t.Errorf("usage %+v, want %+v", r.Usage, want)
	}

	s.stop()
	s.start()
	repo, err = s.git.Repo("demo")
	if err != nil {
		t.Fatal(err)
	}
	if r, err = s.x.Run(t.Context(), name); err != nil || r.Usage == nil || *r.Usage != want {
		t.Errorf("after a restart: %+v, %v", r.Usage, err)
	}
	if _, err := s.x.Decide(t.Context(), name, record.Decision{Approved: true, By: "ada"}); err != nil {
		t.Fatal(err)
	}
	r = s.wait(name)
	if text := read("last"); strings.Count(text, "\n402\n") == 0 || !strings.Contains(text, "of 60 tokens") {
		t.Errorf("%s %s: last: %s", r.State, r.Error, text)
	}
	if r.State != record.StateComplete || r.Usage.Tokens() <= want.Tokens() || r.Usage.Tokens() > 60+40 {
		t.Errorf("%s: %+v", r.State, r.Usage)
	}
	calls = s.usage(name)
	if last := calls[len(calls)-1]; !last.Refused || last.Ended != "budget" {
		t.Errorf("journalled %+v", calls)
	}
	if c := stand.Complaints(); len(c) > 0 {
		t.Errorf("the stand-in complains: %q", c)
	}
	s.stop() // what it does in the background would write to the log and take files away
	s.search(modeltest.Key)
}

// search looks for a secret in the log, in every file of the data folder and in every object of its repositories.
func (s *site) search(secret string) {
	s.t.Helper()
	if strings.Contains(s.log.String(), secret) {
		s.t.Error("the key is in the log")
	}
	err := filepath.WalkDir(s.data, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(b, []byte(secret)) {
			s.t.Errorf("the key is in %s", path)
		}
		return nil
	})
	if err != nil {
		s.t.Error(err)
	}
	repos, err := filepath.Glob(filepath.Join(s.data, "repos", "*.git"))
	if err != nil || len(repos) == 0 {
		s.t.Errorf("no repositories: %v", err)
	}
	for _, repo := range repos {
		out, err := exec.Command("git", "-C", repo, "cat-file", "--batch-all-objects", "--batch").Output()
		if err != nil {
			s.t.Error(err)
		}
		if bytes.Contains(out, []byte(secret)) {
			s.t.Errorf("the key is in an object of %s", repo)
		}
		if !bytes.Contains(out, []byte("one two three")) {
			s.t.Errorf("the objects of %s were not searched", repo)
		}
	}
}
