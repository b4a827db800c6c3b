package upstream

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd"
)

// FuzzDeploy checks that a deploy that is accepted fits into refs, file names and manifests.
func FuzzDeploy(f *testing.F) {
	f.Add([]byte(`{"repo": "team/app", "commit": "0123456789012345678901234567890123456789", "deployed_at": "2024-05-06T07:08:09Z"}`))
	f.Add([]byte(`{"repo": "app", "commit": "main", "schema_files": ["a", "../b"], "environment": "a\u0000b"}`))
	f.Add([]byte(`{"deployed_at": "9999-99-99"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var d Deploy
		if json.Unmarshal(body, &d) != nil || d.Check() != nil {
			return
		}
		if gitd.CheckName(d.Repo) != nil || gitd.CheckHash(d.Commit) != nil || gitd.CheckRef("refs/ramus/bases/"+string(d.Commit)) != nil {
			t.Errorf("accepted: %+v", d)
		}
		if name := (&waitingDeploy{Deploy: d, Accepted: d.DeployedAt}).name(); !filepath.IsLocal(name) ||
			strings.ContainsRune(name, '/') || len(name) > 100 {
			t.Errorf("a file called %q", name)
		}
		if _, err := json.Marshal(d); err != nil {
			t.Errorf("cannot be kept: %v", err)
		}
	})
}
