// Package vaulttest is an HTTP server in place of Vault. It speaks the part of Vault's API that reads secrets of the
// key-value store, version 2, and refuses requests that Vault refuses.
package vaulttest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// Server is a Vault with secrets. Its methods are safe for concurrent use.
type Server struct {
	*httptest.Server
	// Token is the only token that may read.
	Token string

	mu      sync.Mutex // guards all below
	secrets map[string]map[string]any
	deleted map[string]bool
	reads   int
	sealed  bool
}

// New starts a server. Close ends it.
func New(token string) *Server {
	s := &Server{Token: token, secrets: make(map[string]map[string]any), deleted: make(map[string]bool)}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// Put stores a secret at MOUNT/PATH.
func (s *Server) Put(path string, fields map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets[path], s.deleted[path] = fields, false
}

// Delete deletes the newest version of a secret, whose metadata stays.
func (s *Server) Delete(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted[path] = true
}

// Seal makes every request fail until it is called with false.
func (s *Server) Seal(sealed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = sealed
}

// Reads returns how many secrets were read.
func (s *Server) Reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refuse := func(status int, errors ...string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if errors == nil {
			errors = []string{}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"errors": errors})
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	mount, name, isData := strings.Cut(rest, "/data/")
	switch {
	case s.sealed:
		refuse(http.StatusServiceUnavailable, "Vault is sealed")
	case !ok || strings.Contains(r.URL.Path, "//"):
		refuse(http.StatusNotFound)
	case r.Header.Get("X-Vault-Token") != s.Token:
		refuse(http.StatusForbidden, "permission denied")
	case !isData:
		refuse(http.StatusNotFound, "no handler for route \""+rest+"\". route entry not found.")
	case r.Method != http.MethodGet:
		refuse(http.StatusMethodNotAllowed, "unsupported operation")
	default:
		fields, there := s.secrets[mount+"/"+name]
		if !there {
			refuse(http.StatusNotFound)
			return
		}
		s.reads++
		data := map[string]any{"data": fields, "metadata": map[string]any{"version": 1}}
		if s.deleted[mount+"/"+name] {
			data["data"] = nil
			w.WriteHeader(http.StatusNotFound)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"request_id": "1", "data": data})
	}
}
