// Package nodestest is the conformance suite of clouds.
package nodestest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/internal/standin/cloudtest"
)

// Cloud is a provider over a stand-in. Its server is called "ramus".
type Cloud struct {
	nodes.Provider
	Standin *cloudtest.Cloud
	// Refused is a provider with a wrong token.
	Refused nodes.Provider
	// Size and Location can be ordered.
	Size, Location string
	// Breaks means that the cloud makes machines that never start, instead of refusing them.
	Breaks bool
}

// Run tests a provider. open starts a stand-in, which ends with the test.
func Run(t *testing.T, open func(t *testing.T) Cloud) {
	order := func(c Cloud, node string) nodes.Order {
		return nodes.Order{Node: node, Size: c.Size, Location: c.Location, UserData: "#cloud-config\nö: \"$x\"\n"}
	}
	machines := func(t *testing.T, c Cloud, want int) {
		t.Helper()
		if got := c.Standin.Machines(); len(got) != want {
			t.Fatalf("%d machines, want %d: %+v", len(got), want, got)
		}
	}

	t.Run("Life", func(t *testing.T) {
		c := open(t)
		m, err := c.Create(t.Context(), order(c, "node-a"))
		if err != nil || m.ID == "" || m.Node != "node-a" || m.Name != "ramus-node-a" {
			t.Fatal(m, err)
		}
		again, err := c.Create(t.Context(), order(c, "node-a"))
		if err != nil || again.ID != m.ID {
			t.Error("a second order of the same node:", again, err)
		}
		machines(t, c, 1)
		if got := c.Standin.Machines()[0]; got.UserData != order(c, "").UserData || got.Location != c.Location {
			t.Errorf("machine %+v", got)
		}
		if _, err := c.Create(t.Context(), order(c, "node-b")); err != nil {
			t.Fatal(err)
		}
		all, err := c.List(t.Context())
		if err != nil || len(all) != 2 || all[0].Address == "" || all[0].Created.IsZero() || all[0].ID != m.ID {
			t.Errorf("machines %+v, error %v", all, err)
		}
		for range 2 {
			if err := c.Delete(t.Context(), "node-a"); err != nil {
				t.Error(err)
			}
		}
		machines(t, c, 1)
	})

	t.Run("Check", func(t *testing.T) {
		c := open(t)
		if err := c.Check(c.Size, c.Location); err != nil {
			t.Error(err)
		}
		if err := c.Check("huge", c.Location); err == nil || !strings.Contains(err.Error(), c.Size) {
			t.Errorf("a wrong size: %v", err)
		}
		if err := c.Check(c.Size, "moon"); err == nil || !strings.Contains(err.Error(), c.Location) {
			t.Errorf("a wrong location: %v", err)
		}
		if c.Standin.Requests() != 0 {
			t.Error("the cloud was asked")
		}
	})

	t.Run("LostAnswer", func(t *testing.T) {
		c := open(t)
		c.Standin.Fail(cloudtest.Faults{Lose: true})
		m, err := c.Create(t.Context(), order(c, "node-a"))
		if err != nil || m.Node != "node-a" {
			t.Error(m, err)
		}
		machines(t, c, 1)
	})

	t.Run("Fails", func(t *testing.T) {
		for name, f := range map[string]cloudtest.Faults{"down": {Down: true}, "full": {Full: true}, "wrong": {Wrong: true},
			"limited": {Limit: 1}} {
			c := open(t)
			_, _ = c.List(t.Context()) // signs in, and is one request of a limit of one
			c.Standin.Fail(f)
			if name == "limited" {
				_, _ = c.List(t.Context())
			}
			if m, err := c.Create(t.Context(), order(c, "node-a")); err == nil {
				t.Errorf("%s: made %+v", name, m)
			}
			if name != "full" {
				if _, err := c.List(t.Context()); err == nil {
					t.Errorf("%s: listed", name)
				}
				if err := c.Delete(t.Context(), "node-a"); err == nil {
					t.Errorf("%s: removed", name)
				}
			}
			c.Standin.Fail(cloudtest.Faults{})
			machines(t, c, 0)
			if _, err := c.Create(t.Context(), order(c, "node-a")); err != nil {
				t.Errorf("after %s: %v", name, err)
			}
		}
	})

	t.Run("Slow", func(t *testing.T) {
		c := open(t)
		c.Standin.Fail(cloudtest.Faults{Slow: 300 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := c.Create(ctx, order(c, "node-a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})

	t.Run("Refused", func(t *testing.T) {
		c := open(t)
		_, err := c.Refused.Create(t.Context(), order(c, "node-a"))
		if err == nil || strings.Contains(err.Error(), "wrong-secret") {
			t.Errorf("error %v", err)
		}
		machines(t, c, 0)
	})

	t.Run("Broken", func(t *testing.T) {
		c := open(t)
		if !c.Breaks {
			return
		}
		c.Standin.Fail(cloudtest.Faults{Broken: true})
		if _, err := c.Create(t.Context(), order(c, "node-a")); err != nil {
			t.Fatal(err)
		}
		all, err := c.List(t.Context())
		if err != nil || len(all) != 1 || all[0].Problem == "" {
			t.Errorf("machines %+v, error %v", all, err)
		}
	})

	t.Run("Pages", func(t *testing.T) {
		c := open(t)
		for i := range 120 {
			c.Standin.Add(fmt.Sprintf("ramus-%d", i), map[string]string{"ramus-server": "ramus"})
		}
		c.Standin.Add("ramus-two", map[string]string{"ramus-server": "another"})
		c.Standin.Add("ramus-three", nil)
		if all, err := c.List(t.Context()); err != nil || len(all) != 120 {
			t.Errorf("%d machines, error %v", len(all), err)
		}
	})
}
