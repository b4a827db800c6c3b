package main

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// cloud is in place of all providers. It keeps the resources that a program describes, by name.
type cloud struct {
	mu        sync.Mutex // guards all below
	resources map[string]pulumi.MockResourceArgs
}

// NewResource implements [pulumi.MockResourceMonitor]. Ids are numbers, as Hetzner's are.
func (c *cloud) NewResource(a pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resources[a.Name] = a
	state := a.Inputs.Copy()
	for key, value := range map[string]string{"ipv4Address": "192.0.2.1", "ipv6Address": "2001:db8::1", "base64": "c2VhbA==",
		"privateKeyOpenssh": "PRIVATE", "publicKeyOpenssh": "PUBLIC", "linuxDevice": "/dev/disk/by-id/x"} {
		state[resource.PropertyKey(key)] = resource.NewStringProperty(value)
	}
	return "42", state, nil
}

// Call implements [pulumi.MockResourceMonitor].
func (c *cloud) Call(pulumi.MockCallArgs) (resource.PropertyMap, error) { return nil, nil }

var good = map[string]string{"domain": "ramus.example.org", "zoneId": "zone", "accountId": "account", "location": "fsn1",
	"serverType": "cpx31", "diskSize": "100", "sshKeys": `["ada"]`, "admins": `["192.0.2.0/24"]`}

// run runs the program with settings. Returns its resources and outputs.
func run(settings map[string]string) (map[string]pulumi.MockResourceArgs, pulumi.Map, error) {
	c := &cloud{resources: map[string]pulumi.MockResourceArgs{}}
	all := map[string]string{}
	for key, value := range settings {
		all["ramus:"+key] = value
	}
	var outputs pulumi.Map
	err := pulumi.RunErr(func(ctx *pulumi.Context) (err error) {
		outputs, err = describe(ctx)
		return err
	}, func(info *pulumi.RunInfo) {
		info.Project, info.Stack, info.Config, info.Mocks = "ramus", "prod", all, c
	})
	return c.resources, outputs, err
}

func text(t *testing.T, r pulumi.MockResourceArgs, path string) string {
	t.Helper()
	p, err := resource.ParsePropertyPath(path)
	if err != nil {
		t.Fatal(err)
	}
	v, ok := p.Get(resource.NewObjectProperty(r.Inputs))
	if !ok {
		return ""
	}
	for v.IsSecret() {
		v = v.SecretValue().Element
	}
	return v.StringValue()
}

// TestResources checks what is described, and what is protected.
func TestResources(t *testing.T) {
	all, outputs, err := run(good)
	if err != nil {
		t.Fatal(err)
	}
	var protected []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].RegisterRPC.GetProtect() {
			protected = append(protected, name)
		}
	}
	if want := []string{"artifacts", "commit-key", "data", "seal-key"}; !slices.Equal(protected, want) {
		t.Errorf("protected %v, want %v", protected, want)
	}
	if got := all["seal-key"].Inputs["length"].NumberValue(); got != 32 {
		t.Errorf("the key of seals has %v bytes", got)
	}
	if !all["data"].Inputs["deleteProtection"].BoolValue() {
		t.Error("Hetzner may remove the disk")
	}
	for name, want := range map[string]string{"app-a": "app.ramus.example.org", "api-aaaa": "api.ramus.example.org",
		"content-a": "content.ramus.example.org", "workspaces-a": "*.ramus.example.org"} {
		if got := text(t, all[name], "name"); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if got := text(t, all["app-aaaa"], "content"); got != "2001:db8::1" {
		t.Errorf("AAAA leads to %q", got)
	}
	for _, word := range []string{"What=/dev/disk/by-id/x", "Where=/var/lib/ramus", "var-lib-ramus.automount"} {
		if !strings.Contains(text(t, all["server"], "userData"), word) {
			t.Errorf("the description of the machine lacks %q, so that the disk is not mounted", word)
		}
	}
	for _, word := range []string{"PRIVATE", "c2VhbA", "key:", "token"} {
		if strings.Contains(text(t, all["server"], "userData"), word) {
			t.Errorf("the description of the machine has %q", word)
		}
	}
	for _, want := range []string{"sealKey", "commitKey", "commitPublicKey", "address", "bucket", "disk", "url"} {
		if outputs[want] == nil {
			t.Errorf("there is no output %s", want)
		}
	}
}

// TestSecrets checks that the keys are secrets, so that the state has them encrypted.
func TestSecrets(t *testing.T) {
	_, outputs, err := run(good)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"sealKey": true, "commitKey": true, "commitPublicKey": false, "address": false} {
		if got := pulumi.IsSecret(outputs[name].(pulumi.Output)); got != want {
			t.Errorf("%s: secret is %v", name, got)
		}
	}
}

// TestFirewall lets nobody reach SSH unless ranges of administrators are set.
func TestFirewall(t *testing.T) {
	for admins, want := range map[string]string{`["192.0.2.0/24"]`: "80 443  22", `[]`: "80 443 "} {
		s := maps.Clone(good)
		s["admins"] = admins
		all, _, err := run(s)
		if err != nil {
			t.Fatal(err)
		}
		var ports []string
		for _, r := range all["firewall"].Inputs["rules"].ArrayValue() {
			port := ""
			if p, ok := r.ObjectValue()["port"]; ok && p.IsString() {
				port = p.StringValue()
			}
			ports = append(ports, port)
			if sources := r.ObjectValue()["sourceIps"].ArrayValue(); port == "22" && sources[0].StringValue() != "192.0.2.0/24" {
				t.Errorf("SSH is open to %v", sources)
			}
		}
		if got := strings.Join(ports, " "); got != want {
			t.Errorf("ports %q, want %q", got, want)
		}
	}
}

// TestSettings names all mistakes at once.
func TestSettings(t *testing.T) {
	bad := maps.Clone(good)
	delete(bad, "zoneId")
	bad["diskSize"], bad["sshKeys"], bad["admins"], bad["domain"] = "5", "[]", `["everybody"]`, "https://x"
	all, _, err := run(bad)
	if err == nil || len(all) > 1 {
		t.Fatalf("error %v, %d resources", err, len(all))
	}
	for _, want := range []string{"zoneId", "diskSize", "sshKeys", "admins", "domain"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in %v", want, err)
		}
	}
}
