package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// The parts of the messages of agents. The number of the message follows in the key of its mark.
const (
	partReply = "agent-reply"
	partPost  = "agent-post"
)

// sayEvery is the least time between two messages of one part of one run.
const sayEvery = time.Minute

// said has the messages of agents in this process. The zero value is empty.
type said struct {
	mu   sync.Mutex // guards the fields below
	runs map[string]*saidOf
}

// saidOf has the messages of one part of one run. Its journal has them too.
type saidOf struct {
	mu    sync.Mutex // guards the fields below; held while a message is posted
	known bool       // the journal was read
	count int
	last  time.Time
}

// maxSaid bounds the runs that are remembered. A run that is forgotten is read from its journal again.
const maxSaid = 1000

func (s *said) of(run, part string) *saidOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil || len(s.runs) >= maxSaid {
		s.runs = make(map[string]*saidOf)
	}
	key := run + " " + part
	if s.runs[key] == nil {
		s.runs[key] = &saidOf{}
	}
	return s.runs[key]
}

// Answers reports whether a run answers a mention in a thread.
func (c *Chat) Answers(run record.Run) bool {
	return run.Origin != nil && run.Origin.Source == slackSource
}

// Reply posts a text of a run's agent in the run's thread, at most one a minute. told is false if it was left out.
func (c *Chat) Reply(ctx context.Context, run record.Run, text string) (told bool, err error) {
	if !c.Answers(run) {
		return false, fmt.Errorf("%w reply of %s: it has no thread", record.ErrInvalid, run.Name())
	}
	m, err := readEvent(run)
	if err != nil {
		return false, err
	}
	return c.sayMessage(ctx, run, partReply, catalog.MaxReplies, m.Channel, m.ThreadTS, render.AgentSays("", text))
}

// AgentChannels returns the channels in which agents may post.
func (c *Chat) AgentChannels() []string { return c.PostChannels }

// PostMessage posts a text of a run's agent in one of PostChannels, at most one a minute. told is false if it was left
// out.
func (c *Chat) PostMessage(ctx context.Context, run record.Run, channel, text string) (told bool, err error) {
	if !slices.Contains(c.PostChannels, channel) {
		return false, fmt.Errorf("%w channel %.100q: agents may post in %v", record.ErrInvalid, channel, c.PostChannels)
	}
	return c.sayMessage(ctx, run, partPost, catalog.MaxPosts, channel, "", render.AgentSays(run.Name()+" on "+run.Repo, text))
}

// sayMessage posts a message of an agent and journals it. The limits count what the journal has, so they outlast a restart.
func (c *Chat) sayMessage(ctx context.Context, run record.Run, part string, most int, channel, thread string, msg slack.Message) (bool, error) {
	if c.Now == nil {
		return false, record.ErrClosed // a container of an earlier process may be earlier than Open
	}
	of := c.saying.of(run.Name(), part)
	of.mu.Lock()
	defer of.mu.Unlock()
	if !of.known {
		if err := of.read(ctx, c, run, part); err != nil {
			return false, err
		}
	}
	if of.count >= most || c.Now().Sub(of.last) < sayEvery {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	msg.Channel, msg.ThreadTS = channel, thread
	msg.Mark = slack.Mark{Run: run.Name(), Key: fmt.Sprintf("%s-%d", part, of.count+1), Part: part}
	ts, err := c.Slack.Post(ctx, msg, false)
	if errors.Is(err, slack.ErrRefused) {
		return false, fmt.Errorf("%w message: %w", record.ErrInvalid, err)
	}
	if err != nil {
		return false, fmt.Errorf("cannot post a message of %s: %w", run.Name(), err)
	}
	of.count, of.last = of.count+1, c.Now()
	data, err := json.Marshal(posted{channel, ts, part})
	if err != nil {
		return true, err
	}
	return true, c.Executor.Note(context.WithoutCancel(ctx), run.Name(),
		record.Event{Type: record.EventMessage, Message: part, Data: data})
}

// read counts the messages in the journal of a run.
func (of *saidOf) read(ctx context.Context, c *Chat, run record.Run, part string) error {
	for e, err := range c.Executor.Events(ctx, run.Name(), 0, false) {
		if err != nil {
			return err
		}
		if e.Type == record.EventMessage && e.Message == part {
			of.count, of.last = of.count+1, e.Time
		}
	}
	of.known = true
	return nil
}
