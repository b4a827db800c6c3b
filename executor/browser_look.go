package executor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// look is one look at a page: of a step's work tree in its own container, or of
// another commit in a container that works for nobody else.
type look struct {
	w       *work
	shell   *taskShell // to read the work tree by
	spec    browser.Spec
	timeout time.Duration // of Install
	part    string        // folder of the host where the evidence is gathered
	dir     string        // what names of files begin with
	check   browser.Check
	// secrets are the server's, and what was typed or came from Auth.
	secrets *redact.Secrets
}

// Bounds of what happens before the browser is asked.
const (
	authWithin = 2 * time.Minute
	stopWithin = 30 * time.Second
	listenPoll = 100 * time.Millisecond
	probeTime  = 3 * time.Second
	// betterWithin is how long a better port than one that answers without a page is waited for.
	betterWithin = 3 * time.Second
	maxApps      = 20 // ports that are asked whether they speak HTTP
)

// judged is the end of a look before, or without, the browser's own word.
type judged struct {
	verdict browser.Verdict
	reason  string
}

func (j *judged) Error() string { return j.reason }

func fails(format string, args ...any) error {
	return &judged{browser.Fail, fmt.Sprintf(format, args...)}
}

func unverified(format string, args ...any) error {
	return &judged{browser.Unverified, fmt.Sprintf(format, args...)}
}

// run looks, and writes into check what came of it. An error is not the page's: the
// container was lost, or who asked has gone.
func (k *look) run(ctx context.Context) error {
	err := k.do(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var j *judged
	if errors.As(err, &j) {
		k.check.Verdict, k.check.Reason = j.verdict, j.reason
		return nil
	}
	return err
}

func (k *look) do(ctx context.Context) (err error) {
	if k.w.l.x.Browser == nil {
		return unverified("there is no browser here: see `browser` in the configuration, and `ramus doctor`")
	}
	page, err := parsePage(k.spec.URL)
	if err != nil {
		return unverified("%v", err)
	}
	if k.spec.Start != startNone && page.local {
		done, err := k.w.t.serve(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	install, start, err := k.plan(ctx, page)
	if err != nil {
		return err
	}
	if install != "" {
		if err := k.install(ctx, install); err != nil {
			return err
		}
	}
	var a *app
	if start != "" {
		if a, err = k.start(ctx, start); err != nil {
			return err
		}
		defer func() {
			a.stop(ctx)
			err = errors.Join(err, k.keepLog(a))
		}()
	}
	if page.local {
		if err := k.await(ctx, a, &page); err != nil {
			return err
		}
	}
	state, err := k.auth(ctx, page)
	if err != nil {
		return err
	}
	return k.inspect(ctx, page, state)
}

// startNone is the Start of a page that is served already.
const startNone = "none"

// page is where a page is.
type page struct {
	url   string // empty: not known yet
	local bool   // in the container
	host  string // as the container dials it
	port  int
}

// parsePage reads a spec's URL.
func parsePage(address string) (p page, err error) {
	if address == "" {
		return page{local: true, host: "127.0.0.1"}, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return p, fmt.Errorf("cannot read the page's address: %w", err)
	}
	p = page{url: address, host: u.Hostname()}
	switch p.host {
	case "127.0.0.1", "::1", "localhost":
		p.local = true
	}
	switch port := u.Port(); {
	case port != "":
		p.port, err = strconv.Atoi(port)
	case u.Scheme == "https":
		p.port = 443
	default:
		p.port = 80
	}
	if err != nil || p.port < 1 || p.port > 65535 {
		return p, fmt.Errorf("cannot read the page's address: %.100q is no port", u.Port())
	}
	return p, nil
}

func (p page) addr() string { return net.JoinHostPort(p.host, strconv.Itoa(p.port)) }

// serve waits for the turn to start something that serves a page in the container.
func (t *target) serve(ctx context.Context) (func(), error) {
	select {
	case t.serving <- struct{}{}:
		return sync.OnceFunc(func() { <-t.serving }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// plan says what is installed and started.
func (k *look) plan(ctx context.Context, p page) (install, start string, err error) {
	install, start = k.spec.Install, k.spec.Start
	switch {
	case start == startNone || !p.local && start == "":
		return install, "", nil
	case start == "" && p.url != "" && k.listens(ctx, p):
		return install, "", nil
	case start != "" && p.local && p.url != "" && k.listens(ctx, p):
		return "", "", unverified("something listens at %s already, before `%s` was started: end it, or say start: none to look at it", p.addr(), start)
	case start != "":
		return install, start, nil
	}
	found, start, err := browser.Server(func(name string) ([]byte, error) {
		return k.shell.readFile(ctx, path.Join(k.spec.Dir, name))
	})
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, containers.ErrGone) {
			return "", "", err
		}
		return "", "", unverified("%v", err)
	}
	if install == "" {
		install = found
	}
	return install, start, nil
}

// command runs a command line of the spec to its end.
func (k *look) command(ctx context.Context, line string, within time.Duration, stdout, stderr io.Writer, env ...string) (containers.Exit, error) {
	w := k.w
	w.n++
	id := w.id + "." + strconv.Itoa(w.n)
	exit, err := w.attend(ctx, id, &containers.Command{ID: id, Shell: line, Dir: k.spec.Dir, Timeout: within,
		Env: append(w.l.x.trees.Identity.Env(w.l.claim.Asker), env...)}, stdout, stderr)
	if err == nil {
		_ = w.host.Forget(ctx, id) // only memory is lost when the runner does not hear it
	}
	return exit, err
}

// install runs what the page needs first, once in a container for one tree: many pages of it
// may be checked. What was found in package.json needs its lock files alone, so that
// an agent's work on other files does not have it installed anew under its hands.
func (k *look) install(ctx context.Context, line string) error {
	from := k.check.Tree
	if k.spec.Install == "" {
		locks, err := k.w.t.Repo.Lockfiles(ctx, gitd.Hash(k.check.Commit))
		if err != nil {
			return err
		}
		from = fmt.Sprint(locks) // maps print in the order of their keys
	}
	done := strings.Join([]string{k.w.host.Container().ID, from, k.spec.Dir, line}, "\x00")
	if k.w.t.swapInstalled("") == done {
		k.w.t.swapInstalled(done)
		return nil
	}
	said := &text.Tail{Limit: maxBrowserSaid}
	out, errs, flush := k.w.l.x.cleanCopy(said, said)
	exit, err := k.command(ctx, line, k.timeout, k.w.heard(out, false), k.w.heard(errs, true), "CI=true")
	flush()
	if err != nil {
		return err
	}
	if exit.Code != 0 || exit.Reason != "" {
		k.check.Log = said.String()
		return unverified("what the page needs could not be installed: `%s` %s: %s", line, howEnded(exit), lastLines(said.String()))
	}
	k.w.t.swapInstalled(done)
	return nil
}

// swapInstalled notes what is installed in the container now, and returns what was noted.
func (t *target) swapInstalled(what string) (before string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, t.installed = t.installed, what
	return before
}

// howEnded says in words how a command ended.
func howEnded(e containers.Exit) string {
	switch e.Reason {
	case containers.ReasonTimeout:
		return "took too long and was ended"
	case containers.ReasonDiskFull:
		return "filled the disk and was ended"
	case containers.ReasonMemory:
		return "used more memory than it may and was ended"
	case containers.ReasonKilled:
		return "was stopped"
	}
	if e.Signal != "" {
		return "was ended by the signal " + e.Signal
	}
	return fmt.Sprintf("ended with exit code %d", e.Code)
}

// lastLines is the end of what a command said, for the middle of a sentence.
func lastLines(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	said := strings.Join(strings.Fields(strings.Join(lines[max(0, len(lines)-5):], " ")), " ")
	if said == "" {
		return "it said nothing"
	}
	return text.ClipEnd(said, 500)
}

// maxState is the largest storage state, in bytes.
const maxState = 256 << 10

// auth makes the session that the page is looked at with. What its command prints is
// secret: it is kept nowhere, and its values are taken out of all evidence.
func (k *look) auth(ctx context.Context, p page) (json.RawMessage, error) {
	if k.spec.Auth == "" {
		return nil, nil
	}
	var out bytes.Buffer
	limit := &text.Limit{W: &out, Left: maxState}
	said := &text.Tail{Limit: maxBrowserSaid}
	_, errs, flush := k.w.l.x.cleanCopy(nil, said)
	exit, err := k.command(ctx, k.spec.Auth, authWithin, limit, errs, "RAMUS_PAGE_URL="+p.url)
	flush()
	if err != nil {
		return nil, err
	}
	if exit.Code != 0 || exit.Reason != "" {
		return nil, unverified("no session could be made: `%s` %s: %s", k.spec.Auth, howEnded(exit), lastLines(said.String()))
	}
	if limit.Cut {
		return nil, unverified("no session could be made: `%s` printed more than %d KiB", k.spec.Auth, maxState>>10)
	}
	state, values, err := parseState(out.Bytes())
	if err != nil {
		return nil, unverified("no session could be made: what `%s` printed is no storage state: %v", k.spec.Auth, err)
	}
	k.secrets = k.secrets.With(values)
	return state, nil
}

// storageState is a session as Playwright keeps it.
type storageState struct {
	Cookies []storedCookie `json:"cookies"`
	Origins []storedOrigin `json:"origins"`
}

type storedCookie struct {
	Name         string   `json:"name"`
	Value        string   `json:"value"`
	Domain       string   `json:"domain,omitempty"`
	Path         string   `json:"path,omitempty"`
	URL          string   `json:"url,omitempty"`
	Expires      *float64 `json:"expires,omitempty"`
	HTTPOnly     bool     `json:"httpOnly,omitempty"`
	Secure       bool     `json:"secure,omitempty"`
	SameSite     string   `json:"sameSite,omitempty"`
	PartitionKey string   `json:"partitionKey,omitempty"`
}

type storedOrigin struct {
	Origin       string       `json:"origin"`
	LocalStorage []storedItem `json:"localStorage"`
}

type storedItem struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// parseState checks a storage state, and lists the values in it that are secret. No
// error tells what stands in it.
func parseState(text []byte) (state json.RawMessage, values map[string]string, err error) {
	var s storageState
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if d.Decode(&s) != nil {
		return nil, nil, errors.New(`want {"cookies": […], "origins": […]} with the fields of Playwright's, and nothing else`)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("something follows it")
	}
	values = make(map[string]string)
	secret := func(value string) {
		for _, v := range append(innerTokens(value), value) {
			values["of the session, "+strconv.Itoa(len(values)+1)] = v
		}
	}
	for _, c := range s.Cookies {
		if c.Name == "" || c.Domain == "" && c.URL == "" {
			return nil, nil, errors.New("a cookie needs a name and a domain or url")
		}
		secret(c.Value)
		if plain, err := url.QueryUnescape(c.Value); err == nil && plain != c.Value {
			secret(plain)
		}
	}
	for _, o := range s.Origins {
		for _, item := range o.LocalStorage {
			secret(item.Value)
		}
	}
	s.Cookies, s.Origins = slices.Concat([]storedCookie{}, s.Cookies), slices.Concat([]storedOrigin{}, s.Origins)
	return marshal(s), values, nil
}

// innerTokens are the texts within a value that is JSON, as far as they look like
// credentials: long, and without white space.
func innerTokens(value string) (list []string) {
	var v any
	if json.Unmarshal([]byte(value), &v) != nil {
		return nil
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			if len(v) >= 16 && len(strings.Fields(v)) == 1 {
				list = append(list, v)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(v)
	return list
}

// listens tells whether something answers where a page is.
func (k *look) listens(ctx context.Context, p page) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for _, host := range p.hosts() {
		conn, err := k.w.host.Dial(ctx, net.JoinHostPort(host, strconv.Itoa(p.port)))
		if err == nil {
			conn.Close()
			return true
		}
	}
	return false
}

// hosts are the addresses that a browser tries for a page.
func (p page) hosts() []string {
	if p.host == "localhost" {
		return []string{"127.0.0.1", "::1"}
	}
	return []string{p.host}
}

// await waits until the page's port listens, or finds the port where there is no URL.
func (k *look) await(ctx context.Context, a *app, p *page) error {
	wait, cancel := context.WithTimeout(ctx, time.Duration(k.spec.Wait))
	defer cancel()
	tick := time.NewTicker(listenPoll)
	defer tick.Stop()
	if p.url == "" && a == nil {
		return unverified("the spec has neither a URL nor something to start: there is no page to look at")
	}
	var ended <-chan struct{} // never, without an app
	if a != nil {
		ended = a.done
	}
	var best found
	for {
		if p.url != "" {
			if k.listens(wait, *p) {
				return nil
			}
		} else if best = k.find(wait, a, best); best.rank > 0 && (best.rank == isPage || time.Since(best.at) > betterWithin) {
			*p = best.page
			return nil
		}
		select {
		case <-tick.C:
		case <-k.w.host.Done():
			return containers.ErrGone
		case <-ended:
			if a.err != nil {
				return a.err
			}
			return fails("%s: `%s` %s", p.nothing(), a.line, howEnded(a.exit))
		case <-wait.Done():
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return fails("%s", k.nothingYet(ctx, a, *p))
		}
	}
}

// nothing says that nobody listens.
func (p page) nothing() string {
	if p.url == "" {
		return "nothing that speaks HTTP listens"
	}
	return "nothing listens at " + p.addr()
}

// nothingYet says that nobody listens after all the time there was, and who listens instead.
func (k *look) nothingYet(ctx context.Context, a *app, p page) string {
	text := fmt.Sprintf("%s after %v", p.nothing(), time.Duration(k.spec.Wait))
	var before []int
	if a != nil {
		text += fmt.Sprintf(", and `%s` still runs", a.line)
		before = a.before
	}
	now, err := k.w.host.Ports(ctx)
	if err != nil {
		return text
	}
	others := slices.DeleteFunc(now, func(port int) bool { return slices.Contains(before, port) })
	switch {
	case slices.Contains(others, p.port):
		text += "; it listens at another address than " + p.host
	case len(others) > 0:
		text += "; it listens at " + joinPorts(others)
	}
	return text
}

func joinPorts(ports []int) string {
	var list []string
	for _, p := range ports[:min(len(ports), maxApps)] {
		list = append(list, strconv.Itoa(p))
	}
	return "port " + strings.Join(list, ", ")
}

// found is the best port so far of an application that did not say which it would be.
type found struct {
	page
	rank int
	at   time.Time // when the first one was found
}

// How much an answer looks like a page's.
const (
	noHTTP = iota
	isError
	isSomething
	isPage
)

// find looks for the port that an application has come to listen on. Of several it is
// the one that answers HTTP, best with a page; a debugger's, say, is not meant.
func (k *look) find(ctx context.Context, a *app, best found) found {
	ports, err := k.w.host.Ports(ctx)
	if err != nil {
		return best
	}
	ports = slices.DeleteFunc(ports, func(port int) bool { return slices.Contains(a.before, port) })
	for _, port := range ports[:min(len(ports), maxApps)] {
		for _, host := range []string{"127.0.0.1", "::1"} {
			addr := net.JoinHostPort(host, strconv.Itoa(port))
			rank := k.speaksHTTP(ctx, addr)
			if rank <= best.rank {
				continue
			}
			if best.rank == noHTTP {
				best.at = time.Now()
			}
			best.rank, best.page = rank, page{url: "http://" + addr + "/", local: true, host: host, port: port}
		}
	}
	return best
}

// speaksHTTP asks an address for its page, and says how much the answer looks like one.
func (k *look) speaksHTTP(ctx context.Context, addr string) int {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	tr := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10, DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		return k.w.host.Dial(ctx, addr)
	}}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return noHTTP
	}
	req.Header.Set("Accept", "text/html")
	res, err := tr.RoundTrip(req)
	if err != nil {
		return noHTTP
	}
	res.Body.Close()
	switch html := strings.HasPrefix(res.Header.Get("Content-Type"), "text/html"); {
	case html && res.StatusCode < 400:
		return isPage
	case html || res.StatusCode < 400:
		return isSomething
	}
	return isError
}

// The exit codes of ramus-browser.
const (
	browserPassed = 0
	browserFailed = 1
)

var errOverdue = errors.New("the browser took too long")

// inspect has the browser look at the page and takes the evidence.
func (k *look) inspect(ctx context.Context, p page, state json.RawMessage) error {
	x := k.w.l.x
	deadline := min(time.Duration(k.spec.Timeout), x.Browser.timeout())
	grace := cmp.Or(x.Browser.grace, browserGrace)
	spec := k.spec
	spec.Timeout = browser.Duration(deadline)
	spec.URL, spec.Install, spec.Start, spec.Auth, spec.Compare = p.url, "", startNone, "", nil
	job := marshal(browser.Job{Spec: spec, State: state, Proxy: "http://" + containers.DoorAddr, Deadline: browser.Duration(deadline + grace)})

	bctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The time that it has begins when its turn has come.
	stdin := &startingReader{r: bytes.NewReader(job), within: deadline + 2*grace, late: func() { cancel(errOverdue) }}
	defer stdin.stop()
	raw := filepath.Join(k.part, rawFolder)
	pr, pw := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := unpack(pr, raw, k.spec.Viewports)
		_ = pr.CloseWithError(errors.Join(errors.New("no more is taken"), err)) // never fails
		unpacked <- err
	}()
	said := &text.Tail{Limit: maxBrowserSaid}
	s := containers.Sidecar{Key: "browser:" + k.w.l.claim.Caller.String(), Image: x.Browser.Image, Limits: x.Browser.Limits,
		Args:  []string{containers.BrowserDir + "/ramus-browser", "check"},
		Stdin: stdin, Stdout: pw, Stderr: said}
	exit, err := x.Fleet.RunSidecar(bctx, k.w.host.Container().ID, s)
	pw.Close()
	bad := <-unpacked
	k.check.MemoryPeak = exit.Memory
	if exit.Image != "" {
		k.check.Images = append(k.check.Images, browser.Image{Role: "browser", Name: exit.Image})
	}
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return cause
	case errors.Is(context.Cause(bctx), errOverdue):
		return unverified("the browser did not end within %v and was ended", deadline)
	case bad != nil:
		return unverified("what the browser handed out cannot be kept: %v", bad)
	case err != nil && lost(k.w.host):
		return err
	case err != nil:
		return unverified("the page could not be looked at: %v", err)
	case exit.OOM:
		return unverified("the browser used more than %d MiB of memory and was ended", s.Bounds().Memory>>20)
	}
	return k.take(raw, exit.Code, said.String())
}

func lost(h *containers.Host) bool {
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}

// startingReader calls late when so much time has passed since its first read.
type startingReader struct {
	r      io.Reader
	within time.Duration
	late   func()

	mu    sync.Mutex
	timer *time.Timer // guarded by mu; nil: not read yet
	over  bool        // guarded by mu
}

func (s *startingReader) Read(p []byte) (int, error) {
	s.mu.Lock()
	if s.timer == nil && !s.over {
		s.timer = time.AfterFunc(s.within, s.late)
	}
	s.mu.Unlock()
	return s.r.Read(p)
}

func (s *startingReader) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
