package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gateway/signin"
)

func openCommand() command {
	var to string
	return command{
		name: "open", args: "[--to PATH]", short: "print a link that signs you in with a browser",
		long: `
The link signs in the owner of the data folder as an administrator, once, within ten
minutes. It is for the machine of the server. Elsewhere people sign in with GitHub or
OpenID Connect (github.sign_in and sign_in in the configuration).`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&to, "to", "", "`path` of the page to come to, such as /settings/sessions")
			setJSON(fs, e)
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			c, err := runningServer(ctx, e)
			if err != nil {
				return err
			}
			l, err := c.OwnerLink(ctx, to)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(l)
			}
			fmt.Fprintln(e.out, l.URL)
			return nil
		},
	}
}

func peopleCommand() command {
	return command{name: "people", args: "list|role|rm|sessions|end",
		short: "list people, and change their roles and sessions", subs: []command{
			peopleListCommand(), peopleRoleCommand(), peopleRemoveCommand(), peopleSessionsCommand(), peopleEndCommand(),
		}}
}

func peopleListCommand() command {
	return command{
		name: "list", args: "", short: "list the people who have signed in, with their roles",
		set: setJSON,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 0, "")
			if err != nil {
				return err
			}
			list, err := c.People(ctx)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(list)
			}
			var rows [][]string
			for _, p := range list {
				rows = append(rows, []string{p.Login, roleText(p), fmt.Sprint(p.Sessions), p.ID, p.Name})
			}
			return e.table([]string{"LOGIN", "ROLE", "SESSIONS", "ID", "NAME"}, rows)
		},
	}
}

// roleText returns the roles of a person in one word.
func roleText(p signin.Person) string {
	text := []string{p.Role.String()}
	for _, repo := range slices.Sorted(maps.Keys(p.Repos)) {
		text = append(text, repo+"="+p.Repos[repo].String())
	}
	return strings.Join(text, ",")
}

func peopleRoleCommand() command {
	var repo string
	return command{
		name: "role", args: "PERSON ROLE [--repo NAME]", short: "give a person a role",
		long: `
PERSON is a login or an id of "ramus people list". ROLE is viewer (sees repositories and
runs), member (works and pushes), admin (everything), none (is kept out), or rules
(follows from sign_in in the configuration again). With --repo, the role is added in one
repository, and none takes it away. The change counts at once, in open pages too.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&repo, "repo", "", "`name` of the only repository that the role is for")
			setJSON(fs, e)
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 2, 2, "PERSON and ROLE"); err != nil {
				return err
			}
			n := signin.NewRoles{Role: args[1]}
			if repo != "" {
				n = signin.NewRoles{Repos: map[string]string{repo: args[1]}}
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			p, err := c.ChangeRoles(ctx, args[0], n)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(p)
			}
			fmt.Fprintf(e.out, "%s: %s\n", p.Login, roleText(p))
			return nil
		},
	}
}

func peopleRemoveCommand() command {
	return command{
		name: "rm", args: "PERSON", short: "remove a person, and end their sessions",
		long: `
The person may sign in as a new one if the configuration still names them. The role none
keeps them out.`,
		set: setJSON,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "a PERSON")
			if err != nil {
				return err
			}
			n, err := c.RemovePerson(ctx, args[0])
			if err != nil {
				return err
			}
			return e.printEnded(n)
		},
	}
}

func peopleSessionsCommand() command {
	return command{
		name: "sessions", args: "[PERSON]", short: "list the browsers that are signed in",
		set: setJSON,
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 1, "")
			if err != nil {
				return err
			}
			person := ""
			if len(args) == 1 {
				person = args[0]
			}
			list, err := c.Browsers(ctx, person)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(list)
			}
			var rows [][]string
			for _, s := range list {
				rows = append(rows, []string{s.ID, s.Account, s.Used.Local().Format("2006-01-02 15:04"), s.Browser, s.Place})
			}
			return e.table([]string{"SESSION", "PERSON", "USED", "BROWSER", "PLACE"}, rows)
		},
	}
}

func peopleEndCommand() command {
	var all bool
	return command{
		name: "end", args: "SESSION | --all PERSON", short: "sign out a browser, or all browsers of a person",
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&all, "all", false, "all sessions of a person")
			setJSON(fs, e)
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "a SESSION, or --all and a PERSON")
			if err != nil {
				return err
			}
			end := c.EndSession
			if all {
				end = c.EndSessions
			}
			n, err := end(ctx, args[0])
			if err != nil {
				return err
			}
			return e.printEnded(n)
		},
	}
}

// printEnded prints the number of sessions that have ended.
func (e *env) printEnded(n signin.Ended) error {
	if e.json {
		return e.writeJSON(n)
	}
	fmt.Fprintf(e.out, "%d signed out\n", n.Sessions)
	return nil
}
