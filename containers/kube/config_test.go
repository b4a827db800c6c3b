package kube

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const contexts = `
apiVersion: v1
kind: Config
current-context: work
contexts:
- {name: work, context: {cluster: c, user: token, namespace: boxes}}
- {name: file, context: {cluster: c, user: file}}
- {name: plugin, context: {cluster: c, user: plugin}}
- {name: nobody, context: {cluster: c, user: nobody}}
- {name: open, context: {cluster: open, user: token}}
- {name: plain, context: {cluster: plain, user: token}}
- {name: lost, context: {cluster: none, user: token}}
clusters:
- {name: c, cluster: {server: "https://10.0.0.1:6443/", certificate-authority-data: "Y2E="}}
- {name: open, cluster: {server: "https://10.0.0.1:6443", insecure-skip-tls-verify: true}}
- {name: plain, cluster: {server: "http://10.0.0.1:8080"}}
users:
- {name: token, user: {token: secret}}
- {name: file, user: {tokenFile: token}}
- {name: plugin, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, env: [{name: WHO, value: me}]}}}
- {name: nobody, user: {}}
`

func write(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func tokenOf(t *testing.T, c *Config) string {
	t.Helper()
	found, err := c.credential(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found.token
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "config", contexts, 0o600)
	c, err := Load(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.Server != "https://10.0.0.1:6443" || c.Namespace != "boxes" || string(c.CA) != "ca" ||
		tokenOf(t, c) != "secret" {
		t.Errorf("loaded %+v", c)
	}
	if c, err = Load(path, "file"); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"first", "second"} { // a token is replaced while ramus runs
		write(t, dir, "token", token+"\n", 0o600)
		if got := tokenOf(t, c); got != token {
			t.Errorf("the token is %q, not %q", got, token)
		}
	}
	for context, want := range map[string]string{
		"nobody": "no token", "open": "insecure-skip-tls-verify", "plain": "not https", "lost": `no cluster "none"`,
		"other": `no context "other"`,
	} {
		if _, err := Load(path, context); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("context %s: %v", context, err)
		}
	}
	if _, err := Load(filepath.Join(dir, "missing"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestPluginIsAskedAgainBeforeItsCredentialExpires(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "config", contexts, 0o600)
	write(t, dir, "plugin", `#!/bin/sh
[ "$WHO" = me ] || { echo "who is it" >&2; exit 3; }
echo x >>asked
echo '{"status":{"token":"t'$(wc -l <asked | tr -d ' ')'","expirationTimestamp":"2030-01-01T00:10:00Z"}}'
`, 0o700)
	c, err := Load(path, "plugin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &pluginSource{plugin: plugin{Command: "./plugin", Env: []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	}{{"WHO", "me"}}}, dir: dir, now: func() time.Time { return now }}
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{0, "t1"}, {9 * time.Minute, "t1"}, {10 * time.Minute, "t2"}} {
		now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(step.after)
		got, err := s.credential(t.Context())
		if err != nil || got.token != step.want {
			t.Errorf("after %v: %q, %v", step.after, got.token, err)
		}
	}
	if got := tokenOf(t, c); got != "t3" {
		t.Errorf("by the kubeconfig: %q", got)
	}
	s = &pluginSource{plugin: plugin{Command: "./plugin"}, dir: dir, now: time.Now}
	if _, err := s.credential(context.Background()); err == nil || !strings.Contains(err.Error(), "who is it") {
		t.Errorf("a plugin that fails: %v", err)
	}
}

func TestInCluster(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "token", "t\n", 0o600)
	write(t, dir, "ca.crt", "ca", 0o600)
	write(t, dir, "namespace", "ramus\n", 0o600)
	env := map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
	c, err := inCluster(dir, func(name string) string { return env[name] })
	if err != nil || c.Server != "https://[fd00::1]:443" || c.Namespace != "ramus" || tokenOf(t, c) != "t" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := inCluster(dir, func(string) string { return "" }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("outside: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(contexts)
	f.Add("contexts: [{name: 1}]")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := parse([]byte(text))
		if err == nil {
			_, _, _, _ = k.find(k.Current)
		}
	})
}

func FuzzParseCredential(f *testing.F) {
	f.Add(`{"status":{"token":"t","expirationTimestamp":"2030-01-01T00:10:00Z"}}`)
	f.Add(`{"status":{"clientCertificateData":"x","clientKeyData":"` + base64.StdEncoding.EncodeToString([]byte("x")) +
		`"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, _, err := parseCredential([]byte(text))
		if err == nil && c.token == "" && c.certificate == nil {
			t.Error("a credential without anything")
		}
	})
}

func FuzzParseExit(f *testing.F) {
	f.Add(`{"status":"Success"}`)
	f.Add(`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if code, err := parseExit([]byte(text)); err == nil && (code < 0 || code > 255) {
			t.Errorf("the code is %d", code)
		}
	})
}
