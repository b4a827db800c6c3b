package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

// happenings are the events of each pull request in these tests, in a natural order.
var happenings = []string{"comment", "changes_requested", "push", "approved", "merged"}

// permutations returns all orders of a list.
func permutations(list []string) (all [][]string) {
	if len(list) == 0 {
		return [][]string{nil}
	}
	for i, first := range list {
		for _, rest := range permutations(slices.Delete(slices.Clone(list), i, i+1)) {
			all = append(all, append([]string{first}, rest...))
		}
	}
	return all
}

// pullStory is one pull request with its events and their deliveries.
type pullStory struct {
	*shop
	n      int
	random *rand.Rand
	task   record.Task
	file   string
	told   map[string]string // ids of deliveries, by event
	err    error
}

func (p *pullStory) check(err error) {
	if p.err == nil {
		p.err = err
	}
}

// happen makes an event at GitHub and finds its delivery.
func (p *pullStory) happen(what string) {
	var err error
	switch number := p.task.PRNumber; what {
	case "comment":
		_, err = p.repo.CommentLine("reviewer", number, p.file, 1, "append "+p.file+" more")
	case "changes_requested":
		_, err = p.repo.Review("reviewer", number, "changes_requested", "append "+p.file+" again")
	case "push":
		_, err = p.repo.Push("reviewer", p.task.Branch, "By hand", map[string]string{"hand-" + p.file: "by hand\n"})
	case "approved":
		err = p.repo.Approve("developer", number, "fine")
	case "merged":
		_, err = p.repo.Merge("developer", number, "merge")
	}
	p.check(err)
	for _, d := range slices.Backward(p.github.Deliveries()) {
		if p.tells(d) == what {
			p.told[what] = d.ID
			return
		}
	}
	p.check(fmt.Errorf("nothing tells of %s", what))
}

// looked waits until ramus has read its new pull request. Afterwards ramus learns of events only by deliveries.
func (p *pullStory) looked() {
	path := "/commits/" + p.repo.Pull(p.task.PRNumber).HeadSHA + "/check-runs"
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	p.check(p.github.Until(ctx, "a look at the pull request", func() bool {
		return slices.ContainsFunc(p.github.Requests(),
			func(r githubtest.Request) bool { return strings.Contains(r.Path, path) })
	}))
}

// tells returns the event of a delivery. Returns "" if the delivery is of no event in happenings or of another pull
// request.
func (p *pullStory) tells(d githubtest.Delivery) string {
	var body struct {
		Ref    string
		Sender struct{ Login string }
		Review struct{ State string }
		Pull   struct{ Number int } `json:"pull_request"`
	}
	p.check(json.Unmarshal(d.Body, &body))
	own := body.Pull.Number == p.task.PRNumber
	switch {
	case d.Event == "push" && body.Ref == "refs/heads/"+p.task.Branch && body.Sender.Login == "reviewer":
		return "push"
	case own && d.Event == "pull_request" && d.Action == "closed":
		return "merged"
	case own && d.Event == "pull_request_review_comment" && d.Action == "created" && body.Sender.Login == "reviewer":
		return "comment"
	case own && d.Event == "pull_request_review" && body.Review.State != "commented":
		return body.Review.State
	}
	return ""
}

// tell delivers the events in the list. A repeated event is delivered again, either like "Redeliver" with the same id,
// or like a second webhook with another id.
func (p *pullStory) tell(list ...string) {
	seen := map[string]bool{}
	for _, what := range list {
		id := p.told[what]
		if seen[what] && p.random.IntN(2) == 0 {
			twin, err := p.github.Copy(id)
			p.check(err)
			id = twin
		}
		seen[what] = true
		a, err := p.github.Deliver(p.t.Context(), id)
		p.check(err)
		if a.Status != http.StatusAccepted {
			p.check(fmt.Errorf("%s was answered with %d, %v %s", what, a.Status, a.Err, a.Answer))
		}
	}
}

// twice inserts a second copy of each event at a random place after the first.
func (p *pullStory) twice(order []string) []string {
	list := slices.Clone(order)
	for _, what := range order {
		first := slices.Index(list, what)
		list = slices.Insert(list, first+1+p.random.IntN(len(list)-first), what)
	}
	return list
}

// ending describes the final state, without the parts that differ between tasks.
func (p *pullStory) ending() string {
	t, pull := p.task, p.repo.Pull(p.task.PRNumber)
	t.ID, t.Branch, t.PRNumber, t.PRURL, t.Run, t.Description, t.CreatedAt, t.UpdatedAt = "", "", 0, "", "", "",
		time.Time{}, time.Time{}
	t.SessionID = ""
	t.Work = nil
	status, err := p.Executor.Caller(p.t.Context(), p.task.Caller().String())
	p.check(err)
	pulls := 0
	for _, other := range p.repo.Pulls() {
		if other.Head == p.task.Branch {
			pulls++
		}
	}
	var text []string
	if pull.MergeCommit != "" {
		content, err := p.repo.File(pull.MergeCommit, p.file)
		p.check(err)
		text = strings.Fields(content)
		slices.Sort(text)
		_, err = p.repo.File(pull.MergeCommit, "hand-"+p.file)
		p.check(err)
	}
	replies := 0
	for _, c := range pull.Lines {
		if c.ReplyTo != 0 {
			replies++
		}
	}
	return fmt.Sprintf("%+v\ncontainer %v\npull requests %d, %s, merged %v, branch at GitHub %q\nreplies %d, said %d, requested %v, the file %v\n",
		t, status.Container != nil, pulls, pull.State, pull.Merged, p.repo.Head(p.task.Branch), replies,
		len(pull.Comments), pull.Requested, text)
}

// inAnyOrder plays one story for each order concurrently and compares their endings.
func inAnyOrder(t *testing.T, orders [][]string, play func(p *pullStory, order []string)) {
	t.Helper()
	k := openShop(t, func(e *engineer.Engineer) { e.Settings.DeleteBranch, e.Slack, e.Log = true, nil, nil })
	k.github.Hold()
	stories := make([]*pullStory, len(orders))
	var group sync.WaitGroup
	places := make(chan struct{}, 8) // more stories would wait for containers
	for n, order := range orders {
		p := &pullStory{shop: k, n: n, random: rand.New(rand.NewPCG(1, uint64(n))), file: fmt.Sprintf("made-%d.txt", n),
			told: map[string]string{}}
		stories[n] = p
		group.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			p.task = k.submit("write " + p.file + " made")
			p.task = k.settled(p.task.ID, record.StateAwaitingReview)
			p.looked()
			play(p, order)
			p.task = k.settled(p.task.ID, record.StateComplete)
		})
	}
	group.Wait()
	var first string
	for n, p := range stories {
		ending := p.ending()
		if first == "" {
			first = ending
			t.Logf("each of %d ends so:\n%s", len(orders), ending)
		}
		if p.err != nil || ending != first {
			t.Errorf("%v: %v\n%s%s", orders[n], p.err, ending, k.story(p.task))
		}
		if t.Failed() && n > 5 {
			t.Fatal("…")
		}
	}
}

// some returns n orders, spread evenly over the list. With RAMUS_TEST=full it returns all orders.
func some(orders [][]string, n int) (list [][]string) {
	if os.Getenv("RAMUS_TEST") == "full" {
		return orders
	}
	for i := range n {
		list = append(list, orders[i*len(orders)/n])
	}
	return list
}

// TestDeliveriesInAnyOrder delivers the events of a merged pull request in the 120 orders, each event twice. All
// events have happened before the first delivery.
func TestDeliveriesInAnyOrder(t *testing.T) {
	t.Parallel()
	orders := some(permutations(happenings), 12)
	inAnyOrder(t, orders, func(p *pullStory, order []string) {
		for _, what := range happenings {
			p.happen(what)
		}
		p.tell(p.twice(order)...)
	})
}

// TestHappeningsInAnyOrder makes the events before the merge in their 24 orders. Each may happen while the agent is at
// work, and is delivered twice. After the merge, all events are delivered again.
func TestHappeningsInAnyOrder(t *testing.T) {
	t.Parallel()
	orders := some(permutations(happenings[:4]), 6)
	inAnyOrder(t, orders, func(p *pullStory, order []string) {
		var sofar []string
		for _, what := range order {
			p.happen(what)
			sofar = append(sofar, what)
			p.tell(what, sofar[p.random.IntN(len(sofar))])
		}
		p.until(p.task.ID, "all that was said", func(t record.Task) bool {
			pull := p.repo.Pull(t.PRNumber)
			answered := 0
			for _, c := range pull.Lines {
				if c.ReplyTo != 0 {
					answered++
				}
			}
			return t.Status == record.StateAwaitingReview && t.Unposted == 0 && answered+len(pull.Comments) >= 2
		})
		p.happen("merged")
		p.tell(p.twice(append(order, "merged"))...)
	})
}
