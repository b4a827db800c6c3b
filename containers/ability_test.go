package containers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/sandbox"
)

// plain is an engine without abilities.
type plain struct{ containers.Engine }

func (plain) Name() string { return "plain" }

func TestAbilities(t *testing.T) {
	whole := &sandbox.Engine{Dir: t.TempDir()}
	for name, as := range map[string]func(containers.Engine) error{
		"run sidecars":                 func(e containers.Engine) error { _, err := containers.AsSidecars(e); return err },
		"name processes of containers": func(e containers.Engine) error { _, err := containers.AsProcesses(e); return err },
		"name the user of commands":    func(e containers.Engine) error { _, err := containers.AsTaskUser(e); return err },
	} {
		if err := as(whole); err != nil {
			t.Error(err)
		}
		if err := as(plain{whole}); !errors.Is(err, containers.ErrLacks) || !strings.Contains(err.Error(), "engine plain cannot "+name) {
			t.Errorf("without the ability: %v", err)
		}
	}
}

// TestFleetWithoutAbilities uses an engine that can only start containers.
func TestFleetWithoutAbilities(t *testing.T) {
	engine := plain{&sandbox.Engine{Dir: t.TempDir()}}
	bound := &containers.Fleet{Engine: engine, Dir: t.TempDir(), Keeper: layer.NewLocal(t.TempDir())}
	if err := bound.Open(t.Context()); !errors.Is(err, containers.ErrLacks) {
		t.Errorf("a fleet with a keeper opens: %v", err)
	}
	if err := engine.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: engine sandbox: %v", err)
	}
	f := &containers.Fleet{Engine: engine, Dir: t.TempDir(), Pool: 1}
	if err := f.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second is of the pool, perhaps
		l, err := f.Acquire(t.Context(), containers.Request{Key: "run:a"})
		if err != nil {
			t.Fatal(err)
		}
		if got := shell(t, l.Host, "echo works"); strings.TrimSpace(got) != "works" {
			t.Errorf("it says %q", got)
		}
		l.Release()
		if err := f.Warm(t.Context(), containers.Request{Key: "run:a"}); err != nil {
			t.Error(err)
		}
		if err := f.Remove(t.Context(), "run:a"); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.RunSidecar(t.Context(), "", containers.Sidecar{Key: "x", Args: []string{"true"}}); !errors.Is(err, containers.ErrLacks) {
		t.Errorf("a sidecar: %v", err)
	}
	if f.TaskUID() != -1 {
		t.Errorf("the user is %d", f.TaskUID())
	}
	if err := f.Close(t.Context(), false); err != nil {
		t.Error(err)
	}
}
