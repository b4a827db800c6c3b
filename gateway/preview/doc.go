// Package preview shows people the applications that listen at ports of containers.
//
// # Nouns
//
// A preview is one port of one caller. With an [Origin] each preview has a host of its own, where a cookie admits a
// browser. Without one it is shown below a path of the server's own host, in a sandbox of the browser. A signed link
// leads to either.
//
// # Untrusted input
//
// The application is hostile. It never shares an origin with ramus. It cannot read or set the cookie that opens its
// own host, its redirects and headers cannot act for other hosts, and its informational answers are dropped. The
// person who looks at it is not hostile, but other pages in the same browser may be.
package preview
