package containerstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

// dial connects to the container. door may be nil.
func (b *box) dial(t *testing.T, e containers.Engine, door http.Handler) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	host, err := (&containers.Dialer{Engine: e, Signer: b.s.signer, Pin: b.pin, Door: door}).Dial(ctx, b.c.ID)
	if err != nil {
		t.Fatal(err)
	}
	b.host = host
}

func testCommands(s *suite, t *testing.T) {
	spec := s.spec(containers.Limits{})
	spec.Env = append(spec.Env, "OF_CONTAINER=c", "OF_BOTH=c")
	b := s.startSpec(t, spec)
	b.dial(t, s.engine, nil)
	for _, test := range []struct {
		name    string
		command containers.Command
		out     string
		errOut  string
		code    int
		signal  string
	}{
		{name: "streams apart", command: containers.Command{Shell: "echo out; echo err >&2"}, out: "out\n", errOut: "err\n"},
		{name: "exit code", command: containers.Command{Shell: "exit 7"}, code: 7},
		{name: "no shell", command: containers.Command{Args: []string{"echo", "$HOME; exit 3"}}, out: "$HOME; exit 3\n"},
		{name: "signal", command: containers.Command{Shell: "kill -9 $$"}, code: 137, signal: "KILL"},
		{name: "stdin", command: containers.Command{Shell: "cat", Stdin: strings.NewReader("in\x00\xff")},
			out: "in\x00\xff"},
		{name: "user", command: containers.Command{Shell: "id -u; id -g; id -G"}, out: "1000\n1000\n1000\n"},
		{name: "work", command: containers.Command{Shell: "pwd; mkdir -p below && echo made"},
			out: containers.WorkDir + "\nmade\n"},
		{name: "below", command: containers.Command{Shell: "pwd", Dir: "below"}, out: containers.WorkDir + "/below\n"},
		{name: "home", command: containers.Command{Shell: "echo $HOME && touch ~/x"}, out: "/cache/home\n"},
		{name: "environment", command: containers.Command{Shell: "echo $OF_CONTAINER $OF_BOTH $OF_COMMAND",
			Env: []string{"OF_BOTH=k", "OF_COMMAND=k"}}, out: "c k k\n"},
		{name: "writable", command: containers.Command{Shell: "for d in /work /artifacts /cache /tmp; do touch $d/x || exit 1; done"}},
	} {
		out, errOut, exit := b.command(t, test.command)
		if out != test.out || errOut != test.errOut || exit.Code != test.code || exit.Signal != test.signal || exit.Reason != "" {
			t.Errorf("%s: stdout %q, stderr %q, %+v", test.name, out, errOut, exit)
		}
	}
	if _, errOut, exit := b.command(t, containers.Command{Args: []string{"no-such-program"}}); exit.Code != 127 || errOut == "" {
		t.Errorf("a missing program: %+v, stderr %q", exit, errOut)
	}
}

func testOutput(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	const n = 200_000
	out, errOut, exit := b.run(t, fmt.Sprintf("seq 1 %d; seq 1 1000 >&2", n))
	var want bytes.Buffer
	for i := 1; i <= n; i++ {
		want.WriteString(strconv.Itoa(i) + "\n")
	}
	if exit.Code != 0 || out != want.String() || strings.Count(errOut, "\n") != 1000 || exit.Stdout != int64(len(out)) {
		t.Errorf("%+v, %d bytes of stdout, %d lines of stderr", exit, len(out), strings.Count(errOut, "\n"))
	}
}

func testTerminal(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	out, _, exit := b.command(t, containers.Command{
		Shell: "test -t 0 && test -t 1 && stty size && echo $TERM",
		TTY:   &containers.Window{Rows: 33, Cols: 101, Term: "vt100"},
	})
	if got := strings.Fields(out); exit.Code != 0 || strings.Join(got, " ") != "33 101 vt100" {
		t.Errorf("%+v: %q", exit, out)
	}
}

func testFiles(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	files, err := b.host.Files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	f, err := files.Create(containers.WorkDir + "/through sftp")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, "content"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := b.ok(t, "cat 'through sftp'; stat -c %u 'through sftp'"); got != "content1000" {
		t.Errorf("the file holds %q", got)
	}
	b.ok(t, "ln -s /etc/passwd link && ln -s / root")
	const work = containers.WorkDir
	for _, p := range []string{"/etc/passwd", work + "/../etc/passwd", work + "/link", work + "/root/etc/passwd", "/proc/1/environ"} {
		if f, err := files.Open(p); err == nil {
			f.Close()
			t.Errorf("%s can be opened", p)
		}
	}
}

// fetch asks the door without any program that an image may not have.
const fetch = `bash -c 'exec 3<>/dev/tcp/127.0.0.1/7070 && printf "GET /%s HTTP/1.0\r\n\r\n" "$0" >&3 && cat <&3' `

func testDoor(s *suite, t *testing.T) {
	b := s.startSpec(t, s.spec(containers.Limits{}))
	b.dial(t, s.engine, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "you asked for %s", r.URL.Path)
	}))
	if got := b.ok(t, fetch+"abc"); !strings.HasSuffix(got, "you asked for /abc") {
		t.Errorf("the door says %q", got)
	}
	// Programs that want a unix socket reach the same door.
	socket := "curl -s --unix-socket " + containers.DoorFolder + "/door.sock http://door/"
	if _, _, exit := b.run(t, "command -v curl"); exit.Code != 0 {
		t.Log("not tested without curl inside: the door's socket")
	} else if got := b.ok(t, socket+"abc"); !strings.HasSuffix(got, "you asked for /abc") {
		t.Errorf("the socket of the door says %q", got)
	}
	b.ok(t, "test -x "+containers.Program+" -a -x "+containers.RunnerProgram) // with which agents and git speak to it
	// Another connection brings another door. The old door is gone with its host.
	b.host.Close()
	b.dial(t, s.engine, http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		io.WriteString(w, "the second door")
	}))
	if got := b.ok(t, fetch+"abc"); !strings.HasSuffix(got, "the second door") {
		t.Errorf("the door says %q", got)
	}
	b.host.Close()
	b.dial(t, s.engine, nil)
	if out, _, exit := b.run(t, "timeout 10 "+fetch+"abc"); exit.Code == 0 && strings.Contains(out, "door") {
		t.Errorf("a closed door says %q", out)
	}
}

// testGuard has the host decide on the programs of one name. The guard is that of the kernel, which a container may refuse.
func testGuard(s *suite, t *testing.T) {
	b := s.startSpec(t, s.spec(containers.Limits{}))
	b.dial(t, s.engine, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call containers.RuleCall
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil || r.URL.Path != containers.RulePath {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		if slices.Contains(call.Args, "no") {
			http.Error(w, "nobody may", http.StatusForbidden)
		}
	}))
	guard := []string{"release"}
	line := "cp /bin/echo release; ./release yes; env ./release no; env ./release no more; env echo $(seq 3000) | wc -w"
	out, errs, exit := b.command(t, containers.Command{Shell: line, Guard: guard})
	if out != "yes\n3000\n" || strings.Count(errs, "ramus: nobody may") != 2 || exit.Code != 0 {
		t.Errorf("guarded: %+v, %q %q", exit, out, errs)
	}
	if out, errs, exit := b.command(t, containers.Command{Shell: "./release no"}); out != "no\n" {
		t.Errorf("without a guard: %+v, %q %q", exit, out, errs)
	}
}

func testPorts(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	if _, _, exit := b.run(t, "command -v python3"); exit.Code != 0 {
		t.Log("not tested without python3 inside: ports that commands listen at")
		return
	}
	id := rand.Text()
	if _, err := b.host.Start(t.Context(),
		containers.Command{ID: id, Shell: "echo served > page && exec python3 -m http.server --bind 127.0.0.1 8123",
			Background: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no port", func() []string {
		ports, err := b.host.Ports(t.Context())
		if err == nil && len(ports) == 1 && ports[0] == 8123 {
			return nil
		}
		return []string{fmt.Sprint(ports, err)}
	})
	conn, err := b.host.Dial(t.Context(), "127.0.0.1:8123")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /page HTTP/1.0\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(answer), "served\n") {
		t.Errorf("the preview says %q, %v", answer, err)
	}
	if err := b.host.Kill(t.Context(), id); err != nil {
		t.Error(err)
	}
	if conn, err := b.host.Dial(t.Context(), "127.0.0.1:8124"); !errors.Is(err, containers.ErrNoPort) {
		t.Errorf("a port that nothing listens at: %v, %v", conn, err)
	}
}

func testTimeout(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	_, _, exit := b.command(t, containers.Command{
		// One process in the group and one that left it, both ignoring the signal.
		Shell:   "trap '' TERM; (setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &); while :; do sleep 1; done",
		Timeout: 300 * time.Millisecond, Grace: 200 * time.Millisecond,
	})
	if exit.Reason != containers.ReasonTimeout {
		t.Errorf("it ended by %+v", exit)
	}
	s.onlyRunner(t, b)
}

// onlyRunner checks that nothing but the runner and the look itself runs inside.
func (s *suite) onlyRunner(t *testing.T, b *box) {
	t.Helper()
	eventually(t, "processes are left inside", func() []string {
		out := b.ok(t, `for p in /proc/[0-9]*; do read -r name < $p/comm 2>/dev/null && echo "${p#/proc/} $name $(tr '\0' ' ' 2>/dev/null < $p/cmdline)"; done; true`)
		var left []string
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 2 && f[0] != "1" && !strings.Contains(line, "for p in") {
				left = append(left, strings.TrimSpace(line))
			}
		}
		return left
	})
}
