// Package trackertest is a stand-in of Jira and of Linear. It has issues with comments, the parts of their APIs that
// ramus uses, and signed webhooks. It refuses what they refuse.
package trackertest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Server has issues.
type Server struct {
	Kind   string // "jira" or "linear"
	Token  string
	Secret string // of webhooks
	// Lose is the number of comments whose answers are lost.
	Lose int

	url  string
	http *http.Server
	done chan struct{}

	mu       sync.Mutex // guards the fields below
	comments map[string][]Comment
}

// Comment is a comment on an issue.
type Comment struct {
	ID, Body   string
	Properties json.RawMessage
}

type object = map[string]any

// Start listens on loopback.
func Start(kind string) (*Server, error) {
	s := &Server{Kind: kind, Token: "lin_api_" + rand.Text(), Secret: rand.Text(),
		comments: map[string][]Comment{"APP-12": nil}, done: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /rest/api/2/issue/{key}/comment", s.jira)
	mux.HandleFunc("POST /rest/api/2/issue/{key}/comment", s.jira)
	mux.HandleFunc("POST /graphql", s.linear)
	s.url, s.http = "http://"+l.Addr().String(), &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(l)
	}()
	return s, nil
}

// Close stops the server.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
}

// URL returns the address of the site.
func (s *Server) URL() string { return s.url }

// Comments returns the comments on an issue.
func (s *Server) Comments(key string) []Comment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.comments[key])
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// lost reports whether the answer to a comment is lost.
func (s *Server) lost() bool {
	s.Lose--
	return s.Lose >= 0
}

func (s *Server) jira(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.PathValue("key")
	user, token, ok := r.BasicAuth()
	all, known := s.comments[key]
	switch {
	case !ok || token != s.Token || user == "":
		answer(w, http.StatusUnauthorized, object{"message": "Client must be authenticated to access this resource."})
		return
	case !known:
		answer(w, http.StatusNotFound,
			object{"errorMessages": []string{"Issue does not exist or you do not have permission to see it."}})
		return
	case r.Method == http.MethodGet:
		list := []any{}
		for _, c := range slices.Backward(all) {
			one := object{"id": c.ID, "body": c.Body}
			if strings.Contains(r.URL.Query().Get("expand"), "properties") {
				one["properties"] = c.Properties
			}
			list = append(list, one)
		}
		answer(w, http.StatusOK, object{"comments": list, "total": len(all)})
		return
	}
	var in struct {
		Body       string          `json:"body"`
		Properties json.RawMessage `json:"properties"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&in); err != nil || in.Body == "" || len([]rune(in.Body)) > 32_767 {
		answer(w, http.StatusBadRequest,
			object{"errors": object{"comment": "Comment body can not be empty, or is too long"}})
		return
	}
	s.comments[key] = append(all, Comment{fmt.Sprint(10_000 + len(all)), in.Body, in.Properties})
	if s.lost() {
		panic(http.ErrAbortHandler)
	}
	answer(w, http.StatusCreated, object{"id": fmt.Sprint(10_000 + len(all))})
}

func (s *Server) linear(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("Authorization") != s.Token {
		answer(w, http.StatusUnauthorized,
			object{"errors": []any{object{"message": "Authentication required, not authenticated"}}})
		return
	}
	var in struct {
		Query     string
		Variables struct{ ID, Issue, Body string }
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&in); err != nil {
		answer(w, http.StatusBadRequest, object{"errors": []any{object{"message": "Bad request"}}})
		return
	}
	there := false
	for _, all := range s.comments {
		there = there || slices.ContainsFunc(all, func(c Comment) bool { return c.ID == in.Variables.ID })
	}
	refuse := func(text string) {
		answer(w, http.StatusOK, object{"data": nil, "errors": []any{object{"message": text}}})
	}
	if strings.HasPrefix(in.Query, "query") {
		nodes := []any{}
		if there {
			nodes = append(nodes, object{"id": in.Variables.ID})
		}
		answer(w, http.StatusOK, object{"data": object{"comments": object{"nodes": nodes}}})
		return
	}
	all, known := s.comments[in.Variables.Issue]
	switch {
	case !known:
		refuse("Entity not found: Issue")
		return
	case there:
		refuse("Entity already exists: Comment")
		return
	case in.Variables.Body == "":
		refuse("body should not be empty")
		return
	}
	s.comments[in.Variables.Issue] = append(all, Comment{ID: in.Variables.ID, Body: in.Variables.Body})
	if s.lost() {
		panic(http.ErrAbortHandler)
	}
	answer(w, http.StatusOK, object{"data": object{"commentCreate": object{"success": true}}})
}

// Webhook returns the webhook for a change of an issue, signed with a secret.
func (s *Server) Webhook(key, label, title, text, secret string) (http.Header, []byte) {
	var payload object
	header, labels := http.Header{"Content-Type": {"application/json"}}, []string{}
	if label != "" {
		labels = append(labels, label)
	}
	if s.Kind == "jira" {
		payload = object{"timestamp": time.Now().UnixMilli(), "webhookEvent": "jira:issue_updated",
			"issue": object{"key": key,
				"fields": object{"summary": title, "description": text, "labels": labels, "assignee": nil,
					"project": object{"key": strings.Split(key, "-")[0]}}}}
	} else {
		nodes := []any{}
		for _, l := range labels {
			nodes = append(nodes, object{"name": l})
		}
		payload = object{"action": "update", "type": "Issue", "webhookTimestamp": time.Now().UnixMilli(),
			"url":  "https://linear.app/acme/issue/" + key,
			"data": object{"identifier": key, "title": title, "description": text, "labels": nodes}}
	}
	body, err := json.Marshal(payload)
	if err != nil {
		panic(err) // the types are ours
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	sum := hex.EncodeToString(mac.Sum(nil))
	if s.Kind == "jira" {
		header.Set("X-Hub-Signature", "sha256="+sum)
	} else {
		header.Set("Linear-Signature", sum)
	}
	return header, body
}

// Send sends a webhook, and returns the answer.
func (s *Server) Send(ctx context.Context, url string, header http.Header, body []byte) (status int, said string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header = header.Clone()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(b), err
}
