package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
)

// TestReader checks each kind of pkt-line, and that a reader stops where the line ends.
func TestReader(t *testing.T) {
	long := strings.Repeat("x", MaxLine-4)
	for _, tt := range []struct {
		text string
		want string
		kind Kind
		err  error
		rest string
	}{
		{"0009hello0000", "hello", Data, nil, "0000"},
		{"0004", "", Data, nil, ""},
		{"0005a0000", "a", Data, nil, "0000"},
		{"0000PACK", "", Flush, nil, "PACK"},
		{"0001x", "", Delim, nil, "x"},
		{"0002x", "", End, nil, "x"},
		{"0003x", "", Data, errLine, "x"},
		{"001A" + strings.Repeat("a", 22), strings.Repeat("a", 22), Data, nil, ""},
		{"001f" + strings.Repeat("a", 27) + "b", strings.Repeat("a", 27), Data, nil, "b"},
		{"FFF0" + long + "PACK", long, Data, nil, "PACK"},
		{"fff1" + long + "y", "", Data, errLine, long + "y"},
		{"00g0", "", Data, errLine, ""},
		{"00/0", "", Data, errLine, ""},
		{"00:0", "", Data, errLine, ""},
		{"00@0", "", Data, errLine, ""},
		{"00G0", "", Data, errLine, ""},
		{"00`0", "", Data, errLine, ""},
		{"", "", Data, io.EOF, ""},
		{"000", "", Data, io.ErrUnexpectedEOF, ""},
		{"0009", "", Data, io.ErrUnexpectedEOF, ""},
		{"0009hell", "", Data, io.ErrUnexpectedEOF, ""},
	} {
		in := strings.NewReader(tt.text)
		line, kind, err := NewReader(in).Next()
		rest, _ := io.ReadAll(in)
		if string(line) != tt.want || kind != tt.kind || !errors.Is(err, tt.err) || string(rest) != tt.rest {
			t.Errorf("%.20q: %.20q, kind %d, %v, then %.20q", tt.text, line, kind, err, rest)
		}
	}
}

// TestReaderGrows checks that a reader returns lines of all lengths one after the other.
func TestReaderGrows(t *testing.T) {
	var text []byte
	lengths := []int{1, 251, 252, 253, 255, 256, 257, 600, 5, 40_000, MaxLine - 4, 3}
	for _, n := range lengths {
		text = AppendLine(text, strings.Repeat("x", n-1), "y")
	}
	lines := NewReader(bytes.NewReader(text))
	for _, n := range lengths {
		if line, _, err := lines.Next(); err != nil || string(line) != strings.Repeat("x", n-1)+"y" {
			t.Errorf("%d bytes: %d bytes, %v", n, len(line), err)
		}
	}
}

// TestAppendBand checks that data are cut into packets of the given length.
func TestAppendBand(t *testing.T) {
	for _, tt := range []struct {
		data  string
		limit int
		want  string
	}{
		{"", 1000, ""},
		{"abc", 1000, "0008\x01abc"},
		{"abc", 8, "0008\x01abc"},
		{"abcd", 8, "0008\x01abc0006\x01d"},
		{"abcdef", 8, "0008\x01abc0008\x01def"},
	} {
		if got := string(AppendBand([]byte("x"), BandData, []byte(tt.data), tt.limit)); got != "x"+tt.want {
			t.Errorf("%q, at most %d bytes: %q", tt.data, tt.limit, got)
		}
	}
}

// TestParseRefs checks requests for lists of refs.
func TestParseRefs(t *testing.T) {
	refsOf := func(args ...string) RefsRequest {
		b := append(AppendLine(nil, "command=ls-refs\n"), DelimLine...)
		for _, a := range args {
			b = AppendLine(b, a, "\n")
		}
		q, err := ParseRequest(bytes.NewReader(append(b, FlushLine...)))
		if err != nil || q.Command != CommandRefs {
			t.Fatalf("%q: %v", args, err)
		}
		return q.Refs
	}
	for _, tt := range []struct {
		args string
		want string
	}{
		{"", "{false false false []}"},
		{"peel", "{true false false []}"},
		{"symrefs", "{false true false []}"},
		{"unborn", "{false false true []}"},
		{"ref-prefix refs/heads/,ref-prefix HEAD", "{false false false [refs/heads/ HEAD]}"},
		{"no such line,ref-prefix", "{false false false []}"},
	} {
		if got := fmt.Sprint(refsOf(strings.Split(tt.args, ",")...)); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.args, got, tt.want)
		}
	}

	// Git does not filter by so many prefixes.
	many := make([]string, prefixesMax+1)
	for i := range many {
		many[i] = "ref-prefix a"
	}
	for n, want := range map[int]int{prefixesMax - 1: prefixesMax - 1, prefixesMax: 0, prefixesMax + 1: 0} {
		if got := len(refsOf(many[:n]...).Prefixes); got != want {
			t.Errorf("of %d prefixes %d are left, want %d", n, got, want)
		}
	}
}

// TestRequestBounds checks the number of lines that a request may have.
func TestRequestBounds(t *testing.T) {
	agents := func(n int) []byte {
		return append(append(AppendLine(nil, "command=fetch"), bytes.Repeat(AppendLine(nil, "agent=x"), n)...), FlushLine...)
	}
	if _, err := ParseRequest(bytes.NewReader(agents(capabilitiesMax - 1))); err != nil {
		t.Error(err)
	}
	if _, err := ParseRequest(bytes.NewReader(agents(capabilitiesMax))); !errors.Is(err, object.ErrInvalid) {
		t.Errorf("too many capabilities: %v", err)
	}
	arguments := append(append(AppendLine(nil, "command=ls-refs"), DelimLine...),
		bytes.Repeat([]byte("0004"), argumentsMax)...)
	if _, err := ParseRequest(bytes.NewReader(append(arguments, FlushLine...))); err != nil {
		t.Error(err)
	}
	if _, err := ParseRequest(bytes.NewReader(append(arguments, "00040000"...))); !errors.Is(err, object.ErrTooLarge) {
		t.Errorf("too many arguments: %v", err)
	}
}

// TestParseInfo checks requests for information on objects, and their way to git.
func TestParseInfo(t *testing.T) {
	id := strings.Repeat("1", 40)
	body := append(AppendLine(AppendLine(append(AppendLine(AppendLine(nil, "command=object-info\n"),
		"object-format=sha1\n"), DelimLine...), "size\n"), "oid ", id, "\n"), FlushLine...)
	q, err := ParseRequest(bytes.NewReader(body))
	if err != nil || q.Command != CommandInfo || !bytes.Equal(RenderInfo(q.Info), body) {
		t.Errorf("%+v, %v", q, err)
	}
	body = append(AppendLine(append(AppendLine(nil, "command=object-info\n"), DelimLine...), "size\r\n"), FlushLine...)
	if q, err := ParseRequest(bytes.NewReader(body)); !errors.Is(err, object.ErrInvalid) {
		t.Errorf("%+v, %v", q, err)
	}
}

// TestFetchArguments checks each argument of a fetch, alone and with others.
func TestFetchArguments(t *testing.T) {
	id := strings.Repeat("1", 40)
	for _, tt := range []struct {
		args  string
		want  string // as it is rendered
		plain bool
	}{
		{"", "", false},
		{"done", "done", false},
		{"want " + id, "want " + id, true},
		{"have " + id, "have " + id, false},
		{"deepen-relative,wait-for-done,ofs-delta,include-tag,thin-pack",
			"thin-pack,include-tag,ofs-delta,wait-for-done,deepen-relative", false},
		{"no-progress,want " + id, "want " + id, true},
		{"want " + id + ",deepen 7", "deepen 7,want " + id, true},
		{"want " + id + ",deepen-since 1", "deepen-since 1,want " + id, false},
		{"want " + id + ",deepen-not refs/heads/a,deepen-not b", "deepen-not refs/heads/a,deepen-not b,want " + id, false},
		{"want " + id + ",deepen-since 5,deepen-not b", "deepen-since 5,deepen-not b,want " + id, false},
		{"want " + id + ",filter blob:none", "filter blob:none,want " + id, true},
		{"want " + id + ",filter sparse:oid=main:a", "filter sparse:oid=main:a,want " + id, false},
		{"deepen 2147483647", "deepen 2147483647", false},
		{"deepen 2147483648", "error", false},
		{"deepen 1,deepen-not b", "error", false},
		{"deepen-since 0", "error", false},
		{"deepen-since x", "error", false},
		{"deepen-not a\tb", "error", false},
		{"filter ", "error", false},
		{"filter blob:none,filter blob:none", "error", false},
		{"have 1", "error", false},
		{"shallow " + strings.Repeat("1", 64), "error", false},
		{"done yes", "error", false},
	} {
		q, err := ParseRequest(bytes.NewReader(fetchOf(strings.FieldsFunc(tt.args,
			func(c rune) bool { return c == ',' })...)))
		if (err != nil) != (tt.want == "error") || err != nil && !errors.Is(err, object.ErrInvalid) {
			t.Errorf("%q: %v", tt.args, err)
		}
		if err != nil {
			continue
		}
		var lines []string
		for r := NewReader(bytes.NewReader(q.Fetch.Render(false))); ; {
			line, kind, err := r.Next()
			if err != nil {
				break
			}
			if kind == Data {
				lines = append(lines, Chomp(line))
			}
		}
		if got := strings.Join(lines[2:], ","); got != tt.want || lines[0] != "command=fetch" || lines[1] != "object-format=sha1" {
			t.Errorf("%q became %q", tt.args, lines)
		}
		if q.Fetch.Plain() != tt.plain {
			t.Errorf("%q: plain %v", tt.args, q.Fetch.Plain())
		}
	}
	quiet := FetchRequest{}
	if got := string(quiet.Render(true)); !strings.Contains(got, "no-progress\n") ||
		strings.Contains(string(quiet.Render(false)), "no-progress") {
		t.Errorf("%q", got)
	}
}

// TestCheckFilter checks filters as git rev-list --filter has them.
func TestCheckFilter(t *testing.T) {
	for spec, ok := range map[string]bool{
		"blob:none": true, "blob:limit=0": true, "blob:limit=10": true, "blob:limit=10k": true, "blob:limit=1G": true,
		"blob:limit=2m": true,
		"blob:":         false, "blob:all": false, "blob:limit=": false, "blob:limit=k": false, "blob:limit=10x": false,
		"blob:limit=10kk": false, "blob:limit=-1": false, "blob:10": false,
		"tree:0": true, "tree:17": true, "tree:": false, "tree:-1": false, "tree:4294967296": false,
		"object:type=blob": true, "object:type=tree": true, "object:type=commit": true, "object:type=tag": true,
		"object:type=x": false, "object:": false,
		"sparse:oid=main:a": true, "sparse:oid=": false, "sparse:path=a": false, "sparse:oid=a\nb": false,
		"combine:tree:0+blob:none": true, "combine:": false, "combine:a\x00": false,
		"": false, "x": false, "blob": false,
	} {
		if err := checkFilter(spec); (err == nil) != ok || err != nil && !errors.Is(err, object.ErrInvalid) {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

// TestCheckUpload checks requests of protocol v0 and v1.
func TestCheckUpload(t *testing.T) {
	id := strings.Repeat("1", 40)
	for _, tt := range []struct {
		lines string // separated by commas; a number is a special line
		ok    bool
	}{
		{"", true},
		{"want ID", false},
		{"want ID,0000", true},
		{"want ID thin-pack agent=x,want ID,0000,done", true},
		{"want ID,0000,have ID,0000,done", true},
		{"want ID,shallow ID,deepen 1,0000", true},
		{"want ID,deepen-since 1,deepen-not a,filter blob:none,0000", true},
		{"0000", true},
		{"want ID,want ID thin-pack,0000", false},
		{"want main,0000", false},
		{"want ID,0001", false},
		{"want ID,0000,have main", false},
		{"want ID,0000,havs ID", false},
		{"want ID,0000,want ID", false},
		{"want ID,0000,0002", false},
		{"shallow main,0000", false},
		{"deepen 0,0000", false},
		{"deepen x,0000", false},
		{"deepen-since 0,0000", false},
		{"deepen-since x,0000", false},
		{"deepen-not ,0000", false},
		{"deepen-not a\x01,0000", false},
		{"filter x,0000", false},
		{"done,0000", false},
	} {
		var body []byte
		for line := range strings.FieldsFuncSeq(tt.lines, func(c rune) bool { return c == ',' }) {
			if strings.HasPrefix(line, "000") {
				body = append(body, line...)
			} else {
				body = AppendLine(body, strings.ReplaceAll(line, "ID", id), "\n")
			}
		}
		var r *object.Refusal
		if err := CheckUpload(bytes.NewReader(body)); (err == nil) != tt.ok || err != nil && !errors.As(err, &r) {
			t.Errorf("%q: %v", tt.lines, err)
		}
	}
	for _, early := range []string{"000", "0010want"} {
		if err := CheckUpload(strings.NewReader(early)); !errors.Is(err, object.ErrInvalid) {
			t.Errorf("%q: %v", early, err)
		}
	}
}

// TestPushOptions checks the capabilities of a push and that its options are read up to the pack.
func TestPushOptions(t *testing.T) {
	zero, one := strings.Repeat("0", 40), strings.Repeat("1", 40)
	for _, tt := range []struct {
		capabilities, options string
		band                  int
		unusual               bool
		rest                  string
	}{
		{"", "", 0, false, "PACK"},
		{"side-band", "", 1000, false, "PACK"},
		{"side-band side-band-64k", "", MaxLine, false, "PACK"},
		{"side-band-64k side-band", "", MaxLine, false, "PACK"},
		{"push-options", "0000", 0, true, "PACK"},
		{"push-options", "0007a=b0005c0000", 0, true, "PACK"},
		{"push-options", strings.Repeat("0005a", 1001) + "0000", 0, true, "PACK"},
		{"other", "0000", 0, false, "0000PACK"},
	} {
		in := bytes.NewReader(append(append(AppendLine(nil, zero, " ", one, " refs/heads/a\x00", tt.capabilities),
			FlushLine...), tt.options+"PACK"...))
		p, err := ParsePush(in)
		rest, _ := io.ReadAll(in)
		if err != nil || p.Band != tt.band || p.Unusual != tt.unusual || string(rest) != tt.rest || p.Report {
			t.Errorf("%q, options %.20q: %+v, %v, then %q", tt.capabilities, tt.options, p, err, rest)
		}
	}
	p, err := ParsePush(bytes.NewReader(append(append(AppendLine(nil, zero, " ", one, " refs/heads/a\x00push-options"), FlushLine...),
		"0007a=b0006c\n0000"...)))
	if err != nil || !slices.Equal(p.Options, []string{"a=b", "c"}) {
		t.Errorf("%+v, %v", p, err)
	}
	// Only the first command has capabilities.
	p, err = ParsePush(bytes.NewReader(append(AppendLine(AppendLine(nil, zero, " ", one, " refs/heads/a"), zero, " ",
		one, " refs/heads/b\x00report-status-v2 push-options"), FlushLine...)))
	if err != nil || p.Report || p.Unusual || len(p.Commands) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err = ParsePush(bytes.NewReader(append(AppendLine(nil, zero, " ", strings.Repeat("1", 40),
		" refs/heads/a\x00report-status-v2"), FlushLine...))); err != nil || !p.Report {
		t.Errorf("%+v, %v", p, err)
	}
	wide := strings.Repeat("2", 64)
	if p, err = ParsePush(bytes.NewReader(append(AppendLine(nil, wide, " ", wide, " refs/heads/a"),
		FlushLine...))); err != nil || p.HashLen != 32 {
		t.Errorf("%+v, %v", p, err)
	}
}
