package render

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

func TestHomeIsWithinSlacksLimits(t *testing.T) {
	var many []string
	for i := range 150 {
		many = append(many, fmt.Sprintf("team/repository-%d-%s", i, strings.Repeat("x", i)))
	}
	notify := []HomeOption{{"needed", "for questions"}, {"never", "never"}}
	for name, h := range map[string]Home{
		"nothing": {},
		"the usual": {Repos: []string{"app", "lib"}, Agents: []string{"coder"}, Notify: notify, Repo: "lib",
			Base: "next", Agent: "coder", Notice: "never"},
		"too much": {Repos: many, Agents: many, Notify: notify, Repo: many[140], Agent: many[0],
			Mistake: strings.Repeat("<!channel> ", 1000)},
		"what was there":  {Repos: []string{"app"}, Repo: "gone`*", Agent: "gone"},
		"foreign letters": {Repos: []string{"ärger/größe", "\u202e"}, Base: "größe"},
	} {
		blocks, err := json.Marshal(h.Blocks())
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range slacktest.CheckBlocks(blocks) {
			t.Errorf("%s: %s", name, wrong)
		}
		if strings.Contains(string(blocks), "<!channel>") {
			t.Errorf("%s mentions a channel", name)
		}
	}
	if blocks, _ := json.Marshal(Home{Repos: many, Repo: many[110]}.Blocks()); !strings.Contains(string(blocks),
		`"initial_option":{"text":{"type":"plain_text","text":"team/repository-110-`) {
		t.Error("the present choice is not shown")
	}
}

func TestNotice(t *testing.T) {
	msg := slack.Message{Text: "failed", Blocks: []slack.Block{slack.Block(`{"type":"divider"}`)}}
	if got := Notice(msg, "U01", "U02"); got.Text != "<@U01> <@U02> failed" || len(got.Blocks) != 2 ||
		!strings.Contains(string(got.Blocks[0]), "U02") || len(msg.Blocks) != 1 {
		t.Errorf("%+v", got)
	}
	if got := Notice(slack.Message{Text: "failed"}, "U01"); got.Text != "<@U01> failed" || got.Blocks != nil {
		t.Errorf("%+v", got)
	}
	full := slack.Message{Text: "x", Blocks: make([]slack.Block, blocksMax)}
	if got := Notice(full, "U01"); got.Text != "x" {
		t.Errorf("%+v", got)
	}
}
