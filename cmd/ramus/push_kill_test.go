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

// TestAskedPushKilled kills the server at random moments of pushes that ask for work. The branch is there as a whole or not
// at all, a run that was shown is there, and none is there or works twice. RAMUS_CRASHES is the number of rounds (4).
func TestAskedPushKilled(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("RAMUS_CRASHES"))
	if err != nil {
		rounds = 4
	}
	s := newChatServer(t, "")
	local := client.Socket(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, s.data) })
	t.Cleanup(local.Close)
	s.start()
	token := strings.TrimSpace(s.ramus("token", "create", "--subject", "ada", "--repo", "sample", "--scope", "write"))
	work := filepath.Join(filepath.Dir(s.data), "work")
	git := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), "git", append([]string{"-C", work, "-c", "user.name=A", "-c", "user.email=a@example.org",
			"-c", "http.extraHeader=Authorization: Bearer " + token}, args...)...)
		c.Env = s.environ
		return c
	}
	s.sh(filepath.Dir(s.data), "git clone -q data/repos/sample.git work")
	if err := os.WriteFile(filepath.Join(work, "asked.yaml"), []byte("id: asked\nrepo: {id: sample}\nnodes:\n"+
		"  - id: once\n    run: echo ran >>ran.txt\n  - id: then\n    run: echo end\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	begun := 0
	for n := range rounds {
		branch := fmt.Sprint("round-", n)
		for _, args := range [][]string{{"add", "."}, {"commit", "-q", "--allow-empty", "-m", branch}} {
			if out, err := git(args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		head := strings.TrimSpace(s.sh(work, "git rev-parse HEAD"))
		var said bytes.Buffer
		push := git("push", "-o", "run=asked.yaml", "origin", "HEAD:"+branch)
		push.Stdout, push.Stderr = &said, &said
		if err := git("remote", "set-url", "origin", "http://"+s.addr+"/sample.git").Run(); err != nil {
			t.Fatal(err)
		}
		if err := push.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(300 * time.Millisecond)) // a moment of the push, or after it
		s.kill(syscall.SIGKILL)
		_ = push.Wait() // the test asks the server that comes back
		s.start()

		at := strings.TrimSpace(s.sh(s.data, `git -C repos/sample.git rev-parse -q --verify refs/heads/$0 || true`, branch))
		if at != head && at != "" {
			t.Errorf("%s is at %s, want %s or nothing", branch, at, head)
		}
		s.sh(s.data, "git -C repos/sample.git fsck --strict --no-dangling")
		list, err := local.Runs(t.Context(), client.Filter{Repo: "sample"})
		if err != nil {
			t.Fatal(err)
		}
		var here []record.Run
		for _, r := range list {
			if r.Base == branch {
				here = append(here, r)
			}
		}
		shown := shownRun.FindSubmatch(said.Bytes())
		if len(here) > 1 || at == "" && len(here) > 0 || shown != nil && (len(here) == 0 || here[0].Name() != string(shown[1])) {
			t.Fatalf("%s: runs %+v, shown %q, branch %q\n%s", branch, here, shown, at, said.String())
		}
		for _, r := range here {
			begun++
			for range local.Events(t.Context(), r.Name(), 0) { // until it has ended
			}
			if ran := s.sh(s.data, `git -C repos/sample.git show $0:ran.txt`, "refs/heads/"+r.Branch); ran != "ran\n" {
				t.Errorf("%s: the command ran as %q", r.Name(), ran)
			}
		}
	}
	t.Logf("%d of %d pushes started a run", begun, rounds)
}
