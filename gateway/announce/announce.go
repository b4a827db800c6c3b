package announce

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/gateway/trigger"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
)

const (
	attemptTime = 15 * time.Second
	maxState    = 16 << 20 // bytes of the file of a target
	maxTips     = 10_000   // branches and tags of a repository that are sent
	// callers begins the branches of callers.
	callers = "refs/heads/ramus/"
	// HeaderEvent names the event of a webhook, which is "push".
	HeaderEvent = "X-Ramus-Event"
	// HeaderDelivery is the same for each attempt to send one change.
	HeaderDelivery = "X-Ramus-Delivery"
)

// Target receives the webhooks of one repository.
type Target struct {
	Repo   string
	URL    string
	Secret string // signs each webhook, see [trigger.Sign]
}

// Push is the change of one branch or tag.
type Push struct {
	Event  string    `json:"event"` // "push"
	Repo   string    `json:"repo"`
	Ref    string    `json:"ref"`    // in full
	Before gitd.Hash `json:"before"` // empty for a new one
	After  gitd.Hash `json:"after"`  // empty for a removed one
	URL    string    `json:"url,omitempty"`
}

// Announcer sends the webhooks of a server. Its exported fields are its options, and may be changed until Open. Methods are safe
// for concurrent use. Those of a nil Announcer do nothing.
type Announcer struct {
	Git     *gitd.Server
	Targets []Target
	// Dir keeps the tips that targets received.
	Dir string
	// URL is the public address of the server, for the addresses of repositories. It may be empty.
	URL  string
	HTTP *http.Client // the default follows no redirects
	Log  *slog.Logger
	Now  func() time.Time
	// Sleep waits between attempts. The default is [retry.Sleep].
	Sleep func(ctx context.Context, d time.Duration) error
	// RetryEvery is the wait after the first failed attempt. It doubles up to an hour. The default is 5 s.
	RetryEvery time.Duration

	wakes map[string][]chan struct{} // by repository; not changed after Open
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu     sync.Mutex // guards opened
	opened bool
}

// Open sends the changes since the last process, and later ones, until ctx ends or Close is called.
func (a *Announcer) Open(ctx context.Context) error {
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of webhooks: %w", err)
	}
	ctx, a.stop = context.WithCancel(ctx)
	a.RetryEvery = cmp.Or(a.RetryEvery, 5*time.Second)
	if a.HTTP == nil {
		a.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if a.Sleep == nil {
		a.Sleep = retry.Sleep
	}
	a.wakes = make(map[string][]chan struct{})
	for _, t := range a.Targets {
		wake := make(chan struct{}, 1)
		a.wakes[t.Repo] = append(a.wakes[t.Repo], wake)
		a.wg.Go(func() { a.work(ctx, t, wake) })
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opened = true
	return nil
}

// Close ends the work and waits for it.
func (a *Announcer) Close() {
	if a == nil || a.stop == nil {
		return
	}
	a.stop()
	a.wg.Wait()
}

// Changed has the changes of a repository sent to its targets soon. It returns at once.
func (a *Announcer) Changed(repo string) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.opened {
		return
	}
	for _, wake := range a.wakes[repo] {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// work sends all changes to one target.
func (a *Announcer) work(ctx context.Context, t Target, wake <-chan struct{}) {
	for failed := 0; ; {
		err := a.deliver(ctx, t)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failed = 0
			select {
			case <-wake:
			case <-ctx.Done():
				return
			}
			continue
		}
		wait := min(a.RetryEvery<<min(failed, 20), time.Hour)
		failed++
		a.Log.Warn("a webhook of a repository is not delivered yet", "repo", t.Repo, "host", hostOf(t.URL), "err", err,
			"next", wait)
		if a.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// deliver sends a target the changes that it has not received. A target without a file is a new one, which gets later changes only.
func (a *Announcer) deliver(ctx context.Context, t Target) error {
	now, err := a.tips(ctx, t.Repo)
	if err != nil || now == nil {
		return err
	}
	received, err := a.read(t)
	if err != nil {
		return err
	}
	if received == nil {
		return a.write(t, now)
	}
	names := maps.Clone(now)
	maps.Copy(names, received)
	for _, ref := range slices.Sorted(maps.Keys(names)) {
		if received[ref] == now[ref] {
			continue
		}
		p := Push{Event: "push", Repo: t.Repo, Ref: ref, Before: received[ref], After: now[ref]}
		if a.URL != "" {
			p.URL = strings.TrimSuffix(a.URL, "/") + "/" + t.Repo + ".git"
		}
		if err := a.send(ctx, t, p); err != nil {
			return err
		}
		if p.After == "" {
			delete(received, ref)
		} else {
			received[ref] = p.After
		}
		if err := a.write(t, received); err != nil {
			return err
		}
	}
	return nil
}

// tips returns the branches and tags of a repository, or nil if it does not exist.
func (a *Announcer) tips(ctx context.Context, repo string) (map[string]gitd.Hash, error) {
	r, err := a.Git.Repo(repo)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil, nil // it may be made later
	}
	if err != nil {
		return nil, err
	}
	tips := make(map[string]gitd.Hash)
	for _, below := range []string{"refs/heads", "refs/tags"} {
		refs, err := r.Refs(ctx, below)
		if err != nil {
			return nil, err
		}
		for _, ref := range refs {
			if !strings.HasPrefix(ref.Name, callers) && len(tips) < maxTips {
				tips[ref.Name] = ref.Hash
			}
		}
	}
	return tips, nil
}

// send makes one attempt.
func (a *Announcer) send(ctx context.Context, t Target, p Push) error {
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	stamp := strconv.FormatInt(a.Now().Unix(), 10)
	sum := sha256.Sum256(body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "ramus")
	req.Header.Set(HeaderEvent, p.Event)
	req.Header.Set(HeaderDelivery, hex.EncodeToString(sum[:16]))
	req.Header.Set(trigger.HeaderTimestamp, stamp)
	req.Header.Set(trigger.HeaderSignature, trigger.Sign(t.Secret, stamp, body))
	resp, err := a.HTTP.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the address may have a credential
		}
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the receiver answers %s", resp.Status)
	}
	a.Log.Debug("webhook delivered", "repo", t.Repo, "ref", p.Ref, "host", hostOf(t.URL))
	return nil
}

// file returns the file of a target.
func (a *Announcer) file(t Target) string {
	sum := sha256.Sum256([]byte(t.Repo + "\x00" + t.URL))
	return filepath.Join(a.Dir, hex.EncodeToString(sum[:16])+".json")
}

// read returns the tips that a target received, or nil for a new target.
func (a *Announcer) read(t Target) (map[string]gitd.Hash, error) {
	f, err := os.Open(a.file(t))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the state of a webhook: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxState+1))
	received := map[string]gitd.Hash{}
	if err == nil && len(text) <= maxState {
		err = json.Unmarshal(text, &received)
	}
	if err != nil || len(text) > maxState {
		return nil, fmt.Errorf("cannot read the state of a webhook: %s: %w; remove the file, and it begins as a new one", f.Name(), err)
	}
	return received, nil
}

func (a *Announcer) write(t Target, received map[string]gitd.Hash) error {
	text, err := json.Marshal(received)
	if err == nil {
		err = durable.Replace(a.file(t), append(text, '\n'), true)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the state of a webhook: %w", err)
	}
	return nil
}

// hostOf returns the host of an address, for the log.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}
