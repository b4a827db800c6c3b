// Package leasetest is an HTTPS server in place of the API server of a Kubernetes cluster. It serves Leases of
// coordination.k8s.io/v1, with versions and watches, and refuses requests that the API server refuses.
package leasetest

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server has the leases of all namespaces. Its methods are safe for concurrent use.
type Server struct {
	*httptest.Server
	// Token is the only token that is let in.
	Token string

	mu       sync.Mutex        // guards the fields below
	leases   map[string]object // by NAMESPACE/NAME
	version  int
	watchers map[chan change]string // the namespace
	down     func(r *http.Request) bool
	after    func(r *http.Request)
	requests map[string]int // by method
}

type object = map[string]any

type change struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

// New starts a server at a free address. Close ends it.
func New() *Server {
	s := &Server{Token: rand.Text(), leases: map[string]object{}, version: 1, watchers: map[chan change]string{},
		requests: map[string]int{}}
	s.Server = httptest.NewTLSServer(s)
	return s
}

// NewAt starts a server at an address.
func NewAt(addr string) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := New()
	s.Server.Close()
	s.Server = httptest.NewUnstartedServer(s)
	s.Server.Listener.Close()
	s.Server.Listener = l
	s.Server.StartTLS()
	return s, nil
}

// Close ends all watches and the server.
func (s *Server) Close() {
	s.EndWatches()
	s.CloseClientConnections()
	s.Server.Close()
}

// Refuse has requests fail without an answer for which down returns true. Nil lets all in.
func (s *Server) Refuse(down func(r *http.Request) bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
	if down != nil {
		s.EndWatches()
	}
}

// After has a function called when a request is done and before it is answered. Nil calls none.
func (s *Server) After(f func(r *http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = f
}

// Requests returns the number of requests by method.
func (s *Server) Requests(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[method]
}

// Kubeconfig returns a kubeconfig for the server, whose context is in a namespace.
func (s *Server) Kubeconfig(namespace string) string {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test, namespace: %s}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: test, user: {token: %s}}]
`, namespace, s.URL, ca, s.Token)
}

// WriteKubeconfig writes [Server.Kubeconfig] to a file.
func (s *Server) WriteKubeconfig(path, namespace string) error {
	return os.WriteFile(path, []byte(s.Kubeconfig(namespace)), 0o600)
}

var (
	pathForm = regexp.MustCompile(`^/apis/coordination\.k8s\.io/v1/namespaces/([a-z0-9-]+)/leases(?:/([^/]+))?$`)
	nameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
	timeForm = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`)
)

func refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(object{"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code})
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests[r.Method]++
	down, after := s.down, s.after
	s.mu.Unlock()
	if down != nil && down(r) {
		panic(http.ErrAbortHandler)
	}
	at := pathForm.FindStringSubmatch(r.URL.Path)
	switch {
	case r.Header.Get("Authorization") != "Bearer "+s.Token:
		refuse(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	case at == nil:
		refuse(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	case at[2] == "" && r.Method == http.MethodGet && r.URL.Query().Get("watch") == "true":
		s.watch(w, r, at[1])
	default:
		s.mu.Lock()
		s.answer(w, r, at[1], at[2])
		s.mu.Unlock()
		if after != nil {
			after(r)
		}
	}
}

// answer answers a request for leases. mu is held.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, namespace, name string) {
	is, found := s.leases[namespace+"/"+name]
	if name != "" && !found {
		refuse(w, http.StatusNotFound, "NotFound", fmt.Sprintf("leases.coordination.k8s.io %q not found", name))
		return
	}
	switch {
	case r.Method == http.MethodGet && name == "":
		items := []object{}
		for key, l := range s.leases {
			if strings.HasPrefix(key, namespace+"/") && selects(r.URL.Query().Get("labelSelector"), l) {
				items = append(items, l)
			}
		}
		reply(w, object{"kind": "LeaseList", "metadata": object{"resourceVersion": strconv.Itoa(s.version)}, "items": items})
	case r.Method == http.MethodGet:
		reply(w, is)
	case r.Method == http.MethodPost && name == "":
		s.create(w, r, namespace)
	case r.Method == http.MethodPut:
		s.replace(w, r, namespace+"/"+name, is)
	case r.Method == http.MethodDelete:
		s.remove(w, r, namespace+"/"+name, is)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "the server does not allow this method")
	}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

func meta(l object) object {
	m, _ := l["metadata"].(object)
	return m
}

// selects reports whether a selector of the form "key=value,…" selects a lease.
func selects(selector string, l object) bool {
	labels, _ := meta(l)["labels"].(object)
	for part := range strings.SplitSeq(selector, ",") {
		key, value, _ := strings.Cut(part, "=")
		if part != "" && labels[key] != value {
			return false
		}
	}
	return true
}

// read reads and checks a lease.
func read(w http.ResponseWriter, r *http.Request) (object, bool) {
	var l object
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&l); err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return nil, false
	}
	name, _ := meta(l)["name"].(string)
	spec, _ := l["spec"].(object)
	fault := ""
	switch holder, held := spec["holderIdentity"]; {
	case l["kind"] != "Lease" || l["apiVersion"] != "coordination.k8s.io/v1":
		refuse(w, http.StatusBadRequest, "BadRequest", "the object provided is unrecognized")
		return nil, false
	case !nameForm.MatchString(name):
		fault = "metadata.name: Invalid value"
	case held && holder == "":
		fault = "spec.holderIdentity: Invalid value: must not be empty"
	}
	if seconds, ok := spec["leaseDurationSeconds"].(float64); ok && seconds <= 0 {
		fault = "spec.leaseDurationSeconds: Invalid value: must be greater than 0"
	}
	for _, key := range []string{"acquireTime", "renewTime"} {
		if at, ok := spec[key].(string); ok && !timeForm.MatchString(at) {
			fault = "spec." + key + ": Invalid value"
		}
	}
	if labels, ok := meta(l)["labels"].(object); ok {
		for _, v := range labels {
			if text, _ := v.(string); len(text) > 63 {
				fault = "metadata.labels: Invalid value: must be no more than 63 characters"
			}
		}
	}
	if fault != "" {
		refuse(w, http.StatusUnprocessableEntity, "Invalid", "Lease is invalid: "+fault)
		return nil, false
	}
	return l, true
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, namespace string) {
	l, ok := read(w, r)
	if !ok {
		return
	}
	name := meta(l)["name"].(string)
	if _, found := s.leases[namespace+"/"+name]; found {
		refuse(w, http.StatusConflict, "AlreadyExists", fmt.Sprintf("leases.coordination.k8s.io %q already exists", name))
		return
	}
	meta(l)["uid"] = rand.Text()
	s.put(namespace+"/"+name, l, "ADDED")
	w.WriteHeader(http.StatusCreated)
	reply(w, l)
}

func (s *Server) replace(w http.ResponseWriter, r *http.Request, key string, is object) {
	l, ok := read(w, r)
	if !ok {
		return
	}
	if v := meta(l)["resourceVersion"]; v != nil && v != "" && v != meta(is)["resourceVersion"] {
		conflict(w, key)
		return
	}
	meta(l)["uid"] = meta(is)["uid"]
	s.put(key, l, "MODIFIED")
	reply(w, l)
}

func conflict(w http.ResponseWriter, key string) {
	refuse(w, http.StatusConflict, "Conflict", "Operation cannot be fulfilled on "+key+": the object has been modified")
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request, key string, is object) {
	var options struct {
		Preconditions map[string]string `json:"preconditions"`
	}
	_ = json.NewDecoder(r.Body).Decode(&options)
	for name, want := range options.Preconditions {
		if meta(is)[name] != want {
			conflict(w, key)
			return
		}
	}
	delete(s.leases, key)
	s.version++
	s.tell(key, change{"DELETED", is})
	reply(w, object{"kind": "Status", "status": "Success"})
}

// put keeps a lease and tells the watches. mu is held.
func (s *Server) put(key string, l object, kind string) {
	s.version++
	meta(l)["resourceVersion"] = strconv.Itoa(s.version)
	s.leases[key] = l
	s.tell(key, change{kind, l})
}

func (s *Server) tell(key string, c change) {
	namespace, _, _ := strings.Cut(key, "/")
	for to, of := range s.watchers {
		if of != namespace {
			continue
		}
		select {
		case to <- c:
		default: // it is too slow, and lists again
			close(to)
			delete(s.watchers, to)
		}
	}
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, namespace string) {
	changes := make(chan change, 1000)
	s.mu.Lock()
	if r.URL.Query().Get("resourceVersion") != strconv.Itoa(s.version) {
		s.mu.Unlock()
		refuse(w, http.StatusGone, "Expired", "too old resource version")
		return
	}
	s.watchers[changes] = namespace
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watchers, changes)
		s.mu.Unlock()
	}()
	flush := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = flush.Flush()
	for {
		select {
		case c, ok := <-changes:
			if !ok {
				return
			}
			if !selects(r.URL.Query().Get("labelSelector"), c.Object) {
				continue
			}
			_ = json.NewEncoder(w).Encode(c)
			_ = flush.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// EndWatches ends all watches, as an API server does from time to time.
func (s *Server) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.watchers {
		close(c)
		delete(s.watchers, c)
	}
}

// Names returns the names of the leases of a namespace, sorted.
func (s *Server) Names(namespace string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for key := range s.leases {
		if name, ok := strings.CutPrefix(key, namespace+"/"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Steal gives a lease to another holder, as a process does after its end.
func (s *Server) Steal(namespace, name, holder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.leases[namespace+"/"+name]
	if !ok {
		return fmt.Errorf("there is no lease %s", name)
	}
	copied := object{}
	b, _ := json.Marshal(l)
	_ = json.Unmarshal(b, &copied)
	spec, _ := copied["spec"].(object)
	n, _ := spec["leaseTransitions"].(float64)
	spec["holderIdentity"], spec["leaseTransitions"] = holder, n+1
	spec["renewTime"] = time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	s.put(namespace+"/"+name, copied, "MODIFIED")
	return nil
}
