//go:build deps

// Package ramus lists the libraries that are chosen and not yet used.
package ramus

import (
	_ "gocloud.dev/blob/memblob"
)
