package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/nodes/hetzner"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/clocktest"
	"github.com/ramus-dev/ramus/internal/golden"
	"github.com/ramus-dev/ramus/internal/standin/cloudtest"
	"github.com/ramus-dev/ramus/internal/standin/hetznertest"
)

// world is a server with nodes at a cloud, and a clock that tests move.
type world struct {
	*nodes.Nodes
	t     *testing.T
	cloud *hetznertest.Server
	clock *clocktest.Clock
}

func open(t *testing.T) *world {
	cloud := hetznertest.New("secret")
	t.Cleanup(cloud.Close)
	w := &world{t: t, cloud: cloud, clock: clocktest.At(time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC))}
	w.Nodes = &nodes.Nodes{Dir: filepath.Join(t.TempDir(), "nodes")}
	w.reopen()
	return w
}

// reopen reads the book as the next process would.
func (w *world) reopen() {
	w.t.Helper()
	w.Nodes = &nodes.Nodes{Cluster: w.Cluster, Programs: w.Programs, Dir: w.Dir, URL: "https://ramus.example.org", Size: "small", Location: "nbg1", Most: 2,
		Provider: hetzner.New(hetzner.Options{Token: "secret", Endpoint: w.cloud.URL, Name: "ramus", Image: "debian-13",
			Wait: time.Millisecond}),
		Now: w.clock.Now}
	if err := w.Open(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) add() nodes.Node {
	w.t.Helper()
	n, err := w.Add(w.t.Context(), nodes.Wish{By: "ada"})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// token returns the token in the description of the last machine.
func (w *world) token() string {
	w.t.Helper()
	all := w.cloud.Machines()
	m := regexp.MustCompile(`/api/bootstrap/(\w+)`).FindStringSubmatch(all[len(all)-1].UserData)
	if m == nil {
		w.t.Fatal("the description has no token")
	}
	return m[1]
}

// run makes a node whose machine is ready.
func (w *world) run() (nodes.Node, string) {
	w.t.Helper()
	n := w.add()
	b, err := w.Redeem(w.t.Context(), w.token(), "192.0.2.1")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.Ready(b.Node, b.CallbackToken); err != nil {
		w.t.Fatal(err)
	}
	return n, b.CallbackToken
}

func (w *world) is(id string, state nodes.State, health nodes.Health) {
	w.t.Helper()
	n, err := w.Get(id)
	if err != nil || n.State != state || n.Health != health {
		w.t.Fatalf("node %+v, error %v: want %s, %q", n, err, state, health)
	}
}

func (w *world) machines(want int) {
	w.t.Helper()
	if got := w.cloud.Machines(); len(got) != want {
		w.t.Fatalf("%d machines, want %d: %+v", len(got), want, got)
	}
}

func (w *world) sweep() {
	w.t.Helper()
	if err := w.Sweep(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// TestLife takes a node from its order to its end, with a new process before each step.
func TestLife(t *testing.T) {
	w := open(t)
	n := w.add()
	w.is(n.ID, nodes.StateCreating, "")
	w.reopen()
	b, err := w.Redeem(w.t.Context(), w.token(), "192.0.2.1")
	if err != nil || b.Node != n.ID {
		t.Fatal(b, err)
	}
	w.reopen()
	if _, err := w.Redeem(w.t.Context(), w.token(), "192.0.2.1"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a second redemption: %v", err)
	}
	for _, err := range []error{w.Ready(n.ID, "wrong"), w.Beat(n.ID, ""), w.BootLog("node-x", b.CallbackToken, "x")} {
		if !errors.Is(err, nodes.ErrToken) {
			t.Errorf("a wrong token: %v", err)
		}
	}
	if err := w.Ready(n.ID, b.CallbackToken); err != nil {
		t.Fatal(err)
	}
	w.is(n.ID, nodes.StateRunning, nodes.HealthHealthy)
	w.clock.Add(4 * time.Minute)
	w.is(n.ID, nodes.StateRunning, nodes.HealthStale)
	w.clock.Add(6 * time.Minute)
	w.is(n.ID, nodes.StateRunning, nodes.HealthUnhealthy)
	if err := w.Beat(n.ID, b.CallbackToken); err != nil {
		t.Fatal(err)
	}
	w.is(n.ID, nodes.StateRunning, nodes.HealthHealthy)
	w.sweep()
	if _, err := w.Stop(t.Context(), n.ID, "ada"); err != nil {
		t.Fatal(err)
	}
	w.reopen()
	w.is(n.ID, nodes.StateStopped, "")
	w.machines(0)
	if err := w.Beat(n.ID, b.CallbackToken); !errors.Is(err, nodes.ErrToken) {
		t.Errorf("the token works after the end: %v", err)
	}
	if _, err := w.Remove(t.Context(), n.ID, "ada"); err != nil {
		t.Fatal(err)
	}
	w.reopen()
	if got := w.List(); len(got) != 0 {
		t.Errorf("nodes %+v", got)
	}
}

// TestBookHasNoToken looks for the tokens in the files of the book.
func TestBookHasNoToken(t *testing.T) {
	w := open(t)
	n := w.add()
	first := w.token()
	look := func(tokens ...string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(w.Dir, n.ID+".json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range tokens {
			if strings.Contains(string(b), token) {
				t.Error("the book has a token")
			}
		}
	}
	look(first)
	b, err := w.Redeem(t.Context(), first, "")
	if err != nil {
		t.Fatal(err)
	}
	look(first, b.CallbackToken)
}

// TestLateToken checks that a token ends after five minutes, and its machine after fifteen.
func TestLateToken(t *testing.T) {
	w := open(t)
	n := w.add()
	w.clock.Add(5 * time.Minute)
	if _, err := w.Redeem(w.t.Context(), w.token(), ""); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a token after five minutes: %v", err)
	}
	w.sweep()
	w.machines(1)
	w.clock.Add(11 * time.Minute)
	w.sweep()
	w.is(n.ID, nodes.StateError, "")
	w.machines(0)
}

// TestCloudFails has the cloud fail in each way.
func TestCloudFails(t *testing.T) {
	for name, f := range map[string]cloudtest.Faults{
		"down": {Down: true}, "full": {Full: true}, "wrong": {Wrong: true}, "limited": {Limit: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := open(t)
			if name == "limited" {
				_, _ = w.Leaked(t.Context())
			}
			w.cloud.Fail(f)
			if name == "limited" {
				_, _ = w.Leaked(t.Context())
			}
			n, err := w.Add(t.Context(), nodes.Wish{By: "ada"})
			if !errors.Is(err, nodes.ErrCloud) {
				t.Fatalf("error %v", err)
			}
			state := nodes.StateError
			if name == "down" || name == "wrong" || name == "limited" { // it may have made the machine
				state = nodes.StateStopping
			}
			w.is(n.ID, state, "")
			w.cloud.Fail(cloudtest.Faults{})
			w.clock.Add(time.Minute)
			w.sweep()
			w.is(n.ID, nodes.StateError, "")
			w.machines(0)
			w.add() // the failed one does not count
		})
	}
}

// TestLostAnswer checks that an answer that was lost makes no second machine.
func TestLostAnswer(t *testing.T) {
	w := open(t)
	w.cloud.Fail(cloudtest.Faults{Lose: true})
	n, err := w.Add(t.Context(), nodes.Wish{By: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	w.machines(1)
	w.is(n.ID, nodes.StateCreating, "")
}

// TestStopWithoutCloud checks that a node whose machine could not be removed is removed later.
func TestStopWithoutCloud(t *testing.T) {
	w := open(t)
	n, _ := w.run()
	w.cloud.Fail(cloudtest.Faults{Down: true})
	if _, err := w.Stop(t.Context(), n.ID, "ada"); !errors.Is(err, nodes.ErrCloud) {
		t.Fatalf("error %v", err)
	}
	w.reopen()
	w.is(n.ID, nodes.StateStopping, "")
	w.cloud.Fail(cloudtest.Faults{})
	w.sweep() // too early
	w.is(n.ID, nodes.StateStopping, "")
	w.clock.Add(time.Minute)
	w.sweep()
	w.is(n.ID, nodes.StateStopped, "")
	w.machines(0)
}

// TestLeakedCounts has a machine that cannot be removed count, and be removed as soon as the cloud does it.
func TestLeakedCounts(t *testing.T) {
	w := open(t)
	n := w.add()
	w.clock.Add(16 * time.Minute) // it does not become ready
	w.cloud.Fail(cloudtest.Faults{Locked: true})
	for range 6 {
		_ = w.Sweep(t.Context())
		w.clock.Add(time.Hour)
	}
	w.is(n.ID, nodes.StateStopping, "")
	if is, _ := w.Get(n.ID); !strings.Contains(is.Error, "not ready") {
		t.Errorf("its error is %q", is.Error)
	}
	if h, _ := w.History(n.ID); len(h.Events) > 6 {
		t.Errorf("%d events: %+v", len(h.Events), h.Events)
	}
	w.machines(1)
	w.add()
	if _, err := w.Add(t.Context(), nodes.Wish{By: "ada"}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("three machines, and nodes.most is 2: %v", err)
	}
	w.cloud.Fail(cloudtest.Faults{})
	w.sweep()
	w.is(n.ID, nodes.StateError, "")
	w.machines(1)
}

// TestBookIsFull takes nodes out of the book that have ended.
func TestBookIsFull(t *testing.T) {
	w := open(t)
	for i := range 1000 {
		text := fmt.Sprintf(`{"id":"node-%d","state":"error","created":"2026-11-01T00:00:00Z","events":[{"at":%q,"kind":"error"}]}`, i,
			w.clock.Now().Add(time.Duration(i)*time.Second).Format(time.RFC3339))
		if err := os.WriteFile(filepath.Join(w.Dir, fmt.Sprintf("node-%d.json", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.reopen()
	n := w.add()
	w.is(n.ID, nodes.StateCreating, "")
	if _, err := w.Get("node-0"); !errors.Is(err, record.ErrNotFound) || len(w.List()) != 1000 {
		t.Errorf("%d nodes; the one that ended first: %v", len(w.List()), err)
	}
	if _, err := w.Stop(t.Context(), n.ID, "ada"); err != nil {
		t.Fatal(err)
	}
	w.clock.Add(31 * 24 * time.Hour)
	w.sweep()
	if len(w.List()) != 0 {
		t.Errorf("%d nodes that ended a month ago", len(w.List()))
	}
}

// TestGoneAndLeaked checks that a machine without a node is named, also on a later page, and a node without a machine is
// in error.
func TestGoneAndLeaked(t *testing.T) {
	w := open(t)
	n, _ := w.run()
	for range 55 {
		w.cloud.Add("other-"+strings.Repeat("x", len(w.cloud.Machines())), map[string]string{"ramus-server": "ramus"})
	}
	w.cloud.Add("stranger", map[string]string{"ramus-server": "another"})
	leaked, err := w.Leaked(t.Context())
	if err != nil || len(leaked) != 55 {
		t.Fatalf("%d leaked machines, error %v", len(leaked), err)
	}
	w.cloud.Remove("ramus-" + n.ID)
	w.sweep()
	w.is(n.ID, nodes.StateError, "")
	w.machines(56)
}

// TestMost checks the bound, and that wrong orders ask the cloud for nothing.
func TestMost(t *testing.T) {
	w := open(t)
	w.add()
	w.add()
	w.cloud.Fail(cloudtest.Faults{})
	if _, err := w.Add(t.Context(), nodes.Wish{}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("a third node: %v", err)
	}
	for _, o := range [][2]string{{"huge", "nbg1"}, {"small", "moon"}} {
		if _, err := w.Add(t.Context(), nodes.Wish{Size: o[0], Location: o[1]}); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("%v: %v", o, err)
		}
	}
	if got := w.cloud.Requests(); got != 0 {
		t.Errorf("%d requests", got)
	}
}

// crashed is a cloud whose answer never reaches a process that is killed.
type crashed struct{ nodes.Provider }

func (c crashed) Create(ctx context.Context, o nodes.Order) (nodes.Machine, error) {
	_, _ = c.Provider.Create(ctx, o)
	panic("killed")
}

// TestCrash kills the process between the order and the book. The next one finds the machine by its label.
func TestCrash(t *testing.T) {
	w := open(t)
	w.Provider = crashed{w.Provider}
	func() {
		defer func() { _ = recover() }()
		_, _ = w.Add(t.Context(), nodes.Wish{By: "ada"})
	}()
	w.reopen()
	w.sweep()
	all := w.List()
	if len(all) != 1 || all[0].Server == "" || all[0].State != nodes.StateCreating {
		t.Fatalf("nodes %+v", all)
	}
	if _, err := w.Redeem(w.t.Context(), w.token(), ""); err != nil {
		t.Error(err)
	}
}

// TestSchema has cloud-init itself check a description.
func TestSchema(t *testing.T) {
	program := os.Getenv("RAMUS_CLOUD_INIT")
	if program == "" {
		program, _ = exec.LookPath("cloud-init")
	}
	if program == "" {
		t.Skip("cannot run here: there is no cloud-init")
	}
	files, err := filepath.Glob("testdata/golden/cloud-init*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		out, err := exec.Command(program, "schema", "--config-file", file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", file, err, out)
		}
	}
}

// TestRules has nftables read the rules of the firewall of each description, without setting them.
func TestRules(t *testing.T) {
	program, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("cannot run here: there is no nft")
	}
	if os.Getuid() != 0 {
		t.Skip("cannot run here: nft checks rules as root only")
	}
	files, err := filepath.Glob("testdata/golden/cloud-init*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Files []struct{ Path, Content string } `yaml:"write_files"`
		}
		if err := yaml.Unmarshal(b, &d); err != nil {
			t.Fatal(err)
		}
		checked := 0
		for _, f := range d.Files {
			if f.Path != "/etc/nftables.conf" {
				continue
			}
			checked++
			// A network of its own, because a check reads the rules that are set.
			cmd := exec.Command("unshare", "--net", program, "-c", "-f", "-")
			cmd.Stdin = strings.NewReader(f.Content)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s\n%s", file, err, out, f.Content)
			}
		}
		if checked != 1 {
			t.Errorf("%s has %d sets of rules", file, checked)
		}
	}
}

// stopped is a cloud that is slow, so that a person stops the node before its machine is made.
type stopped struct {
	nodes.Provider
	w *world
}

func (s stopped) Create(ctx context.Context, o nodes.Order) (nodes.Machine, error) {
	if _, err := s.w.Stop(ctx, o.Node, "ada"); err != nil {
		s.w.t.Error(err)
	}
	return s.Provider.Create(ctx, o)
}

// TestStopBeforeMachine checks that a node that was stopped while its machine was made keeps none.
func TestStopBeforeMachine(t *testing.T) {
	w := open(t)
	w.Provider = stopped{w.Provider, w}
	if _, err := w.Add(t.Context(), nodes.Wish{By: "ada"}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("error %v", err)
	}
	w.machines(0)
	w.is(w.List()[0].ID, nodes.StateStopped, "")
}

// TestDescribe compares a description with its file, and refuses values that mean something to a shell.
func TestDescribe(t *testing.T) {
	d := nodes.Description{Node: "node-a", URL: "https://ramus.example.org/", Token: "ONCE", Firewall: true,
		Ranges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}}
	got, err := nodes.Describe(d)
	if err != nil {
		t.Fatal(err)
	}
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(got), &parsed); err != nil {
		t.Error(err)
	}
	golden.Compare(t, "cloud-init.yaml", got)
	for _, join := range []nodes.Join{nodes.JoinKubelet, nodes.JoinK3s} {
		d := d
		d.Join, d.Install = join, "#!/bin/sh\necho\n"
		member, err := nodes.Describe(d)
		if err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, "cloud-init-"+string(join)+".yaml", member)
	}
	if strings.Count(got, d.Token) != 1 {
		t.Error("the token is not in one place")
	}
	for _, bad := range []nodes.Description{{Node: "a b", URL: d.URL, Token: "x"},
		{Node: "a", URL: "https://a/$(id)", Token: "x"}, {Node: "a", URL: "ftp://a", Token: "x"}, {Node: "a", URL: d.URL, Token: "x\ny"}, {Node: "a", URL: d.URL}} {
		if _, err := nodes.Describe(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
