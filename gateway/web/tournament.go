package web

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/tournament"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// entryTable is the tournament of a run, with its entries by place.
type entryTable struct {
	Name    string
	Rows    []entryRow
	Opinion string   // of a model; empty means none
	topics  []string // of the entries
}

type entryRow struct {
	Name, Agent, Path string
	Current           bool // it is the entry of the page
	Place             string
	Badge             Badge
	Checks, Cost      string
	Diff, Took, By    string
}

// tournamentTables makes the tables of tournaments.
type tournamentTables struct {
	executor *executor.Executor
	git      *gitd.Server
}

// tournamentOf returns the tournament that a run is an entry of. Returns nil if there is none, or if the person does not
// see all of its entries.
func (m *tournamentTables) tournamentOf(ctx context.Context, who route.Who, r record.Run) (*entryTable, error) {
	i := strings.LastIndexByte(r.Caller.ID(), '-')
	if i < 0 {
		return nil, nil
	}
	repo, err := m.git.Repo(r.Repo)
	if err != nil {
		return nil, nil // it was removed
	}
	t, err := tournament.Read(ctx, repo, r.Caller.ID()[:i])
	if errors.Is(err, gitd.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if _, ok := t.Plan.Entry(r.Caller.String()); !ok {
		return nil, nil
	}
	return m.entryTable(ctx, who, repo, t, r.Caller)
}

// maxForked is how many tournaments the page of the caller that they were forked from shows.
const maxForked = 3

// tournamentsFrom returns the newest tournaments that were forked from a caller, except those of which the person does not
// see all entries.
func (m *tournamentTables) tournamentsFrom(ctx context.Context, who route.Who, s workspace.Workspace) (list []*entryTable, err error) {
	repo, err := m.git.Repo(s.Repository)
	if err != nil {
		return nil, nil // it was removed
	}
	all, err := tournament.List(ctx, repo)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t tournament.Record) bool { return t.Of != s.Caller.String() })
	slices.SortStableFunc(all, func(a, b tournament.Record) int { return b.Time.Compare(a.Time) })
	for _, t := range all {
		if len(list) == maxForked {
			break
		}
		table, err := m.entryTable(ctx, who, repo, t, record.Caller{})
		if err != nil {
			return nil, err
		}
		if table != nil {
			list = append(list, table)
		}
	}
	return list, nil
}

// entryTable returns the table of a tournament. Returns nil if the person does not see all entries. current is the entry
// of the page, or zero.
func (m *tournamentTables) entryTable(ctx context.Context, who route.Who, repo *gitd.Repo, t tournament.Record,
	current record.Caller) (*entryTable, error) {
	for _, e := range t.Entries {
		if !who.SeesBranch(t.Repo, e.Caller.Branch()) {
			return nil, nil
		}
	}
	s, err := tournament.Look(ctx, repo, m.executor, t)
	if err != nil {
		return nil, err
	}
	table := &entryTable{Name: t.Name}
	for _, p := range s.Places {
		row := entryRowOf(p, p.Caller == s.Taken)
		row.Current = p.Caller == current
		if runs := m.executor.OfCaller(p.Caller); len(runs) > 0 && !row.Current {
			row.Path = runPath(runs[0])
			table.topics = append(table.topics, live.RunTopic(runs[0]))
		}
		table.Rows = append(table.Rows, row)
	}
	if s.Opinion != nil {
		table.Opinion = render.OneLine(s.Opinion.Words, 2000)
	}
	return table, nil
}

func entryRowOf(p tournament.Place, taken bool) entryRow {
	row := entryRow{Name: p.Caller.ID(), Agent: p.Agent, Badge: Badge{"Works", "live"}, By: string(p.By)}
	switch {
	case p.Refused != "":
		row.Badge = Badge{"Did not begin", "bad"}
	case p.Ended:
		row.Badge = verdictBadge(p.Verdict)
	case p.State == record.StateAwaitingReview:
		row.Badge = Badge{"Waits", "warn"}
	case p.Run == "":
		row.Badge = Badge{"Not begun", ""}
	}
	switch {
	case taken:
		row.By = "taken"
	case p.Dropped:
		row.By = "dropped"
	}
	if p.Place == 0 {
		return row
	}
	row.Place = fmt.Sprint(p.Place)
	switch {
	case p.Failed > 0:
		row.Checks = fmt.Sprintf("%d passed, %d failed", p.Passed, p.Failed)
	case p.Passed > 0:
		row.Checks = fmt.Sprintf("%d passed", p.Passed)
	default:
		row.Checks = "no checks"
	}
	row.Diff = fmt.Sprintf("+%d −%d", p.Added, p.Deleted)
	row.Took = render.Duration(time.Duration(p.DurationMS) * time.Millisecond)
	if p.CostMicros > 0 {
		row.Cost = cost(p.CostMicros)
	}
	return row
}
