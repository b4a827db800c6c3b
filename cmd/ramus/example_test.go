package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestDeployHookExample checks the job that reports deploys. It fails nothing, waits for the deploy, and
// sets the variables that the script reads. The story "deploy" runs the script itself.
func TestDeployHookExample(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "examples", "deploy-hook")
	text, err := os.ReadFile(filepath.Join(dir, "github-actions.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Needs           string            `yaml:"needs"`
			ContinueOnError bool              `yaml:"continue-on-error"`
			Timeout         int               `yaml:"timeout-minutes"`
			Permissions     map[string]string `yaml:"permissions"`
			Steps           []struct {
				Run string            `yaml:"run"`
				Env map[string]string `yaml:"env"`
			} `yaml:"steps"`
		} `yaml:"jobs"`
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	job := workflow.Jobs["tell-ramus"]
	if !job.ContinueOnError || job.Needs != "deploy" || job.Timeout == 0 || len(job.Permissions) != 1 ||
		job.Permissions["contents"] != "read" {
		t.Errorf("%+v", job)
	}
	script, err := os.ReadFile(filepath.Join(dir, "notify.sh"))
	if err != nil {
		t.Fatal(err)
	}
	var reads []string
	for _, m := range regexp.MustCompile(`\$\{?((?:RAMUS|DEPLOY)_[A-Z_]+)`).FindAllSubmatch(script, -1) {
		reads = append(reads, string(m[1]))
	}
	last := job.Steps[len(job.Steps)-1]
	for name := range last.Env {
		if !slices.Contains(reads, name) {
			t.Errorf("the script does not read %s", name)
		}
	}
	for _, name := range []string{"RAMUS_URL", "RAMUS_DEPLOY_SECRET", "RAMUS_REPO", "DEPLOY_COMMIT"} {
		if last.Env[name] == "" || !slices.Contains(reads, name) {
			t.Errorf("the job does not give the script %s", name)
		}
	}
}

// TestWebExample checks that the page's specs and workflows are valid, and that its lock file works with
// any registry, because it names none. TestDemoBrowser runs them.
func TestWebExample(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "examples", "web")
	files, err := filepath.Glob(filepath.Join(dir, ".ramus", "*", "*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		var out bytes.Buffer
		if code := run(t.Context(), []string{"check", file}, stdio{out: &out, err: &out}, nil); code != 0 {
			t.Errorf("%s: %s", file, out.Bytes())
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct {
			Resolved  string `json:"resolved"`
			Integrity string `json:"integrity"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	for name, p := range lock.Packages {
		if p.Resolved != "" || p.Integrity == "" && name != "" {
			t.Errorf("package-lock.json has %s from %q with integrity %q", name, p.Resolved, p.Integrity)
		}
	}
}

// TestEvidenceCheckExample checks the job that asks for evidence. It runs nothing of the pull request, and gives the script
// the variables that it reads. The story "evidence" runs the script itself.
func TestEvidenceCheckExample(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "examples", "evidence-check")
	text, err := os.ReadFile(filepath.Join(dir, "github-actions.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Timeout     int               `yaml:"timeout-minutes"`
			Permissions map[string]string `yaml:"permissions"`
			Steps       []struct {
				Uses string            `yaml:"uses"`
				With map[string]string `yaml:"with"`
				Env  map[string]string `yaml:"env"`
			} `yaml:"steps"`
		} `yaml:"jobs"`
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	job := workflow.Jobs["evidence"]
	if len(job.Steps) == 0 || job.Timeout == 0 || len(job.Permissions) != 1 || job.Permissions["contents"] != "read" ||
		len(job.Steps[0].With) != 0 {
		t.Fatalf("%+v", job)
	}
	last := job.Steps[len(job.Steps)-1]
	for _, name := range []string{"RAMUS_URL", "RAMUS_TOKEN", "CHECK_COMMIT"} {
		if last.Env[name] == "" {
			t.Errorf("the job does not give the script %s", name)
		}
	}
}
