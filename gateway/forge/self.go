package forge

import "sync"

// Self remembers the name of the author of the posts of ramus. The zero value knows none. Methods are safe for concurrent
// use.
type Self struct {
	mu   sync.Mutex
	name string
}

// Get returns the name, and calls ask until it has succeeded once.
func (s *Self) Get(ask func() (string, error)) (string, error) {
	s.mu.Lock()
	name := s.name
	s.mu.Unlock()
	if name != "" {
		return name, nil
	}
	name, err := ask()
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.name = name
	s.mu.Unlock()
	return name, nil
}
