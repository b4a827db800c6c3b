package kubernetes_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/containerstest"
	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/kubernetes"
	"github.com/ramus-dev/ramus/containers/layer"
)

// held keeps back what a fleet does in the background.
type held struct {
	*kubernetes.Engine
	gate chan struct{} // nil: nothing is kept back
}

func (e *held) wait(ctx context.Context) {
	if e.gate == nil {
		return
	}
	select {
	case <-e.gate:
	case <-ctx.Done():
	}
}

func (e *held) Start(ctx context.Context, s containers.Spec) (containers.Container, error) {
	e.wait(ctx)
	return e.Engine.Start(ctx, s)
}

func (e *held) Assign(ctx context.Context, id, key string, labels map[string]string) error {
	e.wait(ctx)
	return e.Engine.Assign(ctx, id, key, labels)
}

func (e *held) Remove(ctx context.Context, id string) error {
	e.wait(ctx)
	return e.Engine.Remove(ctx, id)
}

func (e *held) Usage(ctx context.Context, id string, inside []string, most int64) (layer.Usage, error) {
	e.wait(ctx)
	return e.Engine.Usage(ctx, id, inside, most)
}

// newEngine returns an engine that is closed when the test ends, after the fleets that it got later.
func newEngine(tb testing.TB, config *kube.Config, namespace string) *kubernetes.Engine {
	e := &kubernetes.Engine{Cluster: config, Namespace: namespace, Runtime: runtimeImage, Image: taskImage,
		UserNamespaces: true}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// fleet opens a fleet whose containers are removed when the test ends.
func fleet(tb testing.TB, f *containers.Fleet) {
	tb.Helper()
	if err := f.Open(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := f.Close(ctx, false); err != nil {
			tb.Error(err)
		}
	})
}

// perform runs a command to its end and returns the first bytes of its output, and the number of all.
func perform(tb testing.TB, h *containers.Host, shell string) (string, int64) {
	tb.Helper()
	p, err := h.Start(tb.Context(), containers.Command{ID: rand.Text(), Shell: shell})
	if err != nil {
		tb.Fatal(err)
	}
	var said counted
	if exit, err := p.Output(&said, &said); err != nil || exit.Code != 0 {
		tb.Fatalf("%s: %+v, %v", shell, exit, err)
	}
	return string(said.head), said.n
}

// counted keeps the first bytes of an output.
type counted struct {
	head []byte
	n    int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	c.head = append(c.head, p[:min(len(p), 100-len(c.head))]...)
	return len(p), nil
}

// From the pool to the first command of a caller, and from the death of its pod to the next one's, the API server is
// asked nothing. It learns the caller's name afterwards.
func TestPoolAsksNothing(t *testing.T) {
	config, namespace := cluster(t)
	engine := &held{Engine: newEngine(t, config, namespace)}
	f := &containers.Fleet{Engine: engine, Dir: t.TempDir(), Pool: 2}
	fleet(t, f)
	if err := f.Warm(t.Context(), containers.Request{}); err != nil {
		t.Fatal(err)
	}
	engine.gate = make(chan struct{})
	before := engine.Asked()
	l, err := f.Acquire(t.Context(), containers.Request{Key: "run:first", Labels: map[string]string{"team": "red"}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	for range 3 {
		if said, _ := perform(t, l.Host, "echo hello"); said != "hello\n" {
			t.Errorf("it says %q", said)
		}
	}
	if n := engine.Asked() - before; n != 0 {
		t.Errorf("the API server was asked %d times", n)
	}
	close(engine.gate)
	admin, err := kube.New(*config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	var p struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	path := "/api/v1/namespaces/" + namespace + "/pods/" + l.Host.Container().ID
	deadline := time.Now().Add(time.Minute)
	for ; p.Metadata.Annotations["ramus.dev/key"] != "run:first"; time.Sleep(10 * time.Millisecond) {
		if err := admin.Do(t.Context(), http.MethodGet, path, nil, nil, &p); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("it still has %v", p.Metadata.Annotations)
		}
	}
}

// A pod that is deleted, as by a drain, ends its host at once, and the caller has another one.
func TestDeletedPodIsNoticed(t *testing.T) {
	config, namespace := cluster(t)
	f := &containers.Fleet{Engine: newEngine(t, config, namespace), Dir: t.TempDir(), Pool: 1}
	fleet(t, f)
	l, err := f.Acquire(t.Context(), containers.Request{Key: "run:drained"})
	if err != nil {
		t.Fatal(err)
	}
	perform(t, l.Host, "true")
	admin, err := kube.New(*config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	id := l.Host.Container().ID
	began := time.Now()
	if err := admin.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods/"+id+"/eviction", nil,
		map[string]any{
			"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]string{"name": id}},
		nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Host.Done():
		t.Logf("noticed after %v", time.Since(began).Round(time.Millisecond))
	case <-time.After(30 * time.Second):
		t.Fatal("nobody noticed within 30 s")
	}
	l.Release()
	if l, err = f.Acquire(t.Context(), containers.Request{Key: "run:drained"}); err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if l.Host.Container().ID == id {
		t.Error("the evicted pod was given out again")
	}
	perform(t, l.Host, "true")
}

func TestDisk(t *testing.T) {
	config, namespace := cluster(t)
	containerstest.Disk(t, newEngine(t, config, namespace), nil)
}
