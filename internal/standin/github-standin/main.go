// Github-standin is GitHub on this machine, to try ramus without GitHub. It implements the REST API, smart HTTP and webhooks,
// uses git itself, and prints the events to the terminal.
//
//	github-standin -listen 127.0.0.1:7090 -import sample=./sample -hook http://127.0.0.1:7077/webhooks/github
//
// Standard input has the actions of people, one per line:
//
//	ping SECONDS                    wait until the App answers a webhook's ping
//	push NAME BRANCH PATH TEXT      commit a file and push it
//	force-push NAME BRANCH PATH TEXT  replace the branch's own commits by one
//	delete NAME BRANCH              delete a branch
//	open NAME HEAD BASE TITLE       open a pull request
//	pull N                          choose a pull request; the default is the latest
//	comment NAME TEXT               comment in its conversation
//	line NAME PATH LINE TEXT        comment on a line of its diff; LINE is a number, or /WORDS/ of the line
//	reply NAME TEXT                 reply in the thread of the last line
//	review NAME STATE [TEXT]        submit a review, approved, changes_requested or commented
//	request NAME REVIEWER           ask for a review
//	ready NAME                      end its draft state
//	merge NAME [METHOD]             merge it by merge, squash or rebase
//	close NAME                      close it
//	reopen NAME                     reopen it
//	check NAME CONCLUSION [TITLE]   report a check run on its head, by CI; the CONCLUSION running means not ended
//	workflow NAME CONCLUSION        report a run of a workflow on its head
//	repo NAME                       choose a repository; the default is the first
//	hold                            deliver nothing until release
//	release                         deliver the held events and all later ones
//	redeliver                       repeat all deliveries, the last first
//	wait SECONDS REGEXP             wait until a change by the App after a person's last line matches
//	show                            print the pull request as a page
//	sleep SECONDS
//
// In a TEXT, \n is a new line. A line that begins with # is skipped. The program ends with its input, or with -serve on an
// interrupt. The exit status is 1 if a wait was in vain, or if GitHub would complain about the App.
//
// The same lines may be posted to /_standin from this machine. The response is 200, or 422 with the error. GET /_standin/pulls
// returns the pull requests as JSON.
//
// The webhook's secret is GITHUB_WEBHOOK_SECRET, with the default "webhook-secret". GITHUB_TOKEN is a token of the first user. The
// App's private key is in the file that -key names, which is created if it does not exist.
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "github-standin:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, getenv func(string) string, in io.Reader, out io.Writer) (err error) {
	flags := flag.NewFlagSet("github-standin", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:7090", "`address` of the API and of the repositories")
	root := flags.String("root", "", "`folder` of the repositories; empty: a temporary one")
	account := flags.String("account", "acme", "`NAME` of the account that they belong to")
	imports := flags.String("import", "", "repositories to begin with, as `NAME=PATH,…`; no PATH is a new one")
	hook := flags.String("hook", "", "`URL` for webhooks")
	users := flags.String("users", "developer=admin,reviewer=write,visitor=read", "people, as `NAME=ROLE,…`")
	app := flags.Int64("app", 12, "`id` of the App")
	installation := flags.Int64("installation", 34, "`id` of its installation")
	slug := flags.String("slug", "ramus", "`name` of the App")
	key := flags.String("key", "", "`file` of the App's private key, made where it is missing")
	verbose := flags.Bool("v", false, "show every delivery, not only those that failed")
	serve := flags.Bool("serve", false, "go on when the input has ended")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q? everything is said by flags and on standard input", flags.Arg(0))
	}
	people, err := pairs(*users)
	if err != nil {
		return fmt.Errorf("-users: %w", err)
	}
	repos, err := pairs(*imports)
	if err != nil {
		return fmt.Errorf("-import: %w", err)
	}
	if *root == "" {
		if *root, err = os.MkdirTemp("", "github-standin"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(*root)) }()
	}
	private, err := keyAt(*key)
	if err != nil {
		return err
	}
	h := newHub(out, *verbose)
	h.Server = &githubtest.Server{
		Root: *root, Addr: *listen, Account: *account, App: *app, Installation: *installation, Slug: *slug, Key: private,
		HookURL: *hook, HookSecret: getenv("GITHUB_WEBHOOK_SECRET"), On: h.change, Extra: h.control(),
	}
	if err := h.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	for _, p := range people {
		h.AddUser(p.name, p.value)
	}
	if token := getenv("GITHUB_TOKEN"); token != "" && len(people) > 0 {
		h.SetToken(people[0].name, token)
	}
	h.say("GitHub's stand-in: %s", h.API())
	for _, r := range repos {
		repo, err := h.AddRepo(r.name, r.value)
		if err != nil {
			return err
		}
		h.choose(repo)
		h.say("  %s", h.Upstream(r.name))
	}
	if len(repos) > 0 {
		if err := h.do(ctx, "repo "+repos[0].name); err != nil {
			return err
		}
	}
	if err = h.play(ctx, in); err == nil {
		err = h.settle(ctx)
	}
	if err == nil && *serve {
		<-ctx.Done()
	}
	for _, complaint := range h.Complaints() {
		h.say("GitHub complains: %s", complaint)
		if err == nil {
			err = errors.New("GitHub complained")
		}
	}
	return err
}

// keyAt reads a private key, or creates one and writes it to the path.
func keyAt(path string) (*rsa.PrivateKey, error) {
	if path != "" {
		text, err := os.ReadFile(path)
		if err == nil {
			return github.ParseKey(text)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil || path == "" {
		return key, err
	}
	return key, os.WriteFile(path,
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600)
}

type pair struct{ name, value string }

func pairs(text string) (all []pair, err error) {
	if text == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(one, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not NAME=VALUE", one)
		}
		all = append(all, pair{name, value})
	}
	return all, nil
}
