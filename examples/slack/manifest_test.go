package slack_test

import (
	"bytes"
	"net/url"
	"os"
	"slices"
	"testing"
	"unicode/utf8"

	slackgo "github.com/slack-go/slack"
	"go.yaml.in/yaml/v3"

	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// TestManifest holds the app's manifest against what ramus asks of Slack, and
// against the limits of https://docs.slack.dev/reference/app-manifest.
func TestManifest(t *testing.T) {
	raw, err := os.ReadFile("manifest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m slackgo.Manifest
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	between := func(what, text string, least, most int) {
		t.Helper()
		if n := utf8.RuneCountInString(text); n < least || n > most {
			t.Errorf("%s has %d characters, not %d to %d", what, n, least, most)
		}
	}
	between("name", m.Display.Name, 1, 35)
	between("description", m.Display.Description, 1, 140)
	between("long_description", m.Display.LongDescription, 174, 4000)
	between("display_name", m.Features.BotUser.DisplayName, 1, 80)

	for what, scopes := range slacktest.Scopes {
		for _, scope := range scopes {
			if !slices.Contains(m.OAuthConfig.Scopes.Bot, scope) {
				t.Errorf("%s asks for the scope %s", what, scope)
			}
		}
	}
	for _, scope := range m.OAuthConfig.Scopes.Bot {
		used := false
		for _, scopes := range slacktest.Scopes {
			used = used || slices.Contains(scopes, scope)
		}
		if !used {
			t.Errorf("nothing asks for the scope %s", scope)
		}
	}
	for _, event := range []string{"app_mention", "message.channels", "message.groups", "message.im", "message.mpim"} {
		if !slices.Contains(m.Settings.EventSubscriptions.BotEvents, event) {
			t.Errorf("the event %s is not subscribed to", event)
		}
	}
	if len(m.Features.SlashCommands) != 1 || m.Features.SlashCommands[0].Command != "/ramus" {
		t.Fatalf("slash commands: %+v", m.Features.SlashCommands)
	}
	command := m.Features.SlashCommands[0]
	between("the command's description", command.Description, 1, 2000)
	between("usage_hint", command.UsageHint, 1, 1000)
	if !m.Settings.Interactivity.IsEnabled {
		t.Error("buttons are not enabled")
	}
	for path, address := range map[string]string{
		"/slack/events":       m.Settings.EventSubscriptions.RequestUrl,
		"/slack/interactions": m.Settings.Interactivity.RequestUrl,
		"/slack/commands":     command.Url,
	} {
		if u, err := url.Parse(address); err != nil || u.Scheme != "https" || u.Path != path {
			t.Errorf("%s is at %q", path, address)
		}
	}
}
