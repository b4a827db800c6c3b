package githubtest

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Weather is what all callers have to cope with.
type Weather struct {
	// Down: everything is answered 503.
	Down bool
	// Limited: the API answers 429 with this Retry-After, in whole seconds.
	Limited time.Duration
	// Slow holds every answer until it is closed; nil: none.
	Slow <-chan struct{}
}

// Set changes the weather.
func (s *Server) Set(w Weather) {
	s.mu.Lock()
	s.state.weather = w
	s.mu.Unlock()
}

// Fault is how requests fail. One that does nothing but delay is answered as ever.
type Fault struct {
	// Route is "POST /repos/{owner}/{repo}/pulls" and so on, as in GitHub's
	// documents; or "POST" and the other methods, for all routes of the API; or
	// "git-upload-pack" or "git-receive-pack"; or "" for every request.
	Route string
	Times int // how often; 0 is once, below 0 until Heal
	Skip  int // requests of the route that go well before

	// Slow holds the request until it is closed, before anything is done.
	Slow       <-chan struct{}
	RetryAfter time.Duration // a secondary rate limit, and nothing is done
	Status     int           // this status with a page of HTML, and nothing is done
	Cut        bool          // the connection is cut, and nothing is done
	Lose       bool          // it is done, then the connection is cut without an answer
}

// Fail makes requests fail from now on. Several faults of a route count one after another.
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

// Heal forgets all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.faults = nil
}

func (f *Fault) meets(route string) bool {
	return f.Route == "" || f.Route == route || strings.HasPrefix(route, f.Route+" ")
}

// fault takes the next fault of a route; where there is none, the weather's.
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

// await holds a request as its fault says.
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
