// Package clone makes fetches cheaper that resemble each other, above all the clones of many branches of
// one base at the same time. Nothing depends on it, because git upload-pack can answer every fetch.
//
// # Nouns
//
// A [Cache] answers fetches of the repositories of one server. [Cache.Answer] is its only entry. It reports
// false for a fetch that git should answer itself.
//
// A kept reply is an answer of git in a file. One git makes it. Clients that ask for the same meanwhile
// follow the growing file, and later clients get the whole file.
//
// A base pack is the pack of all objects that the base branch reaches, in the packets of the wire. A composed
// reply consists of a base pack and the section of the objects that a branch has beyond the base
// ([history.Section]), under one header. The envelope is the bytes before and after the base pack. Deltas of the base
// pack find their bases by distance, so the base pack is sent as it is. Only the checksum at the end is
// computed for each reply, and of that all but the section can be kept. No object comes twice, because
// clients that check a pack would refuse it.
//
// # Invariants
//
// The wants of a request were checked before, and the reply depends on nothing but the request and the
// wanted objects. A client that may have a commit may have all that it reaches, so a base pack serves only
// wants of which one descends from its base, even if the refs have changed since.
//
// # Durability
//
// Nothing survives the process. Kept replies are in a folder that Close removes, as does a later server. Files of base packs have no names.
// Both are bounded in bytes and in number, and the least recently used ones go first.
package clone
