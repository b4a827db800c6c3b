// Package openstacktest is an HTTP server in place of an OpenStack cloud: Keystone, Nova and Glance. It keeps servers
// with metadata, refuses the requests that OpenStack refuses, and can be slow, limited, down and wrong. Names of servers
// are not unique, and a server gets its address after it was made.
package openstacktest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/cloudtest"
)

// Server is a project of an OpenStack cloud. Its methods are safe for concurrent use.
type Server struct {
	*httptest.Server
	cloudtest.Cloud
	// Credential is the only application credential, "ID:SECRET".
	Credential string

	tokens atomic.Int64
}

// New starts a server with one application credential. Close ends it. The address of Keystone is URL + "/identity/v3".
func New(credential string) *Server {
	s := &Server{Credential: credential}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /identity/v3/auth/tokens", s.token)
	mux.HandleFunc("GET /compute/v2.1/flavors/detail", s.allowed(s.flavors))
	mux.HandleFunc("GET /image/{$}", s.versions)
	mux.HandleFunc("GET /image/v2/images", s.allowed(s.images))
	mux.HandleFunc("POST /compute/v2.1/servers", s.allowed(s.create))
	mux.HandleFunc("GET /compute/v2.1/servers/detail", s.allowed(s.list))
	mux.HandleFunc("DELETE /compute/v2.1/servers/{id}", s.allowed(s.remove))
	s.Server = httptest.NewServer(mux)
	return s
}

// Expire ends all tokens.
func (s *Server) Expire() { s.tokens.Add(1) }

type object = map[string]any

// The ids of things.
const (
	imageID   = "11111111-1111-4111-8111-111111111111"
	networkID = "22222222-2222-4222-8222-222222222222"
)

func flavorID(name string) string { return "flavor-" + name }

func (s *Server) current() string { return fmt.Sprintf("token-%d", s.tokens.Load()) }

// token is Keystone.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	faults, _ := s.Request(r)
	if faults.Down {
		refuse(w, 503, "the service is not available")
		return
	}
	var in struct {
		Auth struct {
			Identity struct {
				Methods    []string `json:"methods"`
				Credential struct {
					ID     string `json:"id"`
					Secret string `json:"secret"`
				} `json:"application_credential"`
			} `json:"identity"`
		} `json:"auth"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		refuse(w, 400, "expecting to find valid JSON")
		return
	}
	id := in.Auth.Identity
	if !slices.Equal(id.Methods, []string{"application_credential"}) || id.Credential.ID+":"+id.Credential.Secret != s.Credential {
		refuse(w, 401, "The request you have made requires authentication.")
		return
	}
	endpoint := func(kind, path string) object {
		return object{"type": kind, "name": kind, "endpoints": []object{{"id": kind, "interface": "public", "region": "eu-1",
			"region_id": "eu-1", "url": s.URL + path}}}
	}
	w.Header().Set("X-Subject-Token", s.current())
	reply(w, 201, object{"token": object{"methods": []string{"application_credential"},
		"expires_at": time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05.000000Z"),
		"catalog":    []object{endpoint("compute", "/compute/v2.1/"), endpoint("image", "/image/")}}})
}

// versions is Glance's description of itself. Nobody has to sign in for it.
func (s *Server) versions(w http.ResponseWriter, _ *http.Request) {
	reply(w, 300, object{"versions": []object{{"id": "v2.16", "status": "CURRENT",
		"links": []object{{"rel": "self", "href": s.URL + "/image/v2/"}}}}})
}

// allowed wraps a handler in the faults, the limit and the check of the token.
func (s *Server) allowed(h func(http.ResponseWriter, *http.Request, cloudtest.Faults)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		faults, left := s.Request(r)
		switch {
		case faults.Down:
			refuse(w, 503, "the service is not available")
		case faults.Wrong:
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<html>"))
		case left < 0:
			w.Header().Set("Retry-After", "1")
			refuse(w, 429, "This request was rate-limited.")
		case r.Header.Get("X-Auth-Token") != s.current():
			refuse(w, 401, "The request you have made requires authentication.")
		default:
			h(w, r, faults)
		}
	}
}

func refuse(w http.ResponseWriter, status int, message string) {
	reply(w, status, object{"error": object{"code": status, "message": message, "title": http.StatusText(status)}})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (s *Server) flavors(w http.ResponseWriter, _ *http.Request, _ cloudtest.Faults) {
	var all []object
	for _, name := range []string{"m1.small", "m1.medium", "m1.large"} {
		all = append(all, object{"id": flavorID(name), "name": name, "ram": 2048, "vcpus": 2, "disk": 20})
	}
	reply(w, 200, object{"flavors": all})
}

func (s *Server) images(w http.ResponseWriter, r *http.Request, _ cloudtest.Faults) {
	all := []object{}
	if name := r.URL.Query().Get("name"); name == "debian-13" {
		all = append(all, object{"id": imageID, "name": name, "status": "active", "created_at": "2026-01-01T00:00:00Z",
			"updated_at": "2026-01-01T00:00:00Z"})
	}
	reply(w, 200, object{"images": all})
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, faults cloudtest.Faults) {
	var in struct {
		Server struct {
			Name     string            `json:"name"`
			Flavor   string            `json:"flavorRef"`
			Image    string            `json:"imageRef"`
			Zone     string            `json:"availability_zone"`
			UserData string            `json:"user_data"`
			Metadata map[string]string `json:"metadata"`
			Networks []struct {
				UUID string `json:"uuid"`
			} `json:"networks"`
		} `json:"server"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		refuse(w, 400, "malformed request body")
		return
	}
	x := in.Server
	data, err := base64.StdEncoding.DecodeString(x.UserData)
	switch {
	case err != nil:
		refuse(w, 400, "user_data is not base64")
	case len(x.UserData) > 65535:
		refuse(w, 400, "user_data is too long")
	case !strings.HasPrefix(x.Flavor, "flavor-m1."):
		refuse(w, 400, "Flavor "+x.Flavor+" could not be found.")
	case x.Image != imageID:
		refuse(w, 400, "Can not find requested image")
	case x.Zone != "nova" && x.Zone != "nova-2":
		refuse(w, 400, "The requested availability zone is not available")
	case len(x.Networks) != 1 || x.Networks[0].UUID != networkID:
		refuse(w, 400, "Network could not be found.")
	case faults.Full:
		refuse(w, 403, "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances")
	default:
		m := s.Make(cloudtest.Machine{Name: x.Name, Type: strings.TrimPrefix(x.Flavor, "flavor-"), Location: x.Zone,
			UserData: string(data), Labels: x.Metadata})
		if s.Lost() {
			refuse(w, 502, "Bad Gateway")
			return
		}
		reply(w, 202, object{"server": object{"id": serverID(m), "links": []object{}, "adminPass": "x",
			"security_groups": []object{{"name": "default"}}}})
	}
}

func serverID(m cloudtest.Machine) string { return fmt.Sprintf("33333333-3333-4333-8333-%012d", m.ID) }

func shown(m cloudtest.Machine) object {
	o := object{"id": serverID(m), "name": m.Name, "status": "ACTIVE", "metadata": m.Labels,
		"created": m.Created.Format(time.RFC3339), "updated": m.Created.Format(time.RFC3339),
		"flavor": object{"original_name": m.Type}, "image": object{"id": imageID},
		"addresses": object{"net": []object{{"version": 4, "addr": fmt.Sprintf("192.0.2.%d", m.ID%256),
			"OS-EXT-IPS:type": "fixed"}}}}
	if m.Broken {
		o["status"], o["addresses"] = "ERROR", object{}
		o["fault"] = object{"code": 500, "message": "No valid host was found.", "created": m.Created.Format(time.RFC3339)}
	}
	return o
}

// list is a page of servers. The name is a regular expression, as in Nova.
func (s *Server) list(w http.ResponseWriter, r *http.Request, _ cloudtest.Faults) {
	q := r.URL.Query()
	name, err := regexp.Compile(q.Get("name"))
	if err != nil {
		refuse(w, 400, "invalid regular expression")
		return
	}
	limit, _ := strconv.Atoi(q.Get("limit"))
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	some, past := []object{}, q.Get("marker") == ""
	out := object{}
	for _, m := range s.Machines() {
		if past && name.MatchString(m.Name) {
			if len(some) == limit {
				q.Set("marker", some[limit-1]["id"].(string))
				out["servers_links"] = []object{{"rel": "next", "href": s.URL + r.URL.Path + "?" + q.Encode()}}
				break
			}
			some = append(some, shown(m))
		}
		past = past || serverID(m) == q.Get("marker")
	}
	out["servers"] = some
	reply(w, 200, out)
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request, _ cloudtest.Faults) {
	_, number, _ := strings.Cut(r.PathValue("id"), "8333-")
	id, err := strconv.ParseInt(strings.TrimLeft(number, "0"), 10, 64)
	if err != nil || !s.RemoveID(id) {
		refuse(w, 404, "Instance could not be found.")
		return
	}
	w.WriteHeader(204)
}
