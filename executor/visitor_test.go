package executor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
)

// TestVisitorTask has an agent call library tasks at its door. They work in the
// agent's work tree, their changes are in the turn's commit, and the journal has
// them.
func TestVisitorTask(t *testing.T) {
	t.Parallel()
	var visitor executor.Visitor
	w := newWorld(t, func(x *executor.Executor) {
		withACP(nil)(x)
		x.Door = map[string]func(executor.Visitor) http.Handler{"/tool/": func(v executor.Visitor) http.Handler {
			visitor = v
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				out, err := v.Task(r.Context(), strings.TrimPrefix(r.URL.Path, "/tool/"),
					json.RawMessage(r.URL.Query().Get("p")))
				if err != nil {
					fmt.Fprintln(rw, "error:", err, errors.Is(err, record.ErrInvalid))
					return
				}
				fmt.Fprintln(rw, "ok:", out.OK, out.Value)
			})
		}}
	})
	call := func(name, params string) string {
		return "run curl -sS -G --noproxy '*' --data-urlencode 'p=" + params + "' http://127.0.0.1:7070/tool/" + name
	}
	r := w.ended(w.ask("conv:visited", strings.Join([]string{
		"write before.txt made by the agent",
		call("lib_write_file", `{"path":"made.txt","content":"by a tool\n"}`),
		call("lib_read_file", `{"path":"before.txt"}`),
		call("lib_git_commit", `{"message":"Half way"}`),
		"write after.txt more",
		call("lib_nothing", `{}`),
		call("lib_read_file", `{"nothing":1}`),
		call("browser_test", `{"check":{"start":"none","steps":[{"fill":"#p","value":"hidden-from-all","secret":true}]}}`),
	}, "\n")).Name())
	if r.State != record.StateComplete {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	if got := w.inRepo("show", "ramus/conv-visited:made.txt"); got != "by a tool" {
		t.Errorf("made.txt: %q", got)
	}
	if got := w.inRepo("log", "--format=%s", "main..ramus/conv-visited"); !strings.Contains(got, "Half way\n") &&
		!strings.HasSuffix(got, "Half way") {
		t.Errorf("log: %q", got)
	}
	var names []string
	for _, e := range w.events(r.Name(), record.EventTool) {
		names = append(names, fmt.Sprint(e.Message, *e.OK, e.Step))
	}
	if len(names) != 5 {
		t.Errorf("%q", names)
	}
	for _, e := range w.events(r.Name(), record.EventTool) {
		if e.Task == "browser_test" && (strings.Contains(string(e.Data), "hidden-from-all") ||
			!strings.Contains(string(e.Data), "[secret typed in step 1]")) {
			t.Errorf("what is typed in secret: %s", e.Data)
		}
	}
	if _, err := visitor.Task(t.Context(), "lib_read_file", nil); !errors.Is(err, record.ErrConflict) {
		t.Errorf("between steps: %v", err)
	}
}
