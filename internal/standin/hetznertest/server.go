// Package hetznertest is an HTTP server in place of the API of Hetzner Cloud. It keeps servers with labels, refuses the
// requests that Hetzner refuses, with the same codes, and can be limited, down and wrong.
package hetznertest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/cloudtest"
)

// Server is a project of Hetzner Cloud. Its methods are safe for concurrent use.
type Server struct {
	*httptest.Server
	cloudtest.Cloud
	// Token is the only token that may do anything.
	Token string
}

// New starts a server with one token. Close ends it.
func New(token string) *Server {
	s := &Server{Token: token}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// NewAt is New at an address such as "127.0.0.1:8080".
func NewAt(address, token string) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{Token: token}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	return s, nil
}

type object = map[string]any

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	faults, left := s.Request(r)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("RateLimit-Limit", strconv.Itoa(cloudtest.PerHour))
	w.Header().Set("RateLimit-Remaining", strconv.Itoa(max(left, 0)))
	w.Header().Set("RateLimit-Reset", strconv.FormatInt(time.Now().Add(time.Second).Unix(), 10))
	path := strings.TrimPrefix(r.URL.Path, "/servers")
	switch {
	case faults.Down:
		refuse(w, 503, "unavailable", "the service is not available")
	case faults.Wrong:
		_, _ = w.Write([]byte("<html>"))
	case left < 0:
		refuse(w, 429, "rate_limit_exceeded", "limit of 3600 requests per hour reached")
	case r.Header.Get("Authorization") != "Bearer "+s.Token:
		refuse(w, 401, "unauthorized", "unable to authenticate")
	case path == r.URL.Path:
		refuse(w, 404, "not_found", "the resource was not found")
	case r.Method == http.MethodPost && path == "":
		s.create(w, r, faults.Full)
	case r.Method == http.MethodGet && path == "":
		s.list(w, r)
	case r.Method == http.MethodDelete && faults.Locked:
		refuse(w, 423, "locked", "the server is locked by another action")
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

func (s *Server) create(w http.ResponseWriter, r *http.Request, full bool) {
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
	case slices.ContainsFunc(s.Machines(), func(m cloudtest.Machine) bool { return m.Name == in.Name }):
		refuse(w, 409, "uniqueness_error", "server name is already used")
	case full:
		refuse(w, 412, "resource_unavailable", "server location is full")
	default:
		m := s.Make(cloudtest.Machine{Name: in.Name, Type: in.ServerType, Location: in.Location, UserData: in.UserData, Labels: in.Labels})
		if s.Lost() {
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

func shown(m cloudtest.Machine, status string) object {
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
	for _, m := range s.Machines() {
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
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || !s.RemoveID(n) {
		refuse(w, 404, "not_found", "server not found")
		return
	}
	reply(w, object{"action": action(n, "delete_server")})
}
