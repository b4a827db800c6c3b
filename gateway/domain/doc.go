// Package domain gives the parts of a server hosts of their own below one domain.
//
// # Nouns
//
// A [Domain] is the name of the configuration, such as example.org, with the scheme and the port at which browsers
// reach it. A [Place] is the part of the server that a host names:
//
//	app.DOMAIN                the pages, and the sockets of pages
//	api.DOMAIN                the routes of programs, and the repositories
//	content.DOMAIN            the trace viewer and files with scripts
//	ws-WORKSPACE.DOMAIN       the routes of programs for one workspace
//	ws-WORKSPACE--PORT.DOMAIN the application at a port of its container
//
// [Sites] serve the routes of a table at these hosts.
//
// # Invariants
//
// A host has the routes of its place and no others, and no other host has routes. The name comes from the header Host
// alone, without regard to case and to one dot at its end; a port must be that of the domain. Other headers, such as
// X-Forwarded-Host, are ignored. After [Sites.Handler] the host of a request is in the one form that browsers use in
// origins.
//
// Cookies belong to one host. The cookie of a session is valid at app.DOMAIN alone, and routes at other hosts do
// not look at cookies of ramus. With https applications cannot set it, because its name begins with __Host-. Redirects
// lead to hosts of the domain.
//
// # Untrusted input
//
// Every header. Applications at sibling hosts are of the same site as the pages, but of another origin.
package domain
