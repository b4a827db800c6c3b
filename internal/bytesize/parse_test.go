package bytesize

import (
	"math"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1000": 1000, " 7 ": 7, "1KiB": 1 << 10, "512MiB": 512 << 20, "2 GiB": 2 << 30, "3TiB": 3 << 40,
		"9223372036854775807": math.MaxInt64, "8388607TiB": 8388607 << 40,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "-1KiB", "1.5GiB", "1KB", "1 k", "KiB", "5MiBKiB", "5KiBMiB",
		"9223372036854775808", "8388608TiB", "9223372036854775807KiB"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}
