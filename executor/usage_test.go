package executor_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
)

// tellUsage journals a call as the model door does.
func tellUsage(g *executor.Guest, c record.ModelCall) {
	data, _ := json.Marshal(c) // of strings and numbers
	g.Tell(record.Event{Type: record.EventUsage, Message: c.Provider + " " + c.Model, Data: data})
}

// guestDoor is a door that admits guests and counts them. It holds /guest/ends until the guest's
// command has ended. It refuses /guest/later for a time.
type guestDoor struct{ later atomic.Bool }

func (d *guestDoor) handler(v executor.Visitor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/guest/later" && !d.later.Load() {
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
		g, ok := v.Enter(r.Context())
		if !ok {
			http.Error(w, "nobody works", http.StatusForbidden)
			return
		}
		defer g.Leave()
		c := record.ModelCall{Provider: "p", Model: strings.TrimPrefix(r.URL.Path, "/guest/"), InputTokens: 10,
			OutputTokens: 1}
		switch c.Model {
		case "ends":
			_ = http.NewResponseController(w).Flush() // the client knows that it has entered
			<-g.Context().Done()
		case "budget":
			c.Ended, c.Refused = record.EndedBudget, true
		}
		tellUsage(g, c)
		fmt.Fprintln(w, v.Run().ID == g.Run().ID)
	})
}

func (d *guestDoor) open(x *executor.Executor) {
	x.Door = map[string]func(executor.Visitor) http.Handler{"/guest/": d.handler}
}

func needsCurl(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("cannot run here: there is no curl")
	}
}

const curlGuest = `ask() { curl -sS -N "http://127.0.0.1:7070/guest/$1"; }; `

// TestGuests ends a call when its command ends. The call is in the journal before the end of the step.
func TestGuests(t *testing.T) {
	t.Parallel()
	needsCurl(t)
	var d guestDoor
	w := newWorld(t, d.open)
	res, out, errs := w.exec("run:guest",
		curlGuest+`ask one; (curl -sS -N -o left http://127.0.0.1:7070/guest/ends -D seen >/dev/null 2>&1 &); while ! [ -s seen ]; do :; done`)
	if res.ExitCode != 0 || out != "true\n" {
		t.Fatalf("%+v %q %q", res, out, errs)
	}
	r, err := w.x.Run(t.Context(), res.Run)
	if err != nil {
		t.Fatal(err)
	}
	if r.Usage == nil || *r.Usage != (record.Usage{Calls: 2, InputTokens: 20, OutputTokens: 2}) {
		t.Errorf("usage %+v", r.Usage)
	}
	journal := w.journal(res.Run)
	if used, finished := strings.LastIndex(journal, "model.usage exec"),
		strings.Index(journal, "step.finished exec"); used < 0 || used > finished {
		t.Errorf("journal:\n%s", journal)
	}
	m, err := w.x.Manifest(t.Context(), res.Run)
	if err != nil || m.Usage == nil || m.Usage.Calls != 2 {
		t.Errorf("manifest %+v, %v", m.Usage, err)
	}
}

// TestUsageOutlivesTheServer takes up a run in another process. The process knows the run's usage from
// its journal.
func TestUsageOutlivesTheServer(t *testing.T) {
	t.Parallel()
	needsCurl(t)
	var d guestDoor
	w := newWorld(t, d.open)
	r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "run:usage"), Repo: "demo",
		Command: &record.Command{Shell: curlGuest +
			`ask one; ask two; echo asked; until curl -sSf http://127.0.0.1:7070/guest/later; do sleep 0.05; done`}})
	if err != nil {
		t.Fatal(err)
	}
	w.until(r.Name(), printed("asked"))
	w.stop(true)
	d.later.Store(true)
	w.start()
	r = w.ended(r.Name())
	if r.State != record.StateComplete || r.Usage == nil || *r.Usage != (record.Usage{Calls: 3, InputTokens: 30, OutputTokens: 3}) {
		t.Errorf("%s %s: usage %+v\n%s", r.State, r.Error, r.Usage, w.journal(r.Name()))
	}
}

// TestBudgetEndsAnAgent has an agent fail at the end of its budget. The budget is the reason.
func TestBudgetEndsAnAgent(t *testing.T) {
	t.Parallel()
	needsCurl(t)
	var d guestDoor
	w := newWorld(t, func(x *executor.Executor) {
		d.open(x)
		x.Options.Agents = map[string]agent.Agent{"poor": {Command: []string{"sh", "-c", curlGuest + "ask budget; exit 4"}}}
	})
	r := w.ended(w.ask("run:poor", "work").Name())
	if r.Reason != record.ReasonBudget ||
		!strings.Contains(r.Error, "the agent ended with 4: the run's budget for models is used up") || r.Hint == "" {
		t.Errorf("%s: %s", r.Reason, r.Error)
	}
}
