package bytesize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Parse returns the number of bytes that a text such as 512MiB, 2GiB or 1000 means.
func Parse(s string) (int64, error) {
	text, unit := strings.TrimSpace(s), int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = strings.TrimSpace(rest), 1<<(10*(i+1))
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is not a size such as 512MiB, 2GiB or a number of bytes", s)
	}
	return n * unit, nil
}
