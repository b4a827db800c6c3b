package hub

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Level is the right of a user in all repositories.
type Level int

// The levels.
const (
	Nobody Level = iota
	Reader
	Writer
	Admin
)

// User is a user with one token.
type User struct {
	ID    int64
	Login string
	Token string
	Level Level
	Bot   bool
}

// Form is the form of a forge.
type Form interface {
	// Token returns the token of a request to the API.
	Token(*http.Request) string
	// Identity returns the name of a user in answers.
	Identity(*User) string
	// Refusal returns the body of an error.
	Refusal(status int, message string) any
	// Webhook returns the header and body of the webhook for an event. A nil header means that there is none.
	Webhook(Event) (http.Header, any)
	// Sign adds the proof of the sender to the header of a webhook.
	Sign(header http.Header, body []byte, secret string)
}

// Hub is a forge. Its fields are its options and may change until Start.
type Hub struct {
	Root   string // of the bare repositories, OWNER/NAME.git
	Addr   string // default 127.0.0.1 and any port
	Form   Form
	Secret string // of webhooks; default "webhook-secret"
	Now    func() time.Time

	Mux *http.ServeMux // of the API; set by Open

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	http   *http.Server
	client http.Client
	addr   string
	wake   chan struct{}

	mu         sync.Mutex // guards the fields below, and all Repos
	ids        int64
	users      []*User
	repos      []*Repo
	hook       string
	queue      []webhook
	sent       []webhook
	complaints []string
}

type webhook struct {
	header http.Header
	body   []byte
}

// Event is a change in a repository.
type Event struct {
	Kind    string // "pull", "comment", "verdict", "push", "status"
	Action  string // of a pull: "open", "close", "reopen", "merge", "update"
	Repo    *Repo
	Pull    *Pull
	Comment *Comment
	User    *User
	Status  *Status
	Branch  string
	Before  string
	After   string // "" if the branch was deleted
}

// Open prepares the hub. Routes of the API are added to its Mux before Start.
func (h *Hub) Open() {
	h.Mux = http.NewServeMux()
	h.Mux.HandleFunc("/", h.other)
	if h.Now == nil {
		h.Now = time.Now
	}
	if h.Secret == "" {
		h.Secret = "webhook-secret"
	}
	h.ids = 100
	h.wake = make(chan struct{}, 1)
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.client.Transport = &http.Transport{DisableKeepAlives: true}
}

// Start listens.
func (h *Hub) Start() error {
	if h.Addr == "" {
		h.Addr = "127.0.0.1:0"
	}
	if err := os.MkdirAll(h.Root, 0o755); err != nil {
		return err
	}
	l, err := net.Listen("tcp", h.Addr)
	if err != nil {
		return err
	}
	h.addr = l.Addr().String()
	h.http = &http.Server{Handler: h.Mux, ReadHeaderTimeout: time.Minute}
	h.work.Go(func() { _ = h.http.Serve(l) })
	h.work.Go(h.deliver)
	return nil
}

// Close stops the hub and waits for its work.
func (h *Hub) Close() error {
	h.cancel()
	err := h.http.Close()
	h.work.Wait()
	return err
}

// URL returns the address of the site.
func (h *Hub) URL() string { return "http://" + h.addr }

// Complaints returns the mistakes of programs so far.
func (h *Hub) Complaints() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.complaints)
}

func (h *Hub) complain(format string, args ...any) {
	h.complaints = append(h.complaints, fmt.Sprintf(format, args...))
}

// id returns the next number of an object.
func (h *Hub) id() int64 {
	h.ids++
	return h.ids
}

// AddUser adds a user, or changes the level of one.
func (h *Hub) AddUser(login string, level Level) *User {
	h.mu.Lock()
	defer h.mu.Unlock()
	if u := h.User(login); u != nil {
		u.Level = level
		return u
	}
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	u := &User{ID: h.id(), Login: login, Token: hex.EncodeToString(b[:]), Level: level}
	h.users = append(h.users, u)
	return u
}

// User returns a user by the name. Returns nil if there is none. The caller holds the lock, as each handler does.
func (h *Hub) User(login string) *User {
	for _, u := range h.users {
		if strings.EqualFold(u.Login, login) {
			return u
		}
	}
	return nil
}

// UserByID returns a user. The caller holds the lock.
func (h *Hub) UserByID(id int64) *User {
	for _, u := range h.users {
		if u.ID == id {
			return u
		}
	}
	return nil
}

// Users returns all users. The caller holds the lock.
func (h *Hub) Users() []*User { return h.users }

func (h *Hub) byToken(token string) *User {
	for _, u := range h.users {
		if token != "" && u.Token == token {
			return u
		}
	}
	return nil
}

// SetHook sets the address that receives webhooks.
func (h *Hub) SetHook(url string) {
	h.mu.Lock()
	h.hook = url
	h.mu.Unlock()
}

// Webhooks returns the header and body of all webhooks so far, whether somebody received them or not.
func (h *Hub) Webhooks() (headers []http.Header, bodies [][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.sent {
		headers, bodies = append(headers, w.header), append(bodies, w.body)
	}
	return headers, bodies
}

// emit queues the webhook for an event. The caller holds the lock.
func (h *Hub) emit(e Event) {
	header, payload := h.Form.Webhook(e)
	if header == nil {
		return
	}
	body := encode(payload)
	header.Set("Content-Type", "application/json")
	h.Form.Sign(header, body, h.Secret)
	w := webhook{header, body}
	h.sent = append(h.sent, w)
	if h.hook != "" {
		h.queue = append(h.queue, w)
		select {
		case h.wake <- struct{}{}:
		default: // the lane is awake
		}
	}
}

// deliver sends webhooks in order until the hub ends. A failed one is not sent again.
func (h *Hub) deliver() {
	for {
		h.mu.Lock()
		var next *webhook
		if len(h.queue) > 0 {
			next = &h.queue[0]
			h.queue = h.queue[1:]
		}
		url := h.hook
		h.mu.Unlock()
		if next == nil {
			select {
			case <-h.wake:
				continue
			case <-h.ctx.Done():
				return
			}
		}
		ctx, cancel := context.WithTimeout(h.ctx, time.Minute)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(next.body))
		if err == nil {
			r.Header = next.header.Clone()
			var resp *http.Response
			if resp, err = h.client.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
				resp.Body.Close()
			}
		}
		cancel()
	}
}
