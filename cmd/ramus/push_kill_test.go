package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/client"
)

// shownRun is the line of a push that names its run.
var shownRun = regexp.MustCompile(`remote: ramus: (run:\S+) on `)

// pushKiller kills a server at random moments of pushes.
type pushKiller struct {
	*chatServer
	local  *client.Client
	token  string // of ada, who may push
	work   string // a clone of the repository sample
	rounds int
}

// newPushKiller starts a server and clones its repository. RAMUS_CRASHES is the number of rounds (4).
func newPushKiller(t *testing.T) *pushKiller {
	rounds, err := strconv.Atoi(os.Getenv("RAMUS_CRASHES"))
	if err != nil {
		rounds = 4
	}
	s := newChatServer(t, "")
	k := &pushKiller{chatServer: s, rounds: rounds, work: filepath.Join(filepath.Dir(s.data), "work"),
		local: client.Socket(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, s.data) })}
	t.Cleanup(k.local.Close)
	s.start()
	k.token = strings.TrimSpace(s.ramus("token", "create", "--subject", "ada", "--repo", "sample", "--scope", "write"))
	s.sh(filepath.Dir(s.data), "git clone -q data/repos/sample.git work")
	return k
}

func (k *pushKiller) git(args ...string) *exec.Cmd {
	c := exec.CommandContext(k.t.Context(), "git", append([]string{"-C", k.work, "-c", "user.name=A", "-c", "user.email=a@example.org",
		"-c", "http.extraHeader=Authorization: Bearer " + k.token}, args...)...)
	c.Env = k.environ
	return c
}

// write commits a file, or nothing without a name, and returns the commit.
func (k *pushKiller) write(name, text string) string {
	if name != "" {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(k.work, name)), 0o755); err != nil {
			k.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(k.work, name), []byte(text), 0o644); err != nil {
			k.t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"add", "."}, {"commit", "-q", "--allow-empty", "-m", "change"}} {
		if out, err := k.git(args...).CombinedOutput(); err != nil {
			k.t.Fatalf("%v: %s", err, out)
		}
	}
	return strings.TrimSpace(k.sh(k.work, "git rev-parse HEAD"))
}

// push pushes HEAD to a branch and kills the server within a time. It returns the words and the success of the push and the
// commit of the branch, when the server is back.
func (k *pushKiller) push(within time.Duration, branch string, options ...string) (said []byte, pushed bool, at string) {
	var out bytes.Buffer
	push := k.git(append(append([]string{"push"}, options...), "origin", "HEAD:"+branch)...)
	push.Stdout, push.Stderr = &out, &out
	if err := k.git("remote", "set-url", "origin", "http://"+k.addr+"/sample.git").Run(); err != nil {
		k.t.Fatal(err)
	}
	if err := push.Start(); err != nil {
		k.t.Fatal(err)
	}
	time.Sleep(rand.N(within)) // a moment of the push, or after it
	k.kill(syscall.SIGKILL)
	err := push.Wait() // the test asks the server that comes back
	k.start()
	at = strings.TrimSpace(k.sh(k.data, `git -C repos/sample.git rev-parse -q --verify refs/heads/$0 || true`, branch))
	k.sh(k.data, "git -C repos/sample.git fsck --strict --no-dangling")
	return out.Bytes(), err == nil, at
}

// runs returns the runs of the repository.
func (k *pushKiller) runs() []record.Run {
	list, err := k.local.Runs(k.t.Context(), client.Filter{Repo: "sample"})
	if err != nil {
		k.t.Fatal(err)
	}
	return list
}

// check follows a run to its end, and checks that its command ran once.
func (k *pushKiller) check(r record.Run) {
	for range k.local.Events(k.t.Context(), r.Name(), 0) { // until it has ended
	}
	if ran := k.sh(k.data, `git -C repos/sample.git show $0:ran.txt`, "refs/heads/"+r.Branch); ran != "ran\n" {
		k.t.Errorf("%s: the command ran as %q", r.Name(), ran)
	}
}

// TestAskedPushKilled kills the server at random moments of pushes that ask for work. The branch is there as a whole or not
// at all, and each push that moved its branch has one run, which works once. A run that was shown is that one.
func TestAskedPushKilled(t *testing.T) {
	t.Parallel()
	k := newPushKiller(t)
	k.write("asked.yaml", "id: asked\nrepo: {id: sample}\nnodes:\n"+
		"  - id: once\n    run: echo ran >>ran.txt\n  - id: then\n    run: echo end\n")
	begun := 0
	for n := range k.rounds {
		branch := fmt.Sprint("round-", n)
		head := k.write("", "")
		said, pushed, at := k.push(200*time.Millisecond, branch, "-o", "run=asked.yaml")
		if pushed && at == "" || at != head && at != "" {
			t.Errorf("%s is at %s, want %s or nothing", branch, at, head)
		}
		var here []record.Run
		for _, r := range k.runs() {
			if r.Base == branch {
				here = append(here, r)
			}
		}
		shown := shownRun.FindSubmatch(said)
		want := 0
		if at == head {
			want = 1
		}
		if len(here) != want || shown != nil && (want == 0 || here[0].Name() != string(shown[1])) {
			t.Fatalf("%s: runs %+v, shown %q, branch %q\n%s", branch, here, shown, at, said)
		}
		for _, r := range here {
			begun++
			k.check(r)
		}
	}
	t.Logf("%d of %d pushes started a run", begun, k.rounds)
}

// TestEventPushKilled kills the server at random moments of pushes that start a workflow of the base. Each push that moved its
// branch has run the workflow once when the server is back, the one that brings the workflow too.
func TestEventPushKilled(t *testing.T) {
	t.Parallel()
	k := newPushKiller(t)
	known := map[string]bool{}
	moved := 0
	for n := range k.rounds {
		branch, file := fmt.Sprint("round-", n), ""
		if moved == 0 {
			branch, file = "main", ".ramus/workflows/ci.yaml"
		}
		head := k.write(file, "id: ci\nrepo: {id: sample}\non: push\nnodes:\n"+
			"  - id: once\n    run: echo ran >>ran.txt\n  - id: then\n    run: echo end\n")
		said, pushed, at := k.push(120*time.Millisecond, branch)
		if pushed && at != head {
			t.Errorf("%s was pushed, and is at %s", branch, at)
		}
		var fresh []record.Run
		for _, r := range k.runs() {
			if !known[r.Name()] {
				known[r.Name()], fresh = true, append(fresh, r)
			}
		}
		want := 0
		if at == head {
			want, moved = 1, moved+1
		}
		if len(fresh) != want {
			t.Fatalf("%s at %s: %d runs, want %d: %+v\n%s", branch, at, len(fresh), want, fresh, said)
		}
		for _, r := range fresh {
			k.check(r)
		}
		if left, _ := filepath.Glob(filepath.Join(k.data, "pushed", "*")); len(left) > 0 {
			t.Errorf("notices are left: %q", left)
		}
	}
	t.Logf("%d of %d pushes moved their branch", moved, k.rounds)
}
