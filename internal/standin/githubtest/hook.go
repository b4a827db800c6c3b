package githubtest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" // GitHub still sends it
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// events are the App's subscriptions.
var events = []string{"check_run", "issue_comment", "issues", "pull_request", "pull_request_review",
	"pull_request_review_comment", "push", "workflow_run"}

// Delivery is one delivery of an event to the App.
type Delivery struct {
	ID       string // X-GitHub-Delivery, the same in each attempt
	Number   int64  // in the API
	Event    string
	Action   string
	Repo     string
	At       time.Time
	Body     []byte
	Attempts []Attempt
}

// Attempt is one attempt at a delivery.
type Attempt struct {
	At     time.Time
	URL    string
	Status int // 0 without a response
	Answer []byte
	Err    error
	Took   time.Duration
}

// OK reports whether the App accepted the delivery.
func (a Attempt) OK() bool { return a.Err == nil && a.Status/100 == 2 }

// hookID is the id of the App's webhook.
const hookID = 4711

// maxDelivery is GitHub's limit. A larger event is not delivered.
const maxDelivery = 25 << 20

// SetHook sets the App's URL for deliveries.
func (s *Server) SetHook(url string) {
	s.mu.Lock()
	s.HookURL = url
	s.mu.Unlock()
}

// Hold stops deliveries. Deliveries returns them, and only Deliver delivers them.
func (s *Server) Hold() {
	s.mu.Lock()
	s.state.held = true
	s.mu.Unlock()
}

// Release resumes the delivery of new events. Held ones stay held. See Deliver.
func (s *Server) Release() {
	s.mu.Lock()
	s.state.held = false
	s.mu.Unlock()
}

// Deliveries returns all deliveries so far, the oldest first.
func (s *Server) Deliveries() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Delivery
	for _, d := range s.state.deliveries {
		one := *d
		one.Attempts = slices.Clone(d.Attempts)
		list = append(list, one)
	}
	return list
}

// Undelivered returns the deliveries that the App has not accepted, the oldest first.
func (s *Server) Undelivered() []Delivery {
	return slices.DeleteFunc(s.Deliveries(), func(d Delivery) bool { return slices.ContainsFunc(d.Attempts, Attempt.OK) })
}

// guid returns a delivery's id.
func guid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// emit makes an event and queues its delivery. s.mu is held.
func (s *Server) emit(r *repository, by *user, event, action string, payload object) {
	if by == nil {
		by = s.user("ghost", "User")
	}
	payload["sender"] = s.userObject(by)
	org := s.user(s.Account, "Organization")
	payload["organization"] = object{"login": org.login, "id": org.id, "node_id": node("O", org.id),
		"url":        s.API() + "orgs/" + org.login,
		"avatar_url": s.URL() + "/avatars/" + org.login, "description": ""}
	payload["installation"] = object{"id": s.Installation, "node_id": node("I", s.Installation)}
	body, err := json.Marshal(payload)
	if err != nil {
		panic(err) // the types are ours
	}
	if len(body) > maxDelivery {
		s.Log.Warn("the event is too large to be delivered", "event", event, "bytes", len(body))
		return
	}
	d := &Delivery{ID: guid(), Number: s.id(), Event: event, Action: action, Repo: r.name, At: s.Now(), Body: body}
	if len(s.state.deliveries) >= maxRequests {
		s.state.deliveries = slices.Clone(s.state.deliveries[maxRequests/2:])
	}
	s.state.deliveries = append(s.state.deliveries, d)
	if !s.state.held && s.HookURL != "" {
		s.state.waiting = append(s.state.waiting, d)
		select {
		case s.lane <- struct{}{}:
		default: // the lane is awake
		}
	}
	s.move()
}

// deliverAll delivers queued events one after another until ctx ends.
func (s *Server) deliverAll(ctx context.Context) {
	for {
		s.mu.Lock()
		var next *Delivery
		if len(s.state.waiting) > 0 {
			next, s.state.waiting = s.state.waiting[0], s.state.waiting[1:]
		}
		s.state.sending = next != nil
		s.move()
		s.mu.Unlock()
		if next != nil {
			s.attempt(ctx, next)
			continue
		}
		select {
		case <-s.lane:
		case <-ctx.Done():
			return
		}
	}
}

// Settle waits until all queued deliveries have been attempted.
func (s *Server) Settle(ctx context.Context) error {
	return s.Until(ctx, "the webhooks", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.state.sending && len(s.state.waiting) == 0
	})
}

// Deliver attempts a delivery, for the first time or again. The id stays the same, as with "Redeliver".
func (s *Server) Deliver(ctx context.Context, id string) (Attempt, error) {
	s.mu.Lock()
	at := slices.IndexFunc(s.state.deliveries, func(d *Delivery) bool { return d.ID == id })
	if at < 0 {
		s.mu.Unlock()
		return Attempt{}, fmt.Errorf("there is no delivery %q", id)
	}
	d := s.state.deliveries[at]
	s.mu.Unlock()
	return s.attempt(ctx, d), nil
}

// Copy makes a second delivery of an event with another id, like a second webhook.
func (s *Server) Copy(id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.state.deliveries, func(d *Delivery) bool { return d.ID == id })
	if at < 0 {
		return "", fmt.Errorf("there is no delivery %q", id)
	}
	d := *s.state.deliveries[at]
	d.ID, d.Number, d.Attempts = guid(), s.id(), nil
	s.state.deliveries = append(s.state.deliveries, &d)
	return d.ID, nil
}

// Sign returns the signature headers of a body.
func (s *Server) Sign(body []byte) http.Header {
	sign := func(kind func() hash.Hash) string {
		mac := hmac.New(kind, []byte(s.HookSecret))
		mac.Write(body)
		return hex.EncodeToString(mac.Sum(nil))
	}
	return http.Header{"X-Hub-Signature": {"sha1=" + sign(sha1.New)}, "X-Hub-Signature-256": {"sha256=" + sign(sha256.New)}}
}

// Header returns the headers of a delivery.
func (s *Server) Header(d Delivery) http.Header {
	h := s.Sign(d.Body)
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "*/*")
	h.Set("User-Agent", "GitHub-Hookshot/5a1d0f7")
	h.Set("X-GitHub-Event", d.Event)
	h.Set("X-GitHub-Delivery", d.ID)
	h.Set("X-GitHub-Hook-ID", strconv.Itoa(hookID))
	h.Set("X-GitHub-Hook-Installation-Target-ID", strconv.FormatInt(s.App, 10))
	h.Set("X-GitHub-Hook-Installation-Target-Type", "integration")
	return h
}

// attempt sends a delivery once.
func (s *Server) attempt(ctx context.Context, d *Delivery) Attempt {
	s.mu.Lock()
	a := Attempt{At: s.Now(), URL: s.HookURL}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.AckTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL, bytes.NewReader(d.Body))
	if err == nil {
		req.Header = s.Header(Delivery{ID: d.ID, Event: d.Event, Body: d.Body})
		began := time.Now()
		var resp *http.Response
		if resp, err = s.deliveries.Do(req); err == nil {
			a.Status = resp.StatusCode
			a.Answer, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
			resp.Body.Close()
		}
		a.Took = time.Since(began)
	}
	a.Err = err
	s.mu.Lock()
	defer s.mu.Unlock()
	d.Attempts = append(d.Attempts, a)
	outcome := fmt.Sprintf("%s %s: %d", d.Event, d.Action, a.Status)
	if err != nil {
		outcome = fmt.Sprintf("%s %s: %v", d.Event, d.Action, err)
	}
	s.change(Change{Repo: d.Repo, Kind: "delivery", User: s.Slug, Ref: strconv.Itoa(a.Status), Text: outcome})
	return a
}

// Ping sends the ping of a new webhook.
func (s *Server) Ping(ctx context.Context) Attempt {
	s.mu.Lock()
	body, err := json.Marshal(object{"zen": "Practicality beats purity.", "hook_id": hookID,
		"hook": object{"type": "App", "id": hookID, "name": "web",
			"active": true, "events": events, "app_id": s.App, "updated_at": epoch, "created_at": epoch,
			"config":         object{"content_type": "json", "insecure_ssl": "0", "secret": "********", "url": s.HookURL},
			"deliveries_url": s.API() + "app/hook/deliveries"}})
	if err != nil {
		panic(err) // the types are ours
	}
	d := &Delivery{ID: guid(), Number: s.id(), Event: "ping", At: s.Now(), Body: body}
	s.state.deliveries = append(s.state.deliveries, d)
	s.mu.Unlock()
	return s.attempt(ctx, d)
}

// hookDeliveries lists the deliveries for the App, the newest first, with the result of the last attempt.
func (c *call) hookDeliveries() answer {
	var list []any
	for _, d := range slices.Backward(c.s.state.deliveries) {
		o := object{"id": d.Number, "guid": d.ID, "delivered_at": stamp(d.At), "redelivery": len(d.Attempts) > 1,
			"duration": 0.0, "status": "pending",
			"status_code": 0, "event": d.Event, "action": d.Action, "installation_id": c.s.Installation,
			"repository_id": nil}
		if n := len(d.Attempts); n > 0 {
			last := d.Attempts[n-1]
			o["duration"], o["status_code"], o["status"] = last.Took.Seconds(), last.Status, http.StatusText(last.Status)
		}
		list = append(list, o)
	}
	return c.page(list)
}

// hookAttempt repeats a delivery at the App's request.
func (c *call) hookAttempt() answer {
	for _, d := range c.s.state.deliveries {
		if d.Number == c.number("delivery_id") {
			c.s.background(func(ctx context.Context) { c.s.attempt(ctx, d) })
			return jsonAnswer(http.StatusAccepted, object{})
		}
	}
	return notFound.answer()
}
