package containerstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/containers"
)

// ask connects to an address inside, sends a line, and prints the answer.
const ask = `bash -c 'exec 3<>/dev/tcp/'"$1"'/'"$2"' && echo "$0" >&3 && cat <&3' `

// lines answers a line and closes.
func lines(answer string) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			b := make([]byte, 100)
			n, _ := far.Read(b)
			fmt.Fprintf(far, "%s %s", answer, b[:n])
		}()
		return near, nil
	}
}

// inside runs ask in a container.
func (b *box) inside(t *testing.T, host, port, line string) (string, bool) {
	t.Helper()
	out, _, exit := b.command(t,
		containers.Command{Args: []string{"sh", "-c", "timeout 20 " + ask + line, "sh", host, port}})
	return strings.TrimSpace(out), exit.Code == 0
}

func testForward(s *suite, t *testing.T) {
	b := s.startSpec(t, s.spec(containers.Limits{}))
	door := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "the door") })
	b.dial(t, s.engine, door)
	stop, err := b.host.Forward(t.Context(), "127.0.1.1:5432", lines("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.host.Forward(t.Context(), "127.0.1.2:5432", lines("two")); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			host, want := "127.0.1.1", "one"
			if i%2 == 1 {
				host, want = "127.0.1.2", "two"
			}
			line := fmt.Sprint("line-", i)
			if got, _ := b.inside(t, host, "5432", line); got != want+" "+line {
				t.Errorf("%s says %q", host, got)
			}
		})
	}
	group.Wait()
	if ports, err := b.host.Ports(t.Context()); err != nil || len(ports) > 0 {
		t.Errorf("forwards are among the ports: %v, %v", ports, err)
	}
	if got := b.ok(t, fetch+"abc"); !strings.HasSuffix(got, "the door") {
		t.Errorf("the door says %q", got)
	}
	for _, addr := range []string{"127.0.0.1:5432", "0.0.0.0:5432", "[::1]:5432", "192.0.2.1:5432", "localhost:5432"} {
		if _, err := b.host.Forward(t.Context(), addr, lines("never")); err == nil {
			t.Errorf("%s is forwarded", addr)
		}
	}
	stop()
	if got, ok := b.inside(t, "127.0.1.1", "5432", "late"); ok && got != "" {
		t.Errorf("a forward that ended says %q", got)
	}
	// A forward is given to the next connection that asks for it.
	b.host.Close()
	b.dial(t, s.engine, door)
	if _, err := b.host.Forward(t.Context(), "127.0.1.2:5432", lines("again")); err != nil {
		t.Fatal(err)
	}
	if got, _ := b.inside(t, "127.0.1.2", "5432", "line"); got != "again line" {
		t.Errorf("after a new connection: %q", got)
	}
}

func testNames(s *suite, t *testing.T) {
	names := s.engine.(containers.Names)
	b := s.startSpec(t, s.spec(containers.Limits{}))
	b.dial(t, s.engine, http.NotFoundHandler())
	if _, err := b.host.Forward(t.Context(), "127.0.1.1:5432", lines("db")); err != nil {
		t.Fatal(err)
	}
	if err := names.SetNames(t.Context(), b.c.ID, map[string]netip.Addr{"db": netip.MustParseAddr("127.0.1.1"),
		"other": netip.MustParseAddr("127.0.1.2")}); err != nil {
		t.Fatal(err)
	}
	if got, _ := b.inside(t, "db", "5432", "line"); got != "db line" {
		t.Errorf("db says %q", got)
	}
	own := b.ok(t, "grep -c localhost /etc/hosts")
	if got := b.ok(t, "grep other /etc/hosts; ! touch /etc/hosts 2>/dev/null && ! echo 1.2.3.4 x 2>/dev/null >>/etc/hosts && echo kept"); !strings.HasPrefix(got, "127.0.1.2") || !strings.HasSuffix(got, "kept") {
		t.Errorf("the file of names: %q", got)
	}
	if err := names.SetNames(t.Context(), b.c.ID, nil); err != nil {
		t.Fatal(err)
	}
	if got := b.ok(t, "cat /etc/hosts"); strings.Contains(got, "127.0.1.") {
		t.Errorf("names are left: %q", got)
	}
	if got := b.ok(t, "grep -c localhost /etc/hosts"); got != own || own == "0" {
		t.Errorf("%s lines with its own names, before %s", got, own)
	}
	if err := s.engine.Remove(t.Context(), b.c.ID); err != nil {
		t.Fatal(err)
	}
	if err := names.SetNames(t.Context(), b.c.ID, nil); !errors.Is(err, containers.ErrGone) {
		t.Errorf("a container that is gone: %v", err)
	}
}
