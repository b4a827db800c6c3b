// Package bytesize formats numbers of bytes for people.
package bytesize

import "strconv"

var units = [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// Text returns n in the largest binary unit that is not larger than n, rounded to a tenth, as "512 B", "64 MiB" or "1.5
// GiB".
func Text(n int64) string {
	v, unit := float64(n), 0
	for ; v >= 1024-.05 && unit < len(units)-1; unit++ { // 1023.95 would be rounded to 1024
		v /= 1024
	}
	return strconv.FormatFloat(float64(int64(v*10+.5))/10, 'f', -1, 64) + " " + units[unit]
}
