package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	// silence bounds the time without a message on a socket. Slack pings every few seconds, so a longer silence means
	// that the connection is dead.
	silence = time.Minute
	// farewell bounds the time for which a socket that Slack is about to close is still read.
	farewell = 10 * time.Second
	// atOnce is the number of deliveries of a socket that are handled at once. Further ones wait unread.
	atOnce = 32
	// maxAck bounds an acknowledgement, in bytes. Slack drops longer ones without notice.
	maxAck = 20_000
	// shortLived is the lifetime up to which a connection counts as failed. Reconnecting at once would then repeat
	// endlessly.
	shortLived = 10 * time.Second
)

// errDisabled means that Socket Mode is switched off for the app.
var errDisabled = fmt.Errorf("%w: the app's Socket Mode is switched off", ErrRefused)

// Handle handles a delivery. Its reply is part of the acknowledgement of a command or an interaction. A nil reply is
// left out.
type Handle = func(context.Context, Delivery) (reply any, err error)

// Socket receives deliveries by Socket Mode until ctx ends. It reconnects as needed. A delivery is acknowledged, with
// the reply, after handle has returned nil. A delivery whose handle fails is not, so that Slack sends it again.
// Deliveries without meaning for ramus, or that cannot be read, are acknowledged without handle.
//
// Several goroutines call handle at once. All of them have returned when Socket returns. If Slack announces the end of
// a connection, Socket opens the next one while it reads the old one to its end. It returns the cause of ctx's end, or
// a refusal of Slack.
//
// See https://docs.slack.dev/apis/events-api/using-socket-mode.
func (c *Client) Socket(ctx context.Context, handle Handle) error {
	c.setup()
	me, err := c.Me(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var sockets sync.WaitGroup
	defer sockets.Wait()
	defer cancel()
	for failures := 0; ; {
		began := c.Now()
		conn, err := c.dial(ctx)
		if err == nil {
			k := &socket{c: c, conn: conn, bot: me.User, handle: handle, next: make(chan error, 1)}
			sockets.Go(func() { k.run(ctx) })
			err = <-k.next
		}
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("cannot receive from Slack any longer: %w", context.Cause(ctx))
		case errors.Is(err, ErrRefused):
			return fmt.Errorf("cannot receive from Slack by Socket Mode: %w", err)
		}
		if c.Now().Sub(began) >= shortLived {
			failures = 0
			if err == nil {
				continue
			}
		}
		failures++
		pause := c.pause(failures, 0)
		c.Log.LogAttrs(ctx, slog.LevelWarn, "the connection to Slack ended; connecting again",
			slog.Duration("pause", pause), slog.Any("err", err))
		if err := c.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("cannot receive from Slack any longer: %w", err)
		}
	}
}

// dial opens a connection. Slack provides a new address for each.
func (c *Client) dial(ctx context.Context) (*websocket.Conn, error) {
	var address string
	err := c.call(ctx, "apps.connections.open", func(ctx context.Context) error {
		_, got, err := c.api.StartSocketModeContext(ctx)
		address = got
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	// The address has a secret, so errors do not show it.
	u, err := url.Parse(address)
	if err != nil || !c.trusted(&url.URL{Scheme: strings.Replace(u.Scheme, "ws", "http", 1), Host: u.Host}) {
		return nil, errors.New("the address that Slack gave for a socket is not Slack's")
	}
	dialer := websocket.Dialer{Proxy: http.ProxyFromEnvironment, HandshakeTimeout: attemptTime}
	conn, resp, err := dialer.DialContext(ctx, address, nil)
	if resp != nil && resp.Body != nil {
		resp.Body.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open a socket to %s: %w", u.Host, err)
	}
	return conn, nil
}

// socket is one connection of Socket Mode.
type socket struct {
	c      *Client
	conn   *websocket.Conn
	bot    string
	handle Handle
	// next gets one value when it is time for the next connection. The value is nil if Slack asked for it.
	next chan error

	writing sync.Mutex // guards writes to conn

	waking sync.Mutex // guards until and ended, and conn's read deadline
	until  time.Time  // the end of reading, once Slack has announced the end
	ended  bool       // ctx has ended
}

// socketMessage is a message of Slack over a socket.
type socketMessage struct {
	Type       string          `json:"type"`
	Reason     string          `json:"reason"`
	EnvelopeID string          `json:"envelope_id"`
	Accepts    bool            `json:"accepts_response_payload"`
	Retry      int             `json:"retry_attempt"`
	Payload    json.RawMessage `json:"payload"`
}

// run reads until the connection ends and all deliveries have been handled.
func (k *socket) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		k.waking.Lock()
		defer k.waking.Unlock()
		k.ended = true
		_ = k.conn.NetConn().SetReadDeadline(time.Unix(1, 0))
	})
	err := k.read(ctx)
	stop()
	select {
	case k.next <- err:
	default: // next has a value already
	}
	_ = k.conn.Close()
}

func (k *socket) read(ctx context.Context) error {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	places := make(chan struct{}, atOnce)
	k.conn.SetReadLimit(2 * MaxBody)
	answerPing := k.conn.PingHandler()
	k.conn.SetPingHandler(func(data string) error {
		if err := k.awake(); err != nil {
			return err
		}
		return answerPing(data)
	})
	for {
		if err := k.awake(); err != nil {
			return err
		}
		_, body, err := k.conn.ReadMessage()
		if err != nil {
			return err
		}
		var m socketMessage
		if err := json.Unmarshal(body, &m); err != nil {
			k.c.Log.LogAttrs(ctx, slog.LevelWarn, "a message of Slack's socket cannot be read", slog.Any("err", err))
			continue
		}
		switch {
		case m.Type == "disconnect" && m.Reason == "link_disabled":
			return errDisabled
		case m.Type == "disconnect":
			if k.leave() {
				k.next <- nil
			}
		case m.EnvelopeID != "":
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			handlers.Go(func() {
				defer func() { <-places }()
				k.deliver(ctx, m)
			})
		}
	}
}

// awake extends the read deadline after a message. Deadlines use the real time, independent of the Client's clock.
func (k *socket) awake() error {
	k.waking.Lock()
	defer k.waking.Unlock()
	switch {
	case k.ended:
		return net.ErrClosed
	case k.until.IsZero():
		return k.conn.SetReadDeadline(time.Now().Add(silence))
	}
	return k.conn.SetReadDeadline(k.until)
}

// leave sets the end of a connection that Slack is about to close. Returns false if it was set before.
func (k *socket) leave() bool {
	k.waking.Lock()
	defer k.waking.Unlock()
	if !k.until.IsZero() {
		return false
	}
	k.until = time.Now().Add(farewell)
	return true
}

// deliver handles and acknowledges a delivery.
func (k *socket) deliver(ctx context.Context, m socketMessage) {
	log := k.c.Log.With("type", m.Type, "retry", m.Retry)
	d, err := parseEnvelope(m, k.bot)
	if err != nil {
		// A retry would not help, so the delivery is acknowledged.
		log.LogAttrs(ctx, slog.LevelWarn, "a delivery of Slack's cannot be read", slog.Any("err", err))
	}
	var reply any
	if err == nil && d != (Delivery{EventID: d.EventID, Retry: d.Retry}) {
		if reply, err = k.handle(ctx, d); err != nil {
			log.LogAttrs(ctx, slog.LevelError, "a delivery of Slack's failed; Slack sends it again", slog.Any("err", err))
			return
		}
	}
	if err := k.acknowledge(m, reply); err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "a delivery of Slack's could not be acknowledged; Slack sends it again",
			slog.Any("err", err))
	}
}

func (k *socket) acknowledge(m socketMessage, reply any) error {
	ack := map[string]any{"envelope_id": m.EnvelopeID}
	if reply != nil && m.Accepts {
		ack["payload"] = reply
	}
	body, err := json.Marshal(ack)
	if err != nil {
		return err
	}
	if len(body) >= maxAck {
		k.c.Log.Warn("an answer is too long to go with an acknowledgement", "bytes", len(body))
		delete(ack, "payload")
		if body, err = json.Marshal(ack); err != nil {
			return err
		}
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	if err := k.conn.SetWriteDeadline(time.Now().Add(farewell)); err != nil {
		return err
	}
	return k.conn.WriteMessage(websocket.TextMessage, body)
}

// parseEnvelope reads the content of an envelope, which is a body as over HTTP without the form.
func parseEnvelope(m socketMessage, bot string) (d Delivery, err error) {
	switch m.Type {
	case "events_api":
		d, err = ParseEvent(m.Payload, bot)
	case "interactive":
		d, err = parseAction(m.Payload)
	case "slash_commands":
		var fields map[string]any
		if err = unmarshal(m.Payload, &fields); err != nil {
			return Delivery{}, fmt.Errorf("cannot read a slash command of Slack's: %w", err)
		}
		d, err = newCommand(func(name string) string {
			text, _ := fields[name].(string)
			return text
		})
	}
	d.Retry = m.Retry
	return d, err
}
