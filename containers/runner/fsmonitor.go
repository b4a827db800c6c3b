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

// git with core.fsmonitor asks a program for the files that may have changed since its index was written. It calls
// PROGRAM VERSION TOKEN, and expects a token and paths on standard output, each followed by NUL. In a work tree that
// the host has bound, the host knows them.

// FsmonitorPath is the path of the door that answers. The method is POST, and the body is the token.
const FsmonitorPath = "/fsmonitor"

const (
	fsmonitorWait = 10 * time.Second
	fsmonitorMax  = 64 << 20 // bytes of an answer
)

// Fsmonitor is `ramus fsmonitor VERSION TOKEN` as git calls it inside a container. It returns the exit status. With a
// status other than 0 git checks every file.
func Fsmonitor(args []string) int {
	if len(args) != 2 || args[0] != "2" {
		return 1 // an older git, which asks by time
	}
	ctx, cancel := context.WithTimeout(context.Background(), fsmonitorWait)
	defer cancel()
	// Errors are not shown to the user, because git works without an answer.
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
	// The answer is passed on only if it is complete, because git would take a part for the whole.
	answer, err := io.ReadAll(io.LimitReader(resp.Body, fsmonitorMax+1))
	if err != nil {
		return err
	}
	if len(answer) > fsmonitorMax || int64(len(answer)) != resp.ContentLength && resp.ContentLength >= 0 {
		return errors.New("the answer is incomplete")
	}
	_, err = out.Write(answer)
	return err
}

// doorClient returns a client for the door that uses no proxy, because the environment names the door itself as proxy.
func doorClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{}).DialContext, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
