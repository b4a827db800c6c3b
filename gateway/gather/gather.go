// Package gather asks all servers of an installation the same question, and collects their answers.
//
// # Nouns
//
// A replica is one of several servers that answer as one, each with repositories of its own. A [Question] is a function of the state of one
// replica. The [Desk] of a replica answers questions for the others, and asks theirs by [Others]. A [Lack] collects the names of the
// replicas without an answer.
//
// # Invariants
//
// Each replica answers with the rights of the person who asked, by its own veils over private work. An answer of this replica costs no
// request. A question is never passed on.
package gather

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Others are the other replicas of the installation.
type Others interface {
	// Ask asks each of them. It returns one answer for each, also for those that do not answer in time.
	Ask(ctx context.Context, who route.Who, question string, body []byte) []Answer
	// Follow has each of them send lines, and calls each with them, until ctx ends. It calls lost when lines may have been lost.
	Follow(ctx context.Context, who route.Who, question string, body []byte, each func(line []byte), lost func())
	// Owner returns the name of the replica that answers for a path of pages, or "" if this one does.
	Owner(c *route.Call, pattern string) string
	// AskOne asks one replica.
	AskOne(ctx context.Context, replica string, who route.Who, question string, body []byte) Answer
	// Pass returns the handler of a request for work that another replica answers. Returns nil if this one does, or if no replica has
	// the work. local says that the request came by the unix socket.
	Pass(r *http.Request, w Work, local bool) http.Handler
	// PassTo returns the handler of a request for another replica. Returns nil if there is no other one of that name.
	PassTo(replica string, local bool) http.Handler
}

// Work names something that belongs to one repository. The first field that is not empty counts.
type Work struct {
	Repo string
	Run  string
	// Caller is the name of a caller. It may be incomplete.
	Caller     string
	Tournament string
	Link       string // the id of a shared link
}

// Answer is the answer of a replica.
type Answer struct {
	Of      string // the name of the replica
	Body    []byte
	Problem *route.Problem // the replica refuses the question
	Err     error          // the replica does not answer
}

// Desk has the questions of a replica. Its exported fields are its options, which may be changed until the first question. All methods
// are safe for concurrent use after the last call of [New] and [NewStream].
type Desk struct {
	// Name is the name of this replica.
	Name string
	// Others are the other replicas. Nil means that this is the only server.
	Others Others
	// Veil hides private work, see [route.Mux.Veil]. Nil hides nothing.
	Veil func(g gitd.Grant, repo string) gitd.Veil

	questions map[string]func(ctx context.Context, who route.Who, body []byte) (any, error)
	streams   map[string]func(ctx context.Context, who route.Who, body []byte, send func(any) error) error
}

// Alone reports whether this is the only server.
func (d *Desk) Alone() bool { return d == nil || d.Others == nil }

// Answer answers a question of another replica from the state of this one.
func (d *Desk) Answer(ctx context.Context, who route.Who, question string, body []byte) (any, error) {
	answer := d.questions[question]
	if answer == nil {
		return nil, route.NotFound("question", question)
	}
	return answer(ctx, who.Under(d.Veil), body)
}

// Question is a question to all replicas. Q and A are encoded as JSON.
type Question[Q, A any] struct {
	desk *Desk
	name string
	own  func(ctx context.Context, who route.Who, q Q) (A, error)
}

// New returns a question that each replica answers by own. All replicas call it with the same name. A nil desk is that of the only server.
func New[Q, A any](d *Desk, name string, own func(ctx context.Context, who route.Who, q Q) (A, error)) *Question[Q, A] {
	if d != nil {
		if d.questions == nil {
			d.questions = map[string]func(context.Context, route.Who, []byte) (any, error){}
		}
		d.questions[name] = func(ctx context.Context, who route.Who, body []byte) (any, error) {
			var q Q
			if err := json.Unmarshal(body, &q); err != nil {
				return nil, route.NewProblem(route.KindInvalid, "cannot read the question %s: %v", name, err)
			}
			return own(ctx, who, q)
		}
	}
	return &Question[Q, A]{d, name, own}
}

// Part is the answer of one replica.
type Part[A any] struct {
	Of     string // the name of the replica; empty for the only server
	Answer A
}

// Ask asks all replicas, and returns their answers sorted by the names of the replicas. Those that do not answer are noted in the [Lack] of
// ctx. A replica that does not find what the question names has no part. The error is that of this replica if none finds it.
func (q *Question[Q, A]) Ask(ctx context.Context, who route.Who, in Q) ([]Part[A], error) {
	if q.desk.Alone() {
		a, err := q.own(ctx, who, in)
		return []Part[A]{{Answer: a}}, err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	var own A
	var ownErr error
	var asking sync.WaitGroup
	asking.Go(func() { own, ownErr = q.own(ctx, who, in) })
	answers := q.desk.Others.Ask(ctx, who, q.name, body)
	asking.Wait()
	if ownErr != nil && route.AsProblem(ownErr, who).Kind != route.KindNotFound {
		return nil, ownErr
	}
	var parts []Part[A]
	if ownErr == nil {
		parts = append(parts, Part[A]{q.desk.Name, own})
	}
	for _, a := range answers {
		part := Part[A]{Of: a.Of}
		err := a.Err
		switch {
		case a.Problem != nil && a.Problem.Kind == route.KindNotFound:
			continue
		case a.Problem != nil:
			return nil, a.Problem
		case err == nil:
			if err = json.Unmarshal(a.Body, &part.Answer); err == nil {
				parts = append(parts, part)
			}
		}
		if err != nil {
			note(ctx, a.Of)
		}
	}
	if ownErr != nil && len(parts) == 0 {
		return nil, ownErr
	}
	slices.SortFunc(parts, func(a, b Part[A]) int { return strings.Compare(a.Of, b.Of) })
	return parts, nil
}

// headerMissing names the replicas whose items an answer lacks, because they do not answer.
const headerMissing = "Ramus-Missing-Replicas"

// SetMissing has the header of an answer name the replicas that it lacks.
func SetMissing(h http.Header, replicas []string) {
	if len(replicas) > 0 {
		h.Set(headerMissing, strings.Join(replicas, ", "))
	}
}

// Missing returns the names of the replicas that an answer lacks.
func Missing(h http.Header) []string {
	if v := h.Get(headerMissing); v != "" {
		return strings.Split(v, ", ")
	}
	return nil
}

// Lack collects the names of replicas that did not answer. All methods are safe for concurrent use.
type Lack struct {
	outer *Lack      // gets the names too, or nil
	mu    sync.Mutex // guards names
	names []string
}

// Names returns the names of the replicas, sorted.
func (l *Lack) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.names)
}

type lackKey struct{}

// Collect returns a context whose questions note the replicas that do not answer. An earlier Lack of ctx gets their names too.
func Collect(ctx context.Context) (context.Context, *Lack) {
	l := new(Lack)
	l.outer, _ = ctx.Value(lackKey{}).(*Lack)
	return context.WithValue(ctx, lackKey{}, l), l
}

// note notes that a replica did not answer.
func note(ctx context.Context, name string) {
	l, _ := ctx.Value(lackKey{}).(*Lack)
	for ; l != nil; l = l.outer {
		l.add(name)
	}
}

func (l *Lack) add(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, have := slices.BinarySearch(l.names, name); !have {
		l.names = slices.Insert(l.names, at, name)
	}
}
