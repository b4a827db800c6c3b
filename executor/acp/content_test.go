package acp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/acp"
)

// TestContents reads results of tool calls, also those with parts of other shapes.
func TestContents(t *testing.T) {
	for text, want := range map[string]string{
		`null`:       `null`,
		`"x"`:        `null`,
		`[1,"x",{}]`: `null`,
		`[{"type":"content","content":{"type":"image"}}]`:           `null`,
		`[{"type":"of tomorrow"},{"type":"diff","path":[]}]`:        `null`,
		`[{"type":"diff","path":"a","newText":"x"}]`:                `[{"type":"diff","path":"a","newText":"x"}]`,
		`[{"type":"diff","path":"a","oldText":"","newText":""}]`:    `[{"type":"diff","path":"a","oldText":""}]`,
		`[{"type":"terminal","terminalId":"t1","x":1}]`:             `[{"type":"terminal","terminalId":"t1"}]`,
		`[{"type":"content","content":{"type":"text","text":"<"}}]`: `[{"type":"content","content":{"type":"text","text":"\u003c"}}]`,
	} {
		var c acp.Contents
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got, err := json.Marshal(c); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

// TestShorten shortens results. A difference keeps the lines that changed.
func TestShorten(t *testing.T) {
	words := func(text string) acp.Contents {
		return acp.Contents{{Type: acp.ContentBlock, Block: &acp.Block{Type: "text", Text: text}}}
	}
	long := strings.Repeat("x", 50) + "end"
	if got, cut := words(long).Shorten(10, true); !cut || !strings.HasSuffix(got[0].Block.Text, "xxend") {
		t.Errorf("%q", got[0].Block.Text)
	}
	if got, cut := words(long).Shorten(10, false); !cut || got[0].Block.Text != "xxxxxxxxxx…" {
		t.Errorf("%q", got[0].Block.Text)
	}
	if got, cut := words(long).Shorten(100, false); cut || got[0].Block.Text != long {
		t.Errorf("%q", got[0].Block.Text)
	}
	same := strings.Repeat("same\n", 1000)
	before := same + "old\n" + same
	diff := acp.Contents{{Type: acp.ContentDiff, Path: "a", Old: &before, New: same + "new\n" + same}}
	got, cut := diff.Shorten(200, false)
	around := strings.Repeat("same\n", 3)
	if !cut || *got[0].Old != around+"old\n"+around || got[0].New != around+"new\n"+around {
		t.Errorf("%q, %q", *got[0].Old, got[0].New)
	}
	if *diff[0].Old != before {
		t.Error("the original was changed")
	}
	many := make(acp.Contents, 100)
	if got, cut := many.Shorten(10, false); !cut || len(got) != 20 {
		t.Errorf("%d parts", len(got))
	}
}
