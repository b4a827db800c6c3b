package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/credential"
)

func secretCommand() command {
	return command{
		name: "secret", args: "set|list|rm|verify|on|off",
		short: "store the credentials of people, of repositories and of the server",
		subs: []command{
			secretSetCommand(), secretListCommand(), secretRemoveCommand(), secretVerifyCommand(),
			secretSwitchCommand("on", "use a key of an agent in place of others", true),
			secretSwitchCommand("off", "keep a key of an agent without using it", false),
		},
	}
}

// ownerFlags are the flags that name the owner of credentials.
type ownerFlags struct {
	repo, person string
	mine         bool
}

func (o *ownerFlags) set(fs *flag.FlagSet) {
	fs.StringVar(&o.repo, "repo", "", "`name` of the repository that it belongs to")
	fs.StringVar(&o.person, "person", "", "`id` of the person that it belongs to, or the subject of the person's tokens")
	fs.BoolVar(&o.mine, "mine", false,
		"it belongs to the bearer of RAMUS_TOKEN (default for those who are no administrators)")
}

// owner returns the owner of the flags. It is empty if there are none.
func (o *ownerFlags) owner() (credential.Owner, error) {
	switch {
	case o.repo != "" && o.person != "", o.mine && o.repo+o.person != "":
		return "", usage("a credential has one owner: want one of --repo, --person and --mine")
	case o.mine:
		return "me", nil
	case o.person != "":
		return credential.Owner(secret.OfPerson(o.person)), nil
	case o.repo != "":
		return credential.Owner(secret.OfRepo(o.repo)), nil
	}
	return "", nil
}

func secretSetCommand() command {
	var given givenSecret
	return command{
		name: "set", args: "NAME [--host HOST]… [--ref REFERENCE] | --agent AGENT | --cloud NAME | --env-file FILE",
		short: "store a credential, or all of a .env file",
		long: `
The value is read from standard input, never from an argument. It is sealed in the data
folder, and never shown. It belongs to the server, so that all repositories may use it,
unless --repo, --person or --mine name another owner.

A secret goes to the hosts that are named and to no other place, in a header of requests
at the door of containers. No container gets it. With --ref the value stays elsewhere, and
the server reads it when it is needed:

  env://NAME              a variable of the server's environment
  file:///PATH            a file on the server
  vault://MOUNT/PATH#KEY  a key of Vault's KV store, see vault in the configuration
  op://VAULT/ITEM/FIELD   1Password, by the program op on the server

With --agent it is a key for the model API of a coding agent. The door of containers takes
the key of the person who asks, or else that of the repository, or else the server's.

  ramus secret set API_TOKEN --repo app --host api.example.org <token.txt
  ramus secret set --env-file .env --repo app --host api.example.org
  ramus secret set --agent claude-code --mine <key.txt`,
		set: func(fs *flag.FlagSet, e *env) {
			setJSON(fs, e)
			given.of.set(fs)
			fs.Var(&given.hosts, "host", "`HOST` that may get the value, with :PORT if it is not 443; may be repeated")
			fs.StringVar(&given.one.Reference, "ref", "", "`REFERENCE` to the value in another place")
			fs.StringVar(&given.agent, "agent", "",
				"`AGENT` whose model API accepts the key: "+strings.Join(secret.AgentTypes(), ", "))
			fs.StringVar(&given.cloud, "cloud", "", "`NAME` of the provider of machines that accepts the token")
			fs.BoolVar(&given.oauth, "oauth", false, "the value is a token of OAuth, and no key")
			fs.BoolVar(&given.one.Inactive, "off", false, "keep the key of an agent or a cloud without using it")
			fs.StringVar(&given.file, "env-file", "",
				"`FILE` with NAME=VALUE lines, all of which are stored; - is standard input")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			in, err := given.read(e, args)
			if err != nil {
				return err
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			list, err := c.SetCredentials(ctx, in)
			if err != nil {
				return err
			}
			return e.showSecrets(list)
		},
	}
}

// givenSecret has the flags of `ramus secret set`.
type givenSecret struct {
	of           ownerFlags
	one          credential.NewCredential
	agent, cloud string
	oauth        bool
	hosts        listFlag
	file         string
}

// read returns the credentials to store. Their values come from the file, or from standard input.
func (g *givenSecret) read(e *env, args []string) (in credential.NewCredentials, err error) {
	if in.Owner, err = g.of.owner(); err != nil {
		return in, err
	}
	one := g.one
	one.Hosts = g.hosts
	switch {
	case g.agent != "" && g.cloud != "":
		return in, usage("a credential is for an agent or for a cloud: want one of --agent and --cloud")
	case g.agent != "":
		one.Type, one.Agent = secret.TypeAgentKey, g.agent
	case g.cloud != "":
		one.Type, one.Agent = secret.TypeCloud, g.cloud
	}
	if g.oauth {
		one.Kind = secret.KindOAuth
	}
	if g.file != "" {
		if len(args) > 0 || one.Reference != "" || one.Type != "" || g.oauth {
			return in, usage("--env-file stores all of a file as secrets: leave NAME, --ref, --agent, --cloud and " +
				"--oauth out")
		}
		text, err := readInput(e, g.file)
		if err != nil {
			return in, err
		}
		in.Dotenv, in.Hosts = string(text), g.hosts
		_, err = secret.ParseDotenv(in.Dotenv)
		return in, err
	}
	least := 1
	if one.Type != "" {
		least = 0
	}
	if err := want(args, least, 1, "NAME"); err != nil {
		return in, err
	}
	if len(args) == 1 {
		one.Name = args[0]
	}
	if one.Reference == "" {
		if one.Value, err = readValue(e); err != nil {
			return in, err
		}
	}
	in.Credentials = []credential.NewCredential{one}
	return in, nil
}

// readValue reads a secret from standard input. A line break at its end is not a part of it.
func readValue(e *env) (string, error) {
	if isTerminal(e.err) {
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

func (e *env) showSecrets(list []secret.Secret) error {
	if e.json {
		return e.writeJSON(list)
	}
	var rows [][]string
	for _, s := range list {
		rows = append(rows, []string{e.oneLine(s.Name, 100), e.oneLine(string(s.Owner), 60), secretKind(s),
			e.oneLine(secretPlace(s), 80), e.oneLine(secretUse(s), 80)})
	}
	return e.table([]string{"CREDENTIAL", "OWNER", "TYPE", "VALUE", "FOR"}, rows)
}

func secretKind(s secret.Secret) string {
	if s.Kind == "" {
		return string(s.Type)
	}
	return string(s.Type) + ", " + string(s.Kind)
}

// secretPlace returns the place of a value, and its last characters.
func secretPlace(s secret.Secret) string {
	switch {
	case s.Problem != "":
		return "refused: " + s.Problem
	case s.Reference != "":
		return s.Reference
	}
	text := "stored"
	if s.Last != "" {
		text += " …" + s.Last
	}
	if !s.Set.IsZero() {
		text += " " + ago(s.Set)
	}
	return text
}

// secretUse returns the receivers of a value.
func secretUse(s secret.Secret) string {
	switch {
	case !s.Active && (s.Type == secret.TypeAgentKey || s.Type == secret.TypeCloud):
		return s.Agent + ", off"
	case s.Type != secret.TypeSecret:
		return s.Agent
	case len(s.Hosts) == 0:
		return "no host"
	}
	return strings.Join(s.Hosts, ", ")
}

func secretListCommand() command {
	var of ownerFlags
	return command{
		name: "list", args: "[--repo NAME]", short: "list credentials, without their values",
		set: func(fs *flag.FlagSet, e *env) {
			setJSON(fs, e)
			of.set(fs)
			fs.Lookup("repo").Usage = "only those that the repository `NAME` may use, its own and the server's"
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 0, "")
			if err != nil {
				return err
			}
			q := credential.Query{Repo: of.repo}
			if q.Repo == "" {
				if q.Owner, err = of.owner(); err != nil {
					return err
				}
			}
			list, err := c.Credentials(ctx, q)
			if err != nil {
				return err
			}
			return e.showSecrets(list)
		},
	}
}

// argumentSecret connects to the server, and returns the credential that the only argument names.
func argumentSecret(ctx context.Context, e *env, of ownerFlags, args []string) (*client.Client, secret.Secret, error) {
	c, err := e.clientFor(ctx, args, 1, 1, "NAME")
	if err != nil {
		return nil, secret.Secret{}, err
	}
	x, err := findSecret(ctx, c, of, args[0])
	return c, x, err
}

// findSecret returns the credential that has an id, or a name and the owner of flags.
func findSecret(ctx context.Context, c *client.Client, of ownerFlags, name string) (secret.Secret, error) {
	owner, err := of.owner()
	if err != nil {
		return secret.Secret{}, err
	}
	list, err := c.Credentials(ctx, credential.Query{Owner: owner})
	if err != nil {
		return secret.Secret{}, err
	}
	var found []secret.Secret
	for _, s := range list {
		switch {
		case s.ID == name:
			return s, nil
		case s.Name == name && (owner != "" || s.Owner == secret.OfServer || s.Owner.Person() != ""):
			found = append(found, s)
		}
	}
	if owner == "" && len(found) > 1 && found[0].Owner == secret.OfServer {
		found = found[:1] // an administrator means the server's
	}
	switch len(found) {
	case 0:
		return secret.Secret{}, fmt.Errorf("credential %.100s: %w; `ramus secret list` shows all", name, record.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return secret.Secret{}, usage("%d owners have %s: name one by --repo, --person or --mine, or give the id",
		len(found), name)
}

func secretRemoveCommand() command {
	var of ownerFlags
	return command{
		name: "rm", args: "NAME|ID [--repo NAME]", short: "remove a credential",
		set: func(fs *flag.FlagSet, _ *env) { of.set(fs) },
		run: func(ctx context.Context, e *env, args []string) error {
			c, x, err := argumentSecret(ctx, e, of, args)
			if err != nil {
				return err
			}
			return c.RemoveCredential(ctx, x.ID)
		},
	}
}

func secretVerifyCommand() command {
	var of ownerFlags
	return command{
		name: "verify", args: "NAME|ID [--repo NAME]", short: "open a credential, and try the key of an agent",
		set: func(fs *flag.FlagSet, e *env) {
			setJSON(fs, e)
			of.set(fs)
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, x, err := argumentSecret(ctx, e, of, args)
			if err != nil {
				return err
			}
			v, err := c.VerifyCredential(ctx, x.ID)
			switch {
			case err != nil:
				return err
			case e.json:
				return e.writeJSON(v)
			case !v.OK:
				return fmt.Errorf("%s does not work: %s", x.Name, v.Message)
			}
			fmt.Fprintf(e.out, "%s works: %s\n", x.Name, e.oneLine(v.Message, 300))
			return nil
		},
	}
}

func secretSwitchCommand(name, short string, active bool) command {
	var of ownerFlags
	return command{
		name: name, args: "NAME|ID [--repo NAME]", short: short,
		set: func(fs *flag.FlagSet, _ *env) { of.set(fs) },
		run: func(ctx context.Context, e *env, args []string) error {
			c, x, err := argumentSecret(ctx, e, of, args)
			if err == nil {
				_, err = c.ActivateCredential(ctx, x.ID, active)
			}
			return err
		},
	}
}
