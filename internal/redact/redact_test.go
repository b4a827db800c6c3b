package redact

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

const privateKey = `-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW
QyNTUxOQAAACBhZG9lc25vdGV4aXN0YW5kbmV2ZXJkaWRhdGFsbG9mdXMAAACIe2l0c2hvd
-----END OPENSSH PRIVATE KEY-----
`

var values = map[string]string{
	"TOKEN":  "xoxb-1234-abcdÄ/+ef",
	"PASS":   `p&s "w'o<r>d$x\y`,
	"LONGER": "xoxb-1234-abcdÄ/+efgh",
	"RUN":    "aaaaaaaaaa",
	"OVER":   "+efgh-i-go-on",
	"KEY":    privateKey,
}

func set(t testing.TB, values map[string]string) *Secrets {
	t.Helper()
	s, short := New(values)
	if len(short) > 0 {
		t.Fatalf("too short: %v", short)
	}
	return s
}

func TestForms(t *testing.T) {
	s := set(t, map[string]string{"A": "hunter/2+ \"x\"?"})
	for _, text := range []string{
		`hunter/2+ "x"?`,
		`hunter/2+ \"x\"?`,
		`hunter\/2+ \"x\"?`,
		`hunter/2+ \\\"x\\\"?`,
		"aHVudGVyLzIrICJ4Ij8=", "aHVudGVyLzIrICJ4Ij8",
		"68756e7465722f322b202278223f", "68756E7465722F322B202278223F",
		"hunter%2F2%2B%20%22x%22%3F", "hunter%2f2%2b%20%22x%22%3f", "hunter%2F2%2B+%22x%22%3F", "hunter/2%2B%20%22x%22%3F",
		"%68%75%6E%74%65%72%2F%32%2B%20%22%78%22%3F",
		"hunter/2+ &quot;x&quot;?", "hunter/2+ &#34;x&#34;?",
		`hunter/2+\ \"x\"\?`,
		"aHVu\ndGVyLzIrICJ4Ij8", "aHVu\r\ndGVyLzIrICJ4Ij8", `aHVudGVyLzIrIC\nJ4Ij8`, `aHVudGVyLzIrIC\r\nJ4Ij8`,
	} {
		if got := s.String("<" + text + ">"); got != "<[secret A]>" {
			t.Errorf("%s becomes %s", text, got)
		}
		if got, err := s.Find(iotest.OneByteReader(strings.NewReader(text))); err != nil || !slices.Equal(got, []string{"A"}) {
			t.Errorf("found %v, %v in %s", got, err, text)
		}
	}
	for before := range 4 {
		for after := range 4 {
			plain := strings.Repeat("#", before) + "hunter/2+ \"x\"?" + strings.Repeat("!", after)
			for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
				text := e.EncodeToString([]byte(plain))
				if got := s.String(text); !strings.Contains(got, "[secret A]") || len(got) > len("[secret A]")+16 {
					t.Errorf("%s of %q becomes %s", text, plain, got)
				}
			}
		}
	}
}

// TestTools: what common programs make of a value is found.
func TestTools(t *testing.T) {
	value := `s3cr3t '"$x\ &<>` + "`ä`!~#" + strings.Repeat("long ", 30)
	s := set(t, map[string]string{"A": value})
	for _, script := range []string{
		`printf %s "$V"`, `printf %q "$V"`, `printf '%s' "${V@Q}"`, `set -x; : "$V"`,
		`printf '%s' "$V" | base64`, `echo "and $V" | base64 -w 60`, `printf '12%s' "$V" | base64 -w 0`,
		`printf '%s' "$V" | od -An -v -tx1 | tr -d ' '`, `printf '%s' "$V" | od -An -v -tx1 | tr -d ' \n'`,
	} {
		cmd := exec.Command("bash", "-c", script)
		cmd.Env = []string{"V=" + value, "PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip("cannot run here: there is no bash")
		}
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		if got := s.Bytes(out); !bytes.Contains(got, []byte("[secret A]")) || len(got) > 40 {
			t.Errorf("%s: %s becomes %s", script, out, got)
		}
	}
}

func TestLines(t *testing.T) {
	s := set(t, map[string]string{"KEY": privateKey})
	line := strings.Split(privateKey, "\n")[2]
	for text, want := range map[string]string{
		privateKey: "[secret KEY]\n",
		strings.ReplaceAll(privateKey, "\n", "\r\n"): "[secret KEY]\r\n",
		strings.ReplaceAll(privateKey, "\n", `\n`):   `[secret KEY]\n`,
		"x" + line + "y":                        "x[secret KEY]y",
		"-----BEGIN OPENSSH PRIVATE KEY-----\n": "-----BEGIN OPENSSH PRIVATE KEY-----\n",
		"  " + strings.Join(strings.Split(privateKey, "\n"),
			"\n  "): "  -----BEGIN OPENSSH PRIVATE KEY-----\n  [secret KEY]\n  [secret KEY]\n  -----END OPENSSH PRIVATE KEY-----\n  ",
	} {
		if got := s.String(text); got != want {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

func TestAccount(t *testing.T) {
	b, err := json.MarshalIndent(map[string]string{"type": "service_account_of_somebody",
		"private_key": privateKey}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	s := set(t, map[string]string{"ACCOUNT": string(b)})
	line := strings.Split(privateKey, "\n")[1]
	for text, want := range map[string]string{
		string(b):   "[secret ACCOUNT]",
		privateKey:  "[secret ACCOUNT]\n",
		"  " + line: "  [secret ACCOUNT]",
		`  "type": "service_account_of_somebody"`: `  "type": "service_account_of_somebody"`,
	} {
		if got := s.String(text); got != want {
			t.Errorf("%s becomes %s", text, got)
		}
	}
}

func TestEdges(t *testing.T) {
	var none *Secrets
	var out bytes.Buffer
	w := none.Writer(&out)
	fmt.Fprint(w, "text")
	if err := w.Flush(); err != nil || out.String() != "text" || none.String("text") != "text" || !none.Empty() ||
		none.Name("a/b") != "a/b" {
		t.Error("no secrets change something")
	}
	if names, err := none.Find(strings.NewReader("x")); names != nil || err != nil {
		t.Error(names, err)
	}
	s, short := New(map[string]string{"B": "  seven77\n", "A": "", "C": " eight888\n"})
	if !slices.Equal(short, []string{"A", "B"}) || s.String("seven77 eight888") != "seven77 [secret C]" {
		t.Errorf("%v, %s", short, s.String("seven77 eight888"))
	}
	// A name must not bring a value back.
	s = set(t, map[string]string{"my hunter22": "hunter22", "B": "[secret C]", "C": "my hunte"})
	for _, text := range []string{"hunter22", "[secret C]", "my hunter22"} {
		if got := s.String(text); strings.Contains(got, "hunter22") || strings.Contains(got, "[secret C]") {
			t.Errorf("%s becomes %s", text, got)
		}
	}
	b := []byte("nothing in here at all")
	if got := s.Bytes(b); &got[0] != &b[0] {
		t.Error("a text without secrets was copied")
	}
	s = set(t, map[string]string{"slack/token": "hunter22"})
	if got := s.Name("a/xhunter22y/hunter22"); got != "a/x[secret slack_token]y/[secret slack_token]" {
		t.Error(got)
	}
	if got := set(t, map[string]string{"A": "hunter22", "B": "hunter22-23"}).Name("a/hunter22"); got != "a/[secret A]" {
		t.Errorf("a name that ends with the beginning of another secret becomes %s", got)
	}
	if got := set(t, map[string]string{"A": "hunter2222"}).String("hunter2222"); got != "[secret A]" {
		t.Errorf("a secret that is as long as its replacement becomes %s", got)
	}
	bare, err := base64.StdEncoding.DecodeString("abcd/efghijklmno")
	if err != nil {
		t.Fatal(err)
	}
	if got := set(t, map[string]string{"A": string(bare)}).String("abcd\n\\/efghijklmno"); got != "[secret A]" {
		t.Errorf("base64 in JSON with a line break before a slash becomes %s", got)
	}
	boom := errors.New("boom")
	w = s.Writer(errWriter{boom})
	if _, err := w.Write([]byte("text that goes on")); !errors.Is(err, boom) || !errors.Is(w.Flush(), boom) {
		t.Error("an error is lost")
	}
}

type errWriter struct{ err error }

func (w errWriter) Write([]byte) (int, error) { return 0, w.err }

// TestLetGo: what was let go is not written again, and a secret whose beginning
// was shown is removed from there on.
func TestLetGo(t *testing.T) {
	s, _ := New(map[string]string{"KEY": "secret-value-1"})
	for _, x := range []struct{ parts, want string }{
		{"rea|dy\nse|cond line", "ready\nsecond line"},
		{"a s|ecret-value-1 b", "a s b"},
		{"a s|e|cret-value-1|", "a se"},
		{"a se|cond s|ecret-value-1 and secret-value-1.", "a second s and [secret KEY]."},
	} {
		var b strings.Builder
		w := s.Writer(&b)
		for part := range strings.SplitSeq(x.parts, "|") {
			if _, err := w.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
			if w.Held() <= 3 {
				if err := w.LetGo(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Flush(); err != nil || b.String() != x.want {
			t.Errorf("%q became %q, %v; want %q", x.parts, b.String(), err, x.want)
		}
	}
}

// TestAtOnce: only what may be the beginning of a value is held back.
func TestAtOnce(t *testing.T) {
	s := set(t, map[string]string{"A": "hunter22"})
	var out bytes.Buffer
	w := s.Writer(&out)
	for _, step := range []struct{ write, want string }{
		{"Enter name: ", "Enter name: "},
		{"hunt", "Enter name: "},
		{"ing", "Enter name: hunting"},
		{" hunter2", "Enter name: hunting "},
		{"2", "Enter name: hunting [secret A]"},
		{"!", "Enter name: hunting [secret A]!"},
		{"hunter2", "Enter name: hunting [secret A]!"},
	} {
		fmt.Fprint(w, step.write)
		if out.String() != step.want {
			t.Errorf("after %q: %q, want %q", step.write, out.String(), step.want)
		}
	}
	if err := w.Flush(); err != nil || !strings.HasSuffix(out.String(), "hunter2") {
		t.Error(err, out.String())
	}
}

// TestHeldLines checks that an encoding over several lines is held back only as long as it may be that of a value.
func TestHeldLines(t *testing.T) {
	s := set(t, map[string]string{"A": "hunter22-hunter22"}) // aHVudGVyMjItaHVudGVyMjI=
	for text, want := range map[string]string{
		"aHVudGVy\nMjIt":     "",
		"aHVudGVy\n":         "",
		"aHVudGVy\r":         "",
		"aHVudGVy\\":         "",
		"aHVudGVy\nx #":      "aHVudGVy\nx #",
		"aHVudGVy\\x #":      "aHVudGVy\\x #",
		"aHVudGVy\n\nMjIt #": "aHVudGVy\n\nMjIt #",
		"aHV\nudGVyMj":       "",
		"aHV\nudGVy #":       "aHV\nudGVy #",
		"aHV\n\nudGVyMjIt #": "aHV\n\nudGVyMjIt #",
		"aHV\nx #":           "aHV\nx #",
	} {
		var out bytes.Buffer
		w := s.Writer(&out)
		if _, err := io.WriteString(w, text); err != nil || out.String() != want {
			t.Errorf("%q: %q is shown, want %q, %v", text, out.String(), want, err)
		}
		if err := w.Flush(); err != nil || out.String() != text {
			t.Errorf("%q: %q at the end, %v", text, out.String(), err)
		}
	}
}

// countingWriter counts writes.
type countingWriter struct{ writes int }

func (w *countingWriter) Write(b []byte) (int, error) {
	w.writes++
	return len(b), nil
}

// TestNoEmptyWrites checks that nothing is written where nothing is shown.
func TestNoEmptyWrites(t *testing.T) {
	var out countingWriter
	w := set(t, map[string]string{"A": "hunter22"}).Writer(&out)
	for _, text := range []string{"hunt", "", "er2"} {
		if _, err := io.WriteString(w, text); err != nil || out.writes != 0 {
			t.Errorf("%d writes, %v", out.writes, err)
		}
	}
	if _, err := io.WriteString(w, "2"); err != nil || w.Flush() != nil || out.writes != 1 {
		t.Errorf("%d writes, %v", out.writes, err)
	}
}

// reference removes secrets as plainly as it can be said: each pattern is
// looked for at each position, line breaks skipped where it may have them; what
// is covered goes.
func reference(s *Secrets, text []byte) []byte {
	type found struct {
		at, end int
		label   []byte
	}
	var list []found
	for _, patterns := range s.now.Load().patterns {
		for _, p := range patterns {
			for at := range text {
				if end := matchSlowly(p, text, at); end > 0 {
					list = append(list, found{at, end, p.label})
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b found) int { return cmp.Or(a.at-b.at, b.end-a.end) })
	var out []byte
	done := 0
	for _, f := range list {
		if f.at >= done {
			out = append(append(out, text[done:f.at]...), f.label...)
		}
		done = max(done, f.end)
	}
	return append(out, text[done:]...)
}

func matchSlowly(p *pattern, text []byte, at int) (end int) {
	i := at
	for k, c := range p.text {
		if k > 0 && p.wraps && i < len(text) && text[i] != c {
			for _, b := range []string{"\r\n", "\n", `\r\n`, `\n`} {
				if bytes.HasPrefix(text[i:], []byte(b)) {
					i += len(b)
					break
				}
			}
		}
		if i == len(text) || text[i] != c {
			return 0
		}
		i++
	}
	return i
}

// random makes a text with values, parts of values and line breaks in it.
func random(r *rand.Rand, s *Secrets) []byte {
	var all []*pattern
	for _, list := range s.now.Load().patterns {
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b *pattern) int { return bytes.Compare(a.text, b.text) })
	separators := []string{"\n", "\r\n", `\n`, `\r\n`, "\n\n", `\`, "\r", "x"}
	var text []byte
	for range r.IntN(12) {
		switch p := all[r.IntN(len(all))]; r.IntN(4) {
		case 0:
			for range r.IntN(20) {
				text = append(text, "ab\n\\rn+/=% Zz09\xff\x00"[r.IntN(17)])
			}
		case 1:
			text = append(text, p.text...)
		case 2:
			from := r.IntN(len(p.text))
			text = append(text, p.text[from:from+r.IntN(len(p.text)-from)]...)
		case 3:
			width := 1 + r.IntN(20)
			for part := range slices.Chunk(p.text, width) {
				text = append(append(text, part...), separators[r.IntN(1+r.IntN(len(separators)))]...)
			}
		}
	}
	return text
}

// inParts writes text through a Writer in random parts.
func inParts(t testing.TB, r *rand.Rand, s *Secrets, text []byte) []byte {
	var out bytes.Buffer
	w := s.Writer(&out)
	for rest := text; len(rest) > 0; {
		n := 1 + r.IntN(min(len(rest), 1+r.IntN(40)))
		part := bytes.Clone(rest[:n])
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
		clear(part) // a Writer must not keep what it was given
		rest = rest[n:]
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if found, _ := s.Find(bytes.NewReader(text)); !slices.Equal(w.Found(), found) {
		t.Fatalf("removed %v, found %v", w.Found(), found)
	}
	return out.Bytes()
}

func check(t testing.TB, r *rand.Rand, s *Secrets, text []byte) {
	t.Helper()
	before := bytes.Clone(text)
	want := reference(s, text)
	if got := s.Bytes(text); !bytes.Equal(got, want) {
		t.Fatalf("%q\nbecomes %q\nwant    %q", text, got, want)
	}
	if got := inParts(t, r, s, text); !bytes.Equal(got, want) {
		t.Fatalf("%q in parts\nbecomes %q\nwant    %q", text, got, want)
	}
	if !bytes.Equal(text, before) {
		t.Fatal("the text itself was changed")
	}
	names, err := s.Find(iotest.HalfReader(bytes.NewReader(text)))
	if err != nil || (len(names) > 0) == bytes.Equal(want, text) {
		t.Fatalf("found %v, %v in %q", names, err, text)
	}
}

func TestRandomTexts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	sets := []*Secrets{set(t, values), set(t, map[string]string{"A": "aaaaaaaa", "B": `\n\n\n\n\n`, "C": "aaaa\nbbbb"})}
	for range 400 {
		s := sets[r.IntN(len(sets))]
		check(t, r, s, random(r, s))
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("hunter22", []byte("a hunter22 b"), uint64(1))
	f.Add("aaaaaaaa", []byte("YWFhYWFh\nYWE="), uint64(2))
	f.Add(`a\nb"c'<ä>`, []byte(`x a\\nb\"c'\u003cä\u003e`), uint64(3))
	f.Fuzz(func(t *testing.T, value string, text []byte, seed uint64) {
		if len(value) > 100 || len(text) > 1000 {
			return
		}
		s, short := New(map[string]string{"V": value})
		if len(short) > 0 {
			return
		}
		r := rand.New(rand.NewPCG(seed, 1))
		check(t, r, s, text)
		check(t, r, s, random(r, s))
	})
}

func TestHandler(t *testing.T) {
	s := set(t, map[string]string{"A": "hunter22"})
	var out bytes.Buffer
	log := slog.New(s.Handler(slog.NewTextHandler(&out, nil)))
	log.With("with", "hunter22").WithGroup("hunter22").Info("message hunter22",
		"err", fmt.Errorf("error hunter22"), "hunter22", 1, slog.Group("g", "x", []string{"hunter22"}),
		"bytes", []byte("hunter22"), "late", late("hunter22"), "n", 7, "ok", struct{ N int }{7})
	if got := out.String(); strings.Contains(got, "hunter22") || strings.Count(got, "[secret A]") < 8 ||
		!strings.Contains(got, `.ok"={N:7}`) {
		t.Error(got)
	}
	var none *Secrets
	if h := slog.NewTextHandler(io.Discard, nil); none.Handler(h) != slog.Handler(h) {
		t.Error("no secrets, and yet a handler")
	}
}

type late string

func (l late) LogValue() slog.Value { return slog.StringValue(string(l)) }

func benchText() []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < 8<<20; i++ {
		fmt.Fprintf(&b, "2026-03-01T10:00:%02d.%03d level=info msg=\"request done\" path=/api/runs/%x status=200 bytes=%d\n\tif err := s.open(ctx); err != nil {\n", i%60, i%1000, i*7919, i)
	}
	return b.Bytes()
}

func BenchmarkWriter(b *testing.B) {
	text := benchText()
	many := make(map[string]string)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 30 {
		value := make([]byte, 40)
		for j := range value {
			value[j] = byte('0' + r.IntN(75))
		}
		many[fmt.Sprint(i)] = string(value)
	}
	for name, values := range map[string]map[string]string{"one": {"A": "hunter22hunter22"}, "thirty": many, "key": values} {
		s := set(b, values)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				w := s.Writer(io.Discard)
				for part := range slices.Chunk(text, 32<<10) {
					w.Write(part)
				}
				w.Flush()
			}
		})
	}
	b.Run("base64 in lines", func(b *testing.B) {
		s := set(b, values)
		var wrapped []byte
		for part := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(text)), 76) {
			wrapped = append(append(wrapped, part...), '\n')
		}
		b.SetBytes(int64(len(wrapped)))
		for b.Loop() {
			s.Writer(io.Discard).Write(wrapped)
		}
	})
}

func TestWith(t *testing.T) {
	s := set(t, map[string]string{"A": "hunter22"})
	both := s.With(map[string]string{"B": "correct horse", "again": "hunter22", "short": "abc"})
	for _, c := range []struct {
		s          *Secrets
		text, want string
	}{
		{both, "hunter22, correct horse, Y29ycmVjdCBob3JzZQ==, abc", "[secret A], [secret B], [secret B], abc"},
		{s, "hunter22, correct horse", "[secret A], correct horse"},
		{(*Secrets)(nil).With(map[string]string{"B": "correct horse"}), "hunter22, correct horse", "hunter22, [secret B]"},
		{s.With(nil), "hunter22", "[secret A]"},
	} {
		if got := c.s.String(c.text); got != c.want {
			t.Errorf("%s becomes %s, want %s", c.text, got, c.want)
		}
	}
}

// TestLowerEscapes finds a path that a program escaped with small digits.
func TestLowerEscapes(t *testing.T) {
	s := set(t, map[string]string{"A": "hunter/2$&:x?"})
	for _, text := range []string{"hunter%2F2$&:x%3F", "hunter%2f2$&:x%3f", "hunter/2$&:x%3f"} {
		if got := s.String("<" + text + ">"); got != "<[secret A]>" {
			t.Errorf("%s becomes %s", text, got)
		}
	}
}

// TestHandlerShowsValues prints a value without its secret as the next handler would print it.
func TestHandlerShowsValues(t *testing.T) {
	s := set(t, map[string]string{"A": "hunter22"})
	var out bytes.Buffer
	slog.New(s.Handler(slog.NewTextHandler(&out, nil))).Info("m", "v", struct {
		S string
		N int
	}{"hunter22", 7})
	if got := out.String(); !strings.Contains(got, `v="{[secret A] 7}"`) {
		t.Error(got)
	}
	out.Reset()
	inner := "a hunter22"
	slog.New(s.Handler(slog.NewJSONHandler(&out, nil))).Info("m", "v", struct{ P *string }{&inner}, "w", struct{ P *int }{new(int)})
	if got := out.String(); !strings.Contains(got, `"v":"{\"P\":\"a [secret A]\"}","w":{"P":0}}`) {
		t.Error(got)
	}
}

// failingOnce fails at the first write only.
type failingOnce struct {
	failed bool
	out    strings.Builder
}

var errOnce = errors.New("once")

func (w *failingOnce) Write(b []byte) (int, error) {
	if !w.failed {
		w.failed = true
		return 0, errOnce
	}
	return w.out.Write(b)
}

// TestErrorStays writes nothing more once a write has failed.
func TestErrorStays(t *testing.T) {
	s := set(t, map[string]string{"A": "hunter22"})
	var next failingOnce
	w := s.Writer(&next)
	if _, err := w.Write([]byte("text hunt")); !errors.Is(err, errOnce) {
		t.Error(err)
	}
	if err := w.LetGo(); !errors.Is(err, errOnce) {
		t.Error(err)
	}
	if _, err := w.Write([]byte("more")); !errors.Is(err, errOnce) {
		t.Error(err)
	}
	if err := w.Flush(); !errors.Is(err, errOnce) || next.out.Len() > 0 {
		t.Errorf("%v, and %q is written", err, &next.out)
	}
}

// TestAdd checks that a value that is added is removed from then on, by everything that has the set.
func TestAdd(t *testing.T) {
	var s Secrets
	var out strings.Builder
	w := s.Writer(&out)
	if _, err := io.WriteString(w, "a hunter22 "); err != nil || !s.Empty() {
		t.Fatal(err)
	}
	if short := s.Add(map[string]string{"A": "hunter22", "B": "x"}); len(short) != 1 || short[0] != "B" || s.Empty() {
		t.Errorf("%v", short)
	}
	s.Add(map[string]string{"C": "sesame33"})
	if _, err := io.WriteString(w, "b hunter22 sesa"); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, "me33 c")
	if err := w.Flush(); err != nil || out.String() != "a hunter22 b [secret A] [secret C] c" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
