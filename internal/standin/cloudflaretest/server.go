// Package cloudflaretest is an HTTP server in place of the part of Cloudflare's API that is about the records of a zone.
// It keeps records, refuses those that Cloudflare refuses, and can be slow, limited and down.
package cloudflaretest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Record is a record of DNS.
type Record struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Name    string `json:"name"` // in full
	Content string `json:"content"`
	TTL     int    `json:"ttl"`
	Proxied bool   `json:"proxied"`
}

// Faults are the ways in which Cloudflare fails.
type Faults struct {
	Down    bool          // every request gets the status 503
	Limited bool          // every request gets the status 429
	Lose    bool          // the next answer to a change is lost, although it was made
	Slow    time.Duration // the time that each answer takes
}

// Server is an account with one zone. Its methods are safe for concurrent use.
type Server struct {
	*httptest.Server
	// Token is the only token that may edit, and Zone the name of the zone.
	Token, Zone string

	mu      sync.Mutex // guards all below
	faults  Faults
	records []Record
	last    int
}

// New starts a server. Close ends it.
func New(token, zone string) *Server {
	s := &Server{Token: token, Zone: zone}
	const of = "/client/v4/zones/zone-1/dns_records"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /client/v4/zones", s.zones)
	mux.HandleFunc("GET "+of, s.list)
	mux.HandleFunc("POST "+of, s.create)
	mux.HandleFunc("PATCH "+of+"/{id}", s.update)
	mux.HandleFunc("DELETE "+of+"/{id}", s.remove)
	s.Server = httptest.NewServer(s.allowed(mux))
	return s
}

// Fail sets the faults.
func (s *Server) Fail(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Records returns the records, as "NAME TYPE CONTENT", sorted.
func (s *Server) Records() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, r := range s.records {
		all = append(all, r.Name+" "+r.Type+" "+r.Content)
	}
	slices.Sort(all)
	return all
}

// Add adds a record, as a person would on the dashboard.
func (s *Server) Add(r Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(r)
}

func (s *Server) add(r Record) Record {
	s.last++
	r.ID = fmt.Sprintf("record-%d", s.last)
	s.records = append(s.records, r)
	return r
}

type object = map[string]any

func (s *Server) allowed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		time.Sleep(s.faults.Slow)
		switch {
		case s.faults.Down:
			refuse(w, 503, 10000, "service unavailable")
		case s.faults.Limited:
			w.Header().Set("Retry-After", "300")
			refuse(w, 429, 10429, "More than 1200 requests per 300 seconds reached. Please wait and consider throttling your request speed")
		case r.Header.Get("Authorization") != "Bearer "+s.Token:
			refuse(w, 403, 9109, "Invalid access token")
		default:
			if s.faults.Lose && r.Method != http.MethodGet {
				s.faults.Lose = false
				next.ServeHTTP(httptest.NewRecorder(), r)
				refuse(w, 502, 0, "bad gateway")
				return
			}
			next.ServeHTTP(w, r)
		}
	})
}

func refuse(w http.ResponseWriter, status, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object{"success": false, "errors": []object{{"code": code, "message": message}},
		"messages": []object{}, "result": nil})
}

func reply(w http.ResponseWriter, result any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object{"success": true, "errors": []object{}, "messages": []object{}, "result": result})
}

func (s *Server) zones(w http.ResponseWriter, r *http.Request) {
	list := []object{}
	if name := strings.TrimSuffix(r.URL.Query().Get("name"), "."); name == "" || name == s.Zone {
		list = append(list, object{"id": "zone-1", "name": s.Zone, "status": "active"})
	}
	reply(w, list)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	list := []Record{}
	for _, x := range s.records {
		if (q.Get("type") == "" || q.Get("type") == x.Type) && (q.Get("name") == "" || q.Get("name") == x.Name) &&
			(q.Get("content.exact") == "" || q.Get("content.exact") == x.Content) {
			list = append(list, x)
		}
	}
	reply(w, list)
}

// read reads a record. Returns false if it was refused.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (in Record, ok bool) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		refuse(w, 400, 9207, "Request body is invalid.")
		return in, false
	}
	addr, err := netip.ParseAddr(in.Content)
	switch {
	case !strings.HasSuffix(in.Name, "."+s.Zone) && in.Name != s.Zone:
		in.Name += "." + s.Zone
	case in.TTL != 1 && (in.TTL < 60 || in.TTL > 86400):
		refuse(w, 400, 9021, "Invalid TTL. Must be between 60 and 86,400 seconds, or 1 for Automatic.")
		return in, false
	}
	if in.Type == "A" && (err != nil || !addr.Is4()) || in.Type == "AAAA" && (err != nil || !addr.Is6()) {
		refuse(w, 400, 9005, "Content for A record must be a valid IPv4 address.")
		return in, false
	}
	return in, true
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	in, ok := s.read(w, r)
	if !ok {
		return
	}
	if slices.ContainsFunc(s.records, func(x Record) bool { return x.Name == in.Name && x.Type == in.Type && x.Content == in.Content }) {
		refuse(w, 400, 81058, "An identical record already exists.")
		return
	}
	reply(w, s.add(in))
}

func (s *Server) at(w http.ResponseWriter, r *http.Request) int {
	i := slices.IndexFunc(s.records, func(x Record) bool { return x.ID == r.PathValue("id") })
	if i < 0 {
		refuse(w, 404, 81044, "Record does not exist.")
	}
	return i
}

func (s *Server) update(w http.ResponseWriter, r *http.Request) {
	i := s.at(w, r)
	if i < 0 {
		return
	}
	if in, ok := s.read(w, r); ok {
		in.ID = s.records[i].ID
		s.records[i] = in
		reply(w, in)
	}
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	if i := s.at(w, r); i >= 0 {
		id := s.records[i].ID
		s.records = slices.Delete(s.records, i, i+1)
		reply(w, object{"id": id})
	}
}
