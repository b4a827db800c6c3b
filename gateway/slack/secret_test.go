package slack_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/redact/redacttest"
)

// TestSecrets checks that no message has a secret in Slack, from any renderer.
func TestSecrets(t *testing.T) {
	const canary = `c4n4ry "value"&more`
	s, c, _ := start(t)
	c.Secrets, _ = redact.New(map[string]string{"CANARY": canary})
	ctx := deadline(t)
	parent := s.Write("U01", "C01", "", "hello")
	block, err := json.Marshal(map[string]any{"type": "section",
		"text": map[string]string{"type": "plain_text", "text": "it is " + canary}})
	if err != nil {
		t.Fatal(err)
	}
	m := slack.Message{Channel: "C01", ThreadTS: parent, Text: "it is " + canary, Mark: mark, Blocks: []slack.Block{block}}
	ts, err := c.Post(ctx, m, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Update(ctx, m, ts); err != nil {
		t.Fatal(err)
	}
	if err := c.Ephemeral(ctx, "C01", parent, "U01", canary); err != nil {
		t.Fatal(err)
	}
	all, err := json.Marshal([]any{s.Own("C01", parent), s.Messages("C01")})
	if err != nil {
		t.Fatal(err)
	}
	if found := redacttest.Text(all, canary); len(found) > 0 || !strings.Contains(string(all), "it is [secret CANARY]") {
		t.Errorf("found %q in %s", found, all)
	}
}
