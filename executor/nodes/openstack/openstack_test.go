package openstack_test

import (
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/nodes/openstack"
	"github.com/ramus-dev/ramus/internal/standin/nodestest"
	"github.com/ramus-dev/ramus/internal/standin/openstacktest"
)

func open(t *testing.T, credential string) (*openstacktest.Server, func(credential string) *openstack.Provider) {
	s := openstacktest.New(credential)
	t.Cleanup(s.Close)
	return s, func(credential string) *openstack.Provider {
		t.Helper()
		p, err := openstack.New(openstack.Options{Credential: credential, Endpoint: s.URL + "/identity/v3", Name: "ramus",
			Image: "debian-13", Network: "22222222-2222-4222-8222-222222222222", Wait: time.Millisecond,
			Sizes: map[string]string{"small": "m1.small", "large": "m1.large"}, Locations: []string{"nova", "nova-2"}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

func TestSuite(t *testing.T) {
	nodestest.Run(t, func(t *testing.T) nodestest.Cloud {
		s, with := open(t, "id:right-secret")
		return nodestest.Cloud{Provider: with("id:right-secret"), Refused: with("id:wrong-secret"), Standin: &s.Cloud,
			Size: "small", Location: "nova", Breaks: true}
	})
}

// TestExpiredToken checks that a provider signs in again.
func TestExpiredToken(t *testing.T) {
	s, with := open(t, "id:secret")
	p := with("id:secret")
	for range 2 {
		if _, err := p.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Expire()
	}
	if _, err := p.Create(t.Context(), nodes.Order{Node: "node-a", Size: "large", Location: "nova"}); err != nil {
		t.Error(err)
	}
}

// TestOptions refuses options with which no machine could be made.
func TestOptions(t *testing.T) {
	good := openstack.Options{Credential: "id:secret", Endpoint: "https://cloud.example/v3", Name: "ramus", Image: "x", Network: "n",
		Sizes: map[string]string{"small": "s"}, Locations: []string{"nova"}}
	if _, err := openstack.New(good); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*openstack.Options){
		func(o *openstack.Options) { o.Credential = "secret" }, func(o *openstack.Options) { o.Endpoint = "" },
		func(o *openstack.Options) { o.Network = "" }, func(o *openstack.Options) { o.Sizes = nil },
	} {
		bad := good
		change(&bad)
		if _, err := openstack.New(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
