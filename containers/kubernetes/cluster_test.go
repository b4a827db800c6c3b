package kubernetes_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/containerstest"
	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/kubernetes"
	"github.com/ramus-dev/ramus/containers/kubernetes/clustertest"
)

const (
	runtimeImage = clustertest.RuntimeImage
	taskImage    = clustertest.TaskImage
	browserImage = clustertest.BrowserImage
)

func TestMain(m *testing.M) {
	_ = clustertest.Enter() // without a cluster its tests are skipped
	os.Exit(m.Run())
}

// cluster returns the configuration of the administrator, and a namespace that ends with the test. It skips the test if
// no cluster is up.
func cluster(tb testing.TB) (*kube.Config, string) {
	tb.Helper()
	if !clustertest.Inside() {
		if os.Getenv("RAMUS_TEST") == "full" {
			tb.Skip("cannot run here: no Kubernetes cluster is up (make cluster)")
		}
		tb.Skip("only with a Kubernetes cluster (make test-cluster)")
	}
	client, config, err := clustertest.Admin()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.Close)
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	name, err := clustertest.MakeNamespace(ctx, client, "suite-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := client.Do(ctx, http.MethodDelete, "/api/v1/namespaces/"+name, nil, nil, nil); err != nil {
			tb.Error(err)
		}
	})
	return config, name
}

func TestKubernetes(t *testing.T) {
	config, namespace := cluster(t)
	open := func(*testing.T) containers.Engine {
		return &kubernetes.Engine{Cluster: config, Namespace: namespace, Runtime: runtimeImage, Image: taskImage,
			UserNamespaces: true,
			// The limits are those of the suite's test of memory.
			Side: kubernetes.Side{Image: taskImage, Count: 4,
				Limits: containers.Limits{Memory: 200 << 20, Tmp: 1 << 30}}}
	}
	containerstest.Run(t, open, containerstest.Options{
		Image: taskImage,
		// Sidecars share the limits of their standing container. Their processes are limited by their user, not by a
		// group.
		Lacks: []string{containers.AbilityPIDs},
		Omit:  []string{"SidecarBrowser"}, // see TestBrowser
		Many:  10,
		Left: func(owner string) []string {
			e := open(t)
			defer e.Close()
			list, err := e.List(t.Context(), owner)
			if err != nil {
				t.Error(err)
			}
			var left []string
			for _, c := range list {
				left = append(left, c.ID)
			}
			return left
		},
	})
}

// TestBrowser runs Chromium as a sidecar with its default limits. All sidecars of a pod have one image.
func TestBrowser(t *testing.T) {
	config, namespace := cluster(t)
	if err := exec.Command("docker", "image", "inspect", browserImage).Run(); err != nil {
		t.Skipf("cannot run here: Docker has no image %s that the node could have (make browser)", browserImage)
	}
	containerstest.Browser(t, func(*testing.T) containers.Engine {
		return &kubernetes.Engine{Cluster: config, Namespace: namespace, Runtime: runtimeImage, Image: taskImage,
			UserNamespaces: true, Side: kubernetes.Side{Image: browserImage, Count: 1}}
	}, containerstest.Options{Image: taskImage, BrowserImage: browserImage})
}

// TestRights has the engine work with the rights that it documents, and tries what they must not allow.
func TestRights(t *testing.T) {
	admin, namespace := cluster(t)
	client, err := kube.New(*admin)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	do := func(path string, body, answer any) {
		t.Helper()
		if err := client.Do(t.Context(), http.MethodPost, path, nil, body, answer); err != nil {
			t.Fatal(err)
		}
	}
	in := "/api/v1/namespaces/" + namespace
	rbac := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace
	do(in+"/serviceaccounts", map[string]any{"metadata": map[string]string{"name": "ramus"}}, nil)
	do(rbac+"/roles", map[string]any{"metadata": map[string]string{"name": "ramus"}, "rules": kubernetes.Rules(false)},
		nil)
	do(rbac+"/rolebindings", map[string]any{"metadata": map[string]string{"name": "ramus"},
		"roleRef":  map[string]string{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ramus"},
		"subjects": []map[string]string{{"kind": "ServiceAccount", "name": "ramus", "namespace": namespace}}}, nil)
	var token struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	do(in+"/serviceaccounts/ramus/token", map[string]any{"spec": map[string]any{"expirationSeconds": 600}}, &token)

	limited := admin.WithToken(token.Status.Token)
	e := newEngine(t, limited, namespace)
	if err := e.Check(t.Context()); err != nil {
		t.Errorf("its rights do not suffice: %v", err)
	}
	f := &containers.Fleet{Engine: e, Dir: t.TempDir()}
	fleet(t, f)
	l, err := f.Acquire(t.Context(), containers.Request{Key: "run:limited"})
	if err != nil {
		t.Fatal(err)
	}
	perform(t, l.Host, "true")
	id := l.Host.Container().ID
	if err := e.Assign(t.Context(), id, "run:other", nil); err != nil {
		t.Error(err)
	}
	if sum, err := e.Usage(t.Context(), id, []string{containers.WorkDir}, 10); err != nil || sum.Files == 0 {
		t.Errorf("the disk space is %+v, %v", sum, err)
	}
	l.Release()
	if err := f.Remove(t.Context(), "run:limited"); err != nil {
		t.Error(err)
	}
	as, err := kube.New(*limited)
	if err != nil {
		t.Fatal(err)
	}
	defer as.Close()
	for _, try := range []struct {
		method, path string
		body         any
	}{
		{http.MethodGet, in + "/secrets", nil},
		{http.MethodGet, in + "/configmaps", nil},
		{http.MethodGet, "/api/v1/namespaces/kube-system/pods", nil},
		{http.MethodGet, "/api/v1/nodes", nil},
		{http.MethodDelete, in + "/pods", nil},
		{http.MethodPost, in + "/serviceaccounts/ramus/token", map[string]any{"spec": map[string]any{}}},
		{http.MethodPost, rbac + "/rolebindings", map[string]any{"metadata": map[string]string{"name": "more"},
			"roleRef": map[string]string{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
				"name": "cluster-admin"}}},
	} {
		err := as.Do(t.Context(), try.method, try.path, nil, try.body, nil)
		if !kube.IsCode(err, http.StatusForbidden) {
			t.Errorf("%s %s: %v", try.method, try.path, err)
		}
	}
}

// From its first command on a container reaches neither the API server, nor the kubelet, nor another address of the
// cluster.
func TestNothingIsReached(t *testing.T) {
	config, namespace := cluster(t)
	server, err := url.Parse(config.Server)
	if err != nil {
		t.Fatal(err)
	}
	control, err := net.DialTimeout("tcp", server.Host, 10*time.Second)
	if err != nil {
		t.Fatalf("the test itself must reach the API server: %v", err)
	}
	control.Close()
	const addresses = "10.202.0.1:443 10.201.0.1:6443 10.201.0.1:10250 10.201.0.2:22 1.1.1.1:443"
	script := "for a in " + server.Host + " " + server.Hostname() + ":10250 " + addresses + `; do
		timeout 2 bash -c "exec 3<>/dev/tcp/${a%:*}/${a#*:}" 2>/dev/null && echo "open $a"
	done
	tail -n +3 /proc/net/dev | grep -v lo:; echo done`
	f := &containers.Fleet{Engine: newEngine(t, config, namespace), Dir: t.TempDir(), Capacity: 10}
	fleet(t, f)
	var all sync.WaitGroup
	for n := range 10 {
		all.Go(func() {
			l, err := f.Acquire(t.Context(), containers.Request{Key: fmt.Sprint("run:wall-", n)})
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Release()
			p, err := l.Host.Start(t.Context(), containers.Command{ID: "scan", Args: []string{"bash", "-c", script}})
			if err != nil {
				t.Error(err)
				return
			}
			var said counted
			if _, err := p.Output(&said, &said); err != nil || string(said.head) != "done\n" {
				t.Errorf("%s, %v", said.head, err)
			}
		})
	}
	all.Wait()
}

// Pods take over the operator's template, and an error has the words of the cluster if they find no node.
func TestTemplateOnCluster(t *testing.T) {
	config, namespace := cluster(t)
	admin, err := kube.New(*config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	in := "/api/v1/namespaces/" + namespace
	for name, selector := range map[string]string{"here": "linux", "nowhere": "plan9"} {
		if err := admin.Do(t.Context(), http.MethodPost, in+"/podtemplates", nil,
			map[string]any{"metadata": map[string]string{"name": name},
				"template": map[string]any{"metadata": map[string]any{"labels": map[string]string{"team": "red"}},
					"spec": map[string]any{"nodeSelector": map[string]string{"kubernetes.io/os": selector},
						"containers": []map[string]string{{"name": "none", "image": "none"}}}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	start := func(template string, limit time.Duration) (containers.Container, error) {
		e := newEngine(t, config, namespace)
		e.Template = template
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return e.Start(ctx, containers.Spec{Key: "run:template", Owner: "template", ClientKey: testKey})
	}
	c, err := start("here", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Spec struct {
			NodeSelector map[string]string `json:"nodeSelector"`
			Containers   []struct {
				Name string `json:"name"`
			} `json:"containers"`
		} `json:"spec"`
	}
	if err := admin.Do(t.Context(), http.MethodGet, in+"/pods/"+c.ID, nil, nil, &p); err != nil {
		t.Fatal(err)
	}
	if p.Metadata.Labels["team"] != "red" || p.Spec.NodeSelector["kubernetes.io/os"] != "linux" ||
		p.Spec.Containers[0].Name != "way" {
		t.Errorf("the pod is %+v", p)
	}
	if _, err := start("nowhere", 3*time.Second); err == nil || !strings.Contains(err.Error(), "nodes are available") {
		t.Errorf("without a node: %v", err)
	}
	if _, err := start("missing", time.Minute); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("without its template: %v", err)
	}
}

// TestMissingImage starts containers whose images the kubelet cannot get, because their registry refuses connections.
func TestMissingImage(t *testing.T) {
	config, namespace := cluster(t)
	const absent = "127.0.0.1:1/absent:1" // in the namespaces of the cluster
	for container, change := range map[string]func(e *kubernetes.Engine){
		"task": func(e *kubernetes.Engine) { e.Image = absent },
		"way":  func(e *kubernetes.Engine) { e.Runtime = absent },
	} {
		t.Run(container, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t, config, namespace)
			change(e)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			_, err := e.Start(ctx, containers.Spec{Key: "run:image", Owner: "image-" + container, ClientKey: testKey})
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "no image for its container "+container+": "+absent) {
				t.Errorf("Start: %v", err)
			}
			if left, err := e.List(t.Context(), "image-"+container); err != nil || len(left) > 0 {
				t.Errorf("containers %v are left: %v", left, err)
			}
		})
	}
}

// testKey is the key of a client that never connects.
const testKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
