package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/route"
)

// browserFull reports whether to run the long forms, with every page on every engine, and
// ten checks.
func browserFull() bool { return os.Getenv("RAMUS_TEST") == "full" }

// browserServer is the real binary with the repository "web", whose pages are checked with a
// real browser.
type browserServer struct {
	*chatServer
	engine string
	api    *client.Client
}

// onBrowsers runs a test on each engine that has a browser here.
func onBrowsers(t *testing.T, test func(t *testing.T, engine string)) {
	for _, engine := range []string{"sandbox", "docker"} {
		t.Run(engine, func(t *testing.T) {
			switch engine {
			case "sandbox":
				if _, err := os.Stat("../../bin/browser/ramus-browser"); err != nil {
					t.Skipf("cannot run here: the browser's programs are not there (make browser): %v", err)
				}
			case "docker":
				if out, err := exec.CommandContext(t.Context(), "docker", "image", "inspect", docker.DefaultImage,
					docker.BrowserImage).CombinedOutput(); err != nil {
					t.Skipf("cannot run here: an image is not there (make image browser): %v: %.200s", err, out)
				}
			}
			test(t, engine)
		})
	}
}

// newBrowserServer starts a server. settings are lines of the configuration's browser
// section.
func newBrowserServer(t *testing.T, engine string, settings ...string) *browserServer {
	t.Helper()
	if !slices.ContainsFunc(settings, func(s string) bool { return strings.HasPrefix(s, "dir:") }) {
		settings = append(settings, "dir: "+abs(t, "../../bin/browser"))
	}
	config := "engine: " + engine + "\nbrowser:\n  " + strings.Join(settings, "\n  ") + "\n"
	s := &browserServer{engine: engine, chatServer: newChatServer(t, config)}
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		s.environ = append(s.environ, "DOCKER_HOST="+host)
	}
	web := filepath.Join(filepath.Dir(s.data), "web")
	s.sh(filepath.Dir(s.data),
		`cp -r "$0" web && cp -r "$1" web/hostile && cd web && git init -q -b main && git add -A && git -c user.name=T -c user.email=t@example.org commit -qm web`,
		abs(t, "testdata/page"), abs(t, "testdata/hostile"))
	s.ramus("repo", "import", "web", web)
	s.start()
	s.api = client.Socket(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, s.data) })
	t.Cleanup(s.api.Close)
	return s
}

// run submits a request, waits for its end, and returns its evidence. It may be called by
// several goroutines.
func (s *browserServer) run(caller string, r record.Request) (m record.Manifest, err error) {
	ctx := s.t.Context()
	if r.Caller, err = record.ParseCaller(caller); err != nil {
		return m, err
	}
	r.Repo = "web"
	run, err := s.api.Submit(ctx, r)
	if err != nil {
		return m, err
	}
	for !run.Ended() || run.EndedAt.IsZero() {
		time.Sleep(50 * time.Millisecond)
		if run, err = s.api.Run(ctx, run.Name()); err != nil {
			return m, err
		}
	}
	for {
		m, err = s.api.Evidence(ctx, run.Name())
		var answer *route.Problem
		if !errors.As(err, &answer) || answer.Status != http.StatusNotFound {
			return m, err
		}
		time.Sleep(50 * time.Millisecond) // it has just ended
	}
}

// look is one check of the imported page, with a picture before and one after a click.
func (s *browserServer) look(caller string) (record.BrowserCheck, record.Manifest, error) {
	m, err := s.run(caller, record.Request{Task: &record.TaskCall{Name: "browser_test",
		Params: map[string]any{"check": map[string]any{
			"start": "python3 -m http.server 5173 --bind 127.0.0.1", "url": "http://127.0.0.1:5173/", "steps": []any{
				map[string]any{"screenshot": "before"},
				map[string]any{"click": "button"},
				map[string]any{"expect_text": "#count", "value": "6 open"},
			}}}}})
	if err == nil && len(m.Browser) != 1 {
		err = fmt.Errorf("%d checks: %s %s", len(m.Browser), m.State, m.Error)
	}
	if err != nil {
		return record.BrowserCheck{}, m, err
	}
	if b := m.Browser[0]; b.Verdict != record.BrowserPass {
		err = fmt.Errorf("%s: %s\n%s", b.Verdict, b.Reason, b.Log)
	}
	return m.Browser[0], m, err
}

// finish ends the server, and fails the test if anything of it remains.
func (s *browserServer) finish() {
	s.t.Helper()
	for _, f := range s.sidecars() {
		s.t.Errorf("it is left while the server runs: %s", f)
	}
	s.kill(syscall.SIGTERM)
	s.ramus("ps") // its own server removes the containers that were left warm
	for _, f := range s.remains() {
		s.t.Error(f)
	}
}

// owner returns the installation's name in the labels of its containers.
func (s *chatServer) owner() string {
	s.t.Helper()
	owner, err := os.ReadFile(filepath.Join(s.data, "hosts", "owner"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(owner))
}

// sidecars returns the names of the existing sidecars.
func (s *browserServer) sidecars() (list []string) {
	s.t.Helper()
	if s.engine == "docker" {
		return strings.Fields(s.sh(s.data, `docker ps -aq --filter "label=ramus.sidecar.owner=$0"`, s.owner()))
	}
	list, err := filepath.Glob(filepath.Join(s.data, "sandbox", "sc*"))
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

// remains returns the remains of a server that has ended.
func (s *browserServer) remains() (faults []string) {
	s.t.Helper()
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	s.sh(s.data, `for r in repos/*.git; do git -C "$r" fsck --strict --no-dangling; done`)
	for _, pattern := range []string{"live/*/*", "sandbox/s[bc]*"} {
		if left, err := filepath.Glob(filepath.Join(s.data, pattern)); err != nil || len(left) > 0 {
			fault("left: %v, %v", left, err)
		}
	}
	if s.engine == "docker" {
		if left := s.sh(s.data, `docker ps -a --filter "label=ramus.owner=$0"; docker ps -aq --filter "label=ramus.sidecar.owner=$0"`, s.owner()); strings.Count(left, "\n") > 1 {
			fault("containers that are left: %s", left)
		}
	}
	s.gone(filepath.Dir(s.data))
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || bytes.Contains(mounts, []byte(filepath.Dir(s.data))) {
		fault("mounts that are left: %s, %v", mounts, err)
	}
	return faults
}

// TestBrowserIdentical checks an unchanged tree several times. The pictures are equal to the
// last bit, for every caller and container.
func TestBrowserIdentical(t *testing.T) {
	const lanes = 2
	each := 1
	if browserFull() {
		each = 5
	}
	var mu sync.Mutex
	seen := make(map[string]map[string]int) // picture → bytes → how often
	onBrowsers(t, func(t *testing.T, engine string) {
		if engine == "docker" && !browserFull() {
			t.Skip("only with RAMUS_TEST=full: TestBrowserFourAtOnce compares pictures, too")
		}
		s := newBrowserServer(t, engine)
		var group sync.WaitGroup
		for lane := range lanes {
			group.Go(func() {
				for range each {
					b, m, err := s.look(fmt.Sprintf("run:lane-%d", lane))
					if err != nil {
						t.Error(err)
						return
					}
					for _, f := range b.Files {
						if f.Type != "image/png" {
							continue
						}
						var text bytes.Buffer
						if err := s.api.EvidenceFile(t.Context(), m.Run, "artifacts/browser/"+f.Name, &text); err != nil {
							t.Error(err)
						}
						name := engine + " " + strings.TrimPrefix(f.Name, b.Dir+"/")
						mu.Lock()
						if seen[name] == nil {
							seen[name] = make(map[string]int)
						}
						seen[name][text.String()]++
						mu.Unlock()
					}
				}
			})
		}
		group.Wait()
		for _, view := range []string{"desktop", "mobile"} {
			for _, picture := range []string{"screenshot.png", "step-01.png"} {
				name := engine + " " + view + "/" + picture
				if len(seen[name]) != 1 || sum(seen[name]) != lanes*each {
					t.Errorf("%s: %d different ones in %d checks of %d", name, len(seen[name]), sum(seen[name]), lanes*each)
				}
				t.Logf("%s: %d of %d are one", name, sum(seen[name]), lanes*each)
			}
		}
		s.finish()
	})
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// TestBrowserFourAtOnce has four callers check their page concurrently, each in its own
// container and browser. All pass within the present limits.
func TestBrowserFourAtOnce(t *testing.T) {
	const memory, callers = 1 << 30, 4
	onBrowsers(t, func(t *testing.T, engine string) {
		if engine == "sandbox" && !browserFull() {
			t.Skip("only with RAMUS_TEST=full: one engine will do")
		}
		s := newBrowserServer(t, engine, "memory: 1GiB", "pids: 256", "at_once: 4")
		begun := time.Now()
		alone, _, err := s.look("run:alone")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("alone: %s with its container, %s the check, at most %d MiB", time.Since(begun).Round(10*time.Millisecond),
			time.Duration(alone.DurationMS)*time.Millisecond, alone.MemoryPeak>>20)
		checks := make([]record.BrowserCheck, callers)
		var group sync.WaitGroup
		begun = time.Now()
		for i := range callers {
			group.Go(func() {
				var err error
				if checks[i], _, err = s.look(fmt.Sprintf("run:at-once-%d", i)); err != nil {
					t.Error(err)
				}
			})
		}
		ended := make(chan struct{})
		go func() { group.Wait(); close(ended) }()
		most := 0
		for waiting := true; waiting; {
			most = max(most, len(s.sidecars()))
			waiting = pause(ended, 100*time.Millisecond)
		}
		var peaks, times []string
		for _, c := range checks {
			if got, want := pictures(c), pictures(alone); got != want {
				t.Errorf("it looks different at once:\n%s\n%s", got, want)
			}
			peaks = append(peaks, fmt.Sprint(c.MemoryPeak>>20))
			times = append(times, (time.Duration(c.DurationMS) * time.Millisecond).String())
			if c.MemoryPeak <= 0 || c.MemoryPeak > memory {
				t.Errorf("%s: %d bytes of memory", c.Verdict, c.MemoryPeak)
			}
		}
		t.Logf("%d at once: %s with their containers, %s the checks, at most %s MiB; %d browsers were seen at a time", callers,
			time.Since(begun).Round(10*time.Millisecond), strings.Join(times, ", "), strings.Join(peaks, ", "), most)
		s.finish()
	})
}

// pictures returns the pictures of a check, by name and hash.
func pictures(c record.BrowserCheck) (list string) {
	for _, f := range c.Files {
		if f.Type == "image/png" {
			list += strings.TrimPrefix(f.Name, c.Dir) + " " + f.SHA256 + "\n"
		}
	}
	return list
}

// jsonText returns v in the syntax of a workflow or a configuration.
func jsonText(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
