package githubtest

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Weather is a condition that affects all callers.
type Weather struct {
	// Down responds to all requests with 503.
	Down bool
	// Limited makes the API respond with 429 and this Retry-After, in whole seconds.
	Limited time.Duration
	// Slow delays all responses until the channel is closed. Nil means no delay.
	Slow <-chan struct{}
}

// Set changes the weather.
func (s *Server) Set(w Weather) {
	s.mu.Lock()
	s.state.weather = w
	s.mu.Unlock()
}

// Fault is the failure of requests. A Fault that only delays a request does not change its response.
type Fault struct {
	// Route is a route in the form of GitHub's documents ("POST /repos/{owner}/{repo}/pulls"), a method for all routes
	// of the API ("POST"), "git-upload-pack", "git-receive-pack", or "" for every request.
	Route string
	Times int // number of failures; 0 means 1, and a negative number means all until Heal
	Skip  int // requests of the route that succeed before

	// Slow holds the request until the channel is closed, before any effect.
	Slow       <-chan struct{}
	RetryAfter time.Duration // a secondary rate limit; the request has no effect
	Status     int           // this status with a page of HTML; the request has no effect
	Cut        bool          // the connection is cut; the request has no effect
	Lose       bool          // the request has its effect, then the connection is cut without a response
}

// Fail makes requests fail from now on. The faults of a route apply in order.
func (s *Server) Fail(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		if f.Times == 0 {
			f.Times = 1
		}
		s.state.faults = append(s.state.faults, &f)
	}
}

// Heal removes all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.faults = nil
}

func (f *Fault) meets(route string) bool {
	return f.Route == "" || f.Route == route || strings.HasPrefix(route, f.Route+" ")
}

// fault takes the next fault of a route. If there is none, it returns the weather's.
func (s *Server) fault(route string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	weather := Fault{Slow: s.state.weather.Slow}
	switch {
	case s.state.weather.Down:
		weather.Status = http.StatusServiceUnavailable
	case !strings.HasPrefix(route, "git-"):
		weather.RetryAfter = s.state.weather.Limited
	}
	for i, f := range s.state.faults {
		if !f.meets(route) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			return weather
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.state.faults = slices.Delete(s.state.faults, i, i+1)
			}
		}
		return *f
	}
	return weather
}

// await holds a request as its fault requires.
func (s *Server) await(r *http.Request, f *Fault) {
	if f.Slow == nil {
		return
	}
	select {
	case <-f.Slow:
	case <-r.Context().Done():
		f.Cut = true
	}
}
