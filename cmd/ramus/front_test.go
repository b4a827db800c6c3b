package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestEarlyAnswer answers a request by HTTP/2 before its body is there. The stream must not be reset.
func TestEarlyAnswer(t *testing.T) {
	t.Parallel()
	answered := make(chan struct{}, 1)
	s := httptest.NewUnstartedServer(readRest(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusSeeOther)
		answered <- struct{}{}
	})))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)

	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	var head strings.Builder
	enc := hpack.NewEncoder(&head)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "ramus.test"}, {":path", "/"},
		{"content-length", "3"}} {
		if err := enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(head.String()), EndHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	<-answered
	if err := f.WriteData(1, true, []byte("x=y")); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if reset, ok := frame.(*http2.RSTStreamFrame); ok {
			t.Fatalf("the stream was reset: %v", reset.ErrCode)
		}
		if frame.Header().StreamID == 1 && frame.Header().Flags.Has(http2.FlagHeadersEndStream) {
			return
		}
	}
}
