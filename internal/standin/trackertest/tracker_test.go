package trackertest_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/forgetest"
	"github.com/ramus-dev/ramus/gateway/jira"
	"github.com/ramus-dev/ramus/gateway/linear"
	"github.com/ramus-dev/ramus/gateway/ticket"
	"github.com/ramus-dev/ramus/internal/standin/trackertest"
)

// TestTrackers checks both trackers alike.
func TestTrackers(t *testing.T) {
	for _, kind := range []string{"jira", "linear"} {
		t.Run(kind, func(t *testing.T) {
			s, err := trackertest.Start(kind)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			type tracker interface {
				ticket.Tracker
				Parse(http.Header, []byte, string, ticket.Names) (ticket.Event, error)
			}
			open := func(token string) tracker {
				if kind == "jira" {
					return &jira.Client{URL: s.URL(), User: "ramus@example.org", Token: token, Sleep: forgetest.Sleep}
				}
				return &linear.Client{URL: s.URL(), Token: token, Sleep: forgetest.Sleep}
			}
			s.Lose = 1 // of the first comment the answer is lost
			for range 2 {
				if err := open(s.Token).Comment(t.Context(), "APP-12", "Done.", "{noformat}\n```\nx", "one"); err != nil {
					t.Fatal(err)
				}
			}
			if err := open(s.Token).Comment(t.Context(), "APP-12", "More.", "", "two"); err != nil {
				t.Fatal(err)
			}
			all := s.Comments("APP-12")
			if len(all) != 2 || !strings.HasPrefix(all[0].Body, "Done.\n") || strings.Count(all[0].Body, "{noformat}")+
				strings.Count(all[0].Body, "```") != 2+map[string]int{"jira": 1, "linear": 1}[kind] {
				t.Errorf("%q", all)
			}
			for _, key := range []string{"APP-13", "", "../x", "app-1", "APP-1/x"} {
				if err := open(s.Token).Comment(t.Context(), key, "x", "", "m"); !errors.Is(err, forge.ErrRefused) &&
					!errors.Is(err, forge.ErrNotFound) {
					t.Errorf("%q: %v", key, err)
				}
			}
			if err := open("lin_api_wrong").Comment(t.Context(), "APP-12", "x", "", "m"); !errors.Is(err, forge.ErrRefused) {
				t.Errorf("a wrong token: %v", err)
			}
			names := ticket.Names{Label: "ramus"}
			for label, starts := range map[string]bool{"ramus": true, "other": false, "": false} {
				h, body := s.Webhook("APP-12", label, "Title", "Text", s.Secret)
				e, err := open(s.Token).Parse(h, body, s.Secret, names)
				if err != nil || e.Starts != starts || e.Key != "APP-12" || e.Project != "APP" || e.Title != "Title" ||
					e.Text != "Text" || e.URL == "" {
					t.Errorf("%+v, %v", e, err)
				}
				if _, err := open(s.Token).Parse(h, body, "another", names); !errors.Is(err, forge.ErrSignature) {
					t.Errorf("another secret: %v", err)
				}
				if _, err := open(s.Token).Parse(h, append(body, ' '), s.Secret, names); !errors.Is(err, forge.ErrSignature) {
					t.Errorf("another body: %v", err)
				}
			}
			h, body := s.Webhook("app-12/..", "ramus", "T", "", s.Secret)
			if _, err := open(s.Token).Parse(h, body, s.Secret, names); !errors.Is(err, forge.ErrDelivery) {
				t.Errorf("a strange key: %v", err)
			}
		})
	}
}
