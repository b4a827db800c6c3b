package executor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor"
)

// withACP gives the world an agent of ProtocolACP that does what it is told line by line.
func withACP(change func(*executor.Agent)) func(*executor.Executor) {
	a := executor.Agent{Protocol: executor.ProtocolACP, Command: []string{standinBinary}, Env: []string{"ACP_STANDIN_SCRIPT=1"}, State: []string{".acp-standin"}}
	if change != nil {
		change(&a)
	}
	return func(x *executor.Executor) {
		x.Agents = map[string]executor.Agent{"standin": a}
		x.Fleet.Engine.(*containers.Sandbox).ReadOnly = []string{filepath.Dir(standinBinary)}
	}
}

func TestACP(t *testing.T) {
	w := newWorld(t, withACP(nil))
	r := w.ended(w.ask("conv:spoken", "say hello there\nplan look | write\nwrite made.txt by an agent\nread made.txt\nrun ls sub; pwd; echo $RAMUS_FILES\nrun cat \"$RAMUS_FILES/note.txt\"",
		executor.Attachment{Name: "../note.txt", Content: []byte("attached\n")}).Name())
	if r.State != executor.StateComplete || r.Session == "" {
		t.Errorf("%+v\n%s", r, w.journal(r.Name()))
	}
	out := w.stdout(r.Name(), "turn-1")
	for _, want := range []string{"hello there\n", "by an agent\n", "/work\n", "attached\n", "done\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
	if got := w.inRepo("show", "ramus/conv-spoken:made.txt"); got != "by an agent" {
		t.Errorf("made.txt: %q", got)
	}
	if os.Getenv("RAMUS_SHOW") != "" {
		t.Log(w.journal(r.Name()))
	}
}
