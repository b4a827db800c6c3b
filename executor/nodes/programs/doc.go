// Package programs has the programs that machines install, such as a kubelet, for each architecture.
//
// # Trust
//
// The sums of all programs are one text, which the server signs with a key that signs nothing else. A machine gets the
// public key with its description, checks the signature with ssh-keygen, and each program by its sum. So the programs
// may come over a network, a proxy or a cache that nobody trusts.
package programs
