package hetzner_test

import (
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/nodes/hetzner"
	"github.com/ramus-dev/ramus/internal/standin/hetznertest"
	"github.com/ramus-dev/ramus/internal/standin/nodestest"
)

func TestSuite(t *testing.T) {
	nodestest.Run(t, func(t *testing.T) nodestest.Cloud {
		s := hetznertest.New("right-secret")
		t.Cleanup(s.Close)
		with := func(token string) *hetzner.Provider {
			return hetzner.New(hetzner.Options{Token: token, Endpoint: s.URL, Name: "ramus", Image: "debian-13",
				Wait: time.Millisecond})
		}
		return nodestest.Cloud{Provider: with("right-secret"), Refused: with("wrong-secret"), Standin: &s.Cloud, Size: "small",
			Location: "nbg1"}
	})
}
