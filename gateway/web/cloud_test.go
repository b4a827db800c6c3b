package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/nodes/cluster"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/web"
)

// oneMachine is a cloud that makes machines and forgets them.
type oneMachine struct{}

func (oneMachine) Create(_ context.Context, o nodes.Order) (nodes.Machine, error) {
	return nodes.Machine{ID: "1", Node: o.Node, Address: "192.0.2.1"}, nil
}
func (oneMachine) Delete(context.Context, string) error          { return nil }
func (oneMachine) List(context.Context) ([]nodes.Machine, error) { return nil, nil }
func (oneMachine) Check(string, string) error                    { return nil }

// TestCloudPages shows a machine at a cloud to an administrator, and to nobody else.
func TestCloudPages(t *testing.T) {
	var id string
	n := &nodes.Nodes{Dir: t.TempDir(), Provider: oneMachine{}, URL: "https://ramus.example.org"}
	if err := n.Open(); err != nil {
		t.Fatal(err)
	}
	node, err := n.Add(t.Context(), nodes.Wish{Size: "small", Location: "nbg1", By: "<b>ada</b>"})
	if err != nil {
		t.Fatal(err)
	}
	id = node.ID
	joinCluster(t, n, id)
	w := openWith(t, route.Local, nil, func(api *web.API) { api.Cloud = n })
	for path, want := range map[string]string{"/nodes": "Unhealthy", "/nodes/" + id: "&lt;b&gt;ada",
		"/nodes/" + id + "?": "NetworkNotReady: no &lt;network&gt;"} {
		status, _, body := w.get(path)
		if status != 200 || !strings.Contains(body, id) || !strings.Contains(body, want) {
			t.Errorf("%s: status %d: %s", path, status, body)
		}
	}
	w.become(route.Who{Subject: "reader", Repo: "*", Scopes: []string{"read"}})
	if status, _, body := w.get("/nodes"); status != 200 || strings.Contains(body, id) {
		t.Errorf("a reader: status %d: %s", status, body)
	}
	if status, _, _ := w.get("/nodes/" + id); status != 404 {
		t.Errorf("a reader: status %d", status)
	}
}

// joinCluster gives nodes a cluster, whose kubelet of one node is not ready.
func joinCluster(t *testing.T, n *nodes.Nodes, id string) {
	ready := ""
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := `{"items":[]}`
		if r.URL.Path == "/api/v1/nodes" {
			list = fmt.Sprintf(`{"items":[{"metadata":{"name":%q},"spec":{"unschedulable":true},"status":{"allocatable":{"cpu":"2"},
				"nodeInfo":{"kubeletVersion":"v1.34.1"},"conditions":[{"type":"Ready","status":%q,"reason":"NetworkNotReady",
				"message":"no <network>"}]}}]}`, id, ready)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(list))
	}))
	t.Cleanup(api.Close)
	client, err := kube.New(kube.Config{Server: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	n.Cluster = &cluster.Cluster{API: client}
	for _, ready = range []string{"True", "False"} {
		if err := n.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
