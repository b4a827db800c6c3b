// Package client sends requests to a ramus server, by the unix socket of its data folder, or by a URL and a token.
//
// Its types are those of package gateway. A refusal of the server is returned as the problem that the server wrote.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/backup"
	"github.com/ramus-dev/ramus/executor/prune"
	"github.com/ramus-dev/ramus/executor/quota"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/credential"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/preview"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/session"
	"github.com/ramus-dev/ramus/gateway/share"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/gateway/token"
	"github.com/ramus-dev/ramus/gitd"
)

// Client has the address of one server. Its fields may be changed until the first call. Methods are safe for concurrent
// use.
type Client struct {
	// URL is the server's address, "https://ramus.example.org". If it is empty, Dial connects to the server.
	URL string
	// Token is sent as Bearer token. If it is empty, none is sent.
	Token string
	// Dial, if not nil, opens the connections, as to a unix socket.
	Dial func(ctx context.Context) (net.Conn, error)
	// Elsewhere returns the address of the server that took the place of the one at URL, or "" if it knows none. It is asked
	// when a stream of events breaks, which then goes on there, as do all later requests. Nil means that there is none.
	Elsewhere func(ctx context.Context) string
	// Missing, if not nil, is called with the names of the replicas whose items an answer lacks, because they do not answer. It
	// may be called concurrently.
	Missing func(replicas []string)
	// Agent is sent as User-Agent. If it is empty, "ramus" is sent.
	Agent string

	http  *http.Client
	moved atomic.Pointer[string] // the address after URL
}

// address returns the address of the server, as it is now.
func (c *Client) address() string {
	if to := c.moved.Load(); to != nil {
		return *to
	}
	return c.URL
}

// move looks for another server after a failure.
func (c *Client) move(ctx context.Context) {
	if c.Elsewhere == nil {
		return
	}
	if to := c.Elsewhere(ctx); to != "" {
		c.moved.Store(&to)
	}
}

// New returns a client for a URL and a token.
func New(url, token string) *Client {
	return (&Client{URL: url, Token: token}).init()
}

// Socket returns a client for the server to which dial connects.
func Socket(dial func(ctx context.Context) (net.Conn, error)) *Client {
	return (&Client{URL: "http://socket", Dial: dial}).init()
}

func (c *Client) init() *Client {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(true) // DialPort takes over a connection, which HTTP/2 does not allow
	if c.Dial != nil {
		t.Proxy = nil
		// A server that ends closes idle connections, perhaps while the next request is on its way. A new connection to
		// a socket costs nothing, and is either accepted or fails at once.
		t.DisableKeepAlives = true
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx) }
	}
	c.http = &http.Client{Transport: t}
	return c
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// segment returns a name as one path segment.
func segment(name string) string { return url.PathEscape(name) }

// query returns the JSON of a struct as a query, so that the names of parameters are in one place.
func query(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		return ""
	}
	values := url.Values{}
	for k, v := range fields {
		if list, ok := v.([]any); ok {
			for _, e := range list {
				values.Add(k, fmt.Sprint(e))
			}
			continue
		}
		values.Set(k, fmt.Sprint(v))
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

// send makes a request and returns its answer if that is a success.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	resp, err := c.exchange(ctx, method, path, body, header)
	if err != nil || resp.StatusCode < 300 {
		return resp, err
	}
	defer resp.Body.Close()
	return nil, readProblem(resp)
}

// exchange makes a request and returns its answer, with any status.
func (c *Client) exchange(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.address(), "/")+path, body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		r.Header[k] = v
	}
	agent := c.Agent
	if agent == "" {
		agent = "ramus"
	}
	r.Header.Set("User-Agent", agent)
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the invented URL of the socket would not help
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("cannot reach the ramus server: %w", err)
	}
	if names := gather.Missing(resp.Header); len(names) > 0 && c.Missing != nil {
		c.Missing(names)
	}
	return resp, nil
}

func readProblem(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return fmt.Errorf("cannot read the server's answer (%s): %w", resp.Status, err)
	}
	p := new(route.Problem)
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(b, p) != nil || p.Kind == "" {
		text := strings.TrimSpace(string(b[:min(len(b), 200)]))
		return fmt.Errorf("the server is not a ramus server, or a proxy responds instead: %s: %s", resp.Status, text)
	}
	return p
}

// do is send with JSON in both directions. nil sends, or expects, no body.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	header := http.Header{}
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
		header.Set("Content-Type", "application/json")
	}
	resp, err := c.send(ctx, method, path, body, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err := io.Copy(io.Discard, resp.Body)
		return err
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("cannot read the server's answer: %w", err)
	}
	return nil
}

func get[T any](ctx context.Context, c *Client, path string) (out T, err error) {
	return out, c.do(ctx, "GET", path, nil, &out)
}

func post[T any](ctx context.Context, c *Client, path string, in any) (out T, err error) {
	return out, c.do(ctx, "POST", path, in, &out)
}

// copyTo copies an answer that is not JSON.
func (c *Client) copyTo(ctx context.Context, path string, w io.Writer) error {
	resp, err := c.send(ctx, "GET", path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(w, resp.Body)
	return err
}

// Health returns version, engine and limits.
func (c *Client) Health(ctx context.Context) (gateway.Health, error) {
	return get[gateway.Health](ctx, c, "/health")
}

// Whoami returns the identity of the token.
func (c *Client) Whoami(ctx context.Context) (route.Who, error) {
	return get[route.Who](ctx, c, "/api/whoami")
}

// Library returns the task library.
func (c *Client) Library(ctx context.Context) ([]gateway.TaskInfo, error) {
	return get[[]gateway.TaskInfo](ctx, c, "/api/library")
}

// TaskFilter selects tasks, like engineer.TaskFilter.
type TaskFilter struct {
	Repo   string `json:"repo,omitempty"`
	Status string `json:"status,omitempty"`
	Active bool   `json:"active,omitempty"`
	Max    int    `json:"max,omitempty"`
}

// Tasks returns the engineer's tasks, newest first.
func (c *Client) Tasks(ctx context.Context, f TaskFilter) ([]record.Task, error) {
	return get[[]record.Task](ctx, c, "/api/tasks"+query(f))
}

// SubmitTask submits a software task.
func (c *Client) SubmitTask(ctx context.Context, s engineer.Submission) (record.Task, error) {
	return post[record.Task](ctx, c, "/api/tasks", s)
}

// Task returns a task by its id.
func (c *Client) Task(ctx context.Context, id string) (record.Task, error) {
	return get[record.Task](ctx, c, "/api/tasks/"+segment(id))
}

// RetryTask continues a failed task.
func (c *Client) RetryTask(ctx context.Context, id string) (record.Task, error) {
	return post[record.Task](ctx, c, "/api/tasks/"+segment(id)+"/retry", nil)
}

// SayTask sends text to a task.
func (c *Client) SayTask(ctx context.Context, id string, m engineer.TaskMessage) (record.Task, error) {
	return post[record.Task](ctx, c, "/api/tasks/"+segment(id)+"/say", m)
}

// CancelTask ends a task. With drop its branch is removed too.
func (c *Client) CancelTask(ctx context.Context, id string, drop bool) (t record.Task, err error) {
	q := struct {
		Drop bool `json:"drop,omitempty"`
	}{drop}
	return t, c.do(ctx, "DELETE", "/api/tasks/"+segment(id)+query(q), nil, &t)
}

// Check checks the text of a workflow. repo, if not empty, has its sub-workflows.
func (c *Client) Check(ctx context.Context, name, repo string, text []byte) (out gateway.Checked, err error) {
	q := struct {
		Name string `json:"name,omitempty"`
		Repo string `json:"repo,omitempty"`
	}{name, repo}
	resp, err := c.send(ctx, "POST", "/api/check"+query(q), bytes.NewReader(text), nil)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	return out, json.NewDecoder(resp.Body).Decode(&out)
}

// Repos returns all repositories.
func (c *Client) Repos(ctx context.Context) ([]gateway.Repo, error) {
	return get[[]gateway.Repo](ctx, c, "/api/repos")
}

// Repo returns the description of a repository.
func (c *Client) Repo(ctx context.Context, name string) (gateway.Repo, error) {
	return get[gateway.Repo](ctx, c, "/api/repos/"+segment(name))
}

// Commits returns the commits that are reachable from rev and not from not, newest first, at most 1000.
func (c *Client) Commits(ctx context.Context, repo, rev, not string) ([]gitd.Commit, error) {
	q := struct {
		Rev string `json:"rev,omitempty"`
		Not string `json:"not,omitempty"`
		Max int    `json:"max"`
	}{rev, not, 1000}
	return get[[]gitd.Commit](ctx, c, "/api/repos/"+segment(repo)+"/log"+query(q))
}

// CreateRepo creates or imports a repository. text gets the lines of progress.
func (c *Client) CreateRepo(ctx context.Context, n gateway.CreateRepo, text func(string)) (gateway.Repo, error) {
	p, err := c.progress(ctx, "/api/repos", n, text)
	if err != nil || p.Repo == nil {
		return gateway.Repo{}, err
	}
	return *p.Repo, nil
}

// RefreshRepo fast-forwards a repository's base. The answer has Refreshed, Base and Cold.
func (c *Client) RefreshRepo(ctx context.Context, name string, r gateway.RefreshRepo, text func(string)) (gateway.Progress, error) {
	return c.progress(ctx, "/api/repos/"+segment(name)+"/refresh", r, text)
}

// RemoveRepo removes a repository. With force the runs in it are stopped first.
func (c *Client) RemoveRepo(ctx context.Context, name string, force bool) (done gateway.RepoMoved, err error) {
	q := struct {
		Force bool `json:"force,omitempty"`
	}{force}
	return done, c.do(ctx, "DELETE", "/api/repos/"+segment(name)+query(q), nil, &done)
}

// RenameRepo gives a repository another name.
func (c *Client) RenameRepo(ctx context.Context, name, to string) (gateway.RepoMoved, error) {
	return post[gateway.RepoMoved](ctx, c, "/api/repos/"+segment(name)+"/rename", gateway.RenameRepo{Name: to})
}

// Bases returns the manifests of a repository's bases, newest first.
func (c *Client) Bases(ctx context.Context, name string, max int) (gateway.Bases, error) {
	q := struct {
		Max int `json:"max,omitempty"`
	}{max}
	return get[gateway.Bases](ctx, c, "/api/repos/"+segment(name)+"/bases"+query(q))
}

// RepoConfig returns the environment of a repository, each value with its origin. An empty base is the repository's own.
func (c *Client) RepoConfig(ctx context.Context, name, base string) (gateway.RepoConfig, error) {
	q := struct {
		Base string `json:"base,omitempty"`
	}{base}
	return get[gateway.RepoConfig](ctx, c, "/api/repos/"+segment(name)+"/config"+query(q))
}

// Tokens lists tokens, without the tokens themselves.
func (c *Client) Tokens(ctx context.Context) ([]gitd.Issued, error) {
	return get[[]gitd.Issued](ctx, c, "/api/tokens")
}

// RevokeToken revokes a token by its id.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.do(ctx, "DELETE", "/api/tokens/"+segment(id), nil, nil)
}

// Credentials lists credentials, without their values.
func (c *Client) Credentials(ctx context.Context, q credential.Query) ([]secret.Secret, error) {
	return get[[]secret.Secret](ctx, c, "/api/credentials"+query(q))
}

// SetCredentials stores credentials. A mistake in one stores none.
func (c *Client) SetCredentials(ctx context.Context, in credential.NewCredentials) ([]secret.Secret, error) {
	return post[[]secret.Secret](ctx, c, "/api/credentials", in)
}

// ActivateCredential switches a credential on or off.
func (c *Client) ActivateCredential(ctx context.Context, id string, active bool) (x secret.Secret, err error) {
	err = c.do(ctx, "PATCH", "/api/credentials/"+segment(id), credential.Change{Active: active}, &x)
	return x, err
}

// VerifyCredential tries a credential.
func (c *Client) VerifyCredential(ctx context.Context, id string) (credential.Verified, error) {
	return post[credential.Verified](ctx, c, "/api/credentials/"+segment(id)+"/verify", struct{}{})
}

// RemoveCredential removes a credential.
func (c *Client) RemoveCredential(ctx context.Context, id string) error {
	return c.do(ctx, "DELETE", "/api/credentials/"+segment(id), nil, nil)
}

// RotateKeys seals all credentials with a new key.
func (c *Client) RotateKeys(ctx context.Context) (credential.Rotated, error) {
	return post[credential.Rotated](ctx, c, "/api/keys/rotate", struct{}{})
}

// ImportConfig proposes the environment that a caller made for itself as a change of its repository. It returns the run
// of the new caller.
func (c *Client) ImportConfig(ctx context.Context, caller string, in gateway.ImportConfig) (record.Run, error) {
	return post[record.Run](ctx, c, "/api/callers/"+segment(caller)+"/config", in)
}

func (c *Client) progress(ctx context.Context, path string, in any, text func(string)) (last gateway.Progress, err error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return last, err
		}
		body = bytes.NewReader(b)
	}
	resp, err := c.send(ctx, "POST", path, body, http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return last, err
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	for {
		var p gateway.Progress
		if err := d.Decode(&p); err != nil {
			return last, broken(ctx, err)
		}
		switch {
		case p.Problem != nil:
			return last, p.Problem
		case p.Repo != nil || p.Refreshed != nil:
			return p, nil
		case p.Text != "" && text != nil:
			text(p.Text)
		}
	}
}

// broken returns the error for a stream that ended too early.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("the connection to the ramus server broke: %w", err)
}

// Filter selects entries of a list, like executor.Filter.
type Filter struct {
	Repo   string `json:"repo,omitempty"`
	Caller string `json:"caller,omitempty"`
	State  string `json:"state,omitempty"`
	Live   bool   `json:"live,omitempty"`
	Max    int    `json:"max,omitempty"`
}

// Runs returns runs, newest first.
func (c *Client) Runs(ctx context.Context, f Filter) ([]record.Run, error) {
	return get[[]record.Run](ctx, c, "/api/runs"+query(f))
}

// Submit starts a run.
func (c *Client) Submit(ctx context.Context, r record.Request) (record.Run, error) {
	return post[record.Run](ctx, c, "/api/runs", r)
}

// Run returns a run by name, or by a part of it.
func (c *Client) Run(ctx context.Context, name string) (record.Run, error) {
	return get[record.Run](ctx, c, "/api/runs/"+segment(name))
}

// StopRun stops a run.
func (c *Client) StopRun(ctx context.Context, name string) (record.Run, error) {
	return post[record.Run](ctx, c, "/api/runs/"+segment(name)+"/stop", nil)
}

// Retry starts a failed run again.
func (c *Client) Retry(ctx context.Context, name string) (record.Run, error) {
	return post[record.Run](ctx, c, "/api/runs/"+segment(name)+"/retry", nil)
}

// Decide answers a gate.
func (c *Client) Decide(ctx context.Context, name string, d record.Decision) (record.Run, error) {
	return post[record.Run](ctx, c, "/api/runs/"+segment(name)+"/decide", d)
}

// Say sends text to a run's agent, for its next turn.
func (c *Client) Say(ctx context.Context, name string, p record.Prompt) (record.Run, error) {
	return post[record.Run](ctx, c, "/api/runs/"+segment(name)+"/say", p)
}

// StopTurn stops the turn of a run's agent.
func (c *Client) StopTurn(ctx context.Context, name string) (conversation.StoppedTurn, error) {
	return post[conversation.StoppedTurn](ctx, c, "/api/runs/"+segment(name)+"/stop-turn", nil)
}

// Output copies a step's complete stdout or stderr.
func (c *Client) Output(ctx context.Context, run, step, stream string, w io.Writer) error {
	return c.copyTo(ctx, "/api/runs/"+segment(run)+"/output/"+segment(step)+"/"+stream, w)
}

// Evidence returns the manifest of a run that has ended or waits.
func (c *Client) Evidence(ctx context.Context, run string) (record.Manifest, error) {
	return get[record.Manifest](ctx, c, "/api/runs/"+segment(run)+"/evidence")
}

// EvidenceLink returns a link to the page of a run's evidence that opens without a token.
func (c *Client) EvidenceLink(ctx context.Context, run string) (evidence.EvidenceLink, error) {
	return post[evidence.EvidenceLink](ctx, c, "/api/runs/"+segment(run)+"/link", nil)
}

// Share makes a link to a run, a moment or a conversation for people who do not sign in.
func (c *Client) Share(ctx context.Context, w share.Wish) (share.Link, error) {
	return post[share.Link](ctx, c, "/api/shares", w)
}

// Shares returns such links, the newest first. of limits them to a caller, and is empty for all.
func (c *Client) Shares(ctx context.Context, of string) ([]share.Link, error) {
	return get[[]share.Link](ctx, c, "/api/shares?"+url.Values{"of": {of}}.Encode())
}

// RevokeShare revokes such a link.
func (c *Client) RevokeShare(ctx context.Context, id string) (l share.Link, err error) {
	err = c.do(ctx, "DELETE", "/api/shares/"+segment(id), nil, &l)
	return l, err
}

// EvidenceFile copies a file of a run's evidence. run is the complete name, and file the name in the manifest.
func (c *Client) EvidenceFile(ctx context.Context, run, file string, w io.Writer) error {
	return c.copyTo(ctx, (&url.URL{Path: "/evidence/" + run + "/files/" + file}).EscapedPath(), w)
}

// Callers returns callers, the most recently active first.
func (c *Client) Callers(ctx context.Context, f Filter) ([]executor.CallerStatus, error) {
	return get[[]executor.CallerStatus](ctx, c, "/api/callers"+query(f))
}

// Caller returns a caller by name, or by a part of it.
func (c *Client) Caller(ctx context.Context, name string) (executor.CallerStatus, error) {
	return get[executor.CallerStatus](ctx, c, "/api/callers/"+segment(name))
}

// Log returns a caller's commands and commits, newest first.
func (c *Client) Log(ctx context.Context, caller string, patch bool, max int) ([]gateway.LogEntry, error) {
	q := struct {
		Patch bool `json:"patch,omitempty"`
		Max   int  `json:"max,omitempty"`
	}{patch, max}
	return get[[]gateway.LogEntry](ctx, c, "/api/callers/"+segment(caller)+"/log"+query(q))
}

// Diff writes the changes of a caller, as a patch or a diffstat.
func (c *Client) Diff(ctx context.Context, caller string, stat bool, paths []string, w io.Writer) error {
	q := struct {
		Stat bool     `json:"stat,omitempty"`
		Path []string `json:"path,omitempty"`
	}{stat, paths}
	return c.copyTo(ctx, "/api/callers/"+segment(caller)+"/diff"+query(q), w)
}

// DiffIn writes the changes of a branch of a repository since it left the base, as a patch or a diffstat.
func (c *Client) DiffIn(ctx context.Context, repo, branch string, stat bool, paths []string, w io.Writer) error {
	q := struct {
		To        string   `json:"to"`
		Stat      bool     `json:"stat,omitempty"`
		MergeBase bool     `json:"merge_base"`
		Path      []string `json:"path,omitempty"`
	}{branch, stat, true, paths}
	return c.copyTo(ctx, "/api/repos/"+segment(repo)+"/diff"+query(q), w)
}

// Changes returns the files that a caller changed.
func (c *Client) Changes(ctx context.Context, caller string) ([]gitd.Change, error) {
	return get[[]gitd.Change](ctx, c, "/api/callers/"+segment(caller)+"/changes")
}

// Merge merges a caller's branch into another. A conflict is a result and not an error.
func (c *Client) Merge(ctx context.Context, caller string, m record.Merge) (record.LandedAll, error) {
	return post[record.LandedAll](ctx, c, "/api/callers/"+segment(caller)+"/merge", m)
}

// Rollback restores the files of a caller's branch from an earlier commit.
func (c *Client) Rollback(ctx context.Context, caller string, b gateway.Rollback) (gateway.RolledBack, error) {
	return post[gateway.RolledBack](ctx, c, "/api/callers/"+segment(caller)+"/rollback", b)
}

// StopCaller stops all of a caller's runs and its container.
func (c *Client) StopCaller(ctx context.Context, name string) (executor.CallerStatus, error) {
	return post[executor.CallerStatus](ctx, c, "/api/callers/"+segment(name)+"/stop", nil)
}

// RemoveCaller stops all of a caller's runs and removes its container, branch and saved work.
func (c *Client) RemoveCaller(ctx context.Context, name string) (done executor.Removed, err error) {
	return done, c.do(ctx, "DELETE", "/api/callers/"+segment(name), nil, &done)
}

// Sessions returns a caller's sessions with agents, the most recently used first.
func (c *Client) Sessions(ctx context.Context, caller string) ([]record.Session, error) {
	return get[[]record.Session](ctx, c, "/api/callers/"+segment(caller)+"/sessions")
}

// Processes returns a caller's background processes.
func (c *Client) Processes(ctx context.Context, caller string) ([]executor.Process, error) {
	return get[[]executor.Process](ctx, c, "/api/callers/"+segment(caller)+"/processes")
}

// Ports returns the ports at which programs listen in a caller's container.
func (c *Client) Ports(ctx context.Context, caller string) ([]preview.Port, error) {
	return get[[]preview.Port](ctx, c, "/api/callers/"+segment(caller)+"/ports")
}

// DialPort connects to a port of a caller's container. ctx bounds the whole lifetime of the connection.
func (c *Client) DialPort(ctx context.Context, caller string, port int) (io.ReadWriteCloser, error) {
	resp, err := c.exchange(ctx, "POST", "/api/callers/"+segment(caller)+"/ports/"+strconv.Itoa(port)+"/connect", nil,
		http.Header{"Connection": {"Upgrade"}, "Upgrade": {preview.PortUpgrade}})
	if err != nil {
		return nil, err
	}
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		return conn, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode < 300 {
		return nil, fmt.Errorf("the server, or a proxy before it, does not upgrade connections: %s", resp.Status)
	}
	return nil, readProblem(resp)
}

// StopProcess ends a background process.
func (c *Client) StopProcess(ctx context.Context, caller, id string) error {
	return c.do(ctx, "DELETE", "/api/callers/"+segment(caller)+"/processes/"+segment(id), nil, nil)
}

// ProcessOutput copies the output of a background process so far, and with follow also the rest until it ends.
func (c *Client) ProcessOutput(ctx context.Context, caller, id string, follow bool, stdout, stderr io.Writer) error {
	path := "/api/callers/" + segment(caller) + "/processes/" + segment(id) + "/output"
	if follow {
		path += "?follow=1"
	}
	resp, err := c.send(ctx, "GET", path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = execLines(ctx, resp.Body, stdout, stderr)
	return err
}

// NewToken creates a token.
func (c *Client) NewToken(ctx context.Context, n signin.NewToken) (signin.Token, error) {
	return post[signin.Token](ctx, c, "/api/tokens", n)
}

// NewOwnToken creates a token for the caller itself, with its own rights or fewer.
func (c *Client) NewOwnToken(ctx context.Context, n token.NewOwn) (token.Made, error) {
	return post[token.Made](ctx, c, "/api/tokens/own", n)
}

// OwnerLink makes a link that signs in the owner of the data folder, once, and then comes to a path of the server.
func (c *Client) OwnerLink(ctx context.Context, to string) (signin.Link, error) {
	return post[signin.Link](ctx, c, "/api/sign-in/link", signin.NewLink{To: to})
}

// People returns the people who have signed in.
func (c *Client) People(ctx context.Context) ([]signin.Person, error) {
	return get[[]signin.Person](ctx, c, "/api/people")
}

// ChangeRoles changes the roles of a person, by id or login.
func (c *Client) ChangeRoles(ctx context.Context, person string, n signin.NewRoles) (p signin.Person, err error) {
	return p, c.do(ctx, http.MethodPatch, "/api/people/"+url.PathEscape(person), n, &p)
}

// RemovePerson removes a person, by id or login, and ends their sessions.
func (c *Client) RemovePerson(ctx context.Context, person string) (n signin.Ended, err error) {
	return n, c.do(ctx, http.MethodDelete, "/api/people/"+url.PathEscape(person), nil, &n)
}

// Browsers returns the browsers that are signed in, of a person or, if person is "", of all.
func (c *Client) Browsers(ctx context.Context, person string) ([]session.Session, error) {
	return get[[]session.Session](ctx, c, "/api/sessions?person="+url.QueryEscape(person))
}

// EndSessions ends all sessions of a person.
func (c *Client) EndSessions(ctx context.Context, person string) (n signin.Ended, err error) {
	return n, c.do(ctx, http.MethodDelete, "/api/sessions?person="+url.QueryEscape(person), nil, &n)
}

// EndSession ends a session.
func (c *Client) EndSession(ctx context.Context, id string) (n signin.Ended, err error) {
	return n, c.do(ctx, http.MethodDelete, "/api/sessions/"+url.PathEscape(id), nil, &n)
}

// Reindex rebuilds the index.
func (c *Client) Reindex(ctx context.Context) (gateway.Reindexed, error) {
	return post[gateway.Reindexed](ctx, c, "/api/reindex", nil)
}

// Reload has the server read its configuration again.
func (c *Client) Reload(ctx context.Context) (gateway.Reloaded, error) {
	return post[gateway.Reloaded](ctx, c, "/api/reload", nil)
}

// Quotas returns how much of the quotas people and repositories use.
func (c *Client) Quotas(ctx context.Context) ([]quota.Use, error) {
	return get[[]quota.Use](ctx, c, "/api/quotas")
}

// Backup copies the data folder of a server on this machine.
func (c *Client) Backup(ctx context.Context, r backup.Request) (backup.Snapshot, error) {
	return post[backup.Snapshot](ctx, c, "/api/backup", r)
}

// Prune removes the data that is not kept, and returns a list of it.
func (c *Client) Prune(ctx context.Context, p prune.Pruning) ([]prune.Pruned, error) {
	return post[[]prune.Pruned](ctx, c, "/api/prune", p)
}

// ExecOptions are the options of [Client.Exec] that are not part of the request.
type ExecOptions struct {
	// Stdin is copied to the command. If it is nil, the command has no input.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Detach lets the command continue after ctx has ended.
	Detach bool
}

// Exec runs a command for a caller ("new" makes one) and copies its output as it arrives. If ctx ends, the command is
// stopped.
func (c *Client) Exec(ctx context.Context, caller string, x gateway.ExecRequest, o ExecOptions) (record.Result, error) {
	var none record.Result
	x.Stdin = o.Stdin != nil
	b, err := json.Marshal(x)
	if err != nil {
		return none, err
	}
	var body io.Reader = bytes.NewReader(append(b, '\n'))
	if o.Stdin != nil {
		body = io.MultiReader(body, o.Stdin)
	}
	path := "/api/callers/" + segment(caller) + "/exec"
	if o.Detach {
		path += "?detach=1"
	}
	resp, err := c.send(ctx, "POST", path, body, http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return none, err
	}
	defer resp.Body.Close()
	return execLines(ctx, resp.Body, o.Stdout, o.Stderr)
}

// execLines copies output until the end of the stream, which has the result.
func execLines(ctx context.Context, body io.Reader, stdout, stderr io.Writer) (none record.Result, err error) {
	streams := map[string]io.Writer{"stdout": stdout, "stderr": stderr}
	d := json.NewDecoder(body)
	for {
		var l gateway.ExecLine
		if err := d.Decode(&l); err != nil {
			return none, broken(ctx, err)
		}
		switch {
		case l.Problem != nil:
			return none, l.Problem
		case l.Result != nil:
			return *l.Result, nil
		case l.End:
			return none, nil
		case streams[l.Stream] != nil:
			if _, err := streams[l.Stream].Write(l.Data); err != nil {
				return none, err
			}
		}
	}
}

// Journal returns the events of a run so far.
func (c *Client) Journal(ctx context.Context, run string) ([]record.Event, error) {
	return get[[]record.Event](ctx, c, "/api/runs/"+segment(run)+"/events?follow=0")
}

// Events returns the events of a run after a number, until the run has ended. It reconnects if the connection breaks.
func (c *Client) Events(ctx context.Context, run string, after int64) iter.Seq2[record.Event, error] {
	return c.follow(ctx, "/api/runs/"+segment(run)+"/events", after)
}

// Watch returns the events of all runs, or of those of one caller. It ends with an error if the connection breaks,
// because missed events are not known.
func (c *Client) Watch(ctx context.Context, caller string) iter.Seq2[record.Event, error] {
	q := struct {
		Caller string `json:"caller,omitempty"`
	}{caller}
	return c.follow(ctx, "/api/watch"+query(q), -1)
}

// follow reads server-sent events. after is negative if they cannot be resumed.
func (c *Client) follow(ctx context.Context, path string, after int64) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for failures := 0; ; {
			header := http.Header{"Accept": {"text/event-stream"}}
			if after > 0 {
				header.Set("Last-Event-ID", strconv.FormatInt(after, 10))
			}
			resp, err := c.send(ctx, "GET", path, nil, header)
			if err == nil {
				var done bool
				done, err = c.frames(resp.Body, &after, &failures, yield)
				resp.Body.Close()
				if done {
					return
				}
			}
			var refused *route.Problem
			failures++
			switch {
			case ctx.Err() != nil:
				yield(record.Event{}, ctx.Err())
				return
			case errors.As(err, &refused) && refused.Kind != route.KindUnavailable, after < 0, failures > 10:
				yield(record.Event{}, err)
				return
			}
			if !pause(ctx, failures) {
				yield(record.Event{}, ctx.Err())
				return
			}
			c.move(ctx)
		}
	}
}

// frames reads the events of one connection. done is true if there is nothing to reconnect for.
func (c *Client) frames(body io.Reader, after *int64, failures *int, yield func(record.Event, error) bool) (done bool, err error) {
	s := bufio.NewScanner(body)
	s.Buffer(nil, 16<<20)
	var name, data string
	for s.Scan() {
		key, value, _ := strings.Cut(s.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch key {
		case "event":
			name = value
		case "data":
			data = value
		case "":
			if s.Text() != "" || data == "" {
				continue
			}
			*failures = 0
			switch name {
			case "end":
				return true, nil
			case "drain":
				return false, errors.New("the server is shutting down")
			case "error":
				p := new(route.Problem)
				if err := json.Unmarshal([]byte(data), p); err != nil {
					return false, err
				}
				return false, p
			default:
				var e record.Event
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					return false, err
				}
				if *after >= 0 && e.Seq > 0 {
					*after = e.Seq
				}
				if !yield(e, nil) {
					return true, nil
				}
			}
			name, data = "", ""
		}
	}
	if err := s.Err(); err != nil {
		return false, err
	}
	return false, io.ErrUnexpectedEOF
}
