package executor_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/settings"
)

// servicesPrograms are the programs of PostgreSQL and Redis on this machine.
func servicesPrograms(t *testing.T) []string {
	t.Helper()
	servers, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(servers) == 0 {
		t.Skip("cannot run here: the machine has no PostgreSQL")
	}
	dir := filepath.Dir(servers[len(servers)-1])
	list := []string{filepath.Join(dir, "psql")}
	for _, name := range []string{"postgres", "initdb", "psql", "pg_isready"} {
		list = append(list, filepath.Join(dir, name))
	}
	for _, name := range []string{"redis-server", "redis-cli"} {
		p, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("cannot run here: the machine has no Redis: %v", err)
		}
		list = append(list, p)
	}
	return list
}

// buildServices builds the images ramus/test-db and ramus/test-cache of the programs of this machine, unless they are there.
func buildServices(t *testing.T) {
	t.Helper()
	programs := servicesPrograms(t)
	if out, err := exec.Command("docker", "image", "inspect", "ramus/task:latest").CombinedOutput(); err != nil {
		t.Skipf("cannot run here: there is no image ramus/task: %s", out)
	}
	context := t.TempDir()
	if err := os.CopyFS(context, os.DirFS("testdata/services")); err != nil {
		t.Fatal(err)
	}
	inputs := sha256.New()
	for _, p := range append(programs, "testdata/services/Dockerfile", "testdata/services/db.sh") {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		inputs.Write(b)
	}
	sum := hex.EncodeToString(inputs.Sum(nil))
	known, _ := exec.Command("docker", "image", "inspect", "--format", `{{index .Config.Labels "ramus.inputs"}}`,
		"ramus/test-cache:latest").Output()
	if strings.TrimSpace(string(known)) == sum {
		return
	}
	copyPrograms(t, filepath.Join(context, "files"), programs)
	for _, target := range []string{"db", "cache"} {
		cmd := exec.Command("docker", "build", "--network", "none", "--target", target, "--label", "ramus.inputs="+sum,
			"-t", "ramus/test-"+target+":latest", context)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("docker build: %v\n%s", err, out)
		}
	}
	if out, err := exec.Command("docker", "run", "--rm", "--network", "none", "--entrypoint", "redis-server",
		"ramus/test-cache:latest", "--version").CombinedOutput(); err != nil {
		t.Skipf("cannot run here: programs of this machine do not run in ramus/task: %v %s", err, out)
	}
}

// copyPrograms copies programs, the files of PostgreSQL and the libraries that they load to a folder that is the container's /.
func copyPrograms(t *testing.T, root string, programs []string) {
	t.Helper()
	files := map[string]bool{}
	for _, dir := range []string{filepath.Dir(filepath.Dir(programs[0])), "/usr/share/postgresql"} {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.Contains(p, "/bitcode/") && !strings.HasSuffix(p, "llvmjit.so") {
				files[p] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range programs {
		files[p] = true
		out, err := exec.Command("ldd", p).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", p, err)
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) > 2 && strings.HasPrefix(f[2], "/") {
				files[f[2]] = true
			}
		}
	}
	for p := range files {
		b, err := os.ReadFile(p) // also by way of links
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, p)
		if rest, ok := strings.CutPrefix(p, "/lib/"); ok { // a link in the image
			to = filepath.Join(root, "usr/lib", rest)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// servicesWorkflow has a database and a cache of both kinds: images, and commands of the machine.
const servicesWorkflow = `
id: services
nodes:
  - id: ask
    image: ramus/test-db
    run: |
      PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
      psql -h db -U postgres -qc 'create table seen (n int)'
      for n in $(seq 20); do psql -h db -U postgres -qc "insert into seen values ($n)" & done; wait
      echo "$(psql -h db -U postgres -Atc 'select count(*), sum(n) from seen') from "{{matrix.n}} >>answer.txt
      redis-cli -h cache set n {{matrix.n}}; echo "cache: $(redis-cli -h cache get n)" >>answer.txt
    matrix: {n: [1, two]}
    services:
      db:
        image: ramus/test-db
        args: [postgres, -c, fsync=off]
        command: |
          PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
          initdb --no-sync -U postgres -A trust -D /cache/db >/dev/null && exec postgres -D /cache/db -k /tmp -c fsync=off
        ready: PATH=$(echo /usr/lib/postgresql/*/bin):$PATH; psql -h 127.0.0.1 -U postgres -c 'select 1'
        port: 5432
      cache: {image: ramus/test-cache, command: exec redis-server --save ""}
  - id: after
    run: cat answer.txt; ! getent hosts db
`

// imagesOfRamus has containers of the usual image, and allows all images whose names begin with ramus/.
func imagesOfRamus(x *executor.Executor) {
	x.Containers.Image = "ramus/task:latest"
	x.Settings = new(settings.Reader)
	x.Settings.SetBounds(settings.Bounds{Image: x.Containers.Image, Allow: settings.Allow{Images: []string{"ramus/*"}}})
}

// TestServices has a real PostgreSQL and a real Redis next to the container of a step, on both engines, and an image of its own for
// the step. Each cell of the matrix finds them empty.
func TestServices(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sandbox", "docker"} {
		t.Run(engine, func(t *testing.T) {
			servicesPrograms(t)
			if engine == "docker" {
				buildServices(t)
			}
			var opts func(*executor.Executor)
			if engine == "docker" {
				opts = imagesOfRamus
			}
			w := newWorldOn(t, engine, opts)
			r := w.submit(record.Request{Workflow: servicesWorkflow})
			if r.State != record.StateComplete {
				t.Fatalf("%s %s %s\n%s", r.State, r.Reason, r.Error, w.journal(r.Name()))
			}
			want := "20|210 from 1\ncache: 1\n20|210 from two\ncache: two\n"
			if out := w.stdout(r.Name(), "after"); out != want {
				t.Errorf("answer %q, want %q", out, want)
			}
			if n := strings.Count(w.journal(r.Name()), "services are ready: db:5432, cache:6379"); n != 2 {
				t.Errorf("services were ready %d times:\n%s", n, w.journal(r.Name()))
			}
			m, err := w.x.Manifest(t.Context(), r.Name())
			if engine == "docker" && (err != nil || !strings.HasPrefix(m.Image, "ramus/task")) {
				t.Errorf("the last step's image is %s: %v", m.Image, err)
			}
		})
	}
}

// TestServicesAcrossRestart stops the server in the middle of a command that works with a service. The next server connects both
// again, and the service has kept its data.
func TestServicesAcrossRestart(t *testing.T) {
	t.Parallel()
	servicesPrograms(t)
	w := newWorld(t, nil)
	r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "run:services"), Repo: "demo", Workflow: `
id: restart
nodes:
  - id: count
    run: |
      redis-cli -h cache incr n; echo begun; until test -e go; do sleep 0.05; done; rm go
      redis-cli -h cache incr n
    services: {cache: {command: exec redis-server --save ""}}
`})
	if err != nil {
		t.Fatal(err)
	}
	w.until(r.Name(), printed("begun"))
	w.stop(true)
	w.start()
	w.release(r, "go")
	if r = w.ended(r.Name()); r.State != record.StateComplete || !strings.HasSuffix(w.stdout(r.Name(), "count"), "begun\n2\n") {
		t.Errorf("%s %s %s: %q\n%s", r.State, r.Reason, r.Error, w.stdout(r.Name(), "count"), w.journal(r.Name()))
	}
	if out := w.journal(r.Name()); strings.Contains(out, "could not be connected") {
		t.Errorf("the journal: %s", out)
	}
}

// TestImagesThatAreNotAllowed refuses images of steps and of their services that the configuration does not list.
func TestImagesThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, imagesOfRamus)
	for text, want := range map[string]string{
		"image: other/image": "step wants the image other/image: the server's `allow.images` does not list it",
		"services: {db: {image: 'other/image:1', command: 'true'}}": "step wants the image other/image:1: the server's `allow.images`",
		"image: 'ramus/task:latest'":                                "",
	} {
		r := w.submit(record.Request{Workflow: fmt.Sprintf("id: a\nnodes:\n  - {id: step, run: 'true', %s}\n", text)})
		if want == "" && r.State != record.StateComplete || want != "" &&
			(r.Reason != record.ReasonBadInput || !strings.Contains(r.Error, want)) {
			t.Errorf("%s: %s %s %s", text, r.State, r.Reason, r.Error)
		}
	}
}
