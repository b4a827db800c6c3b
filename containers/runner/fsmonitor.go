package runner

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// git with core.fsmonitor asks a program which files may have changed since its index was
// written: PROGRAM VERSION TOKEN, and a token and paths are expected on standard output,
// each with a NUL behind it. In a work tree that the host has bound it is the host that knows.

// FsmonitorPath is where the door tells: POST, the body is the token.
const FsmonitorPath = "/fsmonitor"

const (
	fsmonitorWait = 10 * time.Second
	fsmonitorMax  = 64 << 20 // bytes of an answer
)

// Fsmonitor is `ramus fsmonitor VERSION TOKEN` as git calls it inside a container. It
// returns the exit status; with any but 0 git looks at every file.
func Fsmonitor(args []string) int {
	if len(args) != 2 || args[0] != "2" {
		return 1 // an older git, which asks by time
	}
	ctx, cancel := context.WithTimeout(context.Background(), fsmonitorWait)
	defer cancel()
	// What goes wrong is no concern of the user's, whose git does without.
	if err := changedSince(ctx, "http://"+doorDefault+FsmonitorPath, args[1], os.Stdout); err != nil {
		return 1
	}
	return 0
}

func changedSince(ctx context.Context, door, token string, out io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, door, strings.NewReader(token))
	if err != nil {
		return err
	}
	resp, err := doorClient().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	// Whole or not at all: half of the paths would be taken for all.
	answer, err := io.ReadAll(io.LimitReader(resp.Body, fsmonitorMax+1))
	if err != nil {
		return err
	}
	if len(answer) > fsmonitorMax || int64(len(answer)) != resp.ContentLength && resp.ContentLength >= 0 {
		return errors.New("the answer is not whole")
	}
	_, err = out.Write(answer)
	return err
}

// doorClient speaks to the door, and uses no proxy: what the environment names is this
// very door.
func doorClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{}).DialContext, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
