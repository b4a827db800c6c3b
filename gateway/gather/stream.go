package gather

import (
	"context"
	"encoding/json"

	"github.com/ramus-dev/ramus/gateway/route"
)

// Stream is a question whose answer goes on until the person leaves.
type Stream[Q, E any] struct {
	desk *Desk
	name string
}

// NewStream returns a stream that each replica feeds by own, which calls send until ctx ends or send returns an error. All replicas call it
// with the same name. A nil desk is that of the only server.
func NewStream[Q, E any](d *Desk, name string, own func(ctx context.Context, who route.Who, q Q, send func(E) error) error) *Stream[Q, E] {
	if d != nil {
		if d.streams == nil {
			d.streams = map[string]func(context.Context, route.Who, []byte, func(any) error) error{}
		}
		d.streams[name] = func(ctx context.Context, who route.Who, body []byte, send func(any) error) error {
			var q Q
			if err := json.Unmarshal(body, &q); err != nil {
				return route.NewProblem(route.KindInvalid, "cannot read the question %s: %v", name, err)
			}
			return own(ctx, who, q, func(e E) error { return send(e) })
		}
	}
	return &Stream[Q, E]{d, name}
}

// Stream feeds a stream of another replica from this one.
func (d *Desk) Stream(ctx context.Context, who route.Who, question string, body []byte, send func(any) error) error {
	feed := d.streams[question]
	if feed == nil {
		return route.NotFound("question", question)
	}
	return feed(ctx, who.Under(d.Veil), body, send)
}

// Follow calls each with the events of the other replicas, one at a time for each replica, until ctx ends. It calls lost when something
// of a replica may have been lost. The events of this replica are not among them.
func (s *Stream[Q, E]) Follow(ctx context.Context, who route.Who, in Q, each func(E), lost func()) {
	if s.desk.Alone() {
		<-ctx.Done()
		return
	}
	body, err := json.Marshal(in)
	if err != nil {
		return
	}
	s.desk.Others.Follow(ctx, who, s.name, body, func(line []byte) {
		var e E
		if json.Unmarshal(line, &e) == nil {
			each(e)
		}
	}, lost)
}
