package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
	slackgo "github.com/slack-go/slack"
)

const (
	postMessage = "chat.postMessage"
	// markType is the event_type of the metadata with a Mark.
	markType = "ramus_message"
)

// Mark identifies a message of ramus. It is in the message's metadata. At least Run or Key must be set.
type Mark struct {
	Run  string `json:"run"`  // Run.Name
	Key  string `json:"key"`  // of the event
	Part string `json:"part"` // "progress", "result", "answer" …
}

func (m Mark) metadata() slackgo.SlackMetadata {
	return slackgo.SlackMetadata{EventType: markType,
		EventPayload: map[string]any{"run": m.Run, "key": m.Key, "part": m.Part}}
}

// Message is a post. Blocks are Block Kit blocks within Slack's limits.
type Message struct {
	Channel  string
	ThreadTS string // "" starts a thread
	Text     string // for notifications, and the whole message if there are no blocks
	Blocks   []Block
	Mark     Mark
}

// Block is one block of Block Kit as JSON.
type Block = json.RawMessage

// rawBlock is a Block with the interface of slack-go.
type rawBlock Block

func (b rawBlock) BlockType() slackgo.MessageBlockType { return "" }
func (b rawBlock) ID() string                          { return "" }
func (b rawBlock) MarshalJSON() ([]byte, error)        { return b, nil }

// options returns the message as options of chat.postMessage and chat.update. Links are not unfurled, because Slack
// would fetch the evidence.
func (m Message) options(s *redact.Secrets) ([]slackgo.MsgOption, error) {
	if m.Mark.Run == "" && m.Mark.Key == "" {
		return nil, errors.New("it has no mark, so it could not be found again")
	}
	options := []slackgo.MsgOption{
		slackgo.MsgOptionText(s.String(m.Text), false),
		slackgo.MsgOptionMetadata(m.Mark.metadata()),
		slackgo.MsgOptionDisableLinkUnfurl(),
		slackgo.MsgOptionDisableMediaUnfurl(),
	}
	// The slice is not nil even if it is empty, because an edit without blocks must remove the old ones.
	blocks := make([]slackgo.Block, 0, len(m.Blocks))
	for i, b := range m.Blocks {
		if !json.Valid(b) {
			return nil, fmt.Errorf("its block %d is no JSON", i)
		}
		blocks = append(blocks, rawBlock(s.JSON(b)))
	}
	return append(options, slackgo.MsgOptionBlocks(blocks...)), nil
}

// Post posts a message once. If the outcome of an attempt is unknown (a timeout, a broken connection, a 5xx), Post
// reads the thread and accepts a message with the same Mark. With look it also does so before the first attempt.
//
// Messages of one channel are posted one after another, because Slack accepts about one a second for each channel. m
// must have a mark.
func (c *Client) Post(ctx context.Context, m Message, look bool) (ts string, err error) {
	c.setup()
	options, err := m.options(c.Secrets)
	if err != nil {
		return "", fmt.Errorf("cannot post to Slack: %w", err)
	}
	if m.ThreadTS != "" {
		options = append(options, slackgo.MsgOptionTS(m.ThreadTS))
	}
	leave, err := c.lanes.Enter(ctx, postMessage+" "+m.Channel, 1)
	if err != nil {
		return "", fmt.Errorf("cannot post to Slack: %w", err)
	}
	defer leave(0)

	find := func() (found bool, err error) {
		ts, found, err = c.Find(ctx, m.Channel, m.ThreadTS, m.Mark)
		return found, err
	}
	if look {
		if found, err := find(); found || err != nil {
			return ts, err
		}
	}
	err = c.call(ctx, postMessage, func(ctx context.Context) error {
		_, ts, err = c.api.PostMessageContext(ctx, m.Channel, options...)
		if err == nil && !isStamp(ts) {
			err = fmt.Errorf("the answer's ts is %q", text.Clip(ts, clipped))
		}
		return err
	}, find)
	if err != nil && !errors.Is(err, ErrRefused) && ctx.Err() == nil {
		// Slack's confirmation could not be read.
		if found, findErr := find(); found && findErr == nil {
			return ts, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("cannot post to Slack: %w", err)
	}
	return ts, nil
}

// Find searches for a message of ramus with a mark in a thread. If threadTS is "", it searches the channel's latest
// 1,000 messages.
func (c *Client) Find(ctx context.Context, channel, threadTS string, mark Mark) (ts string, found bool, err error) {
	me, err := c.Me(ctx)
	if err != nil {
		return "", false, err
	}
	err = c.pages(ctx, channel, threadTS, func(m *threadMessage) bool {
		if own := m.mark(me); own != nil && *own == mark {
			ts, found = m.TS, true
		}
		return !found
	})
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Code == "thread_not_found" {
		// A thread that does not exist has no message of ramus.
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("cannot look for a message in Slack: %w", err)
	}
	return ts, found, nil
}

// Update edits a message of ramus. An edit may be repeated, so an unknown outcome does not matter.
func (c *Client) Update(ctx context.Context, m Message, ts string) error {
	c.setup()
	options, err := m.options(c.Secrets)
	if err == nil {
		err = c.call(ctx, "chat.update", func(ctx context.Context) error {
			_, _, _, err := c.api.UpdateMessageContext(ctx, m.Channel, ts, options...)
			return err
		}, nil)
	}
	if err != nil {
		return fmt.Errorf("cannot edit a message in Slack: %w", err)
	}
	return nil
}

// React adds a reaction (a name without colons) to a message. An existing reaction is no error.
func (c *Client) React(ctx context.Context, channel, ts, name string) error {
	c.setup()
	err := c.call(ctx, "reactions.add", func(ctx context.Context) error {
		return c.api.AddReactionContext(ctx, name, slackgo.NewRefToMessage(channel, ts))
	}, nil)
	return unless(err, "already_reacted", "cannot react in Slack")
}

// Unreact removes a reaction. A missing reaction is no error.
func (c *Client) Unreact(ctx context.Context, channel, ts, name string) error {
	c.setup()
	err := c.call(ctx, "reactions.remove", func(ctx context.Context) error {
		return c.api.RemoveReactionContext(ctx, name, slackgo.NewRefToMessage(channel, ts))
	}, nil)
	return unless(err, "no_reaction", "cannot take back a reaction in Slack")
}

// unless ignores the refusal with a code that means that nothing is left to do.
func unless(err error, code, what string) error {
	var refused *RefusedError
	if err == nil || errors.As(err, &refused) && refused.Code == code {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
