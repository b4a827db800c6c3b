// Command pulumi describes a server of ramus for Pulumi: a private network, a firewall, a machine at Hetzner, a disk for
// the data folder, a bucket for large artifacts, the names in DNS, and the keys.
//
// # Keys
//
// The program makes the 256-bit key with which credentials are sealed, and the key with which commits are signed. Both
// are secrets in the state of the stack, which Pulumi encrypts with the provider of secrets that the stack was made with.
// Nothing of them is in the description of the machine.
//
// # Protection
//
// Pulumi refuses to remove the keys, the disk and the bucket, and Hetzner refuses to remove the disk. A change that would
// replace one of them fails.
package main

import "github.com/pulumi/pulumi/sdk/v3/go/pulumi"

func main() { pulumi.Run(deploy) }
