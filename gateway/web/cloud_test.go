package web_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/nodes"
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
	w := openWith(t, route.Local, nil, func(api *web.API) { api.Cloud = n })
	for path, want := range map[string]string{"/nodes": "192.0.2.1", "/nodes/" + id: "&lt;b&gt;ada"} {
		status, _, body := w.get(path)
		if status != 200 || !strings.Contains(body, id) || !strings.Contains(body, want) {
			t.Errorf("%s: status %d: %s", path, status, body)
		}
	}
	*w.who = route.Who{Subject: "reader", Repo: "*", Scopes: []string{"read"}}
	if status, _, body := w.get("/nodes"); status != 200 || strings.Contains(body, id) {
		t.Errorf("a reader: status %d: %s", status, body)
	}
	if status, _, _ := w.get("/nodes/" + id); status != 404 {
		t.Errorf("a reader: status %d", status)
	}
}
