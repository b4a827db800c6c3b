package executor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/gitd"
)

// TestBisectPicture plants one pixel at a random place by one command of many. All of them change the page elsewhere. The
// search finds the command by the region, and the first command without one.
func TestBisectPicture(t *testing.T) {
	// The tries hold all places while they look at the good commit.
	w := browserWorld(t, "sandbox", func(x *executor.Executor) { x.Fleet.Capacity = 2 })
	repo, base := w.onBase(map[string]string{"index.html": `<!doctype html><title>p</title><link rel=icon href="data:,">` +
		`<link rel=stylesheet href=style.css><p>page</p><b></b>`, "style.css": "b{position:absolute;width:1px;height:1px}\n"})
	const commands = 6
	planted, x, y := 2+rand.IntN(commands-1), 100+rand.IntN(1000), 100+rand.IntN(700)
	t.Logf("command %d plants a pixel at %d, %d", planted, x, y)
	for i := 1; i <= commands; i++ {
		line := fmt.Sprintf("echo 'p{color:rgb(%d,0,200)}' >>style.css", 40*i)
		if i == planted {
			line += fmt.Sprintf("; echo 'b{left:%dpx;top:%dpx;background:red}' >>style.css", x, y)
		}
		if res, out, errs := w.exec("run:pixel", line); res.ExitCode != 0 {
			t.Fatalf("%+v %s %s", res, out, errs)
		}
	}
	c := caller(t, "run:pixel")
	log, err := repo.Log(t.Context(), "refs/heads/"+c.Branch(), gitd.LogOptions{Not: string(base), Max: commands + 1})
	if err != nil || len(log) != commands {
		t.Fatalf("%d commits: %v", len(log), err)
	}
	for _, test := range []struct {
		region []int
		want   int
		err    string
	}{
		{[]int{x - 20, y - 20, 40, 40}, planted, ""},
		{nil, 1, ""},
		{[]int{5000, 0, 10, 10}, 0, "the region is outside of the pictures"},
	} {
		p := trial.Picture{Spec: "start: python3 -m http.server --bind 127.0.0.1 5173\nurl: http://127.0.0.1:5173/\n" +
			"viewports: [desktop]\n", Region: test.region}
		task, err := p.Task(base)
		if err != nil {
			t.Fatal(err)
		}
		request := record.Request{Repo: "demo", Task: &task, Fork: &record.Fork{Of: c.String()},
			Asker: gitd.Person{Name: "Ada", Email: "ada@example.com"}}
		book := &trial.Book{Repo: repo, Bot: w.x.Bot, Now: time.Now}
		if err := book.Open(t.Context(), request, false); err != nil {
			t.Fatal(err)
		}
		found, err := (&trial.Bisection{Repo: repo, Good: base, Bad: log[0].Hash, Width: 2, Book: book,
			Trier: &trial.Trier{Runs: w.x, Request: request, Judge: p.Judge,
				Remove: func(ctx context.Context, c record.Caller) error {
					_, err := w.x.Remove(ctx, c.String(), request.Asker)
					return err
				}}}).Run(t.Context())
		switch {
		case err != nil:
			t.Errorf("%v: %v", test.region, err)
		case test.want == 0:
			if try, _ := book.Try(log[1].Tree); found.First != nil || !strings.Contains(try.Why, test.err) {
				t.Errorf("%v: %+v, %+v", test.region, found, try)
			}
		case found.First == nil || found.First.Commit != log[commands-test.want].Hash:
			t.Errorf("%v: found %+v, want command %d, %s", test.region, found, test.want, log[commands-test.want].Hash)
		case found.Try == nil || !strings.Contains(found.Try.Why, "triptych.png"):
			t.Errorf("%v: no picture in %+v", test.region, found.Try)
		}
	}
}
