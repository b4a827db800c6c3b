// Package containerstest is the test that every [containers.Engine] has to pass.
//
// It starts real containers and looks at them from inside, as the hostile
// command would, and from outside. At its end nothing may be left of them:
// no process, mount, control group, folder or socket.
package containerstest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
)

// Options describe an engine to the suite.
type Options struct {
	// Image to start containers from.
	Image string
	// Lacks names abilities ([containers.AbilityMemory] and so on) that the engine does not have on this machine. Their
	// tests are left out, and the log names them.
	Lacks []string
	// Omit names tests of the suite that another function of this package runs for the engine.
	Omit []string
	// BrowserImage is an image with Chromium. If it is empty or does not exist, its test is left out.
	BrowserImage string
	// Left, if not nil, names the remains of an owner's sidecars in the engine.
	Left func(owner string) []string
	// Many is the number of containers that are started at once. The default is 20.
	Many int
}

// Browser tests a real browser as a sidecar, for an engine whose sidecars have one image. See [Run], of which it is a part.
func Browser(t *testing.T, open func(t *testing.T) containers.Engine, o Options) {
	s := newSuite(t, open, o)
	t.Cleanup(func() {
		if err := s.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	s.declared()
	testSidecarBrowser(s, t)
}

// Run tests an engine. Each call of open returns a new value over the same state, as after a restart of the process.
// open must not close it.
func Run(t *testing.T, open func(t *testing.T) containers.Engine, o Options) {
	s := newSuite(t, open, o)
	before := runtime.NumGoroutine()
	for _, name := range o.Lacks {
		t.Logf("not given by engine %s here, and not tested: %s", s.engine.Name(), name)
	}
	abilities := s.declared()
	for name, has := range abilities {
		if !has {
			t.Logf("not an ability of engine %s, and not tested: %s", s.engine.Name(), name)
		}
	}
	for _, test := range []struct {
		name  string
		needs string // a limit or feature of the machine, or an ability
		run   func(*suite, *testing.T)
	}{
		{"Commands", "", testCommands},
		{"Output", "", testOutput},
		{"Terminal", "", testTerminal},
		{"Files", "", testFiles},
		{"Door", "", testDoor},
		{"Guard", "", testGuard},
		{"Ports", "", testPorts},
		{"Forward", "", testForward},
		{"Names", abilityNames, testNames},
		{"Timeout", "", testTimeout},
		{"Privileges", "", testPrivileges},
		{"Network", "", testNetwork},
		{"ReadOnly", "", testReadOnly},
		{"HostOutOfSight", "", testHostOutOfSight},
		{"RunnerOutOfReach", "", testRunnerOutOfReach},
		{"KillAll", "", testKillAll},
		{"MemoryHog", containers.AbilityMemory, testMemoryHog},
		{"ForkStorm", "", testForkStorm},
		{"TmpSize", containers.AbilityTmpSize, testTmpSize},
		{"FileSize", "", testFileSize},
		{"OutputSize", "", testOutputSize},
		{"DiskFull", "", testDiskFull},
		{"List", "", testList},
		{"AttachAgain", "", testAttachAgain},
		{"InputCut", "", testInputCut},
		{"Adopt", "", testAdopt},
		{"Process", abilityProcesses, testProcess},
		{"Volumes", abilityVolumes, testVolumes},
		{"Assign", abilityAssigner, testAssign},
		{"RemoveInMidCommand", "", testRemoveInMidCommand},
		{"StartGivenUp", "", testStartGivenUp},
		{"ManyAtOnce", "", testManyAtOnce},
		{"SidecarCommands", containers.AbilitySidecar, testSidecarCommands},
		{"SidecarStreams", containers.AbilitySidecar, testSidecarStreams},
		{"SidecarNetwork", containers.AbilitySidecar, testSidecarNetwork},
		{"SidecarBrowser", containers.AbilitySidecar, testSidecarBrowser},
		{"SidecarApart", containers.AbilitySidecar, testSidecarApart},
		{"SidecarMemory", containers.AbilityMemory, testSidecarMemory},
		{"SidecarPIDs", containers.AbilityPIDs, testSidecarPIDs},
		{"SidecarCancel", containers.AbilitySidecar, testSidecarCancel},
		{"SidecarGone", containers.AbilitySidecar, testSidecarGone},
		{"SidecarSweep", containers.AbilitySidecar, testSidecarSweep},
		{"SidecarMany", containers.AbilitySidecar, testSidecarMany},
	} {
		if has, known := abilities[test.needs]; known && !has || slices.Contains(o.Lacks, test.needs) || slices.Contains(o.Omit, test.name) {
			continue // named above, or run elsewhere
		}
		if strings.HasPrefix(test.name, "Sidecar") && !abilities[abilitySidecars] {
			continue
		}
		t.Run(test.name, func(t *testing.T) { test.run(s, t) })
	}
	t.Run("NothingLeft", s.nothingLeft)
	if err := s.engine.Close(); err != nil {
		t.Error(err)
	}
	noGoroutinesLeft(t, before)
}

// newSuite opens an engine for tests. It skips the test if the engine cannot start containers here.
func newSuite(t *testing.T, open func(t *testing.T) containers.Engine, o Options) *suite {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if o.Many == 0 {
		o.Many = 20
	}
	s := &suite{
		Options: o, open: open, engine: open(t), signer: signer,
		owner: "owner-" + rand.Text(), mark: "mark" + rand.Text(), dir: t.TempDir(),
	}
	if err := s.engine.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: engine %s: %v", s.engine.Name(), err)
	}
	return s
}

// Names of the abilities, for the table and the log.
const (
	abilitySidecars  = "containers.Sidecars"
	abilityProcesses = "containers.Processes and containers.TaskUser"
	abilityAssigner  = "containers.Assigner"
	abilityVolumes   = "containers.Volumes"
	abilityNames     = "containers.Names"
)

// declared reports which abilities the engine has, and remembers them for the tests.
func (s *suite) declared() map[string]bool {
	var user bool
	s.sidecars, _ = s.engine.(containers.Sidecars)
	s.processes, _ = s.engine.(containers.Processes)
	s.assigner, _ = s.engine.(containers.Assigner)
	s.volumes, _ = s.engine.(containers.Volumes)
	s.user, user = s.engine.(containers.TaskUser)
	_, names := s.engine.(containers.Names)
	return map[string]bool{
		abilitySidecars:  s.sidecars != nil,
		abilityProcesses: s.processes != nil && user,
		abilityAssigner:  s.assigner != nil,
		abilityVolumes:   s.volumes != nil,
		abilityNames:     names,
	}
}

// suite is one run over one engine.
type suite struct {
	Options
	open   func(*testing.T) containers.Engine
	engine containers.Engine
	signer ssh.Signer

	// Abilities of engine. They are nil if the engine lacks them.
	sidecars  containers.Sidecars
	processes containers.Processes
	user      containers.TaskUser
	assigner  containers.Assigner
	volumes   containers.Volumes

	owner string
	mark  string // in the environment of every container, to find its processes by
	dir   string

	mu   sync.Mutex // guards the below
	n    int
	ids  []string
	dirs []string
}

// box is one container under test.
type box struct {
	s    *suite
	spec containers.Spec
	c    containers.Container
	pin  *memoryPin
	host *containers.Host
}

type memoryPin struct {
	mu  sync.Mutex
	key []byte // guarded by mu
}

func (p *memoryPin) Key() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key
}

func (p *memoryPin) Store(key []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = key
	return nil
}

func (s *suite) spec(l containers.Limits) containers.Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	name := "suite-" + strings.ToLower(rand.Text()[:8])
	dir := filepath.Join(s.dir, name)
	s.dirs = append(s.dirs, dir)
	return containers.Spec{
		Key: "run:" + name, Owner: s.owner, Image: s.Image, Dir: dir,
		ClientKey: string(ssh.MarshalAuthorizedKey(s.signer.PublicKey())),
		Env:       []string{"SUITE_MARK=" + s.mark},
		Limits:    l, Labels: map[string]string{"ramus.test": name},
	}
}

// start makes a container that is removed when the test ends.
func (s *suite) start(t *testing.T, l containers.Limits) *box {
	t.Helper()
	b := s.startSpec(t, s.spec(l))
	b.dial(t, s.engine, nil)
	return b
}

func (s *suite) startSpec(t *testing.T, spec containers.Spec) *box {
	t.Helper()
	if err := os.Mkdir(spec.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := s.engine.Start(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.ids = append(s.ids, c.ID)
	s.mu.Unlock()
	b := &box{s: s, spec: spec, c: c, pin: &memoryPin{}}
	t.Cleanup(func() {
		if b.host != nil {
			b.host.Close()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.engine.Remove(ctx, c.ID); err != nil {
			t.Error(err)
		}
	})
	return b
}

// run runs a shell script to its end.
func (b *box) run(t *testing.T, script string) (stdout, stderr string, exit containers.Exit) {
	t.Helper()
	return b.command(t, containers.Command{Shell: script})
}

func (b *box) command(t *testing.T, c containers.Command) (stdout, stderr string, exit containers.Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if c.ID == "" {
		c.ID = rand.Text()
	}
	p, err := b.host.Start(ctx, c)
	if err != nil {
		t.Fatalf("cannot start %q: %v", c.Shell, err)
	}
	var out, errOut bytes.Buffer
	exit, err = p.Output(&out, &errOut)
	if err != nil {
		t.Fatalf("cannot follow %q: %v", c.Shell, err)
	}
	return out.String(), errOut.String(), exit
}

// ok runs a script that must succeed and returns its trimmed stdout.
func (b *box) ok(t *testing.T, script string) string {
	t.Helper()
	out, errOut, exit := b.run(t, script)
	if exit.Code != 0 || exit.Reason != "" {
		t.Fatalf("%s\nexit %+v\nstdout: %s\nstderr: %s", script, exit, out, errOut)
	}
	return strings.TrimSpace(out)
}

// usable checks that the container still does its work.
func (b *box) usable(t *testing.T) {
	t.Helper()
	if got := b.ok(t, "echo still here"); got != "still here" {
		t.Errorf("after all that the container says %q", got)
	}
}

// nothingLeft looks for traces of every container that was started.
func (s *suite) nothingLeft(t *testing.T) {
	list, err := s.engine.List(t.Context(), s.owner)
	if err != nil {
		t.Error(err)
	}
	for _, c := range list {
		t.Errorf("container %s (%s) is left", c.ID, c.Key)
	}
	for _, dir := range s.dirs {
		// The files of a container belong to the owner of the folder. See [containers.Engine].
		for _, name := range []string{"work", "artifacts", "cache", "spool"} {
			if err := layer.RemoveTree(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
		filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if p != dir {
				t.Errorf("%s is left", p)
			}
			return nil
		})
	}
	eventually(t, "processes of containers are left", func() []string { return s.marked("SUITE_MARK=" + s.mark) })
	if s.Left != nil {
		if left := s.Left(s.owner); len(left) > 0 {
			t.Errorf("sidecars are left: %s", left)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, s.dir) {
			t.Errorf("a mount is left: %s", line)
		}
	}
	eventually(t, "control groups are left", func() []string {
		var left []string
		filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil
			}
			for _, id := range s.ids {
				if strings.Contains(d.Name(), id) {
					left = append(left, p)
				}
			}
			return nil
		})
		return left
	})
}

// marked finds processes by a part of their command line or environment.
func (s *suite) marked(mark string) []string {
	var left []string
	self := os.Getpid()
	for _, pid := range processes() {
		if pid == self {
			continue
		}
		for _, file := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(procFile(pid, file))
			if err == nil && bytes.Contains(b, []byte(mark)) {
				left = append(left, string(bytes.ReplaceAll(b[:min(len(b), 200)], []byte{0}, []byte{' '})))
				break
			}
		}
	}
	return left
}

// eventually gives the kernel some time to finish.
func eventually(t *testing.T, what string, left func() []string) {
	t.Helper()
	var last []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if last = left(); len(last) == 0 {
			return
		}
	}
	t.Errorf("%s:\n%s", what, strings.Join(last, "\n"))
}

func noGoroutinesLeft(t *testing.T, before int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	b := make([]byte, 1<<20)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, b[:runtime.Stack(b, true)])
}

func isGone(err error) bool { return errors.Is(err, containers.ErrGone) }
