package browser

// Compare says what differs between two views of one viewport. before and after are
// PNG files (nil: there is none), and the accessibility trees as text. The triptych is a PNG,
// nil when the pictures are equal. Pictures are bounded: more than 40 megapixels are not decoded.
func Compare(before, after []byte, ariaBefore, ariaAfter string, threshold float64) (d Diff, triptych []byte) {
	panic("not built")
}
