package prepare

import (
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestKeptBranch checks that the key of kept files leads back to the branch of their caller.
func TestKeptBranch(t *testing.T) {
	for _, name := range []string{"run:fancy-mallard", "conv:slack-c1"} {
		c, err := record.ParseCaller(name)
		if err != nil {
			t.Fatal(err)
		}
		repo, ref := KeptBranch(KeptOf(nil, "team/app", c).Key)
		if repo != "team/app" || ref != "refs/heads/"+c.Branch() {
			t.Errorf("%s: %s, %s", name, repo, ref)
		}
	}
}
