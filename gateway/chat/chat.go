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
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
)

// deciding returns how many mentions may be read and decided on at the same time. More of them would wait for each
// other at Slack's rate limits. They would also take the processors from the mentions that are to be acknowledged. On
// two cores, acknowledging took four times as long with 16 as with 4.
func deciding() int { return max(4, runtime.NumCPU()) }

// handing limits how many threads are handed over to the fallback runner at the same time. The fallback runner is a
// remote service and may take minutes for each thread.
const handing = 128

// Chat turns mentions into runs and runs into replies. The exported fields are options and may be changed until Open
// is called. Methods are safe for concurrent use.
//
// A mention is claimed durably before it is acknowledged. All later work can be killed at any moment. The next Open
// continues every run whose result is not posted yet ([executor.Executor.Untold]). It decides on, follows or reports
// such a run from the state of its journal and its thread.
type Chat struct {
	Slack    *slack.Client
	Executor *executor.Executor
	Git      *gitd.Server
	// SigningSecret verifies requests over HTTP. If it is empty, every request is refused (Socket Mode).
	SigningSecret string
	// Socket makes Chat receive by Socket Mode too.
	Socket bool
	// Settings are the settings until the first [Chat.Apply].
	Settings Settings
	// Teams are the ids of the workspaces whose events are accepted. If it is empty, only the workspace of the app's
	// token is. Events of other workspaces are ignored.
	Teams []string
	// Fallback takes the threads that the gate does not let through. If it is nil, these threads are recorded and get no
	// answer.
	Fallback *fallback.Client
	// PostChannels are the ids of the channels in which agents may post.
	PostChannels []string
	// People are the authors of commits, by the ids of users. An empty name is that in Slack. Users without an address
	// here have that of their profile.
	People map[string]gitd.Person
	// EditEvery is the least time between two edits of a progress message. The default is 3 s.
	EditEvery time.Duration
	// RetryEvery is the first pause before a failed operation is repeated. Each further pause is twice as long, up to
	// five minutes. The default is 2 s.
	RetryEvery time.Duration
	// Links makes links to evidence. If it is nil, messages have none.
	Links *links.Signer
	// Keys keeps the tokens of people at forges. If it is nil, people can store none.
	Keys ForgeKeys
	// Engineer receives the mentions in the threads of its tasks. If it is nil, there are no tasks.
	Engineer *engineer.Engineer
	Log      *slog.Logger
	Now      func() time.Time

	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup // sessions and background work
	slots  chan struct{}
	saying said          // what agents have said
	hands  chan struct{} // limits hand-overs to the fallback runner
	socket func() error  // waits for Socket Mode to end
	me     atomic.Pointer[slack.Identity]
	// applied are the settings of the last Apply. Before it, applied is nil.
	applied atomic.Pointer[Settings]

	homes homeTabs

	mu       sync.Mutex // guards all fields below
	closed   bool
	sessions map[string]*worker // by key
}

// Channel holds the defaults for the threads of a channel.
type Channel struct{ Repo, Base, Agent string }

// Open continues the work that an earlier process left and starts to receive events.
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
	c.Apply(*c.settings())
	c.ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.slots = make(chan struct{}, deciding())
	c.hands = make(chan struct{}, handing)
	c.mu.Lock() // an agent may hand over its thread already
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

// botUser returns the user id of ramus. It is empty until Slack has returned it. Most envelopes hold the id too.
func (c *Chat) botUser() string {
	if me := c.me.Load(); me != nil {
		return me.User
	}
	return ""
}

// Identified reports whether Slack has returned the identity of ramus.
func (c *Chat) Identified() bool { return c.me.Load() != nil }

// Close stops receiving and waits until no work is in progress. The next Open continues the work.
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

// Session is one conversation, which is one thread. Everything about a session follows from its key.
type Session struct {
	Key string // "slack:{team}:{channel}:{thread_ts}"
}

// Caller returns the caller of the runs of the session. Its id is "conv:" and a hash of the key.
func (s Session) Caller() record.Caller {
	sum := sha256.Sum256([]byte(s.Key))
	c, err := record.ConvCaller(hex.EncodeToString(sum[:8]))
	if err != nil {
		panic(err) // sixteen hexadecimal digits are an id
	}
	return c
}

// runID returns the id of the run of a mention. It replaces the colon in "{channel}:{ts}", because a ref cannot
// contain a colon.
func runID(m slack.Mention) string { return strings.ReplaceAll(m.Key(), ":", "-") }

// Claimed is the answer to a mention. It names the run and the state of the run. A repeated delivery gets the same
// run.
type Claimed struct {
	Run   string       `json:"run"`
	State record.State `json:"state"`
}

// Deliver handles one delivery from Slack. The delivery is durable when Deliver returns. reply is the body of the
// response; nil means none.
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
		if !c.settings().AllReplies || c.isForeign(d.Reply.Team) || len(c.Executor.OfCaller(Session{d.Reply.Session()}.Caller())) == 0 {
			return nil, nil
		}
		return c.receiveMention(ctx, *d.Reply)
	case d.Visit != nil:
		if ok, err := c.isOwnTeam(ctx, d.Visit.Team); err != nil || !ok {
			return nil, c.ignoreForeign(d.Visit.Team, err)
		}
		c.showHome(d.Visit.Team, d.Visit.User, "")
		return nil, nil
	case d.Action != nil:
		if ok, err := c.isOwnTeam(ctx, d.Action.Team); err != nil || !ok {
			return nil, c.ignoreForeign(d.Action.Team, err)
		}
		if d.Action.Home {
			return nil, c.changeHome(ctx, *d.Action)
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

// ignoreForeign returns the answer to an event of another workspace. If err is set, the workspace of the event cannot
// be determined now, and ignoreForeign returns a problem.
func (c *Chat) ignoreForeign(team string, err error) error {
	if err != nil {
		return route.NewProblem(route.KindUnavailable, "cannot tell whose event this is: %v", err)
	}
	c.Log.Warn("an event of a workspace that is not configured is ignored", "team", team)
	return nil
}

// receiveMention claims the run of a mention or finds the run that was claimed before. The run is durable when
// receiveMention returns.
func (c *Chat) receiveMention(ctx context.Context, m slack.Mention) (any, error) {
	run, err := c.claimRun(ctx, Session{m.Session()}, runID(m), m.Key(), m, m.Said(), m)
	if err != nil {
		return nil, fmt.Errorf("cannot claim a mention: %w", err)
	}
	return Claimed{Run: run.Name(), State: run.State}, nil
}

// claimRun claims a run in session s for the text said. event is the event that carried the text. claimRun gives a new
// run to the worker of the session. A second call with the same id returns the first run.
func (c *Chat) claimRun(ctx context.Context, s Session, id, key string, m slack.Mention, said string, event any) (record.Run, error) {
	data, err := json.Marshal(event)
	if err != nil {
		return record.Run{}, err
	}
	// A mistake in the text is answered later. The kept text, from which decide works later, has no secrets. Without
	// redaction, a base that is a secret would have the whole mention refused without an answer.
	words, _ := ParseWords(c.Slack.Secrets.String(said))
	place := c.findPlace(ctx, s, m.Channel, words, c.preferences(ctx, m.Team, m.User))
	run, fresh, err := c.Executor.Claim(ctx, record.Request{
		Key: id, Caller: s.Caller(), Repo: place.claimRepo, Base: place.base, Asker: asker(m.User, ""),
		Origin: &record.Origin{Source: slackSource, Session: s.Key, Key: key, Event: data},
	})
	if err == nil && fresh {
		c.enqueue(s, pending{run: run})
	}
	return run, err
}

// person returns a Slack user as the author of commits, with the user's own address if it is known, so that a forge
// credits the user.
func (c *Chat) person(ctx context.Context, user, name string) (gitd.Person, error) {
	p := asker(user, name)
	known := c.People[user]
	p.Name = cmp.Or(known.Name, p.Name)
	if known.Email != "" {
		p.Email = known.Email
		return p, nil
	}
	mail, err := c.Slack.Email(ctx, user)
	p.Email = cmp.Or(mail, p.Email)
	return p, err
}

// asker returns a Slack user as the author of commits. The address belongs to nobody. It only distinguishes users with
// the same name.
func asker(user, name string) gitd.Person {
	if name == "" {
		name = user
	}
	return gitd.Person{Name: name, Email: route.Mailbox(user) + "@slack.invalid", ID: "slack:" + user}
}

// place is the repository, base and agent that a session works with.
type place struct {
	repo, base, agent string
	unnamed           string // the repository that applies if the text names none
	claimRepo         string // the repository of the claim, which is repo, or lookup.InboxRepo if repo does not exist here
	home              string // the repository that has the branch of the session already
}

// findPlace decides where a session works. In order of precedence, it uses the text, the branch of the session, the
// rules, the channel, the preferences of the person, the configuration and the only repository.
func (c *Chat) findPlace(ctx context.Context, s Session, channel string, words Words, liked Preferences) place {
	var p place
	now := c.settings()
	set, rule := now.Channels[channel], findRule(now.Rules, channel, words.Text)
	p.agent = cmp.Or(words.Agent, rule.Agent, set.Agent, liked.Agent, now.Agent)
	home, base, err := c.Executor.Home(ctx, s.Caller())
	if err == nil {
		p.home = home
		p.repo, p.base = home, base
	}
	switch {
	case p.repo != "":
	case rule.Repo != "":
		p.repo, p.base = rule.Repo, rule.Base
	case set.Repo != "":
		p.repo, p.base = set.Repo, set.Base
	case now.Repo != "":
		p.repo = now.Repo
	default:
		if all := c.listRepos(ctx); len(all) == 1 {
			p.repo = all[0]
		}
	}
	p.unnamed = p.repo
	if p.home == "" && rule.Repo == "" && set.Repo == "" && liked.Repo != "" {
		// A repository that a person chose is one that the person names, and needs the same permission.
		p.repo, p.base = liked.Repo, liked.Base
	}
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
		if !lookup.IsOwnRepo(r.Name()) {
			names = append(names, r.Name())
		}
	}
	slices.Sort(names)
	return names
}

// enqueue gives a run to the worker of its session. It starts a worker if there is none.
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

// background runs f in a goroutine of its own. Close waits for f.
func (c *Chat) background(f func(ctx context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wg.Go(func() { f(c.ctx) })
	}
}
