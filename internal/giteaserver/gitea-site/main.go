// Gitea-site runs a real Gitea on this machine for a demo, with people and a private repository.
//
//	gitea-site -dir DIR -import ./orders -repo acme/orders -hook http://127.0.0.1:7077/webhooks/gitea
//
// The user ramus administers the repository, and all other people may write to it. The password of all is unknown to them. When
// the file DIR/url has the address of the site, these files are complete:
//
//	DIR/NAME.token      a token of a user
//	DIR/hook.secret     the secret of the webhook
//	DIR/gitea           the folder of Gitea; its repositories are in repos
//
// The program ends on an interrupt. RAMUS_GITEA is the path of Gitea, see package giteaserver.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ramus-dev/ramus/internal/giteaserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "gitea-site:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("gitea-site", flag.ContinueOnError)
	dir := flags.String("dir", "", "`folder` of all files")
	from := flags.String("import", "", "`folder` of a work tree, whose HEAD becomes the branch main")
	repo := flags.String("repo", "acme/app", "`OWNER/NAME` of the repository")
	hook := flags.String("hook", "", "`URL` of the webhook")
	people := flags.String("people", "developer,reviewer", "people who may write, as `NAME,…`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	program, err := giteaserver.Find()
	if err != nil {
		return err
	}
	own := filepath.Join(*dir, "gitea")
	if err := os.MkdirAll(own, 0o700); err != nil {
		return err
	}
	s, err := giteaserver.Start(ctx, program, own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	site := &site{Server: s, ctx: ctx, dir: *dir, repo: *repo}
	if err := site.furnish(append([]string{"ramus"}, strings.Split(*people, ",")...), *hook); err != nil {
		return err
	}
	if err := site.push(*from); err != nil {
		return err
	}
	version, err := os.ReadFile(filepath.Join(filepath.Dir(program.Path), "version")) // of scripts/gitea.sh
	if err != nil {
		version = nil
	}
	fmt.Println(strings.Join(strings.Fields("Gitea "+string(version)+" is at "+s.URL), " "))
	if err := site.write("url", s.URL); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// site is a Gitea with its files.
type site struct {
	*giteaserver.Server
	ctx       context.Context
	dir, repo string
}

// write writes a file, which is complete when it appears.
func (s *site) write(name, text string) error {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// furnish makes the people, the repository and its webhook.
func (s *site) furnish(people []string, hook string) error {
	owner, name, ok := strings.Cut(s.repo, "/")
	if !ok {
		return fmt.Errorf("-repo is %q: want OWNER/NAME", s.repo)
	}
	as := func(method, path string, in any) error { return s.Do(s.ctx, s.Token, method, path, in, nil) }
	if err := as(http.MethodPost, "/orgs", map[string]any{"username": owner}); err != nil {
		return err
	}
	if err := as(http.MethodPost, "/orgs/"+owner+"/repos",
		map[string]any{"name": name, "default_branch": "main", "private": true}); err != nil {
		return err
	}
	for _, login := range people {
		token, err := s.AddUser(s.ctx, login)
		if err != nil {
			return err
		}
		permission := "write"
		if login == "ramus" {
			permission = "admin" // only administrators see who may write
		}
		if err := as(http.MethodPut, "/repos/"+s.repo+"/collaborators/"+login, map[string]any{"permission": permission}); err != nil {
			return err
		}
		if err := s.write(login+".token", token); err != nil {
			return err
		}
	}
	secret := rand.Text()
	if err := s.write("hook.secret", secret); err != nil || hook == "" {
		return err
	}
	return as(http.MethodPost, "/repos/"+s.repo+"/hooks", map[string]any{"type": "gitea", "active": true,
		"config": map[string]any{"url": hook, "content_type": "json", "secret": secret},
		"events": []string{"push", "delete", "pull_request", "pull_request_comment", "pull_request_review_approved",
			"pull_request_review_rejected",
			"pull_request_review_comment", "status", "issue_comment"}})
}

// push pushes the HEAD of a work tree. The token is in no argument.
func (s *site) push(from string) error {
	cmd := exec.CommandContext(s.ctx, "git", "-C", from, "push", "-q", s.URL+"/"+s.repo+".git", "HEAD:refs/heads/main")
	cmd.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.extraHeader",
		"GIT_CONFIG_VALUE_0=Authorization: token "+s.Token)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot push %s: %w: %s", from, err, out)
	}
	return nil
}
