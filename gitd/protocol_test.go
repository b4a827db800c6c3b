package gitd

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
)

// v2Fetch is a request of a fetch.
func v2Fetch(args ...string) []byte {
	b := append(appendPkt(appendPkt(appendPkt(nil, "command=fetch"), "agent=git/test"), "object-format=sha1"), "0001"...)
	for _, a := range args {
		b = appendPkt(b, a, "\n")
	}
	return append(b, flushPkt...)
}

func TestParseRequest(t *testing.T) {
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	q, err := parseRequest(bytes.NewReader(v2Fetch("thin-pack", "no-progress", "include-tag", "ofs-delta", "want "+two, "want "+one, "want "+two,
		"have "+one, "shallow "+two, "deepen 1", "filter blob:none", "done")))
	if err != nil {
		t.Fatal(err)
	}
	f := q.fetch
	if len(f.Wants) != 2 || f.Wants[0] != Hash(one) || len(f.Haves) != 1 || len(f.Shallow) != 1 || f.Depth != 1 || f.Filter != "blob:none" ||
		!f.ThinPack || !f.NoProgress || !f.IncludeTag || !f.OFSDelta || !f.Done {
		t.Errorf("%+v", f)
	}
	for what, body := range map[string][]byte{
		"no command":         append(appendPkt(nil, "agent=x"), "00010000"...),
		"no known command":   append(appendPkt(nil, "command=push"), "00010000"...),
		"two commands":       append(appendPkt(appendPkt(nil, "command=fetch"), "command=ls-refs"), "0000"...),
		"no capability":      append(appendPkt(appendPkt(nil, "command=fetch"), "x=y"), "0000"...),
		"sha256":             append(appendPkt(appendPkt(nil, "command=fetch"), "object-format=sha256"), "0000"...),
		"unknown":            v2Fetch("blobs"),
		"want-ref":           v2Fetch("want-ref refs/heads/main"),
		"sideband-all":       v2Fetch("sideband-all"),
		"want nothing":       v2Fetch("want "),
		"want a name":        v2Fetch("want main"),
		"want in capitals":   v2Fetch("want " + strings.Repeat("A", 40)),
		"depth 0":            v2Fetch("deepen 0"),
		"depth -1":           v2Fetch("deepen -1"),
		"depth twice":        v2Fetch("deepen 1", "deepen-since 1"),
		"two filters":        v2Fetch("filter blob:none", "filter tree:0"),
		"control":            v2Fetch("filter blob:none\x00"),
		"ends early":         v2Fetch("done")[:40],
		"no flush":           bytes.TrimSuffix(v2Fetch("done"), []byte("0000")),
		"delimiter in front": []byte("00010000"),
	} {
		q, err := parseRequest(bytes.NewReader(body))
		var r *object.Refusal
		if !errors.As(err, &r) && (what != "delimiter in front" && what != "no command" || err != nil || q.command != "") {
			t.Errorf("%s: %+v, %v", what, q, err)
		}
	}
	for _, bye := range []string{"", "0000"} {
		if q, err := parseRequest(strings.NewReader(bye)); err != nil || q.command != "" {
			t.Errorf("%q: %+v, %v", bye, q, err)
		}
	}
}

func TestCapabilities(t *testing.T) {
	advert := append(appendPkt(appendPkt(appendPkt(appendPkt(appendPkt(nil, "version 2\n"), "agent=git/9\n"), "ls-refs=unborn new\n"),
		"fetch=shallow packfile-uris wait-for-done filter ref-in-want\n"), "object-info\n"), flushPkt...)
	b, err := capabilities(advert, false)
	if err != nil || string(b) != "000eversion 2\n0010agent=git/9\n0013ls-refs=unborn\n0027fetch=shallow wait-for-done filter\n0000" {
		t.Errorf("%q %v", b, err)
	}
	if b, err = capabilities(advert, true); err != nil || !strings.Contains(string(b), "object-info") {
		t.Errorf("%q %v", b, err)
	}
	for _, bad := range []string{"", "0000", "000eversion 1\n0000", "000eversion 2\n"} {
		if _, err := capabilities([]byte(bad), true); err == nil {
			t.Errorf("%q was taken for capabilities", bad)
		}
	}
}

// FuzzParseRequest: nothing crashes the parser, and what git is told is what was understood.
func FuzzParseRequest(f *testing.F) {
	one := strings.Repeat("1", 40)
	f.Add(v2Fetch("thin-pack", "want "+one, "have "+one, "deepen 3", "deepen-relative", "filter tree:0", "done"))
	f.Add(v2Fetch("want "+one, "deepen-since 1700000000", "deepen-not refs/heads/x", "shallow "+one, "wait-for-done"))
	f.Add(lsRefs("peel", "symrefs", "unborn", "ref-prefix refs/heads/"))
	f.Add([]byte("0014command=object-info\n00010000"))
	f.Add([]byte("0000"))
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := parseRequest(bytes.NewReader(body))
		if err != nil || q.command != commandFetch {
			return
		}
		text := q.fetch.render(false)
		again, err := parseRequest(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%q became %q: %v", body, text, err)
		}
		if !bytes.Equal(again.fetch.render(false), text) {
			t.Errorf("%q became %q", text, again.fetch.render(false))
		}
	})
}
