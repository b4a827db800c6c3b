package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/route"
)

// env is the context of a command: its streams, the environment, the common flags, and the connection to a server.
type env struct {
	stdio
	environ []string

	dataFlag, configFlag string
	json, keep           bool

	conn *connection // nil until a command needs a server

	warning sync.Mutex // guards warned
	warned  string     // the replicas that warnMissing named last
}

func newEnv(io stdio, environ []string) *env { return &env{stdio: io, environ: environ} }

// getenv is like os.Getenv, but reads environ.
func (e *env) getenv(name string) string {
	for i := len(e.environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(e.environ[i], name+"="); ok {
			return value
		}
	}
	return ""
}

// config returns the configuration. Its Data is absolute.
func (e *env) config() (Config, error) {
	// The data folder has the file that may name the data folder. So the flag decides first, then the environment, then
	// the default.
	data := e.dataFlag
	if data == "" {
		data = e.getenv("RAMUS_DATA")
	}
	if data == "" {
		data = Defaults().Data
	}
	data, err := folder(data)
	if err != nil {
		return Config{}, err
	}
	path, optional := e.configFlag, false
	if path == "" {
		path = e.getenv("RAMUS_CONFIG")
	}
	if path == "" {
		path, optional = filepath.Join(data, "ramus.yaml"), true
	}
	c, err := LoadConfig(path, optional, e.environ)
	if err != nil {
		return c, &unreadable{err}
	}
	if e.dataFlag != "" || e.getenv("RAMUS_DATA") != "" || c.Data == Defaults().Data {
		c.Data = data
	}
	c.Data, err = folder(c.Data)
	return c, err
}

// client connects to the server. It starts one if none runs.
func (e *env) client(ctx context.Context) (*client.Client, error) {
	if e.conn == nil {
		conn, err := connect(ctx, e)
		if err != nil {
			return nil, err
		}
		e.conn = conn
	}
	return e.conn.client, nil
}

// clientFor checks the number of arguments as [want] does, and connects to the server.
func (e *env) clientFor(ctx context.Context, args []string, least, most int, what string) (*client.Client, error) {
	if err := want(args, least, most, what); err != nil {
		return nil, err
	}
	return e.client(ctx)
}

// warnMissing prints which replicas an answer lacks. A command that asks again and again says so once.
func (e *env) warnMissing(replicas []string) {
	e.warning.Lock()
	defer e.warning.Unlock()
	names := strings.Join(replicas, ", ")
	if names == e.warned {
		return
	}
	e.warned = names
	fmt.Fprintf(e.err, "ramus: the answer is not complete: %s does not answer; `ramus replica list` shows the replicas\n", e.safe(names))
}

// close closes the connection, and ends the server inside this process if there is one.
func (e *env) close() error {
	if e.conn == nil {
		return nil
	}
	return e.conn.close()
}

// Exit statuses of all commands. The package comment describes them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitInTheWay    = 4
	exitAway        = 5
	exitExec        = 125
	exitInterrupted = 130
)

// exitStatus ends the command with a status. err is reported if it is not nil.
type exitStatus struct {
	code int
	err  error
}

func (e *exitStatus) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitStatus) Unwrap() error { return e.err }

// unreadable is the error for input that cannot be read at all.
type unreadable struct{ error }

func (e *unreadable) Unwrap() error { return e.error }

// exitCode returns the exit status for an error. No other code maps errors to exit statuses.
func exitCode(err error) int {
	var (
		status  *exitStatus
		wrong   *usageError
		unread  *unreadable
		problem *route.Problem
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return status.code
	case errors.As(err, &wrong), errors.As(err, &unread):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &problem):
		switch problem.Kind {
		case route.KindNotFound:
			return exitNotFound
		case route.KindConflict, route.KindExists, route.KindAmbiguous, route.KindDenied, route.KindUnauthorized:
			return exitInTheWay
		case route.KindUnavailable, route.KindTimeout, route.KindStreams:
			return exitAway
		}
	}
	return exitFailed
}

// report prints an error and its hint, and returns the exit status.
func (e *env) report(err error) int {
	code := exitCode(err)
	var (
		status  *exitStatus
		wrong   *usageError
		problem *route.Problem
	)
	if err == nil || errors.As(err, &status) && status.err == nil {
		return code
	}
	if code == exitInterrupted {
		fmt.Fprintln(e.err, "ramus: interrupted")
		return code
	}
	fmt.Fprintf(e.err, "ramus: %s\n", e.safe(err.Error()))
	if errors.As(err, &problem) && problem.Hint != "" {
		fmt.Fprintf(e.err, "  hint: %s\n", e.safe(problem.Hint))
	}
	if errors.As(err, &wrong) && wrong.help != "" {
		fmt.Fprintf(e.err, "  hint: %s -h\n", wrong.help)
	}
	return code
}
