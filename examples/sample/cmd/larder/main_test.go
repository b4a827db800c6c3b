package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 3, 3, 8, 0, 0, 0, time.UTC)

func TestStory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "larder.json")
	for _, step := range []struct {
		args, want string
	}{
		{"list", "ITEM     AMOUNT   GOOD UNTIL\n"},
		{"put milk 1l 2026-03-04", ""},
		{"put milk 500ml 2026-03-09", ""},
		{"put honey 340g", ""},
		{"use milk 250ml", "milk: 1.25 l left\n"},
		{"", "ITEM      AMOUNT   GOOD UNTIL\nmilk      1.25 l   2026-03-04   tomorrow\nhoney     340 g    -            keeps\n"},
		{"-today 2026-03-05 list",
			"ITEM      AMOUNT   GOOD UNTIL\nmilk      1.25 l   2026-03-04   since yesterday\nhoney     340 g    -            keeps\n"},
	} {
		var out strings.Builder
		if err := run(append([]string{"-file", file}, strings.Fields(step.args)...), &out, now); err != nil {
			t.Fatalf("%s: %v", step.args, err)
		}
		if out.String() != step.want {
			t.Errorf("%s:\ngot\n%s\nwant\n%s", step.args, out.String(), step.want)
		}
	}
	for _, args := range []string{"dance", "put milk", "put milk 3 stone", "use gold 1g", "put x 1 someday", "-today never list"} {
		var out strings.Builder
		if err := run(append([]string{"-file", file}, strings.Fields(args)...), &out, now); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

func TestTheReadmeShowsWhatThereIs(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"-file", "../../testdata/larder.json"}, &out, now); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if !strings.Contains(string(readme), "    "+line) {
			t.Errorf("README.md does not show %q", line)
		}
	}
}
