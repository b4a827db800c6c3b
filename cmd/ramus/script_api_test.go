package main

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/ramus-dev/ramus/internal/loopback"
	"github.com/ramus-dev/ramus/internal/standin/modeltest"
	"github.com/ramus-dev/ramus/internal/standin/vaulttest"
	"github.com/rogpeppe/go-internal/testscript"
)

// apiCommand starts an HTTPS server that wants the value of $CANARY in the header Authorization, or as the password of
// Basic authentication. It repeats what it gets below /echo. Its address is $API, its certificate in api.pem.
func apiCommand(ts *testscript.TestScript, neg bool, args []string) {
	canary := ts.Getenv("CANARY")
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		if r.Header.Get("Authorization") != "Bearer "+canary && password != canary {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/echo") {
			fmt.Fprintf(w, "you sent %s\n", r.Header.Get("Authorization"))
			return
		}
		_, _ = io.WriteString(w, "welcome\n")
	}))
	ts.Defer(api.Close)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	ts.Check(os.WriteFile(ts.MkAbs("api.pem"), cert, 0o600))
	ts.Setenv("API", strings.TrimPrefix(api.URL, "https://"))
	ts.Setenv("SSL_CERT_FILE", ts.MkAbs("api.pem"))
}

// vaultCommand starts a stand-in of Vault with the value of $CANARY in the field token of secret/app. Its address is
// $VAULT, its token vault-token.
func vaultCommand(ts *testscript.TestScript, neg bool, args []string) {
	vault := vaulttest.New("vault-token")
	ts.Defer(vault.Close)
	vault.Put("secret/app", map[string]any{"token": ts.Getenv("CANARY")})
	ts.Setenv("VAULT", vault.URL)
}

// modelsCommand starts a stand-in of model APIs that accepts $CANARY as its only key. Its address is $MODELS. With an
// argument each answer is that text.
func modelsCommand(ts *testscript.TestScript, neg bool, args []string) {
	stand, server := modeltest.New()
	stand.Key = ts.Getenv("CANARY")
	if len(args) == 1 {
		stand.Reply = func(string) string { return args[0] }
	}
	ts.Defer(func() {
		server.Close()
		if c := stand.Complaints(); len(c) > 0 {
			ts.Fatalf("the stand-in complains: %q", c)
		}
	})
	ts.Setenv("MODELS", server.URL)
}

// certificateCommand writes a certificate of names to cert.pem, and its key to key.pem. It sets $IP to an address
// of this machine that no other test has, and $PORT and $PLAIN to two free ports of it.
func certificateCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: certificate NAME…")
	}
	ts.Check(makeCertificate(ts.MkAbs("cert.pem"), ts.MkAbs("key.pem"), args...))
	ip := loopback.IP()
	ts.Setenv("IP", ip)
	for _, name := range []string{"PORT", "PLAIN"} {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		ts.Check(err)
		defer l.Close()
		_, port, err := net.SplitHostPort(l.Addr().String())
		ts.Check(err)
		ts.Setenv(name, port)
	}
}
