// Package growth tests that the time of a parser grows with its input and not with its square.
//
// [Check] feeds a parser one token, repeated up to a sixteenth of the parser's size limit, and fails if the
// process spends more than [Hopeless] on it. A parser whose time grows with the square would spend 256 times as much on
// all of the limit. With RAMUS_CURVES=FILE it goes up to 1/8, 1/4, 1/2 and all of the limit. It then
// appends the curve to FILE, one line of tab-separated values per case. It fails if the time grows with more than the
// input, or is above [Slow] for one MB. A square gives 64 times the time for 8 times the input. Check allows 32 times,
// and it allows everything below [Quick], because small times are noise.
package growth

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Bounds of [Check].
const (
	Quick    = 250 * time.Millisecond // at full size, below which no growth is checked
	Slow     = 200 * time.Millisecond // for one MB, with RAMUS_CURVES
	ratio    = 32                     // of the time at full size to that at 1/8
	Hopeless = 5 * time.Second        // at a sixteenth of the limit
	hanging  = 20 * time.Second       // at any size, with RAMUS_CURVES
	tries    = 4                      // before a curve is a failure
	least    = 1 << 10                // bytes below which a limit is not divided
)

// Case is one token that is repeated.
type Case struct {
	Name                  string
	Prefix, Token, Suffix string
	Limit                 int              // bytes of the whole input; 0 means 1 MB
	Each                  func(int) string // makes the token with a number instead, where tokens must differ
}

// Repeat returns a case without prefix and suffix. Its name is the token's own text.
func Repeat(token string) Case { return Case{Token: token} }

// Tokens returns one case for each token, as [Repeat] does.
func Tokens(tokens ...string) []Case {
	var all []Case
	for _, token := range tokens {
		all = append(all, Repeat(token))
	}
	return all
}

// Text returns the input of about size bytes, and of no more.
func (c Case) Text(size int) []byte {
	var b strings.Builder
	b.Grow(size)
	b.WriteString(c.Prefix)
	for n := 0; ; n++ {
		token := c.Token
		if c.Each != nil {
			token = c.Each(n)
		}
		if token == "" || b.Len()+len(token)+len(c.Suffix) > size {
			break
		}
		b.WriteString(token)
	}
	b.WriteString(c.Suffix)
	return []byte(b.String())
}

// Check runs parse on each case. The test must not run in parallel with others of its process.
func Check(t *testing.T, parser string, parse func([]byte), cases ...Case) {
	t.Helper()
	for _, c := range cases {
		if c.Limit == 0 {
			c.Limit = 1 << 20
		}
		if os.Getenv("RAMUS_CURVES") == "" {
			c.Limit = max(c.Limit/16, 8*least)
		}
		if c.Name == "" {
			c.Name = fmt.Sprintf("%q", c.Prefix+c.Token+c.Suffix)
			if len(c.Name) > 60 {
				c.Name = c.Name[:60]
			}
		}
		t.Run(strings.ReplaceAll(parser+" "+c.Name, "/", "|"), func(t *testing.T) { check(t, parser, parse, c) })
	}
}

// check measures one curve, again while it looks steep.
func check(t *testing.T, parser string, parse func([]byte), c Case) {
	var spent [4]time.Duration
	sizes := [4]int{c.Limit / 8, c.Limit / 4, c.Limit / 2, c.Limit}
	file := os.Getenv("RAMUS_CURVES")
	if file == "" {
		if took := measure(parse, c.Text(max(c.Limit, least))); took > Hopeless {
			t.Errorf("%d bytes take %v", c.Limit, took)
		}
		return
	}
	for try := range tries {
		for i, size := range sizes {
			took := measure(parse, c.Text(max(size, least)))
			if took > hanging {
				write(t, file, fmt.Sprintf("%s\t%s\t%d bytes\t%s\n", parser, c.Name, size, took))
				t.Fatalf("%d of at most %d bytes take %v", size, c.Limit, took)
			}
			if try == 0 || took < spent[i] {
				spent[i] = took
			}
		}
		if spent[3] <= Quick && (try > 0 || perMB(spent[3], c.Limit) <= Slow) {
			break
		}
	}
	write(t, file, fmt.Sprintf("%s\t%s\t%d\t%s\t%s\t%s\t%s\t%.0f ms/MB\n", parser, c.Name, c.Limit,
		spent[0].Round(10*time.Microsecond), spent[1].Round(10*time.Microsecond), spent[2].Round(10*time.Microsecond),
		spent[3].Round(10*time.Microsecond), float64(perMB(spent[3], c.Limit))/1e6))
	if perMB(spent[3], c.Limit) > Slow && spent[3] > 20*time.Millisecond {
		t.Errorf("%d bytes take %v, which is more than %v for one MB: %v", c.Limit, spent[3], Slow, spent)
	}
	if spent[3] > Quick && spent[3] > ratio*spent[0] {
		t.Errorf("the time grows faster than the input: %v for %v bytes", spent, sizes)
	}
}

// perMB returns the time that one MB would take.
func perMB(took time.Duration, size int) time.Duration {
	return time.Duration(float64(took) / float64(size) * (1 << 20))
}

// measure returns the CPU time that the process spends on one input.
func measure(parse func([]byte), text []byte) time.Duration {
	before := used()
	parse(text)
	return used() - before
}

// used returns the CPU time of the process so far.
func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// write appends a line to the file of curves, if there is one.
func write(t *testing.T, file, line string) {
	if file == "" {
		return
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(line); err != nil {
		t.Fatal(err)
	}
}
