package containerstest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

// sidecar describes one that runs a script.
func (s *suite) sidecar(script string) containers.Sidecar {
	return containers.Sidecar{
		Owner: s.owner, Key: "browser:suite", Image: s.Image, Args: []string{"/bin/bash", "-c", script},
		Env: []string{"SUITE_MARK=" + s.mark, "SUITE_SIDECAR=" + s.mark},
	}
}

// runSidecar runs a script in a sidecar of a container and returns its output.
func (s *suite) runSidecar(t *testing.T, id, script string) (stdout, stderr string, exit containers.SidecarExit) {
	t.Helper()
	c := s.sidecar(script)
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, err := s.sidecars.RunSidecar(ctx, id, c)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out.String(), errOut.String(), exit
}

func (s *suite) sidecarOK(t *testing.T, id, script string) string {
	t.Helper()
	out, errOut, exit := s.runSidecar(t, id, script)
	if exit.Code != 0 {
		t.Fatalf("%s\nexit %+v\nstdout: %s\nstderr: %s", script, exit, out, errOut)
	}
	return strings.TrimSpace(out)
}

// running is a sidecar under way.
type running struct {
	exit  containers.SidecarExit
	err   error
	ended chan struct{}
}

// await returns how it ended, which must be soon.
func (r *running) await(t *testing.T) (containers.SidecarExit, error) {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(time.Minute):
		t.Fatal("a sidecar does not end")
	}
	return r.exit, r.err
}

// startSidecar runs a script in the background and returns when it has written
// its first line.
func (s *suite) startSidecar(t *testing.T, ctx context.Context, e containers.Sidecars, id string, c containers.Sidecar) (_ *running, line string) {
	t.Helper()
	r := &running{ended: make(chan struct{})}
	first := make(chan string, 1)
	c.Stdout = &firstLine{to: first}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(r.ended)
		r.exit, r.err = e.RunSidecar(ctx, id, c)
	}()
	t.Cleanup(func() { cancel(); <-r.ended })
	select {
	case line = <-first:
	case <-r.ended:
		t.Fatalf("the sidecar ended at once: %+v, %v", r.exit, r.err)
	case <-time.After(time.Minute):
		t.Fatal("the sidecar says nothing")
	}
	return r, line
}

// firstLine sends the first line that is written to it, and drops the rest.
type firstLine struct {
	text bytes.Buffer
	to   chan<- string
}

func (w *firstLine) Write(p []byte) (int, error) {
	if w.to != nil {
		w.text.Write(p)
		if line, _, ok := strings.Cut(w.text.String(), "\n"); ok {
			w.to <- line
			w.to = nil
		}
	}
	return len(p), nil
}

// lasting is a script that prints a line when it runs, with the name that the engine may have given it, and continues.
const lasting = "echo up $RAMUS_SIDECAR; exec sleep 600"

func (s *suite) remember(line string) {
	if _, id, _ := strings.Cut(line, " "); id != "" {
		s.mu.Lock()
		s.ids = append(s.ids, id)
		s.mu.Unlock()
	}
}

func testSidecarCommands(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	for _, test := range []struct {
		script, out, errOut string
		code                int
	}{
		{"echo out; echo err >&2", "out\n", "err\n", 0},
		{"exit 7", "", "", 7},
		{"exit 137", "", "", 137},
		{"kill -9 $$", "", "", 128 + 9},
		{"kill -TERM $$", "", "", 128 + 15},
		{"cat", "", "", 0}, // nothing to read is the end
		{"echo $HOME; echo x > $HOME/x; echo y > /tmp/y; cat $HOME/x /tmp/y", containers.SidecarHome + "\nx\ny\n", "", 0},
		// Its background processes end with it.
		{"sleep 600 & echo started", "started\n", "", 0},
	} {
		out, errOut, exit := s.runSidecar(t, b.c.ID, test.script)
		if out != test.out || errOut != test.errOut || exit.Code != test.code || exit.OOM || exit.Duration <= 0 || exit.Image == "" {
			t.Errorf("%s: stdout %q, stderr %q, %+v", test.script, out, errOut, exit)
		}
	}
	c := s.sidecar("")
	c.Args = []string{"/usr/bin/printf", "%s|", "$HOME", "a b", ""} // no shell
	c.Env = append(c.Env, "SHOWN=yes")
	var out bytes.Buffer
	c.Stdout = &out
	if exit, err := s.sidecars.RunSidecar(t.Context(), b.c.ID, c); err != nil || exit.Code != 0 || out.String() != "$HOME|a b||" {
		t.Errorf("%q, %+v, %v", out.String(), exit, err)
	}
	c.Args = []string{"/no/such/program"}
	if exit, err := s.sidecars.RunSidecar(t.Context(), b.c.ID, c); err == nil && exit.Code == 0 {
		t.Errorf("a program that is not there: %+v", exit)
	}
	c.Args = nil
	if _, err := s.sidecars.RunSidecar(t.Context(), b.c.ID, c); err == nil {
		t.Error("no program is run")
	}
	s.remember("up " + s.sidecarOK(t, b.c.ID, "echo $RAMUS_SIDECAR"))
	b.usable(t)
}

// counter counts the bytes written to it, and their sum.
type counter struct {
	n int64
	h hash.Hash
}

func newCounter() *counter { return &counter{h: sha256.New()} }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.h.Write(p)
}

// pattern is n bytes in which a missing piece shows.
type pattern struct{ at, n int64 }

// patternPeriod is prime: no buffer's size is a multiple of it.
const patternPeriod = 65521

var patternText = func() []byte {
	b := make([]byte, 2*patternPeriod)
	for i := range b {
		b[i] = byte(i % patternPeriod % 251)
	}
	return b
}()

func (p *pattern) Read(b []byte) (int, error) {
	if p.at >= p.n {
		return 0, io.EOF
	}
	n := copy(b[:min(int64(len(b)), p.n-p.at)], patternText[p.at%patternPeriod:])
	p.at += int64(n)
	return n, nil
}

func testSidecarStreams(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	const n = 100 << 20
	want := newCounter()
	io.Copy(want, &pattern{n: n})
	c := s.sidecar("tee /dev/stderr")
	got, gotErr := newCounter(), newCounter()
	c.Stdin, c.Stdout, c.Stderr = &pattern{n: n}, got, gotErr
	exit, err := s.sidecars.RunSidecar(t.Context(), b.c.ID, c)
	if err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v", exit, err)
	}
	for name, g := range map[string]*counter{"stdout": got, "stderr": gotErr} {
		if g.n != n || !bytes.Equal(g.h.Sum(nil), want.h.Sum(nil)) {
			t.Errorf("%s: of %d bytes %d came, or others", name, n, g.n)
		}
	}
	// A program that does not read is not fed and not awaited.
	c = s.sidecar("head -c 3 >/dev/null; exit 4")
	c.Stdin = &pattern{n: 1 << 40}
	if exit, err := s.sidecars.RunSidecar(t.Context(), b.c.ID, c); err != nil || exit.Code != 4 {
		t.Errorf("%+v, %v", exit, err)
	}
	// A writer or a reader that fails ends it.
	c = s.sidecar("while echo more; do :; done; exec sleep 600")
	c.Stdout = failing{}
	if _, err := s.sidecars.RunSidecar(t.Context(), b.c.ID, c); !errors.Is(err, errFull) {
		t.Errorf("a writer that fails: %v", err)
	}
	c = s.sidecar("cat; exec sleep 600")
	c.Stdin = failing{}
	if _, err := s.sidecars.RunSidecar(t.Context(), b.c.ID, c); !errors.Is(err, errFull) {
		t.Errorf("a reader that fails: %v", err)
	}
}

var errFull = errors.New("full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }
func (failing) Read([]byte) (int, error)  { return 0, errFull }

func testSidecarNetwork(s *suite, t *testing.T) {
	b := s.startSpec(t, s.spec(containers.Limits{}))
	b.dial(t, s.engine, http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		io.WriteString(w, "of the container")
	}))
	if got := s.sidecarOK(t, b.c.ID, fetch+"x"); !strings.HasSuffix(got, "of the container") {
		t.Errorf("the container's own 127.0.0.1 says %q", got)
	}
	other := s.start(t, containers.Limits{})
	for name, id := range map[string]string{"alone": "", "next to another": other.c.ID} {
		if out, _, exit := s.runSidecar(t, id, fetch+"x"); strings.Contains(out, "of the container") {
			t.Errorf("%s: %q, %+v", name, out, exit)
		}
	}
	for _, id := range []string{b.c.ID, ""} {
		if got := s.sidecarOK(t, id, "getent ahosts localhost"); !strings.Contains(got, "127.0.0.1") {
			t.Errorf("localhost is %q", got)
		}
		for i, line := range strings.Split(s.sidecarOK(t, id, "cat /proc/net/dev"), "\n") {
			if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); i >= 2 && ok && name != "lo" {
				t.Errorf("there is a network interface %s", name)
			}
		}
	}
	s.mayNot(t, b.c.ID, "</dev/tcp/192.0.2.1/80", "ip link add x type dummy", "ip addr add 127.0.0.9/8 dev lo",
		"echo 0 > /proc/sys/net/ipv4/ip_forward")
}

// mayNot tries actions that must be refused to a sidecar at once.
func (s *suite) mayNot(t *testing.T, id string, tries ...string) {
	t.Helper()
	var script strings.Builder
	for i, try := range tries {
		fmt.Fprintf(&script, "timeout 30 bash -c '%s' >/dev/null 2>&1; case $? in 0|124) echo %d;; esac\n", try, i)
	}
	// An allowed command must be distinguishable from them.
	out := s.sidecarOK(t, id, script.String()+"timeout 30 bash -c true && echo may")
	for line := range strings.Lines(strings.TrimSuffix(out, "may")) {
		i, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("it says %q", out)
		}
		t.Errorf("it may: %s", tries[i])
	}
	if !strings.HasSuffix(out, "may") {
		t.Errorf("it may nothing: %q", out)
	}
}

// A real browser, with the limits that it has by default.
func testSidecarBrowser(s *suite, t *testing.T) {
	const chromium = "/usr/lib/chromium/chromium-headless-shell"
	b := s.startSpec(t, s.spec(containers.Limits{}))
	b.dial(t, s.engine, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<p id=p></p><script>p.textContent = [6*7, navigator.hardwareConcurrency > 0]</script>")
	}))
	c := s.sidecar("")
	c.Image = s.BrowserImage
	c.Args = []string{"/bin/sh", "-c", "test -x " + chromium + " || exit 99; exec " + chromium +
		" --headless --no-sandbox --disable-gpu --dump-dom http://127.0.0.1:7070/page"}
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, err := s.sidecars.RunSidecar(ctx, b.c.ID, c)
	if errors.Is(err, containers.ErrUnavailable) || exit.Code == 99 {
		t.Skipf("cannot run here: there is no %s (%v)", chromium, err)
	}
	if err != nil || exit.Code != 0 || exit.OOM || !strings.Contains(out.String(), `<p id="p">42,true</p>`) {
		t.Errorf("%+v, %v\n%s\n%s", exit, err, out.String(), errOut.String())
	}
}

func testSidecarApart(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	secret := "secret-of-the-container-" + s.mark
	b.ok(t, "for d in /work /artifacts /cache /tmp; do echo x > $d/"+secret+"; done")
	if _, err := b.host.Start(t.Context(), containers.Command{ID: secret, Shell: "sleep 600 #" + secret, Background: true}); err != nil {
		t.Fatal(err)
	}
	// Of the container it sees nothing.
	if out := s.sidecarOK(t, b.c.ID,
		"find / \\( -path /proc -o -path /usr \\) -prune -o -name 'secret-of-*' -print 2>/dev/null; true"); out != "" {
		t.Errorf("files of the container: %s", out)
	}
	// The script itself must not contain the name it searches for.
	out := s.sidecarOK(t, b.c.ID, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; ls -d /proc/[0-9]* | wc -l")
	if strings.Contains(out, secret) {
		t.Error("a process of the container is in sight")
	}
	if n, err := strconv.Atoi(out[strings.LastIndexByte(out, '\n')+1:]); err != nil || n > 10 {
		t.Errorf("%d processes are in sight, %v", n, err)
	}
	status := map[string]string{}
	for line := range strings.Lines(s.sidecarOK(t, b.c.ID, "cat /proc/self/status")) {
		k, v, _ := strings.Cut(line, ":")
		status[k] = strings.TrimSpace(v)
	}
	none := strings.Repeat("0", 16)
	for k, want := range map[string]string{
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2",
	} {
		if status[k] != want {
			t.Errorf("%s is %q, not %q", k, status[k], want)
		}
	}
	// The Sandbox of a ramus that is not root has but that one user, under another number.
	if got := s.sidecarOK(t, b.c.ID, "id -u; id -G"); got != "1000\n1000" && !(s.engine.Name() == "sandbox" && os.Geteuid() != 0) {
		t.Errorf("its user is %q", got)
	}
	out = s.sidecarOK(t, b.c.ID,
		"find / \\( -path /proc -o -path /usr \\) -prune -o -type d -writable -print 2>/dev/null; true")
	var tries []string
	for dir := range strings.Lines(out) {
		switch dir = strings.TrimSpace(dir); {
		case dir == "/tmp", strings.HasPrefix(dir, "/tmp/"), dir == "/dev/shm", dir == "/dev/mqueue", dir == "/dev/pts":
		default:
			tries = append(tries, "touch "+dir+"/x")
		}
	}
	s.mayNot(t, b.c.ID, append(tries,
		"mount -t tmpfs x /tmp", "unshare -U true", "unshare -n true", "mknod /tmp/device b 8 0", "chroot / true",
		"su -c true",
		"touch /usr/x", "touch /etc/x", "touch /x", "echo 1 > /proc/sys/kernel/panic", "dmesg",
		"test -e "+containers.WorkDir+"/"+secret,
		"head -c 1 /etc/shadow", "test -S /var/run/docker.sock", "test -e "+s.dir,
	)...)
	if got := s.sidecarOK(t, b.c.ID, "ls /proc/self/fd | tr '\\n' ' '"); got != "0 1 2 3" {
		t.Errorf("it starts with the descriptors %s", got)
	}

	// The container sees no process of the sidecar, so it cannot trace one.
	hidden := "hidden-in-the-sidecar"
	r, line := s.startSidecar(t, t.Context(), s.sidecars, b.c.ID,
		s.sidecar("echo x > /tmp/"+hidden+"; echo x > $HOME/"+hidden+"; echo up $RAMUS_SIDECAR; exec sleep 601"))
	s.remember(line)
	if out := b.ok(t, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); strings.Contains(out, "sleep 601") {
		t.Error("the container sees a process of the sidecar")
	}
	if out := b.ok(t, "find / \\( -path /proc -o -path /usr \\) -prune -o -name "+hidden+" -print 2>/dev/null; true"); out != "" {
		t.Errorf("the container sees files of the sidecar: %s", out)
	}
	b.ok(t, "kill -9 -1; true")
	list, err := s.engine.List(t.Context(), s.owner)
	if err != nil || len(list) != 1 || list[0].ID != b.c.ID {
		t.Errorf("listed are %+v, %v", list, err)
	}
	select {
	case <-r.ended:
		t.Errorf("the sidecar has ended: %+v, %v", r.exit, r.err)
	default:
	}
}

func testSidecarMemory(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	for _, hog := range []string{"exec tail -n 1 /dev/zero",
		"head -c 600000000 /dev/zero > /dev/shm/hog; head -c 600000000 /dev/zero > /tmp/hog; exec tail -n 1 /dev/zero"} {
		c := s.sidecar(hog)
		c.Limits = containers.Limits{Memory: 200 << 20, Tmp: 1 << 30}
		exit, err := s.sidecars.RunSidecar(t.Context(), b.c.ID, c)
		if err != nil || exit.Code == 0 || !exit.OOM || exit.Memory < 190<<20 || exit.Memory > 210<<20 {
			t.Errorf("a hog of memory: %+v, %v", exit, err)
		}
	}
	b.usable(t)
}

func testSidecarPIDs(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	c := s.sidecar("")
	// A shell that gives up at once when it cannot fork.
	c.Args = []string{"/bin/sh", "-c", "i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); echo $i; done"}
	c.Limits.PIDs = 50
	var out bytes.Buffer
	c.Stdout = &out
	exit, err := s.sidecars.RunSidecar(t.Context(), b.c.ID, c)
	if n := strings.Count(out.String(), "\n"); err != nil || exit.Code == 0 || n < 40 || n > 50+2 {
		t.Errorf("%d processes at a limit of 50: %+v, %v", n, exit, err)
	}
	b.usable(t)
}

func testSidecarCancel(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	why := errors.New("nobody wants to know any more")
	ctx, cancel := context.WithCancelCause(t.Context())
	r, line := s.startSidecar(t, ctx, s.sidecars, b.c.ID,
		s.sidecar("trap '' TERM HUP INT; setsid sleep 600 & echo up $RAMUS_SIDECAR; while :; do sleep 1; done"))
	s.remember(line)
	cancel(why)
	if _, err := r.await(t); !errors.Is(err, why) {
		t.Errorf("it ends with %v", err)
	}
	s.noneMarked(t)
	over, cancelOver := context.WithCancel(t.Context())
	cancelOver()
	if _, err := s.sidecars.RunSidecar(over, b.c.ID, s.sidecar("true")); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
	b.usable(t)
}

// noneMarked checks that no process of a sidecar is left when RunSidecar has returned.
func (s *suite) noneMarked(t *testing.T) {
	t.Helper()
	if left := s.marked("SUITE_SIDECAR=" + s.mark); len(left) > 0 {
		t.Errorf("processes of a sidecar are left: %q", left)
	}
}

func testSidecarGone(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	r, line := s.startSidecar(t, t.Context(), s.sidecars, b.c.ID, s.sidecar(lasting))
	s.remember(line)
	if err := s.engine.Remove(t.Context(), b.c.ID); err != nil {
		t.Fatal(err)
	}
	if exit, err := r.await(t); !isGone(err) {
		t.Errorf("next to a container that was removed: %+v, %v", exit, err)
	}
	s.noneMarked(t)
	for _, id := range []string{b.c.ID, "no-such-container", "../x", strings.Repeat("0", 64)} {
		if exit, err := s.sidecars.RunSidecar(t.Context(), id, s.sidecar("true")); !isGone(err) {
			t.Errorf("next to %q: %+v, %v", id, exit, err)
		}
	}
}

// testSidecarSweep tests that the sidecars of an earlier process and of one owner are swept, and running ones are not.
func testSidecarSweep(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	earlier := s.open(t)
	defer earlier.Close()
	left, line := s.startSidecar(t, t.Context(), earlier.(containers.Sidecars), b.c.ID, s.sidecar(lasting))
	s.remember(line)
	theirs := s.sidecar(lasting)
	theirs.Owner = "someone else"
	other, line := s.startSidecar(t, t.Context(), earlier.(containers.Sidecars), b.c.ID, theirs)
	s.remember(line)
	ours, line := s.startSidecar(t, t.Context(), s.sidecars, b.c.ID, s.sidecar(lasting))
	s.remember(line)
	if err := s.sidecars.SweepSidecars(t.Context(), s.owner); err != nil {
		t.Fatal(err)
	}
	if exit, err := left.await(t); err == nil && exit.Code != 137 {
		t.Errorf("the one that was left ended with %+v", exit)
	}
	for name, r := range map[string]*running{"ours": ours, "someone else's": other} {
		select {
		case <-r.ended:
			t.Errorf("%s was swept: %+v, %v", name, r.exit, r.err)
		default:
		}
	}
	// Of an earlier process, too, they go with their container.
	if err := s.engine.Remove(t.Context(), b.c.ID); err != nil {
		t.Fatal(err)
	}
	if exit, err := other.await(t); err == nil && exit.Code != 137 {
		t.Errorf("next to a container that was removed: %+v", exit)
	}
	if _, err := ours.await(t); !isGone(err) {
		t.Errorf("next to a container that was removed: %v", err)
	}
	if err := s.sidecars.SweepSidecars(t.Context(), ""); err == nil {
		t.Error("everyone's are swept")
	}
}

func testSidecarMany(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			c := s.sidecar(fmt.Sprintf("cat; sleep 0.2; exit %d", i))
			var out bytes.Buffer
			c.Stdin, c.Stdout = strings.NewReader(strconv.Itoa(i)), &out
			exit, err := s.sidecars.RunSidecar(t.Context(), b.c.ID, c)
			if err != nil || exit.Code != i || out.String() != strconv.Itoa(i) {
				t.Errorf("number %d: %q, %+v, %v", i, out.String(), exit, err)
			}
		})
	}
	all.Wait()
	b.usable(t)
}
