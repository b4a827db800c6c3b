// Command ramus-browser looks at one page with a real browser and says what it
// saw. It runs in a container of its own beside the one that serves the page: a
// job (tasks/browser.Job, JSON) comes by standard input, a tar of evidence goes to
// standard output, and the exit code is the verdict. It is the only program of ramus
// that speaks to Playwright.
//
// A check is two processes. `check` reads the job, starts itself again as
// `drive`, bounds its time, ends whatever it left running, and writes the tar.
// `drive` speaks to Playwright's driver, whose client panics in a goroutine of
// its own when the protocol surprises it; then the evidence so far still comes out,
// with the verdict UNVERIFIED.
//
// What leaves the browser is decided by the browser's own switches (see launch.go), not by
// rules for pages that Playwright would have to apply one request at a time: redirects,
// workers, websockets and prefetches are under them too.
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
	exitOther = 2 // UNVERIFIED, and whatever is broken
)

const usage = `usage: ramus-browser COMMAND

  check              look at a page: job (JSON) on stdin, evidence (tar) on stdout;
                     exit code 0 PASS, 1 FAIL, 2 UNVERIFIED
  viewer             write Playwright's trace viewer (tar) to stdout
  mcp [flags]        serve a browser to an agent, by MCP over HTTP
  install DIR        put this program and Playwright's driver into DIR
  version            print versions (JSON)
`

// streams are a command's standard input and output.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// errUsage is a command line that is none.
var errUsage = errors.New("unknown command; `ramus-browser help` lists them")

// run does one command and says how the process is to exit.
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
