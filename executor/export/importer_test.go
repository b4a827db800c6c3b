package export

import (
	"errors"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// TestRead bounds each file of a record, and all of them together.
func TestRead(t *testing.T) {
	repo, err := repotest.NewServer(t).Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	h, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Author: gitd.Person{Name: "Ada"}, Message: "record",
		Put: []gitd.File{{Path: "run.json", Content: []byte(strings.Repeat("x", 10))}}})
	if err != nil {
		t.Fatal(err)
	}
	o := &opened{bundle: &gitd.Received{Repo: repo}}
	var have int64
	for i, want := range []struct {
		most    int64
		refused bool
	}{{9, true}, {10, false}, {10, false}, {10, true}} {
		text, err := o.read(t.Context(), Run{Record: h}, "run.json", want.most, &have, 20)
		if want.refused != errors.Is(err, gitd.ErrTooLarge) || want.refused != (text == nil) {
			t.Errorf("read %d: %q, %v", i+1, text, err)
		}
	}
}
