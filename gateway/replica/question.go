package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/route"
)

// asked is a question of another replica, for a person whom that replica knows.
type asked struct {
	Who     route.Who
	Account *route.Account
	Body    json.RawMessage
}

// replied is the answer.
type replied struct {
	Answer  json.RawMessage `json:",omitempty"`
	Problem *route.Problem  `json:",omitempty"`
}

// Ask asks all other replicas a question at once. It is [gather.Others].
func (f *Front) Ask(ctx context.Context, who route.Who, question string, body []byte) []gather.Answer {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	peers := f.peers()
	answers := make([]gather.Answer, len(peers))
	var asking sync.WaitGroup
	for i, peer := range peers {
		asking.Go(func() { answers[i] = f.askPeer(ctx, peer, who, question, body) })
	}
	asking.Wait()
	return answers
}

// peers returns the other replicas.
func (f *Front) peers() (peers []ownership.Replica) {
	for _, r := range f.Group.Replicas() {
		if !r.Self {
			peers = append(peers, r)
		}
	}
	return peers
}

// AskOne asks one replica a question. It is [gather.Others].
func (f *Front) AskOne(ctx context.Context, replica string, who route.Who, question string, body []byte) gather.Answer {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	to, ok := f.Group.Named(replica)
	if !ok {
		return gather.Answer{Of: replica, Err: errNoOwner}
	}
	return f.askPeer(ctx, to, who, question, body)
}

// Owner returns the name of the replica that owns the repository of a page, or "" if this one answers for it. It is [gather.Others].
func (f *Front) Owner(c *route.Call, pattern string) string {
	r := route.Route{Method: http.MethodGet, Pattern: pattern}
	if f.Home != f.Group.Name && isOfPeople(r) {
		return f.Home
	}
	repo := f.repoOf(c, r)
	if repo == "" || f.isHere(c.R.Context(), repo) {
		return ""
	}
	owner, ok := f.Group.Find(repo)
	if !ok {
		return ""
	}
	return owner.Name
}

func (f *Front) askPeer(ctx context.Context, to ownership.Replica, who route.Who, question string, body []byte) gather.Answer {
	a := gather.Answer{Of: to.Name}
	if to.URL == "" {
		a.Err = errNoOwner
		return a
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		a.Err = errCrowded
		return a
	}
	b, err := json.Marshal(asked{who, who.Account, body})
	if err != nil {
		a.Err = err
		return a
	}
	var r replied
	a.Err = f.ask(ctx, to, http.MethodPost, "/replica/question?"+url.Values{"name": {question}}.Encode(), bytes.NewReader(b), &r)
	a.Body, a.Problem = r.Answer, r.Problem
	if a.Err != nil {
		f.Log.Info("a replica does not answer a question", "replica", to.Name, "question", question, "err", a.Err)
	}
	return a
}

func (f *Front) serveQuestion(w http.ResponseWriter, r *http.Request) {
	q, err := f.readAsked(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	v, err := f.Desk.Answer(r.Context(), q.Who, r.URL.Query().Get("name"), q.Body)
	var out replied
	if err == nil {
		out.Answer, err = json.Marshal(v)
	}
	if err != nil {
		p := route.AsProblem(err, q.Who)
		if p.Status >= http.StatusInternalServerError {
			f.Log.Error("cannot answer a question of another replica", "from", r.Header.Get(headerFrom), "err", err)
			http.Error(w, p.Detail, p.Status)
			return
		}
		out = replied{Problem: p}
	}
	answer(w, out)
}

// readAsked reads the question of another replica.
func (f *Front) readAsked(r *http.Request) (q asked, err error) {
	if f.Desk == nil {
		return q, errors.New("this replica answers no questions")
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, peekMax)).Decode(&q); err != nil {
		return q, fmt.Errorf("cannot read the question: %w", err)
	}
	q.Who.Account = q.Account
	return q, nil
}
