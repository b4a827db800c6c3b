package executor_test

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/settings"
)

// newDevWorld returns a world on Docker that builds images of the base, with the program of @devcontainers/cli.
func newDevWorld(t *testing.T) *world {
	t.Helper()
	program, err := exec.LookPath("devcontainer")
	if err != nil {
		program, err = filepath.Abs("../bin/devcontainer/node_modules/.bin/devcontainer")
		if err == nil {
			_, err = os.Stat(program)
		}
	}
	if err != nil {
		t.Skipf("cannot run here: there is no devcontainer program; make setup fetches it: %v", err)
	}
	if out, err := exec.Command("docker", "image", "inspect", "ramus/task:latest").CombinedOutput(); err != nil {
		t.Skipf("cannot run here: there is no image ramus/task: %s", out)
	}
	t.Cleanup(func() { // after the containers are gone
		out, _ := exec.Command("docker", "image", "ls", "--quiet", "ramus/dev-demo").Output()
		for id := range strings.FieldsSeq(string(out)) {
			// The parents of the image may be those of a build of another test.
			_ = exec.Command("docker", "rmi", "--no-prune", "--force", id).Run()
		}
	})
	return newWorldOn(t, "docker", func(x *executor.Executor) {
		x.Containers.Image, x.Containers.Devcontainer = "ramus/task:latest", program
		x.Settings = new(settings.Reader)
		x.Settings.SetBounds(settings.Bounds{Image: x.Containers.Image, Allow: settings.Allow{Build: true}})
	})
}

// base changes the base of the repository.
func (w *world) base(files map[string]string) {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "clone")
	w.sh(w.t.TempDir(), "git clone -q "+filepath.Join(w.data, "repos", "demo.git")+" "+dir)
	for name, content := range files {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	w.sh(dir, "git add -A && git -c user.name=T -c user.email=t@example.com commit -qm base && git push -q origin HEAD:main")
}

// TestDevcontainer has containers of an image that the base's devcontainer.json describes, built by the official program. What would
// open the walls of a container is refused. A build that fails leads to the usual image with the log.
func TestDevcontainer(t *testing.T) {
	t.Parallel()
	w := newDevWorld(t)
	w.base(map[string]string{
		".devcontainer/devcontainer.json": `{
			// An image with a feature of the repository.
			"image": "ramus/task:latest",
			"features": {"./tool": {"word": "feature"}},
			"containerEnv": {"FROM_FILE": "${containerWorkspaceFolder}", "HOST_HOME": "${localEnv:HOME}"},
			"postCreateCommand": "echo created > /cache/created",
			"forwardPorts": [3000],
			"mounts": ["source=/,target=/host,type=bind"], "privileged": true, "runArgs": ["--network=host"],
			"initializeCommand": "touch /tmp/ramus-initialized",
		}`,
		".devcontainer/tool/devcontainer-feature.json": `{"id": "tool", "version": "1.0.0", "options": {"word": {"type": "string", "default": "x"}}}`,
		".devcontainer/tool/install.sh": "#!/bin/sh\nprintf '#!/bin/sh\\necho a '\"$WORD\" > /usr/local/bin/tool && chmod 755 /usr/local/bin/tool\n" +
			"# " + rand.Text() + "\n", // no earlier run left this image
	})
	res, out, _ := w.exec("run:dev",
		`tool; cat /cache/created; echo "$FROM_FILE,$HOST_HOME"; ls -d /host; id -u; echo x >made`)
	if want := "a feature\ncreated\n/work,\n1000\n"; out != want || res.Commit == "" {
		t.Errorf("%q, want %q: %+v\n%s", out, want, res, w.journal(res.Run))
	}
	journal := w.journal(res.Run)
	for _, want := range []string{"builds the image of .devcontainer/devcontainer.json",
		"initializeCommand, mounts, privileged, runArgs: a container keeps its walls"} {
		if strings.Count(journal, want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, journal)
		}
	}
	if _, err := os.Stat("/tmp/ramus-initialized"); err == nil {
		t.Error("a command ran on the host")
	}
	run, err := w.x.Run(t.Context(), res.Run)
	if err != nil || !strings.HasPrefix(run.Image, "ramus/dev-demo:") {
		t.Errorf("the image is %s, %v", run.Image, err)
	}
	// The next command works in the same container. The branch under work does not change the image.
	res, out, _ = w.exec("run:dev", "rm -r .devcontainer; tool")
	if out != "a feature\n" || strings.Contains(w.journal(res.Run), "builds the image") {
		t.Errorf("%q\n%s", out, w.journal(res.Run))
	}

	w.base(map[string]string{
		".devcontainer/devcontainer.json": `{"build": {"dockerfile": "Dockerfile"}, "postCreateCommand": "exit 1"}`,
		".devcontainer/Dockerfile":        "FROM ramus/task:latest\nRUN echo the build is broken; exit 3\n",
	})
	res, out, _ = w.exec("run:broken", "cat /cache/image-build.log; echo works")
	if !strings.Contains(out, "the build is broken") || !strings.HasSuffix(out, "works\n") {
		t.Errorf("the log: %q", out)
	}
	if journal := w.journal(res.Run); !strings.Contains(journal, "could not be built") ||
		!strings.Contains(journal, "the build is broken") {
		t.Errorf("the journal: %s", journal)
	}
	if run, err = w.x.Run(t.Context(), res.Run); err != nil || !strings.HasPrefix(run.Image, "ramus/task") ||
		run.State != record.StateComplete {
		t.Errorf("the image is %s, %v", run.Image, err)
	}

	// A Dockerfile that works, with its context. The caller's container is replaced.
	w.base(map[string]string{
		".devcontainer/devcontainer.json": `{"build": {"dockerfile": "Dockerfile", "context": "..", "args": {"WORD": "argument"}}}`,
		".devcontainer/Dockerfile":        "FROM ramus/task:latest\nARG WORD\nUSER root\nCOPY greeting.txt /greeting\nRUN echo $WORD >> /greeting\n",
	})
	if _, out, _ = w.exec("run:broken", "cat /greeting"); out != "hello\nargument\n" {
		t.Errorf("after the build: %q", out)
	}
}

// TestDevcontainerIsRefused does not use a devcontainer.json that the server does not allow, or that has a mistake, and tells it once.
func TestDevcontainerIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, imagesOfRamus)
	for text, want := range map[string]string{
		`{"image": "node:22", "postCreateCommand": "exit 1"}`:          "the image node:22 is not used: the server's `allow.images` does not list it",
		`{"image": "ramus/task:latest", "features": {"./tool": {}}}`:   "its image is not built: the server's `allow.build` does not allow it",
		`{"image": "ramus/task:latest", "image": "ramus/task:latest"}`: ".devcontainer/devcontainer.json:1:39: the key \"image\" is there twice",
	} {
		w.base(map[string]string{".devcontainer/devcontainer.json": text})
		res, out, _ := w.exec("run:refused", "echo works")
		if journal := w.journal(res.Run); out != "works\n" || strings.Count(journal, want) != 1 {
			t.Errorf("%s: %q\n%s", text, out, journal)
		}
	}
}
