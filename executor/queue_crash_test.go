package executor_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
)

// queueChange is one change of the prompts that wait. Each can be made twice, as by a client that got no answer.
type queueChange struct {
	kind, key, words string // "say", "edit", "take" or "order"
	order            []string
}

// changeAt returns the change with a number. Of three prompts, one is edited, and then one is taken back or two change places.
func changeAt(i int) queueChange {
	key := func(n int) string { return "k" + strconv.Itoa(n) }
	group := i / 5 * 5
	switch {
	case i%5 < 3:
		return queueChange{kind: "say", key: key(i), words: fmt.Sprintf("append log said-%d", i)}
	case i%5 == 3:
		return queueChange{kind: "edit", key: key(group + 1), words: fmt.Sprintf("append log edited-%d", i)}
	case group%2 == 0:
		return queueChange{kind: "take", key: key(group)}
	}
	return queueChange{kind: "order", order: []string{key(group + 2), key(group)}}
}

// make makes the change in a run.
func (c queueChange) make(ctx context.Context, x *executor.Executor, run string) (err error) {
	switch c.kind {
	case "say":
		return x.Prompts.Say(ctx, run, record.Prompt{Key: c.key, Text: c.words, By: bo})
	case "edit":
		return x.Prompts.Resay(ctx, run, c.key, c.words, bo)
	case "take":
		_, err = x.Prompts.Unsay(ctx, run, c.key, bo)
		return err
	}
	return x.Prompts.Reorder(ctx, run, c.order, bo)
}

// apply makes the change in a list of prompts.
func (c queueChange) apply(list []record.Prompt) []record.Prompt {
	at := func(key string) int {
		return slices.IndexFunc(list, func(p record.Prompt) bool { return p.Key == key })
	}
	switch c.kind {
	case "say":
		return append(list, record.Prompt{Key: c.key, Text: c.words})
	case "edit":
		list[at(c.key)].Text = c.words
	case "take":
		return slices.Delete(list, at(c.key), at(c.key)+1)
	case "order":
		i, j := at(c.order[1]), at(c.order[0])
		list[i], list[j] = list[j], list[i]
	}
	return list
}

// crashQueue makes changes from a number on, up to another, and says each one that was accepted.
func crashQueue(ctx context.Context, x *executor.Executor, c record.Caller, bounds string) error {
	var from, to int
	if _, err := fmt.Sscanf(bounds, "%d %d", &from, &to); err != nil {
		return err
	}
	r, err := x.Submit(ctx, record.Request{Key: "job", Caller: c, Repo: "demo",
		Agent: &record.AgentCall{Prompt: "run while ! [ -e go ]; do sleep 0.05; done; rm go"}})
	if err != nil {
		return err
	}
	waits := waitsAfter(time.Time{})
	for e, err := range x.Events(ctx, r.Name(), 0, true) { // the first turn has the first prompt alone
		if err != nil {
			return err
		}
		if waits(e) {
			break
		}
	}
	for i := from; i < to; i++ {
		if err := changeAt(i).make(ctx, x, r.Name()); err != nil {
			return fmt.Errorf("change %d, %+v: %w", i, changeAt(i), err)
		}
		fmt.Println("did", i)
	}
	<-ctx.Done() // until it is killed
	return ctx.Err()
}

// waitsAfter reports whether an event after a time is that the agent waits for the file.
func waitsAfter(when time.Time) func(record.Event) bool {
	return func(e record.Event) bool {
		return e.Type == record.EventAgent && e.Time.After(when) && strings.Contains(e.Message, "(in_progress)")
	}
}

// TestCrashQueue kills the server at random moments while a client says, edits, takes back and reorders prompts. A change that was
// accepted is there afterwards, and one that was not is made again.
func TestCrashQueue(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("RAMUS_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, withACP(nil))
	w.stop(false)
	const changes = 40
	done, kills := 0, 0
	for ; done < changes; kills++ {
		done = crashQueueOnce(t, w, done, changes, 1+rnd.IntN(12), time.Duration(rnd.IntN(3000))*time.Microsecond)
	}
	restarted := time.Now()
	w.start()
	w.until("run:crash/job", waitsAfter(restarted)) // in the container of this server
	var want []record.Prompt
	for i := range changes {
		want = changeAt(i).apply(want)
	}
	q, err := w.x.Queue(t.Context(), "run:crash/job")
	if err != nil {
		t.Fatal(err)
	}
	told := func(list []record.Prompt) (all []string) {
		for _, p := range list {
			all = append(all, p.Key+": "+p.Text)
		}
		return all
	}
	if got := told(q.Waiting()); !slices.Equal(got, told(want)) {
		t.Errorf("%d kills: %q\nwant %q\n%s", kills, got, told(want), w.journal("run:crash/job"))
	}
	r, err := w.x.Run(t.Context(), "run:crash/job")
	if err != nil {
		t.Fatal(err)
	}
	w.release(r, "go")
	if r = w.ended(r.Name()); r.State != record.StateComplete {
		t.Fatalf("%s %s\n%s", r.State, r.Error, w.journal(r.Name()))
	}
	var words []string
	for _, p := range want {
		words = append(words, strings.TrimPrefix(p.Text, "append log "))
	}
	if got := strings.Fields(w.inRepo("show", r.Branch+":log")); !slices.Equal(got, words) {
		t.Errorf("%d kills: the agent heard %q, want %q", kills, got, words)
	}
}

// crashQueueOnce starts a server that makes changes from a number on. It kills the server a moment after so many of them, and returns the
// number of the first one that was not accepted.
func crashQueueOnce(t *testing.T, w *world, from, to, accepted int, later time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "RAMUS_TEST_CRASH="+w.data, "RAMUS_TEST_RUNNER="+runnerBinary,
		"RAMUS_TEST_AGENT=acp:"+standinBinary, fmt.Sprintf("RAMUS_TEST_QUEUE=%d %d", from, to))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var kill *time.Timer
	next := from
	for lines.Scan() {
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "did %d", &n); err != nil {
			continue
		}
		if next = n + 1; next-from >= accepted && kill == nil || next == to {
			kill = time.AfterFunc(later, func() { _ = cmd.Process.Kill() })
		}
	}
	if kill != nil {
		kill.Stop()
	}
	_ = cmd.Wait()
	if kill == nil {
		t.Fatalf("the server ended by itself at change %d", next)
	}
	return next
}
