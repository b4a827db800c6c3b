package hetznertest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ramus-dev/ramus/internal/standin/cloudtest"
)

// order returns a request that is good.
func order(name string) hcloud.ServerCreateOpts {
	return hcloud.ServerCreateOpts{Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
		Location: &hcloud.Location{Name: "fsn1"}, Labels: map[string]string{"ramus": "test"}}
}

// TestRefusals compares what Hetzner's own client understands of refusals with the codes that Hetzner documents.
func TestRefusals(t *testing.T) {
	for _, x := range []struct {
		name   string
		token  string
		faults cloudtest.Faults
		change func(o *hcloud.ServerCreateOpts)
		want   hcloud.ErrorCode
		text   string // of an answer that is no error of Hetzner
		made   int    // servers, with the one that is there
	}{
		{name: "token", token: "another", want: hcloud.ErrorCodeUnauthorized, made: 1},
		{name: "type", change: func(o *hcloud.ServerCreateOpts) { o.ServerType.Name = "cx99" }, want: hcloud.ErrorCodeInvalidInput, made: 1},
		{name: "location", change: func(o *hcloud.ServerCreateOpts) { o.Location.Name = "moon1" }, want: hcloud.ErrorCodeInvalidInput, made: 1},
		{name: "image", change: func(o *hcloud.ServerCreateOpts) { o.Image.Name = "windows" }, want: hcloud.ErrorCodeInvalidInput, made: 1},
		{name: "name", change: func(o *hcloud.ServerCreateOpts) { o.Name = "a_b" }, want: hcloud.ErrorCodeInvalidInput, made: 1},
		{name: "user data", change: func(o *hcloud.ServerCreateOpts) { o.UserData = strings.Repeat("x", 32<<10+1) },
			want: hcloud.ErrorCodeInvalidInput, made: 1},
		{name: "name in use", change: func(o *hcloud.ServerCreateOpts) { o.Name = "there" }, want: hcloud.ErrorCodeUniquenessError, made: 1},
		{name: "full", faults: cloudtest.Faults{Full: true}, want: hcloud.ErrorCodeResourceUnavailable, made: 1},
		{name: "down", faults: cloudtest.Faults{Down: true}, want: "unavailable", made: 1},
		{name: "wrong", faults: cloudtest.Faults{Wrong: true}, text: "invalid character", made: 1},
		{name: "lost answer", faults: cloudtest.Faults{Lose: true}, want: "timeout", made: 2},
		{name: "none", made: 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := New("right")
			defer s.Close()
			s.Add("there", nil)
			s.Fail(x.faults)
			token := "right"
			if x.token != "" {
				token = x.token
			}
			o := order("new")
			if x.change != nil {
				x.change(&o)
			}
			made, _, err := client(s, token).Server.Create(t.Context(), o)
			switch {
			case x.want != "" && !hcloud.IsError(err, x.want):
				t.Errorf("error %v, want the code %s", err, x.want)
			case x.text != "" && (err == nil || !strings.Contains(err.Error(), x.text)):
				t.Errorf("error %v, want %q", err, x.text)
			case x.want == "" && x.text == "" && (err != nil || made.Server.Name != "new" || made.Server.Status != hcloud.ServerStatusInitializing):
				t.Errorf("made %+v, %v", made.Server, err)
			}
			if got := len(s.Machines()); got != x.made {
				t.Errorf("%d servers, want %d", got, x.made)
			}
		})
	}
}

func client(s *Server, token string) *hcloud.Client {
	return hcloud.NewClient(hcloud.WithEndpoint(s.URL), hcloud.WithToken(token), hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}))
}

// TestLimit compares the headers of the limit, and the refusal above it.
func TestLimit(t *testing.T) {
	s := New("right")
	defer s.Close()
	s.Fail(cloudtest.Faults{Limit: 1})
	c := client(s, "right")
	_, resp, err := c.Server.List(t.Context(), hcloud.ServerListOpts{})
	if err != nil || resp.Meta.Ratelimit.Limit != cloudtest.PerHour || resp.Meta.Ratelimit.Reset.Before(time.Now()) {
		t.Errorf("limit %+v, %v", resp.Meta.Ratelimit, err)
	}
	for range 3 {
		_, resp, err = c.Server.List(t.Context(), hcloud.ServerListOpts{})
	}
	if !hcloud.IsError(err, hcloud.ErrorCodeRateLimitExceeded) || resp.Meta.Ratelimit.Remaining != 0 {
		t.Errorf("above the limit: %v, %+v", err, resp)
	}
}

// TestSlow has a client give up before a slow answer, and a deletion that is locked.
func TestSlow(t *testing.T) {
	s := New("right")
	defer s.Close()
	s.Fail(cloudtest.Faults{Slow: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := client(s, "right").Server.Create(ctx, order("new")); ctx.Err() == nil || err == nil {
		t.Errorf("a slow answer: %v", err)
	}
	s.Fail(cloudtest.Faults{Locked: true})
	s.Add("there", nil)
	there := &hcloud.Server{ID: s.Machines()[len(s.Machines())-1].ID}
	if _, _, err := client(s, "right").Server.DeleteWithResult(t.Context(), there); !hcloud.IsError(err, hcloud.ErrorCodeLocked) {
		t.Errorf("a locked server: %v", err)
	}
	s.Fail(cloudtest.Faults{})
	for _, want := range []hcloud.ErrorCode{"", hcloud.ErrorCodeNotFound} {
		if _, _, err := client(s, "right").Server.DeleteWithResult(t.Context(), there); (want == "") != (err == nil) || want != "" && !hcloud.IsError(err, want) {
			t.Errorf("a deletion: %v, want %q", err, want)
		}
	}
}
