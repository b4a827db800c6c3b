package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway"
)

func tokenCommand() command {
	var (
		n      gateway.NewToken
		scopes string
		life   time.Duration
		write  listFlag
		read   listFlag
	)
	return command{name: "token", args: "create|show", short: "make and read tokens", subs: []command{
		{
			name: "create", args: "--subject NAME [--repo NAME] [--scope read,write] [--for D]",
			short: "make a token for the API and for git",
			long: `
The token goes to RAMUS_TOKEN, to an Authorization: Bearer header, or to git as
the password. It is not kept anywhere: who loses it makes another. Scopes: read;
write (read, start runs, run commands, merge, push); admin (everything, with --repo
left out); metrics (only that). The refs bound git, the API and MCP alike: who may not
read a branch sees no run on it, and runs need refs/heads/ramus/* among the refs
that the token writes.`,
			set: func(fs *flag.FlagSet, e *env) {
				fs.StringVar(&n.Subject, "subject", "", "`name` of who will use it")
				fs.StringVar(&n.Repo, "repo", "", "`name` of the one repository it is for (default every one)")
				fs.StringVar(&scopes, "scope", "read", "`list` of read, write, admin, metrics")
				fs.DurationVar(&life, "for", 30*24*time.Hour, "`duration` of its life")
				fs.Var(&read, "ref-read", "the token sees only this `ref` (refs/heads/main, refs/heads/*); may be repeated")
				fs.Var(&write, "ref", "the token changes only this `ref`; may be repeated (default, with scope write, those of --ref-read, or else all branches and tags)")
				fs.BoolVar(&n.Force, "force", false, "git may force")
				fs.BoolVar(&n.Delete, "delete", false, "git may delete")
				fs.BoolVar(&e.json, "json", false, "as JSON, with what it stands for")
			},
			run: func(ctx context.Context, e *env, args []string) error {
				if err := want(args, 0, 0, ""); err != nil {
					return err
				}
				if n.Subject == "" {
					return usage("--subject is missing: who will use it?")
				}
				for s := range strings.SplitSeq(scopes, ",") {
					n.Scopes = append(n.Scopes, strings.TrimSpace(s))
				}
				n.Read, n.Write, n.Seconds = read, write, int64(life/time.Second)
				c, err := e.client(ctx)
				if err != nil {
					return err
				}
				t, err := c.NewToken(ctx, n)
				if err != nil {
					return err
				}
				if e.json {
					return e.writeJSON(t)
				}
				fmt.Fprintln(e.out, t.Token)
				return nil
			},
		}, {
			name: "show", args: "[TOKEN]", short: "show what a token says (default RAMUS_TOKEN)",
			long: `
It is read, not checked: whether it is still good the server knows.`,
			run: func(_ context.Context, e *env, args []string) error {
				if err := want(args, 0, 1, ""); err != nil {
					return err
				}
				token := e.getenv("RAMUS_TOKEN")
				if len(args) == 1 {
					token = args[0]
				}
				parts := strings.Split(token, ".")
				if len(parts) != 3 {
					return &unreadable{fmt.Errorf("this is no token")}
				}
				b, err := base64.RawURLEncoding.DecodeString(parts[1])
				if err != nil {
					return &unreadable{fmt.Errorf("this is no token: %w", err)}
				}
				var claims map[string]any
				if err := json.Unmarshal(b, &claims); err != nil {
					return &unreadable{fmt.Errorf("this is no token: %w", err)}
				}
				if exp, ok := claims["exp"].(float64); ok {
					claims["expires"] = time.Unix(int64(exp), 0).UTC()
				}
				return e.writeJSON(claims)
			},
		},
	}}
}
