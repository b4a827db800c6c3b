package bitbucket_test

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/bitbucket"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/forgetest"
	"github.com/ramus-dev/ramus/internal/standin/bitbuckettest"
	"github.com/ramus-dev/ramus/internal/standin/forgeworld"
)

// TestConformance runs the suite of forges, with both kinds of tokens.
func TestConformance(t *testing.T) {
	for name, user := range map[string]string{"access token": "", "API token": "ramus@example.org"} {
		t.Run(name, func(t *testing.T) {
			forgetest.Run(t, func(t *testing.T) forgetest.World {
				h := bitbuckettest.New(t)
				return forgeworld.New(t, h, func(token string, rt http.RoundTripper) forge.Forge {
					return &bitbucket.Client{URL: h.URL() + "/2.0", User: user, Token: token,
						HTTP: &http.Client{Transport: rt}, Log: slog.New(slog.DiscardHandler),
						Now: time.Now, Sleep: forgetest.Sleep}
				}, bitbucket.ParseDelivery)
			})
		})
	}
}
