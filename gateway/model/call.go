package model

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds on an answer.
const (
	maxAnswer  = 32 << 20
	maxRefused = 64 << 10 // bytes of the provider's text about an error
	// writeTime bounds the time for which the container may leave an answer unread. It is shorter than a step's wait
	// for its guests.
	writeTime = 20 * time.Second
	probeTime = 15 * time.Second // for the trial of a key
)

var errTimeout = errors.New("the call took too long")

// guest is the executor's view of a call. *executor.Guest implements it.
type guest interface {
	Context() context.Context
	Run() record.Run
	User() secret.User
	Tell(record.Event)
	Leave()
}

// visit serves one container.
type visit struct {
	p     *Proxy
	enter func(*http.Request) (guest, bool)

	mu    sync.Mutex
	noted string // the run whose journal has the refusal of a call; guarded by mu
}

func (s *visit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, Prefix), "/")
	v := s.p.providers[name]
	if v == nil {
		s.notServed(w, name)
		return
	}
	e, at, model, no := v.find(r.Method, "/"+path)
	if no != nil {
		no.write(w, v)
		return
	}
	g, ok := s.enter(r)
	if !ok {
		refusal{kind: kindRefused,
			text: "ramus: models are served while a command of a run is at work, and none is"}.write(w, v)
		return
	}
	defer g.Leave()
	k, no := s.p.keyFor(v, g)
	if no == nil && k.value == "" {
		none := noKey(name)
		no = &none
	}
	if no != nil {
		no.write(w, v)
		return
	}
	c := &call{visit: s, provider: v, key: k, endpoint: e, path: at, guest: g, began: s.p.now(),
		account: s.p.ledger.open(g.Run().Name())}
	defer c.account.close()
	if no := c.serve(w, r, model); no != nil {
		no.write(w, v)
	}
}

func (s *visit) notServed(w http.ResponseWriter, name string) {
	a := apis[name]
	if a == nil {
		http.Error(w, fmt.Sprintf("ramus: no such model provider; served are %v below %s", s.p.known(), Prefix),
			http.StatusNotFound)
		return
	}
	noKey(name).write(w, &served{api: a, name: name})
}

// call is one request in progress.
type call struct {
	*visit
	provider *served
	key      key
	endpoint endpoint
	path     string // path at the provider
	guest    guest
	account  *account
	began    time.Time
	held     int64 // bytes of memory that the account counts for this call

	question question
	tally    tally
	sent     atomic.Bool // the provider has the whole question and may be working on it
	status   int
	ended    string
	// The part of the account that belongs to this call. account.mu guards it.
	tokens, micros int64
}

// serve performs a call, from its request to its answer. A returned refusal is still to be sent.
func (c *call) serve(w http.ResponseWriter, r *http.Request, model string) *refusal {
	if !c.takeSlot() {
		return &refusal{kind: kindBusy,
			text: fmt.Sprintf("ramus: %d calls of this run are at work; try again when one has ended", c.p.slots())}
	}
	defer c.giveSlot()
	defer func() { c.account.release(c.held) }()
	if r.Method == http.MethodPost {
		body, no := c.readBody(w, r)
		if no == nil {
			c.question, no = c.endpoint.parse(c.provider, c.path, model, body)
		}
		if no != nil {
			return no
		}
	}
	if c.endpoint.counted != countNothing {
		if no := c.admit(); no != nil {
			return no
		}
		defer c.finish()
	}
	ctx, cancel := context.WithTimeoutCause(c.guest.Context(), c.p.timeout(), errTimeout)
	defer cancel()
	control := http.NewResponseController(w)
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	resp, err := c.ask(ctx, r)
	if err != nil {
		return c.unanswered(ctx, err)
	}
	defer resp.Body.Close()
	return c.answer(ctx, &client{w, control}, resp)
}

func (p *Proxy) slots() int {
	if p.Calls <= 0 {
		return 16
	}
	return p.Calls
}

func (c *call) takeSlot() bool {
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	if c.account.slots >= c.p.slots() {
		return false
	}
	c.account.slots++
	return true
}

func (c *call) giveSlot() {
	c.account.mu.Lock()
	c.account.slots--
	c.account.mu.Unlock()
}

// admit allows a call for which the budget has room.
func (c *call) admit() *refusal {
	if _, ok := c.provider.price(c.question.model); !ok && c.p.PresentBudget().CostMicros > 0 {
		return &refusal{kind: kindBadRequest,
			text: fmt.Sprintf("ramus: the budget is in money and no price of %s is known; the operator of ramus adds it to models.%s.prices",
				c.question.model, c.provider.name)}
	}
	c.tally = tally{model: c.question.model, guess: guessInput(c.question.body), most: c.question.most}
	a := c.account
	a.mu.Lock()
	defer a.mu.Unlock()
	text := c.exhausted()
	calls := a.calls
	if used := c.guest.Run().Usage; used != nil {
		calls += used.Calls
	}
	if calls >= c.p.PresentBudget().calls() {
		text = fmt.Sprintf("ramus: this run has called models %d times, which is all it may%s", calls, advice)
	}
	if text != "" {
		c.noteRefused()
		return &refusal{kind: kindBudget, text: text}
	}
	a.calls++
	c.book()
	return nil
}

// advice is for the model that reads the reason of a refusal.
const advice = "; commit the changes so far and stop"

// exhausted explains that the budget is used up. Returns "" if it is not. The caller holds account.mu.
func (c *call) exhausted() string {
	used, b := c.guest.Run().Usage, c.p.PresentBudget()
	tokens, micros := used.Tokens()+c.account.tokens, c.account.micros
	if used != nil {
		micros += used.CostMicros
	}
	switch {
	case b.Tokens > 0 && tokens >= b.Tokens:
		return fmt.Sprintf("ramus: this run has used its budget for models: %d of %d tokens%s", tokens, b.Tokens, advice)
	case b.CostMicros > 0 && micros >= b.CostMicros:
		return fmt.Sprintf("ramus: this run has used its budget for models: %.2f of %.2f%s", float64(micros)/1e6,
			float64(b.CostMicros)/1e6, advice)
	}
	return ""
}

// book updates the account with the current use of the call. The caller holds account.mu.
func (c *call) book() {
	n, _ := c.tally.tokens()
	price, _ := c.provider.price(c.tally.model, c.question.model)
	total, micros := n.total(), price.cost(n)
	c.account.tokens += total - c.tokens
	c.account.micros += micros - c.micros
	c.tokens, c.micros = total, micros
}

// progress books the use of an answer so far. Returns a text if the budget is used up.
func (c *call) progress() (text string) {
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	c.book()
	if c.tally.whole {
		return "" // the call is at its end, and the next one will be refused
	}
	return c.exhausted()
}

// finish moves the use of a call from the account to the run's journal.
func (c *call) finish() {
	c.tally.waited = c.p.now().Sub(c.began)
	n, estimated := c.tally.tokens()
	if c.status >= 400 || c.status == 0 && !c.sent.Load() {
		n, estimated = tokens{}, false
	}
	price, _ := c.provider.price(c.tally.model, c.question.model)
	done := record.ModelCall{
		Provider: c.provider.name, Model: c.model(), Status: c.status, Credential: c.key.credential,
		InputTokens: n.input, OutputTokens: n.output, CacheRead: n.cacheRead, CacheWrite: n.cacheWrite,
		CostMicros: price.cost(n),
		DurationMS: c.tally.waited.Milliseconds(), Estimated: estimated, Ended: c.ended,
	}
	message := done.Provider + " " + done.Model
	if estimated {
		message += ", estimated: the answer ended before its usage was told"
	}
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	c.account.calls--
	c.account.tokens -= c.tokens
	c.account.micros -= c.micros
	c.tokens, c.micros = 0, 0
	c.guest.Tell(record.Event{Type: record.EventUsage, Message: message, Reason: done.Ended,
		DurationMS: done.DurationMS, Data: marshal(done)})
}

// model returns the name of the model for the journal.
func (c *call) model() string {
	if bodyModel.MatchString(c.tally.model) {
		return c.tally.model
	}
	return c.question.model
}

// noteRefused journals once that a call was refused for the budget, however often the container asks.
func (c *call) noteRefused() {
	run := c.guest.Run().Name()
	c.visit.mu.Lock()
	told := c.visit.noted == run
	c.visit.noted = run
	c.visit.mu.Unlock()
	if told {
		return
	}
	no := record.ModelCall{Provider: c.provider.name, Model: c.question.model,
		Status: refusal{kind: kindBudget}.status(c.provider.name),
		Ended:  record.EndedBudget, Refused: true}
	c.guest.Tell(record.Event{Type: record.EventUsage,
		Message: no.Provider + " " + no.Model + ", refused: the budget is used up",
		Reason:  no.Ended, Data: marshal(no)})
}

// ask makes the request. Every part of it is set here.
func (c *call) ask(ctx context.Context, r *http.Request) (*http.Response, error) {
	query := url.Values{}
	asked := r.URL.Query()
	for _, name := range c.endpoint.query {
		if value := asked.Get(name); value != "" && len(value) <= 256 {
			query.Set(name, value)
		}
	}
	to := c.provider.base + c.path
	if len(query) > 0 {
		to += "?" + query.Encode()
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		c.sent.Store(info.Err == nil)
	}})
	var body io.Reader = http.NoBody
	if c.question.body != nil {
		body = bytes.NewReader(c.question.body)
	}
	out, err := http.NewRequestWithContext(ctx, r.Method, to, body)
	if err != nil {
		return nil, err
	}
	h := out.Header
	for _, name := range append([]string{"Accept"}, c.provider.headers...) {
		for _, value := range r.Header.Values(name) {
			h.Add(name, value)
		}
	}
	if c.question.body != nil {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Accept-Encoding", "identity") // compressed data arrives late, and would have to be decompressed for counting
	h.Set("User-Agent", "ramus")
	c.provider.authorise(h, c.key.value, c.key.oauth)
	return c.p.transport().RoundTrip(out) // RoundTrip follows no redirect
}

// unanswered returns the refusal for a call without an answer, or with a partial one of which nothing was forwarded.
func (c *call) unanswered(ctx context.Context, err error) *refusal {
	switch {
	case errors.Is(context.Cause(ctx), errTimeout):
		c.ended = record.EndedTime
		return &refusal{kind: kindTime,
			text: fmt.Sprintf("ramus: %s did not answer within %v", c.provider.name, c.p.timeout())}
	case ctx.Err() != nil:
		panic(http.ErrAbortHandler) // the client, or the command of the call, is gone
	}
	c.p.log().Warn("cannot ask a model provider", "provider", c.provider.name, "err", err)
	return &refusal{kind: kindGateway,
		text: "ramus: " + c.provider.name + " cannot be reached, or its answer broke off; try again"}
}

// client is the container's side of a call.
type client struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// write sends p immediately.
func (c *client) write(p []byte) error {
	_ = c.control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := c.w.Write(p); err != nil {
		return err
	}
	return c.control.Flush()
}

// answerHeaders are forwarded. A name that ends in "-" is a prefix.
var answerHeaders = []string{"Content-Type", "Retry-After", "Retry-After-Ms", "X-Should-Retry", "Request-Id", "X-Request-Id",
	"Anthropic-Ratelimit-", "X-Ratelimit-"}

func (c *client) header(from http.Header) {
	for name, values := range from {
		for _, known := range answerHeaders {
			if name == known || strings.HasSuffix(known, "-") && strings.HasPrefix(name, known) {
				c.w.Header()[name] = values
			}
		}
	}
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
}

// answer forwards the provider's answer.
func (c *call) answer(ctx context.Context, w *client, resp *http.Response) *refusal {
	c.status = resp.StatusCode
	if resp.StatusCode >= 400 {
		return c.providerRefused(w, resp)
	}
	if resp.StatusCode != http.StatusOK {
		c.p.log().Warn("a model provider answered in an odd way", "provider", c.provider.name, "status", resp.StatusCode)
		return &refusal{kind: kindGateway,
			text: fmt.Sprintf("ramus: %s answered with status %d, which is not passed on", c.provider.name, resp.StatusCode)}
	}
	body := io.Reader(resp.Body)
	switch encoding := resp.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return c.unanswered(ctx, err)
		}
		body = z
	default:
		return &refusal{kind: kindGateway,
			text: fmt.Sprintf("ramus: %s answered in the encoding %q, which cannot be counted", c.provider.name,
				text.Clip(encoding, clipped))}
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		c.stream(ctx, w, resp, body)
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	c.tally.visible = int64(len(text))
	if err == nil && len(text) > maxAnswer {
		err = errors.New("the answer is too large")
	}
	if err != nil {
		return c.unanswered(ctx, err)
	}
	c.provider.read(&c.tally, text)
	c.tally.whole = c.tally.whole || c.endpoint.counted == countInput
	w.header(resp.Header)
	w.w.WriteHeader(resp.StatusCode)
	if c.endpoint.counted != countNothing {
		c.progress()
	}
	_ = w.write(c.key.secrets.Bytes(text)) // an error means that the client does not read
	return nil
}

// stream forwards events as they arrive.
func (c *call) stream(ctx context.Context, w *client, resp *http.Response, body io.Reader) {
	w.header(resp.Header)
	w.w.Header().Set("Cache-Control", "no-store")
	w.w.WriteHeader(resp.StatusCode)
	_ = w.control.Flush()
	for in := newEvents(body); ; {
		event, err := in.next()
		if len(event) > 0 {
			object := data(event)
			c.provider.read(&c.tally, object)
			over := ""
			if c.endpoint.counted != countNothing {
				over = c.progress()
			}
			half := err != nil && !errors.Is(err, io.EOF) // an incomplete event does not count
			if !half && (!c.question.usageAdded || !onlyUsage(object)) {
				if w.write(c.key.secrets.Bytes(event)) != nil {
					panic(http.ErrAbortHandler)
				}
			}
			if over != "" {
				c.ended = record.EndedBudget
				_ = w.write(refusal{kind: kindBudget, text: over}.event(c.provider,
					c.path)) // an error changes nothing, because this is the end
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return
		case errors.Is(context.Cause(ctx), errTimeout):
			c.ended = record.EndedTime
			_ = w.write(refusal{kind: kindTime,
				text: fmt.Sprintf("ramus: the answer took longer than %v", c.p.timeout())}.event(c.provider, c.path))
			return
		default:
			if ctx.Err() == nil {
				c.p.log().Warn("a model provider's stream broke off", "provider", c.provider.name, "err", err)
				if c.provider.name == "gemini" {
					// Clients of Gemini accept an error in place of an event, as Google sends it. Gemini CLI then tries
					// again, which it does not after a lost connection.
					_ = w.write(marshal(c.provider.format(refusal{kind: kindGateway,
						text: "ramus: gemini's answer broke off; try again"})))
					return
				}
			}
			panic(http.ErrAbortHandler) // shows the client that the answer is incomplete
		}
	}
}

// onlyUsage reports whether object is the last chunk of a streamed completion with the usage. Clients that did not ask
// for it use the first choice of a chunk without checking that there is one.
func onlyUsage(object []byte) bool {
	var chunk struct {
		Choices *[]json.RawMessage `json:"choices"`
		Usage   *json.RawMessage   `json:"usage"`
	}
	return json.Unmarshal(object, &chunk) == nil && chunk.Choices != nil && len(*chunk.Choices) == 0 && chunk.Usage != nil
}

// accounts matches the organisations, projects and users in providers' errors.
var accounts = pattern.New(`\b(org|proj|user)-[A-Za-z0-9]{6,}|\b(org|proj|user)_[A-Za-z0-9]{6,}|\bprojects?/[0-9]{6,}`)

// providerRefused forwards an error of the provider, without its information about the server's account.
func (c *call) providerRefused(w *client, resp *http.Response) *refusal {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefused+1)) // a part of an error is not JSON
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		// The provider's text is about a key that the container does not know.
		c.p.log().Warn("a model provider refuses the key", "provider", c.provider.name, "status", resp.StatusCode,
			"credential", c.key.whose)
		return &refusal{kind: kindRefused, code: resp.StatusCode,
			text: fmt.Sprintf("ramus: %s does not allow this with the key that ramus has for it (status %d); %s",
				c.provider.name, resp.StatusCode, c.key.correctedAt(c.provider.name))}
	case len(text) > maxRefused || resp.Header.Get("Content-Encoding") != "" || !json.Valid(text):
		w.header(resp.Header)
		return &refusal{kind: kindGateway, code: resp.StatusCode,
			text: fmt.Sprintf("ramus: %s answered with status %d", c.provider.name, resp.StatusCode)}
	}
	w.header(resp.Header)
	w.w.Header().Set("Content-Type", "application/json")
	w.w.WriteHeader(resp.StatusCode)
	text = accounts.ReplaceAll(c.key.secrets.Bytes(text), []byte("[account]"))
	_ = w.write(text) // an error means that the client does not read
	return nil
}
