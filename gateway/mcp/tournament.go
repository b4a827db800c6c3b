package mcp

import (
	"context"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/tournament"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/route"
)

const tournamentProperty = `"tournament":{"type":"string","description":"The name of the tournament.",` +
	`"minLength":1,"maxLength":100}`

// tournamentTools returns the tools that begin a tournament, list and show tournaments, and take an entry.
func (api *API) tournamentTools(who route.Who) []usableTool {
	return []usableTool{api.beginTournamentTool(who), api.listTournamentsTool(who), api.getTournamentTool(who),
		api.judgeTournamentTool(who), api.takeEntryTool(who)}
}

// tournamentList is the answer of list_tournaments.
type tournamentList struct {
	Tournaments []tournament.Record `json:"tournaments"`
	missing
}

func (api *API) listTournamentsTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name:        "list_tournaments",
			Description: `List the tournaments, the newest first, with their tasks and entries. get_tournament shows one with its places.`,
			Schema:      catalog.Object(`"repo":` + catalog.RepoProperty),
		},
		Output: schemaFor[tournamentList](), Access: route.AccessRead,
		Hints: toolHints{ReadOnly: true, Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Repo string `json:"repo"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			list, lack, err := askAll(ctx, api.lists.tournaments, who, a.Repo, func(t tournament.Record) time.Time { return t.Time })
			return toolResult{value: tournamentList{list, lack}}, err
		},
	}
}

func (api *API) beginTournamentTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "begin_tournament",
			Description: `Have several agents do one task side by side, each in a caller of its own that begins at the ` +
				`same commit. It returns when all have begun; get_tournament shows them, ranked by evidence. With dry nothing begins.`,
			Schema: catalog.Object(`"task":`+catalog.PromptProperty("The task, for each agent.")+
				`,"agents":{"type":"array","description":"The agents, by their names in the configuration.",`+
				`"minItems":1,"maxItems":12,"items":{"type":"string","maxLength":64}},`+
				`"each":{"type":"integer","description":"How often each agent works; once if it is missing.",`+
				`"minimum":1,"maximum":12},`+
				`"of":{"type":"string","description":"A caller, CALLER@STEP or CALLER@COMMIT, from which all entries are `+
				`forked.","maxLength":300},`+
				`"checks":{"type":"array","description":"Tasks of the library that check each entry.","maxItems":10,`+
				`"items":{"type":"string","maxLength":64}},`+
				`"name":{"type":"string","description":"The name of the tournament; the same call again finds it.",`+
				`"maxLength":60},`+
				`"base":{"type":"string","description":"The branch from which the entries begin; the usual one if it is missing.",`+
				`"maxLength":300},`+
				`"dry":{"type":"boolean","description":"Show the entries, and begin nothing."},`+
				`"repo":`+catalog.RepoProperty, "task", "agents"),
		},
		Output: schemaFor[tournament.Standing](), Access: route.AccessWrite, Hints: toolHints{Open: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Task   string   `json:"task"`
				Agents []string `json:"agents"`
				Each   int      `json:"each"`
				Of     string   `json:"of"`
				Checks []string `json:"checks"`
				Name   string   `json:"name"`
				Base   string   `json:"base"`
				Dry    bool     `json:"dry"`
				Repo   string   `json:"repo"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			s, err := api.Past.Begin(ctx, who, past.Tournament{Task: a.Task, Agents: a.Agents, Each: a.Each, Of: a.Of,
				Checks: a.Checks, Name: a.Name, Base: a.Base, Dry: a.Dry, Repo: a.Repo})
			return toolResult{value: s}, err
		},
	}
}

func (api *API) getTournamentTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "get_tournament",
			Description: `Show the entries of a tournament, ranked by evidence: verdict, checks, size of the diff, cost ` +
				`and time.`,
			Schema: catalog.Object(tournamentProperty, "tournament"),
		},
		Output: schemaFor[tournament.Standing](), Access: route.AccessRead,
		Hints: toolHints{ReadOnly: true, Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			name, err := c.tournament()
			if err != nil {
				return toolResult{}, err
			}
			s, err := api.Past.Standing(ctx, who, name)
			return toolResult{value: s}, err
		},
	}
}

func (api *API) judgeTournamentTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "judge_tournament",
			Description: `Ask the configured model about the entries of a tournament that has ended. Its words are an ` +
				`opinion, and order only entries that are equal by evidence. An opinion on the same work is not asked for ` +
				`again.`,
			Schema: catalog.Object(tournamentProperty, "tournament"),
		},
		Output: schemaFor[tournament.Standing](), Access: route.AccessWrite, Hints: toolHints{Idempotent: true, Open: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			name, err := c.tournament()
			if err != nil {
				return toolResult{}, err
			}
			s, err := api.Past.Judge(ctx, who, name)
			return toolResult{value: s}, err
		},
	}
}

// tournament returns the only argument of a call, the name of a tournament.
func (c *toolCall) tournament() (string, error) {
	var a struct {
		Tournament string `json:"tournament"`
	}
	err := c.read(&a)
	return a.Tournament, err
}

func (api *API) takeEntryTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "take_entry",
			Description: `Merge an entry of a tournament into the base or, if it was forked from a caller, into the branch ` +
				`of the caller. With drop the branches of the other entries are removed. A conflict changes nothing, and neither does dry.`,
			Schema: catalog.Object(tournamentProperty+
				`,"entry":{"type":"string","description":"The number of the entry, or its caller.","minLength":1,"maxLength":100},`+
				`"drop":{"type":"boolean","description":"Remove the branches of the other entries."},`+
				`"into":{"type":"string","description":"The branch; the base or that of the caller if it is missing.","maxLength":300},`+
				`"here":{"type":"boolean","description":"Merge in this server alone, although the repository has an upstream."},`+
				`"dry":{"type":"boolean","description":"Show what would be merged and removed, and change nothing."}`,
				"tournament", "entry"),
		},
		Output: schemaFor[past.Took](), Access: route.AccessWrite, Hints: toolHints{Destructive: true, Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Tournament string `json:"tournament"`
				Entry      string `json:"entry"`
				Drop       bool   `json:"drop"`
				Into       string `json:"into"`
				Here       bool   `json:"here"`
				Dry        bool   `json:"dry"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			took, err := api.Past.Take(ctx, who, a.Tournament, past.Take{Entry: a.Entry, Drop: a.Drop, Dry: a.Dry,
				Merge: record.Merge{Into: a.Into, Here: a.Here}})
			return toolResult{value: took, failed: took.InTheWay()}, err
		},
	}
}
