package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/gateway/token"
	"github.com/ramus-dev/ramus/gitd"
)

func tokenCommand() command {
	return command{name: "token", args: "create|list|revoke|show", short: "create, list and revoke tokens",
		subs: []command{
			tokenCreateCommand(), tokenListCommand(), tokenRevokeCommand(), tokenShowCommand(),
		}}
}

func tokenCreateCommand() command {
	var (
		n      signin.NewToken
		scopes string
		life   time.Duration
		write  listFlag
		read   listFlag
		own    bool
	)
	return command{
		name: "create", args: "--subject NAME|--own [--repo NAME] [--scope read,write] [--for D]",
		short: "create a token for the API and for git",
		long: `
Use the token in RAMUS_TOKEN, in an Authorization: Bearer header, or as the password
for git. It is not stored anywhere, only its id is. Replace a lost token by another, and
revoke it. The scopes are
read; write (read, start runs, run commands, merge, push); admin (everything, without
--repo); metrics (only that). The refs apply to git, the API and MCP. A token that may
not read a branch sees no run on it. Runs need refs/heads/ramus/* among the refs that
the token may write.

--own makes a token for the bearer of RAMUS_TOKEN, with its rights or fewer. It needs no
administrator, and ends with RAMUS_TOKEN at the latest.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&own, "own", false, "make a token for yourself, with your rights or fewer")
			fs.StringVar(&n.Subject, "subject", "", "`name` of the user of the token")
			fs.StringVar(&n.Repo, "repo", "", "`name` of the only repository of the token (default all)")
			fs.StringVar(&scopes, "scope", "read", "`list` of read, write, admin, metrics")
			fs.DurationVar(&life, "for", 30*24*time.Hour, "`duration` until the token expires")
			fs.Var(&read, "ref-read",
				"a `ref` that the token may read (refs/heads/main, refs/heads/*); may be repeated (default all)")
			fs.Var(&write, "ref", "a `ref` that the token may write; may be repeated (default, with scope write, "+
				"those of --ref-read, or else all branches and tags)")
			fs.BoolVar(&n.Force, "force", false, "allow git to force")
			fs.BoolVar(&n.Delete, "delete", false, "allow git to delete")
			fs.BoolVar(&e.json, "json", false, "as JSON, with its contents")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			switch {
			case own && (n.Subject != "" || len(read)+len(write) > 0 || n.Force || n.Delete):
				return usage("--own takes only --repo, --scope and --for")
			case !own && n.Subject == "":
				return usage("--subject is missing, the name of the user of the token")
			}
			for s := range strings.SplitSeq(scopes, ",") {
				n.Scopes = append(n.Scopes, strings.TrimSpace(s))
			}
			n.Read, n.Write, n.Seconds = read, write, int64(life/time.Second)
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			t := signin.Token{}
			if own {
				var made token.Made
				made, err = c.NewOwnToken(ctx, token.NewOwn{Repo: n.Repo, Scopes: n.Scopes, Seconds: n.Seconds})
				t.Token, t.Grant = made.Token, made.Grant
			} else {
				t, err = c.NewToken(ctx, n)
			}
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(t)
			}
			fmt.Fprintln(e.out, t.Token)
			return nil
		},
	}
}

func tokenShowCommand() command {
	return command{
		name: "show", args: "[TOKEN]", short: "show the contents of a token (default RAMUS_TOKEN)",
		long: `
The token is read and not checked. Only the server knows whether it is valid.`,
		run: func(_ context.Context, e *env, args []string) error {
			if err := want(args, 0, 1, ""); err != nil {
				return err
			}
			text := e.getenv("RAMUS_TOKEN")
			if len(args) == 1 {
				text = args[0]
			}
			parts := strings.Split(text, ".")
			if len(parts) != 3 {
				return &unreadable{fmt.Errorf("this is not a token")}
			}
			b, err := base64.RawURLEncoding.DecodeString(parts[1])
			if err != nil {
				return &unreadable{fmt.Errorf("this is not a token: %w", err)}
			}
			var claims map[string]any
			if err := json.Unmarshal(b, &claims); err != nil {
				return &unreadable{fmt.Errorf("this is not a token: %w", err)}
			}
			if exp, ok := claims["exp"].(float64); ok {
				claims["expires"] = time.Unix(int64(exp), 0).UTC()
			}
			return e.writeJSON(claims)
		},
	}
}

func tokenListCommand() command {
	return command{
		name: "list", short: "list tokens, without the tokens themselves",
		long: `
An administrator sees the tokens of everybody, and others see their own. Tokens of an
earlier version are listed when they are revoked.`,
		set: func(fs *flag.FlagSet, e *env) { setJSON(fs, e) },
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 0, "")
			if err != nil {
				return err
			}
			list, err := c.Tokens(ctx)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(list)
			}
			var rows [][]string
			for _, t := range list {
				rows = append(rows, []string{t.ID, e.oneLine(t.Subject, 60), e.oneLine(t.Repo, 60),
					strings.Join(t.Scopes, ","), since(t.Created), since(t.Used), tokenEnd(t)})
			}
			return e.table([]string{"ID", "SUBJECT", "REPO", "SCOPES", "CREATED", "LAST USED", "END"}, rows)
		},
	}
}

// since returns the age of a time in words.
func since(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return ago(t)
}

func tokenEnd(t gitd.Issued) string {
	switch {
	case !t.Revoked.IsZero():
		return "revoked " + ago(t.Revoked)
	case t.Expires.IsZero():
		return ""
	}
	return t.Expires.Format("2006-01-02 15:04")
}

func tokenRevokeCommand() command {
	return command{
		name: "revoke", args: "ID|TOKEN|-", short: "revoke a token",
		long: `
The token is refused from the next request on, by git, the API and MCP. "-" reads a token
from standard input. Only the id of a token is sent.`,
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 1, "ID"); err != nil {
				return err
			}
			id := args[0]
			if id == "-" {
				text, err := readValue(e)
				if err != nil {
					return err
				}
				id = strings.TrimSpace(text)
			}
			if strings.Count(id, ".") == 2 {
				id = gitd.TokenID(id)
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			return c.RevokeToken(ctx, id)
		},
	}
}
