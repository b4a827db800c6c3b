package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gateway"
)

func secretCommand() command {
	return command{
		name: "secret", args: "set|ls|rm", short: "store the secrets that repositories use",
		subs: []command{secretSetCommand(), secretListCommand(), secretRemoveCommand()},
	}
}

func secretSetCommand() command {
	var (
		in        gateway.NewSecrets
		reference string
		hosts     listFlag
		file      string
	)
	return command{
		name: "set", args: "NAME [--repo NAME] [--host HOST]… [--ref REFERENCE] | --env-file FILE", short: "store a secret, or all of a .env file",
		long: `
The value is read from standard input, never from an argument. It is encrypted in the
data folder, and never shown. The server sends it only to the hosts that are named, in a
header of requests at the door of containers. No container gets it. With --ref the value
stays elsewhere, and the server reads it when it is needed:

  env://NAME              a variable of the server's environment
  file:///PATH            a file on the server
  vault://MOUNT/PATH#KEY  a key of Vault's KV store, see vault in the configuration
  op://VAULT/ITEM/FIELD   1Password, by the program op on the server

  ramus secret set API_TOKEN --repo app --host api.example.org <token.txt
  ramus secret set --env-file .env --repo app`,
		set: func(fs *flag.FlagSet, e *env) {
			setJSON(fs, e)
			fs.StringVar(&in.Repo, "repo", "", "`name` of the repository that may use it (default all)")
			fs.Var(&hosts, "host", "`HOST` that may get the value, with :PORT if it is not 443; may be repeated")
			fs.StringVar(&reference, "ref", "", "`REFERENCE` to the value in another place")
			fs.StringVar(&file, "env-file", "", "`FILE` with NAME=VALUE lines, all of which are stored; - is standard input")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			var err error
			switch {
			case file != "" && (len(args) > 0 || reference != ""):
				return usage("--env-file stores all of a file: leave NAME and --ref out")
			case file != "":
				in.Secrets, err = dotenvSecrets(e, file)
			default:
				if err := want(args, 1, 1, "NAME"); err != nil {
					return err
				}
				one := gateway.NewSecret{Name: args[0], Reference: reference}
				if reference == "" {
					one.Value, err = readValue(e)
				}
				in.Secrets = []gateway.NewSecret{one}
			}
			if err != nil {
				return err
			}
			for i := range in.Secrets {
				in.Secrets[i].Hosts = hosts
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			list, err := c.SetSecrets(ctx, in)
			if err != nil {
				return err
			}
			return e.showSecrets(list)
		},
	}
}

// readValue reads a secret from standard input. A line break at its end is not a part of it.
func readValue(e *env) (string, error) {
	if terminal(e.err) {
		fmt.Fprintln(e.err, "the value, then end of input (Ctrl-D):")
	}
	b, err := io.ReadAll(io.LimitReader(e.in, largestSecret+1))
	if err != nil {
		return "", &unreadable{fmt.Errorf("cannot read the value: %w", err)}
	}
	if len(b) > largestSecret {
		return "", &unreadable{fmt.Errorf("cannot read the value: it is larger than %d bytes", largestSecret)}
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// dotenvSecrets reads a .env file.
func dotenvSecrets(e *env, file string) (list []gateway.NewSecret, err error) {
	text, err := readInput(e, file)
	if err != nil {
		return nil, err
	}
	pairs, err := secret.ParseDotenv(string(text))
	if err != nil {
		return nil, err
	}
	for _, p := range pairs {
		list = append(list, gateway.NewSecret{Name: p.Name, Value: p.Value})
	}
	return list, nil
}

func (e *env) showSecrets(list []secret.Secret) error {
	if e.json {
		return e.writeJSON(list)
	}
	var rows [][]string
	for _, s := range list {
		place := s.Reference
		if place == "" {
			place = "stored"
		}
		hosts := strings.Join(s.Hosts, ", ")
		if hosts == "" {
			hosts = "none"
		}
		repo := s.Repo
		switch {
		case s.Person != "":
			repo = "(" + e.oneLine(s.Person, 80) + ")"
		case repo == "":
			repo = "(all)"
		}
		set := ""
		if !s.Set.IsZero() {
			set = ago(s.Set)
		}
		rows = append(rows, []string{s.Name, repo, e.oneLine(place, 80), e.oneLine(hosts, 80), set})
	}
	return e.table([]string{"SECRET", "REPO", "VALUE", "HOSTS", "SET"}, rows)
}

func secretListCommand() command {
	var repo string
	return command{
		name: "ls", args: "[--repo NAME]", short: "list secrets, without their values",
		set: func(fs *flag.FlagSet, e *env) {
			setJSON(fs, e)
			fs.StringVar(&repo, "repo", "", "only those that the repository `NAME` may use")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 0, "")
			if err != nil {
				return err
			}
			list, err := c.Secrets(ctx, repo)
			if err != nil {
				return err
			}
			return e.showSecrets(list)
		},
	}
}

func secretRemoveCommand() command {
	var repo, person string
	return command{
		name: "rm", args: "NAME [--repo NAME|--person ID]", short: "remove a secret",
		set: func(fs *flag.FlagSet, _ *env) {
			fs.StringVar(&repo, "repo", "", "`name` of its repository (default the one of all repositories)")
			fs.StringVar(&person, "person", "", "`ID` of its person, such as slack:TEAM:USER, as ls shows it")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "NAME")
			if err != nil {
				return err
			}
			if person != "" && repo != "" {
				return usage("a secret belongs to a repository or to a person: --repo or --person")
			}
			return c.RemoveSecret(ctx, args[0], repo, person)
		},
	}
}
