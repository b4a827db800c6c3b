package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gitd"
)

// deployed sends body to /hooks/deploy with the given time. The signature is that of signed with secret.
func (r *rooms) deployed(t *testing.T, secret string, at time.Time, body, signed string) (int, gateway.Deployed) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.web.URL+"/hooks/deploy", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	stamp := strconv.FormatInt(at.Unix(), 10)
	req.Header.Set("X-Ramus-Timestamp", stamp)
	req.Header.Set("X-Ramus-Signature", gateway.Signature(secret, stamp, []byte(signed)))
	resp, err := r.web.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	var d gateway.Deployed
	if err := json.Unmarshal(b.Bytes(), &d); err != nil {
		t.Errorf("status %d: %s", resp.StatusCode, b.String())
	}
	return resp.StatusCode, d
}

const hookSecret = "the secret of deploys"

func TestDeployHook(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := open(t, false, func(s *gateway.Server) { s.Now = func() time.Time { return now } })
	upstream := filepath.Join(t.TempDir(), "upstream")
	var commits []string
	sh := func(script string) string {
		t.Helper()
		out, err := exec.Command("sh", "-ec", "cd "+upstream+"; "+script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if out, err := exec.Command("git", "init", "-q", "-b", "main", upstream).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for range 3 {
		commits = append(commits,
			sh("git -c user.name=T -c user.email=t@example.org commit -q --allow-empty -m more; git rev-parse HEAD"))
	}
	if _, err := r.Git.Import(t.Context(), "app", upstream, nil); err != nil {
		t.Fatal(err)
	}
	r.repo(t, "own")
	body := func(repo, commit string) string { return fmt.Sprintf(`{"repo": %q, "commit": %q}`, repo, commit) }
	good := body("app", commits[0])
	for name, c := range map[string]struct {
		secret       string
		at           time.Time
		body, signed string
		status       int
	}{
		"good":            {hookSecret, now, good, good, 202},
		"late":            {hookSecret, now.Add(-299 * time.Second), good, good, 202},
		"early":           {hookSecret, now.Add(299 * time.Second), good, good, 202},
		"too late":        {hookSecret, now.Add(-302 * time.Second), good, good, 401},
		"too early":       {hookSecret, now.Add(302 * time.Second), good, good, 401},
		"another secret":  {"another", now, good, good, 401},
		"another body":    {hookSecret, now, body("app", commits[1]), good, 401},
		"no body":         {hookSecret, now, "", "", 400},
		"no JSON":         {hookSecret, now, "{", "{", 400},
		"two bodies":      {hookSecret, now, good + good, good + good, 400},
		"a misspelt key":  {hookSecret, now, `{"rpo": "app"}`, `{"rpo": "app"}`, 400},
		"a branch":        {hookSecret, now, body("app", "main"), body("app", "main"), 400},
		"an unknown repo": {hookSecret, now, body("none", commits[0]), body("none", commits[0]), 404},
		"no upstream":     {hookSecret, now, body("own", commits[0]), body("own", commits[0]), 400},
		"too large":       {hookSecret, now, strings.Repeat(" ", 70<<10) + good, strings.Repeat(" ", 70<<10) + good, 413},
	} {
		if status, d := r.deployed(t, c.secret, c.at, c.body, c.signed); status != c.status || status == 202 &&
			(d.Repo != "app" || string(d.Commit) != commits[0]) {
			t.Errorf("%s: status %d %+v, want %d", name, status, d, c.status)
		}
	}

	// A deploy that is reported many times concurrently makes one manifest.
	var group sync.WaitGroup
	last := body("app", commits[2])
	for i := range 10 {
		group.Go(func() {
			if status, _ := r.deployed(t, hookSecret, now.Add(time.Duration(i%2)*time.Second), last, last); status != 202 {
				t.Errorf("status %d", status)
			}
		})
	}
	group.Wait()
	repo, err := r.Git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deploys are done", func() bool {
		s, err := r.Executor.Bases.Status(t.Context(), repo)
		if err != nil {
			t.Fatal(err)
		}
		return s.Waiting == 0
	})
	list, err := r.local.Bases(t.Context(), "app", 0)
	if err != nil || len(list.Bases) != 2 {
		t.Fatalf("%d manifests, want 2: %v", len(list.Bases), err)
	}
	for _, b := range list.Bases {
		if !b.Valid {
			t.Error(b.Problem)
		}
	}
	if list.Bases[0].Commit != gitd.Hash(commits[2]) || !strings.HasPrefix(list.Key, "ramus namespaces=") {
		t.Errorf("%+v", list)
	}
	if status, d := r.deployed(t, hookSecret, now, last, last); status != 202 || !d.Known {
		t.Errorf("heard again: %d %+v", status, d)
	}
	repos, err := r.local.Repos(context.WithoutCancel(t.Context()))
	if err != nil || len(repos) != 2 || repos[0].Status.Refreshed.IsZero() || !repos[1].Status.Refreshed.IsZero() {
		t.Errorf("%+v %v", repos, err)
	}
}

func TestNoDeployHook(t *testing.T) {
	t.Parallel()
	r := open(t, false, func(s *gateway.Server) { s.DeploySecret = "" })
	// An empty secret must not be accepted, because everybody would know it.
	if status, _ := r.deployed(t, "", time.Now(), "{}", "{}"); status != 404 {
		t.Errorf("status %d, want 404", status)
	}
}
