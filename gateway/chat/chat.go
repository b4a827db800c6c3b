package chat

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/fallback"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
)

// deciding bounds how many mentions are read and decided on at once. More would
// wait for each other at the platform's rate limits, and would take the machine
// from the mentions that are to be acknowledged: 16 on two cores made these wait
// four times as long as 4.
func deciding() int { return max(4, runtime.NumCPU()) }

// handing is the same for threads that are handed over: a runner elsewhere may
// take minutes for each.
const handing = 128

// Chat turns mentions into runs and runs into replies. Its exported fields are
// its options and may be changed until Open. Methods are safe for concurrent use.
//
// A mention is claimed first, durably, and answered then; everything after
// that can be killed at any moment and is taken up by the next Open: a run that
// was not yet told about ([executor.Executor.Untold]) is decided on, followed or
// reported from where its journal and its thread stand.
type Chat struct {
	Slack    *slack.Client
	Executor *executor.Executor
	Git      *gitd.Server
	// SigningSecret checks what arrives over HTTP; empty: nothing may (Socket Mode).
	SigningSecret string
	// Socket receives by Socket Mode as well.
	Socket bool
	Gate   gate.Gate
	// Teams are the ids of the workspaces whose events count; empty: the one that the app's
	// token belongs to. Events of others are ignored.
	Teams []string
	// Fallback takes the threads that the gate does not let through; nil: they
	// are recorded and get no answer.
	Fallback *fallback.Client
	// Repo and Agent are for threads that name none and whose channel has none.
	// With Repo empty the only repository there is, or else the person is asked.
	Repo, Agent string
	Channels    map[string]Channel // by id
	// AllReplies takes every reply in a thread of ramus for a mention.
	AllReplies bool
	// EditEvery is the least time between two edits of a progress message; default 3 s.
	EditEvery time.Duration
	// RetryEvery is the first pause before something that failed is tried again;
	// it doubles up to five minutes. Default 2 s.
	RetryEvery time.Duration
	// Links makes links to evidence; nil: messages have none.
	Links *links.Signer
	// Engineer hears what is said in the threads of its tasks; nil: there are none.
	Engineer *engineer.Engineer
	Log      *slog.Logger
	Now      func() time.Time

	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup // sessions, and what serves actions
	slots  chan struct{}
	hands  chan struct{} // of hand-overs to the fallback runner
	socket func() error  // waits for Socket Mode to end
	me     atomic.Pointer[slack.Identity]

	mu       sync.Mutex // guards all below
	closed   bool
	sessions map[string]*worker // by key
}

// Channel is what the threads of a channel work on.
type Channel struct{ Repo, Base, Agent string }

// Open takes up what an earlier process left, and begins to receive.
func (c *Chat) Open(ctx context.Context) error {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.EditEvery <= 0 {
		c.EditEvery = 3 * time.Second
	}
	if c.RetryEvery <= 0 {
		c.RetryEvery = 2 * time.Second
	}
	if c.Gate.Prefix == "" {
		c.Gate.Prefix = "!!!"
	}
	c.ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.slots = make(chan struct{}, deciding())
	c.hands = make(chan struct{}, handing)
	c.mu.Lock() // an agent may hand its thread over already
	c.sessions = make(map[string]*worker)
	c.mu.Unlock()
	if _, err := c.Git.Repo(lookup.InboxRepo); errors.Is(err, gitd.ErrNotFound) {
		if _, err := c.Git.Create(ctx, lookup.InboxRepo); err != nil && !errors.Is(err, gitd.ErrExists) {
			return fmt.Errorf("cannot make the repository of mentions: %w", err)
		}
	} else if err != nil {
		return err
	}
	left, err := c.Executor.Untold(ctx)
	if err != nil {
		return err
	}
	for _, run := range left {
		if run.Origin.Source == slackSource {
			c.enqueue(Session{run.Origin.Session}, pending{run: run, again: true})
		}
	}
	c.background(func(ctx context.Context) {
		me, err := c.Slack.Me(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.Log.Error("Slack refuses the app's token", "err", err)
			}
			return
		}
		c.me.Store(&me)
		c.Log.Info("Slack knows the app", "team", me.Team, "user", me.User)
	})
	if c.Socket {
		ended := make(chan error, 1)
		go func() {
			err := c.Slack.Socket(c.ctx, c.Deliver)
			if c.ctx.Err() == nil {
				c.Log.Error("nothing arrives from Slack by Socket Mode any more", "err", err)
			}
			ended <- err
		}()
		c.socket = func() error { return <-ended }
	}
	return nil
}

// botUser returns ramus's own user id. It is empty until Slack has said it; most envelopes hold it too.
func (c *Chat) botUser() string {
	if me := c.me.Load(); me != nil {
		return me.User
	}
	return ""
}

// Identified reports whether Slack has said who ramus is.
func (c *Chat) Identified() bool { return c.me.Load() != nil }

// Close stops receiving and waits for what is under way to stand still; the
// next Open goes on with it.
func (c *Chat) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed || c.stop == nil {
		return nil
	}
	c.stop()
	var err error
	if c.socket != nil {
		if err = c.socket(); errors.Is(err, context.Canceled) {
			err = nil
		}
	}
	c.wg.Wait()
	return err
}

const slackSource = "slack"

// Session is a conversation: all of a thread. Everything about it follows from its key.
type Session struct {
	Key string // "slack:{team}:{channel}:{thread_ts}"
}

// Caller is on whose behalf the session's runs are: "conv:" and a hash of the key.
func (s Session) Caller() record.Caller {
	sum := sha256.Sum256([]byte(s.Key))
	c, err := record.ConvCaller(hex.EncodeToString(sum[:8]))
	if err != nil {
		panic(err) // sixteen hexadecimal digits are an id
	}
	return c
}

// runID is the run of a mention, from "{channel}:{ts}": a ref cannot hold a colon.
func runID(m slack.Mention) string { return strings.ReplaceAll(m.Key(), ":", "-") }

// Claimed is the answer to a mention: its run and where that stands. A retry gets the same.
type Claimed struct {
	Run   string       `json:"run"`
	State record.State `json:"state"`
}

// Deliver takes one thing that Slack sent. It returns when it is durable; what
// is to be sent back, if anything, is reply.
func (c *Chat) Deliver(ctx context.Context, d slack.Delivery) (reply any, err error) {
	switch {
	case d.Challenge != "":
		return map[string]string{"challenge": d.Challenge}, nil
	case d.Mention != nil:
		if c.isForeign(d.Mention.Team) {
			return nil, nil
		}
		if handled, err := c.sendToTask(ctx, *d.Mention); handled || err != nil {
			return nil, err
		}
		return c.receiveMention(ctx, *d.Mention)
	case d.Reply != nil:
		if !c.AllReplies || c.isForeign(d.Reply.Team) || len(c.Executor.OfCaller(Session{d.Reply.Session()}.Caller())) == 0 {
			return nil, nil
		}
		return c.receiveMention(ctx, *d.Reply)
	case d.Action != nil:
		if ok, err := c.isOwnTeam(ctx, d.Action.Team); err != nil || !ok {
			return nil, c.ignoreForeign(d.Action.Team, err)
		}
		return nil, c.press(ctx, *d.Action)
	case d.Command != nil:
		if ok, err := c.isOwnTeam(ctx, d.Command.Team); err != nil || !ok {
			return nil, c.ignoreForeign(d.Command.Team, err)
		}
		return c.runCommand(ctx, *d.Command, d.Retry > 0)
	}
	return nil, nil
}

// ignoreForeign returns the answer to an event of another workspace, or of one that cannot be determined.
func (c *Chat) ignoreForeign(team string, err error) error {
	if err != nil {
		return route.NewProblem(route.KindUnavailable, "cannot tell whose event this is: %v", err)
	}
	c.Log.Warn("an event of a workspace that is not configured is ignored", "team", team)
	return nil
}

// receiveMention makes the run of a mention, or finds it. The run is durable when receiveMention returns.
func (c *Chat) receiveMention(ctx context.Context, m slack.Mention) (any, error) {
	run, err := c.claimRun(ctx, Session{m.Session()}, runID(m), m.Key(), m, m.Said(), m)
	if err != nil {
		return nil, fmt.Errorf("cannot claim a mention: %w", err)
	}
	return Claimed{Run: run.Name(), State: run.State}, nil
}

// claimRun claims a run for the words of somebody in a session, with the event that they came in, and gives the run to
// the session's worker. A second call with the same id finds the first run.
func (c *Chat) claimRun(ctx context.Context, s Session, id, key string, m slack.Mention, said string, event any) (record.Run, error) {
	data, err := json.Marshal(event)
	if err != nil {
		return record.Run{}, err
	}
	// A mistake in it is answered later. What is kept, and decided on then, has no
	// secrets: a base that is one would have the whole mention refused, unanswered.
	words, _ := ParseWords(c.Slack.Secrets.String(said))
	place := c.findPlace(ctx, s, m.Channel, words)
	run, fresh, err := c.Executor.Claim(ctx, record.Request{
		Key: id, Caller: s.Caller(), Repo: place.claimRepo, Base: place.base, Asker: asker(m.User, ""),
		Origin: &record.Origin{Source: slackSource, Session: s.Key, Key: key, Event: data},
	})
	if err == nil && fresh {
		c.enqueue(s, pending{run: run})
	}
	return run, err
}

// asker is a Slack user as the author of commits. The address cannot be
// anybody's: it only keeps users with the same name apart.
func asker(user, name string) gitd.Person {
	if name == "" {
		name = user
	}
	return gitd.Person{Name: name, Email: route.Mailbox(user) + "@slack.invalid"}
}

// place is where a session's work is to be done.
type place struct {
	repo, base, agent string
	unnamed           string // the repository without what a text names
	claimRepo         string // repository of the claim: repo, or the house's where that is not here
	home              string // where the session has its branch already
}

// findPlace decides where a session works, by the text, the session's branch, the channel, the configuration, or because
// there is only one repository.
func (c *Chat) findPlace(ctx context.Context, s Session, channel string, words Words) place {
	var p place
	set := c.Channels[channel]
	p.agent = cmp.Or(words.Agent, set.Agent, c.Agent)
	home, base, err := c.Executor.Home(ctx, s.Caller())
	if err == nil {
		p.home = home
		p.repo, p.base = home, base
	}
	switch {
	case p.repo != "":
	case set.Repo != "":
		p.repo, p.base = set.Repo, set.Base
	case c.Repo != "":
		p.repo = c.Repo
	default:
		if all := c.listRepos(ctx); len(all) == 1 {
			p.repo = all[0]
		}
	}
	p.unnamed = p.repo
	if words.Repo != "" && words.Repo != p.repo {
		p.repo, p.base = words.Repo, ""
	}
	p.base = cmp.Or(words.Base, p.base)
	p.claimRepo = lookup.InboxRepo
	if p.repo != "" {
		if _, err := c.Git.Repo(p.repo); err == nil {
			p.claimRepo = p.repo
		}
	}
	return p
}

// listRepos returns the names of the repositories that people may name.
func (c *Chat) listRepos(ctx context.Context) []string {
	all, err := c.Git.Repos(ctx)
	if err != nil {
		c.Log.Error("cannot list repositories", "err", err)
		return nil
	}
	var names []string
	for _, r := range all {
		if r.Name() != lookup.InboxRepo {
			names = append(names, r.Name())
		}
	}
	slices.Sort(names)
	return names
}

// enqueue gives a run to the worker of its session. It starts a worker if none is at work.
func (c *Chat) enqueue(s Session, t pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.sessions == nil {
		return // the next Open finds it
	}
	own := c.sessions[s.Key]
	if own == nil {
		own = &worker{chat: c, of: s, caller: s.Caller(), wake: make(chan struct{}, 1), has: make(map[string]bool)}
		c.sessions[s.Key] = own
		c.wg.Go(own.work)
	}
	if own.has[t.run.Name()] {
		return
	}
	own.has[t.run.Name()] = true
	own.queue = append(own.queue, t)
	own.signal()
}

// background runs f beside the request that asked for it; Close waits for it.
func (c *Chat) background(f func(ctx context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wg.Go(func() { f(c.ctx) })
	}
}
