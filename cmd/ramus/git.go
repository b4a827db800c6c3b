package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/client"
)

// source returns the address from which git gets a repository. It is the folder of the repository if the server is on
// this machine, and otherwise its URL.
func source(ctx context.Context, c *client.Client, repo string) (string, error) {
	r, err := c.Repo(ctx, repo)
	if err != nil {
		return "", err
	}
	if r.Dir != "" {
		return r.Dir, nil
	}
	if r.CloneURL == "" {
		return "", errors.New("the server has no address to clone from")
	}
	return r.CloneURL, nil
}

// cloneLine returns the command that clones a branch.
func cloneLine(ctx context.Context, c *client.Client, repo, branch string) (string, error) {
	from, err := source(ctx, c, repo)
	if err != nil {
		return "", err
	}
	return "git clone -b " + shellWord(branch) + " " + shellWord(from), nil
}

// shellWord returns s quoted for a shell.
func shellWord(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/._-:@%+=,", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// git runs the person's own git in the current folder. A token for the server is passed by the environment, because all
// users can see arguments.
func (e *env) git(ctx context.Context, in io.Reader, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env = e.environ
	if token := e.getenv("RAMUS_TOKEN"); e.conn != nil && e.conn.remote && token != "" {
		cmd.Env = append(cmd.Env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http."+e.getenv("RAMUS_URL")+".extraHeader",
			"GIT_CONFIG_VALUE_0=Authorization: Bearer "+token, "GIT_TERMINAL_PROMPT=0")
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, e.err, e.err
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return fmt.Errorf("git %s failed with status %d", args[0], exit.ExitCode())
		}
		return fmt.Errorf("cannot run git: %w", err)
	}
	return nil
}

// branchOf returns a caller's status and the address of its branch.
func branchOf(ctx context.Context, e *env, caller string) (st executor.CallerStatus, from string, err error) {
	c, err := e.client(ctx)
	if err != nil {
		return st, "", err
	}
	if st, err = c.Caller(ctx, caller); err != nil {
		return st, "", err
	}
	from, err = source(ctx, c, st.Repo)
	return st, from, err
}
