package slacktest

import (
	"slices"
	"time"
)

// Fault is the failure of requests. A Fault that only delays a request does not change its response.
type Fault struct {
	Method string // of the Web API, or a path; "" means every one
	Times  int    // number of failures; 0 means 1, and a negative number means all until Heal
	Skip   int    // requests of the method that succeed before

	Delay      time.Duration // before any effect
	RetryAfter time.Duration // 429; the request has no effect
	Status     int           // this status with a page of HTML; the request has no effect
	Error      string        // ok:false with this code; the request has no effect
	Cut        bool          // the connection is cut; the request has no effect
	Lose       bool          // the request has its effect, then the connection is cut without a response
}

// Fail makes requests fail from now on. The faults of a method apply in order.
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

// fault takes the next fault of a method. It returns the zero value if there is none.
func (s *Server) fault(method string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.state.faults {
		if f.Method != "" && f.Method != method {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			return Fault{}
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.state.faults = slices.Delete(s.state.faults, i, i+1)
			}
		}
		return *f
	}
	return Fault{}
}

// Limit limits a method to so many requests per minute. Further ones get 429 with the seconds until the next permitted
// one. 0 removes the limit.
func (s *Server) Limit(method string, perMinute int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.limits[method] = perMinute
}

// LimitPosts limits chat.postMessage to one per second in each channel, as Slack does.
func (s *Server) LimitPosts(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.onePerSec = on
}

// overBudget counts a request. It returns the time to wait if a limit is exceeded.
func (s *Server) overBudget(q *Request) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if limit := s.state.limits[q.Method]; limit > 0 {
		recent := slices.DeleteFunc(s.state.counted[q.Method], func(at time.Time) bool { return now.Sub(at) >= time.Minute })
		if len(recent) >= limit {
			s.state.counted[q.Method] = recent
			return max(recent[0].Add(time.Minute).Sub(now), time.Second)
		}
		s.state.counted[q.Method] = append(recent, now)
	}
	if s.state.onePerSec && q.Method == "chat.postMessage" {
		channel := q.Form.Get("channel")
		if last, posted := s.state.lastPost[channel]; posted && now.Sub(last) < time.Second {
			return time.Second
		}
		s.state.lastPost[channel] = now
	}
	return 0
}
