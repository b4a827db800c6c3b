package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine describes the machine of a run.
type machine struct {
	Time   time.Time `json:"time"`
	Cores  int       `json:"cores"`
	Memory int64     `json:"memory_mb"`
	CPU    string    `json:"cpu,omitempty"`
	Kernel string    `json:"kernel"`
	Git    string    `json:"git"`
	Engine string    `json:"engine,omitempty"` // the container engine's version
	Go     string    `json:"go"`
	Load   float64   `json:"load"`
}

func thisMachine(ctx context.Context) machine {
	m := machine{Time: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Go: runtime.Version(),
		Load: loadAverage()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit) >> 20
	}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(text) {
		if name, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	out, _ := exec.CommandContext(ctx, "git", "version").Output()
	m.Git = strings.TrimSpace(strings.TrimPrefix(string(out), "git version "))
	out, _ = exec.CommandContext(ctx, "docker", "version", "-f", "{{.Server.Version}}").Output()
	m.Engine = strings.TrimSpace(string(out))
	return m
}

func (m machine) String() string {
	s := fmt.Sprintf("%s: %d cores (%s), %s MB, kernel %s, git %s, %s", m.Time.Format(time.RFC3339), m.Cores, m.CPU,
		thousands(m.Memory), m.Kernel, m.Git, m.Go)
	if m.Engine != "" {
		s += ", Docker " + m.Engine
	}
	return s + fmt.Sprintf(", load %.1f at the start", m.Load)
}

// loadAverage returns the load average of the last minute.
func loadAverage() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}
