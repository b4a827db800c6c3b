// Package cloudtest has the machines and the faults of the stand-ins of clouds, whose packages speak the protocols.
package cloudtest

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxBody bounds the body of a request that is read, in bytes. The handlers refuse bodies beyond 1 MiB.
const maxBody = 1 << 20

// Machine is a server of a cloud.
type Machine struct {
	ID       int64
	Name     string
	Type     string
	Location string
	UserData string
	Labels   map[string]string
	Created  time.Time
	Broken   bool // it never starts
}

// Faults are the ways in which a cloud fails.
type Faults struct {
	Down bool // every request gets the status 503
	// Lose answers the next request that makes a server with 502, although the server is made.
	Lose bool
	// Full refuses to make servers, because there is no room.
	Full bool
	// Locked refuses to remove servers, where the cloud locks them.
	Locked bool
	// Broken makes servers that never start, where the cloud has such servers.
	Broken bool
	// Wrong answers with a body that is not JSON.
	Wrong bool
	// Slow is the time that each answer takes.
	Slow time.Duration
	// Limit is the number of requests that are left. Below zero there is no limit, and zero is the default of 3600.
	Limit int
}

// Cloud is a project of a cloud. Its methods are safe for concurrent use.
type Cloud struct {
	mu       sync.Mutex // guards all below
	faults   Faults
	machines []Machine
	last     int64
	requests int
}

// PerHour is the number of requests that an account has.
const PerHour = 3600

// Fail sets the faults.
func (c *Cloud) Fail(f Faults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults, c.requests = f, 0
}

// Requests returns the number of requests since the last call of Fail.
func (c *Cloud) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// Machines returns the servers, the oldest first.
func (c *Cloud) Machines() []Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.machines)
}

// Add adds a server, as a person would in the console.
func (c *Cloud) Add(name string, labels map[string]string) {
	c.Make(Machine{Name: name, Type: "cx23", Location: "nbg1", Labels: labels})
}

// Make adds a server.
func (c *Cloud) Make(m Machine) Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	m.ID, m.Created, m.Broken = c.last, time.Now().UTC().Truncate(time.Second), c.faults.Broken
	c.machines = append(c.machines, m)
	return m
}

// Remove removes the servers of a name, as a person would in the console.
func (c *Cloud) Remove(name string) {
	c.removeIf(func(m Machine) bool { return m.Name == name })
}

// RemoveID removes a server. It reports whether there was one.
func (c *Cloud) RemoveID(id int64) bool {
	return c.removeIf(func(m Machine) bool { return m.ID == id })
}

func (c *Cloud) removeIf(gone func(Machine) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.machines)
	c.machines = slices.DeleteFunc(c.machines, gone)
	return len(c.machines) < before
}

// Request counts a request, and waits as long as answers take, or until the client goes away. Returns the faults, and the
// number of requests that are left. A number below zero means that the request is refused.
func (c *Cloud) Request(r *http.Request) (f Faults, left int) {
	// The context of a request ends with its client only when its body has been read.
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.mu.Lock()
	c.requests++
	f, left = c.faults, PerHour
	if f.Limit > 0 {
		left = f.Limit - c.requests
	}
	if f.Limit < 0 {
		left = PerHour
	}
	c.mu.Unlock()
	select {
	case <-time.After(f.Slow):
	case <-r.Context().Done():
	}
	return f, left
}

// Lost reports whether the answer about a server that was made is to be lost, once.
func (c *Cloud) Lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	lose := c.faults.Lose
	c.faults.Lose = false
	return lose
}
