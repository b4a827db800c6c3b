package helm

import (
	"flag"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

const chartDir = "ramus"

var update = flag.Bool("update", false, "write testdata/ramus.yaml")

const minimal = `
image: {repository: registry.example/ramus/server, digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
taskImage: registry.example/ramus/task:1
`

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func full(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(chartDir + "/ci/full-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// render returns the objects of the chart by kind and name.
func render(t *testing.T, text string) (map[string]map[string]any, error) {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = chartutil.KubeVersion{Version: "v1.34.1", Major: "1", Minor: "34"}
	v, err := chartutil.ToRenderValues(c, values(t, text), chartutil.ReleaseOptions{Name: "ramus", Namespace: "ramus", IsInstall: true}, caps)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, v)
	if err != nil {
		return nil, err
	}
	objects := map[string]map[string]any{}
	for name, text := range files {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, document := range strings.Split(text, "\n---\n") {
			var o map[string]any
			if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
				t.Errorf("%s: %v\n%s", name, err, document)
			}
			if len(o) > 0 {
				objects[o["kind"].(string)+"/"+o["metadata"].(map[string]any)["name"].(string)] = o
			}
		}
	}
	return objects, nil
}

// at returns the value at a path of keys and indices.
func at(o any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := o.(map[string]any)
			o = m[p]
		case int:
			l, _ := o.([]any)
			if p >= len(l) {
				return nil
			}
			o = l[p]
		}
	}
	return o
}

func TestLint(t *testing.T) {
	for name, text := range map[string]string{"minimal": minimal, "full": full(t)} {
		l := action.NewLint()
		l.Namespace = "ramus"
		for _, err := range l.Run([]string{chartDir}, values(t, text)).Errors {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMinimal(t *testing.T) {
	objects, err := render(t, minimal)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ConfigMap/ramus", "Namespace/ramus-containers", "NetworkPolicy/ramus", "Role/ramus", "RoleBinding/ramus", "Service/ramus",
		"ServiceAccount/ramus", "StatefulSet/ramus"}
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, want) {
		t.Errorf("objects are %v", got)
	}
	// These are all rights of ramus, as in the documentation.
	rules, err := yaml.Marshal(at(objects["Role/ramus"], "rules"))
	if err != nil {
		t.Fatal(err)
	}
	const rights = `- apiGroups:
  - ""
  resources:
  - pods
  verbs:
  - create
  - get
  - list
  - watch
  - patch
  - delete
- apiGroups:
  - ""
  resources:
  - pods/exec
  verbs:
  - get
  - create
`
	if string(rules) != rights {
		t.Errorf("rights are\n%s", rules)
	}
	pod := at(objects["StatefulSet/ramus"], "spec", "template", "spec")
	if at(pod, "securityContext", "fsGroupChangePolicy") != "OnRootMismatch" || at(pod, "securityContext", "runAsNonRoot") != true ||
		at(pod, "containers", 0, "securityContext", "readOnlyRootFilesystem") != true {
		t.Errorf("the pod is %v", pod)
	}
	config := values(t, at(objects["ConfigMap/ramus"], "data", "ramus.yaml").(string))
	if config["capacity"] != float64(100) {
		t.Errorf("the capacity is %v", config["capacity"])
	}
	if config["engine"] != "kubernetes" || config["image"] != "registry.example/ramus/task:1" ||
		!strings.HasPrefix(at(config, "kubernetes", "image").(string), "registry.example/ramus/server@sha256:00") || at(config, "kubernetes", "template") != nil {
		t.Errorf("the configuration is %v", config)
	}
}

func TestFull(t *testing.T) {
	objects, err := render(t, full(t))
	if err != nil {
		t.Fatal(err)
	}
	written := at(objects["ConfigMap/ramus"], "data", "ramus.yaml").(string)
	config := values(t, written)
	// A test of ramus reads the same file.
	const golden = "testdata/ramus.yaml"
	if *update {
		if err := os.WriteFile(golden, []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != written {
		t.Errorf("the configuration is not that of %s (go test -update), %v:\n%s", golden, err, written)
	}
	if config["domain"] != "ramus.example" || at(config, "kubernetes", "template") != "ramus" || config["ssh_listen"] != "0.0.0.0:8022" {
		t.Errorf("the configuration is %v", config)
	}
	if got := at(objects["PodTemplate/ramus"], "template", "spec", "nodeSelector", "pool"); got != "containers" {
		t.Errorf("containers are for nodes of the pool %v", got)
	}
	if got := at(objects["Role/ramus"], "rules", 2, "resourceNames", 0); got != "ramus" {
		t.Errorf("ramus may read the template %v", got)
	}
	for _, want := range []string{"Ingress/ramus", "ResourceQuota/ramus", "ClusterRoleBinding/ramus-ramus-nodes"} {
		if objects[want] == nil {
			t.Errorf("there is no %s", want)
		}
	}
	// Secrets of the cluster can be made, and not be read. Two roles have the same name, in two namespaces.
	if got := at(objects["Role/ramus-ramus-nodes"], "rules", 0, "verbs"); !reflect.DeepEqual(got, []any{"create", "delete"}) {
		t.Errorf("ramus may %v secrets", got)
	}
	if at(config, "nodes", "token_file") != "/etc/ramus-nodes/token" || at(config, "nodes", "size") != "medium" {
		t.Errorf("the configuration of nodes is %v", config["nodes"])
	}
}

// TestReplicas has several replicas with a headless service, and no other rights than those to leases.
func TestReplicas(t *testing.T) {
	objects, err := render(t, minimal+"replicas: {count: 3, secret: shared}\n")
	if err != nil {
		t.Fatal(err)
	}
	set := objects["StatefulSet/ramus"]
	if at(set, "spec", "replicas") != float64(3) || at(set, "spec", "serviceName") != "ramus-inner" ||
		at(set, "spec", "podManagementPolicy") != "Parallel" ||
		at(set, "spec", "template", "spec", "securityContext", "fsGroupChangePolicy") != "OnRootMismatch" {
		t.Errorf("the set is %v", at(set, "spec"))
	}
	if at(objects["Service/ramus-inner"], "spec", "clusterIP") != "None" || objects["PodDisruptionBudget/ramus"] == nil {
		t.Errorf("the inner service is %v", objects["Service/ramus-inner"])
	}
	rules, err := yaml.Marshal(at(objects["Role/ramus-replicas"], "rules"))
	if want := "- apiGroups:\n  - coordination.k8s.io\n  resources:\n  - leases\n  verbs:\n  - create\n  - get\n  - list\n  - watch\n  - update\n  - delete\n"; err != nil || string(rules) != want {
		t.Errorf("the rights are %s, %v", rules, err)
	}
	config := values(t, at(objects["ConfigMap/ramus"], "data", "ramus.yaml").(string))
	if at(config, "replicas", "home") != "ramus-0" || at(config, "replicas", "group") != "ramus" || at(config, "replicas", "name") != nil {
		t.Errorf("the configuration is %v", at(config, "replicas"))
	}
}

func TestRefused(t *testing.T) {
	for name, text := range map[string]string{
		"no task image":            `image: {repository: x}`,
		"no image":                 `taskImage: x`,
		"unknown value":            minimal + "servers: 3\n",
		"replicas without secret":  minimal + "replicas: {count: 3}\n",
		"replicas with one volume": minimal + "replicas: {count: 3, secret: x}\npersistence: {existingClaim: x}\n",
		"a template with the host": minimal + "containers: {podTemplate: {hostNetwork: true}}\n",
		"another engine":           minimal + "config: {engine: docker}\n",
		"the release's namespace":  minimal + "containers: {namespace: ramus}\n",
		"an ingress without host":  minimal + "ingress: {enabled: true}\n",
		"nodes without a token":    minimal + "nodes: {provider: hetzner, programs: {emptyDir: {}}, config: {server: \"https://x\"}}\nconfig: {url: \"http://x\"}\n",
		"nodes without addresses":  minimal + "nodes: {provider: hetzner, tokenSecret: x, programs: {emptyDir: {}}}\n",
		"nodes of no cloud":        minimal + "nodes: {provider: moon}\n",
		"a size without unit":      minimal + "persistence: {size: big}\n",
	} {
		if _, err := render(t, text); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}
