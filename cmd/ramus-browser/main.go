// Command ramus-browser checks one page with a real browser. It runs in a sidecar of the container that serves the
// page. Its standard input is a job (tasks/browser.Job, JSON), its standard output a tar of evidence, and its exit code
// the verdict. It is the only program of ramus that uses Playwright.
//
// A check has two processes. `check` reads the job, starts itself again as `drive`, bounds its time, kills the
// processes it left, and writes the tar. `drive` uses Playwright's driver, whose client panics in a goroutine of its
// own after an unexpected message. Even then the evidence so far is written, with the verdict UNVERIFIED.
//
// The browser's own switches (see launch.go) restrict its requests, and not rules for pages, which Playwright would
// have to apply to each request. So redirects, workers, websockets and prefetches are restricted too.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes. Those of check are the verdict.
const (
	exitPass  = 0
	exitFail  = 1
	exitOther = 2 // UNVERIFIED, and all errors
)

const usage = `usage: ramus-browser COMMAND

  check              look at a page: job (JSON) on stdin, evidence (tar) on stdout;
                     exit code 0 PASS, 1 FAIL, 2 UNVERIFIED
  viewer             write Playwright's trace viewer (tar) to stdout
  mcp [flags]        serve a browser to an agent, by MCP over HTTP
  install DIR        put this program and Playwright's driver into DIR
  version            print versions (JSON)
`

// streams are the standard streams of a command.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// errUsage means that the command line is wrong.
var errUsage = errors.New("unknown command; `ramus-browser help` lists them")

// run executes one command and returns the exit code.
func run(ctx context.Context, args []string, std streams) (int, error) {
	command, rest := "help", []string(nil)
	if len(args) > 0 {
		command, rest = args[0], args[1:]
	}
	switch command {
	case "check":
		return check(ctx, rest, std)
	case "drive":
		return drive(ctx, rest, std)
	case "viewer":
		return 0, viewer(rest, std.out)
	case "mcp":
		return 0, mcp(rest)
	case "install":
		return 0, install(ctx, rest, std.err)
	case "version":
		return 0, version(ctx, std.out)
	case "help", "-h", "--help":
		_, err := io.WriteString(std.out, usage)
		return 0, err
	}
	return exitOther, errUsage
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "ramus-browser: %v\n", err)
		if code == exitPass {
			code = exitOther
		}
	}
	os.Exit(code)
}
