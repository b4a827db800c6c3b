// Package rest makes requests to the REST APIs of forges that answer in JSON.
//
// A [Client] repeats a [Request] until the forge answers or refuses, or the context ends. It waits during rate limits,
// reads answers up to a limit, follows redirects only at the same host, and never sends its token elsewhere.
package rest
