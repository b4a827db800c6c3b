package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/kubernetes"
	"github.com/ramus-dev/ramus/containers/kubernetes/clustertest"
	"github.com/ramus-dev/ramus/executor/record"
)

// The sides of the comparison of engines. sidePortable has its work trees as on Kubernetes, with git inside the container.
const (
	sideKubernetes = "ramus on Kubernetes"
	sideDocker     = "ramus on Docker"
	sidePortable   = "ramus on Docker, portable"
	sidePod        = "kubectl run"
	sidePodExec    = "kubectl exec"
)

// compareEngines compares containers on Kubernetes with those on Docker, and with pods and execs without ramus. The cluster is that of
// `make cluster`.
func compareEngines(ctx context.Context, b *bench) error {
	admin, config, namespace, err := b.clusterNamespace(ctx)
	if err != nil {
		return err
	}
	if _, err := b.engineAPI(ctx); err != nil {
		return err
	}
	plain := &plainPods{client: admin, namespace: namespace, image: clustertest.TaskImage}
	onCluster := func() containers.Engine {
		return &kubernetes.Engine{Cluster: config, Namespace: namespace, Runtime: clustertest.RuntimeImage, Image: clustertest.TaskImage,
			UserNamespaces: true}
	}
	onDocker := func() containers.Engine { return &docker.Engine{Runner: b.ramus, Image: b.image} }

	for _, pool := range []int{0, 1} {
		c := comparison{metrics: []metric{wall}}
		for _, e := range []struct {
			name string
			open func() containers.Engine
		}{{sideKubernetes, onCluster}, {sideDocker, onDocker}} {
			f, err := b.fleet(ctx, e.open(), pool)
			if err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			c.sides = append(c.sides, newcomer(e.name, f))
		}
		c.sides = append(c.sides, side{name: sidePod, round: plain.round})
		m, err := b.compare(ctx, c)
		if err != nil {
			return err
		}
		label, limit := "a new container's first output", target{}
		if pool > 0 {
			label, limit = label+", from the pool", atMost(0.1)
		}
		b.add(m, label, wall.what, sidePod, limit)
		b.add(m, label, wall.what, sideDocker, target{})
	}
	if err := b.compareCommands(ctx, plain, onCluster(), onDocker()); err != nil {
		return err
	}
	return b.compareCommits(ctx, namespace)
}

// clusterNamespace returns a client of the cluster of `make cluster`, its configuration, and a namespace that ends with the scenario.
func (b *bench) clusterNamespace(ctx context.Context) (*kube.Client, *kube.Config, string, error) {
	if !clustertest.Inside() {
		return nil, nil, "", unable("this is not the network of a Kubernetes cluster (make bench-cluster)")
	}
	admin, config, err := clustertest.Admin()
	if err != nil {
		return nil, nil, "", err
	}
	b.onExit(func(context.Context) error { admin.Close(); return nil })
	namespace, err := clustertest.MakeNamespace(ctx, admin, "bench-")
	if err != nil {
		return nil, nil, "", err
	}
	b.onExit(func(ctx context.Context) error {
		return admin.Do(ctx, http.MethodDelete, "/api/v1/namespaces/"+namespace, nil, nil, nil)
	})
	return admin, config, namespace, nil
}

// newcomer is a side whose rounds end with the answer to the first command of a new caller. Callers are removed before the next round.
func newcomer(name string, f *containers.Fleet) side {
	last := ""
	return side{name: name,
		settle: func(ctx context.Context) error {
			if last != "" {
				if err := f.Remove(ctx, last); err != nil {
					return err
				}
			}
			if f.Pool == 0 {
				return nil
			}
			return f.Warm(ctx, containers.Request{})
		},
		round: timed(func(ctx context.Context, n int) error {
			last = "run:" + rand.Text()
			l, err := f.Acquire(ctx, containers.Request{Key: last})
			if err != nil {
				return err
			}
			defer l.Release()
			return command(ctx, l.Host, n, io.Discard, "true")
		})}
}

// compareCommands compares commands in containers that are there.
func (b *bench) compareCommands(ctx context.Context, plain *plainPods, onCluster, onDocker containers.Engine) error {
	hosts := map[string]*containers.Host{}
	for name, e := range map[string]containers.Engine{sideKubernetes: onCluster, sideDocker: onDocker} {
		h, err := b.host(ctx, e)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		hosts[name] = h
	}
	pod, err := plain.start(ctx)
	if err != nil {
		return err
	}
	b.onExit(func(ctx context.Context) error { return plain.remove(ctx, pod) })

	compare := func(size int64, args ...string) (*measured, error) {
		c := comparison{metrics: []metric{wall}}
		for _, name := range []string{sideKubernetes, sideDocker, sidePodExec} {
			c.sides = append(c.sides, side{name: name, round: timed(func(ctx context.Context, n int) (err error) {
				w := new(zeros)
				if h := hosts[name]; h != nil {
					err = command(ctx, h, n, w, args...)
				} else {
					err = plain.exec(ctx, pod, w, args...)
				}
				if err == nil && (w.n != size || w.other) {
					err = fmt.Errorf("%d bytes came, or not the right ones", w.n)
				}
				return err
			})})
		}
		return b.compare(ctx, c)
	}
	m, err := compare(0, "true")
	if err != nil {
		return err
	}
	ofDocker := statOf(m.of[m.side(sideDocker)][0]).Median
	b.add(m, "true in a container that is there", wall.what, sideDocker, below(1.5*ofDocker+3))
	b.add(m, "true in a container that is there", wall.what, sidePodExec, target{})

	const size = 100 << 20
	if m, err = compare(size, "head", "-c", strconv.Itoa(size), "/dev/zero"); err != nil {
		return err
	}
	b.add(m, "100 MB of output", wall.what, sideDocker, target{})
	b.add(m, "100 MB of output", wall.what, sidePodExec, target{})
	return nil
}

// compareCommits compares commands that change a file, by REST, with a server of ramus for each engine.
func (b *bench) compareCommits(ctx context.Context, namespace string) error {
	r, err := b.repository(ctx, small)
	if err != nil {
		return err
	}
	c := comparison{metrics: []metric{{"commit", "ms"}, {"command and commit", "ms"}}}
	for _, s := range []struct {
		name string
		env  []string
	}{
		{sideKubernetes, []string{"RAMUS_ENGINE=kubernetes", "RAMUS_IMAGE=" + clustertest.TaskImage, "RAMUS_KUBERNETES_NAMESPACE=" + namespace,
			"RAMUS_KUBERNETES_KUBECONFIG=" + clustertest.Kubeconfig(), "RAMUS_KUBERNETES_IMAGE=" + clustertest.RuntimeImage}},
		{sideDocker, nil},
		{sidePortable, []string{"RAMUS_WORK_TREE=portable"}},
	} {
		h, err := b.house(ctx, "engines", 0, s.env...)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if _, err := h.take(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		caller := h.name()
		c.sides = append(c.sides, side{name: s.name, settle: rest, round: func(ctx context.Context, n int) ([]float64, error) {
			x, err := h.exec(ctx, caller, r.name, record.Command{Shell: fmt.Sprintf("echo 'round %d' >>%s && echo done", n, r.path(0))})
			if err == nil {
				err = x.printed("done\n")
			}
			if err == nil && x.result.Commit == "" {
				err = errors.New("nothing was committed")
			}
			return []float64{ms(x.all - x.last), ms(x.all)}, err
		}})
	}
	m, err := b.compare(ctx, c)
	if err != nil {
		return err
	}
	for _, what := range c.metrics {
		b.add(m, "a file of 400", what.what, sideDocker, target{})
		b.add(m, "a file of 400", what.what, sidePortable, target{})
	}
	return nil
}

// plainPods makes pods without ramus, as `kubectl run` and `kubectl exec` do, without the time that these programs take to start.
type plainPods struct {
	client           *kube.Client
	namespace, image string
}

func (p *plainPods) path() string { return "/api/v1/namespaces/" + p.namespace + "/pods" }

// start returns the name of a new pod that runs.
func (p *plainPods) start(ctx context.Context) (string, error) {
	var pod struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Status struct {
			Phase string `json:"phase"`
		} `json:"status"`
	}
	err := p.client.Do(ctx, http.MethodPost, p.path(), nil, map[string]any{"metadata": map[string]string{"generateName": "plain-"},
		"spec": map[string]any{"restartPolicy": "Never", "containers": []map[string]any{{"name": "main", "image": p.image,
			"imagePullPolicy": "IfNotPresent", "command": []string{"sleep", "3600"}}}}}, &pod)
	name := pod.Metadata.Name
	for err == nil && pod.Status.Phase != "Running" {
		if err = pause(ctx, 20*time.Millisecond); err == nil { // a watch would know it at the same time
			err = p.client.Do(ctx, http.MethodGet, p.path()+"/"+name, nil, nil, &pod)
		}
	}
	return name, err
}

func (p *plainPods) exec(ctx context.Context, name string, out io.Writer, args ...string) error {
	x, err := p.client.Exec(ctx, kube.Command{Namespace: p.namespace, Pod: name, Container: "main", Args: args})
	if err != nil {
		return err
	}
	defer x.Close()
	_, err = io.Copy(out, x)
	return err
}

func (p *plainPods) remove(ctx context.Context, name string) error {
	return p.client.Do(ctx, http.MethodDelete, p.path()+"/"+name, url.Values{"gracePeriodSeconds": {"0"}}, nil, nil)
}

// round measures a new pod until the answer to its first command.
func (p *plainPods) round(ctx context.Context, _ int) ([]float64, error) {
	begin := time.Now()
	name, err := p.start(ctx)
	if err == nil {
		err = p.exec(ctx, name, io.Discard, "true")
	}
	took := time.Since(begin)
	if name != "" {
		err = errors.Join(err, p.remove(ctx, name))
	}
	return []float64{ms(took)}, err
}
