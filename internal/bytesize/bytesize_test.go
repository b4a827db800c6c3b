package bytesize

import (
	"math"
	"testing"
)

func TestText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1024 + 50: "1 KiB", 1024 + 52: "1.1 KiB", 48 << 20: "48 MiB",
		1<<20 - 1:     "1 MiB",
		1<<20 - 1<<10: "1023 KiB", 20 << 30: "20 GiB", 22870000000: "21.3 GiB", 1 << 40: "1 TiB", 1 << 62: "4 EiB",
		math.MaxInt64: "8 EiB",
	} {
		if got := Text(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
