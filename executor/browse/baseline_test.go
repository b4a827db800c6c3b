package browse

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// TestBaselinesKept checks that the newest baselines of a repository are kept. A baseline that exists can be kept
// again.
func TestBaselinesKept(t *testing.T) {
	git := repotest.NewServer(t)
	repo, err := git.Create(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	clock := time.Unix(1_700_000_000, 0)
	in := &Inspector{Bot: gitd.Person{Name: "ramus", Email: "ramus@localhost"}, Baselines: 10,
		Now: func() time.Time { return clock }}
	for i := range 12 {
		clock = clock.Add(time.Second)
		key := fmt.Sprintf("%04d", (i*7919)%10_000)
		view := baselineView{Viewport: "mobile", Screenshot: "mobile/screenshot.png", picture: []byte(key)}
		b := baseline{Verdict: browser.Pass, Tree: key, Views: []baselineView{view}}
		for range 1 + i%2 {
			if err := in.writeBaseline(t.Context(), repo, BaselineRefs+"/"+key, b); err != nil {
				t.Fatal(err)
			}
		}
		again, err := readBaseline(t.Context(), repo, key)
		if err != nil || string(again.Views[0].picture) != key {
			t.Errorf("%s reads as %+v, %v", key, again, err)
		}
	}

	refs, err := repo.Refs(t.Context(), BaselineRefs)
	if err != nil || len(refs) != 10 {
		t.Fatalf("%d looks are kept, %v", len(refs), err)
	}
	if slices.ContainsFunc(refs, func(r gitd.Ref) bool { return strings.HasSuffix(r.Name, "/0000") }) {
		t.Error("the oldest is kept")
	}
}
