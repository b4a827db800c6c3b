package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gateway/client"
)

// connection is a connection to a server: a remote one, the one of the data folder, or one inside this process.
type connection struct {
	env    *env
	config Config
	client *client.Client
	// remote is true for servers by URL, whose repositories are not on this disk.
	remote bool
	// leave keeps containers when the server inside this process ends.
	leave bool
	// await waits for another server to start if the one that was used has ended. Without it this process becomes the
	// server.
	await bool

	mu    sync.Mutex // guards own and front
	own   *installation
	front *front
}

// connect connects to the server that the environment or the data folder names.
func connect(ctx context.Context, e *env) (*connection, error) {
	c := &connection{env: e, leave: e.keep}
	far, err := remote(ctx, e)
	if err != nil {
		return nil, err
	}
	if far != nil {
		c.remote, c.client = true, far
		return c, nil
	}
	if c.config, err = e.config(); err != nil {
		return nil, err
	}
	c.client = client.Socket(c.dial)
	c.client.Missing = e.warnMissing
	// Dial once now, so that the reason why a server cannot start is reported unchanged.
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return c, conn.Close()
}

// remote returns a client for the server that the environment names. Returns nil if it names none.
func remote(ctx context.Context, e *env) (*client.Client, error) {
	url := e.getenv("RAMUS_URL")
	if url == "" || e.dataFlag != "" {
		return nil, nil
	}
	urls := strings.Split(url, ",")
	for i := range urls {
		urls[i] = strings.TrimSpace(urls[i])
		if !strings.HasPrefix(urls[i], "http://") && !strings.HasPrefix(urls[i], "https://") {
			return nil, usage("RAMUS_URL is %q; want http://… or https://…, or several of them with commas", url)
		}
	}
	c := client.New(cmp.Or(newest(ctx, urls), urls[0]), e.getenv("RAMUS_TOKEN"))
	c.Missing = e.warnMissing
	if len(urls) > 1 {
		c.Elsewhere = func(ctx context.Context) string { return newest(ctx, urls) }
	}
	return c, nil
}

// epochAt returns the epoch of a server. It is zero if that does not answer, or is no server.
func epochAt(ctx context.Context, url string) standby.Epoch {
	h := healthAt(ctx, url)
	if h.Role != standby.RoleServer {
		return standby.Epoch{}
	}
	return standby.Epoch{Number: h.Epoch, ID: h.EpochID}
}

// newest returns the URL of the server with the highest epoch, or "" if none answers. It does not ask a single one.
func newest(ctx context.Context, urls []string) (best string) {
	if len(urls) == 1 {
		return urls[0]
	}
	epochs := make([]standby.Epoch, len(urls))
	var asking sync.WaitGroup
	for i, url := range urls {
		asking.Go(func() { epochs[i] = epochAt(ctx, url) })
	}
	asking.Wait()
	var highest standby.Epoch
	for i, epoch := range epochs {
		if epoch.Over(highest) {
			best, highest = urls[i], epoch
		}
	}
	return best
}

// runningServer returns a client for a server that runs already. Work that is started there continues after this
// command has ended.
func runningServer(ctx context.Context, e *env) (*client.Client, error) {
	if far, err := remote(ctx, e); far != nil || err != nil {
		return far, err
	}
	config, err := e.config()
	if err != nil {
		return nil, err
	}
	conn, err := dialSocket(ctx, config.Data)
	if err != nil {
		return nil, &exitStatus{exitAway,
			fmt.Errorf("no ramus server runs on %s: start one with `ramus serve`, or set RAMUS_URL and RAMUS_TOKEN (%w)", config.Data, err)}
	}
	if err := conn.Close(); err != nil {
		return nil, err
	}
	c := client.Socket(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, config.Data) })
	c.Missing = e.warnMissing
	return c, nil
}

// patience is how long to wait for another process without a message.
const patience = 2 * time.Second

// dial connects to the server of the data folder. If none runs, this process becomes the server. So a command whose
// server ends meanwhile continues with its own.
func (c *connection) dial(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	begun, told := time.Now(), false
	for {
		conn, err := dialSocket(ctx, c.config.Data)
		if err == nil || ctx.Err() != nil || c.await && c.own == nil {
			return conn, err
		}
		lock, err := lockFolder(c.config.Data)
		switch {
		case err == nil:
			if err := c.start(ctx, lock); err != nil {
				return nil, err
			}
			continue
		case !errors.Is(err, errLocked):
			return nil, err
		case time.Since(begun) > patience && !told:
			told = true
			fmt.Fprintf(c.env.err, "ramus: waiting for another ramus%s, which is starting or ending\n", owner(c.config.Data))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockAgain):
		}
	}
}

// owner returns a description of the process that has the lock, for people.
func owner(data string) string {
	b, err := os.ReadFile(filepath.Join(data, "ramus.lock"))
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return " (process " + pid + ")"
	}
	return ""
}

// start makes this process the server.
func (c *connection) start(ctx context.Context, lock *os.File) error {
	if c.own != nil {
		lock.Close()
		return errors.New("the server inside this process has ended")
	}
	log, level := newLog(c.env.err, c.config.Log, slog.LevelWarn)
	// The command's context ends at an interrupt, but the server then still has to commit changes.
	config := c.config
	config.Pool = 0 // a pool would be of no use to later commands, which find another server
	i, err := open(context.WithoutCancel(ctx), config, lock, c.env.environ, log, level)
	if err != nil {
		return err
	}
	f, err := i.listen(ctx, true)
	if err != nil {
		return errors.Join(err, i.close(context.WithoutCancel(ctx), true))
	}
	c.own, c.front = i, f
	return nil
}

// othersMay bounds the wait for other users of this process's server, and endWithin the end of the server. Stopped
// commands still have to be committed.
const (
	othersMay = 10 * time.Minute
	endWithin = time.Minute
)

func (c *connection) close() error {
	c.client.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), othersMay)
	defer cancel()
	err := c.front.shutdown(ctx)
	ctx, cancel = context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	return errors.Join(err, c.own.close(ctx, c.leave))
}
