package mcp

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/executor/provenance"
	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/replay"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/route"
)

// maxWhyLines limits the lines of one call, so that the answer fits into a result.
const maxWhyLines = 200

// bisectTool returns the tool that finds the first bad commit.
func (api *API) bisectTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "bisect",
			Description: `Find the first commit of a branch at which a command fails. Several commits are tried at ` +
				`once, each in a container of its own. Exit status 0 is good, 125 means that the commit cannot be ` +
				`tried, 1 to 127 are bad. The answer is the commit with the command that made it, its prompt, its ` +
				`person and its diff. Nothing is changed. With dry nothing runs.`,
			Schema: catalog.Object(`"of":{"type":"string","description":"A caller, or a branch.","minLength":1,`+
				`"maxLength":300},`+
				`"command":{"type":"string","description":"A shell line.","minLength":1,"maxLength":65536},`+
				`"task":{"type":"string","description":"In place of a command: a task of the library, such as `+
				`lib_run_tests.","minLength":1,"maxLength":64},`+
				`"spec":{"type":"string","description":"In place of a command: a spec of a browser check, as YAML. A `+
				`commit is bad if its pictures differ from those of the good commit.","minLength":1,"maxLength":65536},`+
				`"region":{"type":"array","description":"The part of the pictures that counts: left, top, width and `+
				`height in CSS pixels.","items":{"type":"integer","minimum":0,"maximum":32768},"minItems":4,"maxItems":4},`+
				`"good":{"type":"string","description":"A commit at which the command succeeds; for a caller, the `+
				`one from which its branch began if it is missing.","maxLength":300},`+
				`"bad":{"type":"string","description":"A commit at which it fails; the last one if it is missing.",`+
				`"maxLength":300},`+
				`"width":{"type":"integer","description":"Commits that are tried at once; 4 if it is missing.",`+
				`"minimum":1,"maximum":16},`+
				`"fresh":{"type":"boolean","description":"Ignore the results of earlier searches."},`+
				`"dry":{"type":"boolean","description":"Show the plan, and run nothing."},`+
				`"repo":`+catalog.RepoProperty, "of"),
		},
		Output: schemaFor[past.BisectFound](), Access: route.AccessWrite, Hints: toolHints{Open: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Of      string `json:"of"`
				Command string `json:"command"`
				Task    string `json:"task"`
				Spec    string `json:"spec"`
				Region  []int  `json:"region"`
				Good    string `json:"good"`
				Bad     string `json:"bad"`
				Width   int    `json:"width"`
				Fresh   bool   `json:"fresh"`
				Dry     bool   `json:"dry"`
				Repo    string `json:"repo"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			b := past.Bisect{Of: a.Of, Repo: a.Repo, Good: a.Good, Bad: a.Bad, Width: a.Width, Fresh: a.Fresh, Dry: a.Dry}
			if a.Command != "" {
				b.Command = &record.Command{Shell: a.Command}
			}
			if a.Task != "" {
				b.Task = &record.TaskCall{Name: a.Task}
			}
			if a.Spec != "" {
				b.Picture = &trial.Picture{Spec: a.Spec, Region: a.Region}
			}
			found, err := api.Past.Bisect(ctx, who, b, func(p trial.Progress) {
				if !p.Ended {
					c.tell(fmt.Sprintf("round %d, %d steps are left", p.Round, p.Left))
				}
			})
			return toolResult{value: found}, err
		},
	}
}

// undoTool returns the tool that takes a merged run out of its base.
func (api *API) undoTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "undo",
			Description: `Take the work of a merged run out of its base, by one commit, although later work builds ` +
				`on it. With dry nothing is changed. A conflict changes nothing either, and names the files and the ` +
				`later commits.`,
			Schema: catalog.Object(runProperty+`,`+changeProperties, "run"),
		},
		Output: schemaFor[past.Changed](), Access: route.AccessWrite, Hints: toolHints{Destructive: true,
			Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Run  string `json:"run"`
				Into string `json:"into"`
				Here bool   `json:"here"`
				Dry  bool   `json:"dry"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			run, err := api.ownRun(ctx, who, a.Run)
			if err != nil {
				return toolResult{}, err
			}
			done, err := api.Past.Undo(ctx, who, run, past.Undo{Into: a.Into, Here: a.Here, Dry: a.Dry})
			return changedResult(done), err
		},
	}
}

// pickTool returns the tool that brings steps of a run to its base.
func (api *API) pickTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "pick",
			Description: `Bring single steps of a run to its base, each as a commit. With dry nothing is changed. A ` +
				`conflict changes nothing either, and names the files and the later commits.`,
			Schema: catalog.Object(runProperty+`,`+changeProperties+
				`,"steps":{"type":"array","description":"The steps, by their names or their commits, of which seven digits suffice.","minItems":1,`+
				`"maxItems":1000,"items":{"type":"string","maxLength":300}}`,
				"run", "steps"),
		},
		Output: schemaFor[past.Changed](), Access: route.AccessWrite, Hints: toolHints{Destructive: true,
			Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Run   string   `json:"run"`
				Steps []string `json:"steps"`
				Into  string   `json:"into"`
				Here  bool     `json:"here"`
				Dry   bool     `json:"dry"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			run, err := api.ownRun(ctx, who, a.Run)
			if err != nil {
				return toolResult{}, err
			}
			done, err := api.Past.Pick(ctx, who, run, past.Pick{Undo: past.Undo{Into: a.Into, Here: a.Here, Dry: a.Dry}, Steps: a.Steps})
			return changedResult(done), err
		},
	}
}

// replayTool returns the tool that runs the commands of a run again.
func (api *API) replayTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name:        "replay",
			Description: `Run the commands of a run again, each from the commit from which it began, in a new container, and compare the files, the exit status and the outputs. The verdict is kept with the run. Nothing that exists is changed. With dry nothing runs.`,
			Schema: catalog.Object(runProperty+
				`,"steps":{"type":"array","description":"The steps to run again; all if it is missing.","maxItems":1000,"items":{"type":"string","maxLength":300}}`+
				`,"times":{"type":"integer","description":"How often each is run; once if it is missing.","minimum":1,"maximum":10}`+
				`,"dry":{"type":"boolean","description":"Show the commands, and run nothing."}`, "run"),
		},
		Output: schemaFor[replay.Verdict](), Access: route.AccessWrite, Hints: toolHints{Open: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Run   string   `json:"run"`
				Steps []string `json:"steps"`
				Times int      `json:"times"`
				Dry   bool     `json:"dry"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			run, err := api.ownRun(ctx, who, a.Run)
			if err != nil {
				return toolResult{}, err
			}
			v, err := api.Past.Replay(ctx, who, run, past.Replay{Steps: a.Steps, Times: a.Times, Dry: a.Dry}, func(done replay.Checked) {
				c.tell(done.Step + ": " + string(done.Result))
			})
			return toolResult{value: v}, err
		},
	}
}

// Properties of tools that change a branch.
const (
	runProperty = `"run":{"type":"string","description":"The run's name, as a tool returned it.","minLength":1,` +
		`"maxLength":300}`
	changeProperties = `"into":{"type":"string","description":"The branch; the base of the run if it is missing.","maxLength":300},` +
		`"here":{"type":"boolean","description":"Change this server's branch alone, although the repository has an upstream."},` +
		`"dry":{"type":"boolean","description":"Show the commits, and change nothing."}`
)

// changedResult returns the result of undo and pick. A conflict is a failure.
func changedResult(c past.Changed) toolResult {
	return toolResult{value: c, failed: c.Landed != nil && len(c.Landed.Conflicts) > 0}
}

// ownRun returns a run that the bearer may change.
func (api *API) ownRun(ctx context.Context, who route.Who, name string) (record.Run, error) {
	run, err := api.Find.Run(ctx, who, name)
	if err == nil {
		err = who.CheckChangeRun(run)
	}
	return run, err
}

// whyTool returns the tool that explains lines of a file.
func (api *API) whyTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "why",
			Description: `Explain why lines of a file are as they are: the command or the agent's turn that wrote ` +
				`each line, with its output, its prompt, the person who asked, the pull request or the issue, and ` +
				`the checks that ran after it. It looks through merges, squashes and renames.`,
			Schema: catalog.Object(`"path":{"type":"string",`+
				`"description":"The file, from the root of the repository.","minLength":1,"maxLength":4096},`+
				`"line":{"type":"integer","description":"The first line, from 1.","minimum":1},`+
				`"to":{"type":"integer","description":"The last line; the same one if it is missing, and at most `+
				`200 lines in all.","minimum":1},`+
				`"of":{"type":"string","description":"A caller, or a branch, tag or commit; the repository's base `+
				`if it is missing.","maxLength":300},`+
				`"repo":`+catalog.RepoProperty, "path", "line"),
		},
		Output: schemaFor[provenance.Answer](), Access: route.AccessRead, Hints: toolHints{ReadOnly: true,
			Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var w past.Why
			if err := c.read(&w); err != nil {
				return toolResult{}, err
			}
			if w.To-w.Line >= maxWhyLines {
				return toolResult{}, route.NewProblem(route.KindTooLarge, "%d lines are too many: at most %d at once",
					w.To-w.Line+1, maxWhyLines)
			}
			answer, err := api.Past.Why(ctx, who, w)
			return toolResult{value: answer}, err
		},
	}
}

// radarTool returns the tool that lists the branches that do not merge.
func (api *API) radarTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "radar",
			Description: `List the live branches of a repository that do not merge with each other or with the base, with the files and the lines. ` +
				`Ask before you begin a large change, and before you propose a merge.`,
			Schema: catalog.Object(`"of":{"type":"string","description":"A caller or a branch, to which the conflicts are limited.","maxLength":300},` +
				`"repo":` + catalog.RepoProperty),
		},
		Output: schemaFor[radar.Report](), Access: route.AccessRead, Hints: toolHints{ReadOnly: true, Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Of   string `json:"of"`
				Repo string `json:"repo"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			rep, err := api.Past.Radar(ctx, who, past.Radar{Repo: a.Repo, Of: a.Of})
			return toolResult{value: rep}, err
		},
	}
}
