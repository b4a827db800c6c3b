package gitea_test

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/forgetest"
	"github.com/ramus-dev/ramus/gateway/gitea"
	"github.com/ramus-dev/ramus/internal/standin/forgeworld"
	"github.com/ramus-dev/ramus/internal/standin/giteatest"
)

// TestConformance runs the suite of forges.
func TestConformance(t *testing.T) {
	forgetest.Run(t, func(t *testing.T) forgetest.World {
		h := giteatest.New(t)
		return forgeworld.New(t, h, func(token string,
			rt http.RoundTripper) forge.Forge {
			return client(h.URL(), token, rt)
		}, gitea.ParseDelivery)
	})
}

func client(url, token string, rt http.RoundTripper) *gitea.Client {
	return &gitea.Client{URL: url, Token: token, HTTP: &http.Client{Transport: rt}, Log: slog.New(slog.DiscardHandler),
		Now: time.Now, Sleep: forgetest.Sleep}
}
