package gitcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// StderrMax bounds the kept part of a child's stderr. It suffices for a message of git, but
	// not for a client that makes git print without end.
	StderrMax = 16 << 10
	// OutputMax bounds output that is collected in memory.
	OutputMax = 256 << 20
	// killGrace is the time between SIGTERM and SIGKILL. Git removes its lock and temporary
	// files on SIGTERM.
	killGrace = 2 * time.Second
)

// Path returns the path of git. It is looked up once, so that a later change of PATH cannot
// replace git by another program.
var Path = sync.OnceValues(func() (string, error) {
	p, err := exec.LookPath("git")
	if err != nil {
		return "", fmt.Errorf("cannot find git: %w", err)
	}
	return p, nil
})

// Command describes one run of git.
type Command struct {
	// Repo becomes GIT_DIR, so that git does not search for a repository. It is empty for
	// verbs that take their repository as an argument.
	Repo string
	// Args is the verb and its arguments. Arguments from outside must follow
	// --end-of-options or --.
	Args []string
	// Dir is the working directory. Empty means "/".
	Dir string
	// Config is a list of "key=value" with precedence over every config file. It is passed
	// in the environment, so that the children of git inherit it and the process list does
	// not show it.
	Config []string
	// Env adds "KEY=value" to the scrubbed environment.
	Env []string
	// In must return from Read when the context ends or be an [os.File], because
	// [Process.Wait] waits for the goroutine that copies it.
	In  io.Reader
	Out io.Writer
	// Files become the file descriptors from 3 on. The children of git inherit them.
	Files []*os.File
	// Progress receives stderr as it arrives, in addition to the error.
	Progress io.Writer
	// CPU and Memory bound the child, and each of its children separately. Zero means no
	// bound. The context bounds the time.
	CPU    time.Duration
	Memory int64
	// File bounds the bytes of each file that the child writes. Zero means no bound.
	File int64
}

// configAlways is the configuration of every child.
var configAlways = []string{
	"safe.directory=*", // the folder may belong to another user, and grants decide access
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"core.alternateRefsCommand=true",
	"core.attributesFile=/dev/null",
	"core.excludesFile=/dev/null",
	"core.askPass=",
	"credential.helper=",
	"protocol.allow=never",
	"gc.auto=0",
	"maintenance.auto=false",
	"receive.autogc=false",
	"core.fsync=all",
	"core.fsyncMethod=fsync",
}

// environ returns the whole environment of a child. Of the server's own environment it has
// only PATH, which git needs for ssh.
func (c Command) environ() []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=/nonexistent",
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		// A pushed refs/replace/* must not change the objects that are read or merged.
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_NO_LAZY_FETCH=1",
	}
	if c.Repo != "" {
		env = append(env, "GIT_DIR="+c.Repo)
	}
	env = append(env, c.Env...)
	n := 0
	for _, list := range [][]string{configAlways, c.Config} {
		for _, kv := range list {
			k, v, _ := strings.Cut(kv, "=")
			i := strconv.Itoa(n)
			env = append(env, "GIT_CONFIG_KEY_"+i+"="+k, "GIT_CONFIG_VALUE_"+i+"="+v)
			n++
		}
	}
	return append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(n))
}

// Error is the failure of a child. Its exit code was not 0, or it was ended.
type Error struct {
	verb   string
	code   int // exit code, -1 if a signal ended the child
	stderr string
	err    error // from os/exec, or the cause of the end of the context
}

func (e *Error) Error() string {
	s := "git " + e.verb + ": " + e.err.Error()
	if e.stderr != "" {
		s += ": " + e.stderr
	}
	return s
}

func (e *Error) Unwrap() error { return e.err }

// ExitCode returns the exit code in the [Error] that err wraps. Returns -1 if err wraps none or
// a signal ended the child.
func ExitCode(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.code
	}
	return -1
}
