package containers_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/ramus-dev/ramus/containers"
)

// TestConnectionEnds asks a runner that dies at that moment: who asks hears of it, always.
func TestConnectionEnds(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	server := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions,
		error) {
		return nil, nil
	}}
	server.AddHostKey(signer)
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for range 300 {
		die := make(chan struct{})
		served := make(chan struct{})
		go func() {
			defer close(served)
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			sc, chans, reqs, err := ssh.NewServerConn(conn, server)
			if err != nil {
				return
			}
			defer sc.Wait()
			defer conn.Close()
			go func() {
				for req := range reqs {
					_ = req.Reply(true, nil)
				}
			}()
			go func() {
				for nc := range chans {
					_ = nc.Reject(ssh.Prohibited, "no")
				}
			}()
			<-die
		}()
		conn, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		h, err := (&containers.Dialer{Signer: signer}).NewHost(t.Context(), conn, containers.Container{ID: "c"})
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			for {
				if _, err := h.Commands(context.Background()); err != nil {
					select {
					case <-h.Done():
						return
					default:
					}
				}
			}
		}()
		close(die)
		closed := make(chan error, 1)
		go func() {
			<-asked
			closed <- h.Close()
		}()
		select {
		case err := <-closed:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("somebody waits for an answer of a runner that is gone")
		}
		<-served
	}
}
