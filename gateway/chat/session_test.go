package chat

import (
	"testing"

	"github.com/ramus-dev/ramus/gateway/slack"
)

func TestSessionKey(t *testing.T) {
	m := slack.Mention{Team: "T0G9PQBBK", Channel: "C061EG9SL", TS: "1700000099.000200",
		ThreadTS: "1700000000.000100", User: "U1"}
	if got, want := m.Session(), "slack:T0G9PQBBK:C061EG9SL:1700000000.000100"; got != want {
		t.Errorf("session %q, want %q", got, want)
	}
	if got, want := m.Key(), "C061EG9SL:1700000099.000200"; got != want {
		t.Errorf("key %q, want %q", got, want)
	}
	again := m
	again.TS, again.User, again.Text = "1700000199.000300", "U2", "and now"
	if again.Session() != m.Session() {
		t.Error("a second mention in a thread has another session")
	}
	for _, change := range []func(*slack.Mention){
		func(m *slack.Mention) { m.Team = "T2" }, func(m *slack.Mention) { m.Channel = "C2" },
		func(m *slack.Mention) { m.ThreadTS = m.TS },
	} {
		other := m
		change(&other)
		if other.Session() == m.Session() {
			t.Errorf("%+v has the session of %+v", other, m)
		}
	}
}
