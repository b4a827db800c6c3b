package gitd

import (
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/protocol"
)

// TestMalformedFetches sends requests that git would not send. The server reports each as the client's fault, in
// every version of the protocol.
func TestMalformedFetches(t *testing.T) {
	w := newWire(t, nil)
	dir := w.repo("app")
	tip := strings.TrimSpace(stock(t, dir, "rev-parse", "HEAD"))
	pkt := func(parts ...string) string { return string(protocol.AppendLine(nil, parts...)) }
	v2 := func(lines ...string) string {
		b := pkt("command=fetch\n") + "0001"
		for _, l := range lines {
			b += pkt(l, "\n")
		}
		return b + "0000"
	}
	v0 := func(lines ...string) string {
		b := ""
		for _, l := range lines {
			b += pkt(l, "\n")
		}
		return b + "0000" + pkt("done\n")
	}
	for name, c := range map[string]struct{ protocol, body string }{
		"not hex":               {"", "zzzzwant"},
		"length 3":              {"", "0003"},
		"longer than the body":  {"", "0099want"},
		"an end of a response":  {"", "0002"},
		"a delimiter":           {"", "0001"},
		"no line":               {"", v0("hello")},
		"a short want":          {"", v0("want 123")},
		"a want that is no hex": {"", v0("want " + strings.Repeat("z", 40))},
		"a long want":           {"", v0("want " + tip + "0")},
		"depth 0":               {"", v0("want "+tip, "deepen 0")},
		"depth -1":              {"", v0("want "+tip, "deepen -1")},
		"no depth":              {"", v0("want "+tip, "deepen x")},
		"a huge depth":          {"", v0("want "+tip, "deepen 99999999999999999999")},
		"no time":               {"", v0("want "+tip, "deepen-since x")},
		"no shallow":            {"", v0("want "+tip, "shallow x")},
		"an unknown filter":     {"", v0("want "+tip+" filter", "filter nope")},
		"no limit":              {"", v0("want "+tip+" filter", "filter blob:limit=x")},
		"no have":               {"", pkt("want "+tip+"\n") + "0000" + pkt("have x\n")},
		"v1, no want":           {"version=1", v0("want 1")},
		"v2, no filter":         {"version=2", v2("want "+tip, "filter nope", "done")},
		"v2, no depth of trees": {"version=2", v2("want "+tip, "filter tree:x", "done")},
		"v2, depth 0":           {"version=2", v2("want "+tip, "deepen 0", "done")},
		"v2, no packet":         {"version=2", "00zz"},
		"v2, no command":        {"version=2", pkt("command=nope\n") + "0000"},
	} {
		t.Run(name, func(t *testing.T) {
			header := []string{}
			if c.protocol != "" {
				header = append(header, "Git-Protocol", c.protocol)
			}
			status, said := w.post("git-upload-pack", "app", strings.NewReader(c.body), header...)
			if (status < 400 || status >= 500) && !strings.Contains(said, "ERR ") {
				t.Errorf("got %d %q", status, said)
			}
		})
	}
	if status, said := w.post("git-upload-pack", "app", strings.NewReader(v0("want "+tip))); status != 200 ||
		!strings.Contains(said, "PACK") {
		t.Errorf("a sound request: %d %.100q", status, said)
	}
}
