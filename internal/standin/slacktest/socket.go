package slacktest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// socket is one connection of Socket Mode.
type socket struct {
	conn    *websocket.Conn
	leaving bool       // told to disconnect, and not used for deliveries any more; guarded by s.mu
	writing sync.Mutex // guards writes to conn
}

func (k *socket) write(v any) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	_ = k.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	return k.conn.WriteJSON(v)
}

// openSocket responds to apps.connections.open with an address that is valid once.
func (s *Server) openSocket() answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.events++
	ticket := fmt.Sprintf("ticket-%d", s.state.events)
	s.state.tickets[ticket] = true
	return jsonAnswer(map[string]any{"ok": true, "url": "ws" + strings.TrimPrefix(s.URL(), "http") + "/socket?ticket=" +
		ticket + "&app_id=" + s.App})
}

func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	ticket := r.URL.Query().Get("ticket")
	s.mu.Lock()
	good := s.state.tickets[ticket]
	delete(s.state.tickets, ticket)
	crowded := len(s.state.sockets) >= 10
	s.mu.Unlock()
	if !good || crowded {
		http.Error(w, "invalid ticket, or ten connections already", http.StatusForbidden)
		return
	}
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	k := &socket{conn: conn}
	conn.SetReadLimit(maxBody)
	s.mu.Lock()
	s.state.sockets[k] = true
	open := len(s.state.sockets)
	s.mu.Unlock()
	_ = k.write(map[string]any{"type": "hello", "num_connections": open, "connection_info": map[string]any{"app_id": s.App},
		"debug_info": map[string]any{"host": "stand-in", "build_number": 1, "approximate_connection_time": 18060}})
	s.mu.Lock()
	s.move()
	s.mu.Unlock()
	done := make(chan struct{})
	defer close(done)
	s.background(func(ctx context.Context) {
		// Slack pings every few seconds, and clients consider a silent connection dead.
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = conn.WriteControl(websocket.PingMessage, []byte("Ping from the stand-in"),
					time.Now().Add(10*time.Second))
			case <-ctx.Done():
				conn.Close()
				<-done
				return
			case <-done:
				return
			}
		}
	})
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			break
		}
		var ack struct {
			EnvelopeID string          `json:"envelope_id"`
			Payload    json.RawMessage `json:"payload"`
		}
		_ = json.Unmarshal(message, &ack)
		s.mu.Lock()
		waiting := s.state.waiting[ack.EnvelopeID]
		delete(s.state.waiting, ack.EnvelopeID)
		switch {
		case waiting == nil:
			s.state.complaints = append(s.state.complaints,
				fmt.Sprintf("socket: nobody waits for an acknowledgement of %q", ack.EnvelopeID))
		case len(message) >= 20_000:
			// Slack drops these silently.
			s.state.complaints = append(s.state.complaints,
				fmt.Sprintf("socket: an acknowledgement of %d bytes", len(message)))
		default:
			waiting <- ack.Payload
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	delete(s.state.sockets, k)
	s.move()
	s.mu.Unlock()
	conn.Close()
}

// Sockets returns the number of Socket Mode connections that are in use for deliveries.
func (s *Server) Sockets() int { return len(s.allSockets(false)) }

// Disconnect asks every socket to disconnect, as Slack does when it refreshes a connection ("refresh_requested"), warns
// ("warning"), or when the app's Socket Mode is switched off ("link_disabled").
func (s *Server) Disconnect(reason string) {
	for _, k := range s.allSockets(false) {
		s.mu.Lock()
		k.leaving = true
		s.mu.Unlock()
		_ = k.write(map[string]any{"type": "disconnect", "reason": reason, "debug_info": map[string]any{"host": "stand-in"}})
		if reason == "refresh_requested" {
			_ = k.conn.WriteControl(websocket.CloseMessage,
				websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
		}
	}
}

// closeSockets cuts every connection, because a hijacked one does not end with its HTTP server.
func (s *Server) closeSockets() {
	for _, k := range s.allSockets(true) {
		s.mu.Lock()
		k.leaving = true // even before its reader has noticed the end
		s.mu.Unlock()
		k.conn.Close()
	}
}

func (s *Server) allSockets(leaving bool) (all []*socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.state.sockets {
		if leaving || !k.leaving {
			all = append(all, k)
		}
	}
	return all
}

// overSocket delivers over one of the app's connections and waits for the acknowledgement.
func (s *Server) overSocket(ctx context.Context, a Attempt, kind string, payload any) Attempt {
	a.URL = "socket"
	began := time.Now()
	ctx, cancel := s.patience(ctx)
	defer cancel()
	all := s.allSockets(false)
	if len(all) == 0 {
		a.Err = fmt.Errorf("the app has no connection")
		return a
	}
	acknowledged := make(chan json.RawMessage, 1)
	s.mu.Lock()
	s.state.events++
	id := fmt.Sprintf("envelope-%d", s.state.events)
	s.state.waiting[id] = acknowledged
	s.mu.Unlock()
	envelope := map[string]any{"envelope_id": id, "type": kind, "accepts_response_payload": kind != "events_api",
		"payload": payload}
	if kind == "events_api" {
		envelope["retry_attempt"], envelope["retry_reason"] = a.Retry, a.Reason
	}
	if a.Err = all[a.Retry%len(all)].write(envelope); a.Err == nil {
		select {
		case answer := <-acknowledged:
			a.Status = http.StatusOK
			if !bytes.Equal(answer, []byte("null")) {
				a.Answer = answer
			}
		case <-ctx.Done():
			a.Err = context.Cause(ctx)
		}
	}
	// A late acknowledgement is not a mistake of the app. The channel stays, without a reader.
	a.Took = time.Since(began)
	return a
}
