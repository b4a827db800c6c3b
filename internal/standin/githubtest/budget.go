package githubtest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// budget is the usage of one user or installation.
type budget struct {
	used  int
	reset time.Time   // when the hour ends
	posts []time.Time // of the last minute
	quiet time.Time   // requests are refused until then, after a secondary limit
}

// budget returns the budget of the requester. s.mu is held.
func (c *call) budget() *budget {
	name := "the App"
	if c.who != nil {
		name = c.who.user.login
	}
	b := c.s.state.budgets[name]
	if b == nil {
		b = &budget{}
		c.s.state.budgets[name] = b
	}
	if now := c.s.Now(); !now.Before(b.reset) {
		b.used, b.reset = 0, now.Add(time.Hour)
	}
	return b
}

// spend counts a request against the limits. It returns a response if a limit is exceeded.
// https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
func (c *call) spend(rt *route) *answer {
	s, b, now := c.s, c.budget(), c.s.Now()
	if now.Before(b.quiet) {
		s.complain("%s came %v before the end of the Retry-After", rt.name, b.quiet.Sub(now).Round(time.Millisecond))
		a := c.limited(b.quiet.Sub(now))
		return &a
	}
	if s.Hourly > 0 {
		if b.used >= s.Hourly {
			if b.used > s.Hourly+10 {
				s.complain("%s, though the hour's requests are used up", rt.name)
			}
			b.used++
			a := (&refusal{status: http.StatusForbidden, message: "API rate limit exceeded for " + rt.name,
				docs: "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api"}).answer()
			a.header = http.Header{}
			c.tell(b, a.header)
			return &a
		}
		b.used++
	}
	if c.header == nil {
		c.header = http.Header{}
	}
	c.tell(b, c.header)
	if s.PostsPerMinute > 0 && c.r.Method == http.MethodPost && rt.access != signed {
		b.posts = slices.DeleteFunc(b.posts, func(at time.Time) bool { return now.Sub(at) >= time.Minute })
		if len(b.posts) >= s.PostsPerMinute {
			a := c.limited(b.posts[0].Add(time.Minute).Sub(now))
			return &a
		}
		b.posts = append(b.posts, now)
	}
	return nil
}

// tell sets the headers with the remaining budget.
func (c *call) tell(b *budget, h http.Header) {
	most := max(c.s.Hourly, 0)
	h.Set("X-Ratelimit-Limit", strconv.Itoa(most))
	h.Set("X-Ratelimit-Remaining", strconv.Itoa(max(most-b.used, 0)))
	h.Set("X-Ratelimit-Used", strconv.Itoa(b.used))
	h.Set("X-Ratelimit-Reset", strconv.FormatInt(b.reset.Unix(), 10))
	h.Set("X-Ratelimit-Resource", "core")
	if c.s.Hourly < 0 {
		h.Set("X-Ratelimit-Limit", "1000000")
		h.Set("X-Ratelimit-Remaining", "1000000")
	}
}

// refund takes a request off the budget.
func (c *call) refund(h http.Header) {
	b := c.budget()
	b.used = max(b.used-1, 0)
	c.tell(b, h)
}

// secondary is a secondary limit caused by a fault.
func (c *call) secondary(after time.Duration) answer {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.weather.Limited > 0 {
		a := tooMuch(http.StatusTooManyRequests, after)
		return a
	}
	if c.who = s.actor(credential(c.r)); c.who == nil {
		return tooMuch(http.StatusForbidden, after)
	}
	return c.limited(after)
}

// limited is a secondary limit. The requester must make no request for a while.
func (c *call) limited(after time.Duration) answer {
	seconds := max((after+time.Second-1)/time.Second, 1)
	c.budget().quiet = c.s.Now().Add(seconds * time.Second)
	return tooMuch(http.StatusForbidden, seconds*time.Second)
}

func tooMuch(status int, after time.Duration) answer {
	a := (&refusal{status: status,
		message: "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
		docs:    "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}).answer()
	a.header = http.Header{"Retry-After": {fmt.Sprint(int(after / time.Second))}}
	return a
}

// rateLimit is GET /rate_limit, which is not counted.
func (c *call) rateLimit() answer {
	b := c.budget()
	b.used = max(b.used-1, 0)
	o := object{"limit": c.s.Hourly, "used": b.used, "remaining": max(c.s.Hourly-b.used, 0), "reset": b.reset.Unix()}
	return ok(object{"resources": object{"core": o}, "rate": o})
}
