package gateway

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// deployAPI receives messages about deploys.
type deployAPI struct {
	Executor *executor.Executor
	// DeploySecret signs the messages. If it is empty, no messages are accepted.
	DeploySecret string
	Now          func() time.Time
}

// Routes returns the routes of deploys.
func (api *deployAPI) Routes() []route.Route {
	return []route.Route{
		{Method: "POST", Pattern: "/hooks/deploy", Access: route.AccessHook,
			Summary: "Receive the news of a deploy; the base follows to its commit", Request: upstream.Deploy{},
			Response: Deployed{}, Body: deployBody, Handle: api.deployHook},
	}
}

// The headers of a message about a deploy.
const (
	headerTimestamp = "X-Ramus-Timestamp" // seconds since 1970
	headerSignature = "X-Ramus-Signature" // see Signature
)

const (
	// hookWindow limits the difference between the time of a message and the server's clock, in both directions.
	hookWindow = 5 * time.Minute
	deployBody = 64 << 10
)

// Signature returns the signature of a message to /hooks/deploy. It is "v0=" and the hexadecimal HMAC-SHA256, with the
// shared secret, of "v0:TIMESTAMP:BODY".
func Signature(secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + timestamp + ":"))
	mac.Write(body)
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}

// Deployed is the answer to a message about a deploy.
type Deployed struct {
	Repo   string    `json:"repo"`
	Commit gitd.Hash `json:"commit"`
	// Known is set if the same deploy was reported before. The repeated message has no effect.
	Known bool `json:"known,omitempty"`
}

// deployHook accepts a message about a deploy. It answers when the message is durable. The server fetches from
// upstream after the answer.
func (api *deployAPI) deployHook(c *route.Call) error {
	if api.DeploySecret == "" {
		return route.NewProblem(route.KindNotFound, "this server hears of no deploys").
			WithHint("hooks.deploy in the configuration names the secret that they are signed with")
	}
	lift := c.LimitReading()
	body, err := io.ReadAll(c.R.Body)
	lift()
	if err != nil {
		return route.BadJSON(err)
	}
	sent, err := api.signed(c, body)
	if err != nil {
		return err
	}
	var d upstream.Deploy
	in := json.NewDecoder(bytes.NewReader(body))
	in.DisallowUnknownFields()
	if err := in.Decode(&d); err != nil {
		return route.BadJSON(err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return route.NewProblem(route.KindInvalid, "the request's body goes on after its JSON object")
	}
	d.SentAt = sent
	known, err := api.Executor.Bases.Accept(c.R.Context(), d)
	if err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusAccepted, Deployed{d.Repo, d.Commit, known})
}

// signed checks the signature of the raw body and returns the signed time.
func (api *deployAPI) signed(c *route.Call, body []byte) (time.Time, error) {
	refused := func(why string) (time.Time, error) {
		return time.Time{}, route.NewProblem(route.KindUnauthorized, "%s", why).
			WithHint(headerSignature + " is v0= and the HMAC-SHA256 of v0:TIMESTAMP:BODY; examples/deploy-hook makes one")
	}
	timestamp, signature := c.R.Header.Get(headerTimestamp), c.R.Header.Get(headerSignature)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return refused(headerTimestamp + " is not a number of seconds since 1970")
	}
	want := Signature(api.DeploySecret, timestamp, body)
	if subtle.ConstantTimeCompare([]byte(want), []byte(signature)) != 1 {
		return refused(headerSignature + " does not fit the message")
	}
	sent := time.Unix(seconds, 0).UTC()
	if off := api.Now().Sub(sent); off > hookWindow || off < -hookWindow {
		return refused("the message was signed at another time: five minutes are allowed either way")
	}
	return sent, nil
}
