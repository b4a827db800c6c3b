package protocol

import (
	"fmt"

	curve "github.com/ramus-dev/ramus/internal/growth"

	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
)

// fetchOf returns a request of a fetch.
func fetchOf(args ...string) []byte {
	b := append(AppendLine(AppendLine(AppendLine(nil, "command=fetch"), "agent=git/test"), "object-format=sha1"), "0001"...)
	for _, a := range args {
		b = AppendLine(b, a, "\n")
	}
	return append(b, FlushLine...)
}

func TestParseRequest(t *testing.T) {
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	q, err := ParseRequest(bytes.NewReader(fetchOf("thin-pack", "no-progress", "include-tag", "ofs-delta", "want "+two,
		"want "+one, "want "+two,
		"have "+one, "shallow "+two, "deepen 1", "filter blob:none", "done")))
	if err != nil {
		t.Fatal(err)
	}
	f := q.Fetch
	if len(f.Wants) != 2 || f.Wants[0] != object.Hash(one) || len(f.Haves) != 1 || len(f.Shallow) != 1 ||
		f.Depth != 1 || f.Filter != "blob:none" ||
		!f.ThinPack || !f.NoProgress || !f.IncludeTag || !f.OFSDelta || !f.Done {
		t.Errorf("%+v", f)
	}
	for what, body := range map[string][]byte{
		"no command":         append(AppendLine(nil, "agent=x"), "00010000"...),
		"no known command":   append(AppendLine(nil, "command=push"), "00010000"...),
		"two commands":       append(AppendLine(AppendLine(nil, "command=fetch"), "command=ls-refs"), "0000"...),
		"no capability":      append(AppendLine(AppendLine(nil, "command=fetch"), "x=y"), "0000"...),
		"sha256":             append(AppendLine(AppendLine(nil, "command=fetch"), "object-format=sha256"), "0000"...),
		"unknown":            fetchOf("blobs"),
		"want-ref":           fetchOf("want-ref refs/heads/main"),
		"sideband-all":       fetchOf("sideband-all"),
		"want nothing":       fetchOf("want "),
		"want a name":        fetchOf("want main"),
		"want in capitals":   fetchOf("want " + strings.Repeat("A", 40)),
		"depth 0":            fetchOf("deepen 0"),
		"depth -1":           fetchOf("deepen -1"),
		"depth twice":        fetchOf("deepen 1", "deepen-since 1"),
		"two filters":        fetchOf("filter blob:none", "filter tree:0"),
		"control":            fetchOf("filter blob:none\x00"),
		"ends early":         fetchOf("done")[:40],
		"no flush":           bytes.TrimSuffix(fetchOf("done"), []byte("0000")),
		"delimiter in front": []byte("00010000"),
	} {
		q, err := ParseRequest(bytes.NewReader(body))
		var r *object.Refusal
		if !errors.As(err, &r) && (what != "delimiter in front" && what != "no command" || err != nil || q.Command != "") {
			t.Errorf("%s: %+v, %v", what, q, err)
		}
	}
	for _, bye := range []string{"", "0000"} {
		if q, err := ParseRequest(strings.NewReader(bye)); err != nil || q.Command != "" {
			t.Errorf("%q: %+v, %v", bye, q, err)
		}
	}
}

func TestCapabilities(t *testing.T) {
	advert := append(AppendLine(AppendLine(AppendLine(AppendLine(AppendLine(nil, "version 2\n"), "agent=git/9\n"),
		"ls-refs=unborn new\n"),
		"fetch=shallow packfile-uris wait-for-done filter ref-in-want\n"), "object-info\n"), FlushLine...)
	b, err := Capabilities(advert, false)
	if err != nil || string(b) != "000eversion 2\n0010agent=git/9\n0013ls-refs=unborn\n0027fetch=shallow wait-for-done filter\n0000" {
		t.Errorf("%q %v", b, err)
	}
	if b, err = Capabilities(advert, true); err != nil || !strings.Contains(string(b), "object-info") {
		t.Errorf("%q %v", b, err)
	}
	for _, bad := range []string{"", "0000", "000eversion 1\n0000", "000eversion 2\n"} {
		if _, err := Capabilities([]byte(bad), true); err == nil {
			t.Errorf("%q was taken for capabilities", bad)
		}
	}
}

// FuzzParseRequest checks that no input crashes the parser, and that git gets the request that the
// parser understood.
func FuzzParseRequest(f *testing.F) {
	one := strings.Repeat("1", 40)
	f.Add(fetchOf("thin-pack", "want "+one, "have "+one, "deepen 3", "deepen-relative", "filter tree:0", "done"))
	f.Add(fetchOf("want "+one, "deepen-since 1700000000", "deepen-not refs/heads/x", "shallow "+one, "wait-for-done"))
	f.Add(append(AppendLine(AppendLine(append(AppendLine(nil, "command=ls-refs\n"), "0001"...), "peel\n"),
		"ref-prefix refs/heads/\n"), FlushLine...))
	f.Add([]byte("0014command=object-info\n00010000"))
	f.Add([]byte("0000"))
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := ParseRequest(bytes.NewReader(body))
		if err != nil || q.Command != CommandFetch {
			return
		}
		text := q.Fetch.Render(false)
		again, err := ParseRequest(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%q became %q: %v", body, text, err)
		}
		if !bytes.Equal(again.Fetch.Render(false), text) {
			t.Errorf("%q became %q", text, again.Fetch.Render(false))
		}
	})
}

func FuzzPktLine(f *testing.F) {
	f.Add([]byte("0009hello0000"))
	f.Add([]byte("00010002FFFF"))
	f.Add([]byte("0003"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := NewReader(bytes.NewReader(text))
		var again []byte
		for {
			raw, kind, err := r.NextRaw()
			if err != nil {
				break
			}
			if kind == Data && len(raw) < 4 || kind != Data && len(raw) != 4 {
				t.Fatalf("%q is of kind %d", raw, kind)
			}
			again = append(again, raw...)
		}
		if !bytes.HasPrefix(text, again) {
			t.Errorf("%q became %q", text, again)
		}
	})
}

// TestRequestGrowth checks that the time to read a client's request grows with its size.
func TestRequestGrowth(t *testing.T) {
	pkt := func(text string) string { return string(AppendLine(nil, text)) }
	id := strings.Repeat("0123456789", 4)
	cases := curve.Tokens("0000", "0001", "0002", "0003", "0004", "0005", "0005a", "000", "fff0", "ffff", "zzzz", "\n",
		pkt("a\n"), pkt("command=fetch\n"), pkt("agent=a\n"), pkt("want "+id+"\n"),
		pkt("have "+id+"\n"), pkt(strings.Repeat("a", 60_000)))
	for _, command := range []string{"fetch", "ls-refs", "object-info"} {
		for _, argument := range []string{"", "a", "want " + id, "have " + id, "shallow " + id, "want-ref refs/heads/a",
			"thin-pack", "deepen 1", "deepen-since 1", "deepen-not a", "deepen-relative", "filter blob:none",
			"ref-prefix a", "ref-prefix ", "peel", "oid " + id, "size"} {
			cases = append(cases, curve.Case{Name: command + " " + argument,
				Prefix: pkt("command="+command+"\n") + "0001", Token: pkt(argument + "\n"), Suffix: "0000"})
		}
		cases = append(cases, curve.Case{Name: command + " ids", Prefix: pkt("command="+command+"\n") + "0001",
			Suffix: "0000", Each: func(n int) string { return pkt(fmt.Sprintf("want %040x\n", n)) }})
		cases = append(cases, curve.Case{Name: command + " haves", Prefix: pkt("command="+command+"\n") + "0001",
			Suffix: "0000", Each: func(n int) string { return pkt(fmt.Sprintf("have %040x\n", 1<<30-n)) }})
	}
	cases = append(cases, curve.Case{Name: "filter combine", Prefix: "f000command=fetch", Token: "combine:tree:0+"})
	curve.Check(t, "protocol v2", func(text []byte) {
		if q, err := ParseRequest(bytes.NewReader(text)); err == nil && q.Command == CommandFetch {
			q.Fetch.Render(false)
		}
	}, cases...)
	var v0 []curve.Case
	for _, line := range []string{"want " + id, "have " + id, "shallow " + id, "deepen 1", "deepen-not a",
		"filter blob:none", "done", "a"} {
		v0 = append(v0, curve.Case{Name: line, Prefix: pkt("want " + id + " agent=a\n"), Token: pkt(line + "\n"),
			Suffix: "0000"},
			curve.Case{Name: "after a flush " + line, Prefix: pkt("want "+id+" agent=a\n") + "0000",
				Token: pkt(line + "\n")})
	}
	curve.Check(t, "protocol v0", func(text []byte) { _ = CheckUpload(bytes.NewReader(text)) }, append(v0, cases[:18]...)...)
}

func TestParsePush(t *testing.T) {
	zero, one, two := strings.Repeat("0", 40), strings.Repeat("1", 40), strings.Repeat("2", 40)
	p, err := ParsePush(strings.NewReader(string(append(AppendLine(AppendLine(nil, zero, " ", one,
		" refs/heads/a\x00report-status side-band-64k"), one, " ", two, " refs/heads/b\n"), FlushLine...)) + "PACK"))
	if err != nil || len(p.Commands) != 2 || !p.Report || p.Band != MaxLine || p.HashLen != 20 || p.Unusual || !p.Packed() {
		t.Fatalf("%+v, %v", p, err)
	}
	if c := p.Commands[0]; !c.Creates() || c.Deletes() || c.New != one || c.Ref != "refs/heads/a" {
		t.Errorf("%+v", c)
	}
	if c := p.Commands[1]; c.Creates() || c.Deletes() || c.Old != one || c.New != two || c.Ref != "refs/heads/b" {
		t.Errorf("%+v", c)
	}
	p, err = ParsePush(bytes.NewReader(append(AppendLine(AppendLine(nil, "shallow ", one, "\n"), one, " ", zero,
		" refs/heads/a\x00side-band"), FlushLine...)))
	if err != nil || len(p.Commands) != 1 || p.Report || p.Band != 1000 || !p.Unusual || p.Packed() || !p.Commands[0].Deletes() {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := ParsePush(strings.NewReader("")); err != nil || len(p.Commands) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	for name, body := range map[string][]byte{
		"no ref":              append(AppendLine(nil, zero, " ", one), FlushLine...),
		"no hex":              append(AppendLine(nil, zero, " ", strings.Repeat("g", 40), " refs/heads/a"), FlushLine...),
		"two lengths":         append(AppendLine(nil, zero, " ", strings.Repeat("1", 64), " refs/heads/a"), FlushLine...),
		"signed":              append(AppendLine(nil, "push-cert\x00report-status"), FlushLine...),
		"a malformed shallow": append(AppendLine(nil, "shallow 12\n"), FlushLine...),
		"no flush":            AppendLine(nil, zero, " ", one, " refs/heads/a"),
		"a delimiter":         []byte("0001"),
		"malformed":           []byte("zzzz"),
		"endless options": append(append(AppendLine(nil, zero, " ", one, " refs/heads/a\x00push-options"),
			FlushLine...), strings.Repeat("0005a", 1002)...),
		"many commands": bytes.Repeat(AppendLine(nil, zero, " ", one, " refs/heads/a"), commandsMax+1),
	} {
		var r *object.Refusal
		if p, err := ParsePush(bytes.NewReader(body)); !errors.As(err, &r) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}
