package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/ramus-dev/ramus/executor/provenance"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/gateway/past"
)

// Why explains lines of a file.
func (c *Client) Why(ctx context.Context, w past.Why) (provenance.Answer, error) {
	return get[provenance.Answer](ctx, c, "/api/why"+query(w))
}

// Bisect finds the first bad commit. begin is called with the plan, and tell with each step forward. With
// [past.Bisect.Dry] the answer is zero.
func (c *Client) Bisect(ctx context.Context, b past.Bisect, begin func(trial.Plan),
	tell func(trial.Progress)) (past.BisectFound, error) {
	var none past.BisectFound
	body, err := json.Marshal(b)
	if err != nil {
		return none, err
	}
	resp, err := c.send(ctx, "POST", "/api/bisect", bytes.NewReader(body),
		http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return none, err
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	for {
		var l past.BisectLine
		if err := d.Decode(&l); err != nil {
			return none, broken(ctx, err)
		}
		switch {
		case l.Problem != nil:
			return none, l.Problem
		case l.Found != nil:
			return *l.Found, nil
		case l.Plan != nil:
			begin(*l.Plan)
			if b.Dry {
				return none, nil
			}
		case l.Progress != nil:
			tell(*l.Progress)
		}
	}
}

// Undo takes the work of a run out of a branch. A conflict is a result and not an error.
func (c *Client) Undo(ctx context.Context, run string, u past.Undo) (past.Changed, error) {
	return post[past.Changed](ctx, c, "/api/runs/"+segment(run)+"/undo", u)
}

// Pick brings steps of a run to a branch. A conflict is a result and not an error.
func (c *Client) Pick(ctx context.Context, run string, p past.Pick) (past.Changed, error) {
	return post[past.Changed](ctx, c, "/api/runs/"+segment(run)+"/pick", p)
}
