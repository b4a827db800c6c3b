package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestUnit has systemd verify the unit of the packages, with a program that exists.
func TestUnit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../packaging/ramus.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"KillMode=process", "Delegate=yes", "Restart=on-failure", "User=ramus", "NoNewPrivileges=yes"} {
		if !strings.Contains(string(text), "\n"+want+"\n") {
			t.Errorf("the unit has no %s", want)
		}
	}
	// These would take from sandboxes what they are made of.
	for _, harmful := range []string{"RestrictNamespaces", "PrivateUsers", "SystemCallFilter", "MemoryDenyWriteExecute",
		"PrivateTmp", "ProtectKernelTunables"} {
		if strings.Contains(string(text), "\n"+harmful+"=") {
			t.Errorf("the unit has %s", harmful)
		}
	}
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skipf("cannot run here: %v", err)
	}
	unit := filepath.Join(t.TempDir(), "ramus.service")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/bin/ramus", "/bin/true")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "verify", "--man=no", unit).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "ramus.service") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	if err != nil && strings.Contains(string(out), "ramus.service") {
		t.Error(err)
	}
}

// TestCompose reads the compose file. Where the compose plugin is, it checks the file too.
func TestCompose(t *testing.T) {
	t.Parallel()
	const name = "../../packaging/compose.yaml"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image       string            `yaml:"image"`
			Restart     string            `yaml:"restart"`
			Environment map[string]string `yaml:"environment"`
			Ports       []string          `yaml:"ports"`
			Volumes     []string          `yaml:"volumes"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	s := file.Services["ramus"]
	if s.Restart != "unless-stopped" || len(s.Ports) != 1 || !strings.HasPrefix(s.Ports[0], "127.0.0.1:") {
		t.Errorf("the service is %+v", s)
	}
	// Each variable is one of the configuration.
	var environ []string
	for k, v := range s.Environment {
		environ = append(environ, k+"="+v)
	}
	c, err := LoadConfig(filepath.Join(t.TempDir(), "none"), true, environ)
	if err != nil || c.Engine != "docker" || c.Listen != "0.0.0.0:8080" {
		t.Errorf("%+v, %v", c, err)
	}
	if want := c.Data + ":" + c.Data; s.Volumes[0] != want {
		t.Errorf("the data folder is %s, and the first volume %s", c.Data, s.Volumes[0])
	}
	if err := exec.Command("docker", "compose", "version").Run(); err != nil {
		t.Log("there is no docker compose here")
		return
	}
	if out, err := exec.Command("docker", "compose", "-f", name, "config", "-q").CombinedOutput(); err != nil {
		t.Errorf("docker compose config: %v\n%s", err, out)
	}
}
