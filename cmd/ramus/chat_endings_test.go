package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/chat"
	"github.com/ramus-dev/ramus/gateway/fallback"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/standin/fallbacktest"
)

// typed returns a text in the form in which Slack delivers typed text.
var typed = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace

// scripted returns lines of the configuration that make examples/agents/scripted.sh
// the only agent. more has further keys of the agent.
func scripted(t testing.TB, more string) string {
	t.Helper()
	script, err := os.ReadFile("../../examples/agents/scripted.sh")
	if err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) string {
		text, err := json.Marshal(append([]string{"sh", "-c", string(script), "scripted"}, args...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return fmt.Sprintf("agents: {scripted: {command: %s, resume: %s, state: [.scripted], %s}}\n", command(),
		command("--resume"), more)
}

// commit adds files to the sample's base, through the repository that it was
// imported from.
func (s *chatServer) commit(files map[string]string) {
	s.t.Helper()
	src := filepath.Join(filepath.Dir(s.data), "sample")
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(src, name)), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	s.sh(src, "git add -A && git -c user.name=T -c user.email=t@example.org commit -qm more")
	s.ramus("repo", "refresh", "sample")
}

// standIn serves a fallback runner, and returns the configuration for it.
func (s *chatServer) standIn(answer func(fallback.Packet) string) string {
	r, server := fallbacktest.New()
	r.Answer = answer
	s.t.Cleanup(server.Close)
	s.environ = append(s.environ, "FALLBACK_SECRET="+fallbacktest.Secret)
	return fallbackConfig(server)
}

func fallbackConfig(server *httptest.Server) string {
	return "fallback: {url: " + server.URL + ", secret_env: FALLBACK_SECRET}\n"
}

// configure adds lines to the configuration of a server that does not run.
func (s *chatServer) configure(lines string) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.data, "ramus.yaml"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := f.WriteString(lines); err != nil {
		s.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// printed reports whether the run of a mention has printed something in a container.
func (s *chatServer) printed(ts string) bool {
	names, err := filepath.Glob(filepath.Join(s.data, "live", "*", "C01-"+ts+".output", "*.stdout"))
	return err == nil && slices.ContainsFunc(names, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && info.Size() > 0
	})
}

// journalled reports whether the live journal of a mention's run has an event of a
// type.
func (s *chatServer) journalled(ts, kind string) bool {
	names, err := filepath.Glob(filepath.Join(s.data, "live", "*", "C01-"+ts+".jsonl"))
	return err == nil && slices.ContainsFunc(names, func(name string) bool {
		text, err := os.ReadFile(name)
		return err == nil && bytes.Contains(text, []byte(`"type":"`+kind+`"`))
	})
}

// poll waits for a condition that Slack does not show.
func (s *chatServer) poll(what string, done func() bool) {
	s.t.Helper()
	for range 6000 {
		if done() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.t.Errorf("after two minutes: %s", what)
}

// press presses a button of the progress message of a mention's run, once it is there.
func (s *chatServer) press(ts, button string) {
	s.t.Helper()
	s.poll("there is no button "+button, func() bool {
		p := s.part(ts, "progress")
		if len(p) == 0 {
			return false
		}
		a, err := s.slack.Press(s.t.Context(), chatOwner, "C01", p[0].TS, button, "")
		return err == nil && a.Status/100 == 2
	})
}

// runOf returns the name of a mention's run.
func (s *chatServer) runOf(ts string) (name string) {
	s.t.Helper()
	s.poll("there is no progress", func() bool { return len(s.part(ts, "progress")) > 0 })
	for _, m := range s.part(ts, "progress") {
		var mark slack.Mark
		if err := json.Unmarshal(m.Metadata.Payload, &mark); err != nil {
			s.t.Error(err)
		}
		name = mark.Run
	}
	return name
}

// containers returns the containers of the server's engine.
func (s *chatServer) containers() []containers.Container {
	s.t.Helper()
	owner, err := os.ReadFile(filepath.Join(s.data, "hosts", "owner"))
	if err != nil {
		s.t.Fatal(err)
	}
	engine := &sandbox.Engine{Dir: filepath.Join(s.data, "sandbox"), Runner: s.binary}
	list, err := engine.List(s.t.Context(), strings.TrimSpace(string(owner)))
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

// processes returns the processes whose command line contains text.
func processes(text string) (pids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(line, []byte(text)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// gone waits until there is no process whose command line contains text. A killed
// process may take a moment to end.
func (s *chatServer) gone(text string) {
	s.t.Helper()
	var left []int
	s.poll("there are processes of "+text, func() bool { left = processes(text); return len(left) == 0 })
	if len(left) > 0 {
		s.t.Errorf("they are %v", left)
	}
}

// killContainer kills process 1 of the container that works for a mention's run.
func (s *chatServer) killContainer(ts string) {
	s.t.Helper()
	// The thread may not have the run yet.
	caller := chat.Session{Key: "slack:" + s.slack.Team + ":C01:" + ts}.Caller().String()
	killed := 0
	for _, c := range s.containers() {
		if c.Key != caller {
			continue
		}
		// Process 1 has the container's id on its command line.
		for _, pid := range processes("RAMUS_CONTAINER=" + c.ID) {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
	}
	if killed == 0 {
		s.t.Errorf("nothing was killed of the container of %s", caller)
	}
}

// sealedRun is a run as plain git reads it, with every file at its ref.
type sealedRun struct {
	record.Run
	files    map[string][]byte
	manifest record.Manifest
	events   []record.Event
}

// stdout returns the output of the run's steps, in order.
func (r *sealedRun) stdout() (text string) {
	for _, e := range r.events {
		if e.Type == record.EventStepFinished && e.Stdout != nil {
			text += string(r.files["output/"+e.Stdout.File])
		}
	}
	return text
}

// sealed reads all runs.
func (s *chatServer) sealed() (runs []sealedRun) {
	s.t.Helper()
	out := s.sh(s.data, `for r in repos/*.git; do git -C "$r" for-each-ref --format="$r %(refname)" refs/ramus/runs; done`)
	for line := range strings.Lines(out) {
		repo, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		r := sealedRun{files: untar(s.t,
			strings.NewReader(s.sh(s.data, `git -C "$0" archive --format=tar "$1"`, repo, ref)))}
		for name, v := range map[string]any{"run.json": &r.Run, "evidence/manifest.json": &r.manifest} {
			// The record of a task has no manifest, because a task has no work of
			// its own.
			if err := json.Unmarshal(r.files[name], v); err != nil &&
				(name == "run.json" || r.files[name] != nil || !strings.HasSuffix(ref, "/task")) {
				s.t.Errorf("%s: %s: %v", ref, name, err)
			}
		}
		for line := range bytes.Lines(r.files["journal.jsonl"]) {
			var e record.Event
			d := json.NewDecoder(bytes.NewReader(line))
			d.DisallowUnknownFields()
			if err := d.Decode(&e); err != nil || line[len(line)-1] != '\n' {
				s.t.Errorf("%s: journal: %v: %s", ref, err, line)
			}
			r.events = append(r.events, e)
		}
		runs = append(runs, r)
	}
	return runs
}

// whole returns the gaps in a run's record.
func (s *chatServer) whole(r sealedRun) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	m := r.manifest
	if !r.Ended() || r.EndedAt.IsZero() || r.Told == nil || r.State == record.StateFailed &&
		(r.Reason == "" || r.Error == "" || r.Hint == "") {
		fault("run.json: %s", r.files["run.json"])
	}
	if m.Run != r.Name() || m.State != r.State || m.Reason != r.Reason || m.Verdict == "" || m.Repo != r.Repo ||
		m.Head != r.Head ||
		!m.CreatedAt.Equal(r.CreatedAt) || !m.EndedAt.Equal(r.EndedAt) || m.Policy == nil {
		fault("the manifest is not about the run: %s", r.files["evidence/manifest.json"])
	}
	listed := map[string]bool{}
	for _, f := range m.Files {
		listed[f.Name] = true
		if f.Stored {
			content, err := os.ReadFile(filepath.Join(s.data, "artifacts", "sha256", f.SHA256[:2], f.SHA256))
			if err != nil {
				fault("%v", err)
			}
			r.files[f.Name] = content
		}
		content, kept := r.files[f.Name]
		if !kept || int64(len(content)) != f.Size || sha(content) != f.SHA256 || f.Type == "" {
			fault("%s is not what the manifest says: %d bytes, %+v", f.Name, len(content), f)
		}
	}
	for name := range r.files {
		if top, _, _ := strings.Cut(name, "/"); (top == "output" || top == "artifacts" || top == "files" ||
			name == "journal.jsonl") && !listed[name] {
			fault("%s is not in the manifest", name)
		}
	}
	if !listed["journal.jsonl"] || !listed["evidence/changes.diff"] {
		fault("the manifest lists %v", listed)
	}
	finished := 0
	for i, e := range r.events {
		if e.Seq != int64(i)+1 || e.Time.IsZero() || e.Type == "" {
			fault("event %d: %+v", i+1, e)
		}
		if e.Type != record.EventStepFinished {
			continue
		}
		if finished < len(m.Commands) && m.Commands[finished].Step != e.Step {
			fault("the manifest's command %d is %s, the journal's %s", finished, m.Commands[finished].Step, e.Step)
		}
		finished++
		for _, out := range []*record.Stream{e.Stdout, e.Stderr} {
			switch {
			case out == nil || out.Bytes == 0 || out.Truncated:
			case out.File == "" || !listed["output/"+out.File]:
				fault("an output of %s is not kept: %+v", e.Step, out)
			case int64(len(r.files["output/"+out.File])) != out.Bytes ||
				!bytes.HasSuffix(r.files["output/"+out.File], []byte(out.Tail)):
				fault("an output of %s has %d bytes and is %+v", e.Step, len(r.files["output/"+out.File]), out)
			}
		}
	}
	if finished != len(m.Commands) {
		fault("%d commands in the manifest, %d in the journal", len(m.Commands), finished)
	}
	if n := len(r.events); n == 0 || r.events[n-1].Type != record.EventRunState || r.events[n-1].State != r.State ||
		r.events[n-1].Reason != string(r.Reason) {
		fault("the journal does not end with the run: %s", r.files["journal.jsonl"])
	}
	return faults
}

// leaves is a shell line that makes a small artifact, a change, and output on both
// streams.
const leaves = "mkdir -p /artifacts/sub; echo report >/artifacts/sub/report.txt; echo x >>made; echo out; echo err >&2; "

// endingSleep is the number of seconds that commands of TestChatEndings sleep. It
// identifies them, because nothing else on the machine sleeps that long.
var endingSleep = fmt.Sprint("86417.", os.Getpid())

// ending is a way in which the run of a mention ends.
type ending struct {
	name   string
	user   string // default chatOwner
	text   string
	end    func(s *chatServer, ts string) // action on the run, after the server was killed and is back
	state  record.State
	reason record.Reason
	or     record.Reason // the next server may not have taken the run up yet
	files  []string      // in the manifest
	stdout string        // of the command; "": any
}

// endings are all kinds of ending. Those of the first two are at work when the
// server is killed.
var endings = []ending{
	{name: "server killed", text: "exec " + leaves + "sleep 12; echo after", state: record.StateComplete,
		files: []string{"artifacts/sub/report.txt"}, stdout: "out\nafter\n"},
	{name: "server and container killed", text: "exec " + leaves + "sleep " + endingSleep, state: record.StateFailed,
		reason: record.ReasonInterrupted},
	{name: "success", text: "exec " + leaves, state: record.StateComplete,
		files: []string{"artifacts/sub/report.txt"}, stdout: "out\n"},
	{name: "failing command", text: "exec " + leaves + "exit 3", state: record.StateFailed,
		reason: record.ReasonCommandFailed,
		files:  []string{"artifacts/sub/report.txt"}, stdout: "out\n"},
	{name: "button", text: "exec " + leaves + "sleep " + endingSleep,
		end:   func(s *chatServer, ts string) { s.press(ts, "stop") },
		state: record.StateFailed, reason: record.ReasonCancelled, files: []string{"artifacts/sub/report.txt"},
		stdout: "out\n"},
	{name: "word", text: "exec " + leaves + "sleep " + endingSleep,
		end:   func(s *chatServer, ts string) { s.say(ts, "stop") },
		state: record.StateFailed, reason: record.ReasonCancelled, files: []string{"artifacts/sub/report.txt"},
		stdout: "out\n"},
	{name: "command line", text: "exec " + leaves + "sleep " + endingSleep,
		end:   func(s *chatServer, ts string) { s.ramus("stop", s.runOf(ts)) },
		state: record.StateFailed, reason: record.ReasonCancelled, files: []string{"artifacts/sub/report.txt"},
		stdout: "out\n"},
	{name: "timeout", text: "run lasts", state: record.StateFailed, reason: record.ReasonTimedOut,
		files: []string{"artifacts/sub/report.txt"}, stdout: "out\n"},
	{name: "container killed", text: "exec " + leaves + "sleep " + endingSleep, end: (*chatServer).killContainer,
		state: record.StateFailed, reason: record.ReasonContainerLost, or: record.ReasonInterrupted},
	{name: "agent", text: "write agent.txt fine\nremember this\nsay out", state: record.StateComplete,
		stdout: "wrote agent.txt\nout\ndone\n"},
	{name: "agent dies", text: "fork " + endingSleep + "\nwrite agent.txt fine\ndie", state: record.StateFailed,
		reason: record.ReasonCommandFailed},
	{name: "agent hangs", text: "fork " + endingSleep + "\nwrite agent.txt fine\nhang", state: record.StateFailed,
		reason: record.ReasonTimedOut},
	{name: "agent babbles", text: "write agent.txt fine\nbabble", state: record.StateFailed,
		reason: record.ReasonCommandFailed},
	{name: "workflow", text: "run leaves", state: record.StateComplete, files: []string{"artifacts/sub/report.txt"},
		stdout: "out\nx\n"},
	{name: "workflow fails", text: "run fails", state: record.StateFailed, reason: record.ReasonCommandFailed,
		files: []string{"artifacts/sub/report.txt"}, stdout: "out\nbroken\n"},
	{name: "approved", text: "run asks", end: func(s *chatServer, ts string) { s.press(ts, "approve") },
		state: record.StateComplete, files: []string{"artifacts/sub/report.txt"}, stdout: "out\nx\n"},
	{name: "rejected", text: "run asks", end: func(s *chatServer, ts string) { s.press(ts, "reject") },
		state: record.StateFailed, reason: record.ReasonRejected, files: []string{"artifacts/sub/report.txt"}},
	{name: "stopped while it waits", text: "run asks", end: func(s *chatServer, ts string) {
		s.poll("nobody is asked", func() bool {
			p := s.part(ts, "progress")
			return len(p) > 0 && strings.Contains(string(p[0].Blocks), `"approve"`)
		})
		s.press(ts, "stop")
	}, state: record.StateFailed, reason: record.ReasonCancelled, files: []string{"artifacts/sub/report.txt"}},
	{name: "fallback", user: "U02", text: "what is this?", state: record.StateComplete},
	{name: "question", text: "status", state: record.StateComplete},
	{name: "mistake", text: "run", state: record.StateFailed, reason: record.ReasonBadInput},
}

// TestChatEndings ends runs in all ways, while the server is killed and started
// again. Each has a whole record and one reply. RAMUS_TEST=full ends 100 runs.
func TestChatEndings(t *testing.T) {
	t.Parallel()
	mentions := 30
	if os.Getenv("RAMUS_TEST") == "full" {
		mentions = 100
	}
	s := newChatServer(t, "capacity: 12\n"+scripted(t, "timeout: 20s, output: 1MiB"))
	s.slack.Retries = []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second,
		40 * time.Second} // the server is away for less
	s.configure(s.standIn(nil))
	s.commit(map[string]string{
		".ramus/workflows/leaves.yaml": "id: leaves\nnodes:\n  - id: one\n    run: " + strconv.Quote(leaves) +
			"\n  - id: two\n    run: cat made\n",
		".ramus/workflows/fails.yaml": "id: fails\nnodes:\n  - id: one\n    run: " + strconv.Quote(leaves) +
			"\n  - id: two\n    run: echo broken; exit 4\n  - id: three\n    run: echo never\n",
		".ramus/workflows/lasts.yaml": "id: lasts\nnodes:\n  - id: one\n    run: " +
			strconv.Quote(leaves+"sleep "+endingSleep) + "\n    execution: {timeout_ms: 5000}\n",
		".ramus/workflows/asks.yaml": "id: asks\nnodes:\n  - id: one\n    run: " + strconv.Quote(leaves) +
			"\n  - id: ask\n    human: {message: 'go on?'}\n  - id: two\n    run: cat made\n",
	})
	s.start()
	began := time.Now()
	said := map[string]ending{} // by the mention's ts
	// The server died between the announcement of a command and its start. A single
	// command does not start by itself then, as nobody can know whether it has run.
	unheard := map[string]bool{}
	var threads []string
	for len(threads) < mentions {
		var round []string
		for _, e := range endings[:min(len(endings), mentions-len(threads))] {
			user := e.user
			if user == "" {
				user = chatOwner
			}
			ts := s.slack.Say(user, "C01", "", "<@"+s.slack.BotUser+"> "+typed(e.text))
			said[ts] = e
			round = append(round, ts)
		}
		threads = append(threads, round...)
		seen := map[string]bool{} // on a busy machine the first ends before the second has printed
		s.poll("the first two were at work", func() bool {
			first := round[:min(2, len(round))]
			for _, ts := range first {
				seen[ts] = seen[ts] || s.printed(ts)
			}
			return !slices.ContainsFunc(first, func(ts string) bool { return !seen[ts] })
		})
		s.kill(syscall.SIGKILL)
		if len(round) > 1 {
			s.killContainer(round[1])
		}
		orphan := map[string]bool{} // at work while no server runs
		for _, ts := range round {
			orphan[ts] = s.journalled(ts, record.EventStepStarted)
			unheard[ts] = orphan[ts] && !s.printed(ts)
		}
		s.start()
		var acting sync.WaitGroup
		for _, ts := range round {
			if e := said[ts]; e.end != nil {
				acting.Go(func() {
					s.poll(e.name+": it does not go on", func() bool {
						return e.text == "run asks" || len(s.part(ts, "result")) > 0 || s.printed(ts) &&
							(!orphan[ts] || s.journalled(ts, record.EventRecovered))
					})
					if len(s.part(ts, "result")) == 0 {
						e.end(s, ts)
					}
				})
			}
		}
		acting.Wait()
		s.until("the results of a round", 5*time.Minute, func() bool {
			return !slices.ContainsFunc(round, func(ts string) bool { return len(s.part(ts, "result")) == 0 })
		})
	}
	s.settle()
	took := time.Since(began).Round(time.Second)
	s.kill(syscall.SIGTERM)
	s.ramus("ps") // its own server removes the containers that were left warm

	recovered, whole := 0, 0
	runs := map[string]bool{}
	for _, r := range s.sealed() {
		runs[strings.TrimPrefix(r.ID, "C01-")] = true
		name, faults := "stop", s.whole(r)
		want := ending{state: record.StateComplete}
		if e, ok := said[strings.TrimPrefix(r.ID, "C01-")]; ok {
			name, want = e.name, e
			if unheard[strings.TrimPrefix(r.ID, "C01-")] && r.Reason == record.ReasonInterrupted {
				want = ending{state: record.StateFailed, reason: record.ReasonInterrupted}
			}
		}
		if r.State != want.state || r.Reason != want.reason && (want.or == "" || r.Reason != want.or) {
			faults = append(faults, fmt.Sprintf("it is %s %s, want %s %s: %s", r.State, r.Reason, want.state,
				want.reason, r.Error))
		}
		for _, file := range want.files {
			if !slices.ContainsFunc(r.manifest.Files, func(f record.ManifestFile) bool { return f.Name == file }) {
				faults = append(faults, file+" is missing")
			}
		}
		if out := r.stdout(); want.stdout != "" && out != want.stdout {
			faults = append(faults, fmt.Sprintf("it printed %q", out))
		}
		replies := 0
		for _, m := range s.part(thread(t, r.Run), "result") {
			var mark slack.Mark
			if json.Unmarshal(m.Metadata.Payload, &mark) == nil && mark.Run == r.Name() {
				replies++
			}
		}
		if replies != 1 {
			faults = append(faults, fmt.Sprintf("%d replies", replies))
		}
		if slices.ContainsFunc(r.events, func(e record.Event) bool { return e.Type == record.EventRecovered }) {
			recovered++
		}
		if len(faults) == 0 {
			whole++
		}
		for _, f := range faults {
			t.Errorf("%s (%s): %s", name, r.Name(), f)
		}
		if len(faults) > 0 {
			t.Logf("its journal:\n%s", r.files["journal.jsonl"])
		}
	}
	for ts, e := range said {
		if !runs[ts] {
			t.Errorf("%s: %s has no run", e.name, ts)
		}
		if n := len(s.part(ts, "progress")); n > 1 {
			t.Errorf("%s: %d progress messages", e.name, n)
		}
	}
	if recovered == 0 {
		t.Error("no run was taken up by the next server")
	}
	s.sh(s.data, `for r in repos/*.git; do git -C "$r" fsck --strict --no-dangling; done`)
	if left, err := filepath.Glob(filepath.Join(s.data, "live", "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left in live/: %v, %v", left, err)
	}
	if left := s.containers(); len(left) > 0 {
		t.Errorf("containers that are left: %+v", left)
	}
	s.gone(filepath.Dir(s.data))
	s.gone(endingSleep)
	t.Logf("%d mentions in %s: %d runs, %d of them whole, %d taken up by the next server", mentions, took, len(runs),
		whole, recovered)
}

// thread returns the thread in which a run was requested.
func thread(t testing.TB, r record.Run) string {
	t.Helper()
	var m slack.Mention
	if r.Origin == nil || json.Unmarshal(r.Origin.Event, &m) != nil {
		t.Fatalf("%s has no origin: %+v", r.Name(), r.Origin)
	}
	return m.ThreadTS
}
