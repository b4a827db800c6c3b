// Package hetznertest is an HTTP server in place of the API of Hetzner Cloud. It keeps servers with labels, refuses the
// requests that Hetzner refuses, with the same codes, and can be limited, down and wrong.
package hetznertest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Machine is a server of the cloud.
type Machine struct {
	ID       int64
	Name     string
	Type     string
	Location string
	UserData string
	Labels   map[string]string
	Created  time.Time
}

// Faults are the ways in which the cloud fails.
type Faults struct {
	Down bool // every request gets the status 503
	// Lose answers the next request that makes a server with 502, although the server is made.
	Lose bool
	// Full refuses to make servers, because the location has no room.
	Full bool
	// Wrong answers with a body that is not JSON.
	Wrong bool
	// Limit is the number of requests that are left. Below zero there is no limit, and zero is the default of 3600.
	Limit int
}

// Server is a project of Hetzner Cloud. Its methods are safe for concurrent use.
type Server struct {
	*httptest.Server
	// Token is the only token that may do anything.
	Token string

	mu       sync.Mutex // guards all below
	faults   Faults
	machines []Machine
	last     int64
	requests int
}

const perHour = 3600

// New starts a server with one token. Close ends it.
func New(token string) *Server {
	s := &Server{Token: token}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// Fail sets the faults.
func (s *Server) Fail(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.requests = f, 0
}

// Requests returns the number of requests since the last call of Fail.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Machines returns the servers, the oldest first.
func (s *Server) Machines() []Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.machines)
}

// Add adds a server, as a person would in the console.
func (s *Server) Add(name string, labels map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(Machine{Name: name, Type: "cx23", Location: "nbg1", Labels: labels})
}

// Remove removes the server of a name, as a person would in the console.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machines = slices.DeleteFunc(s.machines, func(m Machine) bool { return m.Name == name })
}

func (s *Server) add(m Machine) Machine {
	s.last++
	m.ID, m.Created = s.last, time.Now().UTC().Truncate(time.Second)
	s.machines = append(s.machines, m)
	return m
}

type object = map[string]any

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	w.Header().Set("Content-Type", "application/json")
	left := cmp.Or(s.faults.Limit, perHour)
	w.Header().Set("RateLimit-Limit", strconv.Itoa(perHour))
	w.Header().Set("RateLimit-Remaining", strconv.Itoa(max(left-s.requests, 0)))
	w.Header().Set("RateLimit-Reset", strconv.FormatInt(time.Now().Add(time.Second).Unix(), 10))
	path := strings.TrimPrefix(r.URL.Path, "/servers")
	switch {
	case s.faults.Down:
		refuse(w, 503, "unavailable", "the service is not available")
	case s.faults.Wrong:
		_, _ = w.Write([]byte("<html>"))
	case left > 0 && s.requests > left:
		refuse(w, 429, "rate_limit_exceeded", "limit of 3600 requests per hour reached")
	case r.Header.Get("Authorization") != "Bearer "+s.Token:
		refuse(w, 401, "unauthorized", "unable to authenticate")
	case path == r.URL.Path:
		refuse(w, 404, "not_found", "the resource was not found")
	case r.Method == http.MethodPost && path == "":
		s.create(w, r)
	case r.Method == http.MethodGet && path == "":
		s.list(w, r)
	case r.Method == http.MethodDelete:
		s.remove(w, strings.TrimPrefix(path, "/"))
	default:
		refuse(w, 405, "method_not_allowed", "method not allowed")
	}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	reply(w, object{"error": object{"code": code, "message": message, "details": nil}})
}

func reply(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name       string            `json:"name"`
		ServerType string            `json:"server_type"`
		Image      string            `json:"image"`
		Location   string            `json:"location"`
		UserData   string            `json:"user_data"`
		Labels     map[string]string `json:"labels"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		refuse(w, 400, "json_error", "invalid JSON")
		return
	}
	switch {
	case !slices.Contains([]string{"cx23", "cx33", "cx43"}, in.ServerType):
		refuse(w, 422, "invalid_input", "server type "+in.ServerType+" not found")
	case !slices.Contains([]string{"nbg1", "fsn1", "hel1"}, in.Location):
		refuse(w, 422, "invalid_input", "location "+in.Location+" not found")
	case !slices.Contains([]string{"debian-12", "debian-13"}, in.Image):
		refuse(w, 422, "invalid_input", "image not found")
	case len(in.UserData) > 32<<10:
		refuse(w, 422, "invalid_input", "user_data is longer than 32 KiB")
	case in.Name == "" || strings.ContainsAny(in.Name, "_ /"):
		refuse(w, 422, "invalid_input", "invalid name")
	case slices.ContainsFunc(s.machines, func(m Machine) bool { return m.Name == in.Name }):
		refuse(w, 409, "uniqueness_error", "server name is already used")
	case s.faults.Full:
		refuse(w, 412, "resource_unavailable", "server location is full")
	default:
		m := s.add(Machine{Name: in.Name, Type: in.ServerType, Location: in.Location, UserData: in.UserData, Labels: in.Labels})
		if s.faults.Lose {
			s.faults.Lose = false
			refuse(w, 502, "timeout", "the gateway had no answer")
			return
		}
		w.WriteHeader(201)
		reply(w, object{"server": shown(m, "initializing"), "action": action(m.ID, "create_server"), "next_actions": []object{},
			"root_password": nil})
	}
}

func action(server int64, command string) object {
	return object{"id": server, "command": command, "status": "running", "progress": 0,
		"started": time.Now().UTC().Format(time.RFC3339), "finished": nil, "error": nil,
		"resources": []object{{"id": server, "type": "server"}}}
}

func shown(m Machine, status string) object {
	return object{"id": m.ID, "name": m.Name, "status": status, "created": m.Created.Format(time.RFC3339), "labels": m.Labels,
		"public_net": object{"ipv4": object{"id": m.ID, "ip": fmt.Sprintf("192.0.2.%d", m.ID%256), "blocked": false},
			"floating_ips": []int{}},
		"server_type": object{"id": 1, "name": m.Type}, "location": object{"id": 1, "name": m.Location}}
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	page, per := max(number(q.Get("page")), 1), number(q.Get("per_page"))
	if per == 0 {
		per = 25
	}
	if per > 50 {
		refuse(w, 400, "invalid_input", "per_page is at most 50")
		return
	}
	var found []object
	for _, m := range s.machines {
		if matches(m.Labels, q.Get("label_selector")) && (q.Get("name") == "" || q.Get("name") == m.Name) {
			found = append(found, shown(m, "running"))
		}
	}
	total := len(found)
	last := max((total+per-1)/per, 1)
	some := append([]object{}, found[min((page-1)*per, total):min(page*per, total)]...)
	var next any
	if page < last {
		next = page + 1
	}
	reply(w, object{"servers": some, "meta": object{"pagination": object{"page": page, "per_page": per, "previous_page": nil,
		"next_page": next, "last_page": last, "total_entries": total}}})
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// matches reports whether labels match a selector of the form "a=b,c=d".
func matches(labels map[string]string, selector string) bool {
	for part := range strings.SplitSeq(selector, ",") {
		key, value, ok := strings.Cut(part, "=")
		if got, has := labels[key]; ok && (!has || got != value) {
			return false
		}
	}
	return true
}

func (s *Server) remove(w http.ResponseWriter, id string) {
	at := slices.IndexFunc(s.machines, func(m Machine) bool { return strconv.FormatInt(m.ID, 10) == id })
	if at < 0 {
		refuse(w, 404, "not_found", "server not found")
		return
	}
	m := s.machines[at]
	s.machines = slices.Delete(s.machines, at, at+1)
	reply(w, object{"action": action(m.ID, "delete_server")})
}
