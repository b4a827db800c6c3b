package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"github.com/ramus-dev/ramus/executor/provenance"
	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/executor/replay"
	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/executor/search"
	"github.com/ramus-dev/ramus/executor/tournament"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/gateway/past"
)

// Why explains lines of a file.
func (c *Client) Why(ctx context.Context, w past.Why) (provenance.Answer, error) {
	return get[provenance.Answer](ctx, c, "/api/why"+query(w))
}

// Radar lists the live branches of a repository and their conflicts.
func (c *Client) Radar(ctx context.Context, q past.Radar) (radar.Report, error) {
	return get[radar.Report](ctx, c, "/api/radar"+query(q))
}

// Search finds words in runs.
func (c *Client) Search(ctx context.Context, q past.Search) (search.Answer, error) {
	return get[search.Answer](ctx, c, "/api/search"+query(q))
}

// Verify compares sealed runs with the chain of their seals.
func (c *Client) Verify(ctx context.Context, q past.Verify) (seal.Report, error) {
	return get[seal.Report](ctx, c, "/api/verify"+query(q))
}

// Bisect finds the first bad commit. begin is called with the plan, and tell with each step forward. With
// [past.Bisect.Dry] the answer is zero.
func (c *Client) Bisect(ctx context.Context, b past.Bisect, begin func(trial.Plan), tell func(trial.Progress)) (past.BisectFound, error) {
	var found past.BisectFound
	err := lines(ctx, c, "/api/bisect", b, func(l past.BisectLine) (done bool, err error) {
		switch {
		case l.Problem != nil:
			return true, l.Problem
		case l.Found != nil:
			found = *l.Found
			return true, nil
		case l.Plan != nil:
			begin(*l.Plan)
			return b.Dry, nil
		case l.Progress != nil:
			tell(*l.Progress)
		}
		return false, nil
	})
	return found, err
}

// lines posts a request whose answer is a stream of lines, and calls each with them until it is done.
func lines[T any](ctx context.Context, c *Client, path string, request any, each func(T) (done bool, err error)) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return stream(ctx, c, "POST", path, bytes.NewReader(body), each)
}

// stream sends a request whose answer is a stream of lines, and calls each with them until it is done.
func stream[T any](ctx context.Context, c *Client, method, path string, body io.Reader, each func(T) (done bool, err error)) error {
	var header http.Header
	if body != nil {
		header = http.Header{"Content-Type": {"application/json"}}
	}
	resp, err := c.send(ctx, method, path, body, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	for {
		var l T
		if err := d.Decode(&l); err != nil {
			return broken(ctx, err)
		}
		if done, err := each(l); done || err != nil {
			return err
		}
	}
}

// Replay runs the commands of a run again. begin is called with its commands, and tell with each that is done. With
// [past.Replay.Dry] the verdict is zero.
func (c *Client) Replay(ctx context.Context, run string, q past.Replay, begin func([]replay.Command), tell func(replay.Checked)) (replay.Verdict, error) {
	var v replay.Verdict
	err := lines(ctx, c, "/api/runs/"+segment(run)+"/replay", q, func(l past.ReplayLine) (done bool, err error) {
		switch {
		case l.Problem != nil:
			return true, l.Problem
		case l.Verdict != nil:
			v = *l.Verdict
			return true, nil
		case l.Plan != nil:
			begin(l.Plan)
			return q.Dry, nil
		case l.Done != nil:
			tell(*l.Done)
		}
		return false, nil
	})
	return v, err
}

// Undo takes the work of a run out of a branch. A conflict is a result and not an error.
func (c *Client) Undo(ctx context.Context, run string, u past.Undo) (past.Changed, error) {
	return post[past.Changed](ctx, c, "/api/runs/"+segment(run)+"/undo", u)
}

// Pick brings steps of a run to a branch. A conflict is a result and not an error.
func (c *Client) Pick(ctx context.Context, run string, p past.Pick) (past.Changed, error) {
	return post[past.Changed](ctx, c, "/api/runs/"+segment(run)+"/pick", p)
}

// BeginTournament has several agents do one task. With [past.Tournament.Dry] nothing begins.
func (c *Client) BeginTournament(ctx context.Context, q past.Tournament) (tournament.Standing, error) {
	return post[tournament.Standing](ctx, c, "/api/tournaments", q)
}

// Tournaments lists the tournaments of a repository, or of all if repo is empty, the newest first.
func (c *Client) Tournaments(ctx context.Context, repo string) ([]tournament.Record, error) {
	return get[[]tournament.Record](ctx, c, "/api/tournaments?repo="+url.QueryEscape(repo))
}

// Tournament returns a tournament with its places.
func (c *Client) Tournament(ctx context.Context, name string) (tournament.Standing, error) {
	return get[tournament.Standing](ctx, c, "/api/tournaments/"+segment(name))
}

// FollowTournament waits until the entries of a tournament have ended. tell is called with each that begins or ends.
func (c *Client) FollowTournament(ctx context.Context, name string, tell func(tournament.Result)) (tournament.Standing, error) {
	var s tournament.Standing
	err := stream(ctx, c, "GET", "/api/tournaments/"+segment(name)+"/follow", nil, func(l past.TournamentLine) (done bool, err error) {
		switch {
		case l.Problem != nil:
			return true, l.Problem
		case l.Standing != nil:
			s = *l.Standing
			return true, nil
		case l.Moved != nil:
			tell(*l.Moved)
		}
		return false, nil
	})
	return s, err
}

// JudgeTournament asks the configured model about a tournament that has ended. The answer is as without it if there is
// none.
func (c *Client) JudgeTournament(ctx context.Context, name string) (tournament.Standing, error) {
	return post[tournament.Standing](ctx, c, "/api/tournaments/"+segment(name)+"/judge", nil)
}

// TakeEntry takes the work of an entry of a tournament. A conflict is a result and not an error.
func (c *Client) TakeEntry(ctx context.Context, name string, q past.Take) (past.Took, error) {
	return post[past.Took](ctx, c, "/api/tournaments/"+segment(name)+"/take", q)
}

// Fork begins a new caller at a step or a commit of another one.
func (c *Client) Fork(ctx context.Context, q past.Fork) (past.Forked, error) {
	return post[past.Forked](ctx, c, "/api/forks", q)
}
