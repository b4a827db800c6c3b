// Package cert has the server speak TLS.
//
// # Nouns
//
// A [Source] has the certificates of handshakes: [Files] reads one that somebody else renews, and [ACME] gets and renews
// its own from a certificate authority. [Redirect] leads requests without TLS to the address with TLS, and [Strict]
// has browsers use TLS alone from then on.
//
// # Invariants
//
// A certificate that cannot be read does not replace one that works. ACME asks only for the configured names, so that a
// client cannot have it ask for others. A request that changes something is not redirected, because its content has
// been readable by everybody on the way.
package cert
