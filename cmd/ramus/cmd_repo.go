package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gitd"
)

func repoCommand() command {
	return command{
		name: "repo", args: "create|import|list|show|refresh|verify|rename|move|rm",
		short: "create, import, list, show, refresh, verify, rename, move and remove repositories",
		subs: []command{
			repoCreateCommand(), repoImportCommand(), repoListCommand(), repoShowCommand(), repoRefreshCommand(),
			repoVerifyCommand(), repoRenameCommand(), repoMoveCommand(), repoRemoveCommand(),
		},
	}
}

// setJSON declares the flag --json.
func setJSON(fs *flag.FlagSet, e *env) { fs.BoolVar(&e.json, "json", false, "as JSON") }

func repoCreateCommand() command {
	return command{
		name: "create", args: "NAME", short: "create an empty repository", set: setJSON,
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 1, "NAME"); err != nil {
				return err
			}
			return createRepo(ctx, e, gateway.CreateRepo{Name: args[0]})
		},
	}
}

func repoImportCommand() command {
	return command{
		name: "import", args: "NAME PATH-OR-URL", short: "create a repository from another, with its branches and tags",
		set: setJSON,
		long: `
The source is anything that git can clone. "ramus repo refresh" fetches from it
again. A failed import leaves nothing.`,
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 2, 2, "NAME or PATH-OR-URL"); err != nil {
				return err
			}
			return createRepo(ctx, e, gateway.CreateRepo{Name: args[0], Source: absolute(args[1])})
		},
	}
}

func repoListCommand() command {
	return command{
		name: "list", args: "", short: "list repositories", set: setJSON,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 0, "")
			if err != nil {
				return err
			}
			list, err := c.Repos(ctx)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(list)
			}
			var rows [][]string
			for _, r := range list {
				at := r.CloneURL
				if at == "" {
					at = r.Dir
				}
				rows = append(rows, []string{r.Name, r.Base, short(string(r.Head)), at, r.Upstream,
					strings.TrimPrefix(e.refreshed(r.Status)+", "+e.mirrored(r.Mirror), ", ")})
			}
			return e.table([]string{"REPO", "BASE", "HEAD", "AT", "UPSTREAM", "REFRESHED"}, rows)
		},
	}
}

func repoRefreshCommand() command {
	var (
		commit string
		wait   bool
		rebase bool
		reset  bool
	)
	return command{
		name: "refresh", args: "NAME [--commit COMMIT | --rebase | --reset] [--wait]",
		short: "bring the base to its upstream's newest commit",
		long: `
The upstream is the one in the configuration, or else the source of the import. A
signed manifest records the new base. A base that has commits which upstream lacks
may have diverged. Then the command fails and changes nothing, unless --rebase or
--reset says what to do with these commits. --rebase replays them on upstream's
newest commit. --reset leaves them out. The command prints what happened to each of
them, and a ref that keeps all of them.`,
		set: func(fs *flag.FlagSet, e *env) {
			setJSON(fs, e)
			fs.StringVar(&commit, "commit", "", "`commit` of the upstream's branch to stop at (default its newest)")
			fs.BoolVar(&rebase, "rebase", false, "replay the commits that upstream lacks on its newest commit")
			fs.BoolVar(&reset, "reset", false, "leave out the commits that upstream lacks")
			fs.BoolVar(&wait, "wait", false, "wait until the base's dependencies are in the cache")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "NAME")
			if err != nil {
				return err
			}
			ask := gateway.RefreshRepo{Commit: gitd.Hash(commit), Wait: wait, By: asker(ctx, e)}
			switch {
			case rebase && reset, (rebase || reset) && commit != "":
				return usage("--commit, --rebase and --reset exclude each other")
			case rebase:
				ask.Repair = gitd.RepairRebase
			case reset:
				ask.Repair = gitd.RepairReset
			}
			done, err := c.RefreshRepo(ctx, args[0], ask, e.progressLine)
			if err != nil {
				return err
			}
			r := done.Refreshed
			if !e.json {
				e.printOwn(*r)
			}
			switch {
			case e.json:
				if err := e.writeJSON(done); err != nil {
					return err
				}
			case r.Old != r.New:
				fmt.Fprintf(e.out, "%s moved from %s to %s\n", r.Branch, short(string(r.Old)), short(string(r.New)))
			case r.Commit != r.New:
				fmt.Fprintf(e.out, "%s stays at %s, which contains %s\n", r.Branch, short(string(r.New)),
					short(string(r.Commit)))
			default:
				fmt.Fprintf(e.out, "%s is up to date at %s\n", r.Branch, short(string(r.New)))
			}
			if done.Base != nil && !e.json {
				fmt.Fprintf(e.out, "manifest %s\n", done.Base.Ref)
			}
			if done.Cold != "" {
				return &exitStatus{exitFailed,
					fmt.Errorf("the base is refreshed, but its dependencies are not in the cache: %s", done.Cold)}
			}
			return nil
		},
	}
}

// printOwn prints the fate of each commit that upstream lacked in a repair.
func (e *env) printOwn(r gitd.Refreshed) {
	for _, c := range r.Own {
		fate := "left out, because " + c.Why
		switch c.New {
		case "":
		case c.Commit:
			fate = "unchanged"
		default:
			fate = "replayed as " + short(string(c.New))
		}
		fmt.Fprintf(e.out, "%s  %s  %s\n", short(string(c.Commit)), e.oneLine(c.Subject, 60), fate)
	}
	if r.Kept != "" {
		fmt.Fprintf(e.out, "kept at %s\n", r.Kept)
	}
}

func repoVerifyCommand() command {
	var (
		most int
		key  bool
	)
	return command{
		name: "verify", args: "NAME [-n N] [--key]", short: "check the signed manifests of the base",
		long: `
Each manifest is checked against the server's key, and against the repository. --key
prints the key as a line of an allowed_signers file, for checks without ramus:

    git show REF:base.json >base.json; git show REF:base.json.sig >base.json.sig
    ssh-keygen -Y verify -f SIGNERS -I ramus -n ramus-base -s base.json.sig <base.json`,
		set: func(fs *flag.FlagSet, e *env) {
			setJSON(fs, e)
			fs.IntVar(&most, "n", 1, "check the `N` newest")
			fs.BoolVar(&key, "key", false, "print the key, and check nothing")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "NAME")
			if err != nil {
				return err
			}
			list, err := c.Bases(ctx, args[0], most)
			switch {
			case err != nil:
				return err
			case key:
				_, err := fmt.Fprint(e.out, list.Key)
				return err
			case e.json:
				if err := e.writeJSON(list); err != nil {
					return err
				}
			case len(list.Bases) == 0:
				return &exitStatus{exitNotFound,
					fmt.Errorf("%s has no manifest of its base; `ramus repo refresh %[1]s` makes one", args[0])}
			}
			bad := 0
			for _, b := range list.Bases {
				word := "ok"
				if !b.Valid {
					bad++
					word = b.Problem
				}
				if !e.json {
					fmt.Fprintf(e.out, "%s  %s at %s  %d lock files  %s\n", b.Ref, b.Branch, short(string(b.Commit)),
						len(b.Lockfiles), e.safe(word))
				}
			}
			if bad > 0 {
				return &exitStatus{exitFailed, fmt.Errorf("%d of %d manifests are invalid", bad, len(list.Bases))}
			}
			return nil
		},
	}
}

// refreshed returns the age of a base, and its problems.
func (e *env) refreshed(s upstream.Status) string {
	text := ""
	if !s.Refreshed.IsZero() {
		text = ago(s.Refreshed)
	}
	if s.Shallow {
		text += ", shallow"
	}
	if s.Waiting > 0 {
		text += fmt.Sprintf(", %d deploys wait", s.Waiting)
	}
	if s.Error != "" {
		text += ", failing: " + e.oneLine(s.Error, 80)
	}
	return strings.TrimPrefix(text, ", ")
}

func createRepo(ctx context.Context, e *env, n gateway.CreateRepo) error {
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	r, err := c.CreateRepo(ctx, n, e.progressLine)
	if err != nil {
		return err
	}
	if e.json {
		return e.writeJSON(r)
	}
	fmt.Fprintf(e.out, "%s is ready, base %s %s\n", r.Name, r.Base, short(string(r.Head)))
	return nil
}

// progressLine shows a line of git's progress. A terminal shows each line in place of the one before, and a log only
// finished steps.
func (e *env) progressLine(text string) {
	if isTerminal(e.err) {
		fmt.Fprintf(e.err, "\r\x1b[K%s", e.oneLine(text, 78))
		if strings.HasSuffix(text, "done.") {
			fmt.Fprintln(e.err)
		}
		return
	}
	if !strings.Contains(text, "% (") || strings.HasSuffix(text, "done.") {
		fmt.Fprintln(e.err, e.oneLine(text, 200))
	}
}
