package slacktest

import (
	"slices"
	"time"
)

// Fault is how requests fail. One that does nothing but delay is answered as ever.
type Fault struct {
	Method string // of the Web API, or a path; "" for every one
	Times  int    // how often; 0 is once, below 0 until Heal
	Skip   int    // requests of the method that go well before

	Delay      time.Duration // before anything is done
	RetryAfter time.Duration // 429, and nothing is done
	Status     int           // this status with a page of HTML, and nothing is done
	Error      string        // ok:false with this code, and nothing is done
	Cut        bool          // the connection is cut, and nothing is done
	Lose       bool          // it is done, then the connection is cut without an answer
}

// Fail makes requests fail from now on. Several faults of a method count one after another.
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

// fault takes the next fault of a method; the zero value when there is none.
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

// Limit allows a method so many requests a minute; beyond it the answer is 429
// with the seconds until the next one is allowed. 0 takes the limit away.
func (s *Server) Limit(method string, perMinute int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.limits[method] = perMinute
}

// LimitPosts allows one chat.postMessage a second in each channel, as Slack does.
func (s *Server) LimitPosts(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.onePerSec = on
}

// overBudget counts a request; the time to wait when it is one too many.
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
